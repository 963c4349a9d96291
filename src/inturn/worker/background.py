"""The loop of a worker or a consumer, in a thread of its own or in the caller's: started, drained, stopped, checked."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Self

from inturn.core import limits
from inturn.core.errors import InputError


class BackgroundLoop(ABC):
    """A loop that takes messages until it is stopped, for ``with``.

    Args:
        what: what it is, for error texts: ``worker``.
        thread: the name of its thread.
        grace_s: how long a stop waits for running handlers, in seconds.

    Raises:
        InputError: if ``grace_s`` is negative, or no number.
    """

    def __init__(self, what: str, thread: str, grace_s: float) -> None:
        if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not grace_s >= 0:
            raise InputError(f"grace_s is {grace_s!r}; it is a number of seconds, 0 or more")
        self._what, self._thread_name, self._grace_s = what, thread, grace_s
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
    def _wind_up(self) -> None:
        """Give back what has not begun, and finish what has."""

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
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

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001 - told by who waits for this
            self._error = self._error or error
        try:
            self._wind_up()
        except BaseException as error:  # noqa: BLE001 - as above
            self._error = self._error or error
