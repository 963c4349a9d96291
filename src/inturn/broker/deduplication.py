"""The deduplication of a broker's tasks: the first task with each id, for as long as the id is remembered.

The rule is the same as for queues, core/queue/deduplication.py: an id is known for a window that begins with the first
task, whatever its result. But a task that did not get its slot, or was cancelled, is forgotten, so that it can be
submitted again.
"""

import asyncio
from collections.abc import Callable, Hashable
from itertools import islice
from math import inf
from typing import Any, Final

from inturn.broker.task import Task
from inturn.core import limits
from inturn.core.arguments import refusal
from inturn.core.errors import InputError

POSTED: Final = object()
"""Stands for a posted task, which has no result."""


class FirstTasks:
    """The first task with each id that is remembered.

    Args:
        window_s: time for which an id is remembered, in seconds; None: for ever.
        open_loop: returns the loop of the broker, whose time counts, or refuses if the broker is stopped.

    Raises:
        InputError: if it is not a number of seconds, or negative.
    """

    __slots__ = ("_first", "_open_loop", "_window_s")

    def __init__(self, window_s: float | None, open_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        if window_s is not None and (
            isinstance(window_s, bool) or not isinstance(window_s, int | float) or not window_s >= 0
        ):
            raise InputError(f"dedup_window_s is {window_s!r}; expected a number of seconds, or None for ever")
        self._open_loop = open_loop
        self._window_s = inf if window_s is None else window_s
        self._first: dict[Hashable, tuple[Any, float]] = {}  # the oldest first, so in the order in which they expire

    def find(self, dedup_id: Hashable) -> Any:
        """Return the first task with an id, ``POSTED`` if that has no result, or None if there is none."""
        now = self._open_loop().time()
        try:
            first, until = self._first.get(dedup_id, (None, now))
        except TypeError as error:
            raise refusal("dedup_id", dedup_id, "a hashable value, such as a text or a number") from error
        if until <= now or (isinstance(first, Task) and first.never_ran()):
            return None
        return first

    def result_of(self, dedup_id: Hashable, *, hold: bool) -> Task[Any] | None:
        """Return the first task with an id, or None if there is none.

        Raises:
            InputError: if that task was posted, or if the new task would keep its slot (``hold``).
        """
        if hold:
            raise InputError("hold=True and dedup_id exclude each other: a duplicate would share the slot")
        first = self.find(dedup_id)
        if first is POSTED:
            raise InputError(
                f"the first task with dedup_id {dedup_id!r} was posted, so it has no result; use submit or put for it"
            )
        task: Task[Any] | None = first
        return task

    def remember(self, dedup_id: Hashable, first: Any) -> None:
        """Remember a task, or ``POSTED``, as the first with its id; forget expired ids, and the oldest of too many."""
        now = self._open_loop().time()
        self._first.pop(dedup_id, None)
        self._first[dedup_id] = first, now + self._window_s
        expired = [expired_id for expired_id, (_, until) in islice(self._first.items(), 2) if until <= now]
        if len(self._first) > limits.BROKER_REMEMBERED:
            expired = expired or [next(iter(self._first))]
        for expired_id in expired:
            del self._first[expired_id]

    def clear(self) -> None:
        """Forget all ids."""
        self._first.clear()
