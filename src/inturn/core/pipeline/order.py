"""The four grades of order, and the policies for gaps and failures: plain values for the definition of a pipeline."""

import datetime as dt
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from inturn.core import limits
from inturn.core.errors import PipelineError
from inturn.core.values.instant import MICROSECONDS, Unit

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}

_DOUBLINGS = 32
"""A microsecond that is doubled so often is more than the longest pause."""

Duration: TypeAlias = str | dt.timedelta


def duration_us(value: Duration, *, what: str) -> int:
    """Return a duration in microseconds, from ``"10 minutes"`` or a ``timedelta``.

    Raises:
        PipelineError: if it cannot be read, is negative or is too long; ``what`` names the argument.
    """
    if isinstance(value, dt.timedelta):
        number = value // dt.timedelta(microseconds=1)
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", value) if isinstance(value, str) else None
        if found is None or found[2] not in _UNITS:
            msg = f"{what} is {value!r}; write it as '10 minutes' ({', '.join(_UNITS)}) or as a timedelta"
            raise PipelineError(msg)
        number = round(min(float(found[1]) * _UNITS[found[2]], 2.0 * limits.DURATION_US))
    if number < 0:
        raise PipelineError(f"{what} is {value!r}; a duration cannot be negative")
    if number > limits.DURATION_US:
        raise PipelineError(f"{what} is {value!r}; expected at most {limits.DURATION_US // _UNITS['week']} weeks")
    return number


@dataclass(frozen=True)
class Gapless:
    """An order in which every revision exists, one after the other: gaps are seen and completeness is proved.

    Attributes:
        column: field with the revision, an integer.
        start: the first revision of a group.
        epoch: field with the epoch, an integer; a higher one starts the timeline again, and the state is kept.
    """

    column: str
    start: int = 1
    epoch: str | None = None


@dataclass(frozen=True)
class Monotone:
    """An order in which a later message has a higher number: stale messages are recognised, gaps are not.

    Attributes:
        column: field with the number (a log position, an offset), an integer.
        epoch: field with the epoch, an integer; a higher one starts the timeline again, and the state is kept.
    """

    column: str
    epoch: str | None = None


@dataclass(frozen=True)
class Timestamp:
    """An order by time, within a lateness; messages that come later than that are rejected and counted.

    A group's watermark is its own greatest time less the lateness. A message is applied once the watermark has reached
    its time; one below the watermark is late.

    Attributes:
        column: field with the time: a datetime, text (ISO 8601, also with slashes), or a number since 1970; see
            :mod:`inturn.core.values.instant`.
        lateness: how far behind the group's greatest time a message may come, such as ``"5 minutes"``.
        unit: unit of a number: ``s``, ``ms``, ``us`` or ``ns``.
    """

    column: str
    lateness: Duration = "0 seconds"
    unit: Unit = "us"

    def __post_init__(self) -> None:
        if self.unit not in MICROSECONDS:
            raise PipelineError(f"Timestamp(unit={self.unit!r}); expected one of {', '.join(map(repr, MICROSECONDS))}")

    def __repr__(self) -> str:
        """Return the text by which stores remember an order; older stores know no units."""
        unit = "" if self.unit == "us" else f", unit={self.unit!r}"
        return f"Timestamp(column={self.column!r}, lateness={self.lateness!r}{unit})"

    @cached_property
    def lateness_us(self) -> int:
        """The lateness in microseconds."""
        return duration_us(self.lateness, what="Timestamp(lateness=…)")


@dataclass(frozen=True)
class Arrival:
    """An order by arrival; nothing beyond it is known."""


Order: TypeAlias = Gapless | Monotone | Timestamp | Arrival


@dataclass(frozen=True)
class Wait:
    """The policy for a gap: wait, for ever or for a time.

    Attributes:
        timeout: length of the wait, such as ``"10 minutes"``; None waits for ever.
        then: ``park`` the group, ``skip`` the missing revisions, or ``fail`` the run with nothing committed.
    """

    timeout: Duration | None = None
    then: Literal["park", "skip", "fail"] = "park"

    def __post_init__(self) -> None:
        if self.then not in ("park", "skip", "fail"):
            raise PipelineError(f"Wait(then={self.then!r}); expected 'park', 'skip' or 'fail'")
        if self.timeout is None and self.then != "park":
            raise PipelineError(
                f"Wait(then={self.then!r}) never ends its wait; give it a time: Wait('10 minutes', then={self.then!r})"
            )
        if self.timeout is not None:
            duration_us(self.timeout, what="Wait(timeout)")

    @cached_property
    def timeout_us(self) -> int | None:
        """The timeout in microseconds; None waits for ever."""
        return None if self.timeout is None else duration_us(self.timeout, what="Wait(timeout)")


@dataclass(frozen=True)
class Retry:
    """The policy for a handler that raises ``Retryable``: further attempts before its group is parked.

    Attributes:
        times: number of further attempts.
        backoff: pause before the first of them, doubled for each one after it, at most a minute.
    """

    times: int = 0
    backoff: Duration = "100 milliseconds"

    def __post_init__(self) -> None:
        if not isinstance(self.times, int) or self.times < 0:
            raise PipelineError(f"Retry(times={self.times!r}); expected a whole number of further attempts, 0 or more")
        duration_us(self.backoff, what="Retry(backoff)")

    def pauses_s(self) -> list[float]:
        """Return the pause before each further attempt, in seconds."""
        first = duration_us(self.backoff, what="Retry(backoff)") / 1e6
        return [min(first * 2.0 ** min(n, _DOUBLINGS), 60.0) for n in range(self.times)]
