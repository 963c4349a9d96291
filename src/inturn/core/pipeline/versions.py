"""Versions of a pipeline's state type: which stored states still load, and the upgrade of the others.

A store keeps the pipeline's version and the shape of its state type. Within one version a record may gain fields with
defaults, and an enumeration members; any other change would lose or alter stored states, and is refused before anything
is written. With a higher version each older state is passed through ``upgrade=``, at the latest with its group's next
change. A state that cannot be upgraded is not changed, and fails the messages of its own group; no other group is
affected.
"""

import base64
import copy
import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from inturn.core.errors import StateError, ValueRefused
from inturn.core.identity import field_names
from inturn.core.texts import text_of, traceback_of
from inturn.core.values.construct import error_text
from inturn.core.values.instant import span_text
from inturn.core.values.kinds import (
    AnyKind,
    CollectionKind,
    EnumKind,
    Kind,
    LiteralKind,
    MappingKind,
    RecordKind,
    TupleKind,
    UnionKind,
)
from inturn.core.values.models import make
from inturn.core.values.plain import inside
from inturn.core.values.states import required, restored

if TYPE_CHECKING:
    from inturn.core.pipeline.definition import Pipeline


@dataclass(frozen=True, slots=True)
class OldState:
    """A state of an older version that could not be upgraded.

    Attributes:
        value: the state as JSON values, as the older version stored it.
        version: the older version.
        why: why it could not be upgraded, with the traceback.
    """

    value: Any
    version: int
    why: str


def shape_of(kind: Kind) -> Any:
    """Return the stored form of a kind's values, as JSON values."""
    return _shape(kind, [])


def _shape(kind: Kind, above: list[RecordKind]) -> Any:  # noqa: PLR0911 - one case a kind is what makes it a table
    match kind:
        case RecordKind():
            if kind in above:
                return {"again": above[::-1].index(kind)}
            inner = [*above, kind]
            fields = {name: _shape(field, inner) for name, field in kind.fields.items()}
            return {"record": fields, "owed": sorted(required(kind.wanted))}
        case CollectionKind():
            return {kind.wanted.__name__: _shape(kind.item, above)}
        case TupleKind():
            return {"tuple": [_shape(item, above) for item in kind.items]}
        case MappingKind():
            return {"dict": [_shape(kind.key, above), _shape(kind.item, above)]}
        case UnionKind():
            return {"or": [_shape(option, above) for option in kind.options]}
        case EnumKind():
            return {"enum": [member.value for member in kind.wanted]}
        case LiteralKind():
            return {"enum": [value for _, value in kind.allowed]}
        case AnyKind():
            return "any" if kind.wanted is None else kind.name
    return kind.name


def change(stored: Any, now: Any, path: str = "state") -> str | None:
    """Return the change between two shapes that keeps older states from loading; None if they load."""
    if isinstance(stored, dict) and isinstance(now, dict) and stored.keys() == now.keys():
        if "record" in stored:
            return _record_change(stored, now, path)
        if "enum" in stored:
            lost = [value for value in stored["enum"] if value not in now["enum"]]
            return f"{path} no longer allows {lost[0]!r}" if lost else None
        ((name, before),) = stored.items()
        after = now[name]
        if not isinstance(before, list):
            return change(before, after, f"{path}[]") if name != "again" or before != after else None
        if len(before) == len(after):
            changes = (change(item, another, path) for item, another in zip(before, after, strict=True))
            return next((found for found in changes if found is not None), None)
    return None if stored == now else f"{path} has changed from {words(stored)} to {words(now)}"


def _record_change(stored: Any, now: Any, path: str) -> str | None:
    for name, field in stored["record"].items():
        if name not in now["record"]:
            return f"{path}.{name} was removed"
        if (found := change(field, now["record"][name], f"{path}.{name}")) is not None:
            return found
    new = [name for name in now["record"] if name not in stored["record"] and name in now["owed"]]
    return f"{path}.{new[0]} is new and has no default" if new else None


def words(shape: Any) -> str:
    """Return a shape in a few words."""
    if not isinstance(shape, dict):
        return str(shape)
    name, inner = next(iter(shape.items()))
    match name:
        case "record":
            return f"a record of {', '.join(inner)}"
        case "enum":
            return f"one of {', '.join(map(repr, inner))}"
        case "or":
            return " | ".join(map(words, inner))
    return f"{name}[{', '.join(map(words, inner)) if isinstance(inner, list) else words(inner)}]"


def check(pipeline: "Pipeline", version: int, shape: Any) -> None:
    """Check that the pipeline can continue with states stored under a version and a shape.

    Args:
        pipeline: the present pipeline.
        version: version of the pipeline that stored them.
        shape: shape of its state type; None if unknown.

    Raises:
        StateError: if it cannot; nothing may be written then.
    """
    current = pipeline.version
    who = f"pipeline {pipeline.name!r}: its states were stored by version {version}, but this is version {current}"
    if version > current:
        raise StateError(f"{who}; run version {version} or newer")
    if version < current:
        if pipeline.upgrade is None:
            advice = f"Pipeline(version={current}, upgrade=fn), where fn(state, version) returns the new state"
            raise StateError(f"{who}; define how to upgrade them: {advice}")
        return
    changed = None if shape is None else change(shape, pipeline.shape)
    if changed is not None:
        advice = f"Pipeline(version={version + 1}, upgrade=fn), where fn(state, version) returns the new state"
        msg = f"pipeline {pipeline.name!r}: stored states no longer fit the state type: {changed}; "
        raise StateError(f"{msg}undo the change, give new fields defaults, or define how to upgrade states: {advice}")


def upgraded(pipeline: "Pipeline", state: Any, version: int) -> Any:
    """Make a state from an older one, or return why that failed.

    Args:
        pipeline: the present pipeline.
        state: the older state, as JSON values.
        version: version of the pipeline that stored it.

    Returns:
        The state, or an :class:`OldState`.
    """
    try:
        # A copy, so that upgrade cannot change the stored state.
        return _upgraded(pipeline, copy.deepcopy(state), version)
    except StateError as error:
        return OldState(state, version, traceback_of(error))


def _upgraded(pipeline: "Pipeline", state: Any, version: int) -> Any:
    if pipeline.upgrade is None:
        msg = f"pipeline {pipeline.name!r}: a state of version {version} could not be upgraded and still exists; "
        raise StateError(msg + "define the pipeline with a corrected upgrade= again")
    try:
        new_state = pipeline.upgrade(state, version)
    except Exception as error:
        msg = f"pipeline {pipeline.name!r}: upgrade raised {error_text(error)} on a state of version {version}"
        raise StateError(f"{msg}: {state!r:.200}") from error
    try:
        return pipeline.normalize(_typed(pipeline, new_state))
    except Exception as error:  # includes errors of the state type's own checks
        msg = f"pipeline {pipeline.name!r}: upgrade returned an invalid state for a state of version {version}: "
        raise StateError(msg + text_of(error)) from error


def _typed(pipeline: "Pipeline", new_state: Any) -> Any:
    """Return a state that ``upgrade`` returned as JSON values, like its argument, in the state type.

    Raises:
        ValueRefused: if a value would be lost: the type has no such field.
        msgspec.ValidationError: if the values do not fit the type.
    """
    state_type = pipeline.state
    if not isinstance(new_state, dict) or not isinstance(state_type, type) or field_names(state_type) is None:
        return new_state
    typed: Any = msgspec.convert(new_state, state_type, str_keys=True, from_attributes=True, dec_hook=restored)
    if lost := _lost(new_state, as_json(typed), "state"):
        raise ValueRefused(f"{lost} is not a field of the state type")
    return typed


def _lost(before: Any, after: Any, path: str) -> str:
    """Return the path to a value that was lost in the conversion; empty if none was."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, item in before.items():
            name = str(as_json(key))
            lost = _lost(item, after[name], inside(path, key)) if name in after else inside(path, key)
            if lost:
                return lost
    if isinstance(before, list) and isinstance(after, list):
        pairs = enumerate(zip(before, after, strict=False))
        return next((lost for index, pair in pairs if (lost := _lost(*pair, f"{path}[{index}]"))), "")
    return ""


def carried(pipeline: "Pipeline", state: Any, version: int, shape: Any) -> Any:
    """Return a state from memory, never written, for a pipeline that may have changed since.

    Returns:
        The state, or an :class:`OldState`.
    """
    if isinstance(state, OldState):
        return upgraded(pipeline, state.value, state.version)
    if version != pipeline.version:
        return upgraded(pipeline, as_json(state), version)
    return state if shape == pipeline.shape else _grown(pipeline.normalize.kind, state)


def _grown(kind: Kind, value: Any) -> Any:
    """Return a value with the fields that its records have gained."""
    match kind:
        case RecordKind() if field_names(type(value)) is not None:
            fields = {name: field for name, field in kind.fields.items() if hasattr(value, name)}
            return make(kind.wanted, {name: _grown(field, getattr(value, name)) for name, field in fields.items()})
        case CollectionKind() if isinstance(value, kind.wanted):
            return kind.wanted(_grown(kind.item, item) for item in value)
        case TupleKind() if isinstance(value, tuple):
            return tuple(_grown(item_kind, item) for item_kind, item in zip(kind.items, value, strict=True))
        case MappingKind() if isinstance(value, dict):
            return {key: _grown(kind.item, item) for key, item in value.items()}
        case UnionKind() if field_names(type(value)) is not None:
            return _grown(next(option for option in kind.options if isinstance(option, RecordKind)), value)
    return value


def as_json(value: Any) -> Any:  # noqa: PLR0911 - one return a type is what makes it a table
    """Return a state in its normal form as the JSON values that stores keep."""
    match value:
        case enum.Enum():
            return value.value
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return span_text(value)
        case Decimal() | uuid.UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(as_json(key)): as_json(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [as_json(item) for item in value]
    names = field_names(type(value))
    return value if names is None else {name: as_json(getattr(value, name)) for name in names}
