"""Named points at which a test kills or stops the process, to check that nothing is lost or done twice.

``INTURN_KILL_AT="before commit"`` kills the process with SIGKILL at that point, like a power failure;
``INTURN_KILL_AT="before commit@3"`` does so the third time. ``INTURN_STOP_AT`` stops it there until SIGCONT, like a
machine that hangs. The variables are read on import.
"""

import os
import signal
import time
from collections import Counter

OF_A_STEP = ("before files", "between files", "before commit", "after commit")
"""The points of a Spark step of a pipeline."""
OF_A_TRANSACTION = ("in transaction", "before commit", "after commit")
"""The points of a queue's transaction."""
OF_A_WORKER = (*OF_A_TRANSACTION, "received", "handled", "delivering", "delivered")
"""The points of a worker, in its transactions and between them."""

OF_AN_ERASURE = ("before results", "before messages", "between messages", "before cleaning", "cleaned")
"""The points of an erasure, between its transactions."""

_UNTIL_S = 0.1  # this thread may go on for a moment if another one gets the signal

_reached: Counter[str] = Counter()
_kill_at = os.environ.get("INTURN_KILL_AT")
_stop_at = os.environ.get("INTURN_STOP_AT")
is_set = _kill_at is not None or _stop_at is not None
"""Whether :func:`reach` can do anything; a transaction need not call it otherwise."""


def kill_at(point: str) -> None:
    """Set the point at which this running process is killed."""
    global _kill_at, is_set
    _kill_at, is_set = point, True
    _reached.clear()


def reach(point: str) -> None:
    """Kill or stop the process, if that was set for this point."""
    if _kill_at is None and _stop_at is None:
        return
    _reached[point] += 1
    names = (point, f"{point}@{_reached[point]}")
    if _kill_at in names:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(_UNTIL_S)
    if _stop_at in names:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(_UNTIL_S)
