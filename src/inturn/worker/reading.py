"""From what a queue delivers to what a timeline takes: the body's fields, filled up from the envelope."""

import dataclasses
from typing import Any, NamedTuple

import msgspec

from inturn.core.absent import filled, lacking
from inturn.core.construct import refusal
from inturn.core.envelope import Content
from inturn.core.envelope import Entry as Envelope
from inturn.core.errors import InputError, InvalidMessage, StateError
from inturn.core.message import Entry, group_text
from inturn.core.order import Gapless, Monotone
from inturn.core.path import parts, put, value_at
from inturn.core.pipeline import Pipeline
from inturn.core.reading import read, with_time
from inturn.core.replay import remake
from inturn.core.texts import kept_name, name_fault, storable
from inturn.store.kept import HeldMessage


class Reading(NamedTuple):
    """What a delivered message is to a pipeline.

    Attributes:
        group: whose it is; None if that cannot be told.
        entry: what the timeline takes; None if it cannot be placed.
        why: why it cannot be placed.
    """

    group: str | None
    entry: Entry | None
    why: str = ""


class Misfit(Exception):
    """A body is no message of the pipeline."""


class Reader:
    """Reads the messages of a pipeline.

    Args:
        pipeline: whose.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._names = _encoded_names(pipeline)
        self._defaults = _class_defaults(pipeline.message)
        self._turn = pipeline.turn if isinstance(pipeline.order, Gapless | Monotone) else None

    def group_of(self, envelope: Envelope) -> str | None:
        """Whose a message is; None if that cannot be told."""
        if envelope.group is not None:
            # A group that is none, from a time when it was taken in: its messages are rejected, each for itself.
            return None if name_fault("group", envelope.group) else envelope.group
        try:
            reading = self.read(envelope)
        except InvalidMessage:  # it is told when its turn comes
            return None
        return None if reading.entry is None else reading.group

    def read(self, envelope: Envelope) -> Reading:
        """What a delivered message is.

        Raises:
            InvalidMessage: if it cannot be placed, and the pipeline says ``on_invalid="fail"``.
        """
        group = envelope.group
        try:
            content = self._filled(envelope)
            group = group if group is not None else _text(value_at(content, self._pipeline.group))
            entry = self._entry(content)
            entry.ref = envelope
        except (Misfit, InputError) as error:
            if self._pipeline.on_invalid == "fail":
                msg = f"{error}: message {envelope.sequence_number}, {envelope.body!r:.200}"
                raise InvalidMessage(msg) from error
            return Reading(group and kept_name(group), None, storable(str(error)))
        return Reading(group, entry)

    def text(self, entry: Entry) -> str:
        """A message's content as JSON, to be kept: what it came with, whatever a handler has made of it since."""
        if isinstance(entry.ref, str):
            return entry.ref
        return msgspec.json.encode(self._filled(entry.ref)).decode()

    def again(self, held: HeldMessage) -> Entry:
        """A message that was held.

        Raises:
            StateError: if its content is none of the message type any more.
        """
        try:
            message = self.message(msgspec.json.decode(held.content))
        except Misfit as error:
            msg = f"pipeline {self._pipeline.name!r}: a message that is held does not fit any more: {error}"
            raise StateError(msg) from error
        return Entry(held.turn, held.digest, message, held.epoch, held.id or None, held.since_us, held.content)

    def remade(self, entry: Entry, new: dict[str, Any]) -> Entry:
        """A held message with other content; its place, id and digest stay.

        Raises:
            InputError: if it does not fit.
        """
        content = {**msgspec.json.decode(self.text(entry)), **new}
        made = remake(self._pipeline, entry, new)  # for its checks
        try:
            made.message, made.ref = self.message(content), msgspec.json.encode(content).decode()
        except Misfit as error:
            raise InputError(str(error)) from error
        return made

    def _filled(self, envelope: Envelope) -> dict[str, Any]:
        """The fields of the body and, where it has them not, of the envelope."""
        body: Any = envelope.body
        try:
            body = msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            kind = "bytes" if envelope.content == Content.BYTES else "text"
            msg = f"the body is {kind} and no JSON: {error}"
            raise Misfit(msg) from error
        if not isinstance(body, dict):
            msg = f"the body is a JSON {type(body).__name__}; expected an object with the message's fields"
            raise Misfit(msg)
        pipeline = self._pipeline
        given = (
            (pipeline.group, envelope.group),
            (self._turn, envelope.revision),
            (pipeline.id, envelope.dedup_id),
        )
        for name, value in given:
            if name is None or value is None:
                continue
            own = value_at(body, name)
            if own is None:
                body = _with(body, name, value)
            elif own != value and _text(own) != str(value):
                msg = f"{name} is {own!r} in the body and {value!r} in the envelope"
                raise Misfit(msg)
        if pipeline.arrival is not None and value_at(body, pipeline.arrival) is None:
            body = _with(body, pipeline.arrival, envelope.sequence_number)
        return body  # type: ignore[no-any-return]

    def _entry(self, content: dict[str, Any]) -> Entry:
        offers, invalid = read(self._pipeline, [self.message(content)])
        if invalid:
            raise Misfit(invalid[0][0])
        return offers[0][2]

    def message(self, content: dict[str, Any]) -> Any:
        """What the handler is given of fields as JSON has them.

        Raises:
            Misfit: if they are no message of the pipeline.
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
        except msgspec.ValidationError as error:  # of the decoder, or of the type's own checks: then these say why
            raise Misfit(refusal(kind, error.__cause__ or ValueError(str(error)))) from error
        except Exception as error:  # the type's own checks may raise anything
            raise Misfit(refusal(kind, error)) from error
        if self._defaults:
            for name in self._defaults.keys() - vars(made).keys():
                object.__setattr__(made, name, self._defaults[name])  # it may be frozen
        return made


def _encoded_names(pipeline: Pipeline) -> dict[str, str]:
    """The fields of the message type, and what they are called in an encoded one."""
    if pipeline.message is not None and issubclass(pipeline.message, msgspec.Struct):
        return {each.name: each.encode_name for each in msgspec.structs.fields(pipeline.message)}
    return {name: name for name in pipeline.fields or ()}


def _class_defaults(kind: type | None) -> dict[str, Any]:
    """Defaults that msgspec leaves to the class: it would not write them when the message is part of an output."""
    if kind is None or not dataclasses.is_dataclass(kind) or not kind.__dictoffset__:
        return {}
    return {each.name: each.default for each in dataclasses.fields(kind) if each.default is not dataclasses.MISSING}


def _with(body: dict[str, Any], name: str, value: Any) -> Any:
    """A body with a value in a field; it was just decoded and nobody else has it, so nothing need be copied."""
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
