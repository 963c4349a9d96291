"""Numbers as people write them, the same in every face of a report."""

import datetime as dt

_FIRST, _LAST = dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)
_UNITS_S = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def instant(value_us: int) -> dt.datetime:
    """A time in microseconds since 1970 as a datetime in UTC; the nearest that there is."""
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=value_us)
    except OverflowError:
        return _LAST if value_us > 0 else _FIRST


def moment(value_us: int) -> str:
    """A time in microseconds since 1970, in UTC."""
    return f"{instant(value_us):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float) -> str:
    """A duration in the largest unit of which it has two."""
    unit, size = next(((unit, size) for unit, size in _UNITS_S if seconds >= 2 * size), ("second", 1))
    count = f"{seconds / size:,.1f}".removesuffix(".0")
    return f"{count} {unit}{'' if count == '1' else 's'}"


def many(count: int, what: str) -> str:
    """So many of something: ``1 message``, ``2 messages``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
