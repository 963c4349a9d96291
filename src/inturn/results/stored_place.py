"""The encoded parts of a pipeline's records: the place of a group in its order, and the message counts."""

from typing import Final

import msgspec

from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.timeline import Status
from inturn.store.records import GroupRecord, PipelineInfo


class StoredPlace(msgspec.Struct, array_like=True):
    """A group's place in its order; see :class:`inturn.core.pipeline.timeline.Timeline`.

    ``memory`` is a pair if more marks are stored outside of the record: the memory and their number. An older worker
    that does not know this form fails on it, instead of applying a message again.
    """

    epoch: int | None
    reached: int | None
    memory: bytes | tuple[bytes, int]
    skipped: list[tuple[int, int]]
    parked: str | None
    error: str | None
    version: int = 1
    """The version of the pipeline that wrote the state."""
    conflicts: bytes = b""


PLACE_DECODER: Final = msgspec.msgpack.Decoder(StoredPlace)
"""Decodes the places of groups."""
ERASED_STATE: Final = b"\xc0"
"""The encoded state of a group that was erased, and so given up: None."""


def stored_place(record: GroupRecord) -> StoredPlace:
    """Return a group's place in its order."""
    return PLACE_DECODER.decode(record.timeline)


def counts_of(info: PipelineInfo) -> Counts:
    """Return a pipeline's counts of messages."""
    return msgspec.convert(info.counts, Counts)


def erased_record(record: GroupRecord, reason: str) -> GroupRecord:
    """Return the record of a group without its content: it is given up, and keeps only digests of applied messages."""
    place = stored_place(record)
    place.parked, place.error = Status.GIVEN_UP, reason
    erased = record._replace(status=Status.GIVEN_UP, timeline=msgspec.msgpack.encode(place), state=ERASED_STATE)
    return erased._replace(held=0, oldest_us=None, due_us=None)
