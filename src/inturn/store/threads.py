"""The threads of a store, which take no signals.

Python calls signal handlers in the main thread. The system gives a signal to any thread that does not block it: if that
is another one, the main thread continues to wait for its lock, and a Ctrl-C has no effect until the wait ends.
"""

import signal
import threading
from collections.abc import Callable
from typing import Final

_STOPS: Final = {signal.SIGINT, signal.SIGTERM}


def started(run: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread that leaves the signals which stop a process to the main thread."""

    def deaf() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        run()

    thread = threading.Thread(target=deaf, name=name, daemon=True)
    thread.start()
    return thread
