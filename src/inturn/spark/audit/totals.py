"""The numbers of a report: small queries over the telling rows, each with a handful of result rows."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.words import counted
from inturn.spark.audit.formatting import duration
from inturn.spark.audit.grade import Outcome
from inturn.spark.audit.log import GOOD, GROUP, AuditLog
from inturn.spark.audit.report import Bar, Consumers, FaultCount, FaultKind, Gap, Gaps, Late, Sizes, Spread
from inturn.spark.audit.verdicts import groups, is_placeholder

LARGEST: Final = 10
"""The number of groups, and of gaps, that are named."""
BARS_OVER_TIME: Final = 40
"""The number of parts into which the time of a log is divided."""
BARS_OVER_LIFE: Final = 20
"""The number of parts into which the messages of a group are divided, if there is no time."""
CONSUMERS: Final = (2, 4, 8, 16, 32, 64, 128)
"""The numbers of consumers for which the cost of order is computed."""
_RANK: Final = "__rank"
_EXACT: Final = 10_000
"""The accuracy of quantiles: the error is at most one rank in this many."""


@dataclass(frozen=True)
class Overview:
    """The size of a log: its messages with a place, their groups, and the ends of its clock.

    Attributes:
        timelines: number of timelines of the groups; more than groups if there are epochs.
        epochs: number of groups with more than one timeline.
        lowest: lowest place of all.
        at_one: number of timelines that begin at 1.
        at_zero: number of timelines that begin at 0.
    """

    messages: int
    groups: int
    timelines: int
    epochs: int
    blank_messages: int
    blank_groups: int
    began_us: int | None
    ended_us: int | None
    lowest: int | None
    at_one: int
    at_zero: int
    median: float | None

    def start(self, given: int | None) -> int | None:
        """Return the first revision of a group: as given, or 1 or 0 if most groups begin there; None otherwise.

        If some groups begin at 0, it is not 1, since a revision below the first is invalid.
        """
        if given is not None:
            return given
        most, start = (self.at_zero, 0) if self.at_zero else (self.at_one, 1)
        return start if most * 2 > self.timelines else None


def overview(per_group: DataFrame) -> Overview:
    """Return the size of a log, given its groups from :func:`by_group`."""
    blank = F.when(is_placeholder(F.col("group")), F.col("messages"))
    whole = per_group.agg(
        F.coalesce(F.sum("messages"), F.lit(0)).alias("messages"),
        F.count("*").alias("groups"),
        F.coalesce(F.sum("timelines"), F.lit(0)).alias("timelines"),
        F.count(F.when(F.col("timelines") > 1, 1)).alias("epochs"),
        F.coalesce(F.sum(blank), F.lit(0)).alias("blank_messages"),
        F.count(blank).alias("blank_groups"),
        F.min("began_us").alias("began_us"),
        F.max("ended_us").alias("ended_us"),
        F.min("lowest").alias("lowest"),
        F.coalesce(F.sum("at_one"), F.lit(0)).alias("at_one"),
        F.coalesce(F.sum("at_zero"), F.lit(0)).alias("at_zero"),
        F.percentile_approx("messages", 0.5, _EXACT).alias("median"),
    )
    return Overview(**whole.collect()[0].asDict())


def by_group(rows: DataFrame) -> DataFrame:
    """Return the groups with their messages, their timelines, the ends of their clock, and their first places."""
    timelines = groups(rows).groupBy(*GROUP)
    return timelines.agg(
        F.sum("messages").alias("messages"),
        F.count("*").alias("timelines"),
        F.min("clock_first").alias("began_us"),
        F.max("clock_last").alias("ended_us"),
        F.min("place").alias("lowest"),
        F.count_if(F.col("place") == 1).alias("at_one"),
        F.count_if(F.col("place") == 0).alias("at_zero"),
    )


def faults(rows: DataFrame, seen: Overview) -> dict[FaultKind, FaultCount]:
    """Return the faults of messages, by kind."""
    by_kind = rows.select("group_hash", "status", F.explode("kinds").alias("kind")).groupBy("kind")
    in_groups = F.countDistinct(F.when(F.col("status") == GOOD, F.col("group_hash")))
    found = {
        FaultKind(row.kind): FaultCount(row.messages, row.groups)
        for row in by_kind.agg(F.count("*").alias("messages"), in_groups.alias("groups")).collect()
    }
    if seen.blank_groups:
        found[FaultKind.PLACEHOLDER] = FaultCount(seen.blank_messages, seen.blank_groups)
    return found


def outcomes(rows: DataFrame, log: AuditLog, start: int | None) -> list[Outcome]:
    """Return the numbers of telling rows with equal values in all inputs of a pipeline's decision."""
    below = F.lit(False) if start is None else F.lit(log.counts) & (F.col("status") == GOOD) & (F.col("place") < start)  # noqa: FBT003
    seen = rows.select(
        *("first", "same", "overtaken", "again", "other", "no_id"),
        (F.col("status") != GOOD).alias("bad"),
        below.alias("below"),
    )
    names = seen.columns
    counted = seen.groupBy(*names).count().collect()
    return [Outcome(row["count"], **{name: bool(row[name]) for name in names}) for row in counted]


def late(rows: DataFrame, log: AuditLog) -> Late | None:
    """Return the lateness of late messages; None if there are none."""
    values = {
        "positions": F.col("positions").cast("double"),
        "seconds": F.col("waited") / 1e6,
        "behind": F.col("behind") / (1e6 if log.is_time else 1),
    }
    lates = rows.where("positions is not null").select(*(value.alias(name) for name, value in values.items()))
    ranks = [F.percentile_approx(name, [0.5, 0.99], _EXACT).alias(name) for name in values]
    whole = lates.agg(*ranks, *(F.max(name).alias(f"most_{name}") for name in values)).collect()[0]
    counts: dict[str, Counter[int]] = {name: Counter() for name in values}
    for row in lates.groupBy(*(_step(F.col(name)).alias(name) for name in values)).count().collect():
        for name in values:
            counts[name][row[name]] += row["count"]
    found = {
        name: Spread(whole[name][0], whole[name][1], whole[f"most_{name}"], _bars(counts[name]))
        for name in values
        if whole[name] is not None
    }
    return Late(found["positions"], found.get("seconds"), found["behind"]) if found else None


def _step(value: Column) -> Column:
    """Return the bar of a value: values below 1 are one bar, each further bar is twice as wide."""
    return F.when(value < 1, -1).when(value >= 1, F.floor(F.log2(value)))


def _bars(counts: dict[int, int]) -> list[Bar]:
    steps = range(min(counts), max(counts) + 1)
    return [Bar(0 if each < 0 else 2.0**each, 2.0 ** (each + 1), counts.get(each, 0)) for each in steps]


def gaps(holes: DataFrame, patience: str, seen: Overview) -> tuple[Gaps, int]:
    """Return the gaps, lost and open, and the number of groups that lost revisions.

    Args:
        holes: rows from :func:`dated`.
        patience: greatest age of an open gap, in words, from :func:`dated`.
        seen: size of the log.
    """
    by_time = seen.began_us is not None and seen.ended_us is not None
    step, edges = _over_time(seen.began_us or 0, seen.ended_us or 0) if by_time else _over_life()
    largest_first = F.struct((-F.col("missing")).alias("most"), "group", "epoch", "first")
    stepped, largest = least(
        holes.withColumn("step", step), ("step", "open"), F.struct(*holes.columns), largest_first, LARGEST
    )
    sums = stepped.groupBy("step", "open").agg(
        F.count("*").alias("gaps"),
        F.sum("missing").alias("missing"),
        F.max("age_us").alias("oldest"),
        largest.alias("largest"),
    )
    found = sums.collect()
    lost, still = ([row for row in found if row.open == is_open] for is_open in (False, True))
    in_groups = holes.where("not open").select("group").distinct().count() if lost else 0
    ages = [row.oldest for row in still if row.oldest is not None]
    counts = {(row.step, row.open): row.gaps for row in found}
    steps = range(min(step for step, _ in counts), max(step for step, _ in counts) + 1) if counts else ()
    gaps = Gaps(
        lost=sum(row.gaps for row in lost),
        lost_revisions=sum(int(row.missing) for row in lost),
        open=sum(row.gaps for row in still),
        open_revisions=sum(int(row.missing) for row in still),
        oldest_open_s=max(ages) / 1e6 if ages else None,
        patience=patience,
        largest=named(sorted((gap for row in found for gap in row.largest), key=_largest_lost_first)[:LARGEST]),
        over=[
            (Bar(*edges(each), counts.get((each, False), 0)), Bar(*edges(each), counts.get((each, True), 0)))
            for each in steps
        ],
        by_time=by_time,
    )
    return gaps, in_groups


def _over_time(began_us: int, ended_us: int) -> tuple[Column, Callable[[int], tuple[float, float]]]:
    width = (ended_us - began_us) // BARS_OVER_TIME + 1
    at = F.coalesce(F.floor((F.col("opened_us") - began_us) / width), F.lit(0))
    return at, lambda step: ((began_us + step * width) / 1e6, (began_us + (step + 1) * width) / 1e6)


def _over_life() -> tuple[Column, Callable[[int], tuple[float, float]]]:
    at = F.floor((F.col("opened") - 1) * BARS_OVER_LIFE / F.col("size"))
    return at, lambda step: (step * 100 / BARS_OVER_LIFE, (step + 1) * 100 / BARS_OVER_LIFE)


def dated(
    holes: DataFrame, found_late: Late | None, ended_us: int | None, patience_us: int | None
) -> tuple[DataFrame, str]:
    """Return the gaps with ``age`` in messages, ``age_us`` and ``open``; and the greatest age of an open one in words.

    A gap is open while it is not older than the greatest lateness in this log: by the clock if late messages show it
    or ``patience_us`` sets it; else by messages of the group, at least one.
    """
    words = "set by --patience"
    if patience_us is None and found_late is not None and found_late.seconds is not None:
        patience_us, words = round(found_late.seconds.most * 1e6), "the greatest lateness in this log"
    age, age_us = F.col("size") - F.col("opened") + 1, F.lit(ended_us) - F.col("opened_us")
    grant = 1 if found_late is None else max(1, int(found_late.positions.most))
    if patience_us is None or ended_us is None:
        is_open = age <= grant
        words = f"{counted(grant, 'message')} of its group, the greatest lateness in this log"
        if found_late is None:
            words = "1 message of its group, since no message in this log is late"
    else:
        is_open = F.coalesce(age_us <= patience_us, age <= grant)
        words = f"{duration(patience_us / 1e6)}, {words}"
    return holes.select("*", age.alias("age"), age_us.cast("bigint").alias("age_us"), is_open.alias("open")), words


def named(holes: Iterable[Any]) -> list[Gap]:
    """Return the gaps as values, from rows of :func:`dated`."""
    ages_s = ((row, None if row.age_us is None else row.age_us / 1e6) for row in holes)
    return [Gap(row.group, row.epoch, row["first"], row["last"], row.age, age_s, row.open) for row, age_s in ages_s]


def _largest_lost_first(row: Any) -> tuple[Any, ...]:
    return row.open, -row.missing, row.group, row.epoch, row["first"]


def sizes(per_group: DataFrame, seen: Overview) -> Sizes | None:
    """Return the distribution of messages over groups and the resulting cost of order; None if there are no groups."""
    if seen.median is None:
        return None
    stepped = per_group.withColumns(
        {"step": _step(F.col("messages")), "slice": F.pmod("group_hash", F.lit(max(CONSUMERS)))}
    )
    largest_first = F.struct((-F.col("messages")).alias("most"), "group")
    stepped, most = least(stepped, ("step", "slice"), F.struct("group", "messages"), largest_first, LARGEST)
    sums = stepped.groupBy("step", "slice").agg(
        F.count("*").alias("groups"),
        F.sum("messages").alias("messages"),
        most.alias("largest"),
    )
    counts, load = Counter[int](), Counter[int]()
    largest: list[tuple[str, int]] = []
    for row in sums.collect():
        counts[row.step] += row.groups
        load[row.slice] += row.messages
        largest += [(each.group, each.messages) for each in row.largest]
    largest = sorted(largest, key=lambda each: (-each[1], each[0]))[:LARGEST]
    costs = [_cost(consumers, largest[0][1], load, seen.messages) for consumers in CONSUMERS]
    return Sizes(seen.median, largest, largest[0][1] / seen.messages, _bars(counts), costs)


def _cost(consumers: int, largest: int, load: Counter[int], total: int) -> Consumers:
    """Return the time that consumers need, as a multiple of an equal share of the messages for each.

    If consumers take whole groups in turn, only the largest group can make one take longer (Graham's bound on list
    scheduling, without its last term: groups are many and much smaller). By hash, the fullest consumer decides.
    """
    share = total / consumers
    mine = [sum(n for slice_, n in load.items() if slice_ % consumers == each) for each in range(consumers)]
    return Consumers(consumers, max(1.0, largest / share), max(mine) / share)


def least(rows: DataFrame, keys: Sequence[str], value: Column, order: Column, count: int) -> tuple[DataFrame, Column]:
    """Return the rows to group by the keys, and the aggregate that gives each group's first values, in order.

    Before Spark 4.2 the rows are ranked first, which sorts them: collecting all values and cutting them off later would
    not fit into memory.

    Args:
        rows: rows to group.
        keys: columns to group by.
        value: value wanted of a row.
        order: sort key; the first rows have the least.
        count: number of rows of each group.
    """
    if "k" in inspect.signature(F.min_by).parameters:
        return rows, F.min_by(value, order, count)
    ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*keys).orderBy(order)))
    first = F.when(F.col(_RANK) <= count, F.struct(F.col(_RANK), value.alias("value")))
    return ranked, F.transform(F.array_sort(F.collect_list(first)), lambda each: each["value"])
