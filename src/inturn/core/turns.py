"""Who is next: one per group, so many at once, the oldest who may; for a broker that has tasks to run.

What makes the next one cheap to find, whatever the backlog: those who wait stand in one line in the order in which
they came. Whoever comes to its front while its group is busy is set aside behind the group, once. When the group's
slot is freed, the first set aside is older than everybody still in the line, so the slot is its; if nobody is, the
line moves on. So each is touched twice at most. Who waits no more is emptied where it stands, and passed over when it
comes to the front; once there are more such than others, all are thrown out together.

Two things are always true. While a slot is free the line is empty: all who wait stand behind a group. And so one slot
that is freed lets one go at most.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from inturn.core.errors import QueueFull

W = TypeVar("W", bound=Sequence[Any])
_SPARE = 32  # so many empty ones are never worth a clean-up


class Turns(Generic[W]):
    """Slots, and those who wait for one.

    One who waits is a sequence with its group first, of which it is the only one active; None is no group. The rest is
    its owner's. A tuple waits until its turn comes, a list can be withdrawn.

    Attributes:
        active: how many slots are held, at most ``max_active``.
    """

    __slots__ = ("_arrivals", "_busy", "_gone", "_max_active", "_max_queued", "_outside", "_reach", "active")

    def __init__(self, max_active: int, max_queued: int) -> None:
        self.active = 0
        self._max_active, self._max_queued = max_active, max_queued
        self._arrivals: deque[W] = deque()
        self._busy: dict[Hashable, deque[W] | None] = {}  # groups with a slot: who is set aside behind each
        self._gone = 0  # how many stand somewhere who were withdrawn
        self._outside: OrderedDict[int, Callable[[], object]] = OrderedDict()  # by id, who waits for room; how to tell
        # How long the line may be: less by those set aside, more by those in it who do not count.
        self._reach = max_queued

    @property
    def queued(self) -> int:
        """How many wait, at most ``max_queued``; those who wait for room are not among them."""
        return len(self._arrivals) + self._max_queued - self._reach

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

    def wait(self, one: W, let_in: Callable[[], object] | None = None) -> bool:
        """Let it wait for a slot, after ``take`` has said no.

        Args:
            one: who waits.
            let_in: if there is no room for it, it gets a place all the same; this is called when there is room, or
                when it does not wait any more.

        Returns:
            Whether it is outside, waiting for room.

        Raises:
            QueueFull: There is no room, and no ``let_in``.
        """
        outside = len(self._arrivals) >= self._reach
        if outside:
            if let_in is None:
                raise QueueFull(f"{self.queued} tasks wait already, and max_queued={self._max_queued}")
            self._outside[id(one)] = let_in
            self._reach += 1
        if self.active >= self._max_active:
            self._arrivals.append(one)
        else:
            self._set_aside(one)
        return outside

    def enter(self, one: W) -> bool:
        """Take a slot, or else wait for one: ``take`` and ``wait`` in one call, for whom two would be dear.

        Returns:
            Whether it has a slot.

        Raises:
            QueueFull: It would have to wait, and there is no room.
        """
        if self.active < self._max_active or len(self._arrivals) >= self._reach:
            if self.take(one[0]):
                return True
            self.wait(one)
        else:
            hash(one[0])  # raises here if it has none, not when its turn comes
            self._arrivals.append(one)
        return False

    def next(self, group: Hashable) -> W | None:
        """Free the group's slot; who has it now, if anybody."""
        busy = self._busy
        if group is not None:
            behind = busy[group]
            while behind:
                one = behind.popleft()
                if one:
                    self._reach += 1
                    if self._outside:
                        self._let_in(one)
                    return one
                self._gone -= 1
            del busy[group]
        arrivals = self._arrivals
        while arrivals:
            one = arrivals.popleft()
            if not one:
                self._gone -= 1
                self._reach -= 1
                continue
            group = one[0]
            if group is not None:
                if group in busy:
                    self._set_aside(one)
                    continue
                busy[group] = None
            if self._outside:
                self._let_in(one)
            return one
        self.active -= 1
        return None

    def withdraw(self, one: list[Any]) -> None:
        """Let it wait no more. It is empty then."""
        if self._outside:
            self._let_in(one)
        one.clear()
        self._gone += 1
        self._reach += 1
        if self._gone > _SPARE + self.active + self.queued + len(self._outside):
            self._clean_up()

    def clear(self) -> list[W]:
        """Let nobody wait any more; all who did."""
        waited = [one for line in (self._arrivals, *self._busy.values()) for one in line or () if one]
        self._arrivals.clear()
        for behind in self._busy.values():
            if behind:
                behind.clear()
        self._gone, self._reach = 0, self._max_queued
        while self._outside:
            _, let_in = self._outside.popitem(last=False)
            let_in()
        return waited

    def _set_aside(self, one: W) -> None:
        behind = self._busy[one[0]]
        if behind is None:
            behind = self._busy[one[0]] = deque()
        behind.append(one)
        self._reach -= 1

    def _let_in(self, left: Sequence[Any]) -> None:
        """One who waited has left; if it was inside, the first from outside comes in."""
        let_in = self._outside.pop(id(left), None)
        if let_in is None:
            _, let_in = self._outside.popitem(last=False)
        self._reach -= 1
        let_in()

    def _clean_up(self) -> None:
        """Throw out those who were withdrawn."""
        standing = len(self._arrivals)
        for line in (self._arrivals, *self._busy.values()):
            if line:
                waiting = [one for one in line if one]
                line.clear()
                line.extend(waiting)
        self._reach -= standing - len(self._arrivals)
        self._gone = 0
