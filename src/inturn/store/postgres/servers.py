"""The server tables in PostgreSQL.

Figures, keys and settings shared by all servers, receives that can be retried at another server, and signatures that
are accepted only once.
"""

from typing import Final

from inturn.core import limits
from inturn.store.sql.servers import SqlServers
from inturn.telemetry.figures import QueueFigures


class PostgresServers(SqlServers):
    """The server tables of a database."""

    is_shared: Final = True

    # --- figures ---

    def figures(self, now_ms: int) -> list[QueueFigures]:
        """Return the figures of all queues, with one statement."""
        rows = self._all("queue_metrics", now_ms, limits.SEQUENCE_BITS)
        return [QueueFigures.from_numbers(now_ms, row[0], row[1:4], *row[4:]) for row in rows]

    def probe_write(self, now_ms: int) -> int:
        """Write the time; return the number of messages."""
        self._do("save_written_ms", now_ms)
        return int(self._one("pending_count", limits.SEQUENCE_BITS)[0])

    # --- keys and settings ---

    def version(self) -> int:
        """Return a number that changes whenever a text is changed."""
        return int(self._one("server_values_version")[0])

    def values(self, *, to_change: bool = False) -> dict[str, str]:
        """Return all stored texts by name."""
        return dict(self._all("server_values_to_change" if to_change else "server_values"))

    def save_value(self, name: str, value: str | None) -> None:
        """Store a text under a name; None: remove it."""
        if value is None:
            self._do("remove_server_value", name)
        else:
            self._do("save_server_value", name, value)
        self._do("raise_server_values_version")

    # --- signatures ---

    def is_new(self, signature: bytes, until_s: int, now_s: int) -> bool:
        """Return whether a signature is seen for the first time; remove expired ones."""
        self._do("remove_expired_signatures", now_s, limits.FORGET_AT_ONCE)
        return self._one("add_signature", signature, until_s) is not None
