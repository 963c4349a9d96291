"""The rule by which the records of a source or a webhook become messages."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from inturn.core.errors import QueueFull
from inturn.core.queue.messages import Draft, Sent, checked_name
from inturn.ingest.batches import IngestBatch
from inturn.ingest.known_ids import compare_and_remember, conflict_reason, with_id
from inturn.ingest.mapping import MessageMapping, with_decoder
from inturn.ingest.moved_groups import OnMove, checked_on_move, without_moved
from inturn.ingest.rejections import rejected_record
from inturn.ingest.source import Decoder, Source, SourceRecord
from inturn.store.commands import queue_of
from inturn.store.protocols import SqlStore
from inturn.store.sources import SourceStore


class IntakeRule(NamedTuple):
    """The rule by which records become messages; see ``Ingest.intake`` and ``Webhook.intake``.

    Attributes:
        name: the name of the source or webhook.
        queue: the queue of the messages.
        draft_of: the function that maps a record; its result None skips the record. It raises MappingError.
        knows_ids: whether a repeated record is recognized by its id.
        on_move: the treatment of a group that arrives from another partition than before.
    """

    name: str
    queue: str
    draft_of: Callable[[SourceRecord], Draft | None]
    knows_ids: bool = False
    on_move: OnMove = "ignore"

    @staticmethod
    def for_source(
        source: Source | type[Source],
        mapping: MessageMapping,
        *,
        name: str,
        queue: str,
        once: bool = True,
        on_move: OnMove | None = None,
        decode: Decoder | None = None,
    ) -> "IntakeRule":
        """Return the rule of a source, or of a class of sources, without reading it; arguments as in Ingest.

        Raises:
            InputError: if a value is not valid.
        """
        return IntakeRule(
            checked_name(name),
            queue,
            with_decoder(decode, with_id(source, mapping, once=once).compiled()),
            once and not source.has_positions,
            checked_on_move(on_move, mapping),
        )

    def new_records(self, store: SourceStore, batch: IngestBatch, now_ms: int) -> IngestBatch:
        """Return a batch without records that were already sent, and without messages of groups that moved.

        A record with the id of another message is rejected.
        """
        if self.knows_ids:
            comparison = compare_and_remember(store, self.name, batch.drafts)
            conflicts = [
                rejected_record(batch.records[index], conflict_reason(id_))
                for index, id_ in comparison.conflicts.items()
            ]
            batch = replace(
                batch,
                records=[batch.records[index] for index in comparison.new_indices],
                drafts=[batch.drafts[index] for index in comparison.new_indices],
                rejected=batch.rejected + conflicts,
                ignored=batch.ignored + comparison.repeated,
            )
        if self.on_move == "ignore":
            return batch
        return without_moved(store, self.name, batch, self.queue, self.on_move, now_ms)

    def send(self, store: SqlStore, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Send messages to the queue, all or none.

        Raises:
            QueueFull: if the queue has no room now, or can never hold so many; fewer may fit.
            NoSuchQueue: if it does not exist.
        """
        target = queue_of(store, self.queue)
        max_depth = target.settings.max_depth
        if max_depth is not None and len(drafts) > max_depth:
            raise QueueFull(
                f"queue {target.name!r} holds at most {max_depth:,} messages; {len(drafts):,} at once do not fit"
            )
        return store.send(target, drafts, now_ms)
