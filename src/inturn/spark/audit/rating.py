"""Rating of the columns of a log that could carry its order.

One pass over the groups in order of arrival measures every column of whole numbers or times: how often it rises, how
often by one, how far it falls back, and how many of the values between its least and greatest are present.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.pipeline.order import Order
from inturn.spark.audit.formatting import percent
from inturn.spark.audit.log import GOOD, GROUP, AuditLog
from inturn.spark.audit.report import Column
from inturn.spark.audit.sort_passes import before, timelines
from inturn.spark.audit.values import column as column_at
from inturn.spark.audit.values import leaves, micros, whole
from inturn.spark.columns.dataframe import INTEGERS

FULL: Final = (0.9, 1.5)
"""The range of messages per value between a group's least and greatest within which a column counts."""
RISES: Final = 0.8
"""The minimum share of messages that are not below their group's greatest so far in a rising column."""
_ALIKE: Final = 0.97
"""The minimum ratio of distinct values to distinct messages for a column that may be an id."""
_TRIED: Final = 4
"""The number of such columns that are checked."""


@dataclass(frozen=True)
class _Seen:
    """The measurements of one column; the counts are of messages."""

    messages: int
    there: int
    filled: int
    constant: int
    followed: int
    in_order: int
    by_one: int
    repeated: int
    groups: int
    range: float
    behind: float


def rated(log: AuditLog) -> list[Column]:
    """Return the columns that could carry an order, the best first, then those that could not.

    For change events the position in the database's log is the best: it alone orders all changes of a row.
    """
    taken = (log.keys.group, log.keys.id, log.keys.epoch, log.keys.arrival, *log.keys.ignore)
    kinds = {name: kind for name, kind in log.known.items() if name not in taken}
    if not kinds:
        return []
    found = [_judge(name, kind, seen) for (name, kind), seen in zip(kinds.items(), _seen(log, kinds), strict=True)]
    position = None if log.events is None else log.events.position
    return sorted(found, key=lambda each: (each.grade is None or each.name != position, _rank(each)))


def unique(log: AuditLog) -> str | None:
    """Return a column that can be the id: every message has one, and no group uses one for two different messages.

    Candidates are found by their approximate number of values, and then checked one by one.
    """
    keys = log.keys
    taken = (keys.group, keys.place, keys.arrival, keys.epoch, keys.time, *keys.ignore)
    names = [
        name
        for name, kind in leaves(log.df).items()
        if kind in ("string", *INTEGERS) and name not in taken and log.known.get(name) in (None, "number")
    ]
    if not names:
        return None
    values = [F.xxhash64(column_at(log.df, name)).alias(f"v{at}") for at, name in enumerate(names)]
    lacks = [column_at(log.df, name).isNull().alias(f"lacks{at}") for at, name in enumerate(names)]
    rows = log.rows(*values, *lacks).where(F.col("status") == GOOD)
    counted = [F.approx_count_distinct(f"v{at}", 0.01) for at in range(len(names))]
    lacked = [F.bool_or(f"lacks{at}") for at in range(len(names))]
    counts, *more = rows.agg(F.approx_count_distinct("content", 0.01), *counted, *lacked).collect()[0]
    likely = [at for at in range(len(names)) if more[at] >= _ALIKE * counts and more[len(names) + at] is False]
    texts = {name for name, kind in leaves(log.df).items() if kind == "string"}  # before numbers, which may be amounts
    for at in sorted(likely, key=lambda each: (names[each] not in texts, -more[each]))[:_TRIED]:
        contents = rows.groupBy(*GROUP, f"v{at}").agg((F.min("content") < F.max("content")).alias("two"))
        if not contents.agg(F.bool_or("two")).collect()[0][0]:
            return names[at]
    return None


def _seen(log: AuditLog, kinds: dict[str, str]) -> list[_Seen]:
    values = [
        (whole(log.df, name) if kind == "number" else micros(log.df, name, log.known)).alias(f"v{at}")
        for at, (name, kind) in enumerate(kinds.items())
    ]
    values += [column_at(log.df, name).isNotNull().alias(f"there{at}") for at, name in enumerate(kinds)]
    rows = log.rows(*values).where(F.col("status") == GOOD)
    arrivals = timelines(log.key).orderBy(*log.arrives)
    tops = [F.max(f"v{at}").over(before(arrivals)).alias(f"top{at}") for at in range(len(kinds))]
    followed = rows.repartition("group_hash").select("*", *tops)
    sums: list[Any] = [F.count("*").alias("messages")]
    for at in range(len(kinds)):
        value, top = F.col(f"v{at}"), F.col(f"top{at}")
        sums += [
            F.count_if(f"there{at}").alias(f"there{at}"),
            F.count(value).alias(f"filled{at}"),
            F.when(F.min(value) == F.max(value), 1).alias(f"constant{at}"),
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
        sums_of = ("there", "filled", "constant", "followed", "in_order", "by_one", "repeated", "range")
        names = [f"{what}{at}" for what in sums_of]
        totals += [F.sum(name).alias(name) for name in names]
        totals += [F.count(f"range{at}").alias(f"groups{at}"), F.max(f"behind{at}").alias(f"behind{at}")]
    row = per_group.agg(*totals).collect()[0]
    fields = (*sums_of, "groups", "behind")
    return [_Seen(row.messages or 0, **{name: row[f"{name}{at}"] or 0 for name in fields}) for at in range(len(kinds))]


def _judge(name: str, kind: str, seen: _Seen) -> Column:
    followed = max(1, seen.followed)
    in_order, by_one, repeated = seen.in_order / followed, seen.by_one / followed, seen.repeated / followed
    if kind != "number":
        kind, cover = "time", 0.0
        lateness_s = max(0.0, seen.behind / 1e6)
    else:
        cover, lateness_s = seen.filled / seen.range if seen.range else 0.0, None
    column = Column(
        name, kind, seen.filled / max(1, seen.messages), in_order, by_one, repeated, cover, lateness_s, None, ""
    )
    grade, verdict = _verdict(column, seen)
    return replace(column, grade=grade, verdict=verdict)


def _verdict(column: Column, seen: _Seen) -> tuple[str | None, str]:
    """Return the grade that a column could carry, and the reason."""
    never = column.in_order == 1
    falls = "never falls" if never else f"falls in {percent(1 - column.in_order)} of the messages"
    settled = column.in_order >= 0.6 or column.repeated <= 0.05
    useless = _useless(column, seen)
    if useless is not None:
        return None, useless
    if column.kind == "number" and FULL[0] <= column.cover <= FULL[1] and settled:
        every = never and column.cover == 1 and not column.repeated
        share = "every value is present" if every else f"{column.cover:.2f} messages for each value"
        rise = f"{percent(column.by_one)} of the messages are one above the greatest value before them"
        return "Gapless", f"counts: {share}, {rise}"
    if column.in_order < RISES:
        return None, f"no order: {falls}"
    if column.kind == "time":
        return "Timestamp", falls if never else f"{falls}, by up to {column.lateness_s:,.0f} seconds"
    return "Monotone", f"rises, but with gaps; {falls}"


def _useless(column: Column, seen: _Seen) -> str | None:
    """Return the reason why a column cannot be rated; None if it can."""
    if column.filled < 0.5:
        what = "time" if column.kind == "time" else "number"
        lack, other = (part / max(1, seen.messages) for part in (seen.messages - seen.there, seen.there - seen.filled))
        said = [f"{percent(lack)} of the messages lack it"] if lack else []
        said += [f"{percent(other)} {'have' if lack else 'of the messages have'} no {what} in it"] if other else []
        return f"no order: {', '.join(said)}"
    if not seen.followed:
        return "cannot be rated: no group has two messages"
    if column.repeated <= 0.9:
        return None
    if seen.constant == seen.groups and seen.filled == seen.messages:
        return "no order: has the same value in every message of a group"
    return f"no order: {percent(column.repeated)} of the messages repeat the greatest value before them"


def _rank(column: Column) -> tuple[Any, ...]:
    """Return a sort key: the strongest grade first; within it, the column that is nearest to it."""
    if column.grade is not None and Order.grades[column.grade].has_gaps:
        return (0, abs(1 - column.cover), -column.by_one, column.name)
    return (1 if column.grade else 2, -column.in_order, column.repeated, column.name)
