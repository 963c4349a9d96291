"""The plain values: those of bodies and outputs, which JSON returns unchanged, and the plain types of states.

JSON has no NaN, no infinity and no bytes; an encoder silently writes null or base64 for them. They are refused here,
with the path to the value. A field of a record whose type is bytes may contain bytes, since its reader knows the type.
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
"""Types whose values are JSON values, except for texts that UTF-8 cannot encode."""
_SHALLOW: Final = 16
"""Depth of a quick check."""
_LEAVES: Final = (dt.date, dt.time, dt.timedelta, uuid.UUID, int, type(None))
"""Types whose values JSON can hold, as a number or a text."""
_KEYS: Final = (int, dt.date, dt.time, dt.timedelta, uuid.UUID, Decimal)
"""Types of keys of which each value has exactly one text."""
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
    for index, output in enumerate(outputs):
        if not is_plain(output):
            _walk(output, f"outputs[{index}]", 0, False)  # noqa: FBT003 - private


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
    for item in inner:
        kind = item.__class__
        if kind is str:
            if not item.isascii():
                return False
        elif kind not in _PLAIN and (depth > _SHALLOW or not is_plain(item, depth + 1)):
            return False
    return True


def inside(path: str, key: Any) -> str:
    """Return the path to the value that a container holds under a key."""
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}"
    return f"{path}[{reprlib.repr(key)}]"


def refuse(path: str, value: Any, advice: str) -> NoReturn:
    """Raise an error that names the refused value and its remedy."""
    raise ValueRefused(f"{path} is {reprlib.repr(value)} of type {type(value).__name__}: {advice}")


NOT_FINITE: Final = "JSON has no such number; use None, or a text"
NO_TEXT: Final = "UTF-8 cannot encode an unpaired surrogate; fix the text"
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
            for key, item in value.items():
                _check_key(key, path)
                _walk(item, inside(path, key), depth + 1, has_bytes)
        case list() | tuple():
            for index, item in enumerate(value):
                _walk(item, f"{path}[{index}]", depth + 1, has_bytes)
        case set() | frozenset():
            for item in value:
                _walk(item, path + "{}", depth + 1, has_bytes)
        case bytes() | bytearray() | memoryview():
            if not has_bytes:
                refuse(path, value, "JSON has no bytes; encode them as text, such as base64, or use a typed field")
        case _ if not isinstance(value, _LEAVES):
            record: type = type(value)
            fields = _bytes_in(record)
            if fields is None:
                refuse(path, value, "it is not JSON; use JSON values, a dataclass, a msgspec.Struct or a model")
            for name, allowed in fields:
                _walk(getattr(value, name, None), f"{path}.{name}", depth + 1, allowed)


def _check_key(key: Any, path: str) -> None:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        if not key.isascii() and not is_text(key):
            refuse(f"a key of {path}", key, NO_TEXT)
    elif isinstance(key, bool) or not isinstance(key, _KEYS):
        refuse(f"a key of {path}", key, "the keys of JSON objects are strings; convert it to a string")


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
    """Return the fields of a record type, and whether the type of each includes bytes; None for any other type."""
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


LEAST, MOST = -(2**63), 2**63 - 1
"""The range of the integers of a state, which is that of a table column."""
_BEYOND: Final = "integers in states have at most 64 bits; use a text, or a Decimal in a typed state"


TESTS: Final[dict[type, str]] = {
    type(None): "{0} is None",
    bool: "{0}.__class__ is bool",
    int: "{0}.__class__ is int and -9223372036854775808 <= {0} <= 9223372036854775807",
    float: "{0}.__class__ is float and {0} - {0} == 0.0",
    str: "{0}.__class__ is str and ({0}.isascii() or is_text({0}))",
    bytes: "{0}.__class__ is bytes",
    dt.date: "{0}.__class__ is date",
    dt.datetime: "{0}.__class__ is datetime and {0}.tzinfo is UTC and not {0}.fold",
    dt.time: "{0}.__class__ is time and {0}.tzinfo is None and not {0}.fold",
    dt.timedelta: "{0}.__class__ is timedelta",
    Decimal: "{0}.__class__ is Decimal and {0}.is_finite()",
    uuid.UUID: "{0}.__class__ is UUID",
}
"""The test for the normal form of each plain type, as source: it becomes part of the record's test."""
NAMES: Final = {
    "is_text": is_text,
    "date": dt.date,
    "datetime": dt.datetime,
    "UTC": dt.UTC,
    "time": dt.time,
    "timedelta": dt.timedelta,
    "Decimal": Decimal,
    "UUID": uuid.UUID,
}


def scalar(value: Any, path: str, target: type) -> Any:
    """Return the normal form of a value for a plain type.

    Raises:
        ValueRefused: if it has none; names the path and the type.
    """
    kind = type(value)
    if kind is not bool and target in (int, float) and isinstance(value, int | float):
        return _number(value, path, target)
    if target is str and isinstance(value, str):
        text = str.__str__(value)
        return text if is_text(text) else refuse(path, value, NO_TEXT)
    if target is bytes and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if target is dt.datetime and isinstance(value, dt.datetime):
        return _instant(value, path)
    if kind is not target or (target is dt.time and value.tzinfo is not None):
        refuse(path, value, f"expected {target.__name__}")
    if target is Decimal and not value.is_finite():
        refuse(path, value, NOT_FINITE)
    return value.replace(fold=0) if target is dt.time else value


def _number(value: float, path: str, target: type) -> Any:
    """Return an equal integer for a float, or an equal float for an integer."""
    if isinstance(value, float) and not math.isfinite(value):
        refuse(path, value, NOT_FINITE)
    try:
        number = target(value)
    except OverflowError:
        number = None
    if number != value:
        refuse(path, value, f"expected {target.__name__}, but no {target.__name__} equals this number")
    return number if target is float or LEAST <= number <= MOST else refuse(path, value, _BEYOND)


def _instant(value: dt.datetime, path: str) -> dt.datetime:
    if value.tzinfo is None or value.utcoffset() is None:
        refuse(path, value, "the time has no time zone; add one, such as datetime.UTC")
    try:
        utc = value.astimezone(dt.UTC)
    except OverflowError:
        refuse(path, value, f"its year in UTC is out of range; expected {dt.MINYEAR} to {dt.MAXYEAR}")
    parts = (utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond)
    return dt.datetime(*parts, tzinfo=dt.UTC)  # exactly a datetime, even if the value is of a subclass
