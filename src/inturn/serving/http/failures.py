"""The log of failures of an endpoint: one record a minute of each kind, so that no flood of requests floods the log.

A temporary failure of the store (a full disk, a lost file, an unreachable database) is logged as a sentence. Only an
unexpected error, a bug, is logged with a traceback.
"""

import time
from collections.abc import Callable

from inturn.core import limits
from inturn.core.errors import InturnError
from inturn.telemetry.events import EventLogger


class FailureLog(EventLogger):
    """The failures of one endpoint, which calls :meth:`flush` regularly; tests replace the clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("server", clock, most=1)

    def failed(self, summary: str, error: BaseException) -> None:
        """Log a failure: as a sentence for a known cause, else with a traceback."""
        text = summary.replace("%", "%%")
        if isinstance(error, InturnError | OSError):
            message = str(error) or type(error).__name__
            kind = f"{type(error).__name__} {message[: limits.SHOWN_LENGTH]}"
            self.error("failed", kind, f"{text}: %(error)s", error=message)
        else:
            self.error("failed", f"{type(error).__name__} {_place(error)}", text, exception=error)


def _place(error: BaseException) -> str:
    """Return the file and line where an error was raised."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
