"""Receives in SQLite: it selects the rows that core/queue/delivery.py and core/queue/sessions.py decide about.

The next message is at the head of the ready queue (ready_groups.py); group_index.py yields later messages of its group.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

from inturn.core import limits
from inturn.core.queue import delivery, sessions
from inturn.core.queue.delivery import DeliveryState, ReceiveSelection
from inturn.core.queue.messages import Delivery, QueueInfo, ReceiveRequest, StoredMessage
from inturn.core.queue.sessions import GroupLock
from inturn.store.sql.dead_letters import report_dead_letter
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.clock_skew import FutureSpans
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.leases import Leases
from inturn.store.sqlite.ready_groups import ReadyGroups
from inturn.store.sqlite.settlements import Removals
from inturn.store.sqlite.statements import SQL, SqliteStatements, as_list, entry_of

_delivery: Final[Callable[[Any], Delivery]] = partial(tuple.__new__, Delivery)  # half the cost of the constructors

Row: TypeAlias = tuple[Any, ...]
"""A message as statements return it: the fields of an entry."""

Found: TypeAlias = tuple[StoredMessage, DeliveryState | None]
"""A message and its hold."""

Head: TypeAlias = tuple[int, str | None, list[Found] | None]
"""The head of a free group: its sequence number, its group, and its first messages if they were read."""

NewLease: TypeAlias = tuple[str, list[int], DeliveryState]
"""A lease to be written: its group, the sequence numbers of its messages, and their common hold."""


@dataclass(eq=False)
class Receives(SqliteStatements):
    """Receives, within sessions and without."""

    _catalog: SqliteCatalog
    _index: GroupIndex
    _locks: SqliteGroupLocks
    _leases: Leases
    _line: ReadyGroups
    _removals: Removals
    _spans: FutureSpans
    _used: list[int] = field(default_factory=list)
    _has_holds: bool = True  # whether any message has its own hold, as of the start of a receive

    def receive(self, queue: QueueInfo, requests: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        for request in requests:
            if request.token is not None or request.number is not None:
                return [self._receive_one(queue, request, now_ms) for request in requests]
        return self._receive_next(queue, requests, now_ms)

    def _receive_one(self, queue: QueueInfo, request: ReceiveRequest, now_ms: int) -> list[Delivery]:
        if request.token is None and request.number is None:
            return self._receive_next(queue, [request], now_ms)[0]
        self.tidy(queue, now_ms)
        if request.number is not None:
            return self._fetch(queue, request, request.number, now_ms)
        group_lock = self._locks.of(queue.number, request.group or "")
        messages: Sequence[Found] | None = None
        if sessions.is_held_by(group_lock, request.token, now_ms):
            self._has_holds = self._leases.any_hold(queue)
            messages = self._take(
                queue,
                partial(self._not_its_own, queue, request, group_lock),
                ReceiveSelection(queue.settings, now_ms).begin(request),
            )
        if not messages:
            self.prefetch(queue, now_ms)
        return self._lease_within(queue, messages or (), request, group_lock, now_ms)

    # --- before and after ---

    def tidy(self, queue: QueueInfo, now_ms: int) -> None:
        """Give back expired leases, and remove messages past their retention."""
        retired = () if queue.settings.retention_s is None else self._removals.retire(queue, now_ms)
        self._line.tidy(queue, now_ms, retired)

    def prefetch(self, queue: QueueInfo, now_ms: int) -> None:
        """Set the time at which the next lease, delay or lock ends, after nothing was found."""
        due = [
            row
            for kind in ("next_hold_end", "next_lease_end", "next_group_lock_end")
            if (row := self._one(kind, queue.number))
        ]
        if any(since_ms > now_ms for _, since_ms in due):
            self._spans.note(now_ms)
        ends = [until_ms for until_ms, _ in due]
        noted_ms = self._spans.skew.next_ms(queue.number)
        queue.due_ms = min(ends if noted_ms is None else (*ends, noted_ms), default=None)

    # --- the next free groups ---

    def _receive_next(self, queue: QueueInfo, requests: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        self.tidy(queue, now_ms)
        self._has_holds = self._leases.any_hold(queue)
        self._used.clear()
        sizes = [request.limit for request in requests if request.group is None]
        heads: Iterator[Head] = self._heads(queue, sizes)
        answers = []
        leases: list[NewLease] = []
        taking = ReceiveSelection(queue.settings, now_ms)
        for request in requests:
            messages: list[Found] = []
            taking.begin(request)
            for head, group, known in heads if request.group is None else self._head_of(queue, request.group):
                part = self._take(queue, partial(self._first, queue, head, group, taking.left), taking, known)
                if part is None:  # it waits at the head of the ready queue
                    heads = chain([(head, group, known)], heads)
                    break
                self._used.append(head)
                messages += part
                if not taking.left:
                    break
            if request.group is not None:  # it may have received a head that was listed ahead
                self._take_off(queue)
                heads = self._heads(queue, sizes)
            answers.append(self._lease(queue, messages, request, now_ms, leases) if messages else [])
        if leases:
            self._leases.add(queue.number, leases)
        self._take_off(queue)
        if not all(answers):
            self.prefetch(queue, now_ms)
        return answers

    def _heads(self, queue: QueueInfo, sizes: Sequence[int]) -> Iterator[Head]:
        """Yield the heads of free groups, in ready-queue order, for receivers that want these numbers of messages."""
        number = min(sum(sizes), limits.HEADS_AT_ONCE)
        while heads := self._line.next(queue, number):
            known = self._messages_at(queue, heads, sizes)
            for head, group in heads:
                yield head, group, known.get(head)
            self._take_off(queue)

    def _messages_at(
        self, queue: QueueInfo, heads: Sequence[tuple[int, str | None]], sizes: Sequence[int]
    ) -> dict[int, list[Found]]:
        """Return the messages at heads, at most the wanted number, and at most as many as one query can read."""
        most, number = max(sizes), sum(sizes)
        indexed = self._catalog.indexed[queue.number]
        selected: dict[int, Sequence[int]] = {}
        for head, group in heads:
            if group is None:
                selected[head] = (head,)
            elif head > indexed:
                selected[head] = self._index.newest(queue, group, head - 1, most)
            number -= len(selected.get(head, ()))
            if number <= 0:
                break
        if not selected:
            return {}
        rows = self._run(SQL["messages"], (str(list(chain.from_iterable(selected.values()))),)).fetchall()
        by_number = {message[0].sequence_number: message for message in self._with_holds(rows)}
        # A group with a missing message is omitted: it needs another look-up.
        return {
            head: [by_number[number] for number in numbers]
            for head, numbers in selected.items()
            if all(number in by_number for number in numbers)
        }

    def _head_of(self, queue: QueueInfo, group: str) -> Iterator[Head]:
        """Yield the head of one group, if it is free."""
        self._take_off(queue)
        head = self._index.head(queue, group)
        if head and self._line.has(queue, head):
            yield head, group, None

    def _take_off(self, queue: QueueInfo) -> None:
        if self._used:
            self._line.leave(queue, self._used)
            self._used.clear()

    # --- the first messages of a group ---

    def _take(
        self,
        queue: QueueInfo,
        read: Callable[[], list[Found]],
        taking: ReceiveSelection,
        known: list[Found] | None = None,
    ) -> list[Found] | None:
        """Return a group's messages that can be received; dead letters leave first. ``known``: the result of ``read``.

        None: the group keeps its place in the ready queue.
        """
        is_first = True
        while messages := known or read():
            entry, first = messages[0]
            dead = first and delivery.dead_letter(first, queue.settings, self._catalog.queues)
            if dead is None:
                holds = [hold for _, hold in messages]
                selected = messages[: taking.take(holds) if any(holds) else taking.add(len(messages))]
                if selected or taking.left:
                    return selected
                if is_first:
                    return None
                self._line.refresh(queue, [(0, entry.group)], taking.now_ms)
                return []
            self._removals.move(queue, entry, *dead, taking.now_ms)
            report_dead_letter(queue, entry, dead[0])
            known, is_first = None, False
        return []

    def _first(self, queue: QueueInfo, head: int, group: str | None, limit: int) -> list[Found]:
        """Return the first messages of a group."""
        if group is None:
            return self._with_holds(self._all("one_message", head))
        is_in_table = head <= self._catalog.indexed[queue.number]  # then no message before it is in the list
        rows = self._all("group_messages", queue.number, group, limit) if is_in_table else []
        if len(rows) < limit:
            rows += self._newest(queue, group, rows[-1][0] if rows else head - 1, limit - len(rows))
        return self._with_holds(rows)

    def _not_its_own(self, queue: QueueInfo, request: ReceiveRequest, group_lock: GroupLock) -> list[Found]:
        """Return the first messages of a session's group that the session has not received yet."""
        group = request.group or ""
        rows = self._all("session_messages", queue.number, group, group_lock.token, request.limit)
        if len(rows) < request.limit:
            holds = self._leases.of_group(queue, group, fetched=True)
            own = {number for number, hold in holds if hold.token == group_lock.token}
            rows += self._newest(queue, group, 0, request.limit - len(rows), own)
        return self._with_holds(rows)

    def _newest(
        self, queue: QueueInfo, group: str, after: int, limit: int, without: Collection[int] = ()
    ) -> Sequence[Row]:
        """Return a group's first messages after a number that are not in the index's table, except ``without``."""
        while True:
            listed = self._index.newest(queue, group, after, limit + len(without))
            numbers = [number for number in listed if number not in without][:limit]
            rows = self._all("messages", as_list(numbers)) if numbers else []
            if len(rows) == len(numbers):
                return rows
            self._index.remove(queue, group, set(numbers).difference([row[0] for row in rows]))

    def _with_holds(self, rows: Iterable[Row]) -> list[Found]:
        """Return messages with their holds."""
        entries = list(map(entry_of, rows))
        if not self._has_holds or not entries:
            return [(entry, None) for entry in entries]
        holds = self._leases.holds(entry.sequence_number for entry in entries)
        return [(entry, holds[entry[0]][0] if entry[0] in holds else None) for entry in entries]

    def _fetch(self, queue: QueueInfo, request: ReceiveRequest, number: int, now_ms: int) -> list[Delivery]:
        """Lease a deferred message, if it is not leased."""
        row = self._one("one_message", number) if queue.has_assigned(number) else None
        hold, group = self._leases.hold(number) if row else (None, None)
        if row is None or not delivery.is_deferred(hold) or delivery.is_hidden(hold, now_ms):
            return []
        group_lock = sessions.OPEN if group is None else self._locks.of(queue.number, group)
        if not sessions.may_fetch(group_lock, request.token, now_ms):
            return []
        messages = (
            self._take(queue, list, ReceiveSelection(queue.settings, now_ms).begin(request), [(entry_of(row), hold)])
            or []
        )
        if request.token is not None:
            return self._lease_within(queue, messages, request, group_lock, now_ms)
        return self._lease(queue, messages, request, now_ms, []) if messages else []  # it has a hold already

    # --- leasing ---

    def _lease(
        self, queue: QueueInfo, messages: Sequence[Found], request: ReceiveRequest, now_ms: int, leases: list[NewLease]
    ) -> list[Delivery]:
        """Lease messages for one receiver. Those without a hold share a new one, and go into ``leases`` by group."""
        queue.last_token += 1
        self._catalog.counted(queue)
        token = queue.last_token
        ms = request.lease_ms(queue.settings)
        until_ms = now_ms + ms
        fresh = delivery.leased(None, token, ms, now_ms)
        attempts, first_ms = fresh.attempts, fresh.first_ms
        deliveries, held_rows = [], []
        numbers: defaultdict[str | None, list[int]] = defaultdict(list)
        for entry, hold in messages:
            if hold is None:
                numbers[entry.group].append(entry.sequence_number)
                deliveries.append(_delivery((entry, token, until_ms, attempts, first_ms, False)))
            else:
                held = delivery.leased(hold, token, ms, now_ms)
                held_rows.append((entry.sequence_number, queue.number, entry.group, *held))
                deliveries.append(Delivery(entry, token, until_ms, held.attempts, held.first_ms, bool(held.lapsed)))
        for group, group_numbers in numbers.items():
            if group is None:
                self._execute("add_holds", as_list(group_numbers), queue.number, *fresh)
            else:
                leases.append((group, group_numbers, fresh))
        if held_rows:
            self._do_each("set_hold", held_rows)
        return deliveries

    def _lease_within(
        self, queue: QueueInfo, messages: Sequence[Found], request: ReceiveRequest, group_lock: GroupLock, now_ms: int
    ) -> list[Delivery]:
        """Lease messages under a session's lock: the leases end with it."""
        token = request.token or 0
        deliveries = []
        for entry, hold in messages:
            held = sessions.within(group_lock, delivery.leased(hold, token, 0, now_ms))
            self._leases.set_hold(queue, entry.sequence_number, entry.group, held)
            until_ms = held.until_ms or 0
            deliveries.append(Delivery(entry, token, until_ms, held.attempts, held.first_ms, bool(held.lapsed)))
        return deliveries
