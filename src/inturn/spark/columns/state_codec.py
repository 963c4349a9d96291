"""The shape of a type within a state, and whether values stored under an older shape still load.

The column of a JSON field does not show the field's type, so the store keeps its JSON schema. As with the state
itself, a record may gain fields with defaults; nothing else may change.
"""

from typing import Any, NamedTuple

import msgspec

_SAID = ("title", "description", "default", "examples")
"""The keys of a JSON schema that do not affect its meaning."""


class Older(NamedTuple):
    """The form of states that an older version of a pipeline stored.

    Attributes:
        version: the older version.
        signature: each field and how it is stored.
        is_record: whether the state type has fields; else the only stored field is the state itself.
    """

    version: int
    signature: dict[str, str]
    is_record: bool


def shape(kind: Any) -> str:
    """Return the JSON schema of a type without its texts and defaults; ``?`` for a type without a schema."""
    try:
        schema = msgspec.json.schema(kind)
    except (TypeError, RuntimeError):
        return "?"
    return msgspec.json.encode(_meaning(schema), order="deterministic").decode()


def still_loads(stored: str, now: str) -> bool:
    """Return whether a value that was stored under one shape loads under another."""
    return "?" not in (stored, now) and _fits(msgspec.json.decode(stored), msgspec.json.decode(now))


def _meaning(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_meaning(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs")  # their keys are user-defined names, which may equal a keyword
    return {
        key: {name: _meaning(each) for name, each in value.items()} if key in named else _meaning(value)
        for key, value in schema.items()
        if key not in _SAID
    }


def _fits(stored: Any, now: Any) -> bool:
    if isinstance(stored, list) and isinstance(now, list):
        return len(stored) == len(now) and all(map(_fits, stored, now))
    if not isinstance(stored, dict) or not isinstance(now, dict):
        return bool(stored == now)
    owed = set(now.get("required", ())) - set(stored.get("required", ()))
    grown = ("properties", "$defs")
    return (
        not owed
        and {*stored, *grown, "required"} == {*now, *grown, "required"}
        and all(_has(stored.get(key, {}), now.get(key, {})) for key in grown)
        and all(_fits(each, now[key]) for key, each in stored.items() if key not in (*grown, "required"))
    )


def _has(stored: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether all names are still there and their schemas fit."""
    return all(name in now and _fits(each, now[name]) for name, each in stored.items())
