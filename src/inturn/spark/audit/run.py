"""The audit of a DataFrame from end to end: read, sort twice, count, judge; and its messages for the lab."""

import time as clock
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.errors import InputError
from inturn.core.pipeline.order import Order
from inturn.core.values.duration import Duration, duration_us
from inturn.core.words import time_of
from inturn.pages.template import check_installed
from inturn.spark.audit import findings, grade, rating
from inturn.spark.audit.log import GOOD, ROW, AuditLog
from inturn.spark.audit.page import EXTRA, ReportFolder
from inturn.spark.audit.report import AuditReport, ColumnRating, FaultCount, FaultKind, LogColumns, ProposedGrade
from inturn.spark.audit.values import cast_notes, column, resolve_path, text_column_notes
from inturn.spark.audit.verdicts import CacheFrame, add_verdicts, find_gaps, mark_below_start
from inturn.spark.columns.dataframe import check_reserved_names, is_case_sensitive
from inturn.spark.columns.spark_types import check_described
from inturn.spark.errors import input_errors
from inturn.spark.local.csv import unique_names

_RIVALS: Final = {FaultKind.CONFLICT, FaultKind.TWO_WRITERS, FaultKind.TIE}


def audit(  # noqa: PLR0913 - each names one thing about the log
    df: DataFrame,
    *,
    group: str,
    order: str | None = None,
    order_by: str | None = None,
    id: str | None = None,  # noqa: A002 - as the pipeline calls it
    epoch: str | None = None,
    arrival: str | None = None,
    time: str | None = None,
    start: int | None = None,
    ignore: Sequence[str] = (),
    patience: Duration | None = None,
    out: str | None = None,
    source: str = "messages",
    files: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> AuditReport:
    """Check a log's order: copies, conflicts, gaps, late messages, and the grade of order that fits.

    It takes two sorts of the log, in Spark's own expressions; docs/audit.md explains each figure. A column may be named
    by its path: ``payload.account_id``.

    Args:
        df: the messages, on classic Spark or Connect.
        group: column of the group.
        order: column of the revision, a count. Without this and ``order_by`` every column that could carry an order is
            rated, and the best is used.
        order_by: instead of ``order``, a column that orders without counting: a time, or a number with holes.
        id: column of the deduplication id.
        epoch: column whose higher value starts a group's timeline again.
        arrival: column of the order of arrival; without it, the order of rows in their files, and of files by name.
        time: column of the log's clock; without it, the likeliest column of times.
        start: first revision of a group; without it, 0 or 1 if most groups begin there, else groups begin anywhere.
        ignore: columns that are not part of the content, such as a time of receipt.
        patience: age beyond which an open gap is a loss; without it, the greatest lateness of a message in this log.
        out: a folder for the page, the JSON and the offending messages as Parquet; files of an earlier audit there are
            replaced.
        source: name of the log in the report.
        files: the paths of the files that ``df`` reads, in order of arrival; without it, by name.
        kinds: the types of the columns by their paths, if ``df`` has them as text.

    Raises:
        InputError: if a column does not exist, or does not fit its role; if the data cannot be read.
        PipelineError: if ``patience`` is not a duration.
        SetupError: if ``out`` is given and jinja2 is not installed.
        StoreError: if the folder cannot be written, or holds files that no audit wrote.
    """
    began = clock.monotonic()
    left_out = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    keys = LogColumns(group, order, order_by, id, epoch, arrival, time, start, left_out)
    patience_us = None if patience is None else duration_us(patience, label="audit(patience=…)")
    if out is not None:
        check_installed(EXTRA)
    folder = None if out is None else ReportFolder(out)
    with input_errors(f"cannot audit {source}"):
        check_described(df)
        check_reserved_names(df)
        df = _with_unique_names(df)
        log = AuditLog.of(df, keys, files, kinds)
        columns = [] if keys.place else rating.rate_columns(log)
        best = columns[0] if columns else None
        if best is not None and best.grade is not None:
            counts = Order.grades[best.grade].has_gaps
            keys = replace(keys, order=best.name) if counts else replace(keys, order_by=best.name)
            log = AuditLog.of(df, keys, files, kinds)
        report = _run_audit(log, source, patience_us, columns, folder)
    report = replace(report, seconds=clock.monotonic() - began)
    return report if folder is None else folder.write(report)


def _run_audit(
    log: AuditLog, source: str, patience_us: int | None, columns: list[ColumnRating], folder: ReportFolder | None
) -> AuditReport:
    with _cached_frames() as cache:
        rows = add_verdicts(log, cache)
        per_group = cache(findings.by_group(rows))
        seen = findings.overview(per_group)
        keys, found_gaps, holes = log.keys, None, None
        if log.shows_gaps:
            keys = replace(keys, start=seen.start(keys.start))
            if keys.start is not None and seen.lowest is not None and seen.lowest < keys.start:
                rows = mark_below_start(rows, keys.start)
        fault_counts, unplaced = findings.faults(rows, seen)
        found_late = findings.lateness(rows, log) if FaultKind.LATE in fault_counts else None
        if log.shows_gaps:
            holes, patience = find_gaps(rows, keys.start, found_late, seen.ended_us, patience_us)
            found_gaps, in_groups = findings.gap_summary(holes, patience, seen)
            if found_gaps.lost:
                fault_counts[FaultKind.GAP] = FaultCount(found_gaps.lost_revisions, in_groups)
        samples = findings.samples(rows, log, blanks=FaultKind.PLACEHOLDER in fault_counts) if fault_counts else {}
        if FaultKind.NO_ORDER in fault_counts:
            samples[FaultKind.NO_ORDER] = [*log.invalid_places(), *samples.get(FaultKind.NO_ORDER, [])][
                : findings.SAMPLES
            ]
        report = AuditReport(
            source=source,
            keys=keys,
            arrived=log.arrival_text,
            messages=seen.messages + unplaced,
            groups=seen.groups,
            began=None if seen.began_us is None else time_of(seen.began_us),
            ended=None if seen.ended_us is None else time_of(seen.ended_us),
            found={kind: fault_counts[kind] for kind in FaultKind if kind in fault_counts},
            samples={kind: samples[kind] for kind in FaultKind if kind in samples},
            gaps=found_gaps,
            late=found_late,
            differ=findings.differing_columns(rows, log) if _RIVALS & fault_counts.keys() else [],
            epochs=seen.epochs if keys.epoch else 0,
            sizes=findings.group_sizes(per_group, seen),
            columns=columns,
            texts=[] if log.kinds is None else text_column_notes(log.df, log.kinds),
            grade=None,
        )
        outcomes = [] if report.epochs else findings.verdict_inputs(rows, log, keys.start)
        report = replace(report, grade=_grade(report, log, seen, outcomes))
        if folder is not None:
            folder.write_messages(rows, log)
            if holes is not None:
                folder.write_gaps(holes)
            report = replace(report, worst=findings.worst_timelines(rows, holes, log))
    return report


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
        log = AuditLog.of(_with_unique_names(df), report.keys, files)
        lasted = F.lit(None) if duration is None else column(log.df, resolve_path(log.df, duration))
        rows = log.rows(lasted.cast("double").alias("duration")).where(F.col("status") == GOOD).orderBy(*ROW)
        rows = rows if most is None else rows.limit(most)
        for row in rows.select("group", "place", "time", "duration").toLocalIterator():
            yield row.group, row.place, row.time, row.duration


def _with_unique_names(df: DataFrame) -> DataFrame:
    """Return the messages with unique column names; repeated ones get a number."""
    names = unique_names(df.columns)
    exact = is_case_sensitive(df.sparkSession)
    if names == df.columns or (exact and len(set(df.columns)) == len(df.columns)):
        return df
    return df.toDF(*names)


@contextmanager
def _cached_frames() -> Iterator[CacheFrame]:
    """Yield a function that caches a DataFrame for the queries of the block."""
    with ExitStack() as stack:

        def cache(df: DataFrame) -> DataFrame:
            df.persist()  # pyspark's MEMORY_AND_DISK would serialize it, and every query read it back
            stack.callback(df.unpersist)
            return df

        yield cache


def _grade(
    report: AuditReport, log: AuditLog, size: findings.Overview, outcomes: list[grade.VerdictInputs]
) -> ProposedGrade | None:
    if not size.messages:
        return None
    no_id = report.keys.id is None and not log.shows_gaps
    seen = grade.Evidence(
        log.events.mapped_columns(report.keys),
        log.is_time,
        size.messages,
        report.found,
        report.gaps,
        report.late,
        report.differ,
        rating.unique_column(log) if no_id else None,
        log.unit,
        outcomes,
        report.messages - size.messages,
        cast_notes(log.df, log.keys, is_time=log.is_time, kinds=log.kinds),
        size.lowest,
    )
    return grade.propose_grade(seen, _pipeline_name(report.source), log.events.row_field(report.keys.group))


def _pipeline_name(source: str) -> str:
    """Return a name for the pipeline: that of the file or folder, without its ending."""
    last = source.rstrip("/").rsplit("/", 1)[-1].split(".", 1)[0]
    return "".join(character if character.isalnum() else "-" for character in last).strip("-") or "messages"
