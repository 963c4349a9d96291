"""Resending of rejected records: records that can be mapped now become messages, each once.

One transaction sends the messages of a bounded batch and removes their records. It first locks the partitions of the
source, so that none of its instances commits meanwhile, and then the records, so that no other resend takes them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias

from inturn.core.errors import InputError
from inturn.core.queue.messages import Draft
from inturn.ingest import limits as source_limits
from inturn.ingest.batches import IngestBatch
from inturn.ingest.intake import IntakeRule
from inturn.ingest.known_ids import DraftComparison, compare_and_remember, conflict_reason
from inturn.ingest.mapping import MappingError
from inturn.ingest.moved_groups import without_moved
from inturn.ingest.rejections import restore
from inturn.ingest.source import SourceRecord
from inturn.store.protocols import SqlStore
from inturn.store.sources import RejectedPlace, RejectedRecord

ResendOutcome: TypeAlias = Literal["send", "repeated", "ignored", "stay"]


class ResendCounts(NamedTuple):
    """The counts of a resend.

    Attributes:
        sent: records that became messages.
        repeated: records that were already sent, recognized by their id; they are removed.
        ignored: records that the mapping skips; they are removed.
        moved: messages that wait for a decision because their group came from another partition before.
        stayed: records that still cannot be mapped; they stay, with the new reason.
    """

    sent: int = 0
    repeated: int = 0
    ignored: int = 0
    moved: int = 0
    stayed: int = 0

    def plus(self, other: "ResendCounts") -> "ResendCounts":
        """Return the sum of both."""
        return ResendCounts(*(own + its for own, its in zip(self, other, strict=True)))


class ResendPreview(NamedTuple):
    """The effect that a resend would have on a record.

    Attributes:
        number: the record's number.
        partition: the partition that it came from.
        position: its position, as JSON.
        outcome: the outcome of a resend.
        reason: the reason why it would stay; otherwise None.
        group: the message's group.
        revision: its revision.
        id: its deduplication id.
    """

    number: int
    partition: str
    position: str
    outcome: ResendOutcome
    reason: str | None = None
    group: str | None = None
    revision: int | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class MappedRecord:
    """A rejected record, mapped again: with a draft, or the reason why there is none, or neither if it is skipped."""

    rejected: RejectedRecord
    record: SourceRecord
    draft: Draft | None = None
    reason: str | None = None


def batches(places: Iterable[RejectedPlace]) -> Iterator[list[int]]:
    """Yield the numbers of records in batches that fit into one transaction."""
    batch, size = list[int](), 0
    for place in places:
        if batch and (len(batch) >= source_limits.INGEST_RECORDS or size + place.size > source_limits.RESEND_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(place.number)
        size += place.size
    if batch:
        yield batch


def map_records(intake: IntakeRule, rejected: Iterable[RejectedRecord]) -> list[MappedRecord]:
    """Map rejected records again. A decoder may ask its registry, so this is done outside of a transaction."""
    results = []
    for rejected_record in rejected:
        record = restore(rejected_record)
        try:
            results.append(MappedRecord(rejected_record, record, intake.draft_of(record)))
        except InputError as error:  # MappingError, or a body that is too long once it is unpacked
            results.append(MappedRecord(rejected_record, record, reason=str(MappingError(str(error)))))
    return results


def commit(store: SqlStore, intake: IntakeRule, records: Sequence[MappedRecord], now_ms: int) -> ResendCounts:
    """Send the messages of a batch and remove their records; those that stay get their new reason."""
    partitions = store.sources.locked_partitions(intake.name)
    locked = store.sources.lock_rejected(intake.name, [record.rejected.number for record in records])
    present = [record for record in records if record.rejected.number in locked]
    reasons = {record.rejected.number: record.reason for record in present if record.reason is not None}
    ready = [(record, record.draft) for record in present if record.draft is not None]
    ignored = len(present) - len(reasons) - len(ready)
    repeated = 0
    if intake.knows_ids:
        comparison = compare_and_remember(store.sources, intake.name, [draft for _, draft in ready])
        reasons |= {
            ready[index][0].rejected.number: conflict_reason(id_) for index, id_ in comparison.conflicts.items()
        }
        repeated, ready = comparison.repeated, [ready[index] for index in comparison.new_indices]
    sent = list[IngestBatch]()
    for name, run in groupby(ready, key=lambda pair: pair[0].record.partition):
        pairs = list(run)
        batch = IngestBatch(
            name, 0, pairs[-1][0].record, [record.record for record, _ in pairs], [draft for _, draft in pairs]
        )
        if intake.on_move != "ignore":
            batch = without_moved(store.sources, intake.name, batch, intake.queue, intake.on_move, now_ms)
        sent.append(batch)
    received = Counter[str]()
    for batch in sent:
        received[batch.partition] += len(batch.drafts)
    for row in partitions:
        if received[row.name]:
            store.sources.save(intake.name, row._replace(received=row.received + received[row.name]))
    store.sources.save_reasons(
        {
            record.rejected.number: reasons[record.rejected.number]
            for record in present
            if reasons.get(record.rejected.number, record.rejected.reason) != record.rejected.reason
        }
    )
    store.sources.remove_rejected(intake.name, sorted(locked - reasons.keys()))
    drafts = [draft for batch in sent for draft in batch.drafts]
    answers = intake.send(store, drafts, now_ms) if drafts else []
    duplicates = sum(answer.duplicate for answer in answers)
    moved = sum(batch.moved for batch in sent)
    return ResendCounts(len(drafts) - duplicates, repeated + duplicates, ignored, moved, len(reasons))


def preview(record: MappedRecord, index: int, comparison: DraftComparison | None) -> ResendPreview:
    """Return what a resend would do with a record.

    Args:
        record: the record.
        index: its place among the records of the batch that have a draft.
        comparison: the comparison of their ids; None: the source does not recognize ids.
    """
    place = record.rejected.number, record.rejected.partition, record.rejected.position
    if record.reason is not None:
        return ResendPreview(*place, "stay", record.reason)
    if record.draft is None:
        return ResendPreview(*place, "ignored")
    draft_fields = record.draft.group, record.draft.revision, record.draft.dedup_id
    if comparison is not None and index in comparison.conflicts:
        return ResendPreview(*place, "stay", conflict_reason(comparison.conflicts[index]), *draft_fields)
    return ResendPreview(
        *place, "send" if comparison is None or index in comparison.new_indices else "repeated", None, *draft_fields
    )
