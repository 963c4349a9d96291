"""Contradictions: ids that a group used for different messages, and the columns in which rivals differ."""

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.spark.audit.log import EPOCH, GOOD, GROUP, ROW, AuditLog
from inturn.spark.audit.report import Differ, FaultKind
from inturn.spark.columns.dataframe import quoted

LOOKED_AT: Final = 200
"""The number of contradicted places that are checked."""
_TOLD: Final = 5
_PLACE: Final = [*EPOCH, "place"]
_ID: Final = [*GROUP, "id"]


def differing(rows: DataFrame, log: AuditLog) -> list[Differ]:
    """Return the columns in which the messages of a place differ, the most frequent first.

    Args:
        rows: the telling rows with their verdicts.
        log: the log of the rows; the chosen messages are read from it again.
    """
    rival = F.exists("kinds", lambda kind: kind.isin(FaultKind.CONFLICT, FaultKind.TWO_WRITERS, FaultKind.TIE))
    places = rows.where(rival).select(*_PLACE).distinct().orderBy(*_PLACE).limit(LOOKED_AT)
    chosen = rows.join(F.broadcast(places), _PLACE).select(*_PLACE, *ROW)
    names = log.content_names
    whole = F.broadcast(chosen).join(log.messages(), list(ROW))
    values = [F.to_json(F.struct(F.col(f"message.{quoted(name)}"))) for name in names]
    sides = whole.groupBy(*_PLACE).agg(*(F.countDistinct(value).alias(f"n{at}") for at, value in enumerate(values)))
    differ = F.array(*(F.when(F.col(f"n{at}") > 1, name) for at, name in enumerate(names)))
    found = sides.select(F.array_compact(differ).alias("names")).groupBy("names").count().collect()
    total = sum(row["count"] for row in found)
    ranked = sorted(found, key=lambda row: (-row["count"], row.names))
    return [Differ(list(row.names), row["count"] / total) for row in ranked[:_TOLD] if row.names]


def marked_by_id(rows: DataFrame, keep: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return the rows with ``other``: whether an earlier message of the group has the same id and other content.

    Few logs have such messages, so the search does not sort the log.

    Args:
        rows: all rows of a log, see :data:`inturn.spark.audit.log.COLUMNS`.
        keep: function that caches a small table.
    """
    known = rows.where((F.col("status") == GOOD) & F.col("id").isNotNull())
    contents = known.repartition("group_hash").groupBy(*_ID).agg((F.min("content") < F.max("content")).alias("differ"))
    used_twice = keep(contents.where("differ").select(*_ID))
    if not used_twice.count():
        return rows.withColumn("other", F.lit(False))  # noqa: FBT003
    own = known.join(used_twice, _ID, "left_semi")
    first = keep(own.groupBy(*_ID).agg(F.min_by("content", F.struct(*ROW)).alias("first_content")))
    other = F.coalesce((F.col("status") == GOOD) & (F.col("content") != F.col("first_content")), F.lit(False))  # noqa: FBT003
    return rows.join(first, _ID, "left").select(*rows.columns, other.alias("other"))
