"""The server tables in SQLite: figures, and receives that can be retried.

Servers of one file share no keys, settings or signatures.
"""

from typing import TYPE_CHECKING, Final

from inturn.core.queue.messages import QueueInfo
from inturn.store.sql.servers import SqlServers
from inturn.store.sqlite.statements import NamedStatements
from inturn.telemetry.figures import QueueFigures

if TYPE_CHECKING:
    from inturn.store.sqlite.queues import SqliteQueues


class SqliteServers(SqlServers):
    """The server tables of one file.

    Args:
        queues: the queues.
    """

    is_shared: Final = False

    def __init__(self, queues: "SqliteQueues") -> None:
        statements = NamedStatements(queues.connection)
        super().__init__(statements.one, statements.read, statements.do)
        self._queues = queues

    def figures(self, now_ms: int) -> list[QueueFigures]:
        """Return the figures of all queues."""
        figures = []
        for name, info in sorted(self._queues.queues.items()):
            depth = self._queues.depth(info, now_ms)
            oldest = self._queues.read(info, 0, 1, pending=True)
            blocked = self._blocked(info, now_ms) if depth.in_flight + depth.delayed else 0
            sent_ms = oldest[0].sent_ms if oldest else None
            figures.append(QueueFigures.from_numbers(now_ms, name, depth[:3], sent_ms, blocked, depth.parked))
        return figures

    def _blocked(self, queue: QueueInfo, now_ms: int) -> int:
        """Return the number of groups with hidden messages whose head cannot be received."""
        hidden = [group for (group,) in self._all("hidden_groups", queue.number, now_ms)]
        return sum(not self._one("is_ready", self._queues.pending.head(queue, group)) for group in hidden)

    def probe_write(self, now_ms: int) -> int:
        """Write the time, since SQLite skips writes that change nothing; return the depth of all queues."""
        self._do("save_written_ms", now_ms)
        return sum(info.depth for info in self._queues.queues.values())

    # --- the state of one server of a file ---

    def version(self) -> int:
        """Return a number that never changes, as there are no texts."""
        return 0

    def values(self, *, to_change: bool = False) -> dict[str, str]:  # noqa: ARG002 - there are none
        """Return no texts."""
        return {}

    def save_value(self, name: str, value: str | None) -> None:
        """Store nothing."""

    def is_new(self, signature: bytes, until_s: int, now_s: int) -> bool:  # noqa: ARG002 - each server knows its own
        """Return True: no other server has accepted the signature."""
        return True
