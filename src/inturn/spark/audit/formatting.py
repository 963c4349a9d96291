"""Numbers in readable form, equal in every view of a report."""

import datetime as dt
from typing import Any

from inturn.core.words import counted

_FIRST, _LAST = dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)
_UNITS_S = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def instant(value_us: int) -> dt.datetime:
    """Return a time in microseconds since 1970 as a datetime in UTC; the nearest possible one if out of range."""
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=value_us)
    except OverflowError:
        return _LAST if value_us > 0 else _FIRST


def moment(value_us: int) -> str:
    """Format a time in microseconds since 1970, in UTC."""
    return f"{instant(value_us):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float) -> str:
    """Format a duration in the largest unit of which it has two."""
    unit, size = next(((unit, size) for unit, size in _UNITS_S if seconds >= 2 * size), ("second", 1))
    count = f"{seconds / size:,.1f}".removesuffix(".0")
    return f"{count} {unit}{'' if count == '1' else 's'}"


def percent(part: float) -> str:
    """Format a part as a percentage that is 100% only for all, and 0% only for nothing."""
    text = f"{part:.1%}" if 0.001 <= part <= 0.999 or part in (0, 1) else f"{part:.2%}"
    if text == "100.00%":
        return "over 99.99%"
    return "under 0.01%" if text == "0.00%" else text.replace(".0%", "%")


def outcome(counts: dict[str, int]) -> str:
    """Describe the verdicts of a pipeline for a log, from the counts of its messages."""
    rejected = [f"{counts[why]:,} as {why}" for why in ("conflict", "invalid") if counts.get(why)]
    return (
        "For this log, in the order of arrival, the pipeline applies or holds "
        f"{counted(counts.get('applied', 0), 'message')}, "
        f"recognises {counts.get('duplicate', 0):,} as duplicate or stale"
        + (f", and rejects {' and '.join(rejected)}." if rejected else ".")
    )


def plain(value: Any) -> Any:
    """Return a value as JSON values; times are ISO 8601."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.isoformat() if isinstance(value, dt.datetime) else value
