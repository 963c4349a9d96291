"""Commands about access keys that all servers of a PostgreSQL database share; see docs/postgres.md."""

import secrets
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from inturn.cli.errors import Commands, needed
from inturn.cli.options import AsJson
from inturn.cli.output import cell, plain_console, print_json, print_text
from inturn.cli.targets import opened_database
from inturn.core.errors import InputError
from inturn.core.words import counted

keys = Commands(
    help="Add, list, remove and reseal the access keys of all servers of a PostgreSQL database.", no_args_is_help=True
)

At = Annotated[str, typer.Argument(metavar="DATABASE", help="Database: postgresql://….")]
_SERVER: Final = ("access keys need", "server")
SealedBy = Annotated[
    Path | None,
    "File with the sealing keys, newest first (default: INTURN_SEALING_KEY_FILE or INTURN_SEALING_KEY).",
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="Public id of the key.")]


@keys.command()
def add(
    at: At,
    key_id: KeyId,
    queues: Annotated[list[str] | None, "Pattern of allowed queue names (repeatable; default: all)."] = None,
    actions: Annotated[
        list[str] | None, "Pattern of allowed actions, such as Send* (repeatable; default: all)."
    ] = None,
    account: Annotated[str | None, "Account id of the key (12 digits; default: the server's account)."] = None,
    secret_env: Annotated[str | None, "Environment variable with the secret."] = None,
    secret_file: Annotated[Path | None, "File with the secret."] = None,
    admin: Annotated[
        bool, "Allow changes of attributes and permissions of every queue, regardless of policies."
    ] = False,
    sealing_key_file: SealedBy = None,
    as_json: AsJson = False,
) -> None:
    """Add or change an access key; without a given secret, one is generated and printed once."""
    with needed(*_SERVER):
        from inturn.serving.config_file import convert
        from inturn.serving.secrets import with_secret
        from inturn.sqs.config import AccessKey
        from inturn.sqs.saved_keys import save_key
        from inturn.sqs.sealing import SealingKeySource
    is_given = secret_env is not None or secret_file is not None
    settings = {
        "id": key_id,
        "secret": None if is_given else secrets.token_urlsafe(30),
        "secret_env": secret_env,
        "secret_file": secret_file and str(secret_file),
        "queues": queues,
        "actions": actions,
        "account": account,
        "admin": admin,
    }
    key = convert({name: value for name, value in settings.items() if value}, AccessKey)
    key = with_secret(key, "secret", Path())
    with opened_database(at) as db:
        was_there = save_key(db, key, SealingKeySource(sealing_key_file).read())
    if as_json:
        created = {} if is_given else {"secret": key.secret}
        print_json({"id": key.id, "changed": was_there, **created})
        return
    print_text(f"{key.id} was {'changed' if was_there else 'added'}.")
    if not is_given:
        print_text(f"Its secret, which is not shown again: {key.secret}")


@keys.command("list")
def list_(at: At, as_json: AsJson = False) -> None:
    """List the access keys, without their secrets."""
    with needed(*_SERVER):
        from inturn.sqs.saved_keys import keys as keys_of
    with opened_database(at) as db:
        saved_keys = {name: (saved.key(name, "?"), saved.sealed_with) for name, saved in keys_of(db).items()}
    if as_json:
        shown = ("id", "queues", "actions", "account", "admin")
        print_json(
            [{name: getattr(key, name) for name in shown} | {"sealed_with": seal} for key, seal in saved_keys.values()]
        )
        return
    table = Table("id", "queues", "actions", "account", "admin", "sealed with", box=None, pad_edge=False)
    for key, seal in saved_keys.values():
        patterns = (cell(", ".join(key.queues)), cell(", ".join(key.actions)))
        may = "yes" if key.admin else ""
        table.add_row(cell(key.id), *patterns, cell(key.account or "the server's"), may, cell(seal or ""))
    plain_console().print(
        table if saved_keys else "There are no keys; without keys, servers listen only on loopback addresses."
    )


@keys.command()
def reseal(at: At, sealing_key_file: SealedBy = None, as_json: AsJson = False) -> None:
    """Seal the secrets of all keys with the newest sealing key, the first one in the file."""
    with needed(*_SERVER):
        from inturn.sqs.saved_keys import reseal as reseal_in
        from inturn.sqs.sealing import SealingKeySource
    sealing = SealingKeySource(sealing_key_file).read()
    with opened_database(at) as db:
        sealed, unopened = reseal_in(db, sealing)
    if as_json:
        print_json({"sealed": sealed, "unopened": unopened, "sealed_with": sealing.newest})
    else:
        print_text(f"Sealed with {sealing.newest}: {counted(len(sealed), 'secret')}.")
    if unopened:
        raise InputError(f"not resealed: {counted(len(unopened), 'secret')}: {'; '.join(unopened.values())}")


@keys.command()
def remove(at: At, key_id: KeyId, as_json: AsJson = False) -> None:
    """Remove an access key; servers then refuse requests that are signed with it."""
    with needed(*_SERVER):
        from inturn.sqs.saved_keys import remove_key
    with opened_database(at) as db:
        if not remove_key(db, key_id):
            raise InputError(f"no key {key_id!r}; list all with 'inturn keys list'")
    if as_json:
        print_json({"id": key_id, "removed": True})
        return
    print_text(f"{key_id} was removed. A server whose configuration contains the key adds it again at its start.")
