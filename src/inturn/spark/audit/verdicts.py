"""What each telling row says: which faults a message has, which revisions a group lacks."""

from typing import TYPE_CHECKING

from inturn.spark.audit.log import GOOD, NO_GROUP, NO_ORDER, UNREADABLE, Log
from inturn.spark.audit.passes import before, so_far, timelines
from inturn.spark.audit.report import Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BLANKS = ("", "na", "n/a", "nan", "null", "none", "nil", "undefined", "unknown", "-", "?")
"""What people write where there is no key."""


def judged(told: "DataFrame", log: Log) -> "DataFrame":
    """The telling rows with what they say.

    Returns:
        The rows with these columns more:

        * ``kinds``: the kinds of faults of the message, an array of texts, often empty.
        * ``copy``: whether an earlier message has its place.
        * ``positions``: of a late one, messages of the group since the first that overtook it, itself among them.
        * ``waited``: of a late one, the same in microseconds; null where there is no time.
        * ``behind``: of a late one, how far its place is behind the greatest so far.
        * ``size``, ``lowest``: of its group, the messages and the first place.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    place, top, good = F.col("o"), F.col("top"), F.col("bad") == GOOD
    own = timelines("o").orderBy("p")
    again = F.row_number().over(timelines("o", "c").orderBy("p")) > 1
    rows = told.select(
        "*",
        F.col("above").eqNullSafe(place).alias("copy"),
        again.alias("again"),
        (F.first("c").over(so_far(own)) != F.col("c")).alias("rival"),
        F.max("n").over(timelines()).alias("size"),
        F.min("o").over(timelines()).alias("lowest"),
    )
    rival = good & F.col("copy") & ~F.col("again")
    late = good & ~F.col("copy") & (place < top) if log.keys.place else F.lit(False)  # noqa: FBT003
    if log.counts:
        rows = rows.withColumn("writers", _two_writers(rival))
        rival_kind: Column = F.when(F.col("writers"), Kind.TWO_WRITERS).otherwise(Kind.CONFLICT)
    else:
        rival_kind = F.lit(str(Kind.TIE))
    # A number that starts again at the epoch's first message: only where no column says so.
    restart = good & (F.col("e") > 0) & (F.col("p") == 1) if log.counts and not log.keys.epoch else F.lit(False)  # noqa: FBT003
    no_id = good & F.col("i").isNull() if log.keys.id else F.lit(False)  # noqa: FBT003
    kinds = F.array(
        F.when(F.col("bad") == UNREADABLE, Kind.UNREADABLE)
        .when(F.col("bad") == NO_GROUP, Kind.NO_GROUP)
        .when(F.col("bad") == NO_ORDER, Kind.NO_ORDER),
        F.when(good & F.col("copy") & F.col("again"), Kind.DUPLICATE),
        F.when(rival, rival_kind),
        F.when(late, Kind.LATE),
        F.when(good & F.col("other"), Kind.ID_CONFLICT),
        F.when(restart, Kind.RESET),
        F.when(no_id, Kind.NO_ID),
    )
    return rows.select(
        "*",
        F.array_compact(kinds).alias("kinds"),
        F.when(late, F.col("p") - F.col("p_above")).alias("positions"),
        F.when(late, F.col("k") - F.col("k_above")).alias("waited"),
        F.when(late, top.cast("double") - place.cast("double")).alias("behind"),
    )


def _two_writers(rival: "Column") -> "Column":
    """Whether revisions that follow each other have rivals: then the group has two writers, not one slip."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    rivals = F.when(rival, F.col("o"))
    falling = timelines().orderBy(F.desc("o"), "p")
    lower = F.last(rivals, ignorenulls=True).over(before(falling))
    follows = rival & (lower == F.col("o") + 1)
    whole = timelines().rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return F.coalesce(F.max(follows).over(whole), F.lit(False))  # noqa: FBT003


def gaps(rows: "DataFrame", start: int | None) -> "DataFrame":
    """The holes in the groups' revisions.

    Args:
        rows: as :func:`judged` gives them.
        start: the first revision that a group should have; None where groups begin anywhere.

    Returns:
        For each hole: ``g``, ``e``, ``first`` and ``last`` missing, ``missing``: how many, ``size``: of the group,
        ``opened``: the place in which the first message beyond it arrived, ``opened_us``: the clock then.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    inner = rows.where((F.col("bad") == GOOD) & ~F.col("copy") & (F.col("above") - 1 > F.col("o"))).select(
        "g",
        "e",
        (F.col("o") + 1).alias("first"),
        (F.col("above") - 1).alias("last"),
        "size",
        F.col("p_above").alias("opened"),
        F.col("k_above").alias("opened_us"),
    )
    found = inner
    if start is not None:
        lacking = (F.col("bad") == GOOD) & F.col("below").isNull() & (F.col("o") > start)
        head = rows.where(lacking).select(
            "g",
            "e",
            F.lit(start).cast("bigint").alias("first"),
            (F.col("o") - 1).alias("last"),
            "size",
            F.lit(1).alias("opened"),
            F.col("k_first").alias("opened_us"),
        )
        found = inner.unionByName(head)
    wide = "decimal(38,0)"  # numbers that do not count may lie further apart than a long can say
    return found.withColumn("missing", F.col("last").cast(wide) - F.col("first").cast(wide) + 1)


def groups(rows: "DataFrame") -> "DataFrame":
    """The timelines: ``h``, ``g``, ``e``, ``n`` messages, ``o`` the lowest place, and the ends of the clock."""
    return rows.where("bad = 0 and below is null").select("h", "g", "e", "n", "o", "k_first", "k_last")


def is_placeholder(group: "Column") -> "Column":
    """Whether a group's name is a blank, or a word for nothing."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.lower(F.trim(group)).isin(*_BLANKS)
