"""The encoded parts of a pipeline's records: where a group has come to in its order, and the counts of messages."""

import msgspec

from inturn.core.pipeline.fold import Counts
from inturn.store.records import GroupRecord, PipelineInfo


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


def place(line: GroupRecord) -> StoredPlace:
    """Return a group's place in its order."""
    return _PLACES.decode(line.timeline)


def counts_of(info: PipelineInfo) -> Counts:
    """Return a pipeline's counts of messages."""
    return msgspec.convert(info.counts, Counts)
