"""The form of a failing message: one input per field, derived from the message's type or else from its values."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from inturn.console.isolated_process import ProcessEnded, run_isolated
from inturn.console.json_texts import json_value
from inturn.console.message_types import FieldType, MessageTypes
from inturn.core.errors import InputError
from inturn.core.texts import quoted

_KEPT_S: Final = 60.0
"""How long the types of a module are cached; the types of a file are cached until it changes."""
_OF_VALUES: Final[Mapping[type, str]] = {bool: "boolean", int: "integer", float: "number", str: "text"}
_WORDS: Final = {"boolean": "true or false", "integer": "whole number", "json": "JSON"}
_FITS: Final[Mapping[str, tuple[type, ...]]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True)
class FormField:
    """An input of the form.

    Attributes:
        name: name of the field.
        kind: ``text``, ``long`` (several lines), ``integer``, ``number``, ``boolean``, ``choice`` or ``json``.
        text: its value as the input shows it.
        about: its type in words.
        choices: of a ``choice``, the values as JSON.
        is_none: whether it is null now.
        takes_none: whether it can be null.
        is_absent: whether the message lacks the field now.
        is_needed: whether it is required.
        is_fixed: whether it cannot be replaced.
    """

    name: str
    kind: str
    text: str
    about: str
    choices: list[str]
    is_none: bool = False
    takes_none: bool = False
    is_absent: bool = False
    is_needed: bool = False
    is_fixed: bool = False


class MessageForms:
    """The message types of the definitions on the command line, described by a separate process and cached."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._types = MessageTypes({})
        self._key: object = None
        self._until = 0.0

    def prepare(self, definitions: Sequence[str]) -> None:
        """Describe the types in the background, so that the first page does not wait for them."""
        if definitions:
            threading.Thread(target=self.types, args=(tuple(definitions), ""), daemon=True).start()

    def types(self, definitions: Sequence[str], pipeline: str) -> list[FieldType]:
        """Return the fields of a pipeline's messages; none if the pipeline has no definition or it cannot be loaded."""
        if not definitions:
            return []
        with self._mutex:
            key = tuple((definition, _changed_ns(definition)) for definition in definitions)
            if key != self._key or (time.monotonic() > self._until and None in (changed_ns for _, changed_ns in key)):
                self._key, self._until = key, time.monotonic() + _KEPT_S
                try:
                    out = run_isolated(
                        "inturn.console.message_types", msgspec.json.encode(definitions), "description of messages"
                    )
                    self._types = msgspec.json.decode(out, type=MessageTypes)
                except ProcessEnded:  # the page then derives the form from the values; a dry run shows why
                    self._types = MessageTypes({})
            return self._types.fields.get(pipeline, [])


def form(content: Mapping[str, Any], types: Sequence[FieldType]) -> list[FormField]:
    """Return the inputs for a message: the fields of its type in their order, then the message's other fields."""
    known = {field.name: field for field in types}
    names = [*(name for name in known if name in content or not known[name].is_fixed)]
    names += [name for name in content if name not in known]
    content = msgspec.to_builtins(content)  # a store on Spark returns times and similar values as Python objects
    return [_field(name, content, known.get(name)) for name in names]


def _field(name: str, content: Mapping[str, Any], known: FieldType | None) -> FormField:
    value, is_absent = content.get(name), name not in content
    kind, choices = known.kind if known else "", [_line(choice) for choice in known.choices] if known else []
    is_other = type(value) not in _FITS.get(kind, (type(value),)) or bool(choices and _line(value) not in choices)
    if value is not None and is_other:
        kind = ""  # the value does not match the type, which may be why the handler failed
    if not kind or (kind == "json" and known is not None and not known.about):
        kind = _OF_VALUES.get(type(value), "json")
    if kind == "text" and isinstance(value, str) and ("\n" in value or len(value) > 120):
        kind = "long"
    is_text = kind in {"text", "long"}
    text = str(value) if is_text else _shown(value, kind)
    if is_absent or (value is None and kind != "json"):
        text = ""
    about = (known.about if known else "") or _WORDS.get(kind, "text" if is_text else kind)
    return FormField(
        name,
        kind,
        text,
        about,
        choices,
        is_none=value is None and not is_absent and kind != "json",
        takes_none=(known.takes_none if known else value is None) and kind != "json",
        is_absent=is_absent,
        is_needed=known is not None and known.is_needed,
        is_fixed=known is not None and known.is_fixed,
    )


def edited(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of a posted form: ``field.amount`` of the kind ``kind.amount``, and ``none.amount`` for null.

    Raises:
        InputError: if a value is not of its kind.
    """
    content: dict[str, Any] = {}
    for key, text in fields.items():
        if not key.startswith("field."):
            continue
        name = key.removeprefix("field.")
        kind = fields.get(f"kind.{name}") or "json"
        if fields.get(f"none.{name}"):
            content[name] = None
        elif text or not fields.get(f"absent.{name}"):
            content[name] = text.replace("\r\n", "\n") if kind in {"text", "long"} else _value(name, kind, text)
    return content


def _value(name: str, kind: str, text: str) -> Any:
    field, expected = f"the field {quoted(name)} is {quoted(text)}, which", _expected(kind)
    value = json_value(field, text, expected)
    if type(value) not in _FITS.get(kind, (type(value),)):
        raise InputError(f"{field} is not {expected}; nothing was changed")
    return value


def _expected(kind: str) -> str:
    return {"integer": "a whole number", "number": "a number", "boolean": "true or false"}.get(kind, "JSON")


def _shown(value: Any, kind: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if kind == "json" else _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _changed_ns(definition: str) -> int | None:
    """Return the modification time of a definition's file; None for a module."""
    try:
        return Path(definition.rpartition(":")[0]).stat().st_mtime_ns
    except OSError:
        return None
