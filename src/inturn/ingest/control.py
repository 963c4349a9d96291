"""Inspection and control of a source from any process: positions, rejected and moved records, pause, resume, seek."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from inturn.core import limits
from inturn.core.errors import InputError, QueueFull
from inturn.core.queue.messages import Draft, checked_name
from inturn.core.source_shares import DECIDED, FORGOTTEN, SourcePartition
from inturn.core.words import counted
from inturn.database import Database
from inturn.faults import reach
from inturn.ingest import limits as source_limits
from inturn.ingest.intake import IntakeRule
from inturn.ingest.known_ids import DraftComparison, compare_ids, ids_of
from inturn.ingest.moved_groups import draft_of
from inturn.ingest.positions import seek_position_json
from inturn.ingest.resending import MappedRecord, ResendCounts, ResendPreview, batches, commit, map_records, preview
from inturn.store.commands import Read, StoreCall, queue_of
from inturn.store.protocols import SqlStore
from inturn.store.sources import MovedRecord, RejectedPlace, RejectedRecord, RejectedTotal

T = TypeVar("T")


def source_names(db: Database) -> list[str]:
    """Return the names of the sources of a database."""
    return db.writer.run(Read("", lambda store, _now_ms: cast("SqlStore", store).sources.names()))


def names_with_rejections(db: Database) -> list[str]:
    """Return the names of the sources and webhooks of a database that have stored rejected records."""
    return db.writer.run(Read("", lambda store, _now_ms: cast("SqlStore", store).sources.rejecting_names()))


class _ExceedsMaxDepth(InputError):
    """More waiting messages of a group than the queue's max_depth."""


class SourceControl:
    """A source in a database.

    A manual change raises the epoch of the partition. The instance that reads it can no longer commit under the old
    epoch; it continues from the new position, unless the partition is paused.
    """

    def __init__(self, db: Database, name: str) -> None:
        self._db, self._name = db, checked_name(name)

    def partitions(self) -> list[SourcePartition]:
        """Return the partitions, by name."""
        return self._read(lambda store, _now_ms: store.sources.partitions(self._name))

    def rejected(self, limit: int | None = None) -> Iterator[RejectedRecord]:
        """Yield the rejected records that exist now, in order; ``limit`` is their maximum number."""
        for batch in batches(self.rejected_places()[:limit]):
            yield from self._records(batch)

    def rejected_total(self) -> RejectedTotal:
        """Return the number and the size of the stored rejected records."""
        return self._read(lambda store, _now_ms: store.sources.rejected_total(self._name))

    def problems(self) -> dict[str, str]:
        """Return the current errors of the instances, by instance, such as too many rejected records."""
        return self._read(lambda store, now_ms: store.sources.errors(self._name, now_ms))

    def rejected_places(
        self, *, numbers: Collection[int] = (), partitions: Collection[str] = ()
    ) -> list[RejectedPlace]:
        """Return the rejected records that exist now, without their content, in order.

        Args:
            numbers: only records with these numbers; empty: all. Unknown numbers are ignored.
            partitions: only records of these partitions; empty: all.

        Raises:
            InputError: if it names partitions of a source of which nothing is stored.
        """
        # In one statement: between two, a record may commit that has a lower number than one already read.
        places = self._read(lambda store, _now_ms: store.sources.rejected_places(self._name))
        if partitions and not places:
            self._read(lambda store, _now_ms: _check_exists(self._name, store))
        return [
            place
            for place in places
            if (not numbers or place.number in numbers) and (not partitions or place.partition in partitions)
        ]

    def resend(
        self,
        intake: IntakeRule,
        *,
        numbers: Collection[int] = (),
        partitions: Collection[str] = (),
        on_progress: Callable[[int], object] = lambda _count: None,
    ) -> ResendCounts:
        """Map rejected records again and send those that can be mapped now, in order, each once.

        One transaction sends a batch and removes its records, so an interrupted call can be repeated. Records that
        still cannot be mapped stay, with their new reason. Records that are rejected meanwhile are not changed.

        Args:
            intake: the rule by which records become messages: ``Ingest.intake`` or ``Webhook.intake``.
            numbers: only records with these numbers; empty: all.
            partitions: only records of these partitions; empty: all.
            on_progress: called after each transaction with the number of its records.

        Raises:
            InputError: if the rule belongs to another source.
            QueueFull: if the queue has no room; the text says how many records were already sent.
            NoSuchQueue: if the queue does not exist.
        """
        self._check(intake)
        total, places = ResendCounts(), self.rejected_places(numbers=numbers, partitions=partitions)
        try:
            for batch in batches(places):
                for counts in self._send(intake, map_records(intake, self._records(batch))):
                    total = total.plus(counts)
                    reach("resent")
                on_progress(len(batch))
        except QueueFull as error:
            left = len(places) - sum(total)
            raise QueueFull(
                f"{error}; {counted(total.sent, 'record')} already sent, {left:,} left: make room, then resend again"
            ) from error
        return total

    def _send(self, intake: IntakeRule, records: Sequence[MappedRecord]) -> Iterator[ResendCounts]:
        """Send in one transaction; where the queue has no room for all, in several, up to the first without room."""
        try:
            yield self._transact(lambda store, now_ms: commit(store, intake, records, now_ms))
        except QueueFull:
            half = len(records) // 2
            if not half:
                raise
            yield from self._send(intake, records[:half])
            yield from self._send(intake, records[half:])

    def preview(
        self, intake: IntakeRule, *, numbers: Collection[int] = (), partitions: Collection[str] = ()
    ) -> Iterator[ResendPreview]:
        """Yield the effect that :meth:`resend` would have on each record; nothing is changed.

        The room of the queue and the ids that it remembers are not considered.

        Raises:
            InputError: if the rule belongs to another source.
        """
        self._check(intake)
        known_digests: dict[str, str] = {}
        for batch in batches(self.rejected_places(numbers=numbers, partitions=partitions)):
            records, comparison = map_records(intake, self._records(batch)), None
            if intake.knows_ids:
                comparison = self._compare(
                    [record.draft for record in records if record.draft is not None], known_digests
                )
            index = 0
            for record in records:
                yield preview(record, index, comparison)
                index += record.draft is not None

    def _compare(self, drafts: Sequence[Draft], known_digests: dict[str, str]) -> DraftComparison:
        """Compare drafts with the known ids and with ``known_digests``, and add their new ids to it."""
        known = self._read(lambda store, _now_ms: store.sources.known_ids(self._name, ids_of(drafts)))
        comparison, new_digests = compare_ids(known_digests | known, drafts)
        known_digests |= new_digests
        return comparison

    def purge(
        self,
        *,
        numbers: Collection[int] = (),
        partitions: Collection[str] = (),
        on_progress: Callable[[int], object] = lambda _count: None,
    ) -> int:
        """Delete rejected records permanently: for RabbitMQ, SQS and webhooks they are the only copy.

        Args:
            numbers: only records with these numbers; empty: all.
            partitions: only records of these partitions; empty: all.
            on_progress: called after each transaction with the number of its records.

        Returns:
            The number of deleted records.
        """
        selected_numbers = sorted(numbers)
        if partitions or not numbers:
            selected_numbers = [place.number for place in self.rejected_places(numbers=numbers, partitions=partitions)]
        count = 0
        for start in range(0, len(selected_numbers), source_limits.INGEST_RECORDS):
            batch = selected_numbers[start : start + source_limits.INGEST_RECORDS]
            count += self._transact(partial(self._remove, batch))
            on_progress(len(batch))
        return count

    def _remove(self, numbers: list[int], store: SqlStore, _now_ms: int) -> int:
        return store.sources.remove_rejected(self._name, numbers)

    def _records(self, numbers: list[int]) -> list[RejectedRecord]:
        return self._read(lambda store, _now_ms: store.sources.rejected_by_number(self._name, numbers))

    def _check(self, intake: IntakeRule) -> None:
        if intake.name != self._name:
            raise InputError(
                f"the intake rule belongs to source {intake.name!r}; pass the rule of source {self._name!r}"
            )

    def moved(self) -> Iterator[MovedRecord]:
        """Yield the messages that wait because their group came from another partition before, in order."""
        after = 0
        while page := self._moved_page(after):
            yield from page
            after = page[-1].number

    def _moved_page(self, after: int) -> list[MovedRecord]:
        return self._read(lambda store, _now_ms: store.sources.moved(self._name, after, limits.READ_MESSAGES))

    def moved_counts(self) -> dict[str, int]:
        """Return the number of these waiting messages, by the partition from which they arrived."""
        return self._read(lambda store, _now_ms: store.sources.moved_counts(self._name))

    def accept(self, *groups: str) -> int:
        """Let groups continue in their new partition; their waiting messages are sent, in order.

        From then on, further records from the earlier partition wait instead.

        Args:
            groups: the groups; none: all that wait. Each is accepted in its own transaction.

        Returns:
            The number of messages sent.

        Raises:
            InputError: if a group has no waiting messages, or more than the queue's ``max_depth``; in the second case
                the other groups are accepted.
            QueueFull: if the queue has no room; earlier groups were accepted, and the text says how many messages.
        """
        waiting = self._read(lambda store, _now_ms: store.sources.moved_groups(self._name))
        if unknown := sorted(set(groups) - set(waiting)):
            raise InputError(f"source {self._name!r} has no waiting messages of group {unknown[0]!r}")
        count, too_large = 0, list[str]()
        for group in groups or waiting:
            try:
                count += self._transact(partial(self._accept, group))
            except _ExceedsMaxDepth as error:
                too_large.append(str(error))
            except QueueFull as error:
                already_sent = f"{counted(count, 'message')} already sent"
                raise QueueFull(f"{error}; {already_sent}: make room, then accept again") from error
        if too_large:
            more = f"; {len(too_large) - 1:,} more groups have the same problem" if len(too_large) > 1 else ""
            raise InputError(f"{too_large[0]}{more}; sent {counted(count, 'message')} of other groups")
        return count

    def _accept(self, group: str, store: SqlStore, now_ms: int) -> int:
        waiting = store.sources.moved_of(self._name, group)
        if not waiting:  # another process has accepted it
            return 0
        first = waiting[0]
        sent = [message for message in waiting if (message.partition, message.queue) == (first.partition, first.queue)]
        queue = queue_of(store, first.queue)
        max_depth = queue.settings.max_depth
        if max_depth is not None and len(sent) > max_depth:
            # If sent in parts, new records from either partition could be sent between the parts.
            raise _ExceedsMaxDepth(
                f"group {group!r} has {len(sent):,} waiting messages, which must be sent in one transaction, but queue "
                f"{queue.name!r} has max_depth={max_depth}; raise it to {queue.depth + len(sent)} with 'inturn queue "
                "configure' until they are accepted"
            )
        store.sources.move_homes(self._name, first.partition, {group: first.position})
        store.sources.remove_moved([message.number for message in sent])
        store.send(queue, [*map(draft_of, sent)], now_ms)
        return len(sent)

    def pause(self, *partitions: str) -> int:
        """Stop reading the given partitions, or all; return the number of changed ones."""
        return self._change(partitions, lambda row: row._replace(is_paused=True, owner=None))

    def resume(self, *partitions: str) -> int:
        """Continue the given paused partitions, or all; return the number of changed ones."""
        return self._change(partitions, lambda row: row._replace(is_paused=False))

    def seek(self, position: Any, *partitions: str) -> int:
        """Set the position to continue from; None: the start. This also releases a refused partition.

        Args:
            position: a position of the source, as a JSON value.
            partitions: the partitions; none: all.

        Returns:
            The number of changed partitions.

        Raises:
            InputError: if the position is not valid for this source.
        """

        def set_position(row: SourcePartition) -> SourcePartition:
            incarnation = DECIDED + row.incarnation.removeprefix(DECIDED)
            text = seek_position_json(row.position_form, position)
            free = row._replace(note=None, owner=None, is_finished=False, gone_ms=None)
            return free._replace(position=text, incarnation=incarnation)

        return self._change(partitions, set_position)

    def _change(self, names: tuple[str, ...], change: Callable[[SourcePartition], SourcePartition]) -> int:
        def change_rows(store: SqlStore, now_ms: int) -> int:
            known = store.sources.locked_partitions(self._name)
            missing = sorted(set(names) - {row.name for row in known})
            if missing or not known:
                _check_exists(self._name, store)
                existing = ", ".join(row.name for row in known) or "none"
                missing_text = f"partition {missing[0]!r}" if missing else "partition"
                raise InputError(f"source {self._name!r} has no {missing_text}; existing partitions: {existing}")
            count = 0
            for row in known:
                changed = change(row)
                if (row.name in names if names else row.name != FORGOTTEN) and changed != row:
                    store.sources.save(self._name, changed._replace(epoch=row.epoch + 1, moved_ms=now_ms))
                    count += 1
            return count

        return self._transact(change_rows)

    def _read(self, function: Callable[[SqlStore, int], T]) -> T:
        return self._db.writer.run(Read("", lambda store, now_ms: function(cast("SqlStore", store), now_ms)))

    def _transact(self, function: Callable[[SqlStore, int], T]) -> T:
        return self._db.writer.run(StoreCall("", lambda store, now_ms: function(cast("SqlStore", store), now_ms)))


def _check_exists(name: str, store: SqlStore) -> None:
    """Check that something is stored of a source, or raise InputError."""
    known = sorted({*store.sources.names(), *store.sources.rejecting_names()})
    if name not in known:
        raise InputError(f"no source {name!r}; existing sources: {', '.join(known) or 'none'}")
