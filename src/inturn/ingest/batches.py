"""The records of a source as batches: one for each partition, mapped, with what was rejected."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Final

from inturn.core.errors import InputError
from inturn.core.queue.messages import Draft
from inturn.ingest import limits as source_limits
from inturn.ingest.mapping import MappingError
from inturn.ingest.rejections import rejected_record
from inturn.ingest.source import SourceRecord
from inturn.store.sources import RejectedRecord

_BYTES: Final = (bytes, NoneType)
_EXPECTED: Final = "expected bytes or None from the source"


@dataclass(slots=True)
class IngestBatch:
    """The records of one partition, mapped.

    Attributes:
        epoch: the epoch under which they were read.
        last: the last record, after which reading continues.
        records: the records that became drafts, in order.
        ignored: the number of records that the mapping skips, or that were already sent.
        moved: the number of records that wait because their group came from another partition before.
    """

    partition: str
    epoch: int
    last: SourceRecord
    records: list[SourceRecord] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    rejected: list[RejectedRecord] = field(default_factory=list)
    ignored: int = 0
    moved: int = 0


def check_batch_limits(batch: int, batch_bytes: int, lease_s: float) -> None:
    """Check how many records, of what size, are read at a time, and the length of a lease.

    Raises:
        InputError: if one of them is not valid.
    """
    for setting, value in (("batch", batch), ("batch_bytes", batch_bytes)):
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{setting} is {value!r}; expected a whole number above 0")
    least_s, most_s = source_limits.INGEST_LEASE_MIN_S, source_limits.INGEST_LEASE_MAX_S
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not least_s <= lease_s <= most_s:
        raise InputError(f"lease_s is {lease_s!r}; expected a number of seconds from {least_s:g} to {most_s:,.0f}")


def map_batches(
    records: Sequence[SourceRecord], epochs: Mapping[str, int], map_: Callable[[SourceRecord], Draft | None]
) -> list[IngestBatch]:
    """Map records and divide them by partition; ``epochs`` has that of each partition.

    Raises:
        InputError: if a record has a key or a body of a wrong type: its source has a fault.
    """
    batches: dict[str, IngestBatch] = {}
    for record in records:
        batch = batches.get(record.partition)
        if batch is None:
            batch = batches[record.partition] = IngestBatch(record.partition, epochs[record.partition], record)
        batch.last = record
        if not isinstance(record.key, _BYTES) or not isinstance(record.body, _BYTES):
            part, value = ("body", record.body) if isinstance(record.key, _BYTES) else ("key", record.key)
            raise InputError(f"{record.partition} at {record.position!r}: the {part} is {value!r:.100}; {_EXPECTED}")
        try:
            draft = map_(record)
        except InputError as error:  # MappingError, or one of a decoder
            batch.rejected.append(rejected_record(record, str(MappingError(str(error)))))
            continue
        if draft is None:
            batch.ignored += 1
        else:
            batch.records.append(record)
            batch.drafts.append(draft)
    return list(batches.values())
