"""Verdicts of telling rows: the faults of each message, and the missing revisions of each group."""

import functools
import operator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.spark.audit import restarts
from inturn.spark.audit.log import GOOD, GROUP, NO_GROUP, ROW, UNREADABLE, AuditLog, Key
from inturn.spark.audit.report import FaultKind
from inturn.spark.audit.sort_passes import before, follows_gap, timelines

_BLANKS = ("", "na", "n/a", "nan", "null", "none", "nil", "undefined", "unknown", "-", "?")
"""Placeholders for a missing key."""


def judged(told: DataFrame, key: Key, log: AuditLog) -> DataFrame:
    """Return the telling rows with their verdicts. Nothing is sorted: the rows are in the order of the second pass.

    Args:
        told: rows from :func:`inturn.spark.audit.sort_passes.telling`.
        key: columns that the messages of one timeline share.
        log: the log of the rows.

    Returns:
        The columns that later steps need, and:

        * ``kinds``: kinds of faults of the message, an array of texts; null for none.
        * ``missing_from``: revision after which all before this one are missing; null for none.
        * ``opened``, ``opened_us``: position of arrival, and clock, at which that gap opened.
        * ``positions``: for a late message, messages of the group since the first that overtook it, including that one.
        * ``waited``: for a late message, the same in microseconds; null if there is no time.
        * ``behind``: for a late message, the distance of its place from the greatest so far.
        * ``suspect``: whether its group's numbers may start again here, see :mod:`inturn.spark.audit.restarts`.
        * ``again``, ``other``, ``no_id``: whether an earlier message is the same, an earlier one has its id and other
          content, it has no id; and those of :func:`_compared`: inputs of a pipeline's decision.
    """
    rows = _compared(told, key, log)
    place, top, good, no = F.col("place"), F.col("top"), F.col("status") == GOOD, F.lit(False)  # noqa: FBT003
    first, rival = F.col("first"), F.col("rival")
    late = good & (place < top) & (first if log.counts else ~F.col("copy")) if log.keys.place else no
    gap = good & follows_gap(place, F.col("below")) if log.counts else no
    suspect = restarts.may_start(rival=rival, first=good & first) if log.hides_restarts else no
    faults = _faults(log, late)
    kinds = F.array_compact(F.array(*(F.when(fault, kind) for fault, kind in faults)))
    faulty = functools.reduce(operator.or_, (F.coalesce(fault, no) for fault, _ in faults))
    return rows.select(
        *(*GROUP, "epoch", "place", *ROW, "status", "position", "rows_so_far", "below", "clock_last", "size"),
        *("first", "same", "overtaken", "again"),
        F.col("clock_over").alias("clock_first"),
        F.when(faulty, kinds).alias("kinds"),
        F.when(gap, F.col("below")).alias("missing_from"),
        F.when(gap, F.col("position_over")).alias("opened"),
        F.when(gap, F.col("clock_over")).alias("opened_us"),
        F.when(late, F.col("position") - F.col("position_ahead")).alias("positions"),
        F.when(late, F.col("clock") - F.col("clock_ahead")).alias("waited"),
        F.when(late, top.cast("double") - place.cast("double")).alias("behind"),
        F.coalesce(suspect, no).alias("suspect"),
        F.coalesce("other", no).alias("other"),
        F.col("id").isNull().alias("no_id"),
    )


def _compared(told: DataFrame, key: Key, log: AuditLog) -> DataFrame:
    """Add columns that compare each row with the other rows of the same place and of the same timeline.

    ``first``: the row is the first of its place; ``same``: it has the content of the first; ``overtaken``: the first
    arrived after a greater place. ``copy`` and ``rival``: the row repeats or contradicts an earlier one; ``writers``:
    the timeline has two writers. ``size`` and ``lowest``: messages and lowest place of the timeline.
    """
    whole, shared = timelines(key), timelines(key, "down")
    first, same = F.col("position") == F.col("first_position"), F.col("content") == F.col("first_content")
    copy = F.col("again") & ~F.col("other") if by_id(log) else ~first & same
    rival = (F.col("status") == GOOD) & ~first & ~copy & ~same
    rows = told.select(
        "*",
        F.min("position").over(shared).alias("first_position"),
        F.min_by("content", "position").over(shared).alias("first_content"),
        F.min_by(F.col("place") < F.col("top"), "position").over(shared).alias("overtaken"),
        # Rows of a place share the rows above it: only these precede the first of them.
        F.max("position_higher").over(shared).alias("position_ahead"),
        F.max("clock_higher").over(shared).alias("clock_ahead"),
    ).select("*", first.alias("first"), same.alias("same"), copy.alias("copy"), rival.alias("rival"))
    return rows.select(
        "*",
        F.max("rows_so_far").over(whole).alias("size"),
        F.min("place").over(whole).alias("lowest"),
        (_two_writers(key) if log.counts else F.lit(False)).alias("writers"),  # noqa: FBT003
    )


def _faults(log: AuditLog, late: Column) -> list[tuple[Column, Column]]:
    """Return conditions, each with its kind of fault."""
    status, good = F.col("status"), F.col("status") == GOOD
    misplaced = F.when(status == UNREADABLE, FaultKind.UNREADABLE).when(status == NO_GROUP, FaultKind.NO_GROUP)
    rival_kind = F.when(F.col("writers"), FaultKind.TWO_WRITERS).otherwise(FaultKind.CONFLICT)
    # The first of a timeline that no column shows:
    restart = F.lit(log.hides_restarts) & good & (F.col("epoch") > 0) & (F.col("position") == 1)
    return [
        (~good, misplaced.otherwise(FaultKind.NO_ORDER)),
        (good & F.col("copy"), F.lit(str(FaultKind.DUPLICATE))),
        (F.col("rival"), rival_kind if log.counts else F.lit(str(FaultKind.TIE))),
        (late, F.lit(str(FaultKind.LATE))),
        (good & F.col("other"), F.lit(str(FaultKind.ID_CONFLICT))),
        (restart, F.lit(str(FaultKind.RESET))),
        (good & F.col("id").isNull() & F.lit(log.keys.id is not None), F.lit(str(FaultKind.NO_ID))),
    ]


def by_id(log: AuditLog) -> bool:
    """Return whether ids identify copies instead of places: in an order by time, or by arrival."""
    return log.is_time or log.keys.place is None


def begun(rows: DataFrame, start: int) -> DataFrame:
    """Return the rows with those below the first revision marked as having no place, and no other fault."""
    below = (F.col("status") == GOOD) & (F.col("place") < start)
    kinds = F.when(below, F.array(F.lit(str(FaultKind.NO_ORDER)))).otherwise(F.col("kinds"))
    return rows.withColumn("kinds", kinds)


def _two_writers(key: Key) -> Column:
    """Return whether consecutive revisions have rivals: then the group has two writers, not a single slip."""
    falling, rival, place = timelines(key).orderBy("down", "content", "position"), F.col("rival"), F.col("place")
    higher = F.last(F.when(rival, place), ignorenulls=True).over(before(falling))
    return F.coalesce(F.max(rival & (higher == place + 1)).over(timelines(key)), F.lit(False))  # noqa: FBT003


def gaps(rows: DataFrame, start: int | None) -> DataFrame:
    """Return the gaps in the groups' revisions.

    Args:
        rows: rows from :func:`judged`.
        start: first revision that a group should have; None if groups begin anywhere.

    Returns:
        For each gap: ``group``, ``epoch``, ``first`` and ``last`` missing revision, ``missing``: their number,
        ``size``: of the group, ``opened``: position of arrival of the first message beyond it, ``opened_us``: clock
        at that time.
    """
    inside = F.col("missing_from").isNotNull()
    least = F.col("missing_from") + 1
    if start is not None:  # nothing below it can be missing
        least, inside = F.greatest(least, F.lit(start)), inside & (F.col("place") > start)
    inner = _hole(least, F.col("place") - 1, F.col("opened"), F.col("opened_us"))
    parts, some = [F.when(inside, inner)], inside
    if start is not None:
        lacking = (F.col("status") == GOOD) & F.col("below").isNull() & (F.col("place") > start)
        parts.append(F.when(lacking, _hole(F.lit(start), F.col("place") - 1, F.lit(1), F.col("clock_first"))))
        some |= lacking
    few = rows.where(some)  # avoids an array for each of the other rows
    found = few.select("group", "epoch", "size", F.inline(F.array_compact(F.array(*parts))))
    wide = "decimal(38,0)"  # numbers that are not a count may differ by more than a long can hold
    return found.withColumn("missing", F.col("last").cast(wide) - F.col("first").cast(wide) + 1)


def _hole(first: Column, last: Column, opened: Column, opened_us: Column) -> Column:
    named = {"first": first, "last": last, "opened": opened, "opened_us": opened_us}
    return F.struct(*(column.cast("bigint").alias(name) for name, column in named.items()))


def groups(rows: DataFrame) -> DataFrame:
    """Return the last row of each timeline: its ``messages``, its lowest ``place``, and the ends of its clock."""
    return rows.where((F.col("status") == GOOD) & F.col("below").isNull()).withColumnRenamed("rows_so_far", "messages")


def is_placeholder(group: Column) -> Column:
    """Return whether a group's name is blank or a placeholder."""
    return F.lower(F.trim(group)).isin(*_BLANKS)
