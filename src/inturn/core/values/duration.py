"""Durations as people write them."""

import datetime as dt
import re
from typing import Final, TypeAlias

from inturn.core import limits
from inturn.core.errors import PipelineError

_UNITS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}

Duration: TypeAlias = str | dt.timedelta


def duration_us(value: Duration, *, label: str) -> int:
    """Return a duration in microseconds, from ``"10 minutes"`` or a ``timedelta``.

    Raises:
        PipelineError: if it cannot be read, is negative or is too long; ``what`` names the argument.
    """
    if isinstance(value, dt.timedelta):
        number = value // dt.timedelta(microseconds=1)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", value) if isinstance(value, str) else None
        if match is None or match[2] not in _UNITS:
            msg = f"{label} is {value!r}; expected a text such as '10 minutes' ({', '.join(_UNITS)}) or a timedelta"
            raise PipelineError(msg)
        number = round(min(float(match[1]) * _UNITS[match[2]], 2.0 * limits.DURATION_US))
    if number < 0:
        raise PipelineError(f"{label} is {value!r}; a duration cannot be negative")
    if number > limits.DURATION_US:
        raise PipelineError(f"{label} is {value!r}; expected at most {limits.DURATION_US // _UNITS['week']} weeks")
    return number
