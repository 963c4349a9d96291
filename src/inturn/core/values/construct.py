"""Construction of messages of a record type: the defaults of its fields, and the errors of its own checks.

A null or absent field gets its default, else None if the type allows it, else the message is invalid. A table cannot
distinguish an absent field from a null one, but a queue can, so nothing may depend on the difference. The rule holds
for the fields of a record type and of the records within it. Plain dicts have no types and are not changed.

An exception from ``__post_init__``, ``__init__`` or a default factory makes that one message ``invalid``. A type that
cannot be called with its fields at all is an error in the program, not in a message.
"""

import base64
import dataclasses
import enum
import functools
import typing
from collections import abc
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from inturn.core.identity import field_names, is_model
from inturn.core.texts import text_of
from inturn.core.values.models import by_name, faults
from inturn.core.values.models import make as made_of
from inturn.core.values.states import hints_of, is_none_allowed, real, required

Fill = Callable[[Any, bool], Any]
"""A function that fills the records within a value; the second argument is whether it makes records of dicts."""


class FieldDefault(NamedTuple):
    """One field of a record type.

    Attributes:
        key: name in JSON.
        type: type, as one word for error texts.
        takes_none: whether the type allows None.
        fill: fills the records within a value; None if the type names none.
        default: default of a dataclass field, which msgspec leaves to the class and so would not write; ``_NONE`` if
            the field has none.
    """

    name: str
    key: str
    type: str
    has_default: bool
    takes_none: bool
    fill: Fill | None
    default: Any


_NONE = object()


@functools.cache
def places(record: type) -> tuple[FieldDefault, ...]:
    """Return the fields of a record type."""
    names, owed, hints = field_names(record) or (), required(record), hints_of(record)
    keys = getattr(record, "__struct_encode_fields__", names)
    return tuple(
        FieldDefault(
            name,
            key,
            _word(hints[name]),
            name not in owed,
            is_none_allowed(hints[name]),
            fill_of(hints[name], is_model(record)),
            _default(record, name),
        )
        for name, key in zip(names, keys, strict=True)
    )


def _default(record: type, name: str) -> Any:
    for field in dataclasses.fields(record) if dataclasses.is_dataclass(record) else ():
        if field.name == name and field.default is not dataclasses.MISSING:
            return field.default.value if isinstance(field.default, enum.Enum) else field.default
    return _NONE


def filled(record: type, values: Mapping[str, Any], *, make: bool = False) -> dict[str, Any]:
    """Return the fields of a record by name, ready for its constructor; the type's defaults fill absent fields.

    Args:
        record: record type.
        values: fields by name; some may be null or absent.
        make: whether to make records of the dicts within; if not, they stay dicts for a decoder to convert.
    """
    fields = {}
    make = make and not is_model(record)  # a model makes those within it
    for name, _, _, has_default, takes_none, fill, _ in places(record):
        value = values.get(name)
        if value is not None:
            fields[name] = value if fill is None else fill(value, make)
        elif not has_default and takes_none:
            fields[name] = None
    return fields


def lacking(record: type, fields: Mapping[str, Any]) -> str | None:
    """Return why a record cannot be made of the fields from :func:`filled`, or None if it can."""
    for name, _, kind, has_default, *_ in places(record):
        if not has_default and name not in fields:
            return f"{name} is null, expected {kind}"
    return None


def is_unfilled(message: Any) -> bool:
    """Return whether a record holds None in place of a default, or a value that may contain other records."""
    return any(
        has_default if getattr(message, name, None) is None else is_filled
        for name, has_default, is_filled in _fillable(message.__class__)
    )


@functools.cache
def _fillable(record: type) -> tuple[tuple[str, bool, bool], ...]:
    """Return the fields that may have to be filled: each with whether it has a default, and may contain records."""
    candidates = ((place.name, place.has_default, place.fill is not None) for place in places(record))
    return tuple(row for row in candidates if any(row[1:]))


def _word(hint: Any) -> str:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    hint = options[0] if len(options) == 1 and typing.get_origin(hint) not in (list, set, tuple, frozenset) else hint
    return str(getattr(hint, "__name__", hint))


def fill_of(hint: Any, in_model: bool = False) -> Fill | None:  # noqa: FBT001, FBT002 - as map() calls it
    """Return the function that fills the records within values of a type, or None if the type names none.

    Args:
        hint: the type.
        in_model: whether it is that of a model's field, in which a text stands for bytes in base64.
    """
    hint = real(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and field_names(hint) is not None:
        return functools.partial(_fill_record, hint)
    if hint is bytes and in_model:
        return _fill_bytes
    inner = [fill for fill in (fill_of(argument, in_model) for argument in arguments) if fill is not None]
    if len(inner) != 1:  # only a decoder can choose between several record types
        return None
    if origin in (dict, abc.Mapping, abc.MutableMapping):
        return functools.partial(_fill_values, inner[0])
    if origin in (list, tuple, set, frozenset, abc.Sequence, abc.Collection):
        return functools.partial(_fill_items, inner[0])
    return inner[0]


def _fill_record(record: type, value: Any, make: bool) -> Any:  # noqa: FBT001 - private
    if not isinstance(value, Mapping):
        return value
    fields = places(record)
    value = by_name(record, value)
    values = {place.name: value[place.key] for place in fields if place.key in value}
    filled_values = filled(record, values, make=make)
    if make:
        problem = lacking(record, filled_values)
        if problem is not None and is_model(record):  # no other record checks its types when it is made
            raise ValueError(problem)
        return made_of(record, filled_values) if problem is None else value
    for place in fields:
        if place.name not in filled_values and place.default is not _NONE:
            filled_values[place.name] = place.default
    known = {place.key for place in fields}
    unknown = {key: item for key, item in value.items() if key not in known}
    return {**unknown, **{place.key: filled_values[place.name] for place in fields if place.name in filled_values}}


def _fill_bytes(value: Any, _make: bool) -> Any:  # noqa: FBT001 - private
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except ValueError:  # the model refuses it
        return value


def _fill_items(fill: Fill, value: Any, make: bool) -> Any:  # noqa: FBT001 - private
    return type(value)(fill(item, make) for item in value) if type(value) in (list, tuple) else value


def _fill_values(fill: Fill, value: Any, make: bool) -> Any:  # noqa: FBT001 - private
    return {key: fill(item, make) for key, item in value.items()} if isinstance(value, dict) else value


T = TypeVar("T")


class InvalidMarker(NamedTuple):
    """The placeholder for a message that cannot be made.

    Attributes:
        why: error text of its type.
    """

    why: str


def attempted(record: type, make: Callable[[], T]) -> T | InvalidMarker:
    """Make a message, or return why its type refuses it.

    Raises:
        TypeError: if the type does not take such arguments.
    """
    try:
        return make()
    except TypeError as error:
        # No frame below that of ``make``: the call itself failed. Errors of the type's own code come from a deeper one.
        frame = error.__traceback__ and error.__traceback__.tb_next
        if frame is None or frame.tb_next is None:
            raise
        return InvalidMarker(refusal(record, error))
    except Exception as error:  # noqa: BLE001 - the type's own checks may raise anything
        return InvalidMarker(refusal(record, error))


def refusal(record: type, error: BaseException) -> str:
    """Return why a message does not fit its type."""
    return f"it is not a valid {record.__name__}: {error_text(error)}"


def error_text(error: BaseException) -> str:
    """Return an error's text, with the error's type if the text alone is not enough.

    >>> error_text(ValueError("amount is below zero")), error_text(KeyError("owner")), error_text(ValueError())
    ('amount is below zero', "KeyError: 'owner'", 'ValueError')
    """
    if (known := faults(error)) is not None:
        return known
    name, text = type(error).__name__, text_of(error)
    if not text:
        return name
    return text if type(error) in (ValueError, TypeError) else f"{name}: {text}"


def decoded(kind: Any, value: Any) -> Any:
    """Return a part of a message, or a result, whose type msgspec does not know: a model.

    Raises:
        ValueError: if the model refuses it.
    """
    if not is_model(kind) or not isinstance(value, Mapping):
        return value  # which msgspec itself checks
    return _fill_record(kind, value, True)  # noqa: FBT003 - private
