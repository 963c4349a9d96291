"""The server tables of an SQL database: figures of pipelines, and receives that can be retried."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo
from inturn.store.records import PipelineInfo
from inturn.store.servers import ReceivedLease
from inturn.telemetry.figures import PipelineFigures

_decode: Final = msgspec.json.Decoder(list[ReceivedLease]).decode


class SqlServers:
    """The part of the server tables that both databases share.

    Args:
        read_one: runs a statement by its name, with its parameters; returns its first row, None if there is none.
        read: runs a statement; returns its rows.
        do: runs a statement that has no result.
    """

    def __init__(self, read_one: Callable[..., Any], read: Callable[..., list[Any]], do: Callable[..., object]) -> None:
        self._one, self._all, self._do = read_one, read, do

    def pipeline_figures(self, info: PipelineInfo, now_ms: int) -> PipelineFigures:
        """Return the figures of a pipeline."""
        standing = self._all("group_status_counts", info.number, limits.FIGURES_ROWS)
        outbox = self._one("outbox_metrics", info.number, limits.FIGURES_ROWS)
        return PipelineFigures.from_rows(now_ms, info.name, info.counts, standing, outbox)

    def attempt(self, queue: QueueInfo, attempt_id: str, now_ms: int) -> list[ReceivedLease]:
        """Return the leases of the receive with this id if all of them are unchanged, otherwise an empty list."""
        row = self._one("attempt", queue.number, attempt_id, now_ms)
        leases = [] if row is None else _decode(row[0])
        return (
            leases
            if leases and self._one("matching_lease_count", row[0], queue.number, now_ms)[0] == len(leases)
            else []
        )

    def remember(
        self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease], until_ms: int, now_ms: int
    ) -> None:
        """Store the leases of a receive; remove those that can no longer be retried."""
        self._do("remove_expired_attempts", now_ms, limits.FORGET_AT_ONCE)
        self._do("save_attempt", queue.number, attempt_id, until_ms, msgspec.json.encode(leases).decode())

    def remember_leases(self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease]) -> None:
        """Store the extended leases of a receive."""
        self._do("save_attempt_leases", queue.number, attempt_id, msgspec.json.encode(leases).decode())
