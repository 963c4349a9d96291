"""Leases, delays and locks that start in the future of this process's clock, in SQLite: core/queue/clock_skew.py."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from inturn.core import limits
from inturn.core.queue.clock_skew import ClockSkew, Kind, Over, Span
from inturn.store.sqlite.statements import SqliteStatements

_KINDS: Final[tuple[Kind, ...]] = ("hold", "lease", "lock")
_ENDING: Final[dict[Kind, tuple[str, ...]]] = {
    "hold": ("end_hold_at",),
    "lease": ("end_lease_at", "end_lease_parts_at"),  # the lease may have been split since it was noted
    "lock": ("end_lock_at",),
}


class FutureSpans(SqliteStatements):
    """Finder of spans that start in the future, which also ends those that are over.

    Args:
        connection: to the file.

    Attributes:
        skew: the spans noted by this process.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.skew: Final = ClockSkew()

    def end(self, over: Sequence[Over]) -> None:
        """End spans that are over."""
        for span, since_ms, until_ms in over:
            for statement in _ENDING[span.kind]:
                self._do(statement, until_ms, since_ms, *span[1:])

    def note(self, now_ms: int) -> None:
        """Note all spans that start in the future, after one was seen."""
        self.skew.note(self.starts(now_ms), now_ms)

    def starts(self, now_ms: int) -> list[Span]:
        """Return the spans that start after a time."""
        rows = self._all("begun_later", now_ms, limits.NOTED_SPANS)
        return [Span(_KINDS[kind], *row) for kind, *row in rows]
