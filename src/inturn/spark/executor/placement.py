"""The columns of a task that place a message: group, revision or time, id, arrival; and the order that they give.

A top-level column of the message is used as it is. A field within a struct, and the time of a message, get a column
of their own. Spark sends instants in the session's zone; they are converted to UTC, since a group must not get two
zones.
"""

import functools
from itertools import repeat
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.pipeline.definition import Pipeline
from inturn.core.values.instant import MICROSECONDS, Unit, read_us
from inturn.core.values.path import parts
from inturn.spark.columns.names import ARRIVED, OWN

POSITION: Final = f"{OWN}position"
"""The column with a message's time, in microseconds since 1970."""
TIE: Final = f"{OWN}tie"
"""The column with the text that orders messages of the same position."""
IDENT: Final = f"{OWN}id"
"""The column with message ids derived from their places, if a place consists of several fields."""
_WITHIN: Final = f"{OWN}at_"


def column_of(path: str) -> str:
    """Return the name of the task's column for the field at a path."""
    names = parts(path)
    return names[0] if len(names) == 1 else _WITHIN + path


def position_column(pipeline: Pipeline) -> str | None:
    """Return the name of the task's column with a message's place in its group; None under ``Arrival``."""
    if pipeline.order.has_times:
        return POSITION
    return None if pipeline.position is None else column_of(pipeline.position)


def id_column(pipeline: Pipeline) -> str | None:
    """Return the name of the task's column with a message's id; None if messages have none."""
    if pipeline.order.fields:
        return IDENT
    return None if pipeline.id is None else column_of(pipeline.id)


def with_placement(pipeline: Pipeline, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with added columns for struct fields and times that place them."""
    for path in dict.fromkeys((*pipeline.placing_fields, pipeline.arrival)):
        if path not in (None, pipeline.group) and len(parts(path)) > 1:
            batch = batch.append_column(column_of(path), field_values(batch, path))
    if pipeline.time is not None:
        batch = batch.append_column(POSITION, _times(batch.column(column_of(pipeline.time)), pipeline.order.unit))
        batch = batch.append_column(TIE, _ties(pipeline, batch))
    if pipeline.order.fields:
        for name, column in zip((TIE, IDENT), _positions(pipeline, batch), strict=True):
            batch = batch.append_column(name, column)
    return batch


def _positions(pipeline: Pipeline, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Return the ties of messages whose place is in several fields, and their ids; null where a field has no place."""
    order = pipeline.order
    ties: list[str | None] = []
    names: list[str | None] = []
    for place in zip(*(_values(batch.column(column_of(name))) for name in order.fields), strict=True):
        is_good = order.fault(place) is None
        ties.append(order.tie(place, None, "") if is_good else None)
        names.append(order.name(place) if is_good else None)
    return pa.array(ties, pa.string()), pa.array(names, pa.string())


def _ties(pipeline: Pipeline, batch: pa.RecordBatch) -> pa.Array:
    times, ids = (batch.column(column_of(cast("str", name))) for name in (pipeline.time, pipeline.id))
    finer = repeat(None) if pa.types.is_timestamp(times.type) else _values(times)
    arrivals = (
        repeat(None) if pipeline.arrival is None else _values(_as_integers(batch.column(column_of(pipeline.arrival))))
    )
    names = repeat("") if pa.types.is_temporal(ids.type) else map(str, _values(ids))
    return pa.array(list(map(pipeline.order.tie, finer, arrivals, names)), pa.string())


def _as_integers(column: pa.Array) -> pa.Array:
    """Return a column with times in microseconds and dates in days: Spark has years that Python lacks."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; Spark does not ensure that its texts are UTF-8."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    texts: list[Any] = (column.cast(pa.large_binary()) if is_text else column).to_pylist()
    if not is_text:
        return texts
    return [None if value is None else value.decode(errors="replace") for value in texts]


def field_values(batch: pa.RecordBatch | pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    """Return the values of the field at a path; null where a struct on the path is null."""
    first, *rest = parts(path)
    column = batch.column(first)
    return pc.struct_field(column, rest) if rest else column


def _times(column: pa.Array, unit: Unit) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    times, divisor = MICROSECONDS[unit]
    if pa.types.is_integer(kind):
        numbers = cast("Any", column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
        if not len(numbers) or max(-int(numbers.min()), int(numbers.max())) < 2**63 // times:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            return pa.array(np.floor_divide(numbers * times, divisor), pa.int64(), mask=nulls)
    return pa.array([read_us(value, unit) for value in _values(column)], pa.int64())


def sort_keys(pipeline: Pipeline, *, has_places: bool) -> list[str]:
    """Return the columns that sort a group's rows into the order in which the timeline receives them.

    With ``has_places`` the rows have their places in the log that they are from.
    """
    ident = None if pipeline.order.has_revisions else pipeline.id
    epoch, ident, arrival = (path and column_of(path) for path in (pipeline.epoch, ident, pipeline.arrival))
    arrival = arrival or (ARRIVED if has_places else None)
    has_ties = pipeline.order.has_times or pipeline.order.fields
    own = [epoch, position_column(pipeline), TIE if has_ties else None, ident]
    keys = [*own, arrival] if pipeline.order.has_runs else [arrival, *own]
    return [key for key in keys if key is not None]


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with every instant in UTC, also in structs, lists and maps; the bytes are unchanged."""
    schema = _schema_in_utc(batch.schema)
    return batch if schema is batch.schema or schema == batch.schema else batch.cast(schema)


@functools.lru_cache(maxsize=16)
def _schema_in_utc(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_type_in_utc(field.type)) for field in schema])


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_type_in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(_type_in_utc(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type_in_utc(kind.value_type)))
    return kind
