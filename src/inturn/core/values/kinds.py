"""The rules of each type hint of a state: a quick test for the normal form, and the slower conversion to it.

The tests of a record's plain fields are compiled into one expression, once for a type: they run after every message.
"""

import dataclasses
import enum
import math
import typing
from collections import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from inturn.core import limits
from inturn.core.identity import field_names, is_model
from inturn.core.texts import is_text
from inturn.core.values.models import unchecked
from inturn.core.values.plain import LEAST, MOST, NAMES, TESTS, TOO_DEEP, inside, refuse, scalar

Seen = set[int]
"""The ids of containers already met in a state: a container in two places would be read back as two containers."""


_FEW: Final = 8
"""Number of values up to which each is checked on its own."""


class Kind:
    """The rules of a type hint.

    Attributes:
        name: name of the hint, for people.
    """

    name = "a JSON value"

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:
        """Return whether a value is in its normal form, quickly."""
        raise NotImplementedError

    def normal(self, value: Any, path: str, depth: int) -> Any:
        """Make the normal form of a value.

        Raises:
            ValueRefused: if it has none; names the path and the type.
        """
        raise NotImplementedError


class ScalarKind(Kind):
    """A plain type."""

    def __init__(self, wanted: type) -> None:
        self.wanted, self.name = wanted, wanted.__name__
        self.source = TESTS[wanted]
        self._test = eval(f"lambda v: {self.source.format('v')}", dict(NAMES))  # noqa: S307 - source of our own

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:  # noqa: ARG002
        return bool(self._test(value))

    def normal(self, value: Any, path: str, depth: int) -> Any:  # noqa: ARG002
        return scalar(value, path, self.wanted)


class EnumKind(Kind):
    """An enumeration of texts or integers; accepts its members, or their values in place of them."""

    def __init__(self, wanted: type[enum.Enum]) -> None:
        self.wanted, self.name = wanted, wanted.__name__

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:  # noqa: ARG002
        return isinstance(value, self.wanted)

    def normal(self, value: Any, path: str, depth: int) -> Any:  # noqa: ARG002
        if isinstance(value, self.wanted):
            return value
        if type(value) in (int, str):
            for member in self.wanted:
                if type(member.value) is type(value) and member.value == value:
                    return member
        return refuse(path, value, f"expected one of {self.name}")


class LiteralKind(Kind):
    """A ``Literal``: one of some values."""

    def __init__(self, allowed: Sequence[Any]) -> None:
        self.allowed = {(type(value), value) for value in allowed}
        self.name = " | ".join(map(repr, allowed))

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:  # noqa: ARG002
        return isinstance(value, abc.Hashable) and (type(value), value) in self.allowed

    def normal(self, value: Any, path: str, depth: int) -> Any:
        return value if self.is_normal(value, set(), depth) else refuse(path, value, f"expected {self.name}")


class AnyKind(Kind):
    """No type, or a bare dict or list: JSON values, as dict, list, str, int, float, bool and None."""

    def __init__(self, wanted: type | None = None) -> None:
        self.wanted = wanted
        if wanted is not None:
            self.name = wanted.__name__

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:
        if value.__class__ is dict and id(value) not in seen and self.wanted in (None, dict):
            seen.add(id(value))  # the most common case, checked directly
            return _are_texts(value) and _is_json(value.values(), seen, depth + 1)
        return (self.wanted is None or value.__class__ is self.wanted) and _is_json((value,), seen, depth)

    def normal(self, value: Any, path: str, depth: int) -> Any:
        result = self._normal(value, path, depth)
        return result if self.wanted in (None, type(result)) else refuse(path, value, f"expected {self.name}")

    def _normal(self, value: Any, path: str, depth: int) -> Any:
        if depth > limits.VALUE_DEPTH:
            refuse(path, type(value), TOO_DEEP)
        match value:
            case None | bool():
                return value
            case int() | float() | str():
                base = next(option for option in (int, float, str) if isinstance(value, option))
                return scalar(value, path, base)
            case dict():
                items = {}
                for key, item in value.items():
                    if not isinstance(key, str):
                        refuse(f"a key of {path}", key, "keys of an untyped dict are strings; convert it to a string")
                    items[scalar(key, f"a key of {path}", str)] = self._normal(item, inside(path, key), depth + 1)
                return items
            case list() | tuple():
                return [self._normal(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        return refuse(path, value, "an untyped state contains only JSON values; use one, or a typed state")


def _is_json(values: abc.Collection[Any], seen: Seen, depth: int) -> bool:  # noqa: C901, PLR0911, PLR0912 - one branch a type is what makes it quick
    """Return whether all are JSON values in their normal form."""
    if depth > limits.VALUE_DEPTH:
        return False
    if len(values) > _FEW and (known := _are_alike(values)) is not None:
        return known
    for value in values:
        kind = value.__class__
        if kind is str:
            if not (value.isascii() or is_text(value)):
                return False
        elif kind is int:
            if not LEAST <= value <= MOST:
                return False
        elif kind is bool or value is None:
            pass
        elif kind is float:
            if value - value != 0.0:
                return False
        elif kind is dict or kind is list:
            if id(value) in seen:
                return False
            seen.add(id(value))
            if kind is dict:
                if not (_are_texts(value) and _is_json(value.values(), seen, depth + 1)):
                    return False
            elif not _is_json(value, seen, depth + 1):
                return False
        else:
            return False
    return True


def _are_alike(values: abc.Collection[Any]) -> bool | None:
    """Check many values of one plain type in a few calls, as ``_is_json``; return None if the types differ."""
    kinds = {*map(type, values)}
    if kinds == {int}:
        return bool(min(values) >= LEAST and max(values) <= MOST)
    if kinds == {str}:
        return all(map(str.isascii, values)) or all(map(is_text, values))
    return all(map(math.isfinite, values)) if kinds == {float} else None


def _are_texts(keys: abc.Collection[Any]) -> bool:
    return {*map(type, keys)} <= {str} and (all(map(str.isascii, keys)) or all(map(is_text, keys)))


class CollectionKind(Kind):
    """A list, tuple, set or frozenset of values of one type."""

    _TAKEN: Final[dict[type, tuple[type, ...]]] = {
        list: (list, tuple),
        tuple: (list, tuple),
        set: (set, frozenset),
        frozenset: (set, frozenset),
    }

    def __init__(self, wanted: type[Any], item: Kind) -> None:
        self.wanted, self.item, self.name = wanted, item, f"{wanted.__name__}[{item.name}]"
        self._changes = wanted in (list, set)

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:
        if value.__class__ is not self.wanted or depth > limits.VALUE_DEPTH:
            return False
        if self._changes:
            if id(value) in seen:
                return False
            seen.add(id(value))
        test = self.item.is_normal
        inner: Iterable[Any] = value
        return all(test(item, seen, depth + 1) for item in inner)

    def normal(self, value: Any, path: str, depth: int) -> Any:
        inner: Iterable[Any] = value
        if not isinstance(value, self._TAKEN[self.wanted]):
            refuse(path, value, f"expected {self.name}")
        if depth > limits.VALUE_DEPTH:
            refuse(path, type(value), TOO_DEEP)
        make = self.item.normal
        return self.wanted(make(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(inner))


class TupleKind(Kind):
    """A tuple of fixed length, with a type for each value."""

    def __init__(self, items: Sequence[Kind]) -> None:
        self.items, self.name = items, f"tuple[{', '.join(kind.name for kind in items)}]"

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:
        return (
            value.__class__ is tuple
            and len(value) == len(self.items)
            and depth <= limits.VALUE_DEPTH
            and all(kind.is_normal(item, seen, depth + 1) for kind, item in zip(self.items, value, strict=True))
        )

    def normal(self, value: Any, path: str, depth: int) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(self.items):
            refuse(path, value, f"expected {self.name}")
        pairs = enumerate(zip(self.items, value, strict=True))
        return tuple(kind.normal(item, f"{path}[{index}]", depth + 1) for index, (kind, item) in pairs)


class MappingKind(Kind):
    """A dict with a type for its keys and one for its values."""

    def __init__(self, key: Kind, item: Kind) -> None:
        self.key, self.item, self.name = key, item, f"dict[{key.name}, {item.name}]"

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:
        if value.__class__ is not dict or id(value) in seen or depth > limits.VALUE_DEPTH:
            return False
        seen.add(id(value))
        key, item = self.key.is_normal, self.item.is_normal
        return all(key(name, seen, depth) and item(item_value, seen, depth + 1) for name, item_value in value.items())

    def normal(self, value: Any, path: str, depth: int) -> Any:
        if not isinstance(value, dict):
            refuse(path, value, f"expected {self.name}")
        if depth > limits.VALUE_DEPTH:
            refuse(path, type(value), TOO_DEEP)
        key, item = self.key.normal, self.item.normal
        return {
            key(name, f"a key of {path}", depth): item(item_value, inside(path, name), depth + 1)
            for name, item_value in value.items()
        }


class UnionKind(Kind):
    """A union of types."""

    def __init__(self, options: Sequence[Kind]) -> None:
        self.options, self.name = options, " | ".join(option.name for option in options)

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:
        return any(option.is_normal(value, seen, depth) for option in self.options)

    def normal(self, value: Any, path: str, depth: int) -> Any:
        first_error: Exception | None = None
        fits = [option for option in self.options if option.is_normal(value, set(), depth)]
        for option in fits or self.options:
            try:
                return option.normal(value, path, depth)
            except Exception as error:  # noqa: BLE001 - the first of them tells
                first_error = first_error or error
        options = [option for option in self.options if option.name != "NoneType"]
        if len(options) == 1 and first_error is not None:
            raise first_error
        return refuse(path, value, f"expected {self.name}")


class RecordKind(Kind):
    """A dataclass, Struct or model.

    Attributes:
        is_flat_normal: test of a record whose fields are all plain, which needs only the record; None for other
            records.
    """

    def __init__(self, wanted: type) -> None:
        self.wanted, self.name = wanted, wanted.__name__
        self._is_model = is_model(wanted)
        self._is_struct = not self._is_model and not dataclasses.is_dataclass(wanted)
        self.fields: dict[str, Kind] = {}
        self.is_flat_normal: Callable[[Any], bool] | None = None
        self._test: Callable[[Any, Seen, int], bool] = lambda _value, _seen, _depth: False

    def complete(self, fields: dict[str, Kind]) -> None:
        """Set the fields, which may be of this kind themselves."""
        self.fields = fields
        names: dict[str, Any] = {**NAMES, "Wanted": self.wanted, "met": _met}
        tests = ["v.__class__ is Wanted"]
        if not self._is_struct and self.wanted.__dictoffset__:
            tests.append(f"len(v.__dict__) <= {_attributes(self.wanted)}")
        if self._is_model:
            tests.append(f"len(v.__pydantic_fields_set__) == {len(fields)}")
        for number, (name, kind) in enumerate(fields.items()):
            tests.append(_source(kind, f"v.{name}", f"f{number}", names))
        source = " and ".join(tests)
        # Safe to evaluate: field names are identifiers, and the rest is source of our own.
        if all(isinstance(kind, ScalarKind) or _is_optional(kind) for kind in fields.values()):
            self.is_flat_normal = eval(f"lambda v: {source}", names)  # noqa: S307
        # Instances that never change may occur in two places.
        around = f"depth <= {limits.VALUE_DEPTH}" + ("" if self._is_frozen() else " and met(v, seen)")
        self._test = eval(f"lambda v, seen, depth: {around} and {source}", names)  # noqa: S307

    def _is_frozen(self) -> bool:
        record: Any = self.wanted
        if self._is_model:
            return bool(record.model_config.get("frozen"))
        return bool((record.__struct_config__ if self._is_struct else record.__dataclass_params__).frozen)

    def is_normal(self, value: Any, seen: Seen, depth: int) -> bool:
        return self._test(value, seen, depth)

    def normal(self, value: Any, path: str, depth: int) -> Any:
        if type(value) is not self.wanted:
            refuse(path, value, f"expected {self.name}")
        if depth > limits.VALUE_DEPTH:
            refuse(path, type(value), TOO_DEEP)
        values = {}
        for name, kind in self.fields.items():
            if not hasattr(value, name):
                refuse(f"{path}.{name}", None, f"expected {kind.name}")
            values[name] = kind.normal(getattr(value, name), f"{path}.{name}", depth + 1)
        if self._is_model:
            return unchecked(self.wanted, values)
        if self._is_struct:
            return self.wanted(**values)
        new = object.__new__(self.wanted)
        for name, field_value in values.items():
            object.__setattr__(new, name, field_value)  # the dataclass may be frozen
        return new


def _met(value: Any, seen: Seen) -> bool:
    """Return whether a record is met for the first time."""
    if id(value) in seen:
        return False
    seen.add(id(value))
    return True


def _attributes(record: type) -> int:
    """Return the number of attributes that an instance of a dataclass has in its dict."""
    slots = {name for base in record.__mro__ for name in getattr(base, "__slots__", ())}
    return len([name for name in field_names(record) or () if name not in slots])


def _is_optional(kind: Kind) -> bool:
    return isinstance(kind, UnionKind) and all(isinstance(option, ScalarKind) for option in kind.options)


def _source(kind: Kind, read: str, name: str, names: dict[str, Any]) -> str:
    """Return the test of a field, as source that reads it once."""
    if isinstance(kind, ScalarKind):
        return f"({kind.source.replace('{0}', f'(a := {read})', 1).replace('{0}', 'a')})"
    if isinstance(kind, UnionKind) and _is_optional(kind):
        options = sorted(kind.options, key=lambda option: option.name != "NoneType")
        source = " or ".join(f"({typing.cast('ScalarKind', option).source})" for option in options)
        return f"({source.replace('{0}', f'(a := {read})', 1).replace('{0}', 'a')})"
    names[name] = kind
    return f"{name}.is_normal({read}, seen, depth + 1)"
