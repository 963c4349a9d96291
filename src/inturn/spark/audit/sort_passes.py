"""Two sorts of a whole log, which leave only the telling messages.

The first pass reads each group in order of arrival, the second from its highest place down. Each pass keeps a few
running values, so that a row has the facts about earlier rows without a lookup. The cost grows like that of a sort. The
telling messages are those with a fault, or next to one, and the last row of each group, which has the group's totals.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.spark.audit.log import GOOD, AuditLog, Key

FIRST: Final = 1
"""The first revision of a group if neither the user nor the log gives another."""


def timelines(key: Key, *more: str) -> WindowSpec:
    """Return a window of the messages of each timeline."""
    return Window.partitionBy(*key, *more)


def before(window: WindowSpec) -> WindowSpec:
    """Return a window of all rows before a row."""
    return window.rowsBetween(Window.unboundedPreceding, -1)


def so_far(window: WindowSpec) -> WindowSpec:
    """Return a window of all rows before a row, and the row."""
    return window.rowsBetween(Window.unboundedPreceding, 0)


def follows_gap(place: Column, below: Column) -> Column:
    """Return whether a revision is missing between a row's place and the one below; safe at the ends of the range."""
    return F.try_add(below, F.lit(1)) < place


def telling(rows: DataFrame, key: Key, log: AuditLog) -> DataFrame:
    """Return the telling rows.

    Args:
        rows: all rows of a log, see :data:`inturn.spark.audit.log.COLUMNS`; and ``other``, whether an earlier message
            has its id and other content.
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
    arrivals = timelines(key).orderBy(*log.arrives)
    arrived = rows.select(
        "*",
        F.bitwise_not("place").alias("down"),  # unlike -o, this is defined for every number
        F.row_number().over(arrivals).alias("position"),
        F.max("place").over(so_far(arrivals)).alias("top"),
        (F.max("time").over(so_far(arrivals)) if with_time else nothing).alias("clock"),
    )
    falling = timelines(key).orderBy("down", "content", "position")
    place = F.col("place")
    placed = arrived.select(
        "*",
        F.lag("place").over(falling).alias("above"),
        F.lead("place").over(falling).alias("below"),
        (F.lag("content").over(falling) == F.col("content")).alias("alike"),
        F.row_number().over(falling).alias("rows_so_far"),
        F.min("position").over(so_far(falling)).alias("position_over"),
        (F.min("clock").over(so_far(falling)) if with_time else nothing).alias("clock_over"),
        F.min("position").over(before(falling)).alias("position_higher"),
        (F.min("clock").over(before(falling)) if with_time else nothing).alias("clock_higher"),
        (F.max("clock").over(so_far(falling)) if with_time else nothing).alias("clock_last"),
    )
    shared = (F.col("above") == place) | (F.col("below") == place)
    tells = F.col("below").isNull() | shared | F.col("other") | (F.col("status") != GOOD)
    if log.keys.place:
        tells |= place < F.col("top")
    if log.counts:
        tells |= follows_gap(place, F.col("below"))
        tells |= place < (FIRST if log.keys.start is None else log.keys.start)
    if log.keys.id:
        tells |= F.col("id").isNull()
    again = F.coalesce((F.col("above") == place) & F.col("alike"), F.lit(False))  # noqa: FBT003
    return placed.where(tells).withColumn("again", again).drop("alike")
