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
from inturn.ingest.known_ids import DraftComparison, conflict_reason, sorted_out
from inturn.ingest.mapping import MappingError
from inturn.ingest.moved_groups import without_moved
from inturn.ingest.rejections import restored
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
        return ResendCounts(*(mine + its for mine, its in zip(self, other, strict=True)))


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

    kept: RejectedRecord
    record: SourceRecord
    draft: Draft | None = None
    reason: str | None = None


def batches(places: Iterable[RejectedPlace]) -> Iterator[list[int]]:
    """Yield the numbers of records in batches that fit into one transaction."""
    batch, size = list[int](), 0
    for each in places:
        if batch and (len(batch) >= source_limits.INGEST_RECORDS or size + each.size > source_limits.RESEND_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each.number)
        size += each.size
    if batch:
        yield batch


def mapped(intake: IntakeRule, kept: Iterable[RejectedRecord]) -> list[MappedRecord]:
    """Map rejected records again. A decoder may ask its registry, so this is done outside of a transaction."""
    found = []
    for each in kept:
        record = restored(each)
        try:
            found.append(MappedRecord(each, record, intake.draft_of(record)))
        except InputError as error:  # MappingError, or a body that is too long once it is unpacked
            found.append(MappedRecord(each, record, reason=str(MappingError(str(error)))))
    return found


def commit(store: SqlStore, intake: IntakeRule, records: Sequence[MappedRecord], now_ms: int) -> ResendCounts:
    """Send the messages of a batch and remove their records; those that stay get their new reason."""
    partitions = store.sources.locked_partitions(intake.name)
    there = store.sources.lock_rejected(intake.name, [each.kept.number for each in records])
    present = [each for each in records if each.kept.number in there]
    reasons = {each.kept.number: each.reason for each in present if each.reason is not None}
    ready = [(each, each.draft) for each in present if each.draft is not None]
    ignored = len(present) - len(reasons) - len(ready)
    repeated = 0
    if intake.knows_ids:
        new = sorted_out(store.sources, intake.name, [draft for _, draft in ready])
        reasons |= {ready[at][0].kept.number: conflict_reason(id_) for at, id_ in new.conflicts.items()}
        repeated, ready = new.repeated, [ready[at] for at in new.places]
    sent = list[IngestBatch]()
    for name, run in groupby(ready, key=lambda each: each[0].record.partition):
        pairs = list(run)
        batch = IngestBatch(
            name, 0, pairs[-1][0].record, [each.record for each, _ in pairs], [draft for _, draft in pairs]
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
            each.kept.number: reasons[each.kept.number]
            for each in present
            if reasons.get(each.kept.number, each.kept.reason) != each.kept.reason
        }
    )
    store.sources.remove_rejected(intake.name, sorted(there - reasons.keys()))
    drafts = [draft for batch in sent for draft in batch.drafts]
    answers = intake.send(store, drafts, now_ms) if drafts else []
    doubles = sum(each.duplicate for each in answers)
    moved = sum(batch.moved for batch in sent)
    return ResendCounts(len(drafts) - doubles, repeated + doubles, ignored, moved, len(reasons))


def preview(each: MappedRecord, at: int, new: DraftComparison | None) -> ResendPreview:
    """Return what a resend would do with a record.

    Args:
        each: the record.
        at: its place among the records of the batch that have a draft.
        new: the comparison of their ids; None: the source does not recognize ids.
    """
    place = each.kept.number, each.kept.partition, each.kept.position
    if each.reason is not None:
        return ResendPreview(*place, "stay", each.reason)
    if each.draft is None:
        return ResendPreview(*place, "ignored")
    said = each.draft.group, each.draft.revision, each.draft.dedup_id
    if new is not None and at in new.conflicts:
        return ResendPreview(*place, "stay", conflict_reason(new.conflicts[at]), *said)
    return ResendPreview(*place, "send" if new is None or at in new.places else "repeated", None, *said)
