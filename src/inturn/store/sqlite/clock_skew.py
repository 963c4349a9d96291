"""Leases, delays and locks that start in the future of this process's clock, in SQLite: core/queue/clock_skew.py."""

from dataclasses import dataclass, field
from typing import Final

from inturn.core import limits
from inturn.core.queue.clock_skew import ClockSkew, Kind, Span
from inturn.store.sqlite.statements import SqliteStatements

_KINDS: Final[tuple[Kind, ...]] = ("hold", "lease", "lock")
_ENDING: Final[dict[Kind, tuple[str, ...]]] = {
    "hold": ("end_hold_at",),
    "lease": ("end_lease_at", "end_lease_parts_at"),  # the lease may have been split since it was noted
    "lock": ("end_group_lock_at",),
}


@dataclass(eq=False)
class FutureSpans(SqliteStatements):
    """Finder of spans that start in the future; it also ends spans that are past."""

    skew: ClockSkew = field(default_factory=ClockSkew)

    def end_spans(self, now_ms: int) -> None:
        """End spans that a clock set back would keep open for much longer than they were to last."""
        for span, since_ms, until_ms in self.skew.end_spans(now_ms, self.starts):
            for statement in _ENDING[span.kind]:
                self._execute(statement, until_ms, since_ms, *span[1:])

    def note(self, now_ms: int) -> None:
        """Note all spans that start in the future, after one was seen."""
        self.skew.record(self.starts(now_ms), now_ms)

    def starts(self, now_ms: int) -> list[Span]:
        """Return the spans that start after a time."""
        rows = self._all("spans_begun_after", now_ms, limits.NOTED_SPANS)
        return [Span(_KINDS[kind], *row) for kind, *row in rows]
