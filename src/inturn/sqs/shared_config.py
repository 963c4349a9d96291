"""Access keys and settings shared by all servers of one database.

When a server starts, its configured values are saved in the database, and it takes the values that it does not set from
there. So one server is configured, and the others follow: added and removed keys within ``limits.SHARED_S``, settings
at their next start. Servers of a file have only their own configuration.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from inturn.core.errors import InputError
from inturn.database import Database
from inturn.sqs.config import AccessKey, Config, LoadedConfig, ServerConfig, with_options
from inturn.sqs.events import EVENTS
from inturn.sqs.saved_keys import check_sealing, encode_key, fact_name, keys_in, parse_saved
from inturn.sqs.sealing import SealingKeys, SealingKeySource
from inturn.store.commands import StoreCall

if TYPE_CHECKING:
    from inturn.store.servers import ServerStore


SETTINGS: Final = ("account", "base_url", "check_region", "region", "regions", "replays")
"""The settings of ``[server]`` that clients see, whichever server they use."""
_SETTING: Final = "server/"


class SharedConfig:
    """A server's view of the shared keys and settings."""

    def __init__(self, db: Database, config: Config) -> None:
        self._db = db
        self._config = config
        self._version = -1
        self._source = SealingKeySource(config.server.sealing_key_file)
        self._sealing = SealingKeys()
        self._last_error = ""

    async def start(self) -> Config:
        """Save the configured values, and return the configuration completed from the database.

        Raises:
            StoreError: if the database cannot be used.
            InputError: if a saved value is not valid for its setting, or the sealing keys cannot be read.
        """
        self._sealing = self._source.read()
        self._version, facts, changed = await self._db.writer.arun(StoreCall("", self._declare))
        for name in changed:
            text = "%(change)s in the database; it is replaced by the value configured here"
            EVENTS.warning("setting_replaced", name, text, change=name)
        config = replace(self._config, keys=keys_in(facts, self._sealing))
        unconfigured = {key.id for key in config.keys} - {key.id for key in self._config.keys}
        if unconfigured:
            ids = ", ".join(sorted(unconfigured))
            text = "the database has access keys that are not configured here: %(ids)s"
            EVENTS.info("keys_found", self._db.name, text, ids=ids)
        stored = {name.removeprefix(_SETTING): value for name, value in facts.items() if name.startswith(_SETTING)}
        return with_options(config, {name: msgspec.json.decode(stored[name]) for name in SETTINGS if name in stored})

    async def changed_keys(self) -> Sequence[AccessKey] | None:
        """Return all keys if one of them, or a sealing key, was changed since the last call; else None.

        Raises:
            StoreError: if the database cannot be used.
        """
        if not self._db.store.servers.is_shared:
            return None
        version, facts = await self._db.writer.arun(StoreCall("", self._read))
        while (sealing := await self._current_sealing()) != self._sealing:  # and may already be in use
            if sealing is None:
                return None
            EVENTS.info("sealing_keys_changed", self._db.name, "the sealing keys have changed", newest=sealing.newest)
            self._sealing, self._version = sealing, -1
            version, facts = await self._db.writer.arun(StoreCall("", self._read))
        if version == self._version:
            return None
        self._version = version
        return keys_in(facts, self._sealing)

    async def _current_sealing(self) -> SealingKeys | None:
        """Return the current sealing keys; if they cannot be read, the previous ones.

        The first failure returns None, and the caller waits for its next check: the file may be half-written, and the
        access keys may already be sealed with the keys that it will contain.
        """
        try:
            current = await asyncio.to_thread(self._source.read)
        except InputError as error:
            is_new, self._last_error = str(error) != self._last_error, str(error)
            if is_new:
                text = "cannot read the sealing keys; the previous ones stay in use: %(error)s"
                EVENTS.error("sealing_keys_unreadable", self._db.name, text, error=str(error))
            return None if is_new else self._sealing
        self._last_error = ""
        return current

    def _declare(self, store: Any, _now_ms: int) -> tuple[int, dict[str, str], list[str]]:
        servers: ServerStore = store.servers
        facts = servers.values()
        changed = []
        for name, value in (*self._new_keys(facts), *self._new_settings(facts)):
            if name in facts:
                is_secret = not name.startswith(_SETTING)
                old = "another value" if is_secret else f"the value {facts[name]}, not {value},"
                changed.append(f"{name} had {old}")
            servers.save_value(name, value)
            facts[name] = value
        return servers.version(), facts, changed

    def _new_keys(self, facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the configured keys that differ from the saved ones; one that cannot be compared is not changed."""
        saved_keys = parse_saved(facts)
        for key in sorted(self._config.keys, key=lambda configured: configured.id):
            saved = saved_keys.get(key.id)
            try:
                check_sealing(saved_keys, self._sealing)
                if saved is None or saved.opened(key.id, self._sealing) != key:
                    yield fact_name(key.id), encode_key(key, self._sealing)
            except InputError as error:
                text = "access key %(key)s is not saved: %(error)s"
                EVENTS.error("unusable_key", key.id, text, key=key.id, error=str(error))

    def _new_settings(self, facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        explicit = _explicit_settings(self._config)
        for setting in SETTINGS:
            name, value = f"{_SETTING}{setting}", msgspec.json.encode(getattr(self._config.server, setting)).decode()
            if setting in explicit and facts.get(name) != value:
                yield name, value

    def _read(self, store: Any, _now_ms: int) -> tuple[int, dict[str, str]]:
        servers: ServerStore = store.servers
        version = servers.version()
        return version, {} if version == self._version else servers.values()


def _explicit_settings(config: Config) -> frozenset[str]:
    """Return the ``[server]`` settings that a configuration sets; without a file, those that are not the default."""
    if isinstance(config, LoadedConfig):
        return config.explicit_settings
    usual = ServerConfig()
    return frozenset(
        name for name in ServerConfig.__struct_fields__ if getattr(config.server, name) != getattr(usual, name)
    )
