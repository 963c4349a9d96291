"""A queue's log as the messages of a pipeline: their columns come from fields of the body or from the envelope."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from inturn.core import errors
from inturn.core.address import checked_target, is_address, shown
from inturn.core.errors import InputError, InturnError
from inturn.core.pipeline.definition import Pipeline, check_pipeline
from inturn.core.values.path import parts
from inturn.spark.columns.dataframe import (
    INTEGERS,
    check_dataframe,
    check_session,
    column_kinds,
    quoted,
    reserved_name_error,
    sql_of,
    try_cast,
    type_at,
)
from inturn.spark.columns.names import ARRIVED, CORRUPT, is_reserved
from inturn.spark.source.log import COLUMNS
from inturn.spark.versions import has_python_sources, lacking

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_NEEDED: Final = ("sequence_number", "group", "revision", "dedup_id", "body", "sent_at")


def register(spark: "SparkSession") -> None:
    """Register ``format("inturn")`` with a session, for ``spark.read`` and ``spark.readStream`` of a queue's log.

    Args:
        spark: the session, classic or Connect; registration lasts as long as the session.

    Raises:
        SetupError: if the installed PySpark has no data sources written in Python.
    """
    check_session(spark)
    if not has_python_sources():
        instead = "upgrade, or read the queue in Python, write its messages to files and read those"
        raise lacking('format("inturn")', "4.0", instead)
    from pyspark.errors import AnalysisException

    from inturn.spark.source.source import QueueSource

    try:
        spark.dataSource.register(QueueSource)
    except AnalysisException as error:  # before Spark 4.2 an automatically found source cannot be registered again
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def messages(pipeline: Pipeline, df: "DataFrame", schema: "str | StructType | None" = None) -> "DataFrame":
    """Return the messages of a pipeline from the log of a queue, for :func:`inturn.spark.batch` and ``stream``.

    A column is a field of the body, which is JSON. A field that the body lacks is filled from the envelope: the
    pipeline's group, its revision, its id from the deduplication id, and its ``arrival`` from the sequence number (for
    Kafka, partition and offset), or, if it is a time, from the time of the send. If a body cannot be read, or
    contradicts its envelope, the pipeline rejects the message as invalid, with its text.

    Without ``arrival``, under ``Arrival`` or where a group begins with its first message, a further column has
    the place in the log, so that a step takes the messages of a group in that order, as in process. Outputs of a store
    are in the order in which their messages were applied.

    Args:
        pipeline: the definition.
        df: a DataFrame of ``format("inturn")``, :func:`inturn.spark.outputs` or :func:`inturn.spark.from_kafka`,
            streaming or not.
        schema: fields of the body, for a pipeline of plain dicts; otherwise the message type defines them.

    Raises:
        InputError: if the DataFrame is not such a log, or the fields are not known.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    check_pipeline(pipeline)
    check_dataframe(df)
    absent = [name for name in _NEEDED if name not in df.columns]
    if absent:
        msg = f"the DataFrame has no column {absent[0]!r}; messages() expects a DataFrame of spark.read(Stream)"
        raise InputError(f"{msg}.format('inturn'), inturn.spark.outputs or inturn.spark.from_kafka")
    kinds = _kinds(pipeline, schema, df)
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    raw = F.struct(*(F.col(quoted(name)) for name in COLUMNS if name in df.columns))
    unmapped = F.col(CORRUPT) if CORRUPT in df.columns else F.lit(None).cast("string")
    body = F.from_json(F.col("body"), f"{ddl}, {CORRUPT} string", options)
    arrived = F.col(ARRIVED if ARRIVED in df.columns else "sequence_number")
    both = df.select(body.alias("b"), raw.alias("e"), unmapped.alias("u"), arrived.alias("a"))
    columns = {name: F.col(f"b.{quoted(name)}") for name in kinds}
    agrees = F.lit(True)  # noqa: FBT003
    bodies = cast("StructType", both.schema["b"].dataType)
    for path, source in _envelope(pipeline, kinds).items():
        first, *rest = parts(path)
        kind = type_at(bodies, parts(path))
        if kind is None:
            msg = f"pipeline {pipeline.name!r} needs {path!r}, but the bodies have no such field; add it to the schema"
            raise InputError(msg)
        column = "a" if source == "sequence_number" else f"e.{quoted(source)}"
        own, attribute = F.col(f"b.{sql_of(path)}"), F.col(column)
        filled = F.coalesce(own, try_cast(column, kind.simpleString()))
        columns[first] = _with_field(columns[first], bodies[first].dataType, rest, filled)
        if source in {"group", "revision", "dedup_id"}:
            agrees &= F.coalesce(own.cast("string") == attribute.cast("string"), F.lit(True))  # noqa: FBT003
    named = (column.alias(name) for name, column in columns.items())
    # Without a place in the data the log's is the only one; an order that has one needs no other within a step.
    has_place = pipeline.position is not None or bool(pipeline.order.fields)
    is_placed = pipeline.arrival is not None or (has_place and not pipeline.order.begins_anywhere)
    place = [] if is_placed else [F.col("a").alias(ARRIVED)]
    return both.select(*named, *place, F.coalesce(F.col("u"), _corrupt(agrees)).alias(CORRUPT))


def _with_field(column: "Column", kind: "DataType", names: list[str], value: "Column") -> "Column":
    """Return a column with a field replaced; a null on the path becomes a struct, unless the new value is null."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if not names:
        return value
    inside = []
    for field in cast("StructType", kind).fields:
        own = column.getField(field.name)
        own = _with_field(own, field.dataType, names[1:], value) if field.name == names[0] else own
        inside.append(own.alias(field.name))
    struct_column = F.struct(*inside)
    return F.when(column.isNotNull() | value.isNotNull(), struct_column)


def _corrupt(agrees: "Column") -> "Column":
    """Return the text of a message that cannot be placed; null for all others."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    text = F.col("e.body")
    is_object = text.rlike(r"^\s*\{") & F.col(f"b.{CORRUPT}").isNull()
    differs = F.concat(F.lit("the body contradicts its envelope: "), F.to_json(F.col("e")))
    return F.when(~is_object, text).when(~agrees, differs)


def _kinds(pipeline: Pipeline, schema: "str | StructType | None", df: "DataFrame") -> dict[str, str]:
    """Return the columns and their types."""
    if pipeline.message is not None:
        return column_kinds(pipeline)
    if schema is None:
        raise InputError(
            f"pipeline {pipeline.name!r} takes plain dicts, so the fields of the bodies are unknown: give it a message "
            "type, or pass them: messages(pipeline, df, 'account string, amount bigint')"
        )
    # StructType.fromDDL needs Spark 4.0
    parsed = df.sparkSession.createDataFrame([], schema).schema if isinstance(schema, str) else schema
    kinds = {field.name: field.dataType.simpleString() for field in parsed.fields}
    for name in filter(is_reserved, kinds):
        raise reserved_name_error(f"the schema has a field {name!r}")
    for path, source in _envelope(pipeline, {}).items():
        if len(parts(path)) == 1:
            kinds.setdefault(parts(path)[0], COLUMNS[source])
    return kinds


def _envelope(pipeline: Pipeline, kinds: dict[str, str]) -> dict[str, str]:
    """Return the columns that the envelope can fill, and the envelope's field for each."""
    sources = {pipeline.group: "group"}
    if pipeline.revision is not None:
        sources.setdefault(pipeline.revision, "revision")
    if pipeline.id is not None:
        sources.setdefault(pipeline.id, "dedup_id")
    if pipeline.arrival is not None:
        is_number = len(parts(pipeline.arrival)) > 1 or kinds.get(pipeline.arrival, "bigint") in INTEGERS
        sources.setdefault(pipeline.arrival, "sequence_number" if is_number else "sent_at")
    return sources


def names_queue(source: str) -> bool:
    """Return whether a source names a queue, ``shop.db#payments``, rather than a file or a URI.

    Raises:
        InputError: if it is a database and names no queue.
    """
    if is_address(checked_target(source)):
        if "#" in source:
            return True
        raise InputError(f"{shown(source)} names no queue: write {shown(source)}#payments")
    return "#" in source and "://" not in source and not Path(source).exists()


def queue_messages(
    spark: "SparkSession", pipeline: Pipeline, source: str, *, streaming: bool = False, rows: int | None = None
) -> "DataFrame":
    """Return the messages of a queue as a DataFrame; a stream's reader has the pipeline's name.

    Args:
        spark: the session.
        pipeline: the pipeline whose columns are wanted.
        source: the queue, ``shop.db#payments`` or ``postgresql://…#payments``.
        streaming: whether to continue with messages that arrive later.
        rows: maximum number of messages in a micro-batch of a stream.

    Raises:
        StoreError: if there is no such database.
        NoSuchQueue: if there is no such queue in it.
        InputError: if the pipeline does not define the fields of the bodies.
    """
    register(spark)
    if not is_address(source):
        path, _, queue = source.partition("#")
        source = f"{Path(path).absolute()}#{queue}"  # Spark may resolve paths from another folder
    try:
        if streaming:
            reader = spark.readStream.format("inturn").option("reader", pipeline.name)
            df = (reader.option("maxRowsPerBatch", rows) if rows else reader).load(source)
        else:
            df = spark.read.format("inturn").load(source)
    except Exception as error:
        raise _unwrapped_error(error) from error
    return messages(pipeline, df)


def _unwrapped_error(error: Exception) -> Exception:
    """Return the inturn error that Spark wrapped in a traceback, or the error itself."""
    matches = re.findall(r"^inturn\.core\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)
    if not matches:
        return error
    name, text = matches[-1]
    kind: type[InturnError] = getattr(errors, name, InturnError)
    return kind(text)
