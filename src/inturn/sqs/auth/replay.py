"""Replay protection: a bounded memory of the signatures that are still valid.

It is off unless configured. A signature is valid for a quarter of an hour in any case, and has to be: clients sign the
time in seconds, so two requests with the same content in the same second have the same signature, and a legitimate
client may send both.
"""

from heapq import heappop, heappush

from inturn.sqs import limits


class ReplayGuard:
    """The accepted signatures that are still valid.

    When there are too many, those that expire first are forgotten; from then on, a request that would expire by that
    time is refused, seen or not. So nothing is ever accepted twice; the cost of many requests is less tolerance of slow
    clocks.
    """

    def __init__(self, most: int = limits.REPLAYS) -> None:
        self._most = most
        self._count = 0
        self._until: dict[int, set[bytes]] = {}
        self._ends: list[int] = []
        self._over = 0

    def is_new(self, signature: bytes, until: int, now: float) -> bool:
        """Return whether a signature is new, and remember it; times are in seconds since 1970.

        It is a verified one, so only the holder of a key can fill the memory.
        """
        while self._ends and self._ends[0] < now:
            self._forget()
        if until <= self._over:
            return False
        seen = self._until.get(until)
        if seen is None:
            seen = self._until[until] = set()
            heappush(self._ends, until)
        if signature in seen:
            return False
        seen.add(signature)
        self._count += 1
        while self._count > self._most:
            self._forget()
        return True

    def _forget(self) -> None:
        end = heappop(self._ends)
        self._count -= len(self._until.pop(end))
        self._over = end
