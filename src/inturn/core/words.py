"""Numbers and times in words, for texts that users read."""

import datetime as dt

_FIRST, _LAST = dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)
_UNITS_S = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def time_of(microseconds: int) -> dt.datetime:
    """Return the time of a number of microseconds since 1970; the nearest possible one if out of range."""
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST if microseconds > 0 else _FIRST


def when(moment: dt.datetime | None, now: dt.datetime) -> str:
    """Return a time in words, with its distance from now."""
    if moment is None:
        return "an unknown time"
    elapsed = now - moment
    ago = f"{_span(elapsed)} ago" if elapsed >= dt.timedelta(0) else f"in {_span(-elapsed)}"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({ago})"


def _span(length: dt.timedelta) -> str:
    seconds = int(length.total_seconds())
    unit, size = next(((unit, size) for unit, size in _UNITS_S if seconds >= size), ("second", 1))
    return counted(seconds // size, unit)


def duration(seconds: float) -> str:
    """Return a duration in words, in the largest unit of which it has two."""
    unit, size = next(((unit, size) for unit, size in _UNITS_S if seconds >= 2 * size), ("second", 1))
    count = f"{seconds / size:,.1f}".removesuffix(".0")
    return f"{count} {unit}{'' if count == '1' else 's'}"


def counted(number: int, name: str) -> str:
    """Return a number of things, in words."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"
