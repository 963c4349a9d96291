"""The list of groups that can be received: the table `inturn_ready` has their heads.

Only the holder of the receiver lock changes it; receiver_lock.py describes the locks. A send does not change it: the
holder *lists* new messages from the log. The holder takes the rechecks of settlements, and *refreshes* their groups in
the order of the rechecks. core/queue/ready_groups.py defines their places in the ready queue; docs/architecture.md
shows all tables of a message side by side.

The order within a receive::

    open     lock the receiver row; take the rechecks of all transactions that have committed since
    tidy     end expired holds and locks; remove messages past their retention
    refresh  list the heads of the groups that these two have freed
    receive  read the first heads; list more of the log once they are used up
    close    write the receiver row: how far the list and the rechecks were read

What never happens:

- A recheck is missed or taken twice: the transactions that had not ended at the last receive are named in
  ``seen_except``, and a recheck is deleted when it is taken.
- A message is skipped because its sender commits late: numbers become visible in order.
- Dead rows slow a receive down: each scan begins where the last one ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from inturn.core import limits
from inturn.core.queue import delivery, ready_groups, redelivery
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import QueueInfo, first_number
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.clock_skew import PostgresFutureSpans
from inturn.store.postgres.group_locks import PostgresGroupLocks
from inturn.store.postgres.messages import Held, PostgresMessages, Row
from inturn.store.postgres.producers import PostgresProducers
from inturn.store.postgres.receiver_lock import ReadyCandidate, ReceiverLock, ReceiverLocks
from inturn.store.postgres.statements import PostgresStatements, QueuedStatement
from inturn.store.sql.statements import MessageStatus


class ReceiverRow(NamedTuple):
    """The first columns of each row of the statement `take_rechecks`; those of a recheck follow.

    Attributes:
        snapshot: the transactions that the statement sees.
        own_transaction: id of its own transaction.
        first_number: sequence number of the first stored message; None: there is none.
        oldest_ms: when that message was sent.
    """

    version: int
    last_token: int
    removed_count: int
    listed_to: int
    messages_from: int
    ready_from: int
    is_list_complete: bool
    due_ms: int | None
    has_requeues: bool
    is_at_end: bool
    snapshot: str
    own_transaction: int
    first_number: int | None
    oldest_ms: int | None


@dataclass(eq=False)
class ReadyList(PostgresStatements):
    """The ready groups of all queues of a database."""

    _catalog: PostgresCatalog
    _locks: ReceiverLocks
    _group_locks: PostgresGroupLocks
    _messages: PostgresMessages
    _spans: PostgresFutureSpans
    _producers: PostgresProducers
    _idle: set[int] = field(default_factory=set)  # the queues in which the last receive found nothing
    _scanned: set[int] = field(default_factory=set)  # queues whose rechecks this connection has once scanned in full

    def forget(self) -> None:
        """Forget all that was read from the tables, such as after a reconnect."""
        self._idle.clear()
        self._scanned.clear()

    def forget_idle(self) -> None:
        """Forget the queues in which nothing was found."""
        self._idle.clear()

    def open(self, queue: QueueInfo, now_ms: int) -> ReceiverLock:
        """Take and return the receiver lock, after processing rechecks of settlements and expired deadlines.

        Raises:
            RunAgain: if the queue was removed.
        """
        self._locks.acquire(queue)
        is_known = queue.number in self._scanned  # if not, the transaction ids may be from another server
        rows = self._all("take_rechecks", queue.number, first_number(queue.number + 1), is_known)
        if not rows:
            raise self._catalog.removed(queue)
        row = ReceiverRow(*rows[0][: len(ReceiverRow._fields)])
        self._scanned.add(queue.number)
        lock = ReceiverLock(
            last_token=row.last_token,
            removed_count=row.removed_count,
            listed_to=row.listed_to,
            # Messages not committed yet, or sent later, have numbers after all listed ones.
            messages_from=row.first_number or max(row.messages_from, row.listed_to + 1),
            ready_from=None,
            is_list_complete=row.is_list_complete,
            due_ms=row.due_ms,
            oldest_ms=row.oldest_ms,
            seen=_seen_transactions(row.snapshot, row.own_transaction),
            version=row.version,
            stored=(row.last_token, row.removed_count, row.messages_from, None, row.is_list_complete, row.due_ms),
            stored_ready_from=row.ready_from,
            has_requeues=row.has_requeues,
            is_at_end=row.is_at_end,
        )
        joined = (columns[len(ReceiverRow._fields) :] for columns in rows)
        rechecks = sorted((recheck for recheck in joined if recheck[4] is not None), key=lambda recheck: recheck[4])
        for group, number, more_gone, due, _, at_ms, place in rechecks:
            lock.removed_count += more_gone
            if due is not None:
                lock.is_due(due)
            if group is not None or number is not None:
                lock.candidates.append(ReadyCandidate(group, None if group is not None else number, place, at_ms))
            if at_ms is not None:
                self.mark_requeue(queue, lock)
        if queue.settings.priority_lead is not None:
            self.mark_requeue(queue, lock)
            lock.lead = ready_groups.lead_of(self._producers.highest_priority(queue), queue.settings)
        self._tidy(queue, lock, now_ms)
        return lock

    def is_idle(self, queue: QueueInfo, now_ms: int) -> bool:
        """Return whether there is still nothing to receive, for a receiver that waits.

        The check takes no lock, since a row lock is written to the server's disk.
        """
        if queue.number not in self._idle or self._locks.holds(queue):
            return False
        retired_ms = delivery.retired_ms(queue.settings, now_ms)
        row = self._one("has_work", queue.number, first_number(queue.number + 1), now_ms, retired_ms)
        if row is not None and not row[0]:
            return True
        self._idle.discard(queue.number)
        return False

    def close(self, queue: QueueInfo, lock: ReceiverLock, now_ms: int, *, has_found: bool) -> None:
        """Write the row of the lock if it has changed; set the time of the next check if not all was found."""
        if not has_found:
            self._idle.add(queue.number)
            is_ahead = lock.due_ms is not None and lock.due_ms > now_ms  # if not, a settlement has it locked
            ends = (self._spans.skew.next_ms(queue.number), lock.due_ms if is_ahead else None)
            queue.due_ms = min((end_ms for end_ms in ends if end_ms is not None), default=None)
        if lock.row != lock.stored or lock.is_changed or lock.ready_after is not None or lock.has_ended:
            # With priorities a group may join before the part already read, so that part is not remembered.
            is_in_order = queue.settings.priority_lead is None
            ready_after = (lock.ready_after if is_in_order else None) or (None, None, None)
            has_ended = lock.has_ended and is_in_order
            self._do("save_receiver", queue.number, *lock.row, *lock.seen, lock.version, *ready_after, has_ended)

    def list_later(self, queue: QueueInfo, lock: ReceiverLock, count: int) -> QueuedStatement:
        """Queue the listing of the next messages of the log; :meth:`see_listed` takes its result."""
        arguments = queue.number, first_number(queue.number + 1), count, lock.messages_from, lock.version
        lead = queue.settings.priority_lead
        if lead is None:
            return self._do("list_ready", *arguments)
        return self._do("list_ready_by_priority", *arguments, first_number(queue.number), lead)

    def see_listed(self, lock: ReceiverLock, listing: QueuedStatement, count: int) -> None:
        """Record the result of a listing."""
        lock.listed_to, listed = listing.rows[0] if listing.rows else (lock.listed_to, 0)
        lock.is_changed |= listed > 0
        lock.is_list_complete = listed < count

    def refresh(self, queue: QueueInfo, lock: ReceiverLock) -> None:
        """Put the heads of the candidates that are free now into the ready queue."""
        candidates: dict[tuple[str | None, int | None], ReadyCandidate] = {}
        for candidate in lock.candidates:
            candidates.pop(candidate[:2], None)  # its last position counts
            candidates[candidate[:2]] = candidate
        if candidates and not lock.has_requeues:
            groups = [candidate.group for candidate in candidates.values() if candidate.group is not None]
            numbers = [candidate.number for candidate in candidates.values() if candidate.number is not None]
            if groups:
                self._do("refresh_unplaced", queue.number, groups, lock.messages_from, lock.version)
            if numbers:
                self._do("refresh_unplaced_ungrouped", queue.number, numbers, lock.version)
        elif candidates:
            groups, numbers, places, _ = map(list, zip(*candidates.values(), strict=True))
            arguments = queue.number, groups, numbers, places, lock.messages_from, lock.version
            lead = queue.settings.priority_lead
            if lead is None:
                self._do("refresh", *arguments)
            else:
                self._do("refresh_by_priority", *arguments, first_number(queue.number), lead)
        lock.is_changed |= bool(candidates)
        lock.candidates = []

    def set_priority(self, queue: QueueInfo, group: str, priority: int, now_ms: int) -> None:
        """Set the priority of a group, and its place if it is ready and was not nacked."""
        lock = self.open(queue, now_ms)
        group = self._producers.save_priority(queue, group, priority)
        removed_head = self._one("remove_ready_head", queue.number, group, lock.messages_from)
        if removed_head:
            lock.lead = max(lock.lead, ready_groups.lead_of(priority, queue.settings))
            lock.add_candidate(None, group)
            self.refresh(queue, lock)
        self.close(queue, lock, now_ms, has_found=True)

    def mark_requeue(self, queue: QueueInfo, lock: ReceiverLock) -> None:
        """Record in the lock that a message of the queue was nacked."""
        if not lock.has_requeues:
            lock.has_requeues = lock.is_changed = True
            self._do("mark_first_requeue", queue.number, lock.version, first_number(queue.number))

    def _tidy(self, queue: QueueInfo, lock: ReceiverLock, now_ms: int) -> None:
        """End expired holds and locks, remove messages past their retention, and list groups that are free now."""
        self._retire(queue, lock, delivery.retired_ms(queue.settings, now_ms))
        if lock.due_ms is not None and lock.due_ms <= now_ms:
            ended = self._group_locks.end_locks(queue.number, lock.due_ms, now_ms)
            ended_keys = [(until_ms, 0, group) for until_ms, group in ended]
            rows = self._all(
                "expired_holds", queue.number, lock.messages_from, now_ms, limits.EXPIRE_AT_ONCE, lock.due_ms
            )
            self._end_holds(queue, rows, now_ms)
            if any(attempts for _, _, _, _, attempts, *_ in rows):
                self.mark_requeue(queue, lock)
            ended_keys += [(until_ms, number, group) for number, group, until_ms, *_ in rows]
            ended_keys.sort(key=lambda ended_key: ended_key[:2])
            candidates = [
                ReadyCandidate(group, None if group is not None else number, None, until_ms)
                for until_ms, number, group in ended_keys
            ]
            lock.add_expired(candidates, before_nacks=not queue.settings.retry_delay_s)
            (lock.due_ms,) = self._one("next_due", queue.number, lock.due_ms)
        self.refresh(queue, lock)

    def _end_holds(self, queue: QueueInfo, rows: Iterable[Row], now_ms: int) -> None:
        """End expired leases and delays; each row has the hold and whether its message is the head of its group."""
        remaining: list[Held] = []
        for number, group, *fields, is_head in rows:
            hold = DeliveryState._make(fields)
            remaining.append(
                (number, group, redelivery.ended(hold, queue.settings, number, is_head=is_head, now_ms=now_ms))
            )
        self._messages.set_holds(queue, remaining)

    def _retire(self, queue: QueueInfo, lock: ReceiverLock, retired_ms: int | None) -> None:
        if retired_ms is None or lock.oldest_ms is None or lock.oldest_ms > retired_ms:  # the usual case
            return
        end = first_number(queue.number + 1)
        for number, group, status in self._all(
            "remove_expired_messages", lock.messages_from, end, limits.EXPIRE_AT_ONCE, retired_ms
        ):
            lock.removed_count += status != MessageStatus.ACKNOWLEDGED
            lock.add_candidate(number, group)


def _seen_transactions(snapshot: str, own: int) -> tuple[int, list[int]]:
    """Return the transactions that a snapshot sees: the number below which all are seen, and the exceptions.

    The exceptions are the running transactions, including the own one.
    """
    _, end, going_on = snapshot.split(":")
    return int(end), [own, *map(int, filter(None, going_on.split(",")))]
