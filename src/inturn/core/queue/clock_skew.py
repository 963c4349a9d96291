"""Leases, delays and locks that began in the future of a clock that is behind.

There are two causes: the clock was set back, or it is wrong and another process has written by a correct one. A process
cannot distinguish them, so one rule covers both. The stored span that began in this clock's future is not changed, for
all other processes. By this clock it ends once its full length has passed since it was first seen. Only then is its end
written. So a steady clock that is behind ends nothing early, and with a clock that was set back nothing lasts forever.

Each process records separately when it first saw a span, since the time is by its own clock.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["hold", "lease", "lock"]


class Span(NamedTuple):
    """A hold, lease or lock, from its start to its end.

    Attributes:
        kind: hold of one message, lease of several, or lock of a group.
        queue: number of the queue.
        key: number of the message, or name of the group.
        since_ms: start, by the clock of the process that began it.
        until_ms: end, by the same clock.
    """

    kind: Kind
    queue: int
    key: int | str
    since_ms: int
    until_ms: int


class ExpiredSpan(NamedTuple):
    """A span that has ended by the clock that is behind.

    Attributes:
        span: span as it was recorded; a span that has changed since has not ended.
        since_ms: when it was recorded, by the clock that is behind.
        until_ms: when it ended, by the same clock.
    """

    span: Span
    since_ms: int
    until_ms: int


class ClockSkew:
    """The spans that one process has recorded.

    Attributes:
        seen_ms: the time of the last check.
        reported: the spans reported as ended, whose ends are not committed yet.
        next_end_ms: when the next recorded span ends. Until then a check at a later time need only set ``seen_ms``.
    """

    def __init__(self) -> None:
        self.seen_ms = 2**63
        self.next_end_ms: float = inf
        self._ends: list[tuple[int, Span]] = []
        self.reported: list[tuple[int, Span]] = []

    def end_spans(self, now_ms: int, later: Callable[[int], Iterable[Span]]) -> list[ExpiredSpan]:
        """Return the spans that have ended; ``later`` returns those that begin after a time, if the clock went back."""
        if now_ms < self.seen_ms:
            self._ends.clear()  # it is unknown how far the clock went back
            self.record(later(now_ms), now_ms)
        self.seen_ms = now_ms
        expired = []
        while self._ends and self._ends[0][0] <= now_ms:
            self.reported.append(heappop(self._ends))
            end_ms, span = self.reported[-1]
            expired.append(ExpiredSpan(span, end_ms - (span.until_ms - span.since_ms), end_ms))
        self._set_next()
        return expired

    def record(self, spans: Iterable[Span], now_ms: int) -> None:
        """Record all spans that begin in the future; a span that was recorded before keeps its end."""
        known = {span: end_ms for end_ms, span in self._ends}
        self._ends = [(known.get(span, now_ms + span.until_ms - span.since_ms), span) for span in spans]
        heapify(self._ends)
        self._set_next()

    def next_ms(self, queue: int) -> int | None:
        """Return when the next recorded span of a queue ends, or None if none is recorded."""
        return min((end_ms for end_ms, span in self._ends if span.queue == queue), default=None)

    def committed(self) -> None:
        """Forget the spans reported as ended: their ends are written."""
        self.reported.clear()

    def rolled_back(self) -> None:
        """Restore the spans reported as ended: the transaction was rolled back."""
        for end in self.reported:
            heappush(self._ends, end)
        self.reported.clear()
        self._set_next()

    def _set_next(self) -> None:
        self.next_end_ms = self._ends[0][0] if self._ends else inf
