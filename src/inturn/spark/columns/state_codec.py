"""States in columns, out and in again, without pickle.

A field whose type has an Arrow type becomes a column of that type; other fields become columns of text or JSON. A
value that would change when it is read back is refused, so that a state is equal in this step and in the next. The
column of a JSON field does not show the field's type, so the store keeps its JSON schema. As with the state itself, a
record may gain fields with defaults; nothing else may change.
"""

import datetime as dt
import enum
import itertools
import types
import typing
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.errors import StateError
from inturn.core.identity import field_names, is_model
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.versions import OldState, upgraded
from inturn.core.values.models import fields_of
from inturn.core.values.states import hints_of, required, restored
from inturn.spark.columns.names import OLD, check_names
from inturn.spark.columns.records import RecordField, record_fields, row_builder, values

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
"""Types whose values are always read back unchanged, if they are not of a subclass."""
_ANNOTATIONS = ("title", "description", "default", "examples")
"""The keys of a JSON schema that do not affect its meaning."""


class PreviousFormat(NamedTuple):
    """The form of states that an older version of a pipeline stored: each field, and how it is stored.

    Attributes:
        is_record: whether the state type has fields; else the only stored field is the state itself.
    """

    version: int
    signature: dict[str, str]
    is_record: bool


class StateCodec:
    """A codec between the states of a pipeline, or of an older version of it, and a struct column.

    Raises:
        StateError: if the state type has no fields, a field that ``__init__`` does not take, a reserved field name, or
            two names that differ only in case.
    """

    def __init__(self, pipeline: Pipeline, previous_format: PreviousFormat | None = None) -> None:
        self.older, self._pipeline = previous_format, pipeline
        kind = pipeline.state if isinstance(pipeline.state, type) else None
        self.record = kind if kind is not None and field_names(kind) is not None else None
        if self.record is None:
            fields = [RecordField("state", kind or Any, optional=kind is None, default=None)]
        else:
            fields = record_fields(self.record)
            hidden = [f.name for f in getattr(self.record, "__dataclass_fields__", {}).values() if not f.init]
            if hidden:
                msg = f"{self.record.__name__}.{hidden[0]} is not an argument of __init__, so it cannot be stored"
                raise StateError(msg)
            if not fields:
                msg = f"{self.record.__name__} has no fields, so there is nothing to store; add a field, or use dict"
                raise StateError(msg)
        check_names(field.name for field in fields)
        self.columns = [_Column(field, pipeline.name) for field in fields]
        self.type = pa.struct([*((column.name, column.type) for column in self.columns), (OLD, pa.string())])

    @property
    def signature(self) -> dict[str, str]:
        """Each field and how it is stored; kept in the store as the description of the state type."""
        return {column.name: column.kind for column in self.columns}

    def check(self, stored: dict[str, str]) -> None:
        """Check that states that were stored under another signature can be read.

        Raises:
            StateError: if a field was removed or changed its type, or a new one has no default.
        """
        now = self.signature
        for name, kind in stored.items():
            if name not in now:
                msg = f"the store's states have a field {name!r} ({kind}) that the state type no longer has; restore it"
                raise StateError(f"{msg}, or start a new store")
            if now[name] != kind and not _gained_only_defaults(kind, now[name]):
                msg = f"the state field {name!r} is stored as {kind} and is now {now[name]}; keep the type"
                raise StateError(f"{msg}, or start a new store")
        for column in self.columns:
            if column.name not in stored and column.field.default is None:
                msg = f"the state field {column.name!r} is new and has no default, so older states cannot be loaded"
                raise StateError(f"{msg}; add a default")

    def pack(self, states: Sequence[Any]) -> pa.StructArray:
        """Return the states as one struct column; a StateError names a value that would change when it is read back."""
        if any(isinstance(state, OldState) for state in states):
            return self._pack_with_old(states)
        if self.record is None:
            arrays = [self.columns[0].pack(states)]
        else:
            arrays = [column.pack([getattr(state, column.name) for state in states]) for column in self.columns]
        return pa.StructArray.from_arrays([*arrays, pa.nulls(len(states), pa.string())], fields=list(self.type))

    def _pack_with_old(self, states: Sequence[Any]) -> pa.StructArray:
        """Pack states of which some could not be upgraded; the fields of those are null."""
        packed = self.pack([state for state in states if not isinstance(state, OldState)])
        number = itertools.count()
        places = pa.array([None if isinstance(state, OldState) else next(number) for state in states], pa.int64())
        old = [_old_text(state) if isinstance(state, OldState) else None for state in states]
        arrays = [column.take(places) for column in packed.flatten()[:-1]]
        return pa.StructArray.from_arrays([*arrays, pa.array(old, pa.string())], fields=list(self.type))

    def unpack(self, array: pa.StructArray) -> list[Any]:
        """Return the states in a struct column; fields that were not stored yet take their defaults.

        States that an older version stored are upgraded; one that cannot be upgraded is returned as an ``OldState``.
        """
        if array.null_count:  # of groups that were erased and given up: no handler sees it
            rest = iter(self.unpack(array.drop_null()))
            first = self._pipeline.make_first
            return [next(rest) if is_there else first() for is_there in array.is_valid().to_pylist()]
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
        return row_builder(self.record, [column.name for column in present])(*columns)

    def _unpack_with_old(self, array: pa.StructArray, old: pa.StringArray) -> list[Any]:
        fields = [field for field in array.type if field.name != OLD]
        current = pa.StructArray.from_arrays([pc.struct_field(array, field.name) for field in fields], fields=fields)
        rest = iter(self.unpack(current.filter(old.is_null())))
        old_forms = [
            None if text is None else msgspec.json.decode(text, type=_OldStateForm) for text in old.to_pylist()
        ]
        return [
            next(rest) if form is None else upgraded(self._pipeline, form.value, form.version) for form in old_forms
        ]

    def _upgraded(self, array: pa.StructArray, older: PreviousFormat) -> list[Any]:
        columns = {field.name: values(pc.struct_field(array, field.name)) for field in array.type if field.name != OLD}
        for name in (name for name, kind in older.signature.items() if kind.startswith("json") and name in columns):
            columns[name] = [None if text is None else msgspec.json.decode(text) for text in columns[name]]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        plain = [msgspec.to_builtins(row if older.is_record else row["state"], str_keys=True) for row in rows]
        return [upgraded(self._pipeline, state, older.version) for state in plain]


class _OldStateForm(msgspec.Struct):
    """The stored form of a state that could not be upgraded."""

    version: int
    value: Any


def _old_text(state: OldState) -> str:
    return msgspec.json.encode(_OldStateForm(state.version, state.value)).decode()


class _Column:
    """The storage of one field of a state."""

    def __init__(self, field: RecordField, pipeline: str) -> None:
        self.field, self.name, self._pipeline = field, field.name, pipeline
        self._wanted = typing.Optional[field.type] if field.optional else field.type  # noqa: UP045 - at run time
        texts = isinstance(field.type, type) and (
            field.type in (Decimal, uuid.UUID)
            or (issubclass(field.type, enum.Enum) and all(isinstance(member.value, str) for member in field.type))
        )
        self._form = "column" if field.type in _COLUMNS else "text" if texts else "json"
        self.type = _COLUMNS.get(field.type, pa.string())
        self.kind = {
            "column": str(self.type),
            "text": "text",
            "json": "json" if field.type is Any else f"json of {self._wanted!r} as {shape(self._wanted)}",
        }[self._form]
        self._decoder = msgspec.json.Decoder(self._wanted, dec_hook=restored)

    def pack(self, column: Sequence[Any]) -> pa.Array:
        array = self._array(column)
        if not self._round_trips(array, column):
            self._refuse("a value would change when it is read back", f"expected {self._wanted!r}")
        return array

    def _round_trips(self, array: pa.Array, column: Sequence[Any]) -> bool:
        if self.field.type in _EXACT and set(map(type, column)) <= {self.field.type, types.NoneType}:
            return True
        if self.field.type is float:  # NaN does not equal itself
            return all(value is None or isinstance(value, float | int) for value in column)
        try:
            return self._form == "json" or self.unpack(array) == list(column)
        except StateError:
            return False

    def _array(self, column: Sequence[Any]) -> pa.Array:
        try:
            if self._form == "column":
                if self.field.type is dt.datetime and any(v is not None and v.tzinfo is None for v in column):
                    self._refuse("a time without a zone", "add one, such as datetime.UTC")
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
            msg = f"pipeline {self._pipeline!r}: a stored state's {self.name!r} is no longer a valid {self._wanted!r}"
            raise StateError(f"{msg}: {error}") from error

    def _json(self, value: Any) -> str:
        text = msgspec.json.encode(value, enc_hook=fields_of)
        try:
            decoded_value = self._decoder.decode(text)
        except msgspec.ValidationError as error:
            self._refuse(repr(value), str(error))
        if decoded_value != value:
            self._refuse(repr(value), f"it would be read back as {decoded_value!r}; use JSON values, or a typed state")
        return text.decode()

    def _refuse(self, problem: str, reason: str) -> typing.NoReturn:
        raise StateError(
            f"pipeline {self._pipeline!r}: the state field {self.name!r} cannot be stored: {problem}: {reason}"
        )


def _gained_only_defaults(stored: str, now: str) -> bool:
    """Return whether a type only gained fields with defaults; both arguments are a ``_Column.kind``."""
    before, after = stored.partition(" as ")[2], now.partition(" as ")[2]
    return bool(before and after) and still_loads(before, after)


def shape(kind: Any) -> str:
    """Return the JSON schema of a type without its texts and defaults; ``?`` for a type without a schema."""
    try:
        schema = _schema(kind)
    except (TypeError, RuntimeError):
        return "?"
    return msgspec.json.encode(_without_annotations(schema), order="deterministic").decode()


def _schema(kind: Any) -> dict[str, Any]:
    return msgspec.json.schema(kind, schema_hook=_schema_of_model)


def _schema_of_model(kind: type) -> dict[str, Any]:
    if not is_model(kind):
        raise NotImplementedError
    properties = {name: _schema(hint) for name, hint in hints_of(kind).items()}
    return {"type": "object", "properties": properties, "required": sorted(required(kind))}


def still_loads(stored: str, now: str) -> bool:
    """Return whether a value that was stored under one shape loads under another."""
    return "?" not in (stored, now) and _fits(msgspec.json.decode(stored), msgspec.json.decode(now))


def _without_annotations(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_annotations(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs")  # their keys are user-defined names, which may equal a keyword
    return {
        key: {name: _without_annotations(inner) for name, inner in value.items()}
        if key in named
        else _without_annotations(value)
        for key, value in schema.items()
        if key not in _ANNOTATIONS
    }


def _fits(stored: Any, now: Any) -> bool:
    if isinstance(stored, list) and isinstance(now, list):
        return len(stored) == len(now) and all(map(_fits, stored, now))
    if not isinstance(stored, dict) or not isinstance(now, dict):
        return bool(stored == now)
    owed = set(now.get("required", ())) - set(stored.get("required", ()))
    grown = ("properties", "$defs")
    return (
        not owed
        and {*stored, *grown, "required"} == {*now, *grown, "required"}
        and all(_all_fit(stored.get(key, {}), now.get(key, {})) for key in grown)
        and all(_fits(value, now[key]) for key, value in stored.items() if key not in (*grown, "required"))
    )


def _all_fit(stored: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether all names still exist and their schemas fit."""
    return all(name in now and _fits(value, now[name]) for name, value in stored.items())
