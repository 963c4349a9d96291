"""Batch size of a worker: enough messages to keep its threads busy, no more than are done soon."""

import time
from collections.abc import Callable

from inturn.core import limits


class Pace:
    """Measurement of a worker's throughput, and so of how many messages to receive ahead.

    Args:
        clock: returns the time in seconds.

    Attributes:
        ahead: about as many messages as are done in ``limits.WORKER_AHEAD_S``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ahead = 0
        self._clock = clock
        self._done = 0
        self._since = clock()

    def done(self, messages: int) -> None:
        """Count finished messages and update ``ahead``, which rises at once and falls gradually."""
        self._done += messages
        gone_s = self._clock() - self._since
        if gone_s < limits.WORKER_AHEAD_S / 10:
            return
        now = round(self._done / gone_s * limits.WORKER_AHEAD_S)
        self.ahead = min(now if now > self.ahead else (now + self.ahead) // 2, limits.RECEIVE_MESSAGES)
        self._done, self._since = 0, self._clock()


def receives(ahead: int, concurrency: int, busy: int, free: int) -> list[int]:
    """Return the maximum number of messages of each receive.

    The messages of one receive may all be of one group. While they are in flight, no more messages of that group can be
    received. So one receive takes a group's share of the time ahead: the fewer groups, the larger the share. All
    receives together take no more than is done in twice that time, or one message for each free place.

    Args:
        ahead: the number of messages that are done in the time ahead.
        concurrency: the maximum number of groups whose turns run at once.
        busy: the number of groups whose turns were running.
        free: the number of free places.
    """
    at_work = min(max(busy, 1), concurrency)
    share = ahead // at_work
    if share <= 1:
        return [1] * max(free, 0)
    rest = ahead // concurrency
    if rest:  # turns are short: fetch some messages before places are free
        return [share] * at_work + [rest] * (concurrency - at_work)
    return [share] * min(at_work, free) + [1] * (free - at_work)
