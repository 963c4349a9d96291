"""Rate-limited logging of failures: one line per kind and minute, with the number of suppressed lines.

This keeps a flood of failing requests from flooding the log. A temporary failure of the store (a full disk, a lost
file, an unreachable database) is logged as a sentence. Only an unexpected error, a bug, is logged with a traceback.
"""

import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

from inturn.core import limits as core_limits
from inturn.core.errors import InturnError
from inturn.server import limits

_LOG: Final = logging.getLogger("inturn.server")


class _Line(NamedTuple):
    """A log line."""

    level: int
    message: str
    error: BaseException | None
    about: dict[str, Any]


class _Kind:
    """A kind of failure: when the next line is due, and the number and the last of the lines suppressed since."""

    __slots__ = ("last", "left_out", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.left_out = 0
        self.last: _Line | None = None


class Failures:
    """The failure log of one endpoint; tests replace the clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}

    def failed(self, what: str, error: BaseException) -> None:
        """Log a failure: as a sentence for a known cause, else with a traceback."""
        if isinstance(error, InturnError | OSError):
            self.note(
                (type(error), str(error)[: core_limits.SHOWN_LENGTH]),
                f"{what}: {str(error) or type(error).__name__}",
                level=logging.ERROR,
            )
        else:
            self._add((type(error), _place(error)), _Line(logging.ERROR, what, error, {}))

    def note(self, kind: Hashable, message: str, *, level: int = logging.WARNING, **about: Any) -> None:
        """Log a failure: one line a minute of each kind, with further fields about it."""
        self._add(kind, _Line(level, message, None, about))

    def look(self, *, is_last: bool = False) -> None:
        """Log the kinds with suppressed lines whose minute has ended; called regularly, and at the end for all."""
        now = self._clock()
        for name, kind in [(name, kind) for name, kind in self._kinds.items() if is_last or kind.until <= now]:
            if kind.last is None:
                del self._kinds[name]
                continue
            last, left_out = kind.last, kind.left_out - 1
            kind.until, kind.left_out, kind.last = now + limits.FAILURE_TOLD_S, 0, None
            _tell(last, left_out)

    def _add(self, name: Hashable, line: _Line) -> None:
        now = self._clock()
        kind = self._kinds.get(name)
        if kind is None and len(self._kinds) >= limits.FAILURE_KINDS:
            name = ""  # too many kinds at once share one
            kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind(now)
        if now < kind.until:
            kind.left_out += 1
            kind.last = line
            return
        left_out = kind.left_out
        kind.until, kind.left_out, kind.last = now + limits.FAILURE_TOLD_S, 0, None
        _tell(line, left_out)


def _tell(line: _Line, left_out: int) -> None:
    about = line.about | {"others": left_out} if left_out or line.about else line.about
    _LOG.log(line.level, "%s", line.message, exc_info=line.error, extra=about)


def _place(error: BaseException) -> tuple[str, int]:
    """Return the file and line where an error was raised."""
    trace = error.__traceback__
    if trace is None:
        return "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno
