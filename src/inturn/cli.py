"""The command line: puts the parts together, and turns errors into words and exit codes.

Exit codes: 0 done; 1 an error of ours, told in one paragraph; 2 the command was not understood.
"""

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

import inturn
from inturn.core.errors import InturnError

if TYPE_CHECKING:
    from inturn.spark.step import Report

app = typer.Typer(
    help="Every message in its turn, once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
_errors = Console(stderr=True)


@contextmanager
def _told() -> Iterator[None]:
    """Errors of ours are for the user to mend: no traceback."""
    try:
        yield
    except InturnError as error:
        _errors.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        _errors.print(str(error), markup=False, highlight=False)
        raise typer.Exit(1) from error


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
    out: Annotated[Path, typer.Option(help="Where the messages, the store and the pictures go.")] = Path("demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Two weeks of real flights, delivered as a real network would, put in order on Spark."""
    with _told():
        from inturn.demo.run import main

        if not main(out, json=as_json).good:
            raise typer.Exit(1)


@app.command()
def run(
    pipeline: Annotated[str, typer.Argument(help="Where the pipeline is: ledger.py:ledger or package.module:name.")],
    source: Annotated[str, typer.Option("--from", help="The messages: a file, a folder, or a URI that Spark reads.")],
    store: Annotated[str, typer.Option(help="The store: a directory; made if it is not there.")],
    format_: Annotated[
        str | None, typer.Option("--format", help="parquet, json (JSON lines) or csv; default: by the file names.")
    ] = None,
    buckets: Annotated[int | None, typer.Option(help="Slices of a new store: the most tasks at once.")] = None,
    now: Annotated[dt.datetime | None, typer.Option(help="The time of the step; default: the clock.")] = None,
    final: Annotated[bool, typer.Option("--final", help="Timestamp: nothing more comes, so nothing waits.")] = False,
    master: Annotated[
        str, typer.Option(help="Where Spark runs: local[*], spark://…, or sc://… for Connect.")
    ] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Take messages as one step of a pipeline, and report where each of them went."""
    with _told():
        from inturn.spark.local.files import load, read_messages
        from inturn.spark.local.progress import watching
        from inturn.spark.local.session import session
        from inturn.spark.step import batch

        definition = load(pipeline)
        spark = session(master)
        try:
            with watching(spark, f"{definition.name}: {source}", quiet=as_json):
                df = read_messages(spark, definition, source, format_)
                report = batch(definition, df, store=store, buckets=buckets, now=now, final=final)
        finally:
            spark.stop()
        if as_json:
            typer.echo(json.dumps(report.to_dict()))
        else:
            Console().print(_report(report))


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


if __name__ == "__main__":
    app()
