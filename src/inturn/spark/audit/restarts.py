"""Groups whose numbers start again without a column that shows it, such as a device that was reset.

A restart looks like a conflict at first: revision 1 arrives again with other content. The next messages distinguish it
from a conflict and from a second writer: the new timeline repeats the old revisions, one after the other, before the
group continues beyond them. Only groups in which a first revision was contradicted, or in which the numbers fell
from far above to 0 or 1, are checked.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.spark.audit.log import GROUP, ROW
from inturn.spark.audit.sort_passes import before, so_far, timelines

FALL: Final = 100
"""A group that begins in the middle has restarted if it falls by more than this, to 0 or 1."""
SURELY: Final = 10
"""A group that ends with its first revision, contradicted, has restarted if it had been at least this far above it."""


def may_start(*, rival: Column, first: Column) -> Column:
    """Return whether a telling row may be the first of a new timeline.

    Args:
        rival: whether it contradicts an earlier one of its place.
        first: whether it is the first of its place.
    """
    again = rival & (F.col("place") == F.col("lowest")) & (F.col("top") > F.col("place"))
    fell = first & F.col("place").isin(0, 1) & (F.col("top") > F.col("place") + FALL)
    return again | fell


def divided(rows: DataFrame) -> DataFrame:
    """Return the rows of suspected groups, with each of a group's timelines as an epoch of its own, from 0.

    A copy belongs to the timeline of its original.
    """
    arrivals = timelines(GROUP).orderBy(*ROW)
    backwards = timelines(GROUP).orderBy(*map(F.desc, ROW))
    place, top = F.col("place"), F.col("top")
    seen = rows.select(
        "*",
        F.min("place").over(timelines(GROUP)).alias("lowest"),
        (F.first("content").over(so_far(timelines(GROUP, "place").orderBy(*ROW))) != F.col("content")).alias("rival"),
        (F.row_number().over(timelines(GROUP, "place", "content").orderBy(*ROW)) == 1).alias("fresh"),
    )
    counted = seen.select(
        "*",
        F.max("place").over(before(arrivals)).alias("top"),
        F.min("place").over(before(arrivals)).alias("bottom"),
        F.sum((F.col("rival") & F.col("fresh")).cast("bigint")).over(so_far(arrivals)).alias("rivals"),
    )
    beyond = F.last(F.when(place > top, F.col("rivals")), ignorenulls=True).over(before(backwards))
    ahead = counted.select("*", beyond.alias("beyond"), F.max("rivals").over(timelines(GROUP)).alias("all_rivals"))
    gave_again = F.coalesce("beyond", "all_rivals") - F.col("rivals") + 1
    restated = (gave_again >= 2) & (gave_again >= top - place)
    unfinished = F.col("beyond").isNull() & ((gave_again >= 2) | (top - place >= SURELY))
    again = F.col("rival") & (place == F.col("lowest")) & (top > place) & (restated | unfinished)
    fell = place.isin(0, 1) & (F.col("bottom") > place + FALL)
    restarts = (F.col("fresh") & (again | fell)).cast("bigint")
    numbered = ahead.select("*", F.coalesce(F.sum(restarts).over(so_far(arrivals)), F.lit(0)).alias("timeline"))
    own = F.first("timeline").over(so_far(timelines(GROUP, "place", "content").orderBy(*ROW)))
    return numbered.select(*(own.alias("epoch") if name == "epoch" else name for name in rows.columns))
