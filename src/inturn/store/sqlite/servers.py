"""The server tables in SQLite: figures, and receives that can be retried.

Servers of one file share no keys, settings or signatures.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo
from inturn.store.records import PipelineInfo
from inturn.store.servers import ReceivedLease
from inturn.store.sqlite.statements import SqliteStatements
from inturn.telemetry.figures import PipelineFigures, QueueFigures

if TYPE_CHECKING:
    from inturn.store.sqlite.queues import SqliteQueues

_decode: Final = msgspec.json.Decoder(list[ReceivedLease]).decode


class SqliteServers(SqliteStatements):
    """The server tables of one file.

    Args:
        queues: the queues.
    """

    is_shared: Final = False

    def __init__(self, queues: "SqliteQueues") -> None:
        super().__init__(queues.connection)
        self._queues = queues

    def figures(self, now_ms: int) -> list[QueueFigures]:
        """Return the figures of all queues."""
        found = []
        for name, info in sorted(self._queues.queues.items()):
            depth = self._queues.depth(info, now_ms)
            oldest = self._queues.read(info, 0, 1, pending=True)
            blocked = self._blocked(info, now_ms) if depth.in_flight + depth.delayed else 0
            sent_ms = oldest[0].sent_ms if oldest else None
            found.append(QueueFigures.at(now_ms, name, depth[:3], sent_ms, blocked, depth.parked))
        return found

    def _blocked(self, queue: QueueInfo, now_ms: int) -> int:
        """Return the number of groups with hidden messages whose head cannot be received."""
        hidden = [group for (group,) in self._all("hidden_groups", queue.number, now_ms)]
        return sum(not self._one("is_ready", self._queues.pending.head(queue, group)) for group in hidden)

    def pipeline_figures(self, info: PipelineInfo, now_ms: int) -> PipelineFigures:
        """Return the figures of a pipeline."""
        standing = self._all("standing", info.number, limits.FIGURES_ROWS)
        outbox = self._one("outbox_figures", info.number, limits.FIGURES_ROWS)
        return PipelineFigures.at(now_ms, info.name, info.counts, standing, outbox)

    def written(self, now_ms: int) -> int:
        """Write the time, since SQLite skips writes that change nothing; return the depth of all queues."""
        self._do("written", now_ms)
        return sum(info.depth for info in self._queues.queues.values())

    # --- the state of one server of a file ---

    def version(self) -> int:
        """Return a number that never changes, as there are no texts."""
        return 0

    def facts(self, *, to_change: bool = False) -> dict[str, str]:  # noqa: ARG002 - there are none
        """Return no texts."""
        return {}

    def keep(self, name: str, value: str | None) -> None:
        """Store nothing."""

    def is_new(self, signature: bytes, until_s: int, now_s: int) -> bool:  # noqa: ARG002 - each server knows its own
        """Return True: no other server has accepted the signature."""
        return True

    # --- receives that can be retried ---

    def attempt(self, queue: QueueInfo, attempt_id: str, now_ms: int) -> list[ReceivedLease]:
        """Return the leases of the receive with this id if all of them are unchanged, otherwise an empty list."""
        row = self._one("attempt", queue.number, attempt_id, now_ms)
        leases = [] if row is None else _decode(row[0])
        return leases if leases and self._one("leased_so", row[0], queue.number, now_ms)[0] == len(leases) else []

    def remember(
        self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease], until_ms: int, now_ms: int
    ) -> None:
        """Store the leases of a receive; remove those that can no longer be retried."""
        self._do("forget_attempts", now_ms, limits.FORGET_AT_ONCE)
        self._do("remember_attempt", queue.number, attempt_id, until_ms, msgspec.json.encode(leases).decode())

    def remember_leases(self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease]) -> None:
        """Store the extended leases of a receive."""
        self._do("remember_leases", msgspec.json.encode(leases).decode(), queue.number, attempt_id)
