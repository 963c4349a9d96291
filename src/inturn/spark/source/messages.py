"""Conversion of a queue's log to a pipeline's columns, which come from fields of the body or from the envelope."""

from typing import TYPE_CHECKING, Final, cast

from inturn.core.errors import InputError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Timestamp
from inturn.core.values.path import parts
from inturn.spark.columns.dataframe import INTEGERS, own_name, quoted, sql_of, try_cast, type_at
from inturn.spark.columns.names import CORRUPT, is_own
from inturn.spark.local.files import column_kinds
from inturn.spark.source.arrow import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_NEEDED: Final = ("sequence_number", "group", "revision", "dedup_id", "body", "sent_at")


def messages(pipeline: Pipeline, df: "DataFrame", schema: "str | StructType | None" = None) -> "DataFrame":
    """Return the messages of a pipeline from the log of a queue, for :func:`inturn.spark.batch` and ``stream``.

    A column is a field of the body, which is JSON. A field that the body lacks is filled from the envelope: the
    pipeline's group, its revision, its id from the deduplication id, and its ``arrival`` from the sequence number, or,
    if it is a time, from the time of the send. If a body cannot be read, or contradicts its envelope, the pipeline
    rejects the message as invalid, with its text.

    Args:
        pipeline: the definition.
        df: a DataFrame of ``format("inturn")``, streaming or not.
        schema: fields of the body, for a pipeline of plain dicts; otherwise the message type defines them.

    Raises:
        InputError: if the DataFrame is not such a log, or the fields are not known.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    absent = [name for name in _NEEDED if name not in df.columns]
    if absent:
        msg = f"the DataFrame has no column {absent[0]!r}: messages() takes one of spark.read(Stream).format('inturn')"
        raise InputError(msg)
    kinds = _kinds(pipeline, schema)
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    raw = F.struct(*(F.col(quoted(name)) for name in COLUMNS if name in df.columns))
    body = F.from_json(F.col("body"), f"{ddl}, {CORRUPT} string", options)
    both = df.select(body.alias("b"), raw.alias("e"))
    columns = {name: F.col(f"b.{quoted(name)}") for name in kinds}
    agrees = F.lit(True)  # noqa: FBT003
    bodies = cast("StructType", both.schema["b"].dataType)
    for path, source in _envelope(pipeline, kinds).items():
        first, *rest = parts(path)
        kind = type_at(bodies, parts(path))
        if kind is None:
            msg = f"pipeline {pipeline.name!r} needs {path!r}, and the bodies have no such field; say so in the schema"
            raise InputError(msg)
        own, given = F.col(f"b.{sql_of(path)}"), F.col(f"e.{quoted(source)}")
        filled = F.coalesce(own, try_cast(f"e.{quoted(source)}", kind.simpleString()))
        columns[first] = _put(columns[first], bodies[first].dataType, rest, filled)
        if source in {"group", "revision", "dedup_id"}:
            agrees &= F.coalesce(own.cast("string") == given.cast("string"), F.lit(True))  # noqa: FBT003
    named = (column.alias(name) for name, column in columns.items())
    return both.select(*named, _corrupt(agrees).alias(CORRUPT))


def _put(column: "Column", kind: "DataType", names: list[str], value: "Column") -> "Column":
    """Return a column with a field replaced; a null on the path becomes a struct, unless the new value is null."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if not names:
        return value
    inside = []
    for field in cast("StructType", kind).fields:
        own = column.getField(field.name)
        own = _put(own, field.dataType, names[1:], value) if field.name == names[0] else own
        inside.append(own.alias(field.name))
    made = F.struct(*inside)
    return F.when(column.isNotNull() | value.isNotNull(), made)


def _corrupt(agrees: "Column") -> "Column":
    """Return the text of a message that cannot be placed; null for all others."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    text = F.col("e.body")
    is_object = text.rlike(r"^\s*\{") & F.col(f"b.{CORRUPT}").isNull()
    differs = F.concat(F.lit("the body says otherwise than its envelope: "), F.to_json(F.col("e")))
    return F.when(~is_object, text).when(~agrees, differs)


def _kinds(pipeline: Pipeline, schema: "str | StructType | None") -> dict[str, str]:
    """Return the columns and their types."""
    if pipeline.message is not None:
        return column_kinds(pipeline)
    if schema is None:
        raise InputError(
            f"pipeline {pipeline.name!r} takes plain dicts, so it does not say which fields the bodies have: give it a "
            "message type, or say messages(pipeline, df, 'account string, amount bigint')"
        )
    from pyspark.sql.types import StructType

    found = cast("StructType", StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    kinds = {field.name: field.dataType.simpleString() for field in found.fields}
    for name in filter(is_own, kinds):
        raise own_name(f"the schema has a field {name!r}")
    for path, source in _envelope(pipeline, {}).items():
        if len(parts(path)) == 1:
            kinds.setdefault(parts(path)[0], COLUMNS[source])
    return kinds


def _envelope(pipeline: Pipeline, kinds: dict[str, str]) -> dict[str, str]:
    """Return the columns that the envelope can fill, and the envelope's field for each."""
    sources = {pipeline.group: "group"}
    if pipeline.turn is not None and not isinstance(pipeline.order, Timestamp):
        sources.setdefault(pipeline.turn, "revision")
    if pipeline.id is not None:
        sources.setdefault(pipeline.id, "dedup_id")
    if pipeline.arrival is not None:
        is_number = len(parts(pipeline.arrival)) > 1 or kinds.get(pipeline.arrival, "bigint") in INTEGERS
        sources.setdefault(pipeline.arrival, "sequence_number" if is_number else "sent_at")
    return sources
