"""Verdicts: two sorts of a whole log, which leave only the telling messages, with the faults of each.

The first sort reads each group in order of arrival, the second from its highest place down. Each keeps a few running
values, so that a row has the facts about earlier rows without a lookup. The cost grows like that of a sort. The telling
messages are those with a fault, or next to one, and the last row of each group, which has the group's totals.

The numbers of a group may start again without a column that shows it, such as those of a device that was reset. A
restart looks like a conflict at first: revision 1 arrives again with other content. The next messages distinguish it
from a conflict and from a second writer: the new timeline repeats the old revisions, one after the other, before the
group continues beyond them. Only groups in which a first revision was contradicted, or in which the numbers fell
from far above to 0 or 1, are checked.
"""

import functools
import operator
from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.words import counted, duration
from inturn.spark.audit.log import EPOCH, GOOD, GROUP, NO_GROUP, ROW, UNREADABLE, AuditLog, Key
from inturn.spark.audit.report import FaultKind, Lateness

FALL: Final = 100
"""A group that begins in the middle has restarted if it falls by more than this, to 0 or 1."""
CERTAIN_FALL: Final = 10
"""A group that ends with its first revision, contradicted, has restarted if it had been at least this far above it."""
_BLANKS = ("", "na", "n/a", "nan", "null", "none", "nil", "undefined", "unknown", "-", "?")
"""Placeholders for a missing key."""

CacheFrame = Callable[[DataFrame], DataFrame]
"""A function that caches a DataFrame for the queries of an audit."""


def add_verdicts(log: AuditLog, cache: CacheFrame) -> DataFrame:
    """Return the telling rows of a log with their verdicts.

    Returns:
        The columns that later steps need, and:

        * ``kinds``: kinds of faults of the message, an array of texts; null for none.
        * ``missing_from``: revision after which all before this one are missing; null for none.
        * ``opened``, ``opened_us``: position of arrival, and clock, at which its place or a higher one arrived first,
          which opened that gap; in a group's last row, at which the group began.
        * ``positions``: for a late message, messages of the group since the first that overtook it, including that one.
        * ``waited``: for a late message, the same in microseconds; null if there is no time.
        * ``behind``: for a late message, the distance of its place from the greatest so far.
        * ``suspect``: whether its group's numbers may start again here.
        * ``again``, ``other``, ``no_id``: whether an earlier message is the same, an earlier one has its id and other
          content, it has no id; and those of :func:`_add_comparisons`: inputs of a pipeline's decision.
    """
    rows = log.rows().withColumn("other", F.lit(False))  # noqa: FBT003
    rows = _marked_by_id(rows, cache) if log.keys.id else rows
    verdicts = cache(_with_verdicts(rows, log.timeline_key, log))
    if not verdicts.agg(F.bool_or("suspect")).collect()[0][0]:
        return verdicts
    suspects = verdicts.where("suspect").select(*GROUP).distinct()
    split = _with_verdicts(_split_timelines(rows.join(suspects, list(GROUP), "left_semi")), EPOCH, log)
    return cache(verdicts.join(suspects, list(GROUP), "left_anti").unionByName(split))


def _marked_by_id(rows: DataFrame, cache: CacheFrame) -> DataFrame:
    """Return the rows with ``other``: whether an earlier message of the group has the same id and other content.

    Few logs have such messages, so the search does not sort the log.
    """
    own_id = [*GROUP, "id"]
    known = rows.where((F.col("status") == GOOD) & F.col("id").isNotNull())
    contents = known.repartition("group_hash").groupBy(*own_id)
    used_twice = cache(
        contents.agg((F.min("content") < F.max("content")).alias("differ")).where("differ").drop("differ")
    )
    if not used_twice.count():
        return rows
    own = known.join(used_twice, own_id, "left_semi")
    first = cache(own.groupBy(*own_id).agg(F.min_by("content", F.struct(*ROW)).alias("first_content")))
    other = F.coalesce((F.col("status") == GOOD) & (F.col("content") != F.col("first_content")), F.lit(False))  # noqa: FBT003
    return rows.join(first, own_id, "left").withColumn("other", other).select(*rows.columns)


def _with_verdicts(rows: DataFrame, key: Key, log: AuditLog) -> DataFrame:
    """Return the telling rows of all rows, with ``other``, as :func:`add_verdicts` does."""
    rows = _add_comparisons(_telling_rows(rows, key, log), key, log)
    place, top, is_good, no = F.col("place"), F.col("top"), F.col("status") == GOOD, F.lit(False)  # noqa: FBT003
    late = is_good & (place < top) & (F.col("first") if log.shows_gaps else ~F.col("copy")) if log.keys.place else no
    gap = is_good & _follows_gap(place, F.col("below")) if log.shows_gaps else no
    suspect = _may_restart(is_good) if log.hides_restarts else no
    faults = _faults(log, late)
    kinds = F.array_compact(F.array(*(F.when(condition, kind) for condition, kind in faults)))
    faulty = functools.reduce(operator.or_, (F.coalesce(condition, no) for condition, _ in faults))
    return rows.select(
        *(*GROUP, "epoch", "place", *ROW, "status", "position", "rows_so_far", "below", "clock_last", "size"),
        *("first", "same", "overtaken", "again"),
        F.col("position_over").alias("opened"),
        F.col("clock_over").alias("opened_us"),
        F.when(faulty, kinds).alias("kinds"),
        F.when(gap, F.col("below")).alias("missing_from"),
        F.when(late, F.col("position") - F.col("position_ahead")).alias("positions"),
        F.when(late, F.col("clock") - F.col("clock_ahead")).alias("waited"),
        F.when(late, top.cast("double") - place.cast("double")).alias("behind"),
        F.coalesce(suspect, no).alias("suspect"),
        F.coalesce("other", no).alias("other"),
        F.col("id").isNull().alias("no_id"),
    )


def _telling_rows(rows: DataFrame, key: Key, log: AuditLog) -> DataFrame:
    """Return the telling rows.

    Args:
        rows: all rows of a log, see :meth:`inturn.spark.audit.log.AuditLog.rows`; and ``other``, whether an earlier
            message has its id and other content.
        key: columns that the messages of one timeline share.
        log: the log of the rows.

    Returns:
        Rows sorted by ``key``, ``down``, ``content`` and ``position``, with these further columns:

        * ``position``: position of arrival, from 1; ``clock``: the group's clock at that time.
        * ``top``: greatest place that had arrived by then, including its own.
        * ``down``: its place inverted, so that sorting begins with the highest.
        * ``above``, ``below``: place of the next row up and down; equal if several messages share a place.
        * ``again``: whether an earlier message has its place and its content.
        * ``position_over``, ``clock_over``: first arrival of its place or a higher one, among the rows so far.
        * ``position_higher``, ``clock_higher``: the same among the rows before. In the first row of a place: of higher
          places.
        * ``rows_so_far``: number of rows so far; ``clock_last``: the clock so far. In a group's last row, whose
          ``below`` is null, they are the group's totals; its ``clock_over`` is the group's first clock, and its place
          the lowest.
    """
    with_time = log.keys.time is not None
    nothing = F.lit(None).cast("bigint")
    rows = rows.repartition("group_hash")
    arrivals = Window.partitionBy(*key).orderBy(*log.arrival_columns)
    arrived = rows.select(
        "*",
        F.bitwise_not("place").alias("down"),  # unlike -o, this is defined for every number
        F.row_number().over(arrivals).alias("position"),
        F.max("place").over(rows_up_to(arrivals)).alias("top"),
        (F.max("time").over(rows_up_to(arrivals)) if with_time else nothing).alias("clock"),
    )
    falling = Window.partitionBy(*key).orderBy("down", "content", "position")
    place = F.col("place")
    placed = arrived.select(
        "*",
        F.lag("place").over(falling).alias("above"),
        F.lead("place").over(falling).alias("below"),
        (F.lag("content").over(falling) == F.col("content")).alias("alike"),
        F.row_number().over(falling).alias("rows_so_far"),
        F.min("position").over(rows_up_to(falling)).alias("position_over"),
        (F.min("clock").over(rows_up_to(falling)) if with_time else nothing).alias("clock_over"),
        F.min("position").over(rows_before(falling)).alias("position_higher"),
        (F.min("clock").over(rows_before(falling)) if with_time else nothing).alias("clock_higher"),
        (F.max("clock").over(rows_up_to(falling)) if with_time else nothing).alias("clock_last"),
    )
    shared = (F.col("above") == place) | (F.col("below") == place)
    tells = F.col("below").isNull() | shared | F.col("other") | (F.col("status") != GOOD)
    if log.keys.place:
        tells |= place < F.col("top")
    if log.shows_gaps:
        tells |= _follows_gap(place, F.col("below"))
        tells |= place < (1 if log.keys.start is None else log.keys.start)
    if log.keys.id:
        tells |= F.col("id").isNull()
    is_repeat = F.coalesce((F.col("above") == place) & F.col("alike"), F.lit(False))  # noqa: FBT003
    return placed.where(tells).withColumn("again", is_repeat).drop("alike")


def _add_comparisons(rows: DataFrame, key: Key, log: AuditLog) -> DataFrame:
    """Add columns that compare each row with the other rows of the same place and of the same timeline.

    ``first``: the row is the first of its place; ``same``: it has the content of the first; ``overtaken``: the first
    arrived after a greater place. ``copy`` and ``rival``: the row repeats or contradicts an earlier one; ``writers``:
    the timeline has two writers. ``size`` and ``lowest``: messages and lowest place of the timeline.
    """
    timeline, shared = Window.partitionBy(*key), Window.partitionBy(*key, "down")
    first, same = F.col("position") == F.col("first_position"), F.col("content") == F.col("first_content")
    ids_decide = log.is_time or log.keys.place is None  # not places
    copy = F.col("again") & ~F.col("other") if ids_decide else ~first & same
    rival = (F.col("status") == GOOD) & ~first & ~copy & ~same
    rows = rows.select(
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
        F.max("rows_so_far").over(timeline).alias("size"),
        F.min("place").over(timeline).alias("lowest"),
        (_two_writers(key) if log.shows_gaps else F.lit(False)).alias("writers"),  # noqa: FBT003
    )


def _faults(log: AuditLog, late: Column) -> list[tuple[Column, Column]]:
    """Return conditions, each with its kind of fault."""
    status, is_good = F.col("status"), F.col("status") == GOOD
    misplaced = F.when(status == UNREADABLE, FaultKind.UNREADABLE).when(status == NO_GROUP, FaultKind.NO_GROUP)
    rival_kind = F.when(F.col("writers"), FaultKind.TWO_WRITERS).otherwise(FaultKind.CONFLICT)
    # The first of a timeline that no column shows:
    restart = F.lit(log.hides_restarts) & is_good & (F.col("epoch") > 0) & (F.col("position") == 1)
    return [
        (~is_good, misplaced.otherwise(FaultKind.NO_ORDER)),
        (is_good & F.col("copy"), F.lit(str(FaultKind.DUPLICATE))),
        (F.col("rival"), rival_kind if log.shows_gaps else F.lit(str(FaultKind.TIE))),
        (late, F.lit(str(FaultKind.LATE))),
        (is_good & F.col("other"), F.lit(str(FaultKind.ID_CONFLICT))),
        (restart, F.lit(str(FaultKind.RESET))),
        (is_good & F.col("id").isNull() & F.lit(log.keys.id is not None), F.lit(str(FaultKind.NO_ID))),
    ]


def _two_writers(key: Key) -> Column:
    """Return whether consecutive revisions have rivals: then the group has two writers, not a single slip."""
    timeline, rival, place = Window.partitionBy(*key), F.col("rival"), F.col("place")
    falling = timeline.orderBy("down", "content", "position")
    higher = F.last(F.when(rival, place), ignorenulls=True).over(rows_before(falling))
    return F.coalesce(F.max(rival & (higher == place + 1)).over(timeline), F.lit(False))  # noqa: FBT003


def _may_restart(is_good: Column) -> Column:
    """Return whether a telling row may be the first of a new timeline; ``is_good``: it has a place."""
    place, top = F.col("place"), F.col("top")
    rival_start = F.col("rival") & (place == F.col("lowest")) & (top > place)
    return rival_start | (is_good & F.col("first") & place.isin(0, 1) & (top > place + FALL))


def _split_timelines(rows: DataFrame) -> DataFrame:
    """Return the rows of suspected groups, with each of a group's timelines as an epoch of its own, from 0.

    A copy belongs to the timeline of its original.
    """
    group = Window.partitionBy(*GROUP)
    arrivals, backwards = group.orderBy(*ROW), group.orderBy(*map(F.desc, ROW))
    of_place = rows_up_to(Window.partitionBy(*GROUP, "place").orderBy(*ROW))
    copies = Window.partitionBy(*GROUP, "place", "content").orderBy(*ROW)
    place, top = F.col("place"), F.col("top")
    seen = rows.select(
        "*",
        F.min("place").over(group).alias("lowest"),
        (F.first("content").over(of_place) != F.col("content")).alias("rival"),
        (F.row_number().over(copies) == 1).alias("fresh"),
    )
    counted = seen.select(
        "*",
        F.max("place").over(rows_before(arrivals)).alias("top"),
        F.min("place").over(rows_before(arrivals)).alias("bottom"),
        F.sum((F.col("rival") & F.col("fresh")).cast("bigint")).over(rows_up_to(arrivals)).alias("rivals"),
    )
    beyond = F.last(F.when(place > top, F.col("rivals")), ignorenulls=True).over(rows_before(backwards))
    compared = counted.select("*", beyond.alias("beyond"), F.max("rivals").over(group).alias("all_rivals"))
    gave_again = F.coalesce("beyond", "all_rivals") - F.col("rivals") + 1
    restated = (gave_again >= 2) & (gave_again >= top - place)
    unfinished = F.col("beyond").isNull() & ((gave_again >= 2) | (top - place >= CERTAIN_FALL))
    rival_start = F.col("rival") & (place == F.col("lowest")) & (top > place) & (restated | unfinished)
    fell = place.isin(0, 1) & (F.col("bottom") > place + FALL)
    restarts = (F.col("fresh") & (rival_start | fell)).cast("bigint")
    numbered = compared.select("*", F.coalesce(F.sum(restarts).over(rows_up_to(arrivals)), F.lit(0)).alias("timeline"))
    own = F.first("timeline").over(rows_up_to(copies))
    return numbered.select(*(own.alias("epoch") if name == "epoch" else name for name in rows.columns))


def mark_below_start(rows: DataFrame, start: int) -> DataFrame:
    """Return the rows with those below the first revision marked as having no place, and no other fault."""
    below = (F.col("status") == GOOD) & (F.col("place") < start)
    kinds = F.when(below, F.array(F.lit(str(FaultKind.NO_ORDER)))).otherwise(F.col("kinds"))
    return rows.withColumn("kinds", kinds)


def find_gaps(
    rows: DataFrame, start: int | None, found_late: Lateness | None, ended_us: int | None, patience_us: int | None
) -> tuple[DataFrame, str]:
    """Return the gaps in the groups' revisions, and the greatest age of an open one in words.

    A gap is open while it is not older than the greatest lateness in this log: by the clock if late messages show it
    or ``patience_us`` sets it; else by messages of the group, at least one.

    Args:
        rows: rows from :func:`add_verdicts`.
        start: first revision that a group should have; None if groups begin anywhere.
        found_late: lateness in this log; None if nothing is late.
        ended_us: end of the log's clock; None if it has none.
        patience_us: age beyond which a gap is a loss; None takes it from the log.

    Returns:
        For each gap: ``group``, ``epoch``, ``first`` and ``last`` missing revision, ``missing``: their number,
        ``size``: of the group, ``opened``: position of arrival of the first message beyond it, ``opened_us``: clock
        at that time, ``age`` in messages, ``age_us``, ``open``.
    """
    place, has_gap, first = F.col("place"), F.col("missing_from").isNotNull(), F.col("missing_from") + 1
    if start is not None:  # nothing below it can be missing, and all from it to a group's lowest place is
        lowest = (F.col("status") == GOOD) & F.col("below").isNull()
        has_gap, first = (has_gap | lowest) & (place > start), F.greatest(first, F.lit(start))
    hole = {"first": first, "last": place - 1, "opened": F.col("opened"), "opened_us": F.col("opened_us")}
    values = [column.cast("bigint").alias(name) for name, column in hole.items()]
    gaps = rows.where(has_gap).select("group", "epoch", "size", *values)
    wide = "decimal(38,0)"  # numbers that are not a count may differ by more than a long can hold
    missing = F.col("last").cast(wide) - F.col("first").cast(wide) + 1
    age, age_us = F.col("size") - F.col("opened") + 1, F.lit(ended_us) - F.col("opened_us")
    words = "set by --patience"
    if patience_us is None and found_late is not None and found_late.seconds is not None:
        patience_us, words = round(found_late.seconds.most * 1e6), "the greatest lateness in this log"
    grant = 1 if found_late is None else max(1, int(found_late.positions.most))
    if patience_us is None or ended_us is None:
        is_open = age <= grant
        words = f"{counted(grant, 'message')} of its group, the greatest lateness in this log"
        if found_late is None:
            words = "1 message of its group, since no message in this log is late"
    else:
        is_open = F.coalesce(age_us <= patience_us, age <= grant)
        words = f"{duration(patience_us / 1e6)}, {words}"
    more = {"missing": missing, "age": age, "age_us": age_us.cast("bigint"), "open": is_open}
    return gaps.withColumns(more), words


def timeline_totals(rows: DataFrame) -> DataFrame:
    """Return the last row of each timeline: its ``messages``, its lowest ``place``, and the ends of its clock."""
    return rows.where((F.col("status") == GOOD) & F.col("below").isNull()).withColumnRenamed("rows_so_far", "messages")


def is_placeholder(group: Column) -> Column:
    """Return whether a group's name is blank or a placeholder."""
    return F.lower(F.trim(group)).isin(*_BLANKS)


def rows_before(window: WindowSpec) -> WindowSpec:
    """Return a window of all rows before a row."""
    return window.rowsBetween(Window.unboundedPreceding, -1)


def rows_up_to(window: WindowSpec) -> WindowSpec:
    """Return a window of all rows before a row, and the row."""
    return window.rowsBetween(Window.unboundedPreceding, 0)


def _follows_gap(place: Column, below: Column) -> Column:
    """Return whether a revision is missing between a row's place and the one below; safe at the ends of the range."""
    return F.try_add(below, F.lit(1)) < place
