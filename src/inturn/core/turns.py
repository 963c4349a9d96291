"""Who is next: one per group, so many at once, the oldest who may; for a broker that has tasks to run.

What makes the next one cheap to find, whatever the backlog: those who wait stand in one queue in the order in which
they came. Whoever comes to its front while its group is busy is set aside behind the group, once. When the group's
slot is freed, the first set aside is older than everybody still in the queue, so the slot is its; if nobody is, the
queue moves on. So each is touched twice at most.

Two things are always true. While a slot is free the queue is empty: all who wait stand behind a group. And so one slot
that is freed lets one go at most.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from inturn.core.errors import QueueFull


class Waiter(Protocol):
    """One who waits for a slot.

    Attributes:
        group: of its group it is the only one active; None is no group.
        place: where it stands while it waits; None before and after.
    """

    group: Hashable
    place: "OrderedDict[Any, None] | None"

    def __hash__(self) -> int: ...


W = TypeVar("W", bound=Waiter)


class Turns(Generic[W]):
    """Slots, and those who wait for one.

    Attributes:
        active: how many slots are held, at most ``max_active``.
        queued: how many wait, at most ``max_queued``; those who wait for room are not among them.
    """

    __slots__ = ("_arrivals", "_busy", "_max_active", "_max_queued", "_outside", "active", "queued")

    def __init__(self, max_active: int, max_queued: int) -> None:
        self.active = self.queued = 0
        self._max_active, self._max_queued = max_active, max_queued
        self._arrivals: OrderedDict[W, None] = OrderedDict()
        self._busy: dict[Hashable, OrderedDict[W, None] | None] = {}  # groups with a slot: who is set aside behind each
        self._outside: OrderedDict[W, Callable[[], object]] = OrderedDict()  # who waits for room, and how to tell it

    def take(self, group: Hashable) -> bool:
        """Take a slot, if one can be had at once; nobody who waits could use it."""
        if group is None:
            if self.active >= self._max_active:
                return False
        elif group in self._busy or self.active >= self._max_active:  # raises here if it has no hash, whoever is active
            return False
        else:
            self._busy[group] = None
        self.active += 1
        return True

    def wait(self, waiter: W, let_in: Callable[[], object] | None = None) -> bool:
        """Let it wait for a slot, after ``take`` has said no.

        Args:
            waiter: who waits.
            let_in: if there is no room for it, it gets a place all the same; this is called when there is room, or
                when it does not wait any more.

        Returns:
            Whether it is outside, waiting for room.

        Raises:
            QueueFull: There is no room, and no ``let_in``.
        """
        outside = self.queued >= self._max_queued
        if not outside:
            self.queued += 1
        elif let_in is None:
            raise QueueFull(f"{self.queued} tasks wait already, and max_queued={self._max_queued}")
        else:
            self._outside[waiter] = let_in
        if self.active >= self._max_active:
            waiter.place = place = self._arrivals
            place[waiter] = None
        else:
            self._set_aside(waiter)
        return outside

    def next(self, group: Hashable) -> W | None:
        """Free the group's slot; who has it now, if anybody."""
        if group is not None:
            if behind := self._busy[group]:
                waiter, _ = behind.popitem(last=False)
                self._count_out(waiter)
                return waiter
            del self._busy[group]
        arrivals, busy = self._arrivals, self._busy
        while arrivals:
            waiter, _ = arrivals.popitem(last=False)
            group = waiter.group
            if group is not None:
                if group in busy:
                    self._set_aside(waiter)
                    continue
                busy[group] = None
            if self._outside:
                self._count_out(waiter)
            else:  # the same, without a call
                waiter.place = None
                self.queued -= 1
            return waiter
        self.active -= 1
        return None

    def withdraw(self, waiter: W) -> None:
        """Let it wait no more."""
        assert waiter.place is not None  # noqa: S101 - for mypy; callers have looked
        del waiter.place[waiter]
        self._count_out(waiter)

    def waiting(self) -> list[W]:
        """All who wait, those who wait for room first."""
        places = [self._arrivals, *self._busy.values()]
        inside = [waiter for place in places for waiter in place or () if waiter not in self._outside]
        return [*self._outside, *inside]

    def _set_aside(self, waiter: W) -> None:
        behind = self._busy[waiter.group]
        if behind is None:
            behind = self._busy[waiter.group] = OrderedDict()
        behind[waiter] = None
        waiter.place = behind

    def _count_out(self, waiter: W) -> None:
        """It has left its place; if it was inside, the first from outside comes in."""
        waiter.place = None
        if not self._outside:
            self.queued -= 1
            return
        let_in = self._outside.pop(waiter, None)
        if let_in is None:
            _, let_in = self._outside.popitem(last=False)
        let_in()
