"""Dates and instants of any year as text: Spark counts to the year 294247 and further, Python's datetime to 9999.

The texts are ISO 8601, and equal canonical JSON for the years that Python has. Spark's casts can read them.
"""

import datetime as dt
from typing import Final

DAYS_OF_PYTHON: Final = (-719_162, 2_932_896)
"""The first and the last day of Python's date, in days since 1970."""
MICROSECONDS_OF_PYTHON: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The first and the last instant of Python's datetime, in microseconds since 1970."""

_START: Final = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - a calendar's, of no zone
_START_DAY: Final = 10_957
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats itself after 400 years."""
_DAY_US: Final = 86_400_000_000


def day_text(days: int) -> str:
    """Return a day as ISO 8601, given in days since 1970.

    >>> day_text(0), day_text(6_680_285), day_text(-719_528)
    ('1970-01-01', '+20260-01-01', '0000-01-01')
    """
    return _text(days, 0)[:-9]


def instant_text(microseconds: int, *, utc: bool) -> str:
    """Return a point in time as ISO 8601, given in microseconds since 1970; with ``utc`` the UTC offset is appended.

    >>> instant_text(-1, utc=True), instant_text(2**63 - 1, utc=False)
    ('1969-12-31T23:59:59.999999+00:00', '+294247-01-10T04:00:54.775807')
    """
    return _text(*divmod(microseconds, _DAY_US)) + ("+00:00" if utc else "")


def _text(days: int, microseconds: int) -> str:
    cycles, rest = divmod(days - _START_DAY, _CYCLE_DAYS)
    moment = _START + dt.timedelta(days=rest, microseconds=microseconds)
    year = moment.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > dt.MAXYEAR else ""
    return f"{sign}{abs(year):04}{moment.isoformat()[4:]}"
