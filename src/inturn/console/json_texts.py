"""Values of JSON texts that users enter."""

import json
from math import isinf
from typing import Any

from inturn.core.errors import InputError
from inturn.core.texts import unstorable_path


def json_value(name: str, text: str, expected: str = "JSON") -> Any:
    """Return the value of a JSON text.

    Args:
        name: name of the text in the error.
        text: the text.
        expected: the expected kind of value, for the error.

    Raises:
        InputError: if the text is not JSON, is nested too deeply, or contains a number beyond the range of float or a
            text that cannot be encoded as UTF-8.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        path = unstorable_path(value)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not {expected}: {error}; nothing was changed") from error
    if path is not None:
        raise InputError(f"{name} has an unpaired surrogate at {path or 'its root'}, which UTF-8 cannot encode")
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a valid JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:40]} is beyond the range of 64-bit numbers")
    return number
