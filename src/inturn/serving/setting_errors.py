"""Errors of msgspec in terms of a configuration file: the table, the setting, its value, and what was expected."""

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import inspect

from inturn.core.address import shown

Steps: TypeAlias = tuple[str | int, ...]
"""The way to a table or a setting, from the top of the file: names of settings and numbers of tables."""

_HIDDEN: Final = frozenset({"secret", "secrets", "token", "headers", "options"})
"""Settings that may contain a secret; an error does not show their values."""
_AT: Final = re.compile(r"(.*?)(?: - at `\$([^`]*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_NAMED: Final = re.compile(r"Object (contains unknown|missing required) field `(.*)`", re.DOTALL)
_OWN: Final = re.compile(r"(?:Expected `|Invalid (?:value|enum)|Integer )")
"""The start of msgspec's texts about a value. Other texts are those of a table's own check."""
_PLURALS: Final = ((inspect.StrType, "strings"), (inspect.IntType, "whole numbers"))
_VALUES: Final[dict[type, Any]] = {inspect.StrType: str, inspect.IntType: int}


class SettingError(NamedTuple):
    """An error in a configuration.

    Attributes:
        text: the error, without its place.
        table: the way to the table.
        name: the setting; None: the table itself.
    """

    text: str
    table: Steps
    name: str | None = None


def setting_error(text: str, kind: Any, data: Any) -> SettingError:
    """Return the error that msgspec's text describes.

    Args:
        text: of ``msgspec.ValidationError``.
        kind: the type of the whole configuration.
        data: the parsed file.
    """
    match = _AT.fullmatch(text)
    problem, path = (match[1], match[2] or "") if match else (text, "")
    places = list(_places(inspect.type_info(kind), data, path))
    steps, value_kind, value = places[-1]
    if named := _NAMED.fullmatch(problem):
        name = named[2]
        if named[1] == "contains unknown":
            return SettingError(_unknown(name, _fields(value_kind, value)), steps, name)
        rule = expected(_fields(value_kind, value)[name], name)
        return SettingError(f"the setting {name!r} is missing; expected {rule}", steps)
    if not _OWN.match(problem):
        return SettingError(problem, steps, setting_of(problem))
    steps, value_kind, value = next(place for place in reversed(places) if isinstance(place[0][-1], str))
    name, rule = str(steps[-1]), expected(value_kind, str(steps[-1]))
    if rule == "a table" or rule.startswith("[["):  # a value that stands for a whole table may be a secret
        return SettingError(f"{name} is {_kind(value)}; expected {rule}", steps[:-1], name)
    return SettingError(f"{name} is {_shown(value, steps)}; expected {rule}", steps[:-1], name)


def setting_of(text: str) -> str | None:
    """Return the setting that an error is about, ``NAME is VALUE; expected …``; None if it begins in another way."""
    match = re.match(r"(\w+) (?:is|has|names|and \w+ are) ", text)
    return match and match[1]


def expected(kind: Any, name: str = "") -> str:
    """Return a text about the values of a type, by its description or by its rules; ``name`` is that of the setting."""
    if isinstance(kind, inspect.Metadata):
        return (kind.extra_json_schema or {}).get("description") or expected(kind.type, name)
    if isinstance(kind, inspect.UnionType):
        return " or ".join(
            dict.fromkeys(expected(member, name) for member in kind.types if member != inspect.NoneType())
        )
    text = _EXPECTED.get(type(kind))
    return "another value" if text is None else text(kind, name)


def _number(kind: Any, name: str) -> str:
    noun = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
    noun = {"s": "a number of seconds", "bytes": "a number of bytes"}.get(name.rpartition("_")[2], noun)
    if kind.ge is not None and kind.le is not None:
        return f"{noun} from {kind.ge} to {kind.le}"
    low = f" above {kind.gt}" if kind.gt is not None else f", {kind.ge} or more" if kind.ge is not None else ""
    return f"{noun}{low}" + (f", at most {kind.le}" if kind.le is not None else "")


def _either(values: Iterable[Any]) -> str:
    *first, last = (f'"{value}"' for value in values)
    return f"{', '.join(first)} or {last}" if first else last


def _items(kind: Any, name: str) -> str:
    if any(isinstance(member, inspect.StructType) for member in _alternatives(kind.item_type)):
        return f"[[{name}]] tables"
    return f"a list of {_plural(kind.item_type)}"


def _plural(item_type: Any) -> str:
    return next((plural for kind, plural in _PLURALS if isinstance(item_type, kind)), "values")


_EXPECTED: Final[dict[type, Callable[[Any, str], str]]] = {
    inspect.BoolType: lambda _of, _name: "true or false",
    inspect.DictType: lambda kind, _name: f"a table of {_plural(kind.value_type)}",
    inspect.EnumType: lambda kind, _name: _either(member.value for member in kind.cls),
    inspect.FloatType: _number,
    inspect.IntType: _number,
    inspect.ListType: _items,
    inspect.LiteralType: lambda kind, _name: _either(kind.values),
    inspect.StrType: lambda kind, _name: "a string in quotes" + (", not an empty one" if kind.min_length else ""),
    inspect.StructType: lambda _of, _name: "a table",
    inspect.VarTupleType: _items,
}


def _places(kind: Any, value: Any, path: str) -> Iterator[tuple[Steps, Any, Any]]:
    """Yield the steps, the type and the value of each place on a path of msgspec, from the top of the file."""
    steps: Steps = ()
    yield steps, kind, value
    for name, index in _STEP.findall(path):
        step: str | int
        if name:
            step, kind = name, _fields(kind, value)[name]
        elif index == "...":  # msgspec does not say which entry of a table it is
            kind = next(
                (member.value_type for member in _alternatives(kind) if isinstance(member, inspect.DictType)), None
            )
            right = _VALUES.get(type(kind), object)
            wrong = [key for key, item in value.items() if not isinstance(item, right)]
            if not wrong:
                return
            step = wrong[0]
        else:
            step = int(index)
            kind = next((member.item_type for member in _alternatives(kind) if hasattr(member, "item_type")), None)
        steps, value = (*steps, step), value[step]
        yield steps, kind, value


def _alternatives(kind: Any) -> list[Any]:
    """Return the types of which a value has one; TOML has no null."""
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [alternative for member in kind.types for alternative in _alternatives(member)]
    return [] if isinstance(kind, inspect.NoneType) else [kind]


def _fields(kind: Any, value: Any) -> dict[str, Any]:
    """Return the types of the settings of a table by name; of several kinds of tables, those of the value's kind."""
    structs = [member for member in _alternatives(kind) if isinstance(member, inspect.StructType)]
    tags = {
        struct.tag_field: inspect.LiteralType(tuple(s.tag for s in structs)) for struct in structs if struct.tag_field
    }
    chosen = next(
        (struct for struct in structs if not struct.tag_field or value.get(struct.tag_field) == struct.tag), None
    )
    return tags | {field.encode_name: field.type for field in (chosen.fields if chosen else ())}


def _unknown(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known := list(known), 1)
    meant = f"; did you mean {near[0]!r}? Known" if near else "; known"
    return f"unknown setting {name!r}{meant} settings: {', '.join(known)}"


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list of tables" if value and all(isinstance(item, dict) for item in value) else "a list"
    return "a string" if isinstance(value, str) else _shown(value, ())


def _shown(value: Any, steps: Steps) -> str:
    """Return a value as TOML has it, without secrets."""
    if not _HIDDEN.isdisjoint(steps):
        return "of the wrong type"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"[{', '.join(_shown(item, ()) for item in value)}]"
    text = str(value).lower() if isinstance(value, bool) else shown(value) if isinstance(value, str) else str(value)
    return f"{text!r:.200}" if isinstance(value, str) else text
