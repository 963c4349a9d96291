"""The records of a source as batches: one for each partition, mapped, with what was rejected."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from inturn.core.queue.messages import Draft
from inturn.ingest.mapping import Unmappable
from inturn.ingest.rejections import rejected_record
from inturn.ingest.source import SourceRecord
from inturn.store.sources import RejectedRecord


@dataclass(slots=True)
class IngestBatch:
    """The records of one partition, mapped.

    Attributes:
        epoch: the epoch under which they were read.
        last: the last of them, after which the partition goes on.
        records: those that became drafts, in their order.
        ignored: the number of those that the mapping passes over, or that were sent before.
        moved: the number of those that wait, since their group came from another partition before.
    """

    partition: str
    epoch: int
    last: SourceRecord
    records: list[SourceRecord] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    rejected: list[RejectedRecord] = field(default_factory=list)
    ignored: int = 0
    moved: int = 0


def batches_of(
    records: Sequence[SourceRecord], epochs: Mapping[str, int], map_: Callable[[SourceRecord], Draft | None]
) -> list[IngestBatch]:
    """Map records and divide them by partition; ``epochs`` has that of each partition."""
    batches: dict[str, IngestBatch] = {}
    for record in records:
        batch = batches.get(record.partition)
        if batch is None:
            batch = batches[record.partition] = IngestBatch(record.partition, epochs[record.partition], record)
        batch.last = record
        try:
            draft = map_(record)
        except Unmappable as error:
            batch.rejected.append(rejected_record(record, str(error)))
            continue
        if draft is None:
            batch.ignored += 1
        else:
            batch.records.append(record)
            batch.drafts.append(draft)
    return list(batches.values())
