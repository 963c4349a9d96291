"""The tasks of a worker, by their states.

The states of a task, in their order; a task without messages skips the first::

    next      its messages are leased, and the task before it of the same group is not stored yet
    begun     it was returned by begin(): it waits to run alone (suspects.py), or runs in the pool
    ended     end() was called with it: it has a result, or an error, or gave up at a stop
    refused   it has a result, but the queue of the chain has no room; tried again after a pause
    doubtful  its handler returned something else than (state, outputs), and has not applied a message yet
    gone      stored with its acknowledgements, nacked, or its lease was lost

A group is busy from the begin of its task until that task is gone. Only the worker's own thread changes a state, except
for end(), which the threads of the pool call. What never happens:

- Two tasks of a group have begun: messages of a busy group go to its next task.
- A task that has ended is lost: it is collected, and then stored, nacked, refused, doubted or queued again.
- A doubtful task waits for ever: it waits for a task that can still show that the handler is right. If there is none,
  the worker ends with the error of the handler.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from inturn.core import limits
from inturn.worker.group_task import GroupTask
from inturn.worker.work_items import WorkResult, has_applied


class CollectedTasks(NamedTuple):
    """Tasks that have ended, as :meth:`WorkerTasks.collect` returns them.

    Attributes:
        done: tasks whose results can be stored.
        given_up: tasks whose messages are to be nacked.
        error: the error that ends the worker, once all other tasks are stored; None: there is none.
    """

    done: list[GroupTask]
    given_up: list[GroupTask]
    error: BaseException | None


class WorkerTasks:
    """The tasks of a worker that are not gone.

    Attributes:
        busy: the tasks that have begun, by their groups.
        next: the next tasks of busy groups, by their groups.
    """

    def __init__(self) -> None:
        self.busy: dict[str, GroupTask] = {}
        self.next: dict[str, GroupTask] = {}
        self._all: set[GroupTask] = set()
        self._ended: deque[GroupTask] = deque()
        self._refused: list[GroupTask] = []
        self._refused_until_s = 0.0  # by the monotonic clock
        self._doubtful: list[GroupTask] = []

    def __len__(self) -> int:
        return len(self._all)

    @property
    def doubtful_count(self) -> int:
        """The number of doubtful tasks."""
        return len(self._doubtful)

    def except_for(self, *others: Iterable[object]) -> set[GroupTask]:
        """Return all tasks but these."""
        return self._all.difference(*others)

    def started_except_for(self, *others: Iterable[object]) -> set[GroupTask]:
        """Return all tasks but these, and but those that are refused or doubtful."""
        return self._all.difference(*others, self._refused, self._doubtful)

    def begin(self, found: WorkResult, lease_of: Callable[[GroupTask], int]) -> list[GroupTask]:
        """Return the tasks that begin now, with the work that a transaction has found for them.

        Args:
            found: messages, decisions and due groups; a message of a busy group is added to the group's next task.
            lease_of: returns the length of a task's lease, in milliseconds.
        """
        begun: list[GroupTask] = []
        fresh = {group: self.next.pop(group) for group in [group for group in self.next if group not in self.busy]}
        for group, delivery in found.deliveries:
            if group is None:
                task = GroupTask(None, now_us=found.now_ms * 1000)
                begun.append(task)
            else:
                tasks = self.next if group in self.busy else fresh
                task = tasks.setdefault(group, GroupTask(group))
            task.add(delivery)
            self._all.add(task)
        for decision in found.decisions:
            fresh.setdefault(decision.group, GroupTask(decision.group)).decisions.append(decision)
        for group in found.due:
            fresh.setdefault(group, GroupTask(group))
        for group, task in fresh.items():
            task.record, task.now_us = found.records.get(group), found.now_ms * 1000
            task.is_quiet, task.is_final = group in found.due, group in found.final
            if begin_count := found.begun.get(group):
                task.begin_count, task.is_alone = begin_count, task.is_alone or found.is_alone
                until_ms = found.now_ms + lease_of(task)
                task.until_ms = min(task.until_ms or until_ms, until_ms)
        self._all.update(fresh.values())
        self.busy.update(fresh)
        return [*begun, *fresh.values()]

    def end(self, task: GroupTask) -> None:
        """Note, in a thread of the pool, that a task has ended."""
        self._ended.append(task)

    def collect(self, *, is_stopping: bool, is_proved: bool) -> CollectedTasks:
        """Return the tasks that have ended.

        Args:
            is_stopping: whether the worker stops, so that no task waits for another.
            is_proved: whether the handler is known to have applied a message.
        """
        done, given_up = list[GroupTask](), list[GroupTask]()
        error: BaseException | None = None
        if is_stopping or time.monotonic() >= self._refused_until_s:
            done, self._refused = self._refused, []
        for _ in range(len(self._ended)):
            task = self._ended.popleft()
            if task.result is not None:
                done.append(task)
            else:
                given_up.append(task)
                if error is None:
                    error = task.error
        ended = CollectedTasks(done, given_up, error)
        return ended if is_proved else self._without_doubtful(ended, is_stopping=is_stopping or error is not None)

    def _without_doubtful(self, ended: CollectedTasks, *, is_stopping: bool) -> CollectedTasks:
        """Return the tasks that can be stored or nacked of a handler which has not applied a message yet.

        If the handler applies another message, a result that is not (state, outputs) is the fault of its message, and
        parks the group. Until then such tasks wait for the other present tasks, and for further ones. If the handler
        applies none of their messages, it is wrong for each of them, and the worker ends with that error.
        """
        before = len(self._doubtful)
        done, self._doubtful = [*self._doubtful, *ended.done], []
        if any(map(has_applied, (*done, *self._refused))):
            return ended._replace(done=done)
        certain: list[GroupTask] = []
        doubtful: dict[GroupTask, BaseException] = {}
        for task in done:
            wrong = task.result.journal.wrong if task.result is not None else None
            if wrong is None:
                certain.append(task)
            else:
                doubtful[task] = wrong
        if not doubtful:
            return ended._replace(done=certain)
        error = ended.error
        if not is_stopping:
            is_new = before < len(doubtful) < limits.WORKER_DOUBTFUL
            if is_new or self._all.difference(done, ended.given_up, self._refused, self.next.values()):
                self._doubtful = list(doubtful)
                return ended._replace(done=certain)
            error = next(iter(doubtful.values()))
        for task in doubtful:
            task.result = None
        return CollectedTasks(certain, [*ended.given_up, *doubtful], error)

    def refuse(self, task: GroupTask) -> None:
        """Keep a task whose outputs do not fit into the queue of the chain; it is collected again after a pause."""
        self._refused.append(task)
        self._refused_until_s = time.monotonic() + limits.POLL_S

    def queue_again(self, task: GroupTask) -> None:
        """Queue a task's messages, which are still leased, for another task, after another worker changed the group."""
        self.drop(task)
        task.result, task.decisions = None, []  # decisions that were not applied are found again
        if task.group is None or not task.deliveries:
            return
        following = self.next.get(task.group)
        if following is not None:
            for delivery in following.deliveries:
                task.add(delivery)
            self._all.discard(following)
        self.next[task.group] = task
        self._all.add(task)

    def take_next(self) -> list[GroupTask]:
        """Return the next tasks, which will not begin; they are still to be dropped."""
        remaining = list(self.next.values())
        self.next.clear()
        return remaining

    def drop(self, task: GroupTask) -> None:
        """Drop a task that is stored, nacked, or has lost its lease."""
        self._all.discard(task)
        if task.group is not None and self.busy.get(task.group) is task:
            del self.busy[task.group]
