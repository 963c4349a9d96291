"""Figures about the file for a server. Servers of one file share nothing but the file."""

from typing import TYPE_CHECKING, Final

from inturn.core.queue.messages import QueueInfo
from inturn.store.servers import QueueFigures
from inturn.store.sqlite.statements import SqliteStatements

if TYPE_CHECKING:
    from inturn.store.sqlite.store import SqliteStore


class SqliteServers(SqliteStatements):
    """Figures of one file.

    Args:
        store: the store with its queues.
    """

    shared: Final = None

    def __init__(self, store: "SqliteStore") -> None:
        super().__init__(store.connection)
        self._store = store

    def figures(self, now_ms: int) -> list[QueueFigures]:
        """Return the figures of all queues."""
        found = []
        for name, info in sorted(self._store.queues.items()):
            depth = self._store.depth(info, now_ms)
            oldest = self._store.read(info, 0, 1, pending=True)
            blocked = self._blocked(info, now_ms) if depth.in_flight + depth.delayed else 0
            sent_ms = oldest[0].sent_ms if oldest else None
            found.append(QueueFigures(name, depth.messages, depth.in_flight, depth.delayed, sent_ms, blocked))
        return found

    def _blocked(self, queue: QueueInfo, now_ms: int) -> int:
        """Return how many groups have hidden messages and a head that cannot be received."""
        hidden = [group for (group,) in self._all("hidden_groups", queue.number, now_ms)]
        return sum(not self._one("is_ready", self._store.pending.head(queue, group)) for group in hidden)

    def written(self, now_ms: int) -> int:
        """Write the time, since SQLite skips writes that change nothing; return the depth of all queues."""
        self._do("written", now_ms)
        return sum(info.depth for info in self._store.queues.values())
