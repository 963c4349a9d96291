"""Conversion of delivered messages into timeline entries: the body's fields, completed from the envelope."""

import dataclasses
from typing import Any, NamedTuple

import msgspec

from inturn.core.errors import InputError, InvalidMessage, StateError
from inturn.core.identity import TimelineEntry, group_text
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.reading import read, with_time
from inturn.core.pipeline.replay import remake
from inturn.core.queue.messages import Content, StoredMessage
from inturn.core.texts import kept_name, name_fault, storable
from inturn.core.values.absent import filled, lacking
from inturn.core.values.construct import refusal
from inturn.core.values.path import parts, put, value_at
from inturn.store.records import HeldMessage


class DecodedMessage(NamedTuple):
    """A delivered message as the pipeline sees it.

    Attributes:
        group: its group; None if unknown.
        entry: its timeline entry; None if it is invalid.
        why: why it is invalid.
    """

    group: str | None
    entry: TimelineEntry | None
    why: str = ""


class Misfit(Exception):
    """Raised if a body is not a message of the pipeline."""


class MessageDecoder:
    """Reads messages of a pipeline.

    Args:
        pipeline: the pipeline.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._names = _encoded_names(pipeline)
        self._defaults = _class_defaults(pipeline.message)

    def group_of(self, envelope: StoredMessage) -> str | None:
        """Return the group of a message; None if it cannot be determined."""
        if envelope.group is not None:
            # An invalid group name, accepted by an older version: each of its messages is rejected.
            return None if name_fault("group", envelope.group) else envelope.group
        try:
            reading = self.read(envelope)
        except InvalidMessage:  # raised again when the message is processed
            return None
        return None if reading.entry is None else reading.group

    def read(self, envelope: StoredMessage) -> DecodedMessage:
        """Convert a delivered message.

        Raises:
            InvalidMessage: if it is invalid, and the pipeline says ``on_invalid="fail"``.
        """
        group = envelope.group
        try:
            content = self._filled(envelope)
            group = group if group is not None else _text(value_at(content, self._pipeline.group))
            entry = self._entry(content)
            entry.ref = envelope
        except (Misfit, InputError) as error:
            if self._pipeline.on_invalid == "fail":
                raise InvalidMessage(f"{error}: message {envelope.sequence_number}, {envelope.body!r:.200}") from error
            return DecodedMessage(group and kept_name(group), None, storable(str(error)))
        return DecodedMessage(group, entry)

    def text(self, entry: TimelineEntry) -> str:
        """Return a message's content as JSON, as it was received, even if a handler has changed the message."""
        if isinstance(entry.ref, str):
            return entry.ref
        return msgspec.json.encode(self._filled(entry.ref)).decode()

    def again(self, held: HeldMessage) -> TimelineEntry:
        """Restore a held message.

        Raises:
            StateError: if its content does not fit the message type any more.
        """
        try:
            message = self.message(msgspec.json.decode(held.content))
        except Misfit as error:
            msg = f"pipeline {self._pipeline.name!r}: a message that is held does not fit any more: {error}"
            raise StateError(msg) from error
        return TimelineEntry(held.turn, held.digest, message, held.epoch, held.id or None, held.since_us, held.content)

    def remade(self, entry: TimelineEntry, new: dict[str, Any]) -> TimelineEntry:
        """Replace content of a held message; its place, id and digest stay.

        Raises:
            InputError: if the new content does not fit.
        """
        content = {**msgspec.json.decode(self.text(entry)), **new}
        made = remake(self._pipeline, entry, new)  # for its checks
        try:
            made.message, made.ref = self.message(content), msgspec.json.encode(content).decode()
        except Misfit as error:
            raise InputError(str(error)) from error
        return made

    def _filled(self, envelope: StoredMessage) -> dict[str, Any]:
        """Return the fields of the body, with missing ones filled from the envelope."""
        body: Any = envelope.body
        try:
            body = msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            kind = "bytes" if envelope.content == Content.BYTES else "text"
            raise Misfit(f"the body is {kind} and no JSON: {error}") from error
        if not isinstance(body, dict):
            raise Misfit(f"the body is a JSON {type(body).__name__}; expected an object with the message's fields")
        pipeline = self._pipeline
        given = (
            (pipeline.group, envelope.group),
            (pipeline.revision, envelope.revision),
            (pipeline.id, envelope.dedup_id),
        )
        for name, value in given:
            if name is None or value is None:
                continue
            own = value_at(body, name)
            if own is None:
                body = _with(body, name, value)
            elif own != value and _text(own) != str(value):
                raise Misfit(f"{name} is {own!r} in the body and {value!r} in the envelope")
        if pipeline.arrival is not None and value_at(body, pipeline.arrival) is None:
            body = _with(body, pipeline.arrival, envelope.sequence_number)
        return body  # type: ignore[no-any-return]

    def _entry(self, content: dict[str, Any]) -> TimelineEntry:
        offers, invalid = read(self._pipeline, [self.message(content)])
        if invalid:
            raise Misfit(invalid[0][0])
        return offers[0][2]

    def message(self, content: dict[str, Any]) -> Any:
        """Build the handler's message from fields as JSON has them.

        Raises:
            Misfit: if they are not a message of the pipeline.
        """
        kind = self._pipeline.message
        if kind is None:
            return with_time(self._pipeline, content)
        fields = filled(kind, content)
        why = lacking(kind, fields)
        if why is not None:
            raise Misfit(why)
        values = {self._names[name]: value for name, value in fields.items() if name in self._names}
        try:
            made: Any = msgspec.convert(values, kind, strict=False)
        except msgspec.ValidationError as error:  # or, as its cause, an error of the type's checks
            raise Misfit(refusal(kind, error.__cause__ or ValueError(str(error)))) from error
        except Exception as error:  # the type's own checks may raise anything
            raise Misfit(refusal(kind, error)) from error
        if self._defaults:
            for name in self._defaults.keys() - vars(made).keys():
                object.__setattr__(made, name, self._defaults[name])  # it may be frozen
        return made


def _encoded_names(pipeline: Pipeline) -> dict[str, str]:
    """Map the fields of the message type to their encoded names."""
    if pipeline.message is not None and issubclass(pipeline.message, msgspec.Struct):
        return {each.name: each.encode_name for each in msgspec.structs.fields(pipeline.message)}
    return {name: name for name in pipeline.fields or ()}


def _class_defaults(kind: type | None) -> dict[str, Any]:
    """Return defaults that msgspec leaves to the class: it would omit them if the message is part of an output."""
    if kind is None or not dataclasses.is_dataclass(kind) or not kind.__dictoffset__:
        return {}
    return {each.name: each.default for each in dataclasses.fields(kind) if each.default is not dataclasses.MISSING}


def _with(body: dict[str, Any], name: str, value: Any) -> Any:
    """Set a field of a body in place; it was just decoded, so nothing else refers to it."""
    names = parts(name)
    if len(names) > 1:
        return put(body, name, value)
    body[names[0]] = value
    return body


def _text(value: Any) -> str | None:
    try:
        return None if value is None else group_text(value)
    except InputError:
        return None
