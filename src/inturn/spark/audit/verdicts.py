"""Verdicts of telling rows: the faults of each message, and the missing revisions of each group."""

import functools
import operator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.spark.audit import restarts
from inturn.spark.audit.log import GOOD, NO_GROUP, UNREADABLE, AuditLog, Key
from inturn.spark.audit.report import FaultKind
from inturn.spark.audit.sort_passes import before, follows_gap, timelines

_BLANKS = ("", "na", "n/a", "nan", "null", "none", "nil", "undefined", "unknown", "-", "?")
"""Placeholders that people write for a missing key."""


def judged(told: DataFrame, key: Key, log: AuditLog) -> DataFrame:
    """Return the telling rows with their verdicts. Nothing is sorted: the rows come in the order of the second pass.

    Args:
        told: rows from :func:`inturn.spark.audit.sort_passes.telling`.
        key: columns that the messages of one timeline share.
        log: the log of the rows.

    Returns:
        The columns that are needed further: ``h``, ``g``, ``e``, ``o``, ``f``, ``m``, ``bad``, ``p``, ``n``, ``below``,
        ``k_first``, ``k_last``, and:

        * ``kinds``: kinds of faults of the message, an array of texts; null for none.
        * ``missing_from``: revision after which all before this one are missing; null for none.
        * ``opened``, ``opened_us``: position of arrival, and clock, at which that gap opened.
        * ``positions``: of a late message, messages of the group since the first that overtook it, including that one.
        * ``waited``: of a late message, the same in microseconds; null if there is no time.
        * ``behind``: of a late message, the distance of its place from the greatest so far.
        * ``size``: number of messages of its group.
        * ``first``, ``same``, ``overtaken``, ``again``, ``other``, ``no_id``: inputs of a pipeline's decision. Whether
          it is the first of its place, it has the content of the first, the first came after a greater place; whether
          an earlier message is the same, an earlier one has its id and other content; whether it has no id.
        * ``suspect``: whether its group's numbers may start again here, see :mod:`inturn.spark.audit.restarts`.
    """
    place, top, good = F.col("o"), F.col("top"), F.col("bad") == GOOD
    shared = timelines(key, "down")
    rows = told.select(
        "*",
        F.min("p").over(shared).alias("p_first"),
        F.min_by("c", "p").over(shared).alias("c_first"),
        F.min_by(place < top, "p").over(shared).alias("overtaken"),
        # Rows of a place share the rows above it: only these precede the first of them.
        F.max("p_higher").over(shared).alias("p_ahead"),
        F.max("k_higher").over(shared).alias("k_ahead"),
    )
    first, same, other = F.col("p") == F.col("p_first"), F.col("c") == F.col("c_first"), F.col("other")
    copy = F.col("again") & ~other if by_id(log) else ~first & same
    rival = good & ~first & ~copy & ~same
    late = F.lit(False)  # noqa: FBT003
    if log.keys.place:
        late = good & (place < top) & (first if log.counts else ~copy)
    suspect, gap = F.lit(False), F.lit(False)  # noqa: FBT003
    rival_kind: Column = F.lit(str(FaultKind.TIE))
    rows = rows.select(
        "*",
        F.max("n").over(timelines(key)).alias("size"),
        F.min("o").over(timelines(key)).alias("lowest"),
        (_two_writers(rival, key) if log.counts else F.lit(False)).alias("writers"),  # noqa: FBT003
    )
    if log.counts:
        rival_kind = F.when(F.col("writers"), FaultKind.TWO_WRITERS).otherwise(FaultKind.CONFLICT)
        gap = good & follows_gap(place, F.col("below"))
        if log.hides_restarts:
            suspect = restarts.may_start(rival=rival, first=good & first)
    misplaced = F.when(F.col("bad") == UNREADABLE, FaultKind.UNREADABLE).when(
        F.col("bad") == NO_GROUP, FaultKind.NO_GROUP
    )
    faults: list[tuple[Column, Column]] = [
        (~good, misplaced.otherwise(FaultKind.NO_ORDER)),
        (good & copy, F.lit(str(FaultKind.DUPLICATE))),
        (rival, rival_kind),
        (late, F.lit(str(FaultKind.LATE))),
        (good & F.col("other"), F.lit(str(FaultKind.ID_CONFLICT))),
        (_restart(log), F.lit(str(FaultKind.RESET))),
        (good & F.col("i").isNull() & F.lit(log.keys.id is not None), F.lit(str(FaultKind.NO_ID))),
    ]
    kinds = F.array_compact(F.array(*(F.when(fault, kind) for fault, kind in faults)))
    faulty = functools.reduce(operator.or_, (F.coalesce(fault, F.lit(False)) for fault, _ in faults))  # noqa: FBT003
    return rows.select(
        *("h", "g", "e", "o", "f", "m", "bad", "p", "n", "below", "k_last", "size"),
        F.col("k_over").alias("k_first"),
        F.when(faulty, kinds).alias("kinds"),
        F.when(gap, F.col("below")).alias("missing_from"),
        F.when(gap, F.col("p_over")).alias("opened"),
        F.when(gap, F.col("k_over")).alias("opened_us"),
        F.when(late, F.col("p") - F.col("p_ahead")).alias("positions"),
        F.when(late, F.col("k") - F.col("k_ahead")).alias("waited"),
        F.when(late, top.cast("double") - place.cast("double")).alias("behind"),
        F.coalesce(suspect, F.lit(False)).alias("suspect"),  # noqa: FBT003
        first.alias("first"),
        same.alias("same"),
        F.col("overtaken"),
        F.col("again"),
        F.coalesce(other, F.lit(False)).alias("other"),  # noqa: FBT003
        F.col("i").isNull().alias("no_id"),
    )


def by_id(log: AuditLog) -> bool:
    """Return whether ids identify copies instead of places: in an order by time, or by arrival."""
    return log.is_time or log.keys.place is None


def begun(rows: DataFrame, start: int) -> DataFrame:
    """Return the rows with those below the first revision marked as having no place, and no other fault."""
    below = (F.col("bad") == GOOD) & (F.col("o") < start)
    kinds = F.when(below, F.array(F.lit(str(FaultKind.NO_ORDER)))).otherwise(F.col("kinds"))
    return rows.withColumn("kinds", kinds)


def _restart(log: AuditLog) -> Column:
    """Return whether a message is the first of a timeline that no column shows."""
    return F.lit(log.hides_restarts) & (F.col("bad") == GOOD) & (F.col("e") > 0) & (F.col("p") == 1)


def _two_writers(rival: Column, key: Key) -> Column:
    """Return whether consecutive revisions have rivals: then the group has two writers, not a single slip."""
    higher = F.last(F.when(rival, F.col("o")), ignorenulls=True).over(before(timelines(key).orderBy("down", "c", "p")))
    follows = rival & (higher == F.col("o") + 1)
    return F.coalesce(F.max(follows).over(timelines(key)), F.lit(False))  # noqa: FBT003


def gaps(rows: DataFrame, start: int | None) -> DataFrame:
    """Return the gaps in the groups' revisions.

    Args:
        rows: rows from :func:`judged`.
        start: first revision that a group should have; None if groups begin anywhere.

    Returns:
        For each gap: ``g``, ``e``, ``first`` and ``last`` missing revision, ``missing``: their number, ``size``: of the
        group, ``opened``: position of arrival of the first message beyond it, ``opened_us``: clock at that time.
    """
    inside = F.col("missing_from").isNotNull()
    least = F.col("missing_from") + 1
    if start is not None:  # nothing below it can be missing
        least, inside = F.greatest(least, F.lit(start)), inside & (F.col("o") > start)
    inner = _hole(least, F.col("o") - 1, F.col("opened"), F.col("opened_us"))
    parts, some = [F.when(inside, inner)], inside
    if start is not None:
        lacking = (F.col("bad") == GOOD) & F.col("below").isNull() & (F.col("o") > start)
        parts.append(F.when(lacking, _hole(F.lit(start), F.col("o") - 1, F.lit(1), F.col("k_first"))))
        some |= lacking
    few = rows.where(some)  # saves making an array for each of the other rows
    found = few.select("g", "e", "size", F.inline(F.array_compact(F.array(*parts))))
    wide = "decimal(38,0)"  # numbers that do not count may lie further apart than a long can hold
    return found.withColumn("missing", F.col("last").cast(wide) - F.col("first").cast(wide) + 1)


def _hole(first: Column, last: Column, opened: Column, opened_us: Column) -> Column:

    named = {"first": first, "last": last, "opened": opened, "opened_us": opened_us}
    return F.struct(*(column.cast("bigint").alias(name) for name, column in named.items()))


def groups(rows: DataFrame) -> DataFrame:
    """Return the timelines: ``h``, ``g``, ``e``, ``n`` messages, ``o`` the lowest place, and the ends of the clock."""
    return rows.where("bad = 0 and below is null").select("h", "g", "e", "n", "o", "k_first", "k_last")


def is_placeholder(group: Column) -> Column:
    """Return whether a group's name is blank or a placeholder."""
    return F.lower(F.trim(group)).isin(*_BLANKS)
