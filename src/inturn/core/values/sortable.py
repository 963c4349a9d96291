"""Texts that sort as values do, for stores that keep one column of text for values of any type.

Numbers get a fixed number of digits, whatever their sign.
"""

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Any, Final

from inturn.core.values.instant import instant_us, parsed

_DIGITS: Final = 30
_ZERO: Final = 10**_DIGITS
_SCALE: Final = 10**6
"""The last digits are those behind the point, down to a millionth: a 64-bit integer has 25 digits then."""
_INTEGER: Final = re.compile(rf"-?\d{{1,{_DIGITS}}}", re.ASCII)
_DAWN: Final = dt.date(1970, 1, 1)
_LENGTH: Final = 100
"""Characters of a text that count: a column that is indexed cannot be long."""


def sortable(value: Any) -> str:
    """Return a text that sorts among those of other values of its type as the value does.

    Args:
        value: a number, to a millionth; an instant (naive: in UTC), also as text, which is its microseconds since 1970;
            a date, which is its days; a span, which is its microseconds; or any other value with a text form, of which
            the first characters count.
    """
    if isinstance(value, str):
        value = parsed(value) or value
    if isinstance(value, dt.date):
        value = instant_us(value) if isinstance(value, dt.datetime) else (value - _DAWN).days
    elif isinstance(value, dt.timedelta):
        value = value // dt.timedelta(microseconds=1)
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if is_number or (isinstance(value, Decimal) and value.is_finite()):
        whole = math.floor(value)
        return _digits(whole * _SCALE + math.floor((value - whole) * _SCALE))
    # Whatever follows the text sorts behind a longer one; and a NUL fits into no column of PostgreSQL.
    return str(value)[:_LENGTH].replace("\0", "\2").replace("\1", "\2") + "\1"


def sortable_integer(text: str) -> str:
    """Return a text that sorts as the integer does that a text is; empty if it is none, or a very long one."""
    return _digits(int(text)) if _INTEGER.fullmatch(text) else ""


def _digits(number: int) -> str:
    return f"{min(max(number, -_ZERO), 9 * _ZERO - 1) + _ZERO:0{_DIGITS + 1}d}"
