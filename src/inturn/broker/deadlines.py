"""Deadlines of waiters in one heap, with one event loop timer for the first.

A timer for each would cost more than the turn itself, which nearly always comes in time.
"""

import asyncio
import heapq
import weakref
from collections.abc import Callable
from itertools import count
from typing import Generic, Protocol, TypeVar


class Deadline(Protocol):
    """Something that waits for a slot as long as it has a place."""

    @property
    def place(self) -> object:
        """Its place in the queue; None once it waits no more."""


W = TypeVar("W", bound=Deadline)


class Deadlines(Generic[W]):
    """A heap of deadlines that refuses waiters in time.

    A waiter that got its turn stays in the heap until it comes to the front, or until half of the heap has finished
    waiting. So the clean-up costs each a constant share. The heap holds only weak references.

    Args:
        refuse: called with a waiter whose deadline has passed. On return the waiter must have no place, and ``left``
            must have been called for it.
    """

    __slots__ = ("_gone", "_heap", "_numbers", "_refuse", "_timer", "_timer_at")

    def __init__(self, refuse: Callable[[W], object]) -> None:
        self._refuse = refuse
        self._heap: list[tuple[float, int, weakref.ref[W]]] = []
        self._numbers = count()  # of equal deadlines the older comes first
        self._gone = 0  # how many in the heap have finished waiting
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, loop: asyncio.AbstractEventLoop, waiter: W, deadline: float) -> None:
        """Refuse a waiter at this time of the loop, in seconds, if it still waits then."""
        heapq.heappush(self._heap, (deadline, next(self._numbers), weakref.ref(waiter)))
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(loop, deadline)

    def left(self) -> None:
        """Count one added waiter as waiting no more."""
        self._gone += 1
        if self._gone > 32 + len(self._heap) // 2:
            self._heap = [each for each in self._heap if _waits(each[2]())]
            heapq.heapify(self._heap)
            self._gone = 0

    def close(self) -> None:
        """Clear all deadlines."""
        self._heap.clear()
        self._gone = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(at, self._ring, loop), at

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self._heap:
            deadline, _, reference = self._heap[0]
            waiter = reference()
            if waiter is None or waiter.place is None:
                heapq.heappop(self._heap)
                self._gone -= 1
            elif deadline > now:
                self._set_timer(loop, deadline)
                return
            else:
                self._refuse(waiter)


def _waits(waiter: Deadline | None) -> bool:
    return waiter is not None and waiter.place is not None
