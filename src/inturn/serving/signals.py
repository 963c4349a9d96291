"""Signals that stop a process in order, once, however often they come; a later Ctrl-C ends it at once."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias

from inturn.core import limits

StopRequest: TypeAlias = Literal["stop", "repeat", "force"]
"""The request of a signal: to stop in order, nothing new, or to end at once."""


class StopSignals:
    """The signals that stop one process, distinguished as by uvicorn.

    The first one stops in order. A further SIGTERM changes nothing: GNU ``timeout`` and other supervisors signal a
    process and then its process group, which is two signals for one stop. SIGKILL ends the process at once, and so does
    SIGINT: a user at a terminal who presses Ctrl-C again. A SIGINT that arrives with the first signal is a repetition
    too, since a terminal signals a whole group, and a parent such as ``uv run`` may forward its own.

    Args:
        clock: returns the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_s: float | None = None

    def request_of(self, number: int) -> StopRequest:
        """Return the request of a signal that has arrived now."""
        now_s = self._clock()
        if self._first_s is None:
            self._first_s = now_s
            return "stop"
        is_later = now_s - self._first_s >= limits.SIGNAL_REPEAT_S
        return "force" if number == signal.SIGINT and is_later else "repeat"


@contextmanager
def stop_on_signals(
    stop: Callable[[], None], *signals: signal.Signals, force: Callable[[], None] | None = None
) -> Iterator[None]:
    """Call ``stop`` at the first of some signals, by default SIGTERM and SIGINT; see :class:`StopSignals`.

    A SIGINT that is to end the process at once calls ``force``. Without ``force`` the SIGINT has its usual effect, such
    as KeyboardInterrupt.

    Only the main thread gets signals, so in any other thread this function does nothing. ``stop`` is called in its own
    thread: a signal handler runs between any two lines of the main thread, which may hold the lock that ``stop`` needs.
    ``SimpleQueue.put`` may be called in a signal handler (according to its documentation).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    before: dict[int, Any] = {}
    signals_seen = StopSignals()

    def on_signal(number: int, _frame: object) -> None:
        stop_request = signals_seen.request_of(number)
        if stop_request == "stop":
            calls.put(stop)
        elif stop_request == "force":
            if force is not None:
                force()
            signal.signal(number, before[number])
            signal.raise_signal(number)

    def run_call() -> None:
        if (call := calls.get()) is not None:
            call()

    threading.Thread(target=run_call, name="inturn-signals", daemon=True).start()
    for signum in signals or (signal.SIGTERM, signal.SIGINT):
        before[signum] = signal.getsignal(signum)
        signal.signal(signum, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        calls.put(None)


def end_process() -> None:
    """End the process at once, as a kill does: a clean-up might wait for a locked database.

    Nothing is lost: leased messages are delivered again when their leases expire.
    """
    os._exit(128 + signal.SIGINT)
