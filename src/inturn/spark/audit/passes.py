"""Two sorts of a whole log, and what is left of it: the messages that have something to tell.

The first pass goes through each group as it arrived, the second from its highest place down. Each keeps a few running
values, so a row knows what came before it without anybody looking back, and the cost grows as that of a sort. What is
left are the messages with a fault, or beside one, and the last row of each group, which knows the group's totals.
"""

from typing import TYPE_CHECKING, Final

from inturn.spark.audit.log import GOOD, Key, Log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec


FIRST: Final = 1
"""The first revision of a group where neither the user nor the log says otherwise."""


def timelines(key: Key, *more: str) -> "WindowSpec":
    """The messages of each timeline."""
    from pyspark.sql import Window

    return Window.partitionBy(*key, *more)


def before(window: "WindowSpec") -> "WindowSpec":
    """What comes before a row."""
    from pyspark.sql import Window

    return window.rowsBetween(Window.unboundedPreceding, -1)


def so_far(window: "WindowSpec") -> "WindowSpec":
    """What comes before a row, and the row."""
    from pyspark.sql import Window

    return window.rowsBetween(Window.unboundedPreceding, 0)


def follows_gap(place: "Column", below: "Column") -> "Column":
    """Whether a revision is missing between a row's place and the one below; also at the ends of the numbers."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.try_add(below, F.lit(1)) < place


def telling(rows: "DataFrame", key: Key, log: Log) -> "DataFrame":
    """The rows that have something to tell.

    Args:
        rows: all of a log, see :data:`inturn.spark.audit.log.COLUMNS`; and ``other``, whether its id is another's.
        key: what messages of one timeline share.
        log: what they are from.

    Returns:
        Rows that are sorted by ``key``, ``down``, ``c`` and ``p``, with these columns more:

        * ``p``: the place in which it arrived, from 1; ``k``: the clock of its group then.
        * ``top``: the greatest place that had arrived by then, its own among them.
        * ``down``: its place the other way round, so that sorting begins with the highest.
        * ``above``, ``below``: the place of the next row up and down; the same where several messages have one.
        * ``again``: whether an earlier message has its place and its content.
        * ``p_over``, ``k_over``: when the first message of its place or a higher one had arrived, of the rows so far.
        * ``p_higher``, ``k_higher``: the same of the rows before. In the first row of a place, those of higher places.
        * ``n``: rows so far; ``k_last``: the clock so far. In a group's last row, whose ``below`` is null, they are
          the group's; its ``k_over`` is the group's first, and its place the lowest.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    with_time = log.keys.time is not None
    nothing = F.lit(None).cast("bigint")
    rows = rows.repartition("h")
    arrivals = timelines(key).orderBy(*log.arrives)
    arrived = rows.select(
        "*",
        F.bitwise_not("o").alias("down"),  # unlike -o, it has a value for every number
        F.row_number().over(arrivals).alias("p"),
        F.max("o").over(so_far(arrivals)).alias("top"),
        (F.max("t").over(so_far(arrivals)) if with_time else nothing).alias("k"),
    )
    falling = timelines(key).orderBy("down", "c", "p")
    place = F.col("o")
    placed = arrived.select(
        "*",
        F.lag("o").over(falling).alias("above"),
        F.lead("o").over(falling).alias("below"),
        (F.lag("c").over(falling) == F.col("c")).alias("alike"),
        F.row_number().over(falling).alias("n"),
        F.min("p").over(so_far(falling)).alias("p_over"),
        (F.min("k").over(so_far(falling)) if with_time else nothing).alias("k_over"),
        F.min("p").over(before(falling)).alias("p_higher"),
        (F.min("k").over(before(falling)) if with_time else nothing).alias("k_higher"),
        (F.max("k").over(so_far(falling)) if with_time else nothing).alias("k_last"),
    )
    shared = (F.col("above") == place) | (F.col("below") == place)
    tells = F.col("below").isNull() | shared | F.col("other") | (F.col("bad") != GOOD)
    if log.keys.place:
        tells |= place < F.col("top")
    if log.counts:
        tells |= follows_gap(place, F.col("below"))
        tells |= place < (FIRST if log.keys.start is None else log.keys.start)
    if log.keys.id:
        tells |= F.col("i").isNull()
    again = F.coalesce((F.col("above") == place) & F.col("alike"), F.lit(False))  # noqa: FBT003
    return placed.where(tells).withColumn("again", again).drop("alike")
