"""Named points at which a test kills the process, to see that nothing is lost and nothing is done twice.

``INTURN_KILL_AT="before commit"`` kills the process that reaches that point with SIGKILL, as a power failure would;
``INTURN_KILL_AT="before commit@3"`` the third time; ``INTURN_STOP_AT`` makes it sleep there until SIGCONT, as a
machine that hangs. The variables are read when this is imported.
"""

import os
import signal
import time
from collections import Counter

OF_A_STEP = ("before files", "between files", "before commit", "after commit")
"""The points of a step of a pipeline on Spark."""
OF_A_TRANSACTION = ("in transaction", "before commit", "after commit")
"""The points of a transaction of a queue."""
OF_A_WORKER = (*OF_A_TRANSACTION, "received", "handled", "delivering", "delivered")
"""The points of a worker: its transactions, and what is between them."""

_UNTIL_S = 0.1  # for so long this thread might go on, if another one gets the signal

_reached: Counter[str] = Counter()
_kill_at = os.environ.get("INTURN_KILL_AT")
_stop_at = os.environ.get("INTURN_STOP_AT")


def kill_at(point: str) -> None:
    """Die at this point: for a process that is running already."""
    global _kill_at  # noqa: PLW0603 - there is one process, and it dies once
    _kill_at = point
    _reached.clear()


def reach(point: str) -> None:
    """Die here, or sleep here, if that was asked for."""
    if _kill_at is None and _stop_at is None:
        return
    _reached[point] += 1
    here = (point, f"{point}@{_reached[point]}")
    if _kill_at in here:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(_UNTIL_S)
    if _stop_at in here:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(_UNTIL_S)
