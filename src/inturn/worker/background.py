"""The loop of a worker or a consumer, in its own thread or in the caller's: started, drained, stopped, checked.

While the database is unavailable, the loop waits: nothing is lost, and no restart is needed. Any other error ends it.
"""

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sized
from typing import Any, Generic, TypeVar

from inturn.core import limits
from inturn.core.errors import InputError, StoreUnavailable
from inturn.core.override import override
from inturn.core.texts import text_of
from inturn.telemetry.events import EventLogger
from inturn.telemetry.measures import LoopMeasures, register
from inturn.threads import ThreadLoop
from inturn.worker.thread_pool import ThreadPool

T = TypeVar("T")
M = TypeVar("M", bound=LoopMeasures)
OnError = Callable[[BaseException], object]
"""A function that is called with the error that has ended a loop, in the loop's own thread."""


class LoopReport(Generic[M]):
    """The report of one loop on its work; only its own thread calls it.

    Args:
        measures: its measurements, until it begins.
    """

    def __init__(self, measures: M) -> None:
        self._measures = measures

    def begins(self, busy: Sized) -> None:
        """Record that the loop runs; ``busy`` contains the work that runs or is about to."""
        self._measures = register(self._measures)
        self._measures.busy = lambda: len(busy)

    def up(self, *, is_up: bool) -> None:
        """Record whether it works: it has not ended, and its database is available."""
        self._measures.up = is_up


class BackgroundLoop(ThreadLoop):
    """A loop that takes messages until it is stopped, for ``with``, and passes them to a pool of threads.

    Args:
        role: kind of loop, such as ``worker``, for its logger, its thread and error texts.
        queue: the name of its queue.
        grace_s: how long a stop waits for running handlers, and for a database that is unavailable, in seconds.
        on_error: called in the loop's own thread with the error that has ended it.

    Attributes:
        is_available: whether the last call of the database succeeded.

    Raises:
        InputError: if ``grace_s`` is negative, or not a number.
    """

    _report: LoopReport[Any]
    _pool: ThreadPool[Any]

    def __init__(self, role: str, queue: str, grace_s: float, on_error: OnError | None = None) -> None:
        if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not grace_s >= 0:
            raise InputError(f"grace_s is {grace_s!r}; expected a number of seconds, 0 or more")
        super().__init__(f"inturn-{role}-loop")
        self.is_available = True
        self._role, self._queue_name, self._grace_s, self._on_error = role, queue, grace_s, on_error
        self._log = EventLogger(role)
        self._until: float | None = None  # the end of the grace, by the monotonic clock
        self._news = threading.Event()
        self._drained = threading.Event()  # all received work has begun
        self._drains: deque[threading.Event] = deque()

    @abstractmethod
    def _iterate(self) -> bool:
        """Run one transaction, and pass new work to the threads; return whether no work is left."""

    @abstractmethod
    def _rest(self) -> None:
        """Wait until there is something to do."""

    @abstractmethod
    def _running(self) -> Sized:
        """Return the work that runs or is about to, for the metrics."""

    @abstractmethod
    def _wind_up(self) -> None:
        """Nack messages whose work has not begun, and finish the work that has."""

    def run(self, *, until_empty: bool = False) -> None:
        """Run in this thread until stopped, or until the queue is empty."""
        if until_empty:
            self._drains.append(self._stopping)
        self._run()
        self._notify()

    @override
    def stop_soon(self) -> None:
        """Receive no more messages; running handlers finish, and messages whose work has not begun are nacked."""
        super().stop_soon()
        self._news.set()

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until the queue is empty and everything is delivered.

        It does not wait for work that needs a missing predecessor or an operator: held messages, parked groups and
        deferred messages.

        Raises:
            TimeoutError: if that takes longer than ``timeout_s``.
            Exception: the error that ended the loop.
        """
        empty = threading.Event()
        self._drains.append(empty)
        self._news.set()
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not empty.wait(limits.POLL_S):
            self.check()
            if until is not None and time.monotonic() > until:
                raise TimeoutError(f"the {self._role} still has work to do after {timeout_s} s")

    def check(self) -> None:
        """Check that it is running.

        Raises:
            Exception: the error that ended it.
            InputError: if it was not started, or was stopped.
        """
        if self._thread is None or not self._thread.is_alive():
            self._notify()
            raise InputError(f"the {self._role} is not running: it was not started, or it was stopped")

    def _ended(self) -> None:
        """Note, in a thread of the pool, that some work has ended."""
        if not self._news.is_set():
            self._news.set()
        if not self._pool.backlog:
            self._drained.set()

    def _gather(self, wait_s: float) -> None:
        """Wait until some work has ended; if it is short, wait for more, which the same transaction then settles."""
        self._news.wait(wait_s)
        if self._pool.backlog:
            self._drained.wait(limits.WORKER_GATHER_S)

    def _begin_grace(self) -> None:
        """Begin the time for which a stop waits, unless it has begun."""
        if self._until is None:
            self._until = time.monotonic() + self._grace_s

    def _is_in_grace(self) -> bool:
        """Return whether a stop still waits for what has begun."""
        return self._until is not None and time.monotonic() < self._until

    def _in_store(self, act: Callable[[], T]) -> T:
        """Run a function on the database; while the database is unavailable, wait and run the function again.

        Raises:
            StoreUnavailable: if it is still unavailable at the end of the grace period of a stop.
        """
        pause_s = limits.POLL_S
        while True:
            try:
                value = act()
            except StoreUnavailable as error:
                self._note(error)
                if self._stopping.wait(pause_s):
                    self._begin_grace()
                    if not self._is_in_grace():
                        raise
                    time.sleep(limits.POLL_S)
                pause_s = min(2 * pause_s, limits.UNAVAILABLE_PAUSE_S)
            else:
                if not self.is_available:
                    self._note(None)
                return value

    def _note(self, error: StoreUnavailable | None) -> None:
        """Record whether the database is available, and log a change."""
        if error is None:
            self.is_available = True
            self._log.warning(
                "available", self._queue_name, f"the {self._role} of %(queue)r continues", queue=self._queue_name
            )
        elif self.is_available:
            self.is_available = False
            text = f"the {self._role} of %(queue)r waits because its database is unavailable: %(why)s"
            self._log.warning("unavailable", self._queue_name, text, queue=self._queue_name, why=str(error))
        self._report.up(is_up=self.is_available)

    @override
    def _run_alone(self) -> None:
        self._run()
        if self._error is None:
            return
        text = f"the {self._role} of %(queue)r has ended with %(error)s"
        error = type(self._error).__name__
        payload = text_of(self._error)
        self._log.error("ended", self._queue_name, text, payload=payload, queue=self._queue_name, error=error)
        if self._on_error is not None:
            self._on_error(self._error)

    def _run(self) -> None:
        self._report.begins(self._running())
        for part in (self._loop, self._wind_up):
            try:
                part()
            except BaseException as error:  # noqa: BLE001 - raised for the caller that waits
                self._fail(error)
        self._report.up(is_up=False)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            drains = len(self._drains)
            self._news.clear()
            self._drained.clear()
            if self._iterate() and drains:
                for _ in range(drains):
                    self._drains.popleft().set()
            else:
                self._rest()
