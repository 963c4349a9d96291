"""Positions as they are stored, and the forms in which a source accepts them in a ``seek``."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from inturn.core.errors import InputError
from inturn.core.override import override

PositionForm: TypeAlias = Literal["number", "transaction", "none", ""]
"""The form of a source's positions: a whole number, the ids of a transaction and a row, none, or any JSON value."""

_REMEDY: Final = "use a position shown by `inturn ingest status`, or start"
_INTEGERS: Final = 2**63
_TRANSACTIONS: Final = 2**64


class _Form(NamedTuple):
    """A form.

    Attributes:
        expected: the end of the error text: the expected value, and the remedy.
        accepts: the check of a value.
    """

    expected: str
    accepts: Callable[[Any], bool]


class InvalidJson:
    """A text given as a position that is not JSON; no form accepts it.

    Args:
        text: the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @override
    def __repr__(self) -> str:
        return repr(self._text)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < _INTEGERS


def _is_transaction(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(part, str) for part in value):
        return False
    xid: str = value[0]
    return xid.isascii() and xid.isdecimal() and int(xid) < _TRANSACTIONS


_FORMS: Final[dict[str, _Form]] = {
    "number": _Form(f"expected a whole number from 0 on, such as 4711; {_REMEDY}", _is_number),
    "transaction": _Form(
        f'expected the ids of a transaction and a row, such as ["742", "18"]; {_REMEDY}', _is_transaction
    ),
    "none": _Form(
        "this source has no positions, since its broker redelivers unacknowledged messages; use start", lambda _: False
    ),
    "": _Form(f"expected a JSON value; {_REMEDY}", lambda _: True),
}


def position_json(position: Any) -> str:
    """Return a position as it is stored.

    Raises:
        InputError: if it is not a JSON value.
    """
    try:
        return msgspec.json.encode(position).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the source returned the position {position!r:.100}, which is not a JSON value: {error}"
        ) from error


def seek_position_json(form: str, position: Any) -> str | None:
    """Return a position given to ``seek`` as it is stored; None: the start.

    Args:
        form: the form of the source's positions; an unknown form accepts any value.
        position: the position, as a JSON value; None: the start.

    Raises:
        InputError: if it does not have this form.
    """
    if position is None:
        return None
    known = _FORMS.get(form, _FORMS[""])
    if known.accepts(position):
        with suppress(InputError):
            if (text := position_json(position)) != "null":  # as it is also of a number that is none
                return text
    raise InputError(f"the position is {position!r}; {known.expected}")
