"""The values that a state may hold, and their one normal form: the table in docs/guarantees.md, as code.

A state is written at the end of a step and read again in the next one, and reading may change it: a Counter becomes a
dict, an int in a float field a float. Then the handler's input would depend on where steps end. So every engine
converts a state to its normal form after every message, before the next handler call: the form in which it would be
read back. A state without a normal form is refused, and parks its group.
"""

import base64
import dataclasses
import enum
import functools
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable
from typing import Any, Final

from inturn.core.errors import PipelineError, StateError, ValueRefused
from inturn.core.identity import field_names, is_model
from inturn.core.values import models
from inturn.core.values.kinds import (
    AnyKind,
    CollectionKind,
    EnumKind,
    Kind,
    LiteralKind,
    MappingKind,
    RecordKind,
    ScalarKind,
    TupleKind,
    UnionKind,
)
from inturn.core.values.plain import TESTS

_ALIASES: Final[dict[Any, type]] = {
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Mapping: dict,
    abc.MutableMapping: dict,
    abc.Set: set,
    abc.MutableSet: set,
}


def kind_of(hint: Any) -> Kind:
    """Return the rules of a type hint.

    Raises:
        StateError: if a state can hold no values of the type.
        PipelineError: if a hint within it cannot be resolved.
    """
    return _kind_of(hint, {})


def real(hint: Any) -> Any:
    """Return the type behind an alias, a ``NewType`` or an ``Annotated``."""
    while True:
        if isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__value__") and not isinstance(hint, type | enum.Enum):  # type X = …
            hint = hint.__value__
        else:
            return hint


def _kind_of(hint: Any, known: dict[type, RecordKind]) -> Kind:  # noqa: PLR0911 - one case a type is what makes it a table
    hint = real(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is None:
        return ScalarKind(type(None))
    if origin in (typing.Union, types.UnionType):
        return UnionKind([_kind_of(argument, known) for argument in arguments])
    if origin is typing.Literal:
        return LiteralKind(arguments)
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return AnyKind()
    concrete = _ALIASES.get(origin or hint, origin or hint)
    if not isinstance(concrete, type):
        return _unknown(hint)
    if concrete in TESTS:
        return ScalarKind(concrete)
    if issubclass(concrete, enum.Enum) and all(type(member.value) in (int, str) for member in concrete):
        return _unknown(hint) if issubclass(concrete, enum.Flag) else EnumKind(concrete)
    if concrete in (list, tuple, set, frozenset, dict):
        return _container(concrete, arguments, known)
    return _record(concrete, known) if field_names(concrete) is not None else _unknown(hint)


def _container(container: type, arguments: tuple[Any, ...], known: dict[type, RecordKind]) -> Kind:
    if container is dict:
        if not arguments:
            return AnyKind(dict)
        return MappingKind(*(_kind_of(argument, known) for argument in arguments))
    if container is list and not arguments:
        return AnyKind(list)
    if container is tuple and arguments and arguments[-1] is not Ellipsis:
        return TupleKind([_kind_of(argument, known) for argument in arguments if argument != ()])
    return CollectionKind(container, _kind_of(arguments[0], known) if arguments else AnyKind())


def _record(record: type, known: dict[type, RecordKind]) -> RecordKind:
    if record in known:
        return known[record]
    if is_model(record) and (lost := models.unkept(record)) is not None:
        raise StateError(f"a state cannot contain a {record.__qualname__}: stores do not keep {lost}")
    kind = known[record] = RecordKind(record)
    hints = hints_of(record)
    kind.complete({name: _kind_of(hints[name], known) for name in field_names(record) or ()})
    return kind


def _unknown(hint: Any) -> typing.NoReturn:
    name = getattr(hint, "__qualname__", None) or str(hint)
    msg = f"a state cannot contain a {name}: it is neither a record nor a type whose values are read back unchanged"
    raise StateError(f"{msg}; see the table in docs/guarantees.md")


def is_none_allowed(hint: Any) -> bool:
    """Return whether None is a value of a type."""
    hint = real(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(is_none_allowed, typing.get_args(hint)))
    return hint in (None, type(None), Any, object)


def hints_of(record: type) -> dict[str, Any]:
    """Return the type hints of a record.

    Raises:
        PipelineError: if one cannot be resolved.
    """
    try:
        return models.hints(record) if is_model(record) else typing.get_type_hints(record)
    except NameError as error:
        msg = f"a type hint of {record.__name__} cannot be resolved: {error}; define the type at module level"
        raise PipelineError(msg) from error


@functools.cache
def required(record: type) -> frozenset[str]:
    """Return the fields of a record type that have no default."""
    if dataclasses.is_dataclass(record):  # a metaclass may hide the signature
        none = dataclasses.MISSING
        return frozenset(
            field.name
            for field in dataclasses.fields(record)
            if field.default is none and field.default_factory is none
        )
    if is_model(record):
        return models.required(record)
    parameters = inspect.signature(record).parameters
    owed = {name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty}
    return frozenset(name for name in field_names(record) or () if name in owed)


class StateNormalizer:
    """The normal form of the states of one type; called with a state after each message.

    Args:
        state: state type, or function that makes a first state.

    Attributes:
        kind: rules of the type.
        is_normal: test for the normal form, for callers that run it after every message.
    """

    def __init__(self, state: Callable[[], Any]) -> None:
        self.kind = kind_of(state if isinstance(state, type) else Any)
        flat = self.kind.is_flat_normal if isinstance(self.kind, RecordKind) else None
        test = self.kind.is_normal
        self.is_normal: Callable[[Any], bool] = flat or (lambda state: test(state, set(), 0))

    def __call__(self, state: Any) -> Any:
        """Return the state itself if it is in its normal form, else its normal form.

        Raises:
            ValueRefused: if it has none; names the path and the type.
        """
        return state if self.is_normal(state) else self.kind.normal(state, "state", 0)


def restored(kind: Any, value: Any) -> Any:
    """Return a stored state, or a part of one, whose type msgspec does not know: a model, in its normal form.

    Raises:
        ValueError: if it is no longer valid for the model.
    """
    if not is_model(kind) or isinstance(value, kind):
        return value  # which msgspec itself checks
    rules = _kind_of_model(kind)
    model = kind.model_validate(_with_bytes(rules, value), strict=False, by_name=True, by_alias=False)
    try:
        return rules.normal(model, kind.__name__, 0)
    except ValueRefused as error:
        raise ValueError(str(error)) from error


def _with_bytes(kind: Kind, value: Any) -> Any:  # noqa: PLR0911 - one return a type is what makes it a table
    """Return a value with the bytes that JSON has as base64, which pydantic would take for the bytes themselves."""
    match kind, value:
        case ScalarKind(), str() if kind.wanted is bytes:
            return base64.b64decode(value)
        case RecordKind(), dict():
            return {name: _with_bytes(kind.fields[name], item) for name, item in value.items() if name in kind.fields}
        case CollectionKind(), list():
            return [_with_bytes(kind.item, item) for item in value]
        case TupleKind(), list() if len(value) == len(kind.items):
            return [_with_bytes(item, item_value) for item, item_value in zip(kind.items, value, strict=True)]
        case MappingKind(), dict():
            return {name: _with_bytes(kind.item, item) for name, item in value.items()}
        case UnionKind(), _ if len(options := [option for option in kind.options if option.name != "NoneType"]) == 1:
            return _with_bytes(options[0], value)
    return value


@functools.cache
def _kind_of_model(model: type) -> Kind:
    return kind_of(model)
