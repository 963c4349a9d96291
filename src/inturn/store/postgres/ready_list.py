"""The list of groups that can be received: the table `inturn_ready` has their heads.

Only the holder of the receiver lock changes it; receiver_lock.py describes the locks. A send does not change it: the
holder *lists* new messages from the log. The holder takes the notes of settlements, and *refreshes* their groups in the
order of the notes. core/queue/ready_groups.py defines their places in the ready queue.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from inturn.core import limits
from inturn.core.queue import delivery, ready_groups, redelivery
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import QueueInfo, first_number
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.clock_skew import PostgresFutureSpans
from inturn.store.postgres.group_locks import PostgresGroupLocks
from inturn.store.postgres.messages import Held, PostgresMessages, Row
from inturn.store.postgres.producers import PostgresProducers
from inturn.store.postgres.receiver_lock import ReceiverLock, ReceiverLocks, Touch
from inturn.store.postgres.statements import PostgresStatements, QueuedStatement
from inturn.store.sql.statements import MessageStatus


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
    _drawn: set[int] = field(default_factory=set)  # queues whose notes this connection has once scanned in full

    def forget(self) -> None:
        """Forget all that was read from the tables, such as after a reconnect."""
        self._idle.clear()
        self._drawn.clear()

    def forget_idle(self) -> None:
        """Forget the queues in which nothing was found."""
        self._idle.clear()

    def open(self, queue: QueueInfo, now_ms: int) -> ReceiverLock:
        """Take and return the receiver lock, after processing notes of settlements and expired deadlines.

        Raises:
            RunAgain: if the queue was removed.
        """
        self._locks.acquire(queue)
        is_known = queue.number in self._drawn  # if not, the transaction ids may be from another server
        rows = self._all("take_rechecks", queue.number, first_number(queue.number + 1), is_known)
        if not rows:
            raise self._catalog.removed(queue)
        version, tokens, removed_count, listed, floor, ready_from, ran_out, due_ms, has_back, is_at_end = rows[0][:10]
        snapshot, own, first, oldest_ms = rows[0][10:14]
        self._drawn.add(queue.number)
        stored = tokens, removed_count, floor, None, ran_out, due_ms
        # Messages not committed yet, or sent later, have numbers after all listed ones.
        floor = first or max(floor, listed + 1)
        row = tokens, removed_count, listed, floor, None, ran_out, due_ms
        seen = _drawn(snapshot, own)
        lock = ReceiverLock(*row, oldest_ms, seen, version, stored, ready_from, has_back, is_at_end)
        notes = [row[14:] for row in rows if row[18] is not None]
        for group, number, more_gone, due, _, at_ms, place in sorted(notes, key=lambda note: note[4]):
            lock.gone += more_gone
            if due is not None:
                lock.is_due(due)
            if group is not None or number is not None:
                lock.touched.append(Touch(group, None if group is not None else number, place, at_ms))
            if at_ms is not None:
                self.mark_back(queue, lock)
        if queue.settings.priority_lead is not None:
            self.mark_back(queue, lock)
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
        if lock.row != lock.kept or lock.is_changed or lock.line is not None or lock.has_ended:
            # With priorities a group may join before the part already read, so that part is not remembered.
            is_in_order = queue.settings.priority_lead is None
            ready_after = (lock.line if is_in_order else None) or (None, None, None)
            has_ended = lock.has_ended and is_in_order
            self._do("save_receiver", queue.number, *lock.row, *lock.drawn, lock.version, *ready_after, has_ended)

    def list_later(self, queue: QueueInfo, lock: ReceiverLock, count: int) -> QueuedStatement:
        """Queue the listing of the next messages of the log; :meth:`see_listed` takes its result."""
        arguments = queue.number, first_number(queue.number + 1), count, lock.floor, lock.version
        lead = queue.settings.priority_lead
        if lead is None:
            return self._do("list_ready", *arguments)
        return self._do("list_ready_by_priority", *arguments, first_number(queue.number), lead)

    def see_listed(self, lock: ReceiverLock, listing: QueuedStatement, count: int) -> None:
        """Record the result of a listing."""
        lock.listed, listed = listing.rows[0] if listing.rows else (lock.listed, 0)
        lock.is_changed |= listed > 0
        lock.ran_out = listed < count

    def refresh(self, queue: QueueInfo, lock: ReceiverLock) -> None:
        """Put the heads of the touched groups that are free now into the ready queue."""
        touched: dict[tuple[str | None, int | None], Touch] = {}
        for candidate in lock.touched:
            touched.pop(candidate[:2], None)  # its last position counts
            touched[candidate[:2]] = candidate
        if touched and not lock.has_back:
            groups = [candidate.group for candidate in touched.values() if candidate.group is not None]
            numbers = [candidate.number for candidate in touched.values() if candidate.number is not None]
            if groups:
                self._do("refresh_unplaced", queue.number, groups, lock.floor, lock.version)
            if numbers:
                self._do("refresh_unplaced_ungrouped", queue.number, numbers, lock.version)
        elif touched:
            groups, numbers, places, _ = map(list, zip(*touched.values(), strict=True))
            arguments = queue.number, groups, numbers, places, lock.floor, lock.version
            lead = queue.settings.priority_lead
            if lead is None:
                self._do("refresh", *arguments)
            else:
                self._do("refresh_by_priority", *arguments, first_number(queue.number), lead)
        lock.is_changed |= bool(touched)
        lock.touched = []

    def set_priority(self, queue: QueueInfo, group: str, priority: int, now_ms: int) -> None:
        """Set the priority of a group, and its place if it is ready and was not nacked."""
        lock = self.open(queue, now_ms)
        group = self._producers.save_priority(queue, group, priority)
        removed_head = self._one("remove_ready_head", queue.number, group, lock.floor)
        if removed_head:
            lock.lead = max(lock.lead, ready_groups.lead_of(priority, queue.settings))
            lock.touch(None, group)
            self.refresh(queue, lock)
        self.close(queue, lock, now_ms, has_found=True)

    def mark_back(self, queue: QueueInfo, lock: ReceiverLock) -> None:
        """Record in the lock that a message of the queue was nacked."""
        if not lock.has_back:
            lock.has_back = lock.is_changed = True
            self._do("mark_first_requeue", queue.number, lock.version, first_number(queue.number))

    def _tidy(self, queue: QueueInfo, lock: ReceiverLock, now_ms: int) -> None:
        """End expired holds and locks, remove messages past their retention, and list groups that are free now."""
        self._retire(queue, lock, delivery.retired_ms(queue.settings, now_ms))
        if lock.due_ms is not None and lock.due_ms <= now_ms:
            ended = self._group_locks.end_locks(queue.number, lock.due_ms, now_ms)
            ended_keys = [(until_ms, 0, group) for until_ms, group in ended]
            rows = self._all("expired_holds", queue.number, lock.floor, now_ms, limits.EXPIRE_AT_ONCE, lock.due_ms)
            self._end_holds(queue, rows, now_ms)
            if any(attempts for _, _, _, _, attempts, *_ in rows):
                self.mark_back(queue, lock)
            ended_keys += [(until_ms, number, group) for number, group, until_ms, *_ in rows]
            ended_keys.sort(key=lambda ended_key: ended_key[:2])
            touched = [
                Touch(group, None if group is not None else number, None, until_ms)
                for until_ms, number, group in ended_keys
            ]
            lock.touch_over(touched, before_nacks=not queue.settings.retry_delay_s)
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
            "remove_expired_messages", lock.floor, end, limits.EXPIRE_AT_ONCE, retired_ms
        ):
            lock.gone += status != MessageStatus.ACKNOWLEDGED
            lock.touch(number, group)


def _drawn(snapshot: str, own: int) -> tuple[int, list[int]]:
    """Return the transactions that a snapshot sees: the number below which all are seen, and the exceptions.

    The exceptions are the running transactions, including the own one.
    """
    _, end, going_on = snapshot.split(":")
    return int(end), [own, *map(int, filter(None, going_on.split(",")))]
