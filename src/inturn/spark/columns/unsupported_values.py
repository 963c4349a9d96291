"""Values that Spark has and Python lacks: only the row with such a value is invalid, and it is stored as text.

These are strings that are not UTF-8, as after ``CAST(payload AS string)``; dates and times in years that Python's
datetime lacks; and maps with a duplicate key, as Spark reads them from JSON and from Parquet.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.values.plain import inside
from inturn.spark.columns.years import DAYS_OF_PYTHON, MICROSECONDS_OF_PYTHON, day_text, instant_text

_NOT_UTF8: Final = "the text of {} is not valid UTF-8"
_NO_YEAR: Final = "{} is {}; Python has only the years 1 to 9999"
_TWICE: Final = "{} has the key {!r:.100} twice"

Inner = Iterator[tuple[Any, pa.DataType, str]]


def unreadable(table: pa.Table) -> dict[int, str]:
    """Return the rows with values that Python lacks, each with the path to the first such value and its fault."""
    faults: dict[int, str] = {}
    for name in table.column_names:
        if _may_be_unreadable(table[name]):
            for row, fault in _faults(table[name], name):
                faults.setdefault(row, fault)
    return faults


def as_texts(table: pa.Table) -> pa.Table:
    r"""Return readable rows: dates and times as text, bytes that are not UTF-8 as escapes such as ``\xe9``."""
    for index, name in enumerate(table.column_names):
        column, kind = table[name], table[name].type
        if _may_be_unreadable(column):
            readable = [_readable_value(value, kind) for value in _raw_values(column)]
            converted = pa.array(readable, _raw(_readable_type(kind), texts=False)).cast(_readable_type(kind))
            table = table.set_column(index, name, pa.chunked_array([converted]))
    return table


def without_rows(table: pa.Table, rows: dict[int, str]) -> pa.Table:
    """Return a table without the given rows."""
    return table.take(pa.array(np.delete(np.arange(len(table)), list(rows)))).combine_chunks()


def _may_be_unreadable(column: pa.ChunkedArray) -> bool:
    """Return whether a column may have values that Python lacks; whole columns are checked, as nearly none has."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return any(map(_is_suspect, column.chunks))


def _is_suspect(array: pa.Array) -> bool:
    kind = array.type
    if _is_time(kind):
        return _is_out_of_range(array)
    if pa.types.is_struct(kind):
        return any(_is_suspect(array.field(number)) for number in range(kind.num_fields))
    if pa.types.is_map(kind):  # a sliced map still has all keys; a list's flatten() respects the slice
        entries = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        inner = entries.flatten()
        return _is_suspect(inner) or _has_key_twice(pc.list_parent_indices(entries), inner.field(0))
    return _is_list(kind) and _is_suspect(array.flatten())


def _is_out_of_range(array: pa.Array) -> bool:
    low, high = pc.min_max(array.cast(_raw(array.type))).values()
    first, last = _bounds(array.type)
    return bool(low.is_valid and (low.as_py() < first or high.as_py() > last))


def _has_key_twice(maps: pa.Array, keys: pa.Array) -> bool:
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys, 0.0)  # -0.0 is 0.0 as a key
    distinct = pa.table({"map": maps, "key": keys}).group_by(["map", "key"]).aggregate([])
    return len(distinct) < len(keys)


def _faults(column: pa.ChunkedArray, name: str) -> Iterator[tuple[int, str]]:
    for row, value in enumerate(_raw_values(column)):
        fault = _fault(value, column.type, name)
        if fault is not None:
            yield row, fault


def _fault(value: Any, kind: pa.DataType, path: str) -> str | None:
    """Return the first fault within a value; None if Python can hold the whole value."""
    if value is None:
        return None
    if _is_string(kind):
        return _NOT_UTF8.format(path) if _text(value).encode() != value else None
    if _is_time(kind):
        first, last = _bounds(kind)
        return None if first <= value <= last else _NO_YEAR.format(path, _readable_value(value, kind))
    if pa.types.is_map(kind):
        keys = [key for key, _ in value]
        duplicate = next((key for index, key in enumerate(keys) if key in keys[:index]), None)
        if duplicate is not None:
            return _TWICE.format(path, _readable_value(duplicate, kind.key_type))
    return next(filter(None, (_fault(*item) for item in _inner(value, kind, path))), None)


def _inner(value: Any, kind: pa.DataType, path: str) -> Inner:
    """Yield the values within a value, with their types and paths."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield value[field.name], field.type, inside(path, field.name)
    elif pa.types.is_map(kind):
        for key, item in value:
            yield key, kind.key_type, f"a key of {path}"
            yield item, kind.item_type, inside(path, _readable_value(key, kind.key_type))
    elif _is_list(kind):
        for index, item in enumerate(value):
            yield item, kind.value_type, f"{path}[{index}]"


def _raw_values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values in Python: strings as bytes, dates and times as numbers, maps as pairs."""
    values: list[Any] = column.cast(_raw(column.type)).to_pylist()
    return values


def _raw(kind: pa.DataType, *, texts: bool = True) -> pa.DataType:
    """Return a type whose values Arrow can all convert to and from Python; with ``texts``, strings are bytes."""
    if texts and _is_string(kind):
        return pa.binary() if pa.types.is_string(kind) else pa.large_binary()
    if _is_time(kind):
        return pa.int32() if pa.types.is_date32(kind) else pa.int64()
    if pa.types.is_duration(kind):  # Arrow cannot read back the least values that it returns
        return pa.int64()
    return _map_types(kind, functools.partial(_raw, texts=texts))


def _readable_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if _is_time(kind) else _map_types(kind, _readable_type)


def _map_types(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with the types within it changed."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(change(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    if _is_list(kind):
        return pa.list_(kind.value_field.with_type(change(kind.value_type)))
    return kind


def _readable_value(value: Any, kind: pa.DataType) -> Any:
    """Return a raw value in the readable form that is stored."""
    if value is None:
        return None
    if _is_string(kind):
        return _text(value)
    if _is_time(kind):
        return day_text(value) if pa.types.is_date32(kind) else instant_text(value, utc=kind.tz is not None)
    if pa.types.is_struct(kind):
        return {field.name: _readable_value(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_readable_value(key, kind.key_type), _readable_value(item, kind.item_type)) for key, item in value]
    return [_readable_value(item, kind.value_type) for item in value] if _is_list(kind) else value


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    return DAYS_OF_PYTHON if pa.types.is_date32(kind) else MICROSECONDS_OF_PYTHON


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_time(kind: pa.DataType) -> bool:
    """Return whether a type is that of Spark's dates or timestamps; Spark's timestamps count microseconds."""
    return bool(pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
