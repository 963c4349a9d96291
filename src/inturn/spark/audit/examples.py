"""Examples of the faults: some messages of each kind, in words, and the worst groups, message by message."""

from collections import defaultdict
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.words import counted
from inturn.spark.audit.formatting import duration, moment
from inturn.spark.audit.log import GOOD, ROW, AuditLog
from inturn.spark.audit.report import FaultKind, Gap, GroupTimeline, Point
from inturn.spark.audit.sort_passes import so_far
from inturn.spark.audit.totals import least, named
from inturn.spark.audit.verdicts import groups, is_placeholder

SAMPLES: Final = 3
"""The number of examples of each kind."""
GROUPS: Final = 12
"""The number of groups shown."""
POINTS: Final = 160
"""The number of messages shown of each group."""
_AHEAD: Final = 12
"""The number of messages shown before the first fault."""


def timelines(rows: DataFrame, holes: DataFrame | None, log: AuditLog) -> list[GroupTimeline]:
    """Return the worst groups: those with the most kinds of faults, and of these, with the most faults.

    Args:
        rows: the telling rows with their verdicts.
        holes: the gaps; None if the order cannot show any.
        log: the log of the rows.
    """
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
    gaps: defaultdict[str, list[Gap]] = defaultdict(list)
    if holes is not None:
        own = holes.where(F.col("group").isin(chosen)).orderBy("group", "first").limit(GROUPS * POINTS)
        for gap in named(own.collect()):
            gaps[gap.group].append(gap)
    points, sizes = _points(rows, chosen, log)
    return [GroupTimeline(g, sizes[g], counts[g], points[g], gaps[g]) for g in chosen]


def _points(rows: DataFrame, chosen: list[str], log: AuditLog) -> tuple[dict[str, list[Point]], dict[str, int]]:
    """Return the messages of each group from shortly before its first fault on, and the size of each group."""
    # Verdicts are joined by the place of arrival, which is unique to a message.
    said = rows.where(F.col("group").isin(chosen)).select(
        *ROW,
        F.col("epoch").alias("timeline"),
        F.try_element_at("kinds", F.lit(1)).alias("kind"),
        (F.col("kinds").isNotNull() | F.col("missing_from").isNotNull()).alias("told"),
    )
    own = Window.partitionBy("group")
    arrivals = own.orderBy(*ROW)
    every = log.rows().where((F.col("status") == GOOD) & F.col("group").isin(chosen))
    placed = every.join(said, list(ROW), "left").select(
        "group",
        "place",
        F.row_number().over(arrivals).alias("position"),
        F.count("*").over(own).alias("size"),
        "kind",
        # A message without a verdict belongs to the timeline of the last one that had one.
        F.coalesce(F.last("timeline", ignorenulls=True).over(so_far(arrivals)), "epoch").alias("epoch"),
        "told",
    )
    first = F.coalesce(F.min(F.when(F.col("told"), F.col("position"))).over(own), F.lit(1))
    shown = placed.select("*", F.greatest(first - _AHEAD, F.lit(1)).alias("begin"))
    window = (F.col("position") >= F.col("begin")) & (F.col("position") < F.col("begin") + POINTS)
    points: defaultdict[str, list[Point]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for row in shown.where(window).orderBy("group", "position").collect():
        points[row.group].append(Point(row.position, row.place, row.kind, row.epoch))
        sizes[row.group] = row.size
    return points, sizes


def samples(rows: DataFrame, log: AuditLog, *, blanks: bool) -> dict[FaultKind, list[str]]:
    """Return some examples of each kind, in words; with ``blanks``, also of placeholder groups."""
    faults = rows.where(F.col("status") == GOOD).select("*", F.explode("kinds").alias("kind"))
    example = F.struct("group", "epoch", "position", "place", "positions", "waited")
    ranked, few = least(faults, ("kind",), example, F.struct("group", "epoch", "position"), SAMPLES)
    told = {
        FaultKind(row.kind): [_told(row.kind, each, log) for each in row.few]
        for row in ranked.groupBy("kind").agg(few.alias("few")).collect()
    }
    if blanks:
        named_blank = groups(rows).where(is_placeholder(F.col("group")))
        blank = named_blank.select("group").distinct().orderBy("group").limit(SAMPLES)
        told[FaultKind.PLACEHOLDER] = [repr(row.group) for row in blank.collect()]
    return told


def _told(kind: str, row: Any, log: AuditLog) -> str:
    words: str = row.group if row.group.strip() else repr(row.group)
    if log.keys.place is not None:
        words += f" at {moment(row.place) if log.is_time else row.place}"
    if kind == FaultKind.LATE:
        words += f", {counted(row.positions, 'message')} late"
        if row.waited:
            words += f" ({duration(row.waited / 1e6)})"
    return words
