"""The messages of an audited log in the order of arrival, with the group, place and time that the lab needs."""

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.errors import InputError
from inturn.spark.audit.log import GOOD, ROW, AuditLog
from inturn.spark.audit.report import AuditReport
from inturn.spark.audit.run import named_once
from inturn.spark.audit.values import column, resolved
from inturn.spark.errors import input_errors


def arrivals(
    df: DataFrame,
    report: AuditReport,
    *,
    files: Sequence[str] | None = None,
    duration: str | None = None,
    most: int | None = None,
) -> Iterator[tuple[str, int, int | None, float | None]]:
    """Return the messages that have a group and a place, in the order of arrival.

    Args:
        df: the messages that were audited.
        report: the audit's report, for the columns.
        files: the files that ``df`` reads, in order of arrival; without it, by name.
        duration: column of the handler times, in milliseconds.
        most: use only the first N messages.

    Returns:
        For each message its group, its place, the log's clock in microseconds and the handler time in milliseconds.

    Raises:
        InputError: if no order is known, or the column does not exist.
    """
    if report.keys.place is None:
        raise InputError("no column gives the order of these messages; name one with --order or --order-by")
    with input_errors(f"cannot read {report.source}"):
        log = AuditLog.of(named_once(df), report.keys, files)
        lasted = F.lit(None) if duration is None else column(log.df, resolved(log.df, duration))
        rows = log.rows(lasted.cast("double").alias("duration")).where(F.col("status") == GOOD).orderBy(*ROW)
        rows = rows if most is None else rows.limit(most)
        for row in rows.select("group", "place", "time", "duration").toLocalIterator():
            yield row.group, row.place, row.time, row.duration
