"""Numbers and times in words, for texts that users read."""

import datetime as dt


def time_of(microseconds: int) -> dt.datetime:
    """Return the time of a number of microseconds since 1970."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)


def when(moment: dt.datetime | None, now: dt.datetime) -> str:
    """Return a time in words, with its distance from now."""
    if moment is None:
        return "an unknown time"
    gone = now - moment
    ago = f"{_span(gone)} ago" if gone >= dt.timedelta(0) else f"in {_span(-gone)}"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({ago})"


def _span(length: dt.timedelta) -> str:
    seconds = int(length.total_seconds())
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit:
            return counted(seconds // unit, name)
    return counted(seconds, "second")


def counted(number: int, name: str) -> str:
    """Return a number of things, in words."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"
