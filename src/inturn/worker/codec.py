"""Conversion between the stored form and the pipeline's form of messages, groups and outputs.

Messages are JSON bodies, completed from their envelopes. Groups are MessagePack, never pickle. A state that would not
decode to an equal value is refused, so that this task and the next see the same state.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from inturn.core.errors import HandlerError, InputError, InvalidMessage, StateError
from inturn.core.identity import TimelineEntry, group_text, is_model
from inturn.core.pipeline import versions
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.reading import Unplaced, finest, message_of, placed, with_time
from inturn.core.pipeline.replay import remake
from inturn.core.pipeline.timeline import Status, Timeline
from inturn.core.queue.messages import Content, StoredMessage
from inturn.core.texts import kept_name, name_fault, storable
from inturn.core.values.construct import decoded, filled, lacking, places, refusal
from inturn.core.values.models import by_name, fields_of, make
from inturn.core.values.path import parts, put, value_at
from inturn.core.values.states import restored
from inturn.output_json import output_json
from inturn.results.stored_place import ERASED_STATE, StoredPlace, stored_place
from inturn.store.records import GroupRecord, HeldRecord

_ENCODER = msgspec.msgpack.Encoder()
_STATES = msgspec.msgpack.Encoder(enc_hook=fields_of)


def place_of(timeline: Timeline, version: int = 1) -> bytes:
    """Encode a timeline, without its held messages, with the version of the pipeline."""
    memory = (bytes(timeline.memory), timeline.external_ids) if timeline.external_ids else bytes(timeline.memory)
    return _ENCODER.encode(
        StoredPlace(
            timeline.epoch,
            timeline.reached,
            memory,
            timeline.skipped,
            timeline.parked,
            timeline.error,
            version,
            timeline.conflicts,
        )
    )


def timeline_of(pipeline: Pipeline, record: GroupRecord | None) -> Timeline:
    """Return the timeline of a group, without its held messages."""
    if record is None:
        return pipeline.order.timeline()
    place = stored_place(record)
    parked = None if place.parked is None else Status(place.parked)
    memory, external_ids = place.memory if isinstance(place.memory, tuple) else (place.memory, 0)
    return pipeline.order.timeline(
        epoch=place.epoch,
        reached=place.reached,
        memory=memory,
        skipped=place.skipped,
        parked=parked,
        error=place.error,
        external_ids=external_ids,
        conflicts=place.conflicts,
    )


class WorkerStateCodec:
    """Encoding of a pipeline's states as MessagePack."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._name, self._pipeline = pipeline.name, pipeline
        self._type: Any = pipeline.state if isinstance(pipeline.state, type) else Any
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(self._type, dec_hook=restored)

    def encode(self, state: Any) -> bytes:
        """Encode a state; one that could not be upgraded is encoded as the old JSON values.

        Raises:
            StateError: if it would not decode to an equal value.
        """
        if isinstance(state, versions.OldState):
            return _ENCODER.encode(state.value)
        try:
            data = _STATES.encode(state)
            reread = self._decoder.decode(data)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            msg = f"pipeline {self._name!r}: the state {state!r} cannot be stored: {error}; use JSON values, or a type"
            raise StateError(msg) from error
        if reread != state and repr(reread) != repr(state):  # NaN does not equal itself
            msg = (
                f"pipeline {self._name!r}: the state {state!r} would be read back as {reread!r}; set its type: state=…"
            )
            raise StateError(msg)
        return data

    def read(self, record: GroupRecord) -> Any:
        """Return a group's state, upgraded to the current version; an ``OldState`` if that fails.

        Raises:
            StateError: if it cannot be read.
        """
        place = stored_place(record)
        if record.state == ERASED_STATE and place.parked == Status.GIVEN_UP:
            return self._pipeline.first_state()
        version = place.version
        if version == self._pipeline.version:
            return self.decode(record.state)
        versions.check(self._pipeline, version, None)
        old = msgspec.to_builtins(msgspec.msgpack.decode(record.state), str_keys=True)
        return versions.upgraded(self._pipeline, old, version)

    def decode(self, data: bytes) -> Any:
        """Decode a stored state of the current version.

        Raises:
            StateError: if it no longer fits the pipeline's type.
        """
        try:
            return self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            name = getattr(self._type, "__name__", str(self._type))
            msg = f"pipeline {self._name!r}: a stored state is no longer a valid {name}: {error}; give new fields "
            raise StateError(msg + "defaults and keep the types of the others") from error


def texts(pipeline: str, outputs: Sequence[Any]) -> list[str]:
    """Encode outputs as JSON, the same text that a pipeline of this name writes on Spark.

    Raises:
        HandlerError: if an output cannot be encoded.
    """
    try:
        return [output_json(output).decode() for output in outputs]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"the handler of pipeline {pipeline!r} emitted {outputs!r}, which is not JSON: {error}"
        raise HandlerError(msg) from error


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
    """Reads messages of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        kind: Any = pipeline.message  # mypy does not know that a type[Any] can be hashed
        fields = places(kind) if kind else ()
        self._names = {field.name: field.key for field in fields}
        self._plain = [(field.name, field.key) for field in fields if field.fill is None]
        self._defaults = _class_defaults(kind)

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
            InvalidMessage: if it is invalid, and the pipeline has ``on_invalid="fail"``.
        """
        group = envelope.group
        try:
            content = self._filled(envelope)
            group = group if group is not None else _text(value_at(content, self._pipeline.group))
            entry = self._entry(content, envelope.sequence_number)
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

    def again(self, held: HeldRecord) -> TimelineEntry:
        """Restore a held message.

        Raises:
            StateError: if its content no longer fits the message type.
        """
        try:
            message = self.message(msgspec.json.decode(held.content))
        except Misfit as error:
            msg = f"pipeline {self._pipeline.name!r}: a held message no longer fits the message type: {error}"
            raise StateError(msg) from error
        return TimelineEntry(
            held.position, held.digest, message, held.epoch, held.id or None, held.since_us, held.content, held.tie
        )

    def held_content(self, entry: TimelineEntry) -> dict[str, Any]:
        """Return the content of a held message, as operators see it."""
        content: dict[str, Any] = msgspec.json.decode(self.text(entry))
        return content

    def remade(self, entry: TimelineEntry, new: dict[str, Any]) -> TimelineEntry:
        """Replace content of a held message; its place, id and digest are not changed.

        Raises:
            InputError: if the new content does not fit.
        """
        content = {**self.held_content(entry), **new}
        rebuilt = remake(self._pipeline, entry, new)  # for its checks
        try:
            rebuilt.message, rebuilt.ref = self.message(content), msgspec.json.encode(content).decode()
        except Misfit as error:
            raise InputError(str(error)) from error
        return rebuilt

    def _filled(self, envelope: StoredMessage) -> dict[str, Any]:
        """Return the fields of the body, with missing ones filled from the envelope."""
        body: Any = envelope.body
        try:
            body = msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            kind = "bytes" if envelope.content == Content.BYTES else "text"
            raise Misfit(f"the body is {kind}, not JSON: {error}") from error
        if not isinstance(body, dict):
            raise Misfit(f"the body is a JSON {type(body).__name__}; expected an object with the message's fields")
        pipeline = self._pipeline
        body = by_name(pipeline.message, body)
        values = (
            (pipeline.group, envelope.group),
            (pipeline.revision, envelope.revision),
            (pipeline.id, envelope.dedup_id),
        )
        for name, value in values:
            if name is None or value is None:
                continue
            own = value_at(body, name)
            if own is None:
                body = _with(body, name, value)
            elif own != value and _text(own) != str(value):
                raise Misfit(f"{name} is {own!r} in the body but {value!r} in the envelope")
        if pipeline.arrival is not None and value_at(body, pipeline.arrival) is None:
            body = _with(body, pipeline.arrival, envelope.sequence_number)
        return body  # type: ignore[no-any-return]

    def _entry(self, content: dict[str, Any], number: int) -> TimelineEntry:
        pipeline = self._pipeline
        instance = self.message(content)
        message, fields = message_of(pipeline, instance)
        try:
            _, _, entry = placed(pipeline, message, fields, 0, instance)
        except Unplaced as error:
            raise Misfit(error.why) from error
        if pipeline.time is not None:  # the message may have neither its nanoseconds nor its arrival
            time, arrival = finest(pipeline, value_at(message, pipeline.time), content), number
            if pipeline.arrival is not None:
                arrival = value_at(message, pipeline.arrival) or value_at(content, pipeline.arrival)
            entry.tie = pipeline.order.tie(time, arrival, entry.id or "")
        return entry

    def message(self, content: dict[str, Any]) -> Any:
        """Build the handler's message from fields as JSON has them.

        Raises:
            Misfit: if they are not a message of the pipeline.
        """
        kind = self._pipeline.message
        if kind is None:
            return with_time(self._pipeline, content)
        values = {key: value for name, key in self._plain if (value := content.get(name)) is not None}
        if len(values) < len(self._names):  # something is null or absent, or may contain records
            fields = filled(kind, content)
            reason = lacking(kind, fields)
            if reason is not None:
                raise Misfit(reason)
            values = {self._names[name]: value for name, value in fields.items()}
        try:
            instance: Any = (
                make(kind, values) if is_model(kind) else msgspec.convert(values, kind, strict=False, dec_hook=decoded)
            )
        except msgspec.ValidationError as error:  # or, as its cause, an error of the type's checks
            raise Misfit(refusal(kind, error.__cause__ or ValueError(str(error)))) from error
        except Exception as error:  # the type's own checks may raise anything
            raise Misfit(refusal(kind, error)) from error
        if self._defaults:
            for name in self._defaults.keys() - vars(instance).keys():
                object.__setattr__(instance, name, self._defaults[name])  # it may be frozen
        return instance


def _class_defaults(kind: type | None) -> dict[str, Any]:
    """Return defaults that msgspec leaves to the class: it would omit them if the message is part of an output."""
    if kind is None or not dataclasses.is_dataclass(kind) or not kind.__dictoffset__:
        return {}
    return {field.name: field.default for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}


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
