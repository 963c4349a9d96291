"""Rating of the columns of a log that could carry its order.

One pass over the groups in order of arrival measures every column of whole numbers or times: how often it rises, how
often by one, how far it falls back, and how many of the values between its least and greatest are present.
"""

from dataclasses import replace
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.pipeline.order import Order
from inturn.spark.audit.log import GOOD, GROUP, AuditLog
from inturn.spark.audit.report import ColumnRating
from inturn.spark.audit.values import column as column_at
from inturn.spark.audit.values import leaf_types, microseconds, whole_numbers
from inturn.spark.audit.verdicts import rows_before
from inturn.spark.columns.dataframe import INTEGERS

FULL: Final = (0.9, 1.5)
"""The range of messages per value between a group's least and greatest within which a column counts."""
RISES: Final = 0.8
"""The minimum share of messages that are not below their group's greatest so far in a rising column."""
_ALIKE: Final = 0.97
"""The minimum ratio of distinct values to distinct messages for a column that may be an id."""
_TRIED: Final = 4
"""The number of such columns that are checked."""


_MEASURES: Final = {
    "there": "count_if(there{0})",
    "filled": "count(v{0})",
    "constant": "if(min(v{0}) = max(v{0}), 1, NULL)",
    "followed": "count_if(v{0} IS NOT NULL AND top{0} IS NOT NULL)",
    "in_order": "count_if(v{0} >= top{0})",
    "by_one": "count_if(v{0} - 1 = top{0})",
    "repeated": "count_if(v{0} = top{0})",
    "range": "double(max(v{0})) - double(min(v{0})) + 1",
    "behind": "max(double(top{0}) - double(v{0}))",
}
"""The measurements of a column in one group, as SQL: of its values, and of the greatest before each."""


class _ColumnStatistics(NamedTuple):
    """The measurements of one column in all groups; the counts are of messages."""

    messages: int
    there: int
    filled: int
    constant: int
    followed: int
    in_order: int
    by_one: int
    repeated: int
    range: float
    behind: float
    groups: int


def rate_columns(log: AuditLog) -> list[ColumnRating]:
    """Return the columns that could carry an order, the best first, then those that could not.

    For change events the position in the database's log is the best: it alone orders all changes of a row.
    """
    key_columns = (log.keys.group, log.keys.id, log.keys.epoch, log.keys.arrival, *log.keys.ignore)
    kinds = {name: kind for name, kind in log.order_candidates.items() if name not in key_columns}
    if not kinds:
        return []
    rated = [
        _rate_column(name, kind, seen)
        for (name, kind), seen in zip(kinds.items(), _column_statistics(log, kinds), strict=True)
    ]
    return sorted(rated, key=lambda column: (column.grade is None or column.name != log.events.position, _rank(column)))


def unique_column(log: AuditLog) -> str | None:
    """Return a column that can be the id: every message has one, and no group uses one for two different messages.

    Candidates are found by their approximate number of values, and then checked one by one.
    """
    keys = log.keys
    key_columns = (keys.group, keys.place, keys.arrival, keys.epoch, keys.time, *keys.ignore)
    kinds = {
        name: kind
        for name, kind in leaf_types(log.df).items()
        if kind in ("string", *INTEGERS)
        and name not in key_columns
        and log.order_candidates.get(name) in (None, "number")
    }
    if not kinds:
        return None
    names, places = list(kinds), range(len(kinds))
    own = [column_at(log.df, name) for name in names]
    rows = log.rows(*(F.when(own[index].isNotNull(), F.xxhash64(own[index])).alias(f"v{index}") for index in places))
    rows = rows.where(F.col("status") == GOOD)
    counted = [_distinct(f"v{index}") for index in places]
    lacked = [F.bool_or(F.isnull(f"v{index}")) for index in places]
    counts, *more = rows.agg(_distinct("content"), *counted, *lacked).collect()[0]
    likely = [index for index in places if more[index] >= _ALIKE * counts and more[len(names) + index] is False]
    # Text comes before numbers, which may be amounts.
    for index in sorted(likely, key=lambda number: (kinds[names[number]] != "string", -more[number]))[:_TRIED]:
        contents = rows.groupBy(*GROUP, f"v{index}").agg((F.min("content") < F.max("content")).alias("two"))
        if not contents.agg(F.bool_or("two")).collect()[0][0]:
            return names[index]
    return None


def _distinct(column: str) -> Column:
    """Return the approximate number of values, within about 1 %.

    ``approx_count_distinct`` has 1,639 attributes for each column at this precision. Spark's optimizer copies them with
    every change of the plan, which takes minutes for many columns.
    """
    return F.hll_sketch_estimate(F.hll_sketch_agg(column, 14))


def _column_statistics(log: AuditLog, kinds: dict[str, str]) -> list[_ColumnStatistics]:
    values = [
        (whole_numbers(log.df, name) if kind == "number" else microseconds(log.df, name, log.order_candidates)).alias(
            f"v{index}"
        )
        for index, (name, kind) in enumerate(kinds.items())
    ]
    values += [column_at(log.df, name).isNotNull().alias(f"there{index}") for index, name in enumerate(kinds)]
    rows = log.rows(*values).where(F.col("status") == GOOD)
    arrivals = Window.partitionBy(*log.timeline_key).orderBy(*log.arrival_columns)
    tops = [F.max(f"v{index}").over(rows_before(arrivals)).alias(f"top{index}") for index in range(len(kinds))]
    followed = rows.repartition("group_hash").select("*", *tops)
    places = range(len(kinds))
    sums = {f"{name}{index}": F.expr(sql.format(index)) for name, sql in _MEASURES.items() for index in places}
    per_group = followed.groupBy(*log.timeline_key).agg(
        F.count("*").alias("messages"), *(sums[name].alias(name) for name in sums)
    )
    totals = [(F.max(name) if name.startswith("behind") else F.sum(name)).alias(name) for name in sums]
    groups = [F.count(f"range{index}").alias(f"groups{index}") for index in places]
    row = per_group.agg(F.sum("messages").alias("messages"), *totals, *groups).collect()[0]
    return [
        _ColumnStatistics(row.messages or 0, *(row[f"{name}{index}"] or 0 for name in (*_MEASURES, "groups")))
        for index in places
    ]


def _rate_column(name: str, kind: str, seen: _ColumnStatistics) -> ColumnRating:
    followed, is_number = max(1, seen.followed), kind == "number"
    column = ColumnRating(
        name,
        kind="number" if is_number else "time",
        filled=seen.filled / max(1, seen.messages),
        in_order=seen.in_order / followed,
        by_one=seen.by_one / followed,
        repeated=seen.repeated / followed,
        cover=seen.filled / seen.range if is_number and seen.range else 0.0,
        lateness_s=None if is_number else max(0.0, seen.behind / 1e6),
        grade=None,
        verdict="",
    )
    grade, verdict = _verdict(column, seen)
    return replace(column, grade=grade, verdict=verdict)


def _verdict(column: ColumnRating, seen: _ColumnStatistics) -> tuple[str | None, str]:
    """Return the grade that a column could carry, and the reason."""
    never = column.in_order == 1
    falls = "never falls" if never else f"falls in {_percent(1 - column.in_order)} of the messages"
    settled = column.in_order >= 0.6 or column.repeated <= 0.05
    useless = _rejection_reason(column, seen)
    if useless is not None:
        return None, useless
    if column.kind == "number" and FULL[0] <= column.cover <= FULL[1] and settled:
        every = never and column.cover == 1 and not column.repeated
        share = "every value is present" if every else f"{column.cover:.2f} messages for each value"
        rise = f"{_percent(column.by_one)} of the messages are one above the greatest value before them"
        return "Gapless", f"counts: {share}, {rise}"
    if column.in_order < RISES:
        return None, f"no order: {falls}"
    if column.kind == "time":
        return "Timestamp", falls if never else f"{falls}, by up to {column.lateness_s:,.0f} seconds"
    return "Monotone", f"rises, but with gaps; {falls}"


def _rejection_reason(column: ColumnRating, seen: _ColumnStatistics) -> str | None:
    """Return the reason why a column cannot be rated; None if it can."""
    if column.filled < 0.5:
        kind = "time" if column.kind == "time" else "number"
        lack, other = (part / max(1, seen.messages) for part in (seen.messages - seen.there, seen.there - seen.filled))
        reasons = [f"{_percent(lack)} of the messages lack it"] if lack else []
        reasons += [f"{_percent(other)} {'have' if lack else 'of the messages have'} no {kind} in it"] if other else []
        return f"no order: {', '.join(reasons)}"
    if not seen.followed:
        return "cannot be rated: no group has two messages"
    if column.repeated <= 0.9:
        return None
    if seen.constant == seen.groups and seen.filled == seen.messages:
        return "no order: has the same value in every message of a group"
    return f"no order: {_percent(column.repeated)} of the messages repeat the greatest value before them"


def _rank(column: ColumnRating) -> tuple[Any, ...]:
    """Return a sort key: the strongest grade first; within it, the column that is nearest to it."""
    if column.grade is not None and Order.grades[column.grade].has_gaps:
        return (0, abs(1 - column.cover), -column.by_one, column.name)
    return (1 if column.grade else 2, -column.in_order, column.repeated, column.name)


def _percent(part: float) -> str:
    """Format a part as a percentage that is 100% only for all, and 0% only for nothing."""
    text = f"{part:.1%}" if 0.001 <= part <= 0.999 or part in (0, 1) else f"{part:.2%}"
    if text == "100.00%":
        return "over 99.99%"
    return "under 0.01%" if text == "0.00%" else text.replace(".0%", "%")
