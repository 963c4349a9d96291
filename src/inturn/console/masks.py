"""Rules that hide fields of messages, states and outputs from viewers."""

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final

from inturn.console.differences import FieldChange
from inturn.console.forms import FormField
from inturn.core.errors import InputError, StoreError, StoreMismatch, ValueRefused

HIDDEN: Final = "•••"
_PAYLOADS: Final = {
    "attributes", "body", "content", "headers", "key", "message", "new", "old", "output", "outputs",
    "record", "state", "state_before",
}  # fmt: skip
"""Names of fields with contents of messages, states and outputs."""
_ERRORS: Final = {"detail", "error", "note", "reason"}
"""Names of fields with error texts, which may quote a message."""


_OPENING: Final = ("{", "[", '"')
"""Characters with which a JSON document in a text begins."""


class MaskRules:
    """Rules such as ``card.*``: a pattern of a field's path, at any depth of a message, state or output.

    ``card.*`` hides ``card.number``, and ``customer.card.number`` too. Letters match in both cases. A text that is
    itself JSON is masked inside; a text that begins like JSON but is not valid is hidden as a whole. Contents without
    fields, such as a text, are hidden as a whole. Of an error only its type is shown, since its text may quote the
    message.

    Args:
        rules: the patterns; none: nothing is hidden.

    Raises:
        InputError: if a rule is empty.
    """

    def __init__(self, rules: Sequence[str] = ()) -> None:
        if not all(rules):
            raise InputError("mask: a rule is empty; write a path such as 'card.*'")
        self._rules = [rule.lower() for rule in rules]

    def __bool__(self) -> bool:
        """Return whether anything is hidden."""
        return bool(self._rules)

    def apply(self, values: Any) -> Any:
        """Return the result of a view with the fields hidden; types are not changed."""
        return self._within(values, None) if self._rules else values

    def _within(self, value: Any, name: str | None) -> Any:
        """Mask below a field of the console's own structure."""
        if isinstance(value, FormField):
            return dataclasses.replace(value, text=HIDDEN, choices=[])
        if isinstance(value, FieldChange):
            old, new = (self._masked_at(value.path, part) for part in (value.old, value.new))
            return dataclasses.replace(value, old=old, new=new)
        if name == "outputs" and isinstance(value, int):
            return value  # their number
        if name in _PAYLOADS and not _is_own(value):
            return self.payload(value)
        if name in _ERRORS and isinstance(value, str):
            return error_type(value)
        return _rebuilt(value, self._within)

    def _masked_at(self, place: str, value: Any) -> Any:
        """Mask the part of a message, state or output at a dotted path."""
        path = place.lower().split(".") if place else []
        is_below = any(self._is_hidden(path[:length]) for length in range(1, len(path)))
        return HIDDEN if is_below else self.payload(value, path)

    def payload(self, value: Any, path: Sequence[str] = ()) -> Any:
        """Return a message, state or output with its fields hidden."""
        if path and self._is_hidden(path):
            return HIDDEN
        if isinstance(value, Mapping):
            return {name: self.payload(item, (*path, str(name).lower())) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.payload(item, (*path, str(place))) for place, item in enumerate(value)]
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and value.lstrip()[:1] in _OPENING:
            try:
                return json.dumps(self.payload(json.loads(value), path), ensure_ascii=False)
            except (ValueError, RecursionError):
                return HIDDEN
        return value if path or value is None or isinstance(value, bool) else HIDDEN

    def _is_hidden(self, path: Sequence[str]) -> bool:
        below = [".".join(path[first:]) for first in range(len(path))]
        return any(fnmatchcase(tail, rule) for rule in self._rules for tail in below)


def error_type(text: str) -> str:
    """Return only the type of an error, from the start of a traceback's last line."""
    last = text.rstrip().rsplit("\n", 1)[-1]
    kind = re.match(r"[A-Za-z_][\w.]*(?=:|$)", last)
    return f"{kind.group()}: {HIDDEN}" if kind else HIDDEN if text else ""


def _is_own(value: Any) -> bool:
    """Return whether a value is one of the console's own rows, or a list of them."""
    if isinstance(value, list | tuple) and value:
        value = value[0]
    return dataclasses.is_dataclass(value) or hasattr(value, "_asdict")


def masked_error(error: Exception) -> Exception:
    """Return an error as viewers may see it: in full if about the request or the store, otherwise only its type."""
    if isinstance(error, InputError | StoreError | OSError) and not isinstance(error, ValueRefused | StoreMismatch):
        return error
    return InputError(f"{type(error).__name__}: {HIDDEN}")


def _rebuilt(value: Any, mask: Any) -> Any:
    """Return a value of the console's own structure with its parts masked.

    Raises:
        TypeError: if the parts of the value's type are not known, so that they could contain a message.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: mask(getattr(value, field.name), field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return type(value)(**{name: mask(item, name) for name, item in value._asdict().items()})
    if isinstance(value, Mapping):
        return {name: mask(item, name if isinstance(name, str) else None) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item, None) for item in value]
    if value is None or isinstance(value, str | int | float | dt.datetime | Enum):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be masked")
