"""``inturn audit``: the faults of a log, as tables in the terminal, and as a page with --out."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inturn.cli.options import AsJson, MessageFileOptions, SparkMaster
from inturn.cli.output import cell, plain_console, print_json, print_line, visible_lines
from inturn.core.errors import InputError
from inturn.core.words import counted, duration

if TYPE_CHECKING:
    from inturn.spark.audit.report import AuditReport, GapSummary, GroupSizes, Lateness, ProposedGrade


@dataclass(frozen=True, kw_only=True)
class AuditColumns:
    """The columns of a log, and what they mean; see :func:`inturn.spark.audit.run.audit`."""

    group: Annotated[str, "Column with the group; a nested field is a path, such as payload.account_id."]
    order: Annotated[
        str | None, "Column with the revision, a count; without an order, candidate columns are rated."
    ] = None
    order_by: Annotated[
        str | None, "Column that orders without counting: a time, or a number with holes (instead of --order)."
    ] = None
    id: Annotated[str | None, "Column with the deduplication id."] = None
    epoch: Annotated[str | None, "Column with the epoch: a higher value restarts the group."] = None
    arrival: Annotated[
        str | None, "Column with the order of arrival (default: the order of the rows in the files)."
    ] = None
    time: Annotated[str | None, "Column with the time of each message (default: the most likely time column)."] = None
    start: Annotated[int | None, "First revision of each group (default: the value with which most groups start)."] = (
        None
    )
    ignore: Annotated[list[str] | None, "Column that does not belong to the content (repeatable)."] = None
    patience: Annotated[
        str | None, "Age at which an open gap counts as lost, '10 minutes' (default: the maximum lateness)."
    ] = None


@dataclass(frozen=True, kw_only=True)
class AuditFiles(MessageFileOptions):
    """The format of files, which may be a Delta table."""

    format_: Annotated[
        str | None, "Format of the files: parquet, json (JSON lines), csv or delta (default: by their names)."
    ] = None


def audit(
    path: Annotated[str, typer.Argument(help="Log: a file, a folder, a Delta table, or a URI that Spark reads.")],
    *,
    columns: AuditColumns,
    out: Annotated[str | None, "Folder for the page, the JSON report, and the faulty messages as Parquet."] = None,
    files: AuditFiles,
    master: SparkMaster = "local[*]",
    with_lab: Annotated[
        bool, typer.Option("--lab", help="Also run the lab on similar messages, to compare messaging designs.")
    ] = False,
    duration: Annotated[str | None, "With --lab: column with the handler times, in milliseconds."] = None,
    as_json: AsJson = False,
    strict: Annotated[bool, "Exit with 1 if the log has faults."] = False,
    allow: Annotated[list[str] | None, "With --strict: kind of fault to accept, such as late (repeatable)."] = None,
) -> None:
    """Report duplicates, conflicts, gaps and late messages of a log, and its grade of order."""
    from inturn.cli.lab_study import MOST_READ, document, rendered, study_like
    from inturn.cli.lab_study import show as show_study
    from inturn.lab.page.audit_link import AuditLink
    from inturn.pages.template import check_installed
    from inturn.spark.audit.files import read_log
    from inturn.spark.audit.page import EXTRA, PAGE, ReportFolder
    from inturn.spark.audit.report import fault_kinds
    from inturn.spark.audit.run import arrivals
    from inturn.spark.audit.run import audit as examine
    from inturn.spark.local.progress import show_progress
    from inturn.spark.local.session import running_session

    fault_kinds(allow or ())
    if duration is not None and not with_lab:
        raise InputError("--duration needs --lab; add --lab, or omit --duration")
    if out is not None:
        check_installed(EXTRA)
    with running_session(master) as spark, show_progress(spark, f"audit: {path}", quiet=as_json):
        log = read_log(spark, path, files.format_, files.dialect(), change_events=files.has_change_events)
        report = examine(
            log.df,
            **asdict(columns) | {"ignore": tuple(columns.ignore or ())},
            out=out,
            source=path,
            files=log.files,
            kinds=log.kinds,
        )
        study = None
        if with_lab:
            messages = arrivals(log.df, report, files=log.files, duration=duration, most=MOST_READ)
            study = study_like(messages, path, quiet=as_json)
            if out is not None:
                report = ReportFolder(out).add_lab(report, rendered(study, AuditLink(PAGE, path)))
    if as_json:
        print_json(report.to_dict() if study is None else report.to_dict() | {"lab": document(study)})
    else:
        show(report, plain_console())
        if study is not None:
            show_study(study, plain_console())
    if strict and report.unexpected_faults(tuple(allow or ())):
        raise typer.Exit(1)


def show(report: "AuditReport", console: Console) -> None:
    """Print the report as tables and sentences."""
    span = (
        "" if report.began is None or report.ended is None else f", {report.began:%Y-%m-%d} to {report.ended:%Y-%m-%d}"
    )
    clock = "no clock" if report.keys.time is None else f"clock: {report.keys.time}"
    print_line(
        console,
        f"{report.source}: {counted(report.messages, 'message')} of {counted(report.groups, 'group')}{span}",
        style="bold",
    )
    print_line(console, f"arrival: {report.arrived}; {clock}; {report.seconds:.1f} s", style="dim")
    if report.columns:
        console.print(_columns(report))
    for sentence in report.texts:
        print_line(console, sentence, style="yellow")
    if report.found:
        table = Table("found", "messages", "groups", "meaning", "examples", box=None, pad_edge=False)
        table.columns[1].justify = table.columns[2].justify = "right"
        for kind, finding in report.found.items():
            groups = f"{finding.groups:,}" if finding.groups else ""
            samples = "; ".join(report.samples.get(kind, []))
            table.add_row(
                Text(kind, "red"),
                f"{finding.messages:,}",
                groups,
                kind.meaning,
                Text(visible_lines(samples), overflow="ellipsis"),
            )
        console.print(table)
    elif report.messages:
        print_line(console, "No faults found.", style="green")
    for line in filter(None, (_gaps(report.gaps), _late(report.late), _epochs(report), _sizes(report.sizes))):
        print_line(console, line)
    _grade(report.grade, console)
    for label, where in report.files.items():
        print_line(console, f"{label:9} {where}")


def _grade(grade: "ProposedGrade | None", console: Console) -> None:
    if grade is None:
        print_line(console, "The order cannot be assessed: no message has a place in it.")
        return
    print_line(console, f"Order: {grade.name}", style="bold")
    for sentence in grade.evidence:
        print_line(console, f"  {sentence}")
    for sentence in grade.needs:
        print_line(console, f"  Needed: {sentence}", style="yellow")
    for text in filter(None, (grade.mapping, grade.line)):
        print_line(console, f"  {text}", style="cyan")
    if grade.gives:
        print_line(console, f"  {grade.outcome}")


def _gaps(gaps: "GapSummary | None") -> str:
    if gaps is None or not (gaps.lost or gaps.open):
        return ""
    named = "; ".join(
        f"{gap.group} {gap.first}" + (f"-{gap.last}" if gap.last > gap.first else "") for gap in gaps.largest[:3]
    )
    words = f"Gaps: {gaps.lost:,} lost ({gaps.lost_revisions:,} revisions)"
    if gaps.open:
        age = "" if gaps.oldest_open_s is None else f", the oldest for {duration(gaps.oldest_open_s)}"
        words += f", {gaps.open:,} open ({gaps.open_revisions:,} revisions that may still arrive{age})"
    return f"{words}: {named}. A gap counts as lost after {gaps.patience}."


def _late(late: "Lateness | None") -> str:
    if late is None:
        return ""
    by = late.positions
    words = f"Lateness in messages of the group: median {by.median:,.0f}, 99% {by.p99:,.0f}, maximum {by.most:,.0f}"
    if late.seconds is not None:
        latency = late.seconds
        words += f"; in time: {duration(latency.median)}, {duration(latency.p99)}, {duration(latency.most)}"
    return f"{words}."


def _epochs(report: "AuditReport") -> str:
    return f"Epochs: {report.epochs:,} groups restart, according to {report.keys.epoch}." if report.epochs else ""


def _sizes(sizes: "GroupSizes | None") -> str:
    if sizes is None:
        return ""
    name, count = sizes.largest[0]
    cost = next(row for row in sizes.consumers if row.consumers == 16)
    half = f"median {sizes.median:,.0f} messages"
    return (
        f"Groups: {half}, largest {count:,} ({name}, {sizes.share:.1%}). With 16 consumers, order costs "
        f"{cost.free:.1f}x the time of an equal share, {cost.hashed:.1f}x if a hash assigns the groups."
    )


def _columns(report: "AuditReport") -> Table:
    table = Table("order candidate", "grade", "reason", box=None, pad_edge=False)
    for column in report.columns:
        chosen = column.name == report.keys.place
        table.add_row(
            cell(column.name, "bold" if chosen else ""),
            cell(column.grade or "none"),
            Text(visible_lines(column.verdict)),
        )
    return table
