"""The placeholder that Debezium sends in place of a large column that a change has not touched."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

_TEXT: Final = "__debezium_unavailable_value"
_UNAVAILABLE: Final = frozenset({_TEXT, b64encode(_TEXT.encode()).decode()})


def merged(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row after a change; large unchanged columns, which are not sent, keep their old values.

    Args:
        after: the event's ``after``.
        before: the row as a handler's state has it.
    """
    return {name: before.get(name) if _is_unavailable(value) else value for name, value in after.items()}


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, list | dict) and len(value) == 1:  # of texts, and a map's key
        value = next(iter(value))
    return isinstance(value, str) and value in _UNAVAILABLE
