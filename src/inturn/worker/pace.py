"""How many messages a worker takes at a time: enough that threads need not wait, and no more than it gets done soon."""

import time
from collections.abc import Callable

from inturn.core import limits


class Pace:
    """Measures how many messages a worker gets done, and so how many it takes ahead.

    Args:
        clock: tells the time in seconds.

    Attributes:
        ahead: about as many as are done in ``limits.WORKER_AHEAD_S``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ahead = 0
        self._clock = clock
        self._done = 0
        self._since = clock()

    def done(self, messages: int) -> None:
        """So many more are done: it is quick to take more, and slower to take less."""
        self._done += messages
        gone_s = self._clock() - self._since
        if gone_s < limits.WORKER_AHEAD_S / 10:
            return
        now = round(self._done / gone_s * limits.WORKER_AHEAD_S)
        self.ahead = min(now if now > self.ahead else (now + self.ahead) // 2, limits.RECEIVE_MESSAGES)
        self._done, self._since = 0, self._clock()


def receives(ahead: int, concurrency: int, busy: int, free: int) -> list[int]:
    """Return how many messages each receive takes at most.

    The messages of one receive may all be of one group. While they are in flight nothing more of that group can be
    had, so a group has its share of the time ahead in one receive: the fewer groups there are, the larger it is. All
    receives together take no more than is done in twice that time, or one message for each free place.

    Args:
        ahead: how many messages are done in the time ahead.
        concurrency: how many groups can be in their turns at once.
        busy: how many groups were in their turns.
        free: how many more can be.
    """
    at_work = min(max(busy, 1), concurrency)
    share = ahead // at_work
    if share <= 1:
        return [1] * max(free, 0)
    rest = ahead // concurrency
    if rest:  # turns are short: some are to be there before places are free
        return [share] * at_work + [rest] * (concurrency - at_work)
    return [share] * min(at_work, free) + [1] * (free - at_work)
