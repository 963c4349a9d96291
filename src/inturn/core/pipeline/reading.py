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
    position: Any
    id: Any
    arrival: Any


class Unplaced(Exception):
    """Raised if a message has no place.

    Attributes:
        why: the reason, in words.
        group: its group, as it is stored; None if it has no valid group.
    """

    def __init__(self, reason: str, group: Any) -> None:
        super().__init__(reason)
        self.why, self.group = storable(reason), _name_of(group)


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
    for number, received in enumerate(messages, begin):
        message, content = message_of(pipeline, received)
        try:
            offers.append(placed(pipeline, message, content, number, received))
        except Unplaced as error:
            if pipeline.on_invalid == "fail":
                raise InvalidMessage(f"{error}: {received!r}") from error
            invalid.append((error.why, error.group, received))
    return offers, invalid


def placed(pipeline: Pipeline, message: Any, content: Mapping[str, Any], number: int, received: Any) -> Offer:
    """Return a message with its place.

    Args:
        pipeline: pipeline of the message.
        message: the message, as the handler gets it.
        content: its fields.
        number: number of earlier messages: it replaces a missing arrival field.
        received: the message as received, whose time may be more precise.

    Raises:
        Unplaced: if it has no place.
    """
    places = Placed._make(pipeline.read_places(content))
    for reason in _faults(pipeline, message, content, places):
        raise Unplaced(reason, places.group)
    order, is_identified = pipeline.order, pipeline.id is not None
    try:
        position, epoch, group = (
            order.position(places.position),
            integer(places.epoch, pipeline.epoch),
            group_text(places.group),
        )
    except InputError as error:  # of the wrong type
        raise Unplaced(str(error), places.group) from error
    name = str(places.id) if is_identified and places.id is not None else order.name(places.position)
    arrival = None
    if pipeline.arrival is not None:
        arrival = places.arrival if _says_arrival(pipeline.arrival, content) else number
    tie = order.tie(finest(pipeline, places.position, received), arrival, name or "")
    entry = TimelineEntry(position, digest(own_content(pipeline, content)), message, epoch, name, tie=tie)
    # An id also orders messages, by its own type; a revision needs no id in addition.
    ident = places.id if is_identified and not order.has_revisions else ""
    key = (epoch, position, tie, ident, entry.digest)
    return (key if pipeline.arrival is None else (arrival, *key)), group, entry


def _name_of(group: Any) -> str | None:
    """Return the group of an invalid message, as it is stored; None if it has no valid group."""
    try:
        return None if group is None else kept_name(group_text(group))
    except InputError:
        return None


def message_of(pipeline: Pipeline, received: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return a message as the handler gets it, and its fields.

    Raises:
        InputError: if it is not a message of this pipeline.
    """
    names = pipeline.fields
    if isinstance(received, Mapping):
        if names is None or pipeline.message is None:
            message = with_time(pipeline, dict(received))
            return message, message
        return _made(pipeline, by_name(pipeline.message, received), names)
    if names is None or not isinstance(received, pipeline.message or ()):
        kind = "a dict" if names is None else f"a {pipeline.message.__name__} or a dict"  # type: ignore[union-attr]
        raise InputError(f"a message of pipeline {pipeline.name!r} is {received!r}; expected {kind}")
    if is_unfilled(received):
        return _made(pipeline, values_of(received, names), names)
    return received, values_of(received, names)


def _made(pipeline: Pipeline, fields: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, Mapping[str, Any]]:
    """Make a message from its fields, or an ``InvalidMarker`` if a required field is null or the type refuses them."""
    record = pipeline.message
    assert record is not None  # noqa: S101 - plain dicts are not made

    def make() -> Any:
        filled_fields = filled(record, fields, make=True)
        reason = lacking(record, filled_fields)
        return made_of(record, filled_fields) if reason is None else InvalidMarker(reason)

    try:
        message = attempted(record, make)
    except TypeError as error:
        raise InputError(f"a message of pipeline {pipeline.name!r} is {fields!r}: {error}") from error
    return message, (fields if isinstance(message, InvalidMarker) else {**fields, **values_of(message, names)})


def _faults(pipeline: Pipeline, message: Any, content: Mapping[str, Any], places: Placed) -> Iterator[str]:
    """Yield the reasons why a message cannot be placed; the first one counts.

    A field that places it is null, out of range or not a time; the message type refuses the fields; or a text cannot be
    stored.
    """
    if None in places:
        yield from _nulls(pipeline, content, places)
    for field, value in (
        (pipeline.epoch, places.epoch),
        (pipeline.position, places.position),
        (pipeline.arrival, places.arrival),
    ):
        if type(value) is int and not _LEAST <= value < _BEYOND:
            yield f"{field} is {value}, which does not fit into 64 bits"
    if problem := _position_fault(pipeline, places.position):
        yield problem
    if isinstance(message, InvalidMarker):
        yield message.why
    for field, value in ((pipeline.group, places.group), (pipeline.id, places.id)):
        if field is None or value is None or value.__class__ is int:
            continue
        if problem := name_fault(field, str(value)):
            yield problem
    if problem := _content_fault(content):
        yield problem


def _content_fault(content: Mapping[str, Any]) -> str | None:
    try:
        path = unstorable_path(content)
    except RecursionError:
        return "the message is nested too deeply"
    return None if path is None else f"{path} has an unpaired surrogate, which UTF-8 cannot encode"


def _position_fault(pipeline: Pipeline, position: Any) -> str | None:
    try:
        return pipeline.order.fault(position)
    except InputError as error:  # of the wrong type
        return str(error)


def _nulls(pipeline: Pipeline, content: Mapping[str, Any], places: Placed) -> Iterator[str]:
    for name in pipeline.key_fields:
        if value_at(content, name) is None:
            if len(parts(name)) > 1 and name in content:
                msg = f"the name of the field {name!r} contains a dot; write {joined([name])!r} in the pipeline"
                raise InputError(msg)
            yield f"{name} is null"
    arrival = pipeline.arrival
    if arrival is not None and places.arrival is None and _says_arrival(arrival, content):
        yield f"{arrival} is null"


def with_time(pipeline: Pipeline, message: dict[str, Any]) -> dict[str, Any]:
    """Return a plain dict whose time is a datetime if it was received as text, as from JSON."""
    if pipeline.time is not None:
        time = value_at(message, pipeline.time)
        moment = parsed(time) if isinstance(time, str) else None
        if moment is not None:
            return put(message, pipeline.time, moment)  # type: ignore[no-any-return]
    return message


def finest(pipeline: Pipeline, time: Any, received: Any) -> Any:
    """Return a message's time with its nanoseconds: a datetime has none, but the message as received may have some."""
    return value_at(received, pipeline.time) if pipeline.time and isinstance(time, dt.datetime) else time


def _says_arrival(name: str, content: Mapping[str, Any]) -> bool:
    """Return whether a message has the arrival field; messages without it are applied in the order of the list."""
    return len(parts(name)) > 1 or parts(name)[0] in content
