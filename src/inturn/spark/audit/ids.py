"""Ids that a group used for different messages; few logs have any, so the search does not sort the log."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.spark.audit.log import GOOD

_ID = ["h", "g", "i"]


def marked(rows: DataFrame, keep: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return the rows with ``other``: whether an earlier message of the group has the same id and other content.

    Args:
        rows: all rows of a log, see :data:`inturn.spark.audit.log.COLUMNS`.
        keep: function that caches a small table.
    """
    known = rows.where((F.col("bad") == GOOD) & F.col("i").isNotNull())
    contents = known.repartition("h").groupBy(*_ID).agg(F.min("c").alias("least"), F.max("c").alias("most"))
    used_twice = keep(contents.where("least <> most").select(*_ID))
    if not used_twice.count():
        return rows.withColumn("other", F.lit(False))  # noqa: FBT003
    own = known.join(used_twice, _ID, "left_semi")
    first = keep(own.groupBy(*_ID).agg(F.min_by("c", F.struct("f", "m")).alias("c_id")))
    other = F.coalesce((F.col("bad") == GOOD) & (F.col("c") != F.col("c_id")), F.lit(False))  # noqa: FBT003
    return rows.join(first, _ID, "left").select(*rows.columns, other.alias("other"))
