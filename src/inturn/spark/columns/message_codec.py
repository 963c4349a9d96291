"""Conversion between Arrow columns and the user's types: messages in, states in and out, without pickle.

A field whose type has an Arrow type becomes a column of that type; other fields become columns of text or JSON. A
value that would not come back unchanged is refused, so that a state means the same in this step and in the next.
"""

import dataclasses
import datetime as dt
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.errors import InputError, PipelineError, StateError
from inturn.core.identity import digests, field_names
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Timestamp
from inturn.core.pipeline.reading import with_time
from inturn.core.pipeline.versions import OldState, upgraded
from inturn.core.values.absent import fill_of
from inturn.core.values.construct import Unmade, attempted, error_text
from inturn.core.values.path import parts
from inturn.spark.columns import contents
from inturn.spark.columns.names import OLD, check_names
from inturn.spark.columns.state_codec import Older, shape, still_loads

_COLUMNS: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.date: pa.date32(),
    dt.datetime: pa.timestamp("us", tz="UTC"),
}
_EXACT = (bool, int, str, bytes)
"""Types whose values always come back unchanged, if they are not of a subclass."""
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


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a record type.

    Attributes:
        name: the field's name.
        type: the field's type without ``| None``.
        optional: whether None is allowed.
        default: a function that returns the default value; None if the field has no default.
    """

    name: str
    type: Any
    optional: bool
    default: Callable[[], Any] | None


def record_fields(record: type) -> list[Field]:
    """Return the fields of a dataclass or Struct type.

    Raises:
        PipelineError: if a type hint cannot be resolved.
    """
    try:
        hints = typing.get_type_hints(record)
    except NameError as error:
        msg = f"a type hint of {record.__name__} cannot be resolved: {error}; define the type at module level"
        raise PipelineError(msg) from error
    fields = []
    for name in field_names(record) or ():
        options = [each for each in typing.get_args(hints[name]) if each is not types.NoneType]
        union = typing.get_origin(hints[name]) in (typing.Union, types.UnionType)
        optional = (union and len(options) < len(typing.get_args(hints[name]))) or hints[name] in (Any, None)
        kind = options[0] if union and len(options) == 1 else hints[name]
        fields.append(Field(name, kind, optional, _default(record, name)))
    return fields


def _default(record: type, name: str) -> Callable[[], Any] | None:
    described: Any
    missing: Any
    if dataclasses.is_dataclass(record):
        described, missing = dataclasses.fields(record), dataclasses.MISSING
    else:
        described, missing = msgspec.structs.fields(record), msgspec.NODEFAULT
    for field in described:
        if field.name == name:
            # Compare by type: a class that was pickled by value has its own marker.
            if not isinstance(field.default, type(missing)):
                return lambda: field.default
            factory: Callable[[], Any] = field.default_factory
            return None if isinstance(factory, type(missing)) else factory
    return None


def _maker(record: type, names: Sequence[str]) -> Callable[..., list[Any]]:
    """Return a function that builds records from columns of the named fields; other fields take their defaults."""
    places = inspect.signature(record).parameters.values()
    order = [each.name for each in places if each.kind is not inspect.Parameter.KEYWORD_ONLY]
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
        return [None if each is None else each.replace(tzinfo=dt.UTC) for each in moments.to_pylist()]
    if pa.types.is_integer(column.type) and column.null_count == 0:
        return typing.cast("list[Any]", column.to_numpy().tolist())
    if "map<" in str(column.type):
        return typing.cast("list[Any]", column.to_pylist(maps_as_pydicts="strict"))
    return typing.cast("list[Any]", column.to_pylist())


class MessageCodec:
    """A builder of a pipeline's messages from Arrow columns.

    Args:
        pipeline: the definition.
        columns: the names of the input columns.
    """

    def __init__(self, pipeline: Pipeline, columns: Sequence[str]) -> None:
        self._record, self._pipeline = pipeline.message, pipeline
        self._time = parts(pipeline.order.column)[0] if isinstance(pipeline.order, Timestamp) else None
        self._partly = [each for each in pipeline.left_out if pipeline.in_content(each)]
        self._converted: set[str] = set()
        if pipeline.message is None:
            self.names = list(columns)
            self._fields = []
            self._defaults: list[Field] = []
        else:
            fields = record_fields(pipeline.message)
            self._fields = [field for field in fields if field.name in columns]
            self._defaults = [field for field in fields if field.name not in columns]
            self.names = [field.name for field in self._fields]
            for field in self._defaults:
                if field.default is None and not field.optional:
                    kind = pipeline.message.__name__
                    msg = f"the messages have no {field.name!r}, and {kind} has no default for it; give it one"
                    raise InputError(msg)
            self._make = _maker(pipeline.message, self.names)
        self._content = [name for name in self.names if pipeline.in_content(name)]
        self._default_content = [field for field in self._defaults if pipeline.in_content(field.name)]

    def read(self, table: pa.Table) -> tuple[dict[str, list[Any]], dict[int, str]]:
        """Return the columns as Python values of the fields' types, and the rows that do not fit, with the reasons."""
        columns = {name: values(table[name]) for name in self.names}
        bad: dict[int, str] = {}
        self._converted = {
            field.name
            for field in self._fields
            if not _direct(field, table[field.name].type) or (field.default and table[field.name].null_count)
        }
        for field in self._fields:
            columns[field.name] = _fit(field, columns[field.name], table[field.name], bad)
        if self._record is None and self._time in columns and not pa.types.is_timestamp(table[self._time].type):
            name = self._time
            columns[name] = [with_time(self._pipeline, {name: value})[name] for value in columns[name]]
            self._converted.add(name)
        return columns, bad

    def build(self, columns: dict[str, list[Any]]) -> tuple[list[Any], dict[int, str]]:
        """Return the messages, one per row, and the rows that the message type refuses, with the reasons."""
        record, names = self._record, self.names
        if record is None:
            return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)], {}
        try:
            return self._make(*columns.values()), {}
        except Exception:  # noqa: BLE001 - the type's own checks may raise anything: then each row for itself
            rows = (dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True))
            made = [_attempted(record, row) for row in rows]
            return made, {row: each.why for row, each in enumerate(made) if isinstance(each, Unmade)}

    def digests(self, table: pa.Table, columns: dict[str, list[Any]], rows: Sequence[int]) -> list[bytes]:
        """Return the digests of some rows of a table; ``columns`` are the table's columns as Python values."""
        names = [*self._content, *(field.name for field in self._default_content)]
        absent = [[field.default() if field.default else None] * len(rows) for field in self._default_content]
        whole = rows == range(len(table))
        if not whole:
            columns = {name: [columns[name][row] for row in rows] for name in self._content}
        given = [columns[name] for name in self._content]
        for name in self._partly:
            if name in self._content:
                at = self._content.index(name)
                given[at] = [self._pipeline.content_of(name, value) for value in given[at]]
        if len(rows) < _FEW:
            return digests(names, [*given, *absent])
        chosen = table if whole else table.select(self._content).take(pa.array(rows))
        converted = self._converted.union(self._partly)
        arrays = [None if name in converted else chosen[name].combine_chunks() for name in self._content]
        texts = map(contents.texts, [*arrays, *([None] * len(absent))], [*given, *absent])
        return contents.digests(names, list(texts))


def _attempted(record: type, fields: dict[str, Any]) -> Any:
    return attempted(record, lambda: record(**fields))


def _direct(field: Field, kind: pa.DataType) -> bool:
    """Return whether a column's values have the field's type without conversion."""
    same = _ARROW_KINDS.get(field.type)
    return field.type is Any or (same is not None and same(kind))


def _fit(field: Field, column: list[Any], source: pa.ChunkedArray, bad: dict[int, str]) -> list[Any]:
    """Convert a column to its field's type; rows that do not fit are noted in ``bad`` and left unchanged."""
    if source.null_count and field.default is not None:
        # A DataFrame does not distinguish an absent field from a null one.
        column = [_default_of(field, row, bad) if value is None else value for row, value in enumerate(column)]
    elif source.null_count and not field.optional:
        expected = getattr(field.type, "__name__", field.type)
        for row, value in enumerate(column):
            if value is None:
                bad.setdefault(row, f"{field.name} is null, expected {expected}")
    if _direct(field, source.type):
        return column
    fill = fill_of(field.type)
    if fill is not None:
        column = [None if value is None else fill(value, False) for value in column]  # noqa: FBT003 - as it is called
    wanted: Any = typing.Optional[field.type]  # noqa: UP045 - built at run time
    try:
        return msgspec.convert(column, list[wanted], strict=False)
    except Exception:  # noqa: BLE001 - the checks of a record within may raise anything
        return [_fit_one(field, wanted, row, value, bad) for row, value in enumerate(column)]


def _default_of(field: Field, row: int, bad: dict[int, str]) -> Any:
    try:
        return field.default() if field.default is not None else None
    except Exception as error:  # noqa: BLE001 - a factory of the user's
        bad.setdefault(row, f"the default of {field.name} cannot be made: {error_text(error)}")
        return None


def _fit_one(field: Field, wanted: Any, row: int, value: Any, bad: dict[int, str]) -> Any:
    try:
        return msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError as error:
        bad.setdefault(row, f"{field.name} is {value!r}: {error}")
    except Exception as error:  # noqa: BLE001 - as above
        bad.setdefault(row, f"{field.name} is {value!r}: {error_text(error)}")
        return value


def _grew(stored: str, now: str) -> bool:
    """Return whether a type only gained fields with defaults; both arguments are a ``_Column.kind``."""
    before, after = stored.partition(" as ")[2], now.partition(" as ")[2]
    return bool(before and after) and still_loads(before, after)


class StateCodec:
    """A codec between the states of a pipeline and a struct column.

    Args:
        pipeline: the definition.
        older: the form of the states that are read, if an older version stored them.

    Raises:
        StateError: if the state type has no fields, a field that ``__init__`` does not take, a reserved field name, or
            two names that differ only in case.
    """

    def __init__(self, pipeline: Pipeline, older: Older | None = None) -> None:
        self.older, self._whole = older, pipeline
        kind = pipeline.state if isinstance(pipeline.state, type) else None
        self._pipeline = pipeline.name
        self.record = kind if kind is not None and field_names(kind) is not None else None
        if self.record is not None:
            self._fields = record_fields(self.record)
            hidden = [f.name for f in getattr(self.record, "__dataclass_fields__", {}).values() if not f.init]
            if hidden:
                msg = f"{self.record.__name__}.{hidden[0]} is not an argument of __init__, so it cannot be stored"
                raise StateError(msg)
            if not self._fields:
                msg = f"{self.record.__name__} has no fields, so there is nothing to store; give it one, or use dict"
                raise StateError(msg)
        else:
            self._fields = [Field("state", kind or Any, optional=kind is None, default=None)]
        check_names(field.name for field in self._fields)
        self.columns = [_Column(field, pipeline.name) for field in self._fields]
        fields = [pa.field(column.name, column.type) for column in self.columns]
        self.type = pa.struct([*fields, pa.field(OLD, pa.string())])

    @property
    def signature(self) -> dict[str, str]:
        """The description of the state type that is kept in the store: each field and how it is stored."""
        return {column.name: column.kind for column in self.columns}

    def check(self, stored: dict[str, str]) -> None:
        """Check that states that were stored under another signature can be read.

        Raises:
            StateError: if a field was removed or changed its type, or a new one has no default.
        """
        now = self.signature
        for name, kind in stored.items():
            if name not in now:
                msg = f"the store's states have a field {name!r} ({kind}) that the state type has no more; put it back"
                raise StateError(f"{msg}, or start a new store")
            if now[name] != kind and not _grew(kind, now[name]):
                msg = f"the state field {name!r} is stored as {kind} and is now {now[name]}; keep the type"
                raise StateError(f"{msg}, or start a new store")
        for column in self.columns:
            if column.name not in stored and column.field.default is None:
                msg = f"the state field {column.name!r} is new and has no default, so older states cannot be loaded"
                raise StateError(f"{msg}; give it one")

    def pack(self, states: Sequence[Any]) -> pa.StructArray:
        """Return the states as one struct column.

        Raises:
            StateError: if a state would not come back unchanged.
        """
        if any(isinstance(state, OldState) for state in states):
            return self._pack_with_old(states)
        if self.record is None:
            arrays = [self.columns[0].pack(states)]
        else:
            arrays = [column.pack([getattr(state, column.name) for state in states]) for column in self.columns]
        return pa.StructArray.from_arrays([*arrays, pa.nulls(len(states), pa.string())], fields=list(self.type))

    def _pack_with_old(self, states: Sequence[Any]) -> pa.StructArray:
        """Pack states of which some could not be upgraded; the fields of those are null."""
        now = [at for at, state in enumerate(states) if not isinstance(state, OldState)]
        packed = self.pack([states[at] for at in now])
        places: list[int | None] = [None] * len(states)
        for at, place in enumerate(now):
            places[place] = at
        arrays = [packed.field(at).take(pa.array(places, pa.int64())) for at in range(len(self.columns))]
        old = [_kept(state) if isinstance(state, OldState) else None for state in states]
        return pa.StructArray.from_arrays([*arrays, pa.array(old, pa.string())], fields=list(self.type))

    def unpack(self, array: pa.StructArray) -> list[Any]:
        """Return the states in a struct column; fields that were not stored yet take their defaults.

        States that an older version stored are upgraded; one that cannot be upgraded is returned as an ``OldState``.
        """
        known = {field.name for field in array.type}
        old = pc.struct_field(array, OLD) if OLD in known else pa.nulls(len(array), pa.string())
        if old.null_count < len(old):
            return self._unpack_with_old(array, old)
        if self.older is not None:
            return self._upgraded(array, self.older)
        present = [column for column in self.columns if column.name in known]
        columns = [column.unpack(pc.struct_field(array, column.name)) for column in present]
        if self.record is None:
            return columns[0]
        return _maker(self.record, [column.name for column in present])(*columns)

    def _unpack_with_old(self, array: pa.StructArray, old: pa.StringArray) -> list[Any]:
        others = pa.StructArray.from_arrays(
            [pc.struct_field(array, field.name) for field in array.type if field.name != OLD],
            fields=[field for field in array.type if field.name != OLD],
        )
        rest = iter(self.unpack(others.filter(old.is_null())))
        kept = [None if text is None else msgspec.json.decode(text, type=_OldStateForm) for text in old.to_pylist()]
        return [next(rest) if each is None else upgraded(self._whole, each.value, each.version) for each in kept]

    def _upgraded(self, array: pa.StructArray, older: Older) -> list[Any]:
        columns = {field.name: values(pc.struct_field(array, field.name)) for field in array.type if field.name != OLD}
        for name in (name for name, kind in older.signature.items() if kind.startswith("json") and name in columns):
            columns[name] = [None if text is None else msgspec.json.decode(text) for text in columns[name]]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        plain = [msgspec.to_builtins(row if older.is_record else row["state"], str_keys=True) for row in rows]
        return [upgraded(self._whole, each, older.version) for each in plain]


class _OldStateForm(msgspec.Struct):
    """The stored form of a state that could not be upgraded."""

    version: int
    value: Any


def _kept(state: OldState) -> str:
    return msgspec.json.encode(_OldStateForm(state.version, state.value)).decode()


class _Column:
    """The storage of one field of a state."""

    def __init__(self, field: Field, pipeline: str) -> None:
        self.field, self.name, self._pipeline = field, field.name, pipeline
        self._wanted = typing.Optional[field.type] if field.optional else field.type  # noqa: UP045 - at run time
        texts = isinstance(field.type, type) and (
            field.type in (Decimal, uuid.UUID)
            or (issubclass(field.type, enum.Enum) and all(isinstance(each.value, str) for each in field.type))
        )
        self._form = "column" if field.type in _COLUMNS else "text" if texts else "json"
        self.type = _COLUMNS.get(field.type, pa.string())
        self.kind = {
            "column": str(self.type),
            "text": "text",
            "json": "json" if field.type is Any else f"json of {self._wanted!r} as {shape(self._wanted)}",
        }[self._form]
        self._decoder = msgspec.json.Decoder(self._wanted)

    def pack(self, column: Sequence[Any]) -> pa.Array:
        array = self._array(column)
        if self.field.type in _EXACT and set(map(type, column)) <= {self.field.type, types.NoneType}:
            same = True
        elif self.field.type is float:
            same = all(value is None or isinstance(value, float | int) for value in column)  # NaN does not equal itself
        else:
            same = self._form == "json" or self._comes_back(array, column)
        if not same:
            self._refuse("a value would not come back as it is", f"expected {self._wanted!r}")
        return array

    def _comes_back(self, array: pa.Array, column: Sequence[Any]) -> bool:
        try:
            return self.unpack(array) == list(column)
        except StateError:
            return False

    def _array(self, column: Sequence[Any]) -> pa.Array:
        try:
            if self._form == "column":
                if self.field.type is dt.datetime and any(v is not None and v.tzinfo is None for v in column):
                    self._refuse("a time without a zone", "give it one, such as datetime.UTC")
                return pa.array(column, type=self.type)
            if self._form == "text":
                return pa.array([None if v is None else msgspec.to_builtins(v) for v in column], type=self.type)
            return pa.array([self._json(value) for value in column], type=self.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
            return self._refuse(str(error), f"expected {self._wanted!r}")

    def unpack(self, array: pa.Array) -> list[Any]:
        column = values(array)
        if self._form == "column":
            return column
        try:
            if self._form == "text":
                return [None if value is None else msgspec.convert(value, self.field.type) for value in column]
            decode = self._decoder.decode
            return [None if value is None else decode(value) for value in column]
        except msgspec.ValidationError as error:
            msg = f"pipeline {self._pipeline!r}: a stored {self.name!r} of a state is no {self._wanted!r} any more"
            raise StateError(f"{msg}: {error}") from error

    def _json(self, value: Any) -> str:
        text = msgspec.json.encode(value)
        try:
            again = self._decoder.decode(text)
        except msgspec.ValidationError as error:
            self._refuse(repr(value), str(error))
        if again != value:
            self._refuse(repr(value), f"after storing it would be {again!r}; use JSON values, or a typed state")
        return text.decode()

    def _refuse(self, what: str, mend: str) -> typing.NoReturn:
        raise StateError(f"pipeline {self._pipeline!r}: the state's {self.name!r} cannot be stored: {what}: {mend}")
