"""The values that bodies and outputs may hold: those that come back from JSON unchanged.

JSON has no NaN, no infinity and no bytes; an encoder silently writes null or base64 for them. They are refused here,
with the path to the value. A field of a record whose type says bytes may hold them, since its reader knows the type.
"""

import datetime as dt
import enum
import functools
import math
import operator
import reprlib
import typing
import uuid
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn

from inturn.core import limits
from inturn.core.errors import ValueRefused
from inturn.core.identity import field_names
from inturn.core.texts import is_text

_PLAIN: Final = frozenset({str, int, bool, type(None)})
"""Types whose values are JSON by themselves, except for texts that no UTF-8 can hold."""
_SHALLOW: Final = 16
"""Depth of a quick check."""
_LEAVES: Final = (dt.date, dt.time, dt.timedelta, uuid.UUID, int, type(None))
"""Types whose values are all JSON, as a number or a text."""
_KEYS: Final = (int, dt.date, dt.time, dt.timedelta, uuid.UUID, Decimal)
"""Types of keys that have one text each."""
_BYTES: Final = (bytes, bytearray, memoryview)


def check_json(value: Any, path: str) -> None:
    """Refuse values that JSON cannot hold, or would change.

    Args:
        value: a body, an attribute or an output.
        path: its name, such as ``body``.

    Raises:
        ValueRefused: names the path to the value and its type.
    """
    if not is_plain(value):
        _walk(value, path, 0, False)  # noqa: FBT003 - private


def check_outputs(outputs: Sequence[Any]) -> None:
    """Refuse outputs that JSON cannot hold; see :func:`check_json`."""
    for at, output in enumerate(outputs):
        if not is_plain(output):
            _walk(output, f"outputs[{at}]", 0, False)  # noqa: FBT003 - private


def is_plain(value: Any, depth: int = 0) -> bool:  # noqa: C901, PLR0911 - the sooner it returns the better
    """Return whether a value is certainly JSON: a quick check that covers most bodies and outputs."""
    kind: type = value.__class__
    inner: Iterable[Any]
    if kind is str:
        return bool(value.isascii())
    if kind is dict:
        try:
            names = "".join(value)
        except TypeError:
            return False
        inner = value.values()
        if not names.isascii():
            return False
    elif kind is list:
        inner = value
    elif kind in _PLAIN or kind is float:
        return kind is not float or bool(value - value == 0)
    else:
        read = _reader(kind)
        if read is None:
            return False
        inner = read(value)
    for each in inner:
        kind = each.__class__
        if kind is str:
            if not each.isascii():
                return False
        elif kind not in _PLAIN and (depth > _SHALLOW or not is_plain(each, depth + 1)):
            return False
    return True


def inside(path: str, key: Any) -> str:
    """Return the path to the value that a container holds under a key."""
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}"
    return f"{path}[{reprlib.repr(key)}]"


def refuse(path: str, value: Any, mend: str) -> NoReturn:
    """Raise an error that names the refused value and its remedy."""
    raise ValueRefused(f"{path} is {reprlib.repr(value)} of type {type(value).__name__}: {mend}")


NOT_FINITE: Final = "JSON has no such number; use None, or a text"
NO_TEXT: Final = "no UTF-8 can hold half a surrogate pair; mend the text"
TOO_DEEP: Final = f"it is nested more than {limits.VALUE_DEPTH} levels deep, or contains itself"


def _walk(value: Any, path: str, depth: int, has_bytes: bool) -> None:  # noqa: FBT001, C901, PLR0912 - one branch a type is what makes it a table
    if depth > limits.VALUE_DEPTH:
        refuse(path, type(value), TOO_DEEP)
    if isinstance(value, enum.Enum):
        value = value.value
    match value:
        case str():
            if not value.isascii() and not is_text(value):
                refuse(path, value, NO_TEXT)
        case float():
            if not math.isfinite(value):
                refuse(path, value, NOT_FINITE)
        case Decimal():
            if not value.is_finite():
                refuse(path, value, NOT_FINITE)
        case dict():
            for key, each in value.items():
                _check_key(key, path)
                _walk(each, inside(path, key), depth + 1, has_bytes)
        case list() | tuple():
            for at, each in enumerate(value):
                _walk(each, f"{path}[{at}]", depth + 1, has_bytes)
        case set() | frozenset():
            for each in value:
                _walk(each, path + "{}", depth + 1, has_bytes)
        case bytes() | bytearray() | memoryview():
            if not has_bytes:
                refuse(path, value, "JSON has no bytes; give them as a text, such as base64, or in a typed field")
        case _ if not isinstance(value, _LEAVES):
            record: type = type(value)
            fields = _bytes_in(record)
            if fields is None:
                refuse(path, value, "it is not JSON; use a dataclass, a Struct or plain values")
            for name, allowed in fields:
                _walk(getattr(value, name, None), f"{path}.{name}", depth + 1, allowed)


def _check_key(key: Any, path: str) -> None:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        if not key.isascii() and not is_text(key):
            refuse(f"a key of {path}", key, NO_TEXT)
    elif isinstance(key, bool) or not isinstance(key, _KEYS):
        refuse(f"a key of {path}", key, "the keys of JSON are texts; make it one")


@functools.cache
def _reader(record: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return a function that reads all fields of a record at once; None for any other type."""
    names = field_names(record)
    if not names or issubclass(record, enum.Enum):
        return None
    read = operator.attrgetter(*names)
    return read if len(names) > 1 else lambda value: (read(value),)


@functools.cache
def _bytes_in(record: type) -> tuple[tuple[str, bool], ...] | None:
    """Return the fields of a record type, and whether each one's type says bytes; None for any other type."""
    names = field_names(record)
    if names is None:
        return None
    try:
        hints = typing.get_type_hints(record)
    except NameError:  # a hint that cannot be resolved says nothing about bytes
        hints = {}
    return tuple((name, _says_bytes(hints.get(name))) for name in names)


def _says_bytes(hint: Any) -> bool:
    return hint in _BYTES or any(map(_says_bytes, typing.get_args(hint)))
