"""``inturn audit``: the faults of a log, as tables in the terminal, and as a page with --out."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inturn.cli.options import Delimiter, Encoding, Null, Quote, dialect_of
from inturn.cli.texts import cell, lines, plain_console, print_line, say_json
from inturn.core.errors import InputError
from inturn.core.words import counted

if TYPE_CHECKING:
    from inturn.spark.audit.report import AuditReport, Gaps, Grade, Late, Sizes


def audit(
    path: Annotated[str, typer.Argument(help="The log: a file, a folder, a Delta table, or a URI that Spark reads.")],
    group: Annotated[str, typer.Option(help="The column that names the group; payload.account_id looks inside.")],
    order: Annotated[
        str | None, typer.Option(help="The column with the revision, a count. Without an order, columns are rated.")
    ] = None,
    order_by: Annotated[
        str | None, typer.Option(help="Instead: a column that orders without counting, a time or a number with holes.")
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The column with the deduplication id.")] = None,
    epoch: Annotated[str | None, typer.Option(help="The column whose higher value starts a group again.")] = None,
    arrival: Annotated[
        str | None, typer.Option(help="The column with the order of arrival; default: as the rows stand in the files.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="The column with the clock; default: the likeliest of times.")
    ] = None,
    start: Annotated[int | None, typer.Option(help="The first revision of a group; default: as most groups.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A column that is not content; may be given again.")] = None,
    patience: Annotated[
        str | None,
        typer.Option(help="'10 minutes': an older open gap is a loss; default: as late as messages have been."),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="A folder for the page, the JSON and the offending messages as Parquet.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="parquet, json (JSON lines), csv or delta; default: by the names.")
    ] = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Encoding = None,
    null: Null = None,
    master: Annotated[
        str, typer.Option(help="Where Spark runs: local[*], spark://…, or sc://… for Connect.")
    ] = "local[*]",
    with_lab: Annotated[
        bool, typer.Option("--lab", help="Run the lab on messages like these: what each design would do with them.")
    ] = False,
    duration: Annotated[
        str | None, typer.Option(help="With --lab: the column with the handler times, in milliseconds.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON document.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything is wrong.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="With --strict: a fault that is none here, such as late; may be given again."),
    ] = None,
) -> None:
    """Say what is true of a log's order: copies, conflicts, gaps, late messages, and which grade of order it has."""
    from inturn.cli.lab_study import MOST_READ, document, rendered, study_like
    from inturn.cli.lab_study import show as show_study
    from inturn.lab.page.audit_link import AuditLink
    from inturn.pages.template import check_installed
    from inturn.spark.audit.arrivals import arrivals
    from inturn.spark.audit.files import read_log
    from inturn.spark.audit.folder import PAGE, Folder
    from inturn.spark.audit.page import EXTRA
    from inturn.spark.audit.report import allowed
    from inturn.spark.audit.run import audit as examine
    from inturn.spark.local.progress import watching
    from inturn.spark.local.session import running

    allowed(allow or ())
    if duration is not None and not with_lab:
        raise InputError("--duration belongs to --lab; add it, or leave the column out")
    if out is not None:
        check_installed(EXTRA)
    with running(master) as spark, watching(spark, f"audit: {path}", quiet=as_json):
        dialect = dialect_of(delimiter, quote, encoding, null, csv=format_ in (None, "csv"))
        log = read_log(spark, path, format_, dialect)
        report = examine(
            log.df,
            group=group,
            order=order,
            order_by=order_by,
            id=id_,
            epoch=epoch,
            arrival=arrival,
            time=time,
            start=start,
            ignore=tuple(ignore or ()),
            patience=patience,
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
                report = Folder(out).add_lab(report, rendered(study, AuditLink(PAGE, path)))
    if as_json:
        say_json(report.to_dict() if study is None else report.to_dict() | {"lab": document(study)})
    else:
        show(report, plain_console())
        if study is not None:
            show_study(study, plain_console())
    if strict and report.wrong(tuple(allow or ())):
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
        table = Table("found", "messages", "groups", "what it is", "such as", box=None, pad_edge=False)
        table.columns[1].justify = table.columns[2].justify = "right"
        for kind, found in report.found.items():
            groups = f"{found.groups:,}" if found.groups else ""
            such = "; ".join(report.samples.get(kind, []))
            table.add_row(
                Text(kind, "red"), f"{found.messages:,}", groups, kind.meaning, Text(lines(such), overflow="ellipsis")
            )
        console.print(table)
    elif report.messages:
        print_line(console, "Nothing is wrong with it.", style="green")
    for line in filter(None, (_gaps(report.gaps), _late(report.late), _epochs(report), _sizes(report.sizes))):
        print_line(console, line)
    _grade(report.grade, console)
    for what, where in report.files.items():
        print_line(console, f"{what:9} {where}")


def _grade(grade: "Grade | None", console: Console) -> None:
    if grade is None:
        print_line(console, "Nothing can be said of its order: there are no messages that have a place.")
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


def _gaps(gaps: "Gaps | None") -> str:
    from inturn.spark.audit.formatting import duration

    if gaps is None or not (gaps.lost or gaps.open):
        return ""
    named = "; ".join(
        f"{gap.group} {gap.first}" + (f"-{gap.last}" if gap.last > gap.first else "") for gap in gaps.largest[:3]
    )
    words = f"Gaps: {gaps.lost:,} lost ({gaps.lost_revisions:,} revisions)"
    if gaps.open:
        age = "" if gaps.oldest_open_s is None else f", the oldest for {duration(gaps.oldest_open_s)}"
        words += f", {gaps.open:,} open ({gaps.open_revisions:,} revisions that may still come{age})"
    return f"{words}: {named}. A gap counts as open for {gaps.patience}."


def _late(late: "Late | None") -> str:
    from inturn.spark.audit.formatting import duration

    if late is None:
        return ""
    by = late.positions
    words = f"Late by, in messages of the group: half at most {by.median:,.0f}, 99% {by.p99:,.0f}, all {by.most:,.0f}"
    if late.seconds is not None:
        took = late.seconds
        words += f"; in time: {duration(took.median)}, {duration(took.p99)}, {duration(took.most)}"
    return f"{words}."


def _epochs(report: "AuditReport") -> str:
    return f"Epochs: {report.epochs:,} groups start again, as {report.keys.epoch} says." if report.epochs else ""


def _sizes(sizes: "Sizes | None") -> str:
    if sizes is None:
        return ""
    name, count = sizes.largest[0]
    cost = next(each for each in sizes.consumers if each.consumers == 16)
    half = f"half have at most {sizes.median:,.0f} messages"
    return (
        f"Groups: {half}, the largest, {name}, has {count:,} ({sizes.share:.1%}). "
        f"With 16 consumers, order costs {cost.free:.1f}x an equal share, {cost.hashed:.1f}x if a hash deals them out."
    )


def _columns(report: "AuditReport") -> Table:
    table = Table("could carry the order", "grade", "why", box=None, pad_edge=False)
    for column in report.columns:
        chosen = column.name == report.keys.place
        table.add_row(
            cell(column.name, "bold" if chosen else ""), cell(column.grade or "none"), Text(lines(column.verdict))
        )
    return table
