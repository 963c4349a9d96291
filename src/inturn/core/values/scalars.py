"""The plain types of a state: the test for the normal form of a value, and the conversion to it."""

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any, Final

from inturn.core.texts import is_text
from inturn.core.values.plain import NO_TEXT, NOT_FINITE, refuse

LEAST, MOST = -(2**63), 2**63 - 1
"""The integers that a state holds: those that a column of a table holds too."""
_BEYOND: Final = "states hold integers of 64 bits; use a text, or a Decimal in a typed state"


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


def scalar(value: Any, path: str, wanted: type) -> Any:
    """Return the normal form of a value for a plain type.

    Raises:
        ValueRefused: if it has none; names the path and the type.
    """
    kind = type(value)
    if kind is not bool and wanted in (int, float) and isinstance(value, int | float):
        return _number(value, path, wanted)
    if wanted is str and isinstance(value, str):
        text = str.__str__(value)
        return text if is_text(text) else refuse(path, value, NO_TEXT)
    if wanted is bytes and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if wanted is dt.datetime and isinstance(value, dt.datetime):
        return _instant(value, path)
    if kind is not wanted or (wanted is dt.time and value.tzinfo is not None):
        refuse(path, value, f"expected {wanted.__name__}")
    if wanted is Decimal and not value.is_finite():
        refuse(path, value, NOT_FINITE)
    return value.replace(fold=0) if wanted is dt.time else value


def _number(value: float, path: str, wanted: type) -> Any:
    """Return an equal integer for a float, or an equal float for an integer."""
    if isinstance(value, float) and not math.isfinite(value):
        refuse(path, value, NOT_FINITE)
    try:
        made = wanted(value)
    except OverflowError:
        made = None
    if made != value:
        refuse(path, value, f"expected {wanted.__name__}, and no {wanted.__name__} is the same number")
    return made if wanted is float or LEAST <= made <= MOST else refuse(path, value, _BEYOND)


def _instant(value: dt.datetime, path: str) -> dt.datetime:
    if value.tzinfo is None or value.utcoffset() is None:
        refuse(path, value, "it is a time without a zone; give it one, such as datetime.UTC")
    try:
        made = value.astimezone(dt.UTC)
    except OverflowError:
        refuse(path, value, "in UTC it is in a year that there is not")
    parts = (made.year, made.month, made.day, made.hour, made.minute, made.second, made.microsecond)
    return dt.datetime(*parts, tzinfo=dt.UTC)  # exactly a datetime, even if the value is of a subclass
