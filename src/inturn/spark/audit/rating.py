"""Which columns of a log could carry its order, and how good each of them is.

Every column of whole numbers or times is looked at in one pass over the groups as they arrived: how often it rises,
how often by one, how far it falls back, and how many of the values between its least and greatest are there.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from inturn.spark.audit.log import GOOD, Log
from inturn.spark.audit.passes import before, timelines
from inturn.spark.audit.report import Column, Keys
from inturn.spark.audit.values import micros, whole
from inturn.spark.chunk import CORRUPT
from inturn.spark.dataframe import INTEGERS, is_hashable, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FULL: Final = (0.9, 1.5)
"""A column counts if for each value between a group's least and greatest there are so many messages."""
RISES: Final = 0.8
"""A column rises if at least this part of the messages is not below its group's greatest so far."""
_ALIKE: Final = 0.97
"""A column is an id if it has at least this part of as many values as there are different messages."""


@dataclass(frozen=True)
class _Seen:
    """What the pass saw of one column; the counts are of messages."""

    messages: int
    filled: int
    followed: int
    in_order: int
    by_one: int
    repeated: int
    groups: int
    range: float
    behind: float


def rated(log: Log) -> list[Column]:
    """The columns that could carry an order, the best first, and those that could not."""
    taken = (log.keys.group, log.keys.id, log.keys.epoch, *log.keys.ignore)
    kinds = {name: kind for name, kind in log.known.items() if name not in taken}
    if not kinds:
        return []
    found = [_judge(name, kind, seen) for (name, kind), seen in zip(kinds.items(), _seen(log, kinds), strict=True)]
    return sorted(found, key=_rank)


def unique(df: "DataFrame", keys: Keys) -> str | None:
    """The column that could be the id: it has about as many values as there are different messages."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    names = [
        field.name
        for field in df.schema.fields
        if field.dataType.simpleString() in ("string", *INTEGERS)
        and field.name not in (keys.group, keys.place, keys.arrival, keys.epoch, keys.time, CORRUPT, *keys.ignore)
    ]
    if not names:
        return None
    content = F.xxhash64(
        *(F.col(quoted(name)) for name in df.columns if is_hashable(df, name) and name != keys.arrival)
    )
    counts = df.agg(
        F.approx_count_distinct(content, 0.01), *(F.approx_count_distinct(F.col(quoted(name)), 0.01) for name in names)
    ).collect()[0]
    best: int = max(range(len(names)), key=lambda at: counts[at + 1])
    return names[best] if counts[0] and counts[best + 1] >= _ALIKE * counts[0] else None


def _seen(log: Log, kinds: dict[str, str]) -> list[_Seen]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    values = [
        (micros(log.df, name, log.known) if kind == "time" else whole(log.df, name)).alias(f"v{at}")
        for at, (name, kind) in enumerate(kinds.items())
    ]
    rows = log.rows(*values).where(F.col("bad") == GOOD)
    arrivals = timelines(log.key).orderBy("f", "m")
    tops = [F.max(f"v{at}").over(before(arrivals)).alias(f"top{at}") for at in range(len(kinds))]
    followed = rows.repartition("h").select("*", *tops)
    sums: list[Any] = [F.count("*").alias("messages")]
    for at in range(len(kinds)):
        value, top = F.col(f"v{at}"), F.col(f"top{at}")
        sums += [
            F.count(value).alias(f"filled{at}"),
            F.count(F.when(value.isNotNull() & top.isNotNull(), 1)).alias(f"followed{at}"),
            F.count(F.when(value >= top, 1)).alias(f"in_order{at}"),
            F.count(F.when(value - 1 == top, 1)).alias(f"by_one{at}"),
            F.count(F.when(value == top, 1)).alias(f"repeated{at}"),
            (F.max(value).cast("double") - F.min(value).cast("double") + 1).alias(f"range{at}"),
            F.max(top.cast("double") - value.cast("double")).alias(f"behind{at}"),
        ]
    per_group = followed.groupBy(*log.key).agg(*sums)
    totals: list[Any] = [F.sum("messages").alias("messages")]
    for at in range(len(kinds)):
        names = [f"{what}{at}" for what in ("filled", "followed", "in_order", "by_one", "repeated", "range")]
        totals += [F.sum(name).alias(name) for name in names]
        totals += [F.count(f"range{at}").alias(f"groups{at}"), F.max(f"behind{at}").alias(f"behind{at}")]
    row = per_group.agg(*totals).collect()[0]
    fields = ("filled", "followed", "in_order", "by_one", "repeated", "groups", "range", "behind")
    return [_Seen(row.messages or 0, **{name: row[f"{name}{at}"] or 0 for name in fields}) for at in range(len(kinds))]


def _judge(name: str, kind: str, seen: _Seen) -> Column:
    followed = max(1, seen.followed)
    in_order, by_one, repeated = seen.in_order / followed, seen.by_one / followed, seen.repeated / followed
    if kind == "time":
        cover = 0.0
        lateness_s = max(0.0, seen.behind / 1e6)
    else:
        cover, lateness_s = seen.filled / seen.range if seen.range else 0.0, None
    column = Column(
        name, kind, seen.filled / max(1, seen.messages), in_order, by_one, repeated, cover, lateness_s, None, ""
    )
    grade, verdict = _verdict(column, seen)
    return replace(column, grade=grade, verdict=verdict)


def _verdict(column: Column, seen: _Seen) -> tuple[str | None, str]:
    """The grade that a column could carry, and why."""
    never = column.in_order == 1
    falls = "it never falls back" if never else f"it falls back in {1 - column.in_order:.1%} of the messages"
    settled = column.in_order >= 0.6 or column.repeated <= 0.05
    useless = _useless(column, seen)
    if useless is not None:
        return None, useless
    if column.kind == "number" and FULL[0] <= column.cover <= FULL[1] and settled:
        share = "every value is there" if column.cover == 1 else f"{column.cover:.2f} messages for each value"
        return "Gapless", f"it counts: {share}, {column.by_one:.1%} come one after the other"
    if column.in_order < RISES:
        return None, f"no order: {falls}"
    if column.kind == "time":
        return "Timestamp", falls if never else f"{falls}, by up to {column.lateness_s:,.0f} seconds"
    return "Monotone", f"it rises with holes; {falls}"


def _useless(column: Column, seen: _Seen) -> str | None:
    """Why a column cannot even be judged; None if it can."""
    if column.filled < 0.5:
        return f"no order: {1 - column.filled:.0%} of the messages lack it"
    if not seen.followed:
        return "cannot be told: no group has two messages"
    return "no order: it says the same in every message of a group" if column.repeated > 0.9 else None


def _rank(column: Column) -> tuple[Any, ...]:
    """The strongest grade first; within it, the column that is nearest to it."""
    if column.grade == "Gapless":
        return (0, abs(1 - column.cover), -column.by_one, column.name)
    return (1 if column.grade else 2, -column.in_order, column.repeated, column.name)
