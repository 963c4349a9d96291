"""The scheduler of a broker: one active task per group, a limited number at once, the oldest eligible task first.

Finding the next task is cheap, whatever the backlog. Waiting tasks are in one line in the order of their arrival. A
task that reaches the front while its group is busy is set aside in the queue of the group, once. When the group's slot
is freed, the first task set aside is older than all tasks still in the line, so it gets the slot; if none is set aside,
the line moves on. So each task is touched at most twice. A withdrawn task is emptied in place, and skipped when it
reaches the front. Once withdrawn tasks outnumber the others, all of them are removed together.

Two invariants hold. While a slot is free the line is empty: all waiting tasks are in the queues of groups. So one freed
slot starts at most one task.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from inturn.core import limits
from inturn.core.arguments import refusal
from inturn.core.errors import InputError, QueueFull
from inturn.core.override import override

W = TypeVar("W", bound=Sequence[Any])
Fairness: TypeAlias = Literal["oldest", "ungrouped-first"]
"""The ways in which a scheduler chooses among tasks that may run."""
_SPARE = 32  # number of withdrawn tasks that is never worth a clean-up


class Scheduler(Generic[W]):
    """Slots, and the tasks that wait for one.

    A waiting task is a sequence that begins with its group. Only one task of a group is active at a time; None is no
    group. The rest of the sequence belongs to its owner. A tuple waits until its turn comes, a list can be withdrawn.

    Attributes:
        active: number of occupied slots, at most ``max_active``.
    """

    __slots__ = ("_arrivals", "_busy", "_gone", "_max_active", "_max_queued", "_outside", "_reach", "active")

    def __init__(self, max_active: int, max_queued: int) -> None:
        self.active = 0
        self._max_active, self._max_queued = max_active, max_queued
        self._arrivals: deque[W] = deque()
        self._busy: dict[Hashable, deque[W] | None] = {}  # tasks set aside, by busy group
        self._gone = 0  # number of withdrawn tasks not yet removed
        # callbacks of tasks that wait for room, by id
        self._outside: OrderedDict[int, Callable[[], object]] = OrderedDict()
        # The longest the line may be: less the tasks set aside, plus those in it that do not count.
        self._reach = max_queued

    @property
    def queued(self) -> int:
        """The number of waiting tasks, at most ``max_queued``, without those that wait for room."""
        return len(self._arrivals) + self._max_queued - self._reach

    def take(self, group: Hashable) -> bool:
        """Take a slot if one is free and the group is idle; no waiting task could use it."""
        if group is None:
            if self.active >= self._max_active:
                return False
        else:
            try:
                is_busy = group in self._busy
            except TypeError as error:
                raise _without_hash(group) from error
            if is_busy or self.active >= self._max_active:
                return False
            self._busy[group] = None
        self.active += 1
        return True

    def wait(self, task: W, let_in: Callable[[], object] | None = None) -> bool:
        """Let a task wait for a slot, after ``take`` has returned False.

        Args:
            task: the task.
            let_in: if there is no room, the task gets a place all the same; this is called when there is room, or when
                the task no longer waits.

        Returns:
            Whether the task is outside, waiting for room.

        Raises:
            QueueFull: if there is no room, and no ``let_in``.
        """
        outside = len(self._arrivals) >= self._reach
        if outside:
            if let_in is None:
                raise QueueFull(f"{self.queued} tasks are already waiting, and max_queued={self._max_queued}")
            self._outside[id(task)] = let_in
            self._reach += 1
        if self.active >= self._max_active:
            self._arrivals.append(task)
        else:
            self._set_aside(task)
        return outside

    def enter(self, task: W) -> bool:
        """Take a slot, or else wait for one: ``take`` and ``wait`` in one call, for callers to whom two cost too much.

        Returns:
            Whether the task has a slot.

        Raises:
            QueueFull: if it would have to wait, and there is no room.
        """
        if self.active < self._max_active or len(self._arrivals) >= self._reach:
            if self.take(task[0]):
                return True
            self.wait(task)
        else:
            try:
                hash(task[0])  # here, not when its turn comes
            except TypeError as error:
                raise _without_hash(task[0]) from error
            self._arrivals.append(task)
        return False

    def next(self, group: Hashable) -> W | None:
        """Free the group's slot; return the task that has it now, if any."""
        busy = self._busy
        if group is not None:
            followers = busy[group]
            while followers:
                task = followers.popleft()
                if task:
                    self._reach += 1
                    if self._outside:
                        self._let_in(task)
                    return task
                self._gone -= 1
            del busy[group]
        arrivals = self._arrivals
        while arrivals:
            task = arrivals.popleft()
            if not task:
                self._gone -= 1
                self._reach -= 1
                continue
            group = task[0]
            if group is not None:
                if group in busy:
                    self._set_aside(task)
                    continue
                busy[group] = None
            if self._outside:
                self._let_in(task)
            return task
        self.active -= 1
        return None

    def withdraw(self, task: list[Any]) -> None:
        """Withdraw a waiting task, and empty it."""
        if self._outside:
            self._let_in(task)
        task.clear()
        self._gone += 1
        self._reach += 1
        if self._gone > _SPARE + self.active + self.queued + len(self._outside):
            self._clean_up()

    def clear(self) -> list[W]:
        """Withdraw all waiting tasks, and return them."""
        waited = [task for tasks in (self._arrivals, *self._busy.values()) for task in tasks or () if task]
        self._arrivals.clear()
        for followers in self._busy.values():
            if followers:
                followers.clear()
        self._gone, self._reach = 0, self._max_queued
        while self._outside:
            _, let_in = self._outside.popitem(last=False)
            let_in()
        return waited

    def _set_aside(self, task: W) -> None:
        followers = self._busy[task[0]]
        if followers is None:
            followers = self._busy[task[0]] = deque()
        followers.append(task)
        self._reach -= 1

    def _let_in(self, task: Sequence[Any]) -> None:
        """Handle a task that no longer waits: if it was inside, the first from outside comes in."""
        let_in = self._outside.pop(id(task), None)
        if let_in is None:
            _, let_in = self._outside.popitem(last=False)
        self._reach -= 1
        let_in()

    def _clean_up(self) -> None:
        """Remove withdrawn tasks."""
        standing = len(self._arrivals)
        for tasks in (self._arrivals, *self._busy.values()):
            if tasks:
                waiting = [task for task in tasks if task]
                tasks.clear()
                tasks.extend(waiting)
        self._reach -= standing - len(self._arrivals)
        self._gone = 0


class UngroupedFirst(Scheduler[W]):
    """A scheduler that gives a free slot to the oldest task without a group, if one waits.

    Of ``limits.BROKER_OVERTAKINGS`` + 1 slots that become free in a row, one goes to a group if any waits. So tasks of
    a group wait longer, but not forever. A group that is passed over has its turn before the groups in the line, whose
    tasks are younger than those set aside behind it.

    Tasks without a group are set aside behind None, which is always busy here.
    """

    __slots__ = ("_overtakings", "_passed_over", "_ungrouped")

    def __init__(self, max_active: int, max_queued: int) -> None:
        super().__init__(max_active, max_queued)
        self._overtakings = 0
        self._passed_over: deque[Hashable] = deque()  # idle groups with tasks set aside; they stay among the busy ones
        self._ungrouped: deque[W] = deque()
        self._busy[None] = self._ungrouped

    @override
    def wait(self, task: W, let_in: Callable[[], object] | None = None) -> bool:
        """Let a task wait for a slot; see :class:`Scheduler`."""
        outside = super().wait(task, let_in)
        if task[0] is None:  # it came to the end of the line, since all slots are occupied
            self._set_aside(self._arrivals.pop())
        return outside

    @override
    def enter(self, task: W) -> bool:
        """Take a slot, or else wait for one; see :class:`Scheduler`."""
        has_slot = super().enter(task)
        if not has_slot and task[0] is None:
            self._set_aside(self._arrivals.pop())
        return has_slot

    @override
    def next(self, group: Hashable) -> W | None:
        """Free the group's slot; return the task that has it now, if any."""
        if self._overtakings < limits.BROKER_OVERTAKINGS and (task := self._first_of(self._ungrouped)) is not None:
            self._overtakings += 1
            self._pass_over(group)
            return task
        self._overtakings = 0
        task = self._next_of_groups(group)
        if task is None and (task := self._first_of(self._ungrouped)) is not None:
            self.active += 1  # no group waits
        return task

    def _next_of_groups(self, group: Hashable) -> W | None:
        if self._passed_over:
            self._pass_over(group)
            group = None
        while self._passed_over:
            first = self._passed_over.popleft()
            if (task := self._first_of(self._busy[first] or deque())) is not None:
                return task
            del self._busy[first]
        return super().next(group)

    def _pass_over(self, group: Hashable) -> None:
        if group is not None:
            if self._busy[group]:
                self._passed_over.append(group)
            else:
                del self._busy[group]

    def _first_of(self, tasks: deque[W]) -> W | None:
        """Remove and return the first task set aside in a line; pass over withdrawn ones."""
        while tasks:
            task = tasks.popleft()
            if task:
                self._reach += 1
                if self._outside:
                    self._let_in(task)
                return task
            self._gone -= 1
        return None


def scheduler(fairness: Fairness, max_active: int, max_queued: int) -> Scheduler[Any]:
    """Return a new scheduler.

    Raises:
        InputError: if an argument is invalid.
    """
    for name, bound in (("max_active", max_active), ("max_queued", max_queued)):
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
            raise InputError(f"{name} is {bound!r}; expected a whole number of at least 1")
    if fairness not in ("oldest", "ungrouped-first"):
        raise InputError(f"fairness is {fairness!r}; expected 'oldest' or 'ungrouped-first'")
    return (UngroupedFirst if fairness == "ungrouped-first" else Scheduler)(max_active, max_queued)


def _without_hash(group: object) -> InputError:
    return refusal("group", group, "a hashable value, such as a text or a number")
