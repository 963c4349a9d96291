"""Tell the log of failures: one line for each kind and minute, which says how many were left out.

A flood of failing requests is not to be a flood of lines. What a store cannot do for now (a full disk, a lost file, a
database that is away) is a sentence. Only what nobody expected, a bug, has a traceback.
"""

import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

from inturn.core import limits
from inturn.core.errors import InturnError

_LOG: Final = logging.getLogger("inturn.server")


class _Line(NamedTuple):
    """What is told of a failure."""

    level: int
    message: str
    error: BaseException | None
    about: dict[str, Any]


class _Kind:
    """The failures of one kind: when the next may be told, how many were left out since, and the last of those."""

    __slots__ = ("last", "left_out", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.left_out = 0
        self.last: _Line | None = None


class Failures:
    """Log the failures of one endpoint.

    Args:
        clock: the time in seconds; another one for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}

    def failed(self, what: str, error: BaseException) -> None:
        """Tell what failed: in a sentence if it is known why, else with a traceback."""
        if isinstance(error, InturnError | OSError):
            self.note(
                (type(error), str(error)[: limits.SHOWN_LENGTH]),
                f"{what}: {str(error) or type(error).__name__}",
                level=logging.ERROR,
            )
        else:
            self._add((type(error), _place(error)), _Line(logging.ERROR, what, error, {}))

    def note(self, kind: Hashable, message: str, *, level: int = logging.WARNING, **about: Any) -> None:
        """Tell of a failure of this kind.

        Args:
            kind: what is told once a minute.
            message: what is said of it.
            level: of the line.
            about: what the line says besides.
        """
        self._add(kind, _Line(level, message, None, about))

    def look(self, *, is_last: bool = False) -> None:
        """Tell of those that were left out and whose minute is over; called now and then, and at the end."""
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
            name = ""  # so many kinds at once are one
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
    """Where in the source an error was raised."""
    trace = error.__traceback__
    if trace is None:
        return "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno
