"""The command line: puts the parts together, and turns errors into words and exit codes.

Exit codes: 0 done; 1 an error of ours, told in one paragraph; 2 the command was not understood.
"""

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

import inturn
from inturn.cli.audit import audit
from inturn.cli.check import check
from inturn.cli.definition import load
from inturn.cli.errors import told
from inturn.cli.keys import keys
from inturn.cli.messages import ack, nack, peek, receive, send
from inturn.cli.parked import explain, parked
from inturn.cli.queue import groups, queue, redrive
from inturn.cli.serve import serve
from inturn.core.address import shown
from inturn.core.errors import InputError

if TYPE_CHECKING:
    from inturn.spark.step import Report

app = typer.Typer(
    help="Every message in its turn, once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.add_typer(parked, name="parked")
app.command()(explain)
app.command()(audit)
app.command()(check)
app.command()(serve)
app.add_typer(queue, name="queue")
app.add_typer(keys, name="keys")
for _command in (send, receive, ack, nack, peek, groups, redrive):
    app.command()(_command)


def _version(value: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if value:
        typer.echo(f"inturn {inturn.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the queue, the store and the pictures go.")] = Path("demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Two weeks of real flights, sent badly to a queue, put in order by a Spark that is killed, and in process."""
    with told():
        from inturn.demo.run import main

        if not main(out, json=as_json).good:
            raise typer.Exit(1)


@app.command()
def run(
    pipeline: Annotated[str, typer.Argument(help="Where the pipeline is: ledger.py:ledger or package.module:name.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="The messages: a file, a folder, a URI that Spark reads, shop.db#payments, or postgresql://…#payments.",
        ),
    ],
    store: Annotated[str, typer.Option(help="The store: a directory; made if it is not there.")],
    format_: Annotated[
        str | None, typer.Option("--format", help="parquet, json (JSON lines) or csv; default: by the file names.")
    ] = None,
    buckets: Annotated[int | None, typer.Option(help="Slices of a new store: the most tasks at once.")] = None,
    now: Annotated[dt.datetime | None, typer.Option(help="The time of the step; default: the clock.")] = None,
    final: Annotated[bool, typer.Option("--final", help="Timestamp: nothing more comes, so nothing waits.")] = False,
    as_stream: Annotated[
        bool, typer.Option("--stream", help="Go on with what comes into the folder or the queue, until Ctrl-C.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="With --stream: Spark's checkpoint; default: the store's name and -checkpoint.")
    ] = None,
    trigger: Annotated[
        str | None, typer.Option(help="With --stream: '10 seconds' between steps, or 'available now' and then end.")
    ] = None,
    files: Annotated[int | None, typer.Option(help="With --stream: the most files in one step.")] = None,
    rows: Annotated[int | None, typer.Option(help="With --stream, of a queue: the most messages in one step.")] = None,
    outputs: Annotated[str, typer.Option(help="parquet, or delta: a Delta table of the outputs too.")] = "parquet",
    master: Annotated[
        str, typer.Option(help="Where Spark runs: local[*], spark://…, or sc://… for Connect.")
    ] = "local[*]",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON; of a stream, one for each step.")
    ] = False,
) -> None:
    """Take messages as one step of a pipeline, or as a stream of steps, and report where each of them went."""
    with told():
        from inturn.spark.local.files import read_messages
        from inturn.spark.local.progress import watching
        from inturn.spark.local.session import session
        from inturn.spark.source.command import names_queue, queue_messages
        from inturn.spark.step import batch

        if as_stream and (now or final):
            msg = "--now and --final belong to one step, not to a stream; leave them out, or leave --stream out"
            raise InputError(msg)
        if not as_stream and (checkpoint or trigger or files or rows):
            msg = "--checkpoint, --trigger, --files and --rows belong to a stream; add --stream"
            raise InputError(msg)
        is_queue = names_queue(source)
        if (format_ or files) if is_queue else rows:
            msg = "--format and --files are for files, --rows is for a queue, shop.db#payments; leave the other out"
            raise InputError(msg)
        definition = load(pipeline)
        spark = session(master)
        try:
            if as_stream:
                from inturn.spark.local.following import follow

                df = (
                    queue_messages(spark, definition, source, streaming=True, rows=rows)
                    if is_queue
                    else read_messages(spark, definition, source, format_, streaming=True, files=files)
                )
                place = checkpoint or f"{store.rstrip('/')}-checkpoint"
                show = _print_line if as_json else _print_step
                follow(definition, df, store, place, show, trigger=trigger, buckets=buckets, outputs_format=outputs)
                return
            with watching(spark, f"{definition.name}: {shown(source)}", quiet=as_json):
                df = (
                    queue_messages(spark, definition, source)
                    if is_queue
                    else read_messages(spark, definition, source, format_)
                )
                report = batch(
                    definition, df, store=store, buckets=buckets, outputs_format=outputs, now=now, final=final
                )
        finally:
            spark.stop()
        if as_json:
            typer.echo(json.dumps(report.to_dict()))
        else:
            Console().print(_report(report))


def _print_line(report: "Report") -> None:
    typer.echo(json.dumps(report.to_dict()))


def _print_step(report: "Report") -> None:
    typer.echo(f"{report} ({report.seconds:.1f} s)")


@app.command()
def vacuum(
    store: Annotated[str, typer.Argument(help="The store.")],
    keep_steps: Annotated[int, typer.Option(help="Of so many of the last steps everything is kept.")] = 100,
) -> None:
    """Forget where the groups stood after old steps, and delete files that nobody needs any more."""
    with told():
        from inturn.spark.tables.vacuum import vacuum as clean

        typer.echo(f"{len(clean(store, keep_steps=keep_steps)):,} files deleted")


def _report(report: "Report") -> Table:
    counts = report.counts
    table = Table(
        title=f"{report.pipeline}: step {report.step} of {report.store}, {report.seconds:.1f} s", title_justify="left"
    )
    table.add_column("came in")
    table.add_column("", justify="right")
    table.add_column("went to")
    table.add_column("", justify="right")
    into = [("received", counts.received), ("released", counts.released)]
    out = [
        ("applied", counts.applied),
        ("duplicate", counts.duplicate),
        ("stale", counts.stale),
        ("held", counts.held),
        *((f"rejected: {reason}", count) for reason, count in sorted(counts.rejected.items())),
    ]
    for row in range(max(len(into), len(out))):
        left = into[row] if row < len(into) else ("", "")
        right = out[row] if row < len(out) else ("", "")
        table.add_row(left[0], f"{left[1]:,}" if left[1] != "" else "", right[0], f"{right[1]:,}")
    table.add_section()
    total = counts.received + counts.released
    table.add_row("", f"{total:,}", "", f"{total:,}")
    return table
