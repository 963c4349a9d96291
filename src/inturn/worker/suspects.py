"""Work that may have killed a process: it runs alone, so that if the process is killed again, the cause is known.

A task of a group runs alone if no other work begins at the same time. A delivery runs alone if no other delivery is
made at the same time; tasks continue, since a receiver may be slow, except for tasks that are to run alone. Both wait
until all work that could also be the cause has ended, and no such work begins in the meantime. Work that has run for
longer than ``limits.ALONE_S`` delays nothing: it may never end.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from inturn.core import limits
from inturn.worker.group_task import GroupTask
from inturn.worker.work_items import DeliveryAttempt

Work: TypeAlias = GroupTask | DeliveryAttempt


class RecentWork(NamedTuple):
    """The present work that is recent enough to be the cause if the process is killed.

    Attributes:
        tasks: the tasks.
        sendings: the deliveries.
    """

    tasks: list[GroupTask]
    sendings: list[DeliveryAttempt]

    @classmethod
    def of(cls, tasks: Iterable[GroupTask], sendings: Iterable[DeliveryAttempt]) -> "RecentWork":
        """Return the recent ones of these tasks and deliveries."""
        since_s = time.monotonic() - limits.ALONE_S
        return cls(
            [task for task in tasks if task.began_s > since_s],
            [sending for sending in sendings if sending.began_s > since_s],
        )

    @property
    def is_alone(self) -> bool:
        """True if a task runs, or waits, that is to run alone."""
        return any(task.is_alone for task in self.tasks)

    @property
    def delivers_alone(self) -> bool:
        """True if a delivery runs, or waits, that is to run alone."""
        return any(sending.is_alone for sending in self.sendings)

    @property
    def is_busy(self) -> bool:
        """True if a task that is to run alone would have to wait."""
        return bool(self.tasks) or self.delivers_alone


class WorkStarter:
    """The path to the threads, on which work that is to run alone waits.

    Args:
        put: passes work to the threads.

    Attributes:
        waiting: the work that waits.
    """

    def __init__(self, put: Callable[[Work], None]) -> None:
        self._put = put
        self.waiting: list[Work] = []

    def put(self, work: Work) -> None:
        """Pass on work, at once or when it can run alone."""
        if work.is_alone:
            work.began_s = math.inf
            self.waiting.append(work)
        else:
            self._begin(work)

    def begin(self, company: RecentWork) -> None:
        """Begin the first waiting work if it would run alone; tasks that wait for another attempt do not count."""
        first = self.waiting[0]
        tasks = [task for task in company.tasks if task not in self.waiting and not task.is_asleep]
        sendings = [sending for sending in company.sendings if sending not in self.waiting]
        if isinstance(first, DeliveryAttempt):
            is_free = not sendings
        else:
            is_free = not tasks and not any(sending.is_alone for sending in sendings)
        if is_free:
            self._begin(self.waiting.pop(0))

    def _begin(self, work: Work) -> None:
        work.began_s = time.monotonic()
        self._put(work)

    def stop(self) -> list[Work]:
        """Return the waiting work, which will not begin."""
        waiting, self.waiting = self.waiting, []
        return waiting
