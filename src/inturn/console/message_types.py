"""The fields of a pipeline's message type, for the form of a failing message.

``python -m inturn.console.message_types`` describes the message types of definitions: a list of definitions on standard
input, the fields by pipeline on standard output. Only that process loads the user's code; it is isolated like that of a
dry run.
"""

import datetime as dt
import decimal
import enum
import os
import sys
import types
import typing
import uuid
from contextlib import suppress
from typing import Any, Final

import msgspec

from inturn.console.isolation import isolate, limit_resources
from inturn.core.errors import InturnError
from inturn.core.identity import field_names
from inturn.core.pipeline.definition import Pipeline
from inturn.core.values.path import parts
from inturn.core.values.states import hints_of, is_none_allowed, real, required
from inturn.definitions import load

_KINDS: Final = {bool: "boolean", int: "integer", float: "number", str: "text"}
_ABOUT: Final = {"boolean": "true or false", "integer": "whole number"}
_TEXTS: Final = {
    dt.datetime: "date and time",
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "length of time",
    decimal.Decimal: "decimal number",
    uuid.UUID: "UUID",
    bytes: "base64",
}
"""Types that are texts in JSON."""


class FieldType(msgspec.Struct, frozen=True):
    """The type of one field of a message.

    Attributes:
        name: name of the field.
        kind: ``text``, ``integer``, ``number``, ``boolean``, ``choice`` or ``json``.
        about: the type in words.
        choices: of a ``choice``, the values.
        takes_none: whether null is allowed.
        is_needed: whether it is required.
        is_fixed: whether it determines the message's group or place, so that it cannot be replaced.
    """

    name: str
    kind: str
    about: str
    choices: list[Any] = []
    takes_none: bool = False
    is_needed: bool = False
    is_fixed: bool = False


class MessageTypes(msgspec.Struct, frozen=True):
    """The answer of the process.

    Attributes:
        fields: the fields of the message type by pipeline; none for plain dicts.
        errors: why a definition could not be loaded, by definition.
    """

    fields: dict[str, list[FieldType]]
    errors: dict[str, str] = {}


def field_types(pipeline: Pipeline) -> list[FieldType]:
    """Return the fields of a pipeline's message type; for plain dicts only the fields that cannot be replaced."""
    fixed = {parts(name)[0] for name in pipeline.placing_fields}
    record: type | None = pipeline.message
    names = None if record is None else field_names(record)
    if record is None or names is None:
        return [FieldType(name, "json", "", is_fixed=True) for name in sorted(fixed)]
    hints, owed = hints_of(record), required(record)
    return [_described(name, hints[name], is_needed=name in owed, is_fixed=name in fixed) for name in names]


def _described(name: str, hint: Any, *, is_needed: bool, is_fixed: bool) -> FieldType:
    kinds = [part for part in _alternatives(hint) if part is not type(None)]
    kind, about, choices = _kind(kinds[0]) if len(kinds) == 1 else ("json", " or ".join(map(_word, kinds)), [])
    return FieldType(name, kind, about, choices, is_none_allowed(hint), is_needed, is_fixed)


def _alternatives(hint: Any) -> list[Any]:
    """Return the types of a union, or the one type of another hint."""
    hint = real(hint)
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return [kind for part in typing.get_args(hint) for kind in _alternatives(part)]
    return [hint]


def _kind(hint: Any) -> tuple[str, str, list[Any]]:
    """Return the kind of a type, its description, and the values to choose from."""
    if typing.get_origin(hint) is typing.Literal:
        return "choice", "one of these", list(typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "choice", hint.__name__, [member.value for member in hint]
    if not isinstance(hint, type):
        return "json", _word(hint), []
    text = next((about for base, about in _TEXTS.items() if issubclass(hint, base)), None)
    if text is not None:
        return "text", text, []
    kind = next((kind for base, kind in _KINDS.items() if issubclass(hint, base)), "json")
    return kind, _ABOUT.get(kind, _word(hint) if kind == "json" else kind), []


def _word(hint: Any) -> str:
    """Return the name of a type in JSON."""
    origin = typing.get_origin(hint) or hint
    if origin in {list, tuple, set, frozenset}:
        return "list"
    return "object" if origin is dict else getattr(origin, "__name__", str(origin))


def described(definitions: list[str]) -> MessageTypes:
    """Load definitions and describe their message types; isolates this process."""
    isolate()
    message_types = MessageTypes({}, {})
    for definition in definitions:
        try:
            pipeline = load(definition)
            message_types.fields[pipeline.name] = field_types(pipeline)
        except InturnError as error:
            message_types.errors[definition] = str(error)
    return message_types


def main() -> None:
    """Answer the request on standard input."""
    limit_resources()
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
    out = os.dup(1)
    os.dup2(2, 1)
    with suppress(BrokenPipeError):
        os.write(out, msgspec.json.encode(described(request), enc_hook=str))


if __name__ == "__main__":
    main()
