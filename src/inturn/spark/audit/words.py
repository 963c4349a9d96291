"""Numbers as people write them, the same in every face of a report."""

import datetime as dt
from typing import Any

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


def percent(part: float) -> str:
    """A part as a percentage that says 100% only of all, and 0% only of nothing."""
    text = f"{part:.1%}" if 0.001 <= part <= 0.999 or part in (0, 1) else f"{part:.2%}"
    if text == "100.00%":
        return "over 99.99%"
    return "under 0.01%" if text == "0.00%" else text.replace(".0%", "%")


def outcome(counts: dict[str, int]) -> str:
    """What a pipeline makes of a log, by what becomes of its messages."""
    rejected = [f"{counts[why]:,} as {why}" for why in ("conflict", "invalid") if counts.get(why)]
    return (
        f"Fed this log as it came, it applies or holds {many(counts.get('applied', 0), 'message')}, "
        f"knows {counts.get('duplicate', 0):,} as duplicate or stale"
        + (f", and rejects {' and '.join(rejected)}." if rejected else ".")
    )


def plain(value: Any) -> Any:
    """A value as JSON has it; times are ISO 8601."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.isoformat() if isinstance(value, dt.datetime) else value
