"""Rates of queues while a page is open: messages sent and done per second, computed from successive readings."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

_POINTS: Final = 90
_MIN_INTERVAL_S: Final = 1.0
_WINDOW_S: Final = 600.0
_MOST_QUEUES: Final = 1000


@dataclass(frozen=True)
class QueueRate:
    """The rates of a queue between two readings.

    Attributes:
        at_s: time of the second reading, in seconds of a monotonic clock.
        sent: messages sent per second.
        done: messages acknowledged or removed per second.
        messages: messages in the queue.
    """

    at_s: float
    sent: float
    done: float
    messages: int


class _QueueReading(NamedTuple):
    at_s: float
    last: int
    messages: int


class QueueRates:
    """The readings of queues in the last ten minutes; thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._readings: dict[tuple[str, str], deque[_QueueReading]] = {}

    def add(self, database: str, queue: str, at_s: float, last: int, messages: int) -> list[QueueRate]:
        """Add a reading, and return the rates between the readings so far, oldest first.

        Args:
            database: the database.
            queue: the queue.
            at_s: time of the reading, in seconds of a monotonic clock.
            last: the last sequence number that the queue assigned.
            messages: number of messages in it.
        """
        with self._mutex:
            if len(self._readings) >= _MOST_QUEUES:
                self._readings.clear()
            seen = self._readings.setdefault((database, queue), deque(maxlen=_POINTS))
            while seen and (seen[0].at_s < at_s - _WINDOW_S or seen[-1].last > last):  # the queue was created again
                seen.popleft()
            if not seen or at_s - seen[-1].at_s >= _MIN_INTERVAL_S:
                seen.append(_QueueReading(at_s, last, messages))
            every = list(seen)
        return [_rate(old, new) for old, new in pairwise(every)]


def _rate(old: _QueueReading, new: _QueueReading) -> QueueRate:
    span, sent = new.at_s - old.at_s, new.last - old.last
    done = max(0, sent - (new.messages - old.messages))  # messages moved back from other queues were not sent here
    return QueueRate(new.at_s, sent / span, done / span, new.messages)


def svg_points(rates: Sequence[QueueRate], width: int, height: int) -> list[str]:
    """Return the points of two SVG lines, sent and done; both have the same scale, from 0 to the greatest rate."""
    most = max((max(rate.sent, rate.done) for rate in rates), default=0.0) or 1.0
    step = width / max(1, len(rates) - 1)
    return [
        " ".join(
            f"{index * step:.1f},{height - 1 - (height - 2) * value / most:.1f}" for index, value in enumerate(values)
        )
        for values in ([rate.sent for rate in rates], [rate.done for rate in rates])
    ]
