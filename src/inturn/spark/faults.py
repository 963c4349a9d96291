"""Named points at which a test kills the process, to see that nothing is lost and nothing is done twice.

``INTURN_KILL_AT="before commit"`` kills the process that reaches that point with SIGKILL, as a power failure would.
Without the variable this costs one look-up a step.
"""

import os
import signal

POINTS = ("before files", "between files", "before commit", "after commit")


def reach(point: str) -> None:
    """Die here, if the environment says so."""
    if os.environ.get("INTURN_KILL_AT") == point:
        os.kill(os.getpid(), signal.SIGKILL)
