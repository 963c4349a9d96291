"""Encoding of groups for the store, as MessagePack and JSON, never pickle.

A state that would not decode to an equal value is refused, so that it means the same in this turn and in the next.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from inturn.core.errors import HandlerError, StateError
from inturn.core.pipeline import versions
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.timeline import Status, Timeline
from inturn.store.records import GroupRecord


class StoredPlace(msgspec.Struct, array_like=True):
    """A group's place in its order; see :class:`inturn.core.pipeline.timeline.Timeline`.

    ``memory`` is a pair if more is remembered beside the group: the memory and how much. An older worker that does not
    know of this fails on it, instead of applying a message again.
    """

    epoch: int | None
    reached: int | None
    memory: bytes | tuple[bytes, int]
    skipped: list[tuple[int, int]]
    parked: str | None
    error: str | None
    version: int = 1
    """The version of the pipeline that wrote the state."""


_PLACES = msgspec.msgpack.Decoder(StoredPlace)
_ENCODER = msgspec.msgpack.Encoder()
_OUTPUTS = msgspec.json.Encoder(order="deterministic")  # the order of a set differs between processes


def place_of(line: Timeline, version: int = 1) -> bytes:
    """Encode a timeline, without its held messages, with the version of the pipeline."""
    memory = (bytes(line.memory), line.beside) if line.beside else bytes(line.memory)
    return _ENCODER.encode(
        StoredPlace(line.epoch, line.reached, memory, line.skipped, line.parked, line.error, version)
    )


def place(line: GroupRecord) -> StoredPlace:
    """Return a group's place in its order."""
    return _PLACES.decode(line.timeline)


def timeline_of(pipeline: Pipeline, line: GroupRecord | None) -> Timeline:
    """Return the timeline of a group, without its held messages."""
    if line is None:
        return pipeline.order.timeline()
    at = place(line)
    parked = None if at.parked is None else Status(at.parked)
    memory, beside = at.memory if isinstance(at.memory, tuple) else (at.memory, 0)
    return pipeline.order.timeline(
        epoch=at.epoch,
        reached=at.reached,
        memory=memory,
        skipped=at.skipped,
        parked=parked,
        error=at.error,
        beside=beside,
    )


class WorkerStateCodec:
    """Encoding of a pipeline's states as MessagePack."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._name, self._pipeline = pipeline.name, pipeline
        self._type: Any = pipeline.state if isinstance(pipeline.state, type) else Any
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(self._type)

    def encode(self, state: Any) -> bytes:
        """Encode a state; one that could not be upgraded is encoded as the old JSON values.

        Raises:
            StateError: if it would not decode to an equal value.
        """
        if isinstance(state, versions.OldState):
            return _ENCODER.encode(state.value)
        try:
            data = _ENCODER.encode(state)
            again = self._decoder.decode(data)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            msg = f"pipeline {self._name!r}: the state {state!r} cannot be kept: {error}; use plain values, or a type"
            raise StateError(msg) from error
        if again != state and repr(again) != repr(state):  # NaN does not equal itself
            msg = f"pipeline {self._name!r}: the state {state!r} would come back as {again!r}; say its types: state=…"
            raise StateError(msg)
        return data

    def read(self, line: GroupRecord) -> Any:
        """Return a group's state, upgraded to the current version; an ``OldState`` if that fails.

        Raises:
            StateError: if it cannot be read.
        """
        version = place(line).version
        if version == self._pipeline.version:
            return self.decode(line.state)
        versions.check(self._pipeline, version, None)
        old = msgspec.to_builtins(msgspec.msgpack.decode(line.state), str_keys=True)
        return versions.upgraded(self._pipeline, old, version)

    def decode(self, data: bytes) -> Any:
        """Decode a stored state of the current version.

        Raises:
            StateError: if it does not fit the pipeline's type any more.
        """
        try:
            return self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            name = getattr(self._type, "__name__", str(self._type))
            msg = f"pipeline {self._name!r}: a state that was kept is no {name} any more: {error}; give new fields "
            raise StateError(msg + "defaults and keep the types of the others") from error


def texts(pipeline: str, outputs: Sequence[Any]) -> list[str]:
    """Encode outputs as JSON, the same text that a pipeline of this name writes on Spark.

    Raises:
        HandlerError: if an output cannot be encoded.
    """
    try:
        return [_OUTPUTS.encode(output).decode() for output in outputs]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"the handler of pipeline {pipeline!r} emitted {outputs!r}, which is not JSON: {error}"
        raise HandlerError(msg) from error
