"""The numbers and examples of a report: small queries over the telling rows, each with a handful of result rows.

Of whole messages only those shown are read again: some of each kind, the rivals of some places, and the worst groups.
In all functions ``rows`` are the telling rows with their verdicts, and ``holes`` the gaps, both of
:mod:`inturn.spark.audit.verdicts`; ``per_group`` are the groups from :func:`by_group`.
"""

import inspect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.words import counted, duration, time_of
from inturn.spark.audit.grade import VerdictInputs
from inturn.spark.audit.log import EPOCH, GOOD, GROUP, ROW, AuditLog
from inturn.spark.audit.report import (
    ConsumerCost,
    DifferingColumns,
    Distribution,
    FaultCount,
    FaultKind,
    GapSummary,
    GroupSizes,
    GroupTimeline,
    HistogramBar,
    Lateness,
    RevisionGap,
    TimelinePoint,
)
from inturn.spark.audit.verdicts import is_placeholder, rows_up_to, timeline_totals
from inturn.spark.columns.dataframe import quoted

LARGEST: Final = 10
"""The number of groups, and of gaps, that are named."""
BARS_OVER_TIME: Final = 40
"""The number of parts into which the time of a log is divided."""
BARS_OVER_LIFE: Final = 20
"""The number of parts into which the messages of a group are divided, if there is no time."""
CONSUMERS: Final = (2, 4, 8, 16, 32, 64, 128)
"""The numbers of consumers for which the cost of order is computed."""
SAMPLES: Final = 3
"""The number of examples of each kind."""
GROUPS: Final = 12
"""The number of groups shown."""
POINTS: Final = 160
"""The number of messages shown of each group."""
MAX_EXAMINED_PLACES: Final = 200
"""The number of contradicted places that are checked."""
_MESSAGES_BEFORE_FAULT: Final = 12
"""The number of messages shown before the first fault."""
_SETS: Final = 5
"""The number of sets of columns in which rivals differ that are named."""
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

    def start(self, configured: int | None) -> int | None:
        """Return the first revision of a group: as given, or 1 or 0 if most groups begin there; None otherwise.

        If some groups begin at 0, it is not 1, since a revision below the first is invalid.
        """
        if configured is not None:
            return configured
        most, start = (self.at_zero, 0) if self.at_zero else (self.at_one, 1)
        return start if most * 2 > self.timelines else None


def overview(per_group: DataFrame) -> Overview:
    """Return the size of a log."""
    blank = F.when(is_placeholder(F.col("group")), F.col("messages"))
    totals = per_group.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("messages", "timelines", "at_one", "at_zero")),
        F.count("*").alias("groups"),
        F.count(F.when(F.col("timelines") > 1, 1)).alias("epochs"),
        F.coalesce(F.sum(blank), F.lit(0)).alias("blank_messages"),
        F.count(blank).alias("blank_groups"),
        F.min("began_us").alias("began_us"),
        F.max("ended_us").alias("ended_us"),
        F.min("lowest").alias("lowest"),
        F.percentile_approx("messages", 0.5, _EXACT).alias("median"),
    )
    return Overview(**totals.collect()[0].asDict())


def by_group(rows: DataFrame) -> DataFrame:
    """Return the groups with their messages, their timelines, the ends of their clock, and their first places."""
    timelines = timeline_totals(rows).groupBy(*GROUP)
    return timelines.agg(
        F.sum("messages").alias("messages"),
        F.count("*").alias("timelines"),
        F.min("opened_us").alias("began_us"),
        F.max("clock_last").alias("ended_us"),
        F.min("place").alias("lowest"),
        F.count_if(F.col("place") == 1).alias("at_one"),
        F.count_if(F.col("place") == 0).alias("at_zero"),
    )


def faults(rows: DataFrame, seen: Overview) -> tuple[dict[FaultKind, FaultCount], int]:
    """Return the faults of messages, by kind, and the number of messages without a place."""
    by_kind = rows.select("group_hash", "status", F.explode("kinds").alias("kind")).groupBy("kind")
    is_good = F.col("status") == GOOD
    in_groups, lost = F.countDistinct(F.when(is_good, F.col("group_hash"))), F.count_if(~is_good)
    counts = by_kind.agg(F.count("*").alias("messages"), in_groups.alias("groups"), lost.alias("lost")).collect()
    fault_counts = {FaultKind(row.kind): FaultCount(row.messages, row.groups) for row in counts}
    if seen.blank_groups:
        fault_counts[FaultKind.PLACEHOLDER] = FaultCount(seen.blank_messages, seen.blank_groups)
    return fault_counts, sum(row.lost for row in counts)


def verdict_inputs(rows: DataFrame, log: AuditLog, start: int | None) -> list[VerdictInputs]:
    """Return the numbers of telling rows with equal values in all inputs of a pipeline's decision."""
    below = F.lit(False)  # noqa: FBT003
    if start is not None:
        below = F.lit(log.shows_gaps) & (F.col("status") == GOOD) & (F.col("place") < start)
    seen = rows.select(
        *("first", "same", "overtaken", "again", "other", "no_id"),
        (F.col("status") != GOOD).alias("bad"),
        below.alias("below"),
    )
    names = seen.columns
    counted = seen.groupBy(*names).count().collect()
    return [VerdictInputs(row["count"], **{name: bool(row[name]) for name in names}) for row in counted]


def lateness(rows: DataFrame, log: AuditLog) -> Lateness | None:
    """Return the lateness of late messages; None if there are none."""
    values = {
        "positions": F.col("positions").cast("double"),
        "seconds": F.col("waited") / 1e6,
        "behind": F.col("behind") / (1e6 if log.is_time else 1),
    }
    lates = rows.where("positions is not null").select(*(value.alias(name) for name, value in values.items()))
    ranks = [F.percentile_approx(name, [0.5, 0.99], _EXACT).alias(name) for name in values]
    summary = lates.agg(*ranks, *(F.max(name).alias(f"most_{name}") for name in values)).collect()[0]
    counts: dict[str, Counter[int]] = {name: Counter() for name in values}
    for row in lates.groupBy(*(_bar_number(F.col(name)).alias(name) for name in values)).count().collect():
        for name in values:
            counts[name][row[name]] += row["count"]
    measures = {
        name: Distribution(summary[name][0], summary[name][1], summary[f"most_{name}"], _histogram(counts[name]))
        for name in values
        if summary[name] is not None
    }
    return Lateness(measures["positions"], measures.get("seconds"), measures["behind"]) if measures else None


def _bar_number(value: Column) -> Column:
    """Return the bar of a value: values below 1 are one bar, each further bar is twice as wide."""
    return F.when(value < 1, -1).when(value >= 1, F.floor(F.log2(value)))


def _histogram(counts: dict[int, int]) -> list[HistogramBar]:
    steps = range(min(counts), max(counts) + 1)
    return [HistogramBar(0 if step < 0 else 2.0**step, 2.0 ** (step + 1), counts.get(step, 0)) for step in steps]


def gap_summary(holes: DataFrame, patience: str, seen: Overview) -> tuple[GapSummary, int]:
    """Return the gaps, lost and open, and the number of groups that lost revisions."""
    by_time = seen.began_us is not None and seen.ended_us is not None
    began_us = seen.began_us or 0
    width_us = ((seen.ended_us or 0) - began_us) // BARS_OVER_TIME + 1

    def edge(step: int) -> float:
        return (began_us + step * width_us) / 1e6 if by_time else step * 100 / BARS_OVER_LIFE

    over_time = F.coalesce(F.floor((F.col("opened_us") - began_us) / width_us), F.lit(0))
    step = over_time if by_time else F.floor((F.col("opened") - 1) * BARS_OVER_LIFE / F.col("size"))
    largest_first = F.struct((-F.col("missing")).alias("most"), "group", "epoch", "first")
    gap_value, holes_at = F.struct(*holes.columns), holes.withColumn("step", step)
    stepped, few = smallest_values(holes_at, ("step", "open"), gap_value, largest_first, LARGEST)
    sums = F.count("*").alias("gaps"), F.sum("missing").alias("missing"), F.max("age_us").alias("oldest")
    step_rows = stepped.groupBy("step", "open").agg(*sums, few.alias("largest")).collect()
    lost, still = ([row for row in step_rows if row.open == is_open] for is_open in (False, True))
    in_groups = holes.where("not open").select("group").distinct().count() if lost else 0
    ages = [row.oldest for row in still if row.oldest is not None]
    counts = {(row.step, row.open): row.gaps for row in step_rows}
    steps = range(min(step for step, _ in counts), max(step for step, _ in counts) + 1) if counts else ()
    largest = [gap for row in step_rows for gap in row.largest]
    largest.sort(key=lambda gap: (gap.open, -gap.missing, gap.group, gap.epoch, gap["first"]))
    lost_bars, open_bars = (
        [HistogramBar(edge(number), edge(number + 1), counts.get((number, is_open), 0)) for number in steps]
        for is_open in (False, True)
    )
    gaps = GapSummary(
        lost=sum(row.gaps for row in lost),
        lost_revisions=sum(int(row.missing) for row in lost),
        open=sum(row.gaps for row in still),
        open_revisions=sum(int(row.missing) for row in still),
        oldest_open_s=max(ages) / 1e6 if ages else None,
        patience=patience,
        largest=revision_gaps(largest[:LARGEST]),
        over=list(zip(lost_bars, open_bars, strict=True)),
        by_time=by_time,
    )
    return gaps, in_groups


def revision_gaps(holes: Iterable[Any]) -> list[RevisionGap]:
    """Return gaps as values."""
    ages_s = ((row, None if row.age_us is None else row.age_us / 1e6) for row in holes)
    return [
        RevisionGap(row.group, row.epoch, row["first"], row["last"], row.age, age_s, row.open) for row, age_s in ages_s
    ]


def group_sizes(per_group: DataFrame, seen: Overview) -> GroupSizes | None:
    """Return the distribution of messages over groups and the resulting cost of order; None if there are no groups."""
    if seen.median is None:
        return None
    stepped = per_group.withColumns(
        {"step": _bar_number(F.col("messages")), "slice": F.pmod("group_hash", F.lit(max(CONSUMERS)))}
    )
    largest_first = F.struct((-F.col("messages")).alias("most"), "group")
    stepped, most = smallest_values(stepped, ("step", "slice"), F.struct("group", "messages"), largest_first, LARGEST)
    sums = F.count("*").alias("groups"), F.sum("messages").alias("messages"), most.alias("largest")
    counts, load = Counter[int](), Counter[int]()
    largest: list[tuple[str, int]] = []
    for row in stepped.groupBy("step", "slice").agg(*sums).collect():
        counts[row.step] += row.groups
        load[row.slice] += row.messages
        largest += [(group.group, group.messages) for group in row.largest]
    largest = sorted(largest, key=lambda pair: (-pair[1], pair[0]))[:LARGEST]
    costs = [_consumer_cost(consumers, largest[0][1], load, seen.messages) for consumers in CONSUMERS]
    return GroupSizes(seen.median, largest, largest[0][1] / seen.messages, _histogram(counts), costs)


def _consumer_cost(consumers: int, largest: int, load: Counter[int], total: int) -> ConsumerCost:
    """Return the time that consumers need, as a multiple of an equal share of the messages for each.

    If consumers take whole groups in turn, only the largest group can make one take longer (Graham's bound on list
    scheduling, without its last term: groups are many and much smaller). By hash, the fullest consumer decides.
    """
    share = total / consumers
    loads = [sum(n for slice_, n in load.items() if slice_ % consumers == consumer) for consumer in range(consumers)]
    return ConsumerCost(consumers, max(1.0, largest / share), max(loads) / share)


def smallest_values(
    rows: DataFrame, keys: Sequence[str], value: Column, order: Column, count: int
) -> tuple[DataFrame, Column]:
    """Return the rows to group by the keys, and the aggregate of each group's first values, ``count`` of them in order.

    Before Spark 4.2 the rows are ranked first, which sorts them: collecting all values and cutting them off later would
    not fit into memory.
    """
    if "k" in inspect.signature(F.min_by).parameters:
        return rows, F.min_by(value, order, count)
    ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*keys).orderBy(order)))
    first = F.when(F.col(_RANK) <= count, F.struct(F.col(_RANK), value.alias("value")))
    return ranked, F.transform(F.array_sort(F.collect_list(first)), lambda entry: entry["value"])


def worst_timelines(rows: DataFrame, holes: DataFrame | None, log: AuditLog) -> list[GroupTimeline]:
    """Return the worst groups: those with the most kinds of faults, and of these, with the most faults."""
    faults = rows.where(F.col("status") == GOOD).select("group", F.explode("kinds").alias("kind"))
    if holes is not None:
        faults = faults.unionByName(holes.where("not open").select("group", F.lit(str(FaultKind.GAP)).alias("kind")))
    by_group = faults.groupBy("group", "kind").agg(F.count("*").alias("faults"))
    ranked = by_group.groupBy("group").agg(F.count("*").alias("kinds"), F.sum("faults").alias("faults"))
    chosen = [row.group for row in ranked.orderBy(F.desc("kinds"), F.desc("faults"), "group").limit(GROUPS).collect()]
    if not chosen:
        return []
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in by_group.where(F.col("group").isin(chosen)).orderBy("kind").collect():
        counts[row.group][row.kind] = row.faults
    gaps: defaultdict[str, list[RevisionGap]] = defaultdict(list)
    if holes is not None:
        own = holes.where(F.col("group").isin(chosen)).orderBy("group", "first").limit(GROUPS * POINTS)
        for gap in revision_gaps(own.collect()):
            gaps[gap.group].append(gap)
    points, sizes = _timeline_points(rows, chosen, log)
    return [GroupTimeline(g, sizes[g], counts[g], points[g], gaps[g]) for g in chosen]


def _timeline_points(
    rows: DataFrame, chosen: list[str], log: AuditLog
) -> tuple[dict[str, list[TimelinePoint]], dict[str, int]]:
    """Return the messages of each group from shortly before its first fault on, and the size of each group."""
    # Verdicts are joined by the place of arrival, which is unique to a message.
    verdicts = rows.where(F.col("group").isin(chosen)).select(
        *ROW,
        F.col("epoch").alias("timeline"),
        F.try_element_at("kinds", F.lit(1)).alias("kind"),
        (F.col("kinds").isNotNull() | F.col("missing_from").isNotNull()).alias("is_faulty"),
    )
    own = Window.partitionBy("group")
    arrivals = own.orderBy(*ROW)
    every = log.rows().where((F.col("status") == GOOD) & F.col("group").isin(chosen))
    placed = every.join(verdicts, list(ROW), "left").select(
        "group",
        "place",
        F.row_number().over(arrivals).alias("position"),
        F.count("*").over(own).alias("size"),
        "kind",
        # A message without a verdict belongs to the timeline of the last one that had one.
        F.coalesce(F.last("timeline", ignorenulls=True).over(rows_up_to(arrivals)), "epoch").alias("epoch"),
        "is_faulty",
    )
    first = F.coalesce(F.min(F.when(F.col("is_faulty"), F.col("position"))).over(own), F.lit(1))
    shown = placed.select("*", F.greatest(first - _MESSAGES_BEFORE_FAULT, F.lit(1)).alias("begin"))
    window = (F.col("position") >= F.col("begin")) & (F.col("position") < F.col("begin") + POINTS)
    points: defaultdict[str, list[TimelinePoint]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for row in shown.where(window).orderBy("group", "position").collect():
        points[row.group].append(TimelinePoint(row.position, row.place, row.kind, row.epoch))
        sizes[row.group] = row.size
    return points, sizes


def samples(rows: DataFrame, log: AuditLog, *, blanks: bool) -> dict[FaultKind, list[str]]:
    """Return some examples of each kind, in words; with ``blanks``, also of placeholder groups."""
    faults = rows.where(F.col("status") == GOOD).select("*", F.explode("kinds").alias("kind"))
    example = F.struct("group", "epoch", "position", "place", "positions", "waited")
    ranked, few = smallest_values(faults, ("kind",), example, F.struct("group", "epoch", "position"), SAMPLES)
    examples = {
        FaultKind(row.kind): [_sample_text(row.kind, sample, log) for sample in row.few]
        for row in ranked.groupBy("kind").agg(few.alias("few")).collect()
    }
    if blanks:
        named_blank = timeline_totals(rows).where(is_placeholder(F.col("group")))
        blank = named_blank.select("group").distinct().orderBy("group").limit(SAMPLES)
        examples[FaultKind.PLACEHOLDER] = [repr(row.group) for row in blank.collect()]
    return examples


def _sample_text(kind: str, row: Any, log: AuditLog) -> str:
    words: str = row.group if row.group.strip() else repr(row.group)
    if log.keys.place is not None:
        words += f" at {time_of(row.place):%Y-%m-%d %H:%M:%S}" if log.is_time else f" at {row.place}"
    if kind == FaultKind.LATE:
        words += f", {counted(row.positions, 'message')} late"
        if row.waited:
            words += f" ({duration(row.waited / 1e6)})"
    return words


def differing_columns(rows: DataFrame, log: AuditLog) -> list[DifferingColumns]:
    """Return the columns in which the messages of a place differ, the most frequent first."""
    place = [*EPOCH, "place"]
    rival = F.exists("kinds", lambda kind: kind.isin(FaultKind.CONFLICT, FaultKind.TWO_WRITERS, FaultKind.TIE))
    places = rows.where(rival).select(*place).distinct().orderBy(*place).limit(MAX_EXAMINED_PLACES)
    chosen = rows.join(F.broadcast(places), place).select(*place, *ROW)
    names = log.content_columns
    messages = F.broadcast(chosen).join(log.messages(), list(ROW))
    values = [F.to_json(F.struct(F.col(f"message.{quoted(name)}"))) for name in names]
    sides = messages.groupBy(*place).agg(
        *(F.countDistinct(value).alias(f"n{index}") for index, value in enumerate(values))
    )
    differ = F.array(*(F.when(F.col(f"n{index}") > 1, name) for index, name in enumerate(names)))
    column_sets = sides.select(F.array_compact(differ).alias("names")).groupBy("names").count().collect()
    total = sum(row["count"] for row in column_sets)
    ranked = sorted(column_sets, key=lambda row: (-row["count"], row.names))
    return [DifferingColumns(list(row.names), row["count"] / total) for row in ranked[:_SETS] if row.names]
