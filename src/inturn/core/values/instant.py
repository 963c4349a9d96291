"""Points in time as a log gives them: a datetime, text, or a number since 1970, all as microseconds.

``Timestamp`` reads its field by this rule in every engine. Text is ISO 8601 or the same with slashes (``2014/10/22
11:15:41.000``). A time without a zone is UTC. Digits finer than a microsecond are read on their own. A date alone is no
point in time.
"""

import datetime as dt
import re
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
"""The unit of a number since 1970: seconds, milli-, micro- or nanoseconds."""

MICROSECONDS: Final = {
    "s": (1_000_000, 1),
    "ms": (1_000, 1),
    "us": (1, 1),
    "ns": (1, 1_000),
}
"""Microseconds of a unit, as numerator and denominator."""
TEXT: Final = (
    r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})"
    r"[Tt ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?: ?([Zz]|[+-]\d{2}(?::?\d{2})?))?"
)
"""Pattern of times as text: year, separator, month, day, hour, minute, second, fraction, zone."""
NUMBER: Final = r"[+-]?\d{1,19}"
"""Pattern of numbers since 1970 as text."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_TEXT: Final = re.compile(TEXT, re.ASCII)
_NUMBER: Final = re.compile(NUMBER, re.ASCII)


def instant_us(moment: dt.datetime) -> int:
    """Return a time in microseconds since 1970; a time without a zone is taken as UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND


def read_us(value: Any, unit: Unit = "us") -> int | None:
    """Return a point in time in microseconds since 1970; None if the value is none, or is not within 64 bits.

    Args:
        value: a datetime, text, or a number.
        unit: unit of a number.
    """
    time_us = _us(value, unit)
    return time_us if time_us is not None and -(2**63) <= time_us < 2**63 else None


def _us(value: Any, unit: Unit) -> int | None:
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            return _scaled(int(value), unit)
        value = parsed(value)
    if isinstance(value, dt.datetime):
        return instant_us(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return _scaled(value, unit)


def read_ns(value: Any, unit: Unit = "us") -> int:
    """Return the nanoseconds of a point in time within its microsecond, 0 to 999, by the rules of :func:`read_us`."""
    if isinstance(value, str):
        if match := _TEXT.fullmatch(value):
            return int((match[8] or "")[6:].ljust(3, "0"))
        value = int(value) if _NUMBER.fullmatch(value) else None
    if not isinstance(value, int | float | Decimal) or (isinstance(value, int) and unit != "ns"):
        return 0
    return (_scaled(value, unit, finer=1_000) or 0) % 1_000


def _scaled(value: float | Decimal, unit: Unit, finer: int = 1) -> int | None:
    """Return a number of units as parts of a microsecond, rounded down; as whole ones without ``finer``."""
    times, parts = MICROSECONDS[unit]
    times *= finer
    if isinstance(value, int):
        return value * times // parts
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - a NaN of either type
        return None
    numerator, denominator = value.as_integer_ratio()
    return numerator * times // (denominator * parts)


def is_date(text: str) -> bool:
    """Return whether a text is a date without a time: not an invalid value, but a column of another type."""
    return re.fullmatch(r"\d{4}([-/])\d{1,2}\1\d{1,2}", text) is not None


def parsed(text: str) -> dt.datetime | None:
    """Return the time of a text, with its zone if it has one; None if the text is not a time."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    year, _, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = dt.datetime(  # noqa: DTZ001 - the zone is added below, if there is one
            int(year),
            int(month),
            int(day),
            int(hour),
            int(minute),
            int(second or 0),
            int((fraction or "")[:6].ljust(6, "0")),
        )
        return moment if zone is None else (moment - _offset(zone)).replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):
        return None


def _offset(zone: str) -> dt.timedelta:
    if zone in "Zz":
        return dt.timedelta()
    hours, minutes = int(zone[1:3]), int(zone[3:].removeprefix(":") or 0)
    if hours > 18 or minutes > 59 or (hours == 18 and minutes):
        raise ValueError(zone)
    return (1 if zone[0] == "+" else -1) * dt.timedelta(hours=hours, minutes=minutes)


def span_text(value: dt.timedelta) -> str:
    """Return a timedelta as ISO 8601, in days and seconds."""
    sign, value = ("-", -value) if value < dt.timedelta(0) else ("", value)
    seconds = str(value.seconds) + (f".{value.microseconds:06}".rstrip("0") if value.microseconds else "")
    rest = f"T{seconds}S" if value.seconds or value.microseconds else ""
    return f"{sign}P{f'{value.days}D' if value.days or not rest else ''}{rest}"
