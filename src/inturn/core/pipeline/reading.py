"""Reading of messages: from the user's values to entries with their places, checked once and never guessed."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from inturn.core.errors import InputError, InvalidMessage
from inturn.core.identity import TimelineEntry, digest, group_text
from inturn.core.pipeline.content import own_content, values_of
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import integer
from inturn.core.texts import kept_name, name_fault, storable, unstorable_path
from inturn.core.values.construct import InvalidMarker, attempted, filled, is_unfilled, lacking
from inturn.core.values.instant import parsed
from inturn.core.values.models import by_name
from inturn.core.values.models import make as made_of
from inturn.core.values.path import joined, parts, put, value_at

_LEAST: Final = -(2**63)
_BEYOND: Final = 2**63


class Placed(NamedTuple):
    """The fields that place a message, as received: None if null or absent, 0 if the pipeline names no such field."""

    group: Any
    epoch: Any
    turn: Any
    id: Any
    arrival: Any


class Unplaced(Exception):
    """Raised if a message has no place.

    Attributes:
        why: the reason, in words.
        group: its group, as it is stored; None if it has no valid group.
    """

    def __init__(self, why: str, group: Any) -> None:
        super().__init__(why)
        self.why, self.group = storable(why), _name_of(group)


Offer = tuple[Any, str, TimelineEntry]
"""A message that has a place: its sort key, its group and its entry."""


def read(
    pipeline: Pipeline, messages: Iterable[Any], begin: int = 0
) -> tuple[list[Offer], list[tuple[str, str | None, Any]]]:
    """Return messages with their places, and those that cannot be placed as (reason, group, message).

    Args:
        pipeline: pipeline of the messages.
        messages: messages, as the user has them.
        begin: number of earlier messages: the position in the list replaces a missing arrival field.

    Raises:
        InputError: if a message is neither a dict nor of the message type.
        InvalidMessage: if a message cannot be placed, and the pipeline has ``on_invalid="fail"``.
    """
    offers, invalid = [], []
    for number, given in enumerate(messages, begin):
        message, content = message_of(pipeline, given)
        try:
            offers.append(placed(pipeline, message, content, number, given))
        except Unplaced as fault:
            if pipeline.on_invalid == "fail":
                raise InvalidMessage(f"{fault}: {given!r}") from fault
            invalid.append((fault.why, fault.group, given))
    return offers, invalid


def placed(pipeline: Pipeline, message: Any, content: Mapping[str, Any], number: int, given: Any) -> Offer:
    """Return a message with its place.

    Args:
        pipeline: pipeline of the message.
        message: the message, as the handler gets it.
        content: its fields.
        number: number of earlier messages: it replaces a missing arrival field.
        given: the message as received, whose time may be more precise.

    Raises:
        Unplaced: if it has no place.
    """
    at = Placed._make(pipeline.read_places(content))
    for why in _faults(pipeline, message, content, at):
        raise Unplaced(why, at.group)
    order, is_identified = pipeline.order, pipeline.id is not None
    try:
        turn, epoch, group = order.turn(at.turn), integer(at.epoch, pipeline.epoch), group_text(at.group)
    except InputError as error:  # of the wrong type
        raise Unplaced(str(error), at.group) from error
    name = str(at.id) if is_identified and at.id is not None else order.name(at.turn)
    came = None
    if pipeline.arrival is not None:
        came = at.arrival if _says_arrival(pipeline.arrival, content) else number
    tie = order.tie(finest(pipeline, at.turn, given), came, name or "")
    entry = TimelineEntry(turn, digest(own_content(pipeline, content)), message, epoch, name, tie=tie)
    # An id also orders messages, by its own type; a revision needs no id in addition.
    ident = at.id if is_identified and not order.has_revisions else ""
    key = (epoch, turn, tie, ident, entry.digest)
    return (key if pipeline.arrival is None else (came, *key)), group, entry


def _name_of(group: Any) -> str | None:
    """Return the group of an invalid message, as it is stored; None if it has no valid group."""
    try:
        return None if group is None else kept_name(group_text(group))
    except InputError:
        return None


def message_of(pipeline: Pipeline, given: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return a message as the handler gets it, and its fields.

    Raises:
        InputError: if it is not a message of this pipeline.
    """
    names = pipeline.fields
    if isinstance(given, Mapping):
        if names is None or pipeline.message is None:
            message = with_time(pipeline, dict(given))
            return message, message
        return _made(pipeline, by_name(pipeline.message, given), names)
    if names is None or not isinstance(given, pipeline.message or ()):
        kind = "a dict" if names is None else f"a {pipeline.message.__name__} or a dict"  # type: ignore[union-attr]
        raise InputError(f"a message of pipeline {pipeline.name!r} is {given!r}; expected {kind}")
    if is_unfilled(given):
        return _made(pipeline, values_of(given, names), names)
    return given, values_of(given, names)


def _made(pipeline: Pipeline, given: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, Mapping[str, Any]]:
    """Make a message from its fields, or an ``InvalidMarker`` if a required field is null or the type refuses them."""
    record = pipeline.message
    assert record is not None  # noqa: S101 - plain dicts are not made

    def make() -> Any:
        wanted = filled(record, given, make=True)
        why = lacking(record, wanted)
        return made_of(record, wanted) if why is None else InvalidMarker(why)

    try:
        message = attempted(record, make)
    except TypeError as error:
        raise InputError(f"a message of pipeline {pipeline.name!r} is {given!r}: {error}") from error
    return message, (given if isinstance(message, InvalidMarker) else {**given, **values_of(message, names)})


def _faults(pipeline: Pipeline, message: Any, content: Mapping[str, Any], at: Placed) -> Iterator[str]:
    """Yield the reasons why a message cannot be placed; the first one counts.

    A field that places it is null, out of range or not a time; the message type refuses the fields; or a text cannot be
    stored.
    """
    if None in at:
        yield from _nulls(pipeline, content, at)
    for field, value in ((pipeline.epoch, at.epoch), (pipeline.turn, at.turn), (pipeline.arrival, at.arrival)):
        if type(value) is int and not _LEAST <= value < _BEYOND:
            yield f"{field} is {value}, which does not fit into 64 bits"
    if fault := _turn_fault(pipeline, at.turn):
        yield fault
    if isinstance(message, InvalidMarker):
        yield message.why
    for field, value in ((pipeline.group, at.group), (pipeline.id, at.id)):
        if field is None or value is None or value.__class__ is int:
            continue
        if fault := name_fault(field, str(value)):
            yield fault
    if fault := _content_fault(content):
        yield fault


def _content_fault(content: Mapping[str, Any]) -> str | None:
    try:
        path = unstorable_path(content)
    except RecursionError:
        return "the message is nested too deeply"
    return None if path is None else f"{path} has an unpaired surrogate, which UTF-8 cannot encode"


def _turn_fault(pipeline: Pipeline, turn: Any) -> str | None:
    try:
        return pipeline.order.fault(turn)
    except InputError as error:  # of the wrong type
        return str(error)


def _nulls(pipeline: Pipeline, content: Mapping[str, Any], at: Placed) -> Iterator[str]:
    for name in pipeline.key_fields:
        if value_at(content, name) is None:
            if len(parts(name)) > 1 and name in content:
                msg = f"the name of the field {name!r} contains a dot; write {joined([name])!r} in the pipeline"
                raise InputError(msg)
            yield f"{name} is null"
    came = pipeline.arrival
    if came is not None and at.arrival is None and _says_arrival(came, content):
        yield f"{came} is null"


def with_time(pipeline: Pipeline, message: dict[str, Any]) -> dict[str, Any]:
    """Return a plain dict whose time is a datetime if it was received as text, as from JSON."""
    if pipeline.time is not None:
        given = value_at(message, pipeline.time)
        made = parsed(given) if isinstance(given, str) else None
        if made is not None:
            return put(message, pipeline.time, made)  # type: ignore[no-any-return]
    return message


def finest(pipeline: Pipeline, time: Any, given: Any) -> Any:
    """Return a message's time with its nanoseconds: a datetime has none, but the message as received may have some."""
    return value_at(given, pipeline.time) if pipeline.time and isinstance(time, dt.datetime) else time


def _says_arrival(name: str, content: Mapping[str, Any]) -> bool:
    """Return whether a message has the arrival field; messages without it are applied in the order of the list."""
    return len(parts(name)) > 1 or parts(name)[0] in content
