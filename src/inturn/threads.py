"""Threads: those that take no signals, and a loop that its caller starts, stops and waits for.

Python calls signal handlers in the main thread. The system gives a signal to any thread that does not block it: if that
is another one, the main thread continues to wait for its lock, and a Ctrl-C has no effect until the wait ends.
"""

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Self

_STOPS: Final = {signal.SIGINT, signal.SIGTERM}


def started(run: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread that leaves the signals which stop a process to the main thread."""

    def deaf() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        run()

    thread = threading.Thread(target=deaf, name=name, daemon=True)
    thread.start()
    return thread


class ThreadLoop(ABC):
    """A loop in its own thread, for ``with``. The thread takes signals, as do processes that are started in it."""

    def __init__(self, name: str) -> None:
        self._name_of_thread, self._stopping = name, threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @abstractmethod
    def _run_alone(self) -> None:
        """Run in the loop's own thread until stopped; an error that ends it is kept."""

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run_alone, name=self._name_of_thread, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop, and wait until the work that has begun is finished; raise the error that ended the loop."""
        self.stop_soon()
        if self._thread is not None:
            self._thread.join()
        if kind is None:
            self._notify()

    def stop_soon(self) -> None:
        """Begin no more work; the work that has begun is finished."""
        self._stopping.set()

    def _fail(self, error: BaseException) -> None:
        """Keep an error, unless there is an earlier one, and stop."""
        self._error = self._error or error
        self._stopping.set()

    def _notify(self) -> None:
        if self._error is not None:
            raise self._error
