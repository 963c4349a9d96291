"""``inturn run``: messages of files, a queue or a topic, processed by Spark."""

import datetime as dt
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from inturn.cli.option_groups import given_options
from inturn.cli.options import MessageFileOptions, MessagesFrom, PipelineAt, SparkMaster, StatesTo, duration_of
from inturn.cli.output import one_line, plain_console, print_json, print_text, visible_lines
from inturn.cli.targets import check_no_database, check_store
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.definitions import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from inturn.spark.driver.step import Report


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
    rows: Annotated[int | None, "With --stream, from a queue or a topic: maximum number of messages per step."] = None


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """The topic of Kafka from which messages are read."""

    mapping: Annotated[
        Path | None, "Kafka: file with the mapping of records to messages (default: the group is the record's key)."
    ] = None
    jars: Annotated[
        str | None,
        "Kafka: jars of Spark's connector, with commas; '' if Spark has it (default: Spark fetches it from Maven).",
    ] = None


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
        bool, typer.Option("--stream", help="Continue with new messages of the source, until Ctrl-C.")
    ] = False,
    stream: StepOptions,
    topic: TopicOptions,
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
    from inturn.spark.local.progress import show_progress
    from inturn.spark.local.session import running_session

    if as_stream and now:
        raise InputError("--now and --stream exclude each other; --now is the time of a single step")
    if as_stream and final and stream.trigger != "available now":
        msg = f"--final with --trigger {stream.trigger!r}: this stream does not end; expected --trigger 'available now'"
        raise InputError(msg)
    if stream.trigger not in (None, "available now"):
        duration_of("--trigger", stream.trigger)
    if not as_stream and given_options(stream):
        raise InputError("--checkpoint, --trigger, --files and --rows need --stream")
    messages = _messages_of(source, form, topic, stream, master)
    definition = load(pipeline)
    check_final(definition, final=final)
    published = asdict(tables)
    with running_session(master, messages.settings) as spark:
        if as_stream:
            from inturn.spark.local.foreground import follow

            df = messages.read(spark, definition, streaming=True)
            place = stream.checkpoint or f"{store.rstrip('/')}-checkpoint"
            show = _print_json if as_json else _print_step
            follow(definition, df, store, place, show, final, trigger=stream.trigger, buckets=buckets, **published)
            return
        with show_progress(spark, f"{definition.name}: {shown(source)}", quiet=as_json):
            df = messages.read(spark, definition)
            report = batch(definition, df, store=store, buckets=buckets, now=now, final=final, **published)
    if as_json:
        _print_json(report)
    else:
        plain_console().print(_report(report))


class _Messages(NamedTuple):
    """The messages of a source.

    Attributes:
        read: returns them as a DataFrame, of a session, a pipeline and ``streaming``.
        settings: settings of Spark that this needs.
    """

    read: "Callable[..., DataFrame]"
    settings: "Mapping[str, str] | None" = None


def _messages_of(
    source: str, form: MessageFileOptions, topic: TopicOptions, stream: StepOptions, master: str
) -> _Messages:
    """Return the messages of a topic, a queue or files.

    Raises:
        InputError: if an option is for another kind of source.
        SourceError: if no broker of a topic accepts connections.
    """
    from inturn.cli.topic import KafkaTopic
    from inturn.spark.local.connector import connector_settings
    from inturn.spark.local.files import read_messages
    from inturn.spark.source.messages import names_queue, queue_messages

    kafka = KafkaTopic.parsed(source, topic.mapping)
    if kafka is None and topic.jars is not None:
        raise InputError("--jars is only for a topic, kafka://HOST:PORT/TOPIC; omit it")
    if kafka and form.preset:
        raise InputError(f"--preset is only for files; set preset = {form.preset!r} in the file of --mapping")
    is_log = kafka is not None or names_queue(source)
    if (form.format_ or form.preset or stream.files) if is_log else stream.rows:
        msg = "--format, --preset and --files are only for files, --rows is only for a queue or a topic"
        raise InputError(msg)
    dialect, change_events = form.dialect(csv=not is_log), form.has_change_events
    if kafka:
        if not master.startswith("sc://"):  # else the server reads the topic
            kafka.check_reachable()
        return _Messages(partial(kafka.messages, rows=stream.rows), connector_settings(topic.jars))
    if is_log:
        return _Messages(partial(queue_messages, source=source, rows=stream.rows))
    read = partial(read_messages, source=source, form=form.format_, files=stream.files, dialect=dialect)
    return _Messages(partial(read, change_events=change_events))


def _print_json(report: "Report") -> None:
    print_json(report.to_dict())


def _print_step(report: "Report") -> None:
    print_text(f"{report} ({report.seconds:.1f} s)")


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
