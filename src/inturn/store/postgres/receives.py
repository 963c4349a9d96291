"""Receives in PostgreSQL: selects the messages to which core/queue/delivery.py applies the rules."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias

from inturn.core.queue import delivery, sessions
from inturn.core.queue.delivery import DeliveryState, ReceiveSelection
from inturn.core.queue.messages import Delivery, QueueInfo, ReceiveRequest, StoredMessage, first_number
from inturn.core.queue.sessions import OPEN, GroupLock
from inturn.store import limits as store_limits
from inturn.store.postgres.clock_skew import PostgresFutureSpans
from inturn.store.postgres.group_locks import PostgresGroupLocks
from inturn.store.postgres.messages import Held, PostgresMessages, Row, entry_of, hides, hold_of
from inturn.store.postgres.names import LongNames, as_it_is, named, short
from inturn.store.postgres.ready_list import ReadyList
from inturn.store.postgres.receiver_lock import RankedPlace, ReceiverLock
from inturn.store.postgres.statements import PostgresStatements

_Taken: TypeAlias = list[tuple[StoredMessage, DeliveryState | None]]
"""Messages for a receiver, each with its hold before the receive."""
_LATER: Final = 2**62


@dataclass
class _Leases:
    """Leases to write, collected for several receivers.

    Attributes:
        is_stopped: whether a receiver stopped before a message that is received alone.
    """

    fresh: list[tuple[int, str | None, int, int]] = field(default_factory=list)
    again: list[Held] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    is_stopped: bool = False


@dataclass(eq=False)
class PostgresReceives(PostgresStatements):
    """Receives from any group, from one group, in a session, and of deferred messages."""

    _ready: ReadyList
    _messages: PostgresMessages
    _group_locks: PostgresGroupLocks
    _names: LongNames
    _spans: PostgresFutureSpans

    def receive(self, queue: QueueInfo, requests: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages for each of several receivers."""
        self._spans.end(now_ms)
        requests = [
            request if request.group is None else request._replace(group=short(request.group)) for request in requests
        ]
        answers: list[list[Delivery]] = []
        if any(map(_is_of_one, requests)):
            for request in requests:
                is_of_one = _is_of_one(request)
                answers += (
                    [self._one_of(queue, request, now_ms)] if is_of_one else self._next_of(queue, [request], now_ms)
                )
        else:  # the usual case
            answers = self._next_of(queue, requests, now_ms)
        name = self._names.reader(received.message.group for part in answers for received in part)
        if name is as_it_is:  # the usual case
            return answers
        return [[received._replace(message=named(received.message, name)) for received in part] for part in answers]

    # --- without a session ---

    def _next_of(self, queue: QueueInfo, requests: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        if self._ready.is_idle(queue, now_ms):
            return [[] for _ in requests]
        lock = self._ready.open(queue, now_ms)
        answers: list[list[Delivery]] = []
        taking, is_stopped = ReceiveSelection(queue.settings, now_ms), False
        for is_of_group, part in groupby(requests, lambda request: request.group is not None):
            batch = list(part)
            find = self._take_of_group if is_of_group else self._take_next
            for these in [[request] for request in batch] if is_of_group else [batch]:
                leases = _Leases()
                for request, messages in zip(these, find(queue, lock, these, leases, taking), strict=True):
                    answers.append(self._lease(queue, lock, messages, request, leases, now_ms))
                self._write(queue, leases, now_ms)
                is_stopped |= leases.is_stopped
        self._ready.close(queue, lock, now_ms, has_found=is_stopped or all(answers))
        return answers

    def _take_next(
        self,
        queue: QueueInfo,
        lock: ReceiverLock,
        requests: Sequence[ReceiveRequest],
        leases: _Leases,
        taking: ReceiveSelection,
    ) -> Iterator[_Taken]:
        """Yield the messages for each of several receivers that accept any group."""
        groups = self._free(queue, lock, len(requests), max(request.limit for request in requests))
        waiting: tuple[RankedPlace, str | None, list[Row]] | None = None  # before which a receiver has stopped
        for request in requests:
            messages: _Taken = []
            taking.begin(request)
            while taking.left and (free_group := waiting or next(groups, None)):
                place, group, rows = free_group
                group_messages = self._take(queue, lock, group, rows, taking)
                waiting = free_group if group_messages is None and not taking.left else None
                leases.is_stopped |= not (group_messages or taking.left)
                if waiting is not None:
                    break
                if group_messages is not None:
                    leases.heads.append(place[2])
                    messages += group_messages
                lock.passed(place, is_left=group_messages is None)
            yield messages

    def _free(
        self, queue: QueueInfo, lock: ReceiverLock, receivers: int, most: int
    ) -> Iterator[tuple[RankedPlace, str | None, list[Row]]]:
        """Yield the groups that can be received, in ready-queue order: place, group, first messages."""
        end = first_number(queue.number + 1)
        chunk = max(receivers * most, store_limits.LIST_AT_ONCE)
        begin = (lock.ready_from or 0) if lock.skipped_head is None else lock.skipped_head + 1
        after, count = lock.ready_after, receivers * most + 1  # one more shows whether there are more
        listing = self._ready.list_later(queue, lock, chunk) if lock.is_list_complete else None
        while True:
            arguments = queue.number, begin, end, count, most, count, lock.version
            if lock.has_requeues:
                rows = self._all("next_heads", *arguments, *(after or (None, None, None)))
            else:
                rows = self._all("next_heads_unplaced", *arguments)
            if listing is not None:
                self._ready.see_listed(lock, listing, chunk)
                listing = None
            heads = [(head, list(part)) for head, part in groupby(rows, lambda row: row[:4])]
            is_cut = len(rows) == count
            if is_cut and len(heads) > 1:  # the last group may have more rows
                heads.pop()
            for (number, rank, head, group), head_rows in heads:
                if lock.is_early(number):  # messages before it are not listed yet
                    is_cut = False
                    break
                after, begin = (number, rank, head), max(begin, min(number, lock.listed_to) + 1)
                yield after, group, [row[4:] for row in head_rows if row[4] is not None]
            if is_cut:
                continue
            if lock.is_list_complete:
                lock.see_end()
                return
            listing = self._ready.list_later(queue, lock, chunk)

    def _take_of_group(
        self,
        queue: QueueInfo,
        lock: ReceiverLock,
        requests: Sequence[ReceiveRequest],
        leases: _Leases,
        taking: ReceiveSelection,
    ) -> Iterator[_Taken]:
        """Yield the messages for the receiver that accepts only one group."""
        (request,) = requests
        taking.begin(request)
        rows = self._all("next_of_group", queue.number, request.group, lock.messages_from, request.limit)
        messages: _Taken | None = None
        if rows and not hides(hold_of(rows[0])):
            messages = self._take(queue, lock, request.group, rows, taking)
            leases.is_stopped |= not (messages or taking.left)
            if messages is not None:
                leases.heads.append(rows[0][0])
        yield messages or []

    def _take(
        self, queue: QueueInfo, lock: ReceiverLock, group: str | None, rows: list[Row], taking: ReceiveSelection
    ) -> _Taken | None:
        """Return messages of a free group; None if the group keeps its place in the ready queue.

        It keeps its place if its first message is lapsed and cannot be received now, or must leave first but cannot: an
        exhausted message cannot be moved to a dead-letter queue that another transaction is sending to.
        """
        is_first = True
        while rows and (dead := self._messages.dead_letter(queue, rows[0])) is not None:
            number, is_first = rows[0][0], False
            if not self._messages.leaves(queue, rows[0], dead, taking.now_ms):
                return None
            rows = []
            if group is not None:
                rows = self._all("next_of_group", queue.number, group, lock.messages_from, taking.left)
            elif dead[0].number == queue.number:  # it keeps its place
                rows = self._all("one_message", number)
        messages = _first_of(rows, taking)
        return messages if messages or taking.left or not is_first else None

    # --- in a session, or a deferred message ---

    def _one_of(self, queue: QueueInfo, request: ReceiveRequest, now_ms: int) -> list[Delivery]:
        lock = self._ready.open(queue, now_ms)
        if request.number is not None:
            messages, group_lock = self._take_deferred(queue, request, request.number, now_ms)
        else:
            messages, group_lock = self._take_within(queue, lock, request, now_ms)
        leases = _Leases()
        deliveries = self._lease(queue, lock, messages, request, leases, now_ms, group_lock)
        self._write(queue, leases, now_ms)
        self._ready.close(queue, lock, now_ms, has_found=bool(deliveries))
        return deliveries

    def _take_within(
        self, queue: QueueInfo, lock: ReceiverLock, request: ReceiveRequest, now_ms: int
    ) -> tuple[_Taken, GroupLock]:
        """Return the messages that a session can receive next, and its lock; its own leases do not block it."""
        group_lock = self._group_locks.of(queue.number, request.group or "")
        if not sessions.is_held_by(group_lock, request.token, now_ms):
            return [], group_lock
        arguments = queue.number, request.group, lock.messages_from, group_lock.token, request.limit
        while rows := self._all("session_messages", *arguments):
            dead = self._messages.dead_letter(queue, rows[0])
            if dead is None:
                return _first_of(rows, ReceiveSelection(queue.settings, now_ms).begin(request)), group_lock
            if not self._messages.leaves(queue, rows[0], dead, now_ms):
                break
        return [], group_lock

    def _take_deferred(
        self, queue: QueueInfo, request: ReceiveRequest, number: int, now_ms: int
    ) -> tuple[_Taken, GroupLock]:
        """Return a deferred message if it is not leased, and the lock of its group."""
        row = self._one("one_message", number) if queue.has_assigned(number) else None
        hold = hold_of(row) if row else None
        if row is None or not delivery.is_deferred(hold) or hides(hold):
            return [], OPEN
        entry = entry_of(row)
        group_lock = OPEN if entry.group is None else self._group_locks.of(queue.number, entry.group)
        if not sessions.may_fetch(group_lock, request.token, now_ms):
            return [], OPEN
        dead = self._messages.dead_letter(queue, row)
        if dead is not None:
            self._messages.leaves(queue, row, dead, now_ms)
            return [], OPEN
        return [(entry, hold)], group_lock

    # --- leases ---

    def _lease(
        self,
        queue: QueueInfo,
        lock: ReceiverLock,
        messages: _Taken,
        request: ReceiveRequest,
        leases: _Leases,
        now_ms: int,
        group_lock: GroupLock = OPEN,
    ) -> list[Delivery]:
        """Add leases for the messages of one receiver, in a session until its lock ends; return its deliveries."""
        if not messages:
            return []
        token = request.token
        if token is None:
            lock.last_token += 1
            token = lock.last_token
        ms = request.lease_ms(queue.settings)
        until_ms = now_ms + ms if request.token is None else group_lock.until_ms or 0
        lock.is_due(until_ms)
        deliveries = []
        for entry, before in messages:
            if before is None and request.token is None:  # the usual case
                leases.fresh.append((entry.sequence_number, entry.group, until_ms, token))
                deliveries.append(Delivery(entry, token, until_ms, 1, now_ms))
                continue
            hold = delivery.leased(before, token, ms, now_ms)
            if request.token is not None:
                hold = sessions.within(group_lock, hold)
            leases.again.append((entry.sequence_number, entry.group, hold))
            deliveries.append(Delivery(entry, token, until_ms, hold.attempts, hold.first_ms, hold.lapsed))
        return deliveries

    def _write(self, queue: QueueInfo, leases: _Leases, now_ms: int) -> None:
        if leases.fresh:
            self._do("add_holds", queue.number, now_ms, *map(list, zip(*leases.fresh, strict=True)))
        if leases.again:
            self._messages.set_holds(queue, leases.again)
        if leases.heads:
            self._do("remove_ready", leases.heads)


def _is_of_one(request: ReceiveRequest) -> bool:
    """Return whether a request is in a session, or for a deferred message."""
    return request.token is not None or request.number is not None


def _first_of(rows: Sequence[Row], taking: ReceiveSelection) -> _Taken:
    """Return the first messages of a group that can be received together."""
    messages = [(entry_of(row), hold_of(row)) for row in rows[: taking.left]]
    return messages[: taking.take([_seen(hold, taking.now_ms) for _, hold in messages])]


def _seen(hold: DeliveryState | None, now_ms: int) -> DeliveryState | None:
    """Return a hold; one that has expired, and that a settlement has locked, as not expired."""
    if hold is not None and hold.until_ms is not None and hold.until_ms <= now_ms:
        return hold._replace(until_ms=_LATER)
    return hold
