"""Detection of deadlocked brokers: all slots are held by tasks that await queued ones."""

import asyncio
import logging
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from inturn.broker.task import SlotWaiter
from inturn.core import limits

_log = logging.getLogger("inturn.broker")


class HasActive(Protocol):
    """The slots of a broker."""

    active: int


class StuckCheck:
    """A check, some time after a task was queued, that logs a warning if all slots wait for queued tasks.

    A check costs a walk through the active tasks, and there is at most one every ``limits.BROKER_STUCK_S`` seconds. It
    recognises ``await task``, ``asyncio.gather`` and turns; it ignores other ways of waiting.

    Args:
        workers: the asyncio tasks that run the broker's tasks.
        turn_tasks: the asyncio tasks that have entered turns.
        slots: the broker's slots.
    """

    __slots__ = ("_slots", "_timer", "_turn_tasks", "_workers")

    def __init__(
        self,
        workers: Collection[asyncio.Task[None]],
        turn_tasks: Mapping[int, weakref.ref[asyncio.Task[Any]]],
        slots: HasActive,
    ) -> None:
        self._workers = workers
        self._turn_tasks = turn_tasks
        self._slots = slots
        self._timer: asyncio.TimerHandle | None = None

    def look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a check, after something was queued without a deadline."""
        if self._timer is None:
            self._timer = loop.call_later(limits.BROKER_STUCK_S, self._look)

    def close(self) -> None:
        """Cancel the scheduled check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        holders = [*self._workers, *(task() for task in self._turn_tasks.values())]
        if len(holders) == self._slots.active > 0 and all(map(self._awaits_queued, holders)):
            _log.warning(
                "a broker is stuck: all %d slots are held by tasks that wait for another slot of the same broker; "
                "give what they wait for a timeout_s or another broker, or wait for it outside of the slot",
                len(holders),
            )

    def _awaits_queued(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether a task awaits a queued one that has no deadline."""
        return task is not None and any(
            isinstance(each, SlotWaiter)
            and each.place is not None
            and each.deadline is None
            and each._broker._turns is self._slots
            for each in _awaited(task)
        )


def _awaited(task: asyncio.Task[Any]) -> Iterator[Any]:
    """Yield what a task awaits: one future, or those of a ``gather``. asyncio has no public way before 3.14."""
    future = getattr(task, "_fut_waiter", None)
    yield future
    yield from getattr(future, "_children", ())
