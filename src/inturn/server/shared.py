"""Access keys and settings shared by all servers of one database.

When a server starts, its configured values are saved in the database, and it takes the values that it does not set from
there. So one server is configured, and the others follow: added and removed keys within ``limits.SHARED_S``, settings
at their next start. Servers of a file have only their own configuration.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from inturn.core.errors import InputError
from inturn.database import Database
from inturn.server.config import AccessKey, Config, Loaded, ServerConfig, with_options
from inturn.store.commands import Ask

if TYPE_CHECKING:
    from inturn.store.servers import ServerStore

_LOG: Final = logging.getLogger(__name__)

SETTINGS: Final = ("account", "base_url", "check_region", "region", "regions", "replays")
"""The settings of ``[server]`` that clients see, whichever server they use."""
_KEY: Final = "key/"
_SETTING: Final = "server/"


class _StoredKey(Struct):
    """A key's JSON form in the database; newer versions may have added fields."""

    secret: str
    queues: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ("*",)
    account: str | None = None
    admin: bool | msgspec.UnsetType = msgspec.UNSET  # left out if false, as in the form of earlier versions


class Shared:
    """A server's view of the shared keys and settings."""

    def __init__(self, db: Database, config: Config) -> None:
        self._db = db
        self._config = config
        self._version = -1

    async def start(self) -> Config:
        """Save the configured values, and return the configuration completed from the database.

        Raises:
            StoreError: if the database cannot be used.
            InputError: if a saved value fits no setting.
        """
        self._version, facts, changed = await self._db.writer.arun(Ask("", self._declare))
        for name in changed:
            _LOG.warning("%s in the database; all servers have it now as it is configured here", name)
        config = replace(self._config, keys=keys_in(facts))
        others = {key.id for key in config.keys} - {key.id for key in self._config.keys}
        if others:
            _LOG.info("keys that are not configured here are in the database", extra={"ids": ", ".join(sorted(others))})
        kept = {name.removeprefix(_SETTING): value for name, value in facts.items() if name.startswith(_SETTING)}
        return with_options(config, {name: msgspec.json.decode(kept[name]) for name in SETTINGS if name in kept})

    async def changed(self) -> Sequence[AccessKey] | None:
        """Return all keys if one was added, changed or removed since the last call; else None.

        Raises:
            StoreError: if the database cannot be used.
        """
        version, facts = await self._db.writer.arun(Ask("", self._look))
        if version == self._version:
            return None
        self._version = version
        return keys_in(facts)

    def _declare(self, store: Any, _now_ms: int) -> tuple[int, dict[str, str], list[str]]:
        servers: ServerStore = store.servers
        facts = servers.facts()
        changed = []
        for name, value in sorted(_facts_of(self._config).items()):
            if facts.get(name) != value:
                if name in facts:
                    is_secret = name.startswith(_KEY)
                    changed.append(f"{name} was {'otherwise' if is_secret else f'{facts[name]}, not {value},'}")
                servers.keep(name, value)
                facts[name] = value
        return servers.version(), facts, changed

    def _look(self, store: Any, _now_ms: int) -> tuple[int, dict[str, str]]:
        servers: ServerStore = store.servers
        version = servers.version()
        return version, {} if version == self._version else servers.facts()


def _facts_of(config: Config) -> dict[str, str]:
    """Return the shared keys and settings of a configuration."""
    facts = {f"{_KEY}{key.id}": text_of(key) for key in config.keys}
    said = _said(config)
    for name in SETTINGS:
        if name in said:
            facts[f"{_SETTING}{name}"] = msgspec.json.encode(getattr(config.server, name)).decode()
    return facts


def _said(config: Config) -> frozenset[str]:
    """Return the settings of ``[server]`` that a configuration sets; if not read from a file, those not default."""
    if isinstance(config, Loaded):
        return config.said
    usual = ServerConfig()
    return frozenset(
        name for name in ServerConfig.__struct_fields__ if getattr(config.server, name) != getattr(usual, name)
    )


def text_of(key: AccessKey) -> str:
    """Return a key's JSON form in the database."""
    kept = _StoredKey(key.secret or "", key.queues, key.actions, key.account, key.admin or msgspec.UNSET)
    return msgspec.json.encode(kept).decode()


def keys_in(facts: Mapping[str, str]) -> tuple[AccessKey, ...]:
    """Return the keys among the saved values.

    Raises:
        InputError: if one of them is malformed.
    """
    found = []
    for name, value in sorted(facts.items()):
        if name.startswith(_KEY):
            try:
                kept = msgspec.json.decode(value, type=_StoredKey)
                found.append(
                    AccessKey(
                        id=name.removeprefix(_KEY),
                        secret=kept.secret,
                        queues=kept.queues,
                        actions=kept.actions,
                        account=kept.account,
                        admin=kept.admin is True,
                    )
                )
            except (ValueError, msgspec.MsgspecError):  # the error's text might contain the secret
                msg = f"what is kept as {name!r} in inturn_fact is no access key; 'inturn keys remove' takes it away"
                raise InputError(msg) from None
    return tuple(found)


# --- keys managed from the command line ---


def keys(db: Database) -> tuple[AccessKey, ...]:
    """Return all keys of a database. A file, which has no keys, is refused."""
    _check(db)

    def look(store: Any, _now_ms: int) -> tuple[AccessKey, ...]:
        return keys_in(store.servers.facts())

    return db.writer.run(Ask("", look))


def save_key(db: Database, key: AccessKey) -> bool:
    """Add a key, or replace the one with its id; return whether there was one. A file has no keys."""
    _check(db)

    return db.writer.run(Ask("", partial(_keep, f"{_KEY}{key.id}", text_of(key))))


def remove_key(db: Database, name: str) -> bool:
    """Remove a key; return whether there was one. A file, which has no keys, is refused."""
    _check(db)

    return db.writer.run(Ask("", partial(_keep, f"{_KEY}{name}", None)))


def _keep(name: str, value: str | None, store: Any, _now_ms: int) -> bool:
    """Save or remove a key; return whether there was one."""
    servers: ServerStore = store.servers
    is_there = name in servers.facts()
    if is_there or value is not None:
        servers.keep(name, value)
    return is_there


def _check(db: Database) -> None:
    if not db.store.servers.is_shared:
        raise InputError("a file keeps no access keys: they are [[keys]] in the configuration of its server")
