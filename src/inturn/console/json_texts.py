"""Values of JSON texts that people write."""

import json
from math import isinf
from typing import Any

from inturn.core.errors import InputError
from inturn.core.texts import unholdable


def json_value(what: str, text: str, expected: str = "JSON") -> Any:
    """Return the value of a JSON text.

    Args:
        what: what the text is, for the error.
        text: the text.
        expected: what it should be, for the error.

    Raises:
        InputError: if it is none, is nested too deeply, has a number that no float can hold, or a text that UTF-8
            cannot hold.
    """
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        path = unholdable(found)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not {expected}: {error}; nothing was done") from error
    if path is not None:
        raise InputError(f"{what} has half a surrogate pair at {path or 'its root'}, which no UTF-8 can hold")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    found = float(text)
    if isinf(found):
        raise ValueError(f"{text[:40]} is beyond the numbers of 64 bits")
    return found
