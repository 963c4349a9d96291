"""Messages from Arrow columns: the values of the user's types, and the digests of their contents.

A field whose type has an Arrow type becomes a column of that type; others are converted, and rows that do not fit are
invalid. The core computes digests for a few rows, and Arrow those for the rows of a whole chunk.
"""

import datetime as dt
import typing
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from inturn.core.errors import InputError
from inturn.core.identity import digests, is_model
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.reading import with_time
from inturn.core.values.construct import InvalidMarker, attempted, decoded, error_text, fill_of, filled, lacking
from inturn.core.values.models import make
from inturn.core.values.path import parts
from inturn.spark.columns import contents
from inturn.spark.columns.records import RecordField, record_fields, row_builder, values

_FEW = 32
"""The number of rows below which Arrow's overhead exceeds its savings."""
_ARROW_KINDS: dict[Any, Callable[[pa.DataType], bool]] = {
    bool: pa.types.is_boolean,
    int: pa.types.is_integer,
    float: pa.types.is_floating,
    str: lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    bytes: lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    dt.date: pa.types.is_date,
    dt.datetime: pa.types.is_timestamp,
    Decimal: pa.types.is_decimal,
}


class MessageCodec:
    """A builder of a pipeline's messages from Arrow columns of these names."""

    def __init__(self, pipeline: Pipeline, columns: Sequence[str]) -> None:
        self._record, self._pipeline = pipeline.message, pipeline
        self._time = None if pipeline.time is None else parts(pipeline.time)[0]
        self._partly = [name for name in pipeline.left_out if pipeline.in_content(name)]
        self._converted: set[str] = set()
        if pipeline.message is None:
            self.names = list(columns)
            self._fields, self._defaults = [], list[RecordField]()
        else:
            fields = record_fields(pipeline.message)
            self._fields = [field for field in fields if field.name in columns]
            self._defaults = [field for field in fields if field.name not in columns]
            self.names = [field.name for field in self._fields]
            for field in self._defaults:
                if field.default is None and not field.optional:
                    kind = pipeline.message.__name__
                    msg = f"the messages have no field {field.name!r}, and {kind} has no default for it; add a default"
                    raise InputError(msg)
            self._make = row_builder(pipeline.message, self.names)
        self._content = [name for name in self.names if pipeline.in_content(name)]
        self._default_content = [field for field in self._defaults if pipeline.in_content(field.name)]

    def read(self, table: pa.Table) -> tuple[dict[str, list[Any]], dict[int, str]]:
        """Return the columns as Python values of the fields' types, and the rows that do not fit, with the reasons."""
        columns = {name: values(table[name]) for name in self.names}
        bad: dict[int, str] = {}
        if self._record is not None and is_model(self._record):
            self._converted = set(self.names)  # by the model, in build
            return columns, bad
        self._converted = {
            field.name
            for field in self._fields
            if not _needs_no_conversion(field, table[field.name].type)
            or (field.default and table[field.name].null_count)
        }
        for field in self._fields:
            columns[field.name] = _convert(field, columns[field.name], table[field.name], bad)
        if self._record is None and self._time in columns and not pa.types.is_timestamp(table[self._time].type):
            name = self._time
            columns[name] = [with_time(self._pipeline, {name: value})[name] for value in columns[name]]
            self._converted.add(name)
        return columns, bad

    def build(self, columns: dict[str, list[Any]]) -> tuple[list[Any], dict[int, str]]:
        """Return the messages, one per row, and the rows that the message type refuses, with the reasons.

        The columns of a model become what its validators have made of them.
        """
        record, names = self._record, self.names
        if record is None:
            return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)], {}
        if is_model(record):
            built = [
                _try_build(record, dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=True)
            ]
            for name in names:
                columns[name] = [
                    getattr(message, name, value) for message, value in zip(built, columns[name], strict=True)
                ]
            return built, _refusals(built)
        try:
            return self._make(*columns.values()), {}
        except Exception:  # noqa: BLE001 - the type's own checks may raise anything: then each row for itself
            rows = (dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True))
            built = [_try_build(record, row) for row in rows]
            return built, _refusals(built)

    def from_table(self, table: pa.Table) -> tuple[list[Any], dict[int, str]]:
        """Return the messages of a table, and the rows that do not fit, with the reasons."""
        columns, bad = self.read(table)
        return ([], bad) if bad else self.build(columns)

    def digests(self, table: pa.Table, columns: dict[str, list[Any]], rows: Sequence[int]) -> list[bytes]:
        """Return the digests of some rows of a table; ``columns`` are the table's columns as Python values."""
        names = [*self._content, *(field.name for field in self._default_content)]
        absent = [[field.default() if field.default else None] * len(rows) for field in self._default_content]
        is_whole = rows == range(len(table))
        if not is_whole:
            columns = {name: [columns[name][row] for row in rows] for name in self._content}
        value_lists = [columns[name] for name in self._content]
        for name in self._partly:
            if name in self._content:
                index = self._content.index(name)
                value_lists[index] = [self._pipeline.content_of(name, value) for value in value_lists[index]]
        if len(rows) < _FEW:
            return digests(names, [*value_lists, *absent])
        chosen = table if is_whole else table.select(self._content).take(pa.array(rows))
        converted = self._converted.union(self._partly)
        arrays = [None if name in converted else chosen[name].combine_chunks() for name in self._content]
        texts = map(contents.texts, [*arrays, *([None] * len(absent))], [*value_lists, *absent])
        return contents.digests(names, list(texts))


def _try_build(record: type, fields: dict[str, Any]) -> Any:
    return attempted(record, lambda: _validated(record, fields) if is_model(record) else record(**fields))


def _validated(model: type, record_values: dict[str, Any]) -> Any:
    fields = filled(model, record_values)
    reason = lacking(model, fields)
    return make(model, fields) if reason is None else InvalidMarker(reason)


def _refusals(built: Sequence[Any]) -> dict[int, str]:
    return {row: message.why for row, message in enumerate(built) if isinstance(message, InvalidMarker)}


def _needs_no_conversion(field: RecordField, kind: pa.DataType) -> bool:
    """Return whether a column's values have the field's type without conversion."""
    same = _ARROW_KINDS.get(field.type)
    return field.type is Any or (same is not None and same(kind))


def _convert(field: RecordField, column: list[Any], source: pa.ChunkedArray, bad: dict[int, str]) -> list[Any]:
    """Convert a column to its field's type; rows that do not fit are noted in ``bad``."""
    if source.null_count and field.default is not None:
        # A DataFrame does not distinguish an absent field from a null one.
        column = [_default_of(field, row, bad) if value is None else value for row, value in enumerate(column)]
    elif source.null_count and not field.optional:
        expected = getattr(field.type, "__name__", field.type)
        for row, value in enumerate(column):
            if value is None:
                bad.setdefault(row, f"{field.name} is null, expected {expected}")
    if _needs_no_conversion(field, source.type):
        return column
    fill = fill_of(field.type)
    if fill is not None:
        column = [None if value is None else fill(value, False) for value in column]  # noqa: FBT003 - as it is called
    target: Any = typing.Optional[field.type]  # noqa: UP045 - built at run time
    try:
        return msgspec.convert(column, list[target], strict=False, dec_hook=decoded)
    except Exception:  # noqa: BLE001 - the checks of a record within may raise anything
        return [_convert_one(field, target, row, value, bad) for row, value in enumerate(column)]


def _default_of(field: RecordField, row: int, bad: dict[int, str]) -> Any:
    try:
        return field.default and field.default()
    except Exception as error:  # noqa: BLE001 - a factory of the user's
        bad.setdefault(row, f"cannot compute the default of {field.name}: {error_text(error)}")


def _convert_one(field: RecordField, target: Any, row: int, value: Any, bad: dict[int, str]) -> Any:
    try:
        return msgspec.convert(value, target, strict=False, dec_hook=decoded)
    except Exception as error:  # noqa: BLE001 - as above
        reason = error if isinstance(error, msgspec.ValidationError) else error_text(error)
        bad.setdefault(row, f"{field.name} is {value!r}: {reason}")
