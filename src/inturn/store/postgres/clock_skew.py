"""Holds and locks that begin in the future of this process's clock, in PostgreSQL: core/queue/clock_skew.py."""

from typing import Final

from inturn.core import limits
from inturn.core.queue.clock_skew import ClockSkew, Span
from inturn.store.postgres.statements import PostgresStatements, Wire


class PostgresFutureSpans(PostgresStatements):
    """Finder of holds and locks that begin in the future; it also ends those that are past.

    Args:
        wire: wire to the database.
        ends: whether to end them; a caller's transaction leaves that to the store.

    Attributes:
        skew: the spans noted by this process.
    """

    def __init__(self, wire: Wire, *, ends: bool) -> None:
        super().__init__(wire)
        self.skew: Final = ClockSkew()
        self._ends = ends

    def end(self, now_ms: int) -> None:
        """End holds and locks after the clock was set back, so that nothing waits much longer than its duration."""
        ended = self.skew.end_spans(now_ms, self._later) if self._ends else ()
        holds = [(until_ms, since_ms, *span[2:]) for span, since_ms, until_ms in ended if span.kind == "hold"]
        if holds:
            self._do("end_holds_at", *map(list, zip(*holds, strict=True)))
        for span, since_ms, until_ms in ended:
            if span.kind == "lock":
                self._do("end_group_lock_at", until_ms, since_ms, *span[1:])

    def _later(self, now_ms: int) -> list[Span]:
        rows = self._all("spans_begun_after", now_ms, limits.NOTED_SPANS)
        return [
            Span("lock", queue, grp, *span) if kind else Span("hold", queue, number, *span)
            for kind, queue, number, grp, *span in rows
        ]
