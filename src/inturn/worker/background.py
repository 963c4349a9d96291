"""The loop of a worker or a consumer, in a thread of its own or in the caller's: started, drained, stopped, checked.

While the database is unavailable, the loop waits: nothing is lost by that, and nobody has to start it again. Any other
error ends it.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sized
from typing import Any, Generic, Self, TypeVar

from inturn.core import limits
from inturn.core.errors import InputError, StoreUnavailable
from inturn.core.texts import text_of
from inturn.telemetry.events import EventLogger
from inturn.telemetry.measures import LoopMeasures, begun

T = TypeVar("T")
M = TypeVar("M", bound=LoopMeasures)
OnError = Callable[[BaseException], object]
"""Is told the error that has ended a loop in a thread of its own, in that thread."""


class LoopReport(Generic[M]):
    """The report of one loop on what it does; only its own thread calls it.

    Args:
        measures: its measurements, until it begins.
    """

    def __init__(self, measures: M) -> None:
        self._measures = measures

    def begins(self, busy: Sized) -> None:
        """Note that the loop runs; ``busy`` is what is running or about to."""
        self._measures = begun(self._measures)
        self._measures.busy = lambda: len(busy)

    def up(self, *, is_up: bool) -> None:
        """Note whether it works: it has not ended, and its database is available."""
        self._measures.up = is_up


class BackgroundLoop(ABC):
    """A loop that takes messages until it is stopped, for ``with``.

    Args:
        what: what it is, for its logger, its thread and error texts: ``worker``.
        queue: the name of its queue.
        grace_s: how long a stop waits for running handlers, and for a database that is unavailable, in seconds.
        on_error: called in the loop's own thread with the error that has ended it.

    Attributes:
        is_available: whether the database could be used when it was last asked.

    Raises:
        InputError: if ``grace_s`` is negative, or no number.
    """

    _report: LoopReport[Any]

    def __init__(self, what: str, queue: str, grace_s: float, on_error: OnError | None = None) -> None:
        if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not grace_s >= 0:
            raise InputError(f"grace_s is {grace_s!r}; it is a number of seconds, 0 or more")
        self.is_available = True
        self._what, self._queue_name, self._grace_s, self._on_error = what, queue, grace_s, on_error
        self._log = EventLogger(what)
        self._until: float | None = None  # the end of the grace, by the monotonic clock
        self._news = threading.Event()
        self._drained = threading.Event()  # all that was taken has begun
        self._stopping = threading.Event()
        self._drains: deque[threading.Event] = deque()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @abstractmethod
    def _loop(self) -> None:
        """Take messages until stopped; an error ends it."""

    @abstractmethod
    def _taken(self) -> Sized:
        """Return what is running or about to, for the metrics."""

    @abstractmethod
    def _wind_up(self) -> None:
        """Give back what has not begun, and finish what has."""

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run_alone, name=f"inturn-{self._what}-loop", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop, and wait for running handlers."""
        self.stop_soon()
        if self._thread is not None:
            self._thread.join()
        if kind is None:
            self._tell()

    def run(self, *, until_empty: bool = False) -> None:
        """Run in this thread until stopped, or until the queue is empty."""
        if until_empty:
            self._drains.append(self._stopping)
        self._run()
        self._tell()

    def stop_soon(self) -> None:
        """Take no more messages; running handlers are finished, and what has not begun is given back."""
        self._stopping.set()
        self._news.set()

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until the queue is empty and everything is delivered.

        What waits for a missing predecessor or for a person is not waited for: held messages, parked groups and
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
                raise TimeoutError(f"after {timeout_s} s there is still something to do")

    def check(self) -> None:
        """Check that it is running.

        Raises:
            Exception: the error that ended it.
            InputError: if it was not started, or was stopped.
        """
        if self._thread is None or not self._thread.is_alive():
            self._tell()
            raise InputError(f"the {self._what} does not run: it was not begun, or it was stopped")

    def _tell(self) -> None:
        if self._error is not None:
            raise self._error

    def _begin_grace(self) -> None:
        """Begin the time for which a stop waits, unless it has begun."""
        if self._until is None:
            self._until = time.monotonic() + self._grace_s

    def _is_in_grace(self) -> bool:
        """Return whether a stop still waits for what has begun."""
        return self._until is not None and time.monotonic() < self._until

    def _in_store(self, act: Callable[[], T]) -> T:
        """Run a function on the database; while that is unavailable, wait and run it again.

        Raises:
            StoreUnavailable: if it still is when the grace of a stop is over.
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
        """Note whether the database is available, and log a change."""
        if error is None:
            self.is_available = True
            self._log.warning(
                "available", self._queue_name, f"the {self._what} of %(queue)r goes on", queue=self._queue_name
            )
        elif self.is_available:
            self.is_available = False
            text = f"the {self._what} of %(queue)r waits, since its database is unavailable: %(why)s"
            self._log.warning("unavailable", self._queue_name, text, queue=self._queue_name, why=str(error))
        self._report.up(is_up=self.is_available)

    def _run_alone(self) -> None:
        """Run in a thread of its own, where nobody sees the error that ends it."""
        self._run()
        if self._error is None:
            return
        text = f"the {self._what} of %(queue)r has ended with %(error)s"
        error = type(self._error).__name__
        said = text_of(self._error)
        self._log.error("ended", self._queue_name, text, payload=said, queue=self._queue_name, error=error)
        if self._on_error is not None:
            self._on_error(self._error)

    def _run(self) -> None:
        self._report.begins(self._taken())
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001 - told by who waits for this
            self._error = self._error or error
        try:
            self._wind_up()
        except BaseException as error:  # noqa: BLE001 - as above
            self._error = self._error or error
        self._report.up(is_up=False)
