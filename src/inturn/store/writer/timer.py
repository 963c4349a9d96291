"""A timer thread, for waiters that have no thread of their own."""

import threading
import time
from collections.abc import Callable
from math import inf

from inturn.threads import started


class Timer:
    """A timer that calls ``ring`` once at the time that was set.

    The thread starts when the timer is set for the first time.

    Args:
        ring: callback, which may set the timer again.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._changed = threading.Condition()
        self._at = inf
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def set(self, time_s: float) -> None:
        """Call back at this time of the monotonic clock, or earlier if an earlier time is set."""
        with self._changed:
            if time_s >= self._at or self._is_stopped:
                return
            self._at = time_s
            if self._thread is None:
                self._thread = started(self._run, "inturn-alarm")
            self._changed.notify()

    def stop(self) -> None:
        """Stop the thread; the callback is no longer called."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopped and (left_s := self._at - time.monotonic()) > 0:
                    self._changed.wait(None if left_s == inf else left_s)
                if self._is_stopped:
                    return
                self._at = inf
            self._ring()
