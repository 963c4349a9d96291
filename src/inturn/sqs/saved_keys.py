"""Access keys as they are saved in a database, and the changes that ``inturn keys`` makes to them."""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from inturn.core.errors import InputError
from inturn.database import Database
from inturn.sqs.config import AccessKey
from inturn.sqs.events import EVENTS
from inturn.sqs.sealing import GIVE_ONE, SealedSecretError, SealingKeys, sealed_with
from inturn.store.commands import StoreCall

if TYPE_CHECKING:
    from inturn.store.servers import ServerStore

_T = TypeVar("_T")
_PREFIX: Final = "key/"
_PLAIN: Final = SealingKeys()


class SavedKey(Struct):
    """A key's JSON form, with its secret or the sealed one; newer versions may have added fields.

    Versions that do not support sealed secrets refuse to read a sealed key.
    """

    secret: str | UnsetType = UNSET
    sealed: str | UnsetType = UNSET
    queues: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ("*",)
    account: str | None = None
    admin: bool | UnsetType = UNSET  # left out if false

    @property
    def sealed_with(self) -> str | None:
        """The fingerprint of the sealing key; None: the secret is in plain text."""
        return None if self.sealed is UNSET else sealed_with(self.sealed)

    def opened(self, key_id: str, sealing: SealingKeys) -> AccessKey:
        """Return the key with its secret.

        Raises:
            InputError: if it is malformed.
            SealedSecretError: if the secret cannot be opened.
        """
        secret = sealing.open(key_id, self.sealed) if self.sealed is not UNSET else self.secret or None
        return self.key(key_id, secret)

    def key(self, key_id: str, secret: str | None) -> AccessKey:
        """Return the key with the given secret.

        Raises:
            InputError: if it is malformed.
        """
        try:
            return AccessKey(
                id=key_id,
                secret=secret,
                queues=self.queues,
                actions=self.actions,
                account=self.account,
                admin=self.admin is True,
            )
        except InputError:  # the error's text might contain the secret
            raise _malformed(key_id) from None


def fact_name(key_id: str) -> str:
    """Return the name under which a key is saved."""
    return f"{_PREFIX}{key_id}"


def encode_key(key: AccessKey, sealing: SealingKeys = _PLAIN) -> str:
    """Return a key's JSON form, sealed if there is a sealing key."""
    saved = SavedKey(queues=key.queues, actions=key.actions, account=key.account, admin=key.admin or UNSET)
    if sealing.newest is None:
        saved.secret = key.secret or ""
    else:
        saved.sealed = sealing.seal(key.id, key.secret or "")
    return msgspec.json.encode(saved).decode()


def parse_saved(facts: Mapping[str, str]) -> dict[str, SavedKey]:
    """Return the keys among the saved values, by their ids.

    Raises:
        InputError: if one of them is malformed.
    """
    saved_keys = {}
    for name, value in sorted(facts.items()):
        if name.startswith(_PREFIX):
            key_id = name.removeprefix(_PREFIX)
            try:
                saved_keys[key_id] = msgspec.json.decode(value, type=SavedKey)
            except (ValueError, msgspec.MsgspecError):  # the error's text might contain the secret
                raise _malformed(key_id) from None
    return saved_keys


def keys_in(facts: Mapping[str, str], sealing: SealingKeys = _PLAIN) -> tuple[AccessKey, ...]:
    """Return the keys among the saved values.

    A key that cannot be opened is logged and gets a random secret: its requests are refused, and a server that has no
    other key still requires signatures.

    Raises:
        InputError: if one of them is malformed.
    """
    opened = []
    for key_id, saved in parse_saved(facts).items():
        try:
            opened.append(saved.opened(key_id, sealing))
        except SealedSecretError as error:
            text = "requests with access key %(key)s are refused: %(error)s"
            EVENTS.error("unusable_key", key_id, text, key=key_id, error=str(error))
            opened.append(saved.key(key_id, secrets.token_urlsafe()))
    return tuple(opened)


def check_sealing(saved: Mapping[str, SavedKey], sealing: SealingKeys) -> None:
    """Check that no key is saved in plain text next to sealed ones.

    Raises:
        InputError: if it would be.
    """
    if sealing.newest is None and any(key.sealed_with is not None for key in saved.values()):
        raise InputError(f"the access keys in the database are sealed, but no sealing key is configured; {GIVE_ONE}")


def _malformed(key_id: str) -> InputError:
    name = fact_name(key_id)
    return InputError(
        f"{name!r} in table inturn_server_value is not a valid access key; remove it with 'inturn keys remove'"
    )


# --- the operations of the commands ---


def keys(db: Database) -> dict[str, SavedKey]:
    """Return all keys of a database by their ids. A file, which has no keys, is refused."""

    def read(servers: "ServerStore") -> dict[str, SavedKey]:
        return parse_saved(servers.values())

    return _in_database(db, read)


def save_key(db: Database, key: AccessKey, sealing: SealingKeys = _PLAIN) -> bool:
    """Add a key, or replace the one with its id; return whether it existed. A file, which has no keys, is refused."""

    def save(servers: "ServerStore") -> bool:
        saved = parse_saved(servers.values())
        check_sealing(saved, sealing)
        servers.save_value(fact_name(key.id), encode_key(key, sealing))
        return key.id in saved

    return _in_database(db, save)


def remove_key(db: Database, key_id: str) -> bool:
    """Remove a key; return whether it existed. A file, which has no keys, is refused."""

    def remove(servers: "ServerStore") -> bool:
        if is_there := fact_name(key_id) in servers.values():
            servers.save_value(fact_name(key_id), None)
        return is_there

    return _in_database(db, remove)


def reseal(db: Database, sealing: SealingKeys) -> tuple[list[str], dict[str, str]]:
    """Seal all keys with the newest sealing key, in one transaction. A file, which has no keys, is refused.

    Returns:
        The ids of the keys that were sealed, and of those that cannot be opened, each with the reason.

    Raises:
        InputError: if no sealing key is configured, or a key is malformed.
    """
    if sealing.newest is None:
        raise InputError(f"no sealing key is configured; {GIVE_ONE}")

    def seal(servers: "ServerStore") -> tuple[list[str], dict[str, str]]:
        sealed, unopened = [], {}
        for key_id, saved in parse_saved(servers.values(to_change=True)).items():
            if saved.sealed_with == sealing.newest:
                continue
            try:
                key = saved.opened(key_id, sealing)
            except SealedSecretError as error:
                unopened[key_id] = str(error)
                continue
            servers.save_value(fact_name(key_id), encode_key(key, sealing))
            sealed.append(key_id)
        return sealed, unopened

    return _in_database(db, seal)


def _in_database(db: Database, do: "Callable[[ServerStore], _T]") -> _T:
    if not db.store.servers.is_shared:
        raise InputError(
            "a database file stores no access keys; add them as [[keys]] in the configuration of its server"
        )

    def run(store: Any, _now_ms: int) -> _T:
        return do(store.servers)

    return db.writer.run(StoreCall("", run))
