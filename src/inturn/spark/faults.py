"""Named points at which a test kills the process, to see that nothing is lost and nothing is done twice.

``INTURN_KILL_AT="before commit"`` kills the process that reaches that point with SIGKILL, as a power failure would;
``INTURN_KILL_AT="before commit@3"`` the third time; ``INTURN_STOP_AT`` makes it sleep there until SIGCONT, as a
machine that hangs. Without the variables this costs two look-ups a step.
"""

import os
import signal
from collections import Counter

POINTS = ("before files", "between files", "before commit", "after commit")
_reached: Counter[str] = Counter()


def reach(point: str) -> None:
    """Die here, or sleep here, if the environment says so."""
    _reached[point] += 1
    here = (point, f"{point}@{_reached[point]}")
    if os.environ.get("INTURN_KILL_AT") in here:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("INTURN_STOP_AT") in here:
        os.kill(os.getpid(), signal.SIGSTOP)
