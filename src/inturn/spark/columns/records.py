"""Records as columns: the fields of the user's types, and Arrow columns as Python values."""

import dataclasses
import datetime as dt
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from inturn.core.identity import field_names, is_model
from inturn.core.values.states import hints_of, restored


class RecordField(NamedTuple):
    """A field of a record type.

    Attributes:
        type: the field's type without ``| None``.
        default: a function that returns the default value; None if the field has no default.
    """

    name: str
    type: Any
    optional: bool
    default: Callable[[], Any] | None


def record_fields(record: type) -> list[RecordField]:
    """Return the fields of a dataclass, Struct or model type.

    Raises:
        PipelineError: if a type hint cannot be resolved.
    """
    hints, fields = hints_of(record), []
    defaults = _defaults(record) if field_names(record) else {}
    for name in field_names(record) or ():
        hint, arguments = hints[name], typing.get_args(hints[name])
        options = [argument for argument in arguments if argument is not types.NoneType]
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        optional = (union and len(options) < len(arguments)) or hint in (Any, None)
        fields.append(RecordField(name, options[0] if union and len(options) == 1 else hint, optional, defaults[name]))
    return fields


def _defaults(record: Any) -> dict[str, Callable[[], Any] | None]:
    """Return the default of each field, as in :class:`RecordField`."""
    if is_model(record):
        return {
            name: None if field.is_required() else partial(field.get_default, call_default_factory=True)
            for name, field in record.__pydantic_fields__.items()
        }
    described = dataclasses.fields if dataclasses.is_dataclass(record) else msgspec.structs.fields
    return {field.name: _default(field) for field in described(record)}


def _default(described: Any) -> Callable[[], Any] | None:
    # Compare by type: a class that was pickled by value has its own marker.
    missing = type(dataclasses.MISSING), type(msgspec.NODEFAULT)
    if not isinstance(described.default, missing):
        return lambda: described.default
    return None if isinstance(described.default_factory, missing) else described.default_factory


def row_builder(record: type, names: Sequence[str]) -> Callable[..., list[Any]]:
    """Return a function that builds records from columns of the named fields; other fields take their defaults.

    The values of a model are those of a state, which it has validated before.
    """
    if is_model(record):
        return lambda *columns: [
            restored(record, dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)
        ]
    places = inspect.signature(record).parameters.values()
    order = [parameter.name for parameter in places if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    if list(names) == order[: len(names)]:
        return lambda *columns: list(map(record, *columns))
    return lambda *columns: [record(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return a column as Python values; instants in UTC."""
    if pa.types.is_timestamp(column.type):
        moments = column.cast(pa.timestamp("us", tz="UTC" if column.type.tz else None)).cast(pa.timestamp("us"))
        if column.type.tz is None:
            return typing.cast("list[Any]", moments.to_pylist())
        # Arrow's UTC is not the standard library's, which all other engines use.
        return [None if moment is None else moment.replace(tzinfo=dt.UTC) for moment in moments.to_pylist()]
    if pa.types.is_integer(column.type) and column.null_count == 0:
        return typing.cast("list[Any]", column.to_numpy().tolist())
    if "map<" in str(column.type):
        return typing.cast("list[Any]", column.to_pylist(maps_as_pydicts="strict"))
    return typing.cast("list[Any]", column.to_pylist())


def rows_of(columns: dict[str, list[Any]], rows: Sequence[int]) -> dict[str, list[Any]]:
    """Return some rows of columns of Python values."""
    return {name: [column[row] for row in rows] for name, column in columns.items()}
