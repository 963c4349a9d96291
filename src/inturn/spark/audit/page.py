"""A report as files: one HTML page that opens without a network, the JSON, and the offending messages as Parquet."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.errors import StoreError
from inturn.core.pipeline.order import Order
from inturn.core.words import counted, duration
from inturn.pages.template import environment, markup, name, number
from inturn.spark.audit import pictures
from inturn.spark.audit.log import GOOD, ROW, AuditLog
from inturn.spark.audit.report import AuditReport, Distribution, FaultKind, GroupSizes, GroupTimeline, Lateness
from inturn.spark.tables.storage import storage

if TYPE_CHECKING:
    from markupsafe import Markup

EXTRA: Final = "spark"
"""The extra that installs all packages that the page needs."""
PAGE, DOCUMENT, MESSAGES, GAPS, LAB = "report.html", "report.json", "messages", "gaps", "lab.html"
_MARK = ".inturn-audit"
_A_TIME: Final = 10**14
"""A greater place in an order that does not count is a time in microseconds: no other number is as large."""
_NOT_IN_FOLDERS: Final = {FaultKind.GAP: "gaps", FaultKind.PLACEHOLDER: None}
"""Kinds without messages, and the folder in which they are written, if any."""


class ReportFolder:
    """A folder for one report; the files of an earlier audit are replaced, a folder with other files is refused.

    Args:
        location: a directory, or a URL that Spark and :mod:`inturn.spark.tables.storage` know.

    Raises:
        StoreError: if it contains files that no audit wrote.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self._files = storage(location)
        if not self._files.exists(_MARK):
            strangers = [name for name in self._files.names("") if not name.startswith(".")]
            if strangers:
                msg = f"{self._files.location} contains {strangers[0]}, which no audit wrote; use another folder"
                raise StoreError(msg)
            self._files.create(_MARK, b"inturn audit created the files in this folder, and overwrites them\n")

    def write_messages(self, rows: DataFrame, log: AuditLog) -> None:
        """Write the complete messages with faults, with one folder per kind."""
        place = F.timestamp_micros("place") if log.is_time else F.col("place")
        faults = rows.where("kinds is not null").select(
            *ROW,
            F.explode("kinds").alias("kind"),
            "group",
            F.when(F.col("status") == GOOD, F.col("epoch")).alias("epoch"),
            (place if log.keys.place else F.lit(None).cast("bigint")).alias("place"),
            "position",
            F.col("positions").alias("late_positions"),
            (F.col("waited") / 1e6).alias("late_s"),
        )
        messages = faults.join(log.messages(), list(ROW), "left").drop(*ROW)
        messages.write.mode("overwrite").partitionBy("kind").parquet(self._files.full_name(MESSAGES))

    def write_gaps(self, holes: DataFrame) -> None:
        """Write the gaps, one row each."""
        table = holes.select(
            *("group", "epoch", "first", "last", "missing", "open", "age"),
            (F.col("age_us") / 1e6).alias("age_s"),
            F.timestamp_micros("opened_us").alias("opened"),
        )
        table.coalesce(1).write.mode("overwrite").parquet(self._files.full_name(GAPS))

    def write(self, report: AuditReport) -> AuditReport:
        """Write the page and the JSON, and return the report with the names of the files."""
        names = {"page": PAGE, "document": DOCUMENT, "messages": MESSAGES}
        if report.gaps is not None:
            names["gaps"] = GAPS
        return self._write_report(
            replace(report, files={kind: self._files.full_name(name) for kind, name in names.items()})
        )

    def add_lab(self, report: AuditReport, page: str) -> AuditReport:
        """Write the lab's page into the folder, link the other pages to it, and return the report with its file.

        Args:
            report: report that was written to this folder.
            page: the lab's page, as HTML.
        """
        self._files.replace(LAB, page.encode())
        return self._write_report(replace(report, files={**report.files, "lab": self._files.full_name(LAB)}))

    def _write_report(self, report: AuditReport) -> AuditReport:
        self._files.replace(PAGE, render(report).encode())
        self._files.replace(DOCUMENT, json.dumps(report.to_dict(), ensure_ascii=False, indent=1).encode())
        return report


def render(report: AuditReport) -> str:
    """Return the page.

    Raises:
        SetupError: if jinja2 is not installed.
    """
    templates = environment(Path(__file__).parent, EXTRA)
    worst = report.worst if report.keys.place else [_as_first_seen(timeline) for timeline in report.worst]
    templates.filters["duration"] = duration
    is_time = _is_time(report)
    return templates.get_template("page.html.j2").render(
        report=report,
        headline=headline(report),
        folder=lambda kind: _NOT_IN_FOLDERS.get(kind, f"messages/kind={kind}"),
        lateness=[] if report.late is None else _lateness(report.late, is_time=is_time),
        pictures=_pictures(report),
        worst=[_timeline(timeline, is_time=is_time) for timeline in worst],
        legend=[(markup(icon), words) for icon, words in pictures.legend(worst)],
        epochs_in_gaps=report.gaps is not None and any(gap.epoch for gap in report.gaps.largest),
    )


def headline(report: AuditReport) -> str:
    """Return the result in one sentence."""
    if not report.messages:
        return "No messages, so no order can be determined"
    read = f"{counted(report.messages, 'message')} of {counted(report.groups, 'group')}"
    if report.found:
        return f"{read}: {counted(len(report.found), 'kind')} of faults"
    if report.gaps is not None and report.gaps.open:
        return f"{read}: no faults, but {counted(report.gaps.open_revisions, 'revision')} may still arrive"
    if report.keys.place is None:
        return f"{read}: no faults, but no column gives their order"
    return f"{read}: no faults"


def _is_time(report: AuditReport) -> bool:
    """Return whether places are times."""
    if report.keys.order_by is None:
        return False
    own = [column.kind for column in report.columns if column.name == report.keys.order_by]
    named = report.grade is not None and Order.grades[report.grade.name].has_times
    return named or "time" in own or any(point.place > _A_TIME for group in report.worst for point in group.points)


def _lateness(late: Lateness, *, is_time: bool) -> list[tuple[str, list[str]]]:
    """Return the rows of the lateness table: the measure, and the median, the 99% quantile and the maximum."""
    rows = [("messages of the group that arrived in between", late.positions, False)]
    if late.seconds is not None:
        rows.append(("by the clock of the log", late.seconds, True))
    rows.append(("distance of their place from the greatest so far", late.behind, is_time))
    return [
        (measure, [duration(value) if timed else number(value) for value in (values.median, values.p99, values.most)])
        for measure, values, timed in rows
    ]


def _pictures(report: AuditReport) -> dict[str, "Markup"]:
    """Return the pictures that have data to draw."""
    drawings: dict[str, str] = {}
    if report.late is not None:
        for measure, values in (("positions", report.late.positions), ("seconds", report.late.seconds)):
            if values is None or not values.bars:
                continue
            timed = measure == "seconds"
            marks = {"median": values.median, "99% at most": values.p99, "maximum": values.most}
            labels = [f"{mark} {duration(value) if timed else number(value)}" for mark, value in marks.items()]
            words = f"How late messages are, {'by the clock' if timed else 'in messages of their group'}: "
            unit = "late by" if timed else "late by (messages of the group)"
            drawings[measure] = pictures.histogram(values, marks, words + ", ".join(labels), seconds=timed, unit=unit)
    if report.sizes is not None and report.sizes.bars and report.groups > 1:
        drawings |= _size_pictures(report.sizes)
    if report.gaps is not None and report.gaps.over:
        span = None
        if report.began is not None and report.ended is not None:
            span = (report.began.timestamp(), report.ended.timestamp())
        words = f"When gaps opened: {report.gaps.lost:,} lost, {report.gaps.open:,} that may still close"
        drawings["gaps"] = pictures.gaps(report.gaps, span, words)
    return {key: markup(picture) for key, picture in drawings.items()}


def _size_pictures(sizes: GroupSizes) -> dict[str, str]:
    most = float(max(count for _, count in sizes.largest))
    marks = {"median": sizes.median, "largest": most}
    words = f"Number of messages per group: median {number(sizes.median)}, largest {number(most)}"
    values = Distribution(sizes.median, most, most, sizes.bars)
    drawings = {"sizes": pictures.histogram(values, marks, words, unit="messages per group")}
    if sizes.consumers:
        costs = [f"{cost.hashed:,.1f} times with {cost.consumers:,}" for cost in sizes.consumers]
        words = (
            f"Time that consumers need, compared with equal shares, if groups are assigned by hash: {', '.join(costs)}"
        )
        drawings["consumers"] = pictures.consumer_costs(sizes, words)
    return drawings


def _as_first_seen(timeline: GroupTimeline) -> GroupTimeline:
    """Return a group without an order: messages in the order first seen, copies next to their first."""
    seen: dict[int, int] = {}
    points = [replace(point, place=seen.setdefault(point.place, len(seen) + 1)) for point in timeline.points]
    return replace(timeline, points=points)


def _timeline(timeline: GroupTimeline, *, is_time: bool) -> "tuple[GroupTimeline, str, str, Markup | None]":
    """Return a group with its faults, the number of its messages and which are shown, and its picture."""
    faults = ", ".join(f"{kind} {count:,}" for kind, count in timeline.faults.items())
    part, points = counted(timeline.messages, "message"), timeline.points
    if not points:
        return timeline, faults, part, None
    if len(points) < timeline.messages:
        part += f", showing {points[0].position:,} to {points[-1].position:,}"
    words = f"Group {name(timeline.group)} in order of arrival, {part}: {faults}"
    return timeline, faults, part, markup(pictures.timeline(timeline, words, is_time=is_time))
