"""Columns in which contradicting messages differ: often one column that describes the delivery and is not content."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.spark.audit.log import AuditLog
from inturn.spark.audit.report import Differ, FaultKind
from inturn.spark.columns.dataframe import quoted

LOOKED_AT: Final = 200
"""The number of contradicted places that are checked."""
_TOLD: Final = 5
_PLACE: Final = ["h", "g", "e", "o"]


def differing(rows: DataFrame, log: AuditLog) -> list[Differ]:
    """Return the columns in which the messages of a place differ, the most frequent first.

    Args:
        rows: the telling rows with their verdicts.
        log: the log of the rows; the chosen messages are read from it again.
    """
    rival = F.exists("kinds", lambda kind: kind.isin(FaultKind.CONFLICT, FaultKind.TWO_WRITERS, FaultKind.TIE))
    places = rows.where(rival).select(*_PLACE).distinct().orderBy(*_PLACE).limit(LOOKED_AT)
    chosen = rows.join(F.broadcast(places), _PLACE).select(*_PLACE, "f", "m")
    names = log.content_names
    whole = F.broadcast(chosen).join(log.messages(), ["f", "m"])
    values = [F.to_json(F.struct(F.col(f"message.{quoted(name)}"))) for name in names]
    sides = whole.groupBy(*_PLACE).agg(*(F.countDistinct(value).alias(f"n{at}") for at, value in enumerate(values)))
    differ = F.array(*(F.when(F.col(f"n{at}") > 1, name) for at, name in enumerate(names)))
    found = sides.select(F.array_compact(differ).alias("names")).groupBy("names").count().collect()
    total = sum(row["count"] for row in found)
    ranked = sorted(found, key=lambda row: (-row["count"], row.names))
    return [Differ(list(row.names), row["count"] / total) for row in ranked[:_TOLD] if row.names]
