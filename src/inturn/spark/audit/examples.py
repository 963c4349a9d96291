"""The groups with the most faults, message by message, for display."""

from collections import defaultdict
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.spark.audit.log import GOOD, AuditLog
from inturn.spark.audit.report import FaultKind, Gap, GroupTimeline, Point
from inturn.spark.audit.sort_passes import so_far
from inturn.spark.audit.totals import named

GROUPS: Final = 12
"""The number of groups shown."""
POINTS: Final = 160
"""The number of messages shown of each."""
_AHEAD: Final = 12
"""The number of messages shown before the first fault."""


def timelines(rows: DataFrame, holes: DataFrame | None, log: AuditLog) -> list[GroupTimeline]:
    """Return the worst groups: those with the most kinds of faults, and of these, with the most faults.

    Args:
        rows: the telling rows with their verdicts.
        holes: the gaps; None if the order cannot show any.
        log: the log of the rows.
    """
    faults = rows.where(F.col("bad") == GOOD).select("g", F.explode("kinds").alias("kind"), F.lit(1).alias("n"))
    if holes is not None:
        lost = holes.where("not open").select("g", F.lit(str(FaultKind.GAP)).alias("kind"), F.lit(1).alias("n"))
        faults = faults.unionByName(lost)
    by_group = faults.groupBy("g", "kind").agg(F.sum("n").alias("n"))
    ranked = by_group.groupBy("g").agg(F.count("*").alias("kinds"), F.sum("n").alias("n"))
    chosen = [row.g for row in ranked.orderBy(F.desc("kinds"), F.desc("n"), "g").limit(GROUPS).collect()]
    if not chosen:
        return []
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in by_group.where(F.col("g").isin(chosen)).orderBy("kind").collect():
        counts[row.g][row.kind] = row.n
    gaps: defaultdict[str, list[Gap]] = defaultdict(list)
    if holes is not None:
        for gap in named(holes.where(F.col("g").isin(chosen)).orderBy("g", "first").limit(GROUPS * POINTS).collect()):
            gaps[gap.group].append(gap)
    points, sizes = _points(rows, chosen, log)
    return [GroupTimeline(g, sizes[g], counts[g], points[g], gaps[g]) for g in chosen]


def _points(rows: DataFrame, chosen: list[str], log: AuditLog) -> tuple[dict[str, list[Point]], dict[str, int]]:
    """Return the messages of each group from shortly before its first fault on, and the size of each group."""
    # Verdicts are joined by the place of arrival, which is unique to a message.
    said = rows.where(F.col("g").isin(chosen)).select(
        "f",
        "m",
        F.col("e").alias("epoch"),
        F.try_element_at("kinds", F.lit(1)).alias("kind"),
        (F.col("kinds").isNotNull() | F.col("missing_from").isNotNull()).alias("told"),
    )
    own = Window.partitionBy("g")
    arrivals = own.orderBy("f", "m")
    every = log.rows().where((F.col("bad") == GOOD) & F.col("g").isin(chosen))
    placed = every.join(said, ["f", "m"], "left").select(
        "g",
        "o",
        F.row_number().over(arrivals).alias("position"),
        F.count("*").over(own).alias("size"),
        "kind",
        # A message without a verdict belongs to the timeline of the last one that had one.
        F.coalesce(F.last("epoch", ignorenulls=True).over(so_far(arrivals)), "e").alias("epoch"),
        "told",
    )
    first = F.coalesce(F.min(F.when(F.col("told"), F.col("position"))).over(own), F.lit(1))
    shown = placed.select("*", F.greatest(first - _AHEAD, F.lit(1)).alias("begin"))
    window = (F.col("position") >= F.col("begin")) & (F.col("position") < F.col("begin") + POINTS)
    points: defaultdict[str, list[Point]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for row in shown.where(window).orderBy("g", "position").collect():
        points[row.g].append(Point(row.position, row.o, row.kind, row.epoch))
        sizes[row.g] = row.size
    return points, sizes
