"""The timers of a broker: deadlines of waiters, and a check for a broker that waits for itself.

All deadlines are in one heap, with one event loop timer for the first. A timer for each would cost more than the slot
itself, which nearly always comes in time.
"""

import asyncio
import heapq
import logging
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from math import isnan
from typing import Any

from inturn.broker.task import SlotWaiter
from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.scheduler import Scheduler


def seconds_to_wait(timeout_s: float | None) -> float | None:
    """Return the time to wait in seconds; None, no limit, also if it is longer than an event loop's timer allows.

    Raises:
        InputError: if it is not a number of seconds.
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or isnan(timeout_s):
        raise InputError(f"timeout_s is {timeout_s!r}; expected a number of seconds, or None for no limit")
    return None if timeout_s > limits.BROKER_WAIT_S else timeout_s


class Deadlines:
    """A heap of deadlines that refuses waiters in time.

    A waiter that got its slot stays in the heap until it reaches the front, or until half of the heap has finished
    waiting. So the clean-up has a constant cost for each. The heap holds only weak references.

    Args:
        refuse: called with a waiter whose deadline has passed. On return the waiter must have no place, and
            ``count_departure`` must have been called for it.
    """

    __slots__ = ("_heap", "_numbers", "_refuse", "_stale", "_timer", "_timer_deadline")

    def __init__(self, refuse: Callable[[SlotWaiter[Any]], object]) -> None:
        self._refuse = refuse
        self._heap: list[tuple[float, int, weakref.ref[SlotWaiter[Any]]]] = []
        self._numbers = count()  # of equal deadlines the older one is first
        self._stale = 0  # number in the heap that have finished waiting
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = 0.0

    def add(self, loop: asyncio.AbstractEventLoop, waiter: SlotWaiter[Any], deadline: float) -> None:
        """Refuse a waiter at this time of the loop, in seconds, if it still waits then."""
        heapq.heappush(self._heap, (deadline, next(self._numbers), weakref.ref(waiter)))
        if self._timer is None or deadline < self._timer_deadline:
            self._set_timer(loop, deadline)

    def count_departure(self) -> None:
        """Count one added waiter as no longer waiting."""
        self._stale += 1
        if self._stale > 32 + len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if (waiter := entry[2]()) is not None and waiter.place]
            heapq.heapify(self._heap)
            self._stale = 0

    def close(self) -> None:
        """Clear all deadlines."""
        self._heap.clear()
        self._stale = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_deadline = loop.call_at(deadline, self._on_timer, loop), deadline

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self._heap:
            deadline, _, reference = self._heap[0]
            waiter = reference()
            if waiter is None or waiter.place is None:
                heapq.heappop(self._heap)
                self._stale -= 1
            elif deadline > now:
                self._set_timer(loop, deadline)
                return
            else:
                self._refuse(waiter)


_log = logging.getLogger("inturn.broker")


class StuckCheck:
    """A check, some time after a task was queued, that logs a warning if all slots wait for queued tasks.

    A check costs a walk through the active tasks, and there is at most one every ``limits.BROKER_STUCK_S`` seconds. It
    recognises ``await task``, ``asyncio.gather`` and slots; it ignores other ways of waiting.

    Args:
        workers: the asyncio tasks that run the broker's tasks.
        slot_tasks: the asyncio tasks that have entered slots.
        scheduler: the broker's slots.
    """

    __slots__ = ("_scheduler", "_slot_tasks", "_timer", "_workers")

    def __init__(
        self,
        workers: Collection[asyncio.Task[None]],
        slot_tasks: Mapping[int, weakref.ref[asyncio.Task[Any]]],
        scheduler: Scheduler[Any],
    ) -> None:
        self._workers = workers
        self._slot_tasks = slot_tasks
        self._scheduler = scheduler
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a check, after something was queued without a deadline."""
        if self._timer is None:
            self._timer = loop.call_later(limits.BROKER_STUCK_S, self._check)

    def close(self) -> None:
        """Cancel the scheduled check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        holders = [*self._workers, *(task() for task in self._slot_tasks.values())]
        if len(holders) == self._scheduler.active > 0 and all(map(self._awaits_queued, holders)):
            _log.warning(
                "a broker is stuck: all %d slots are held by tasks that wait for another slot of the same broker; "
                "give the inner tasks a timeout_s or another broker, or wait for them outside of the slot",
                len(holders),
            )

    def _awaits_queued(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether a task awaits a queued one that has no deadline."""
        return task is not None and any(
            isinstance(future, SlotWaiter)
            and future.place is not None
            and future.deadline is None
            and future._broker._scheduler is self._scheduler
            for future in _awaited(task)
        )


def _awaited(task: asyncio.Task[Any]) -> Iterator[Any]:
    """Yield the futures that a task awaits: one, or all of a ``gather``. asyncio has no public way before 3.14."""
    future = getattr(task, "_fut_waiter", None)
    yield future
    yield from getattr(future, "_children", ())
