"""What leases, delays and locks are to a clock that is behind them: they began in its future.

Two things make it so: the clock was set back, or it is wrong and another process has written by a right one. Nobody
can tell which. So the rule serves both: what began in a clock's future stays as it is kept, for all others, and is
over by this clock once as much time as it was to last has passed since it was first seen. Only then is that written.
A steady clock that is behind ends nothing early so, and for a clock that was set back nothing lasts for ever.

What was seen when is noted by each process for itself, since it is by that one's clock.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["hold", "lease", "lock"]


class Span(NamedTuple):
    """Something that lasts from a time to a time.

    Attributes:
        kind: a hold of a message, a lease of several, or the lock of a group.
        queue: the number of the queue.
        key: the message's number, or the group's name.
        since_ms: when it began, by the clock of who began it.
        until_ms: when it ends, by the same.
    """

    kind: Kind
    queue: int
    key: int | str
    since_ms: int
    until_ms: int


class Over(NamedTuple):
    """Something that is over by the clock that is behind, and when it was, by that clock.

    Attributes:
        span: what, as it was noted; if it is another by now it is not over.
        since_ms: when it was noted.
        until_ms: when it was over.
    """

    span: Span
    since_ms: int
    until_ms: int


class Behind:
    """What one process has noted."""

    def __init__(self) -> None:
        self._now_ms = 2**63
        self._ends: list[tuple[int, Span]] = []
        self._told: list[tuple[int, Span]] = []

    def look(self, now_ms: int, later: Callable[[int], Iterable[Span]]) -> list[Over]:
        """Return what is over.

        Args:
            now_ms: the time by this process's clock.
            later: gives what begins after a time; asked at first, and whenever the clock went back.
        """
        if now_ms < self._now_ms:
            self._ends.clear()  # how far it went back nobody knows
            self.note(later(now_ms), now_ms)
        self._now_ms = now_ms
        over = []
        while self._ends and self._ends[0][0] <= now_ms:
            self._told.append(heappop(self._ends))
            end_ms, span = self._told[-1]
            over.append(Over(span, end_ms - (span.until_ms - span.since_ms), end_ms))
        return over

    def note(self, spans: Iterable[Span], now_ms: int) -> None:
        """Note all that begins in the future; what was noted before counts from then."""
        known = {span: end_ms for end_ms, span in self._ends}
        self._ends = [(known.get(span, now_ms + span.until_ms - span.since_ms), span) for span in spans]
        heapify(self._ends)

    def next_ms(self, queue: int) -> int | None:
        """Return when the next thing in a queue is over, if something in it was noted."""
        return min((end_ms for end_ms, span in self._ends if span.queue == queue), default=None)

    def kept(self) -> None:
        """What was told to be over is written."""
        self._told.clear()

    def lost(self) -> None:
        """It is not: the transaction was rolled back."""
        for each in self._told:
            heappush(self._ends, each)
        self._told.clear()
