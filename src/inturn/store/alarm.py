"""A thread that calls back at a time, for those who wait and have no thread of their own to wait with."""

import threading
import time
from collections.abc import Callable
from math import inf


class Alarm:
    """Calls ``ring`` once the time that was set has come. Its thread starts when it is set for the first time.

    Args:
        ring: what to call; it may set the alarm again.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._changed = threading.Condition()
        self._at = inf
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def set(self, at: float) -> None:
        """Ring at this time of the monotonic clock, or earlier if that was asked for."""
        with self._changed:
            if at >= self._at or self._is_stopped:
                return
            self._at = at
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="inturn-alarm", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Ring no more."""
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
