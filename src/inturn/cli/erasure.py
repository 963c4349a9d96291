"""The command that removes all content of a group."""

import getpass
from typing import Annotated

import typer

from inturn.cli.options import AsJson, GroupName, Yes
from inturn.cli.output import confirm_loss, one_line, print_json, print_text
from inturn.cli.targets import check_store, is_store, opened_database, split_target
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.core.words import counted


def forget(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="Database, such as shop.db, or a store on Spark, such as out/ledger.")
    ],
    group: GroupName,
    why: Annotated[str, "Reason, stored with the decision; it must not contain content of the group."] = "",
    by: Annotated[str | None, "User who decides (default: the login name)."] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove all content of a group from a database or a store, and from its files.

    Removes messages, log, state, held and rejected messages and outputs from all queues and pipelines; pipelines give
    the group up. The decision itself is kept. Other processes wait while the files are rewritten. If the command is
    interrupted, run it again. Backups are not changed.
    """
    by = by or getpass.getuser()
    path, name = split_target(store)
    if not name and is_store(store):
        _forget_in_store(store, group, by=by, why=why, yes=yes, as_json=as_json)
        return
    if name:
        raise InputError(
            f"{shown(store)!r} names a queue or a pipeline, but a group is removed from all of them; use "
            f"'inturn forget {shown(path)} {one_line(group)}'"
        )
    with opened_database(path) as db:
        _confirm(group, path, yes=yes, as_json=as_json)
        from inturn.erasure import forget as forget_group

        done = forget_group(db, group, by=by, why=why)
    if as_json:
        print_json({"group": group, "messages": done.messages, "pipelines": done.pipelines})
        return
    total = sum(done.messages.values())
    where = f" of {counted(len(done.messages), 'queue')}" if done.messages else ""
    print_text(f"{counted(total, 'message')}{where} {'was' if total == 1 else 'were'} removed.")
    for pipeline in done.pipelines:
        print_text(f"Pipeline {one_line(pipeline)} gave the group up.")


def _forget_in_store(store: str, group: str, *, by: str, why: str, yes: bool, as_json: bool) -> None:
    check_store(store)
    _confirm(group, store, yes=yes, as_json=as_json)
    from inturn.erasure import forget_in_store

    done = forget_in_store(store, group, by=by, why=why)
    if as_json:
        print_json({"group": group, **done._asdict()})
        return
    removed = [(done.outputs, "output"), (done.rejected, "rejected message"), (done.held, "held message")]
    print_text(f"Removed: {', '.join(counted(count, noun) for count, noun in removed)}.")
    print_text("The store gave the group up." if done.is_known else "The store does not know the group.")


def _confirm(group: str, place: str, *, yes: bool, as_json: bool) -> None:
    confirm_loss(f"Remove all content of group {group} from {shown(place)} permanently?", yes=yes, as_json=as_json)
