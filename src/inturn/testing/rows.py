"""Messages as rows of a table, which Spark needs: columns of one type, rows with all columns."""

import datetime as dt
import enum
import typing
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from inturn.core.errors import InputError
from inturn.core.identity import field_names
from inturn.core.pipeline.definition import Pipeline
from inturn.core.values.path import parts
from inturn.spark.columns.records import record_fields
from inturn.testing.engine_input import value_of, values_of

_KINDS: Final[dict[Any, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.date: pa.date32(),
    dt.time: pa.string(),
}


def as_rows(pipeline: Pipeline, messages: Sequence[Any]) -> list[Any]:
    """Return messages as a table returns them: dicts with all fields, decimals with a common scale.

    Records stay unchanged, except their decimals.

    Raises:
        InputError: if the values of a field have no common type.
    """
    if not messages:
        return []
    kinds = (Mapping, pipeline.message) if pipeline.message else (Mapping,)
    if not all(isinstance(message, kinds) for message in messages):  # the pure timeline reports why
        return list(messages)
    if pipeline.message is None:
        return typing.cast("list[Any]", table(pipeline, messages).to_pylist(maps_as_pydicts="strict"))
    decimals = [field.name for field in record_fields(pipeline.message) if field.type is Decimal]
    if not decimals:
        return list(messages)
    columns = table(pipeline, messages).select(decimals).to_pylist()
    return [values_of(pipeline, message) | row for message, row in zip(messages, columns, strict=True)]


def table(pipeline: Pipeline, messages: Sequence[Any]) -> pa.Table:
    """Return the messages as a table.

    Raises:
        InputError: if the values of a field have no common type.
    """
    numbers = pipeline.key_fields[1:] if pipeline.order.has_revisions else ()
    hints: dict[str, Any] = dict.fromkeys((parts(name)[0] for name in numbers if len(parts(name)) == 1), int)
    placing = [parts(name)[0] for name in pipeline.key_fields]
    if pipeline.message is None:
        names = dict.fromkeys([*(name for message in messages for name in message), *placing])
    else:
        fields = record_fields(pipeline.message)
        names = dict.fromkeys(field.name for field in fields)
        hints |= {field.name: field.type for field in fields}
        if pipeline.arrival is not None and any(
            value_of(message, pipeline.arrival) is not None for message in messages
        ):
            names[parts(pipeline.arrival)[0]] = None
    columns = {name: [value_of(message, name) for message in messages] for name in names}
    return pa.table({name: _column(name, column, hints.get(name, Any)) for name, column in columns.items()})


def _column(name: str, values: list[Any], hint: Any) -> pa.Array:
    values = [_simple(value) for value in values]
    kind = _KINDS.get(hint)
    try:
        if kind is None and typing.get_origin(hint) in (dict, Mapping):
            inner = [item for value in values if value is not None for item in value.values()]
            kind = pa.map_(pa.string(), _known(pa.array(inner)).type)
            values = [None if value is None else list(value.items()) for value in values]
        array = pa.array(values, kind)
    except (pa.ArrowException, OverflowError) as error:
        msg = f"the values of the field {name!r} have no common type, so they cannot be a column of a table: {error}"
        raise InputError(msg) from error
    return _known(array)


def _known(array: pa.Array) -> pa.Array:
    """Cast an array of nulls, which has no type, to text."""
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


def _simple(value: Any) -> Any:  # noqa: PLR0911 - one return a type is what makes it a table
    """Return a value that Arrow accepts: records as dicts, names as text."""
    match value:
        case enum.Enum():
            return value.value
        case uuid.UUID() | dt.time():
            return str(value)
        case str() | bytes() | Decimal() | dt.date() | dt.timedelta() | None:
            return value
        case Mapping():
            return {key: _simple(item) for key, item in value.items()}
        case list() | tuple():
            return [_simple(item) for item in value]
        case set() | frozenset():
            return sorted(map(_simple, value))
    names = field_names(type(value))
    return value if names is None else {name: _simple(getattr(value, name)) for name in names}
