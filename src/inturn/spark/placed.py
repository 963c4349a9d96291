"""What places a message, as columns of a task: a field within a struct, and a time that is text or a number.

A column of the message that places it as it is, is used as it is; the others get a column of their own beside it.
"""

from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.instant import MICROSECONDS, read_us
from inturn.core.order import Timestamp
from inturn.core.path import parts
from inturn.core.pipeline import Pipeline
from inturn.spark.columns.names import OWN

TURN: Final = f"{OWN}turn"
"""The column with the time of a message in microseconds since 1970."""
_WITHIN: Final = f"{OWN}at_"


def column_of(path: str) -> str:
    """Return the column of a task with the values of a field."""
    names = parts(path)
    return names[0] if len(names) == 1 else _WITHIN + path


def turn_of(pipeline: Pipeline) -> str | None:
    """Return the column of a task with a message's place in its group's order; None for ``Arrival``."""
    if isinstance(pipeline.order, Timestamp):
        return TURN
    return None if pipeline.turn is None else column_of(pipeline.turn)


def placed(pipeline: Pipeline, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with a column for whatever places them and is no column of the message."""
    order = pipeline.order
    for path in dict.fromkeys((*pipeline.key_fields[1:], pipeline.id, pipeline.arrival)):
        if path is not None and len(parts(path)) > 1:
            batch = batch.append_column(column_of(path), within(batch, path))
    if isinstance(order, Timestamp):
        batch = batch.append_column(TURN, _times(batch.column(column_of(order.column)), order))
    return batch


def within(batch: pa.RecordBatch | pa.Table, path: str) -> pa.Array | pa.ChunkedArray:
    """Return the values of a field that may lie within a struct; null where something on the way there is."""
    first, *rest = parts(path)
    column = batch.column(first)
    return pc.struct_field(column, rest) if rest else column


def _times(column: pa.Array, order: Timestamp) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    times, over = MICROSECONDS[order.unit]
    if pa.types.is_integer(kind):
        numbers = cast("Any", column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
        if not len(numbers) or max(-int(numbers.min()), int(numbers.max())) < 2**63 // times:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            return pa.array(np.floor_divide(numbers * times, over), pa.int64(), mask=nulls)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())  # Spark does not see to it that its texts are UTF-8
        texts = (None if value is None else value.decode(errors="replace") for value in column.to_pylist())
        return pa.array([read_us(text, order.unit) for text in texts], pa.int64())
    return pa.array([read_us(value, order.unit) for value in column.to_pylist()], pa.int64())
