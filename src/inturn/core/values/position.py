"""Positions in the log of a database: numbers, and the texts that connectors write them as, compared as numbers.

* A whole number, also as text: an SCN of Oracle, an offset, the ``ord`` of MongoDB.
* Hexadecimal numbers with ``:`` or ``/`` between them: an LSN of SQL Server (``00000027:00000758:0005``) or PostgreSQL
  (``16/B374D848``).
* Three of them with dots: the ``rs_id`` of Oracle (``001234.00012345.0124``).
* The name of a binlog of MySQL, which ends with its number: ``mysql-bin.000003``.

As texts these compare wrongly: ``9`` is above ``10``, and ``F`` below ``a``.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

LogPosition = tuple[int, ...]
"""The numbers of a position, the most significant first; empty if it is null."""

EXPECTED: Final = (
    "a 64-bit whole number of 0 or more; a text of up to 39 digits; an LSN such as 00000027:00000758:0005 or "
    "16/B374D848; or the name of a binlog such as mysql-bin.000003"
)
"""The values that are positions, in words."""

_DIGITS: Final = 39
_DECIMAL: Final = re.compile(rf"\d{{1,{_DIGITS}}}", re.ASCII)
_HEX: Final = r"[0-9A-Fa-f]{1,16}"
_HEXADECIMAL: Final = re.compile(rf"{_HEX}(?:[:/]{_HEX}){{1,7}}|(?:0x)?({_HEX}(?:\.{_HEX}){{2}})")
_FILE: Final = re.compile(r"[A-Za-z][^:/]*\.(\d{6,18})", re.ASCII)
_MOST: Final = 2**63
_TEXTS: Final = 64
"""Number of texts whose numbers are cached: those of a message are needed for its check, its tie and its id."""


def position_of(value: Any) -> LogPosition | None:
    """Return the numbers of a position; None if the value is not a position.

    Args:
        value: an integer of 64 bits, a decimal without a fraction, a text, or None, which is before all positions.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and value >= 0 and value.adjusted() < _DIGITS and value == int(value)
        return (int(value),) if is_whole else None
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
    return (value,) if is_number else None


@lru_cache(_TEXTS)
def _of_text(text: str) -> LogPosition | None:
    if _DECIMAL.fullmatch(text):
        return (int(text),)
    if match := _HEXADECIMAL.fullmatch(text):
        return tuple(int(part, 16) for part in re.split("[:/.]", match[1] or text))
    file = _FILE.fullmatch(text)
    return None if file is None else (int(file[1]),)


def sortable_positions(positions: Sequence[LogPosition]) -> str:
    """Return a text that sorts as these positions do, the first one first.

    Each has the count of its numbers before it, and each number the count of its digits, so that no text is the
    beginning of another one.
    """
    return "".join(f"{len(position)}{''.join(map(_sortable, position))}" for position in positions)


def shown_positions(positions: Sequence[LogPosition]) -> str:
    """Return the text form of positions, which is the same for all texts of one number: ``27:758:5/27:758:3/1``."""
    return "/".join(_shown(position) for position in positions)


def _shown(position: LogPosition) -> str:
    return str(position[0]) if len(position) == 1 else ":".join(f"{number:x}" for number in position) or "-"


def _sortable(number: int) -> str:
    digits = f"{number:x}"
    return f"{len(digits):02}{digits}"
