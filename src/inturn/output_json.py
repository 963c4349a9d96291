"""The JSON of an output: one text for one value, in every engine and every process.

The members of a set are sorted or, if they cannot be compared, sorted by their JSON, as members of an Enum are.
"""

import copy
import enum
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from inturn.core.identity import field_names, is_model
from inturn.core.values.models import dumped

_ENCODER: Final = msgspec.json.Encoder(order="deterministic", enc_hook=dumped)


def output_json(output: Any) -> bytes:
    """Return the JSON of an output.

    Raises:
        TypeError: if JSON does not know its type.
        ValueError, OverflowError, RecursionError: if JSON cannot hold the value.
    """
    try:
        return _ENCODER.encode(output)
    except TypeError:  # perhaps of members that cannot be compared
        return _ENCODER.encode(_with_lists(output))


def _with_lists(value: Any) -> Any:
    """Return a value with a list in place of each set."""
    if is_model(type(value)):
        value = dumped(value)
    if isinstance(value, set | frozenset):
        return sorted(map(_with_lists, value), key=_ENCODER.encode)
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_lists(item) for item in value]
    names = None if isinstance(value, enum.Enum) else field_names(type(value))
    return value if names is None else _record_with_lists(value, names)


def _record_with_lists(value: Any, names: Iterable[str]) -> Any:
    result = copy.copy(value)  # of the same type, whose settings say how its fields are named
    change = msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__
    for name in names:
        change(result, name, _with_lists(getattr(value, name)))
    return result
