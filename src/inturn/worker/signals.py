"""Signals that stop a worker in order: the first one finishes what runs, a second one has its usual effect."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any


@contextmanager
def stopped_by(stop: Callable[[], None], *signals: signal.Signals) -> Iterator[None]:
    """Call ``stop`` at the first of some signals, by default SIGTERM and SIGINT.

    Outside the main thread, which alone gets signals, it does nothing. ``stop`` is called in a thread of its own: a
    signal handler runs between any two lines of the main thread, which may hold the very lock that ``stop`` takes.
    ``SimpleQueue.put`` may be called there (its documentation says so).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    before: dict[int, Any] = {}

    def hear(number: int, _frame: object) -> None:
        signal.signal(number, before[number])
        heard.put(stop)

    def follow() -> None:
        if (called := heard.get()) is not None:
            called()

    threading.Thread(target=follow, name="inturn-signals", daemon=True).start()
    for each in signals or (signal.SIGTERM, signal.SIGINT):
        before[each] = signal.getsignal(each)
        signal.signal(each, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        heard.put(None)
