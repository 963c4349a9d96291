"""The messages for ``inturn check``, read like those of ``inturn run``, but into this process."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from inturn.core.errors import InputError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.values.path import parts, put, value_at
from inturn.ingest.debezium import change_message
from inturn.worker.codec import MessageDecoder, Misfit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from inturn.spark.local.csv import Dialect

_LINES: Final = (".jsonl", ".ndjson", ".json")


@dataclass
class Sample:
    """Messages, in the order of the files.

    Attributes:
        left_out: for each other message, why it cannot be read.
    """

    messages: list[Any] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def is_full(self, limit: int | None) -> bool:
        """Return whether the limit is reached."""
        return limit is not None and len(self.messages) + len(self.left_out) >= limit


def line_files(source: str, form: str | None) -> list[Path] | None:
    """Return the files of JSON lines that a source names; None for another source, which Spark reads."""
    path = Path(source)
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name[0] not in "_."]
    files = files if path.is_dir() else [path] if path.is_file() else []
    plain = form in (None, "json") and all(_ending(file) in _LINES for file in files)
    return files if files and plain else None


def _ending(file: Path) -> str:
    return next((suffix for suffix in reversed(file.suffixes) if suffix != ".gz"), "")


def from_lines(pipeline: Pipeline, files: list[Path], limit: int | None, *, change_events: bool = False) -> Sample:
    """Read messages from files of JSON lines, without Spark; of change events those that change a row.

    Raises:
        InputError: if a file cannot be read, or has no change events.
    """
    sample, reader = Sample(), MessageDecoder(pipeline)
    is_passed_over = False
    for where, line in numbered(files):
        if sample.is_full(limit):
            break
        try:
            content = msgspec.json.decode(line)
            if change_events and (content is None or isinstance(content, dict)):
                content = change_message(content)
                if content is None:
                    is_passed_over = True
                    continue
            if not isinstance(content, dict):
                sample.left_out.append(f"{where} is not a JSON object")
                continue
            message = reader.message(content)
        except (msgspec.MsgspecError, ValueError, RecursionError, Misfit) as error:
            sample.left_out.append(f"{where}: {error}")
            continue
        sample.messages.append(_arrived(pipeline, message, pipeline.arrival and value_at(content, pipeline.arrival)))
    if is_passed_over and not sample.messages and not sample.left_out:
        raise InputError("the files have no changes of rows; expected Debezium's change events, with op and source")
    return sample


def numbered(files: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of files that are not blank, each with its file and number for error texts.

    Raises:
        InputError: if a file cannot be read.
    """
    for file in files:
        try:
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield f"{file.name}, line {number}", line
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror or error}") from error


def _arrived(pipeline: Pipeline, message: Any, arrival: Any) -> Any:
    """Return the message together with its arrival, if its type has no field for the arrival."""
    names = pipeline.fields
    if names is None or pipeline.arrival is None or parts(pipeline.arrival)[0] in names or arrival is None:
        return message
    return put({name: getattr(message, name) for name in names}, pipeline.arrival, arrival)


def from_spark(
    spark: "SparkSession",
    pipeline: Pipeline,
    source: str,
    form: str | None,
    limit: int | None,
    dialect: "Dialect | None" = None,
    *,
    change_events: bool = False,
) -> Sample:
    """Read messages from any source of Spark: files in any form, a URI, or a queue.

    Raises:
        InputError: if the source is empty or missing, or does not fit the pipeline.
    """
    from inturn.spark.columns.dataframe import quoted
    from inturn.spark.columns.message_codec import MessageCodec
    from inturn.spark.columns.names import CORRUPT
    from inturn.spark.columns.records import values
    from inturn.spark.columns.unsupported_values import unreadable, without_rows
    from inturn.spark.driver.input import columns_of
    from inturn.spark.executor.placement import field_values
    from inturn.spark.local.files import read_messages
    from inturn.spark.source.messages import names_queue, queue_messages

    is_queue = names_queue(source)
    if is_queue and change_events:
        raise InputError("--preset is only for files; a queue has the messages that a mapping of ingest has made")
    if is_queue:
        df = queue_messages(spark, pipeline, source)
    else:
        df = read_messages(spark, pipeline, source, form, dialect=dialect, change_events=change_events)
    names = columns_of(pipeline, df)
    codec = MessageCodec(pipeline, names)
    column_names = [*names, *([CORRUPT] if CORRUPT in df.columns else [])]
    selected = _in_order(df, limit).select(*map(quoted, column_names)).toArrow()
    faults = unreadable(selected)
    table = without_rows(selected, faults)
    columns, bad = codec.read(table)
    lines = values(table[CORRUPT]) if CORRUPT in table.column_names else []
    bad |= {row: f"the line {line:.100}" for row, line in enumerate(lines) if line is not None}
    good_rows = [row for row in range(len(table)) if row not in bad]
    built, refused = codec.build({name: [column[row] for row in good_rows] for name, column in columns.items()})
    bad |= {good_rows[index]: reason for index, reason in refused.items()}
    built = [message for index, message in enumerate(built) if index not in refused]
    good_rows = [row for row in good_rows if row not in bad]
    if pipeline.arrival is not None and pipeline.message is not None:
        arrivals = values(field_values(table, pipeline.arrival))
        built = [_arrived(pipeline, message, arrivals[row]) for message, row in zip(built, good_rows, strict=True)]
    return Sample(built, [reason for errors in (faults, bad) for _, reason in sorted(errors.items())])


def _in_order(df: "DataFrame", limit: int | None) -> "DataFrame":
    """Return the rows in the order of their files, and files by name."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    from inturn.spark.columns.dataframe import quoted
    from inturn.spark.columns.names import OWN

    names = [quoted(name) for name in df.columns]
    keys = {f"{OWN}row": F.monotonically_increasing_id()}
    if df.inputFiles():
        begins = F.col("_metadata.file_block_start")
        keys = {f"{OWN}file": F.col("_metadata.file_path"), f"{OWN}at": begins, **keys}
    rows = df.select(*names, *(key.alias(name) for name, key in keys.items())).orderBy(*keys)
    return (rows if limit is None else rows.limit(limit)).select(*names)
