"""Receiving and settling messages in SQLite: it selects the rows that core/queue/delivery.py decides about.

The line (line.py) holds the head of every group that can be received. So the next message is the first row of an index,
however long the backlog and however many groups are locked or parked. The later messages of a group come from
pending.py. `inturn_hold` and `inturn_lease` hold what is in flight, delayed or deferred, which is little, so a message
itself is written once and deleted once. Every change of a group ends in :meth:`SqliteDeliveries._refresh`.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

from inturn.core import limits
from inturn.core.queue import delivery, ready_groups, redelivery, sessions
from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Delivery, QueueInfo, ReceiveRequest, StoredMessage, first_number
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.clock_skew import FutureSpans
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.incarnations import SqliteIncarnations
from inturn.store.sqlite.leases import Leases
from inturn.store.sqlite.ready_groups import ReadyGroups
from inturn.store.sqlite.statements import SqliteStatements, as_list

entry_of: Final[Callable[[Any], StoredMessage]] = partial(
    tuple.__new__, StoredMessage
)  # half the cost of the constructors
_delivery: Final[Callable[[Any], Delivery]] = partial(tuple.__new__, Delivery)
_DONE: Final = SettleResult.DONE  # before Python 3.12 each access to an enum member takes 0.15 µs
_ACK: Final = SettleAction.ACK

Row: TypeAlias = tuple[Any, ...]
"""A message as statements return it: the fields of an entry."""

Found: TypeAlias = tuple[StoredMessage, DeliveryState | None]
"""A message and its hold."""

Head: TypeAlias = tuple[int, str | None, list[Found] | None]
"""The head of a free group: its sequence number, its group, and its first messages if they were read."""

Touched = list[tuple[int, str | None]]
"""Groups to be checked again, in the order in which they became ready, if that is known.

An item is ``(0, name)``, or ``(number, None)`` for a message without a group. Of repeated items the last counts.
"""


class SqliteDeliveries(SqliteStatements):
    """Receipt and settlement of messages.

    Args:
        connection: to the file.

    Attributes:
        nonempty: some of the groups that have a pending message, so that a send need not look for one.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.nonempty: Final[set[tuple[int, str | None]]] = set()
        self.catalog: Final = SqliteCatalog(connection)
        self.pending: Final = GroupIndex(connection, self.catalog)
        self.gates: Final = SqliteGroupLocks(connection)
        self.leases: Final = Leases(connection)
        self.incarnations: Final = SqliteIncarnations(connection)
        self.line: Final = ReadyGroups(connection)
        self.later: Final = FutureSpans(connection)
        self._used: list[int] = []
        self._has_holds = True  # whether any message has a hold of its own, as of the start of a receive

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return self.catalog.queues

    def look_at_clock(self, now_ms: int) -> None:
        """End spans that a clock set back would keep open for much longer than they were to last."""
        if over := self.later.behind.look(now_ms, self.later.starts):
            self.later.end(over)

    # --- receiving ---

    def receive(self, queue: QueueInfo, wants: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        self.look_at_clock(now_ms)
        self._tidy(queue, now_ms)
        self._has_holds = self._holds_anything(queue)
        self._used.clear()
        sizes = [want.limit for want in wants if want.group is None]
        heads = self._heads(queue, sizes)
        answers = []
        leases: list[tuple[str, list[int], DeliveryState]] = []
        for want in wants:
            taken: list[Found] = []
            for head in heads if want.group is None else self._head_of(queue, want.group):
                taken += self._take(queue, head, want.limit - len(taken), now_ms)
                if len(taken) == want.limit:
                    break
            if want.group is not None:  # it may have taken a head that was listed ahead
                heads = self._heads(queue, sizes)
            answers.append(self._lease(queue, taken, want, now_ms, leases))
        self.leases.add(queue.number, leases)
        self._take_off(queue)
        if any(answers):
            self.catalog.counted(queue)
        if not all(answers):
            self.look_ahead(queue, now_ms)
        return answers

    def look_ahead(self, queue: QueueInfo, now_ms: int) -> None:
        """Set the time at which the next lease, delay or lock ends, after nothing was found."""
        due = [row for kind in ("due", "lease_due", "lock_due") if (row := self._one(kind, queue.number))]
        if any(since_ms > now_ms for _, since_ms in due):
            self.later.note(now_ms)
        ends = [until_ms for until_ms, _ in due]
        noted_ms = self.later.behind.next_ms(queue.number)
        queue.due_ms = min(ends if noted_ms is None else (*ends, noted_ms), default=None)

    def _lease(
        self,
        queue: QueueInfo,
        taken: Sequence[Found],
        want: ReceiveRequest,
        now_ms: int,
        leases: list[tuple[str, list[int], DeliveryState]],
    ) -> list[Delivery]:
        """Lease messages for one receiver. Those without a hold share a new one, and go into ``leases`` by group."""
        if not taken:
            return []
        queue.tokens += 1
        token = queue.tokens
        ms = want.lease_ms(queue.settings)
        until_ms = now_ms + ms
        fresh = delivery.leased(None, token, ms, now_ms)
        attempts, first_ms = fresh.attempts, fresh.first_ms
        given, again = [], []
        numbers: defaultdict[str | None, list[int]] = defaultdict(list)
        for entry, hold in taken:
            if hold is None:
                numbers[entry.group].append(entry.sequence_number)
                given.append(_delivery((entry, token, until_ms, attempts, first_ms)))
            else:
                held = delivery.leased(hold, token, ms, now_ms)
                again.append((entry.sequence_number, queue.number, entry.group, *held))
                given.append(Delivery(entry, token, until_ms, held.attempts, held.first_ms))
        for group, each in numbers.items():
            if group is None:
                self._do("add_holds", as_list(each), queue.number, *fresh)
            else:
                leases.append((group, each, fresh))
        self._do_each("set_hold", again)
        return given

    def _heads(self, queue: QueueInfo, sizes: Sequence[int]) -> Iterator[Head]:
        """Yield the heads of free groups, in the order of the line, for receivers that want so many messages each.

        Each is taken off the line.
        """
        number = min(sum(sizes), limits.HEADS_AT_ONCE)
        while heads := self.line.next(queue, number):
            known = self._messages_at(queue, heads, sizes)
            for at, group in heads:
                self._used.append(at)
                yield at, group, known.get(at)
            self._take_off(queue)

    def _messages_at(
        self, queue: QueueInfo, heads: Sequence[tuple[int, str | None]], sizes: Sequence[int]
    ) -> dict[int, list[Found]]:
        """Return the messages at heads, as far as one query can read them, and as many as are wanted."""
        most, number = max(sizes), sum(sizes)
        wanted: dict[int, Sequence[int]] = {}
        for head, group in heads:
            if group is None:
                wanted[head] = (head,)
            elif not self.pending.is_in_table(queue, head):
                wanted[head] = self.pending.newest(queue, group, head - 1, most)
            number -= len(wanted.get(head, ()))
            if number <= 0:
                break
        if not wanted:
            return {}
        rows = self._all("messages", as_list(chain.from_iterable(wanted.values())))
        found = {each[0].sequence_number: each for each in self._with_holds(rows)}
        # A group with a missing message is left out: it needs another look-up.
        return {
            head: [found[each] for each in numbers]
            for head, numbers in wanted.items()
            if all(each in found for each in numbers)
        }

    def _head_of(self, queue: QueueInfo, group: str) -> Iterator[Head]:
        """Yield the head of one group, if it is free."""
        self._take_off(queue)
        head = self.pending.head(queue, group)
        if head and self.line.has(queue, head):
            self.line.leave(queue, [head])
            yield head, group, None

    def _take_off(self, queue: QueueInfo) -> None:
        self.line.leave(queue, self._used)
        self._used.clear()

    def _take(self, queue: QueueInfo, head: Head, limit: int, now_ms: int) -> Sequence[Found]:
        """Return what can be received of a group, after moving exhausted heads to the dead-letter queue."""
        at, group, known = head
        while found := known or self._with_holds(self._group(queue, at, group, limit)):
            entry, first = found[0]
            dead = delivery.dead_letter(first, queue.settings, self.queues)
            if dead is None:
                holds = [hold for _, hold in found]
                return found[: delivery.takes(holds, limit, now_ms) if any(holds) else limit]
            self._move(queue, entry, *dead, now_ms)
            known = None
        return []

    def _group(self, queue: QueueInfo, head: int, group: str | None, limit: int) -> Sequence[Row]:
        """Return the first messages of a group."""
        if group is None:
            return self._all("one_message", head)
        rows = self._all("group_messages", queue.number, group, limit) if self.pending.is_in_table(queue, head) else []
        if len(rows) < limit:
            rows += self._newest(queue, group, rows[-1][0] if rows else head - 1, limit - len(rows))
        return rows

    def _newest(
        self, queue: QueueInfo, group: str, after: int, limit: int, without: Collection[int] = ()
    ) -> Sequence[Row]:
        """Return a group's first messages after a number that are not in pending.py's table, except ``without``."""
        while True:
            listed = self.pending.newest(queue, group, after, limit + len(without))
            numbers = [number for number in listed if number not in without][:limit]
            rows = self._all("messages", as_list(numbers)) if numbers else []
            if len(rows) == len(numbers):
                return rows
            self.pending.are_gone(queue, group, set(numbers).difference([row[0] for row in rows]))

    def _holds_anything(self, queue: QueueInfo) -> bool:
        """Return whether any message of a queue has a hold of its own; usually none has."""
        return self._one("any_hold", first_number(queue.number), first_number(queue.number + 1)) is not None

    def _with_holds(self, rows: Iterable[Row]) -> list[Found]:
        """Return messages with their holds."""
        entries = list(map(entry_of, rows))
        if not self._has_holds:
            return [(entry, None) for entry in entries]
        held = self._all("holds", as_list([entry.sequence_number for entry in entries])) if entries else []
        holds = {row[0]: _held(row)[0] for row in held}
        return [(entry, holds.get(entry.sequence_number)) for entry in entries]

    def _hold(self, number: int) -> DeliveryState | None:
        """Return the hold of one message."""
        return _held(self._one("hold", number))[0]

    def _tidy(self, queue: QueueInfo, now_ms: int) -> None:
        """Give back expired leases, and remove messages past their retention."""
        touched: Touched = []
        retired_ms = delivery.retired_ms(queue.settings, now_ms)
        if retired_ms is not None:
            touched = self._retire(queue, retired_ms)
        for key, number, group, hold in self._over(queue, now_ms):
            touched.append(key)
            if hold is not None:
                is_head = self._is_head(queue, number, group, hold)
                left = redelivery.ended(hold, queue.settings, number, is_head=is_head, now_ms=now_ms)
                self._set_hold(queue, number, group, left)
                if delivery.is_hidden(left, now_ms):
                    self.line.leave(queue, [number])
        if touched:
            self._refresh(queue, touched, now_ms)

    def _over(
        self, queue: QueueInfo, now_ms: int
    ) -> list[tuple[tuple[int, str | None], int, str | None, DeliveryState | None]]:
        """Return groups and messages whose lock, lease or delay is over, in the order of the deadlines.

        Each comes with its key for `Touched`, the sequence number, the group, and the hold, which is None for a lock.
        """
        locks = self.gates.end_locks(queue.number, now_ms)
        self.leases.break_up_over(queue.number, now_ms)
        holds = self._all("over", queue.number, now_ms, limits.EXPIRE_AT_ONCE)
        if not holds and not locks:  # the usual case
            return []
        over: list[tuple[int, int, str | None, DeliveryState | None]] = [
            (until_ms, 0, group, None) for until_ms, group in locks
        ]
        over += [(hold[0], number, group, DeliveryState._make(hold)) for number, group, *hold in holds]
        if locks:
            over.sort(key=lambda each: each[:3])
        return [((number if group is None else 0, group), number, group, hold) for _, number, group, hold in over]

    def _retire(self, queue: QueueInfo, sent_until_ms: int) -> Touched:
        touched: Touched = []
        every = first_number(queue.number), first_number(queue.number + 1)
        oldest = self._one("oldest", *every, 1)
        if oldest is None or oldest[-1] > sent_until_ms:  # the usual case
            return touched
        for number, group, done, sent_ms in self._all("oldest", *every, limits.EXPIRE_AT_ONCE):
            if sent_ms > sent_until_ms:
                break
            self._remove(queue, number, group, is_pending=done != 1)
            touched.append((0 if group is not None else number, group))
        return touched

    def _remove(self, queue: QueueInfo, number: int, group: str | None, *, is_pending: bool) -> None:
        """Remove a message, even if a reader has yet to read it."""
        if group is not None:
            self.leases.break_up(queue.number, group)
        if group is not None:
            self.pending.leave(queue, {group: {number}})
        for statement in ("remove_message", "remove_hold"):
            self._do(statement, number)
        self.line.leave(queue, [number])
        self.nonempty.clear()
        queue.depth -= is_pending
        self.catalog.counted(queue)

    def _is_head(self, queue: QueueInfo, number: int, group: str | None, hold: DeliveryState) -> bool:
        """Return whether a message was at the head of its group, or needed not to be."""
        return group is None or hold.deferred or self.pending.head(queue, group) == number

    def _set_hold(self, queue: QueueInfo, number: int, group: str | None, hold: DeliveryState | None) -> None:
        if hold is None:
            self._do("remove_hold", number)
        else:
            self._do("set_hold", number, queue.number, group, *hold)

    def _give_back(
        self, queue: QueueInfo, number: int, group: str | None, hold: DeliveryState, delay_ms: int | None, now_ms: int
    ) -> None:
        """End a lease at the receiver's request."""
        is_head = self._is_head(queue, number, group, hold)
        left = redelivery.nacked(hold, queue.settings, number, is_head=is_head, delay_ms=delay_ms, now_ms=now_ms)
        self._set_hold(queue, number, group, left)

    def _refresh(self, queue: QueueInfo, touched: Touched, now_ms: int, *, in_order: bool = True) -> None:
        """Put the heads of the groups that are free now into the line.

        Args:
            queue: the queue.
            touched: the groups to check.
            now_ms: the time.
            in_order: whether the groups are in the order in which they became ready; if not, the oldest heads go first.
        """
        ready: list[tuple[int, str | None, bool]] = []
        for number, group in touched if len(touched) == 1 else ready_groups.by_turn(touched):
            if group is None:
                hold = self._hold(number)
                is_there = self._one("one_message", number) is not None
                if is_there and ready_groups.is_ready(hold, (), now_ms):
                    ready.append((number, None, ready_groups.was_tried(hold)))
                continue
            row = self._group_head(queue, group)
            if row is None:
                continue
            head, is_held, is_closed = row
            if is_closed:
                continue
            is_back = False
            if is_held:
                holds = {at: DeliveryState(*hold) for at, *hold in self._all("group_holds", queue.number, group)}
                if not ready_groups.is_ready(holds.get(head), holds.values(), now_ms):
                    continue
                is_back = ready_groups.was_tried(holds.get(head))
            ready.append((head, group, is_back))
        if not in_order:
            ready.sort(key=lambda each: each[0])
        self.line.join(queue, ready)

    def _group_head(self, queue: QueueInfo, group: str) -> tuple[int, int, int] | None:
        """Return a group's head, whether the group has holds, and whether it is locked, parked or leased."""
        newest = self.pending.newest(queue, group, 0, 1)
        row: tuple[int, int, int] | None = self._one("group_head", queue.number, group, newest[0] if newest else None)
        if row is None and newest:  # the listed message is gone
            head = self.pending.first_of_newest(queue, group)
            row = self._one("group_head", queue.number, group, head) if head else None
        return row

    # --- settling ---

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, give back, move, defer or cancel messages."""
        self.look_at_clock(now_ms)
        if ready_groups.ended_go_first(changes, queue.settings):
            self._see_over(queue, now_ms)
        taken = self.leases.acknowledge(queue.number, changes, now_ms)
        if sum([len(numbers) for _, _, numbers in taken]) == len(changes):  # the usual case
            self._be_done(queue, [change[0] for change in changes], {group: numbers for _, group, numbers in taken})
            self._free(queue, [(0, group) for _, group, _ in taken], now_ms, in_order=False)
            return [_DONE] * len(changes)
        verdicts, touched = self._settle_each(queue, changes, taken, now_ms)
        if touched:
            self._free(queue, touched, now_ms, in_order=ready_groups.are_ordered(changes))
        return verdicts

    def _settle_each(
        self, queue: QueueInfo, changes: Sequence[Settlement], taken: Sequence[tuple[int, str, set[int]]], now_ms: int
    ) -> tuple[list[SettleResult], Touched]:
        """Settle changes one by one; messages in ``taken`` have left their lease already and only need removal."""
        leased: dict[tuple[int, int | None], str] = {
            (number, token): group for token, group, numbers in taken for number in numbers
        }
        known = self._holds(changes)
        verdicts: list[SettleResult] = []
        touched: Touched = []
        acknowledged: list[tuple[int, str | None]] = []  # to be removed together
        for change in changes:
            number = change.sequence_number
            if (group := leased.pop(change[:2], None)) is not None:
                verdict, hold = _DONE, None
            else:
                if number not in known:
                    self._leave(queue, acknowledged)
                verdict, hold, group = self._judged(change, known, now_ms)
            verdicts.append(verdict)
            if verdict is not _DONE:
                continue
            is_ack = change.act is _ACK
            if is_ack:
                acknowledged.append((number, group))
            else:
                self._leave(queue, acknowledged)
                self._change(queue, change, hold, group, now_ms, known)
            if change.token is None:  # a leased message is not in the line
                self.line.leave(queue, [number])
            if group is not None:
                touched.append((0, group))
            elif not is_ack:
                touched.append((number, None))
        self._leave(queue, acknowledged)
        return verdicts, touched

    def _see_over(self, queue: QueueInfo, now_ms: int) -> None:
        """Put what is over by itself into the line."""
        touched = [key for key, *_ in self._over(queue, now_ms)]
        if touched:
            self._refresh(queue, touched, now_ms)

    def _judged(
        self, change: Settlement, known: dict[int, tuple[DeliveryState | None, str | None]], now_ms: int
    ) -> tuple[SettleResult, DeliveryState | None, str | None]:
        """Return the verdict on a change, and the hold and group of its message."""
        number = change.sequence_number
        hold, group = known.pop(number) if number in known else _held(self._one("hold", number))
        if hold is None or change.token is None:
            message = self._one("one_message", number)
            if message is None:
                return SettleResult.GONE, None, None
            group = message[3]
        return delivery.verdict(hold, change, now_ms), hold, group

    def _free(self, queue: QueueInfo, touched: Touched, now_ms: int, *, in_order: bool) -> None:
        """Refresh groups after messages of theirs were settled."""
        self.nonempty.difference_update([(queue.number, group) for _, group in touched])
        self._refresh(queue, touched, now_ms, in_order=in_order)

    def _holds(self, changes: Sequence[Settlement]) -> dict[int, tuple[DeliveryState | None, str | None]]:
        """Return the holds and groups of received messages, by sequence number."""
        if len(changes) == 1:
            return {}
        rows = self._all("holds", as_list([change.sequence_number for change in changes]))
        return {row[0]: _held(row) for row in rows}

    def _change(
        self,
        queue: QueueInfo,
        change: Settlement,
        hold: DeliveryState | None,
        group: str | None,
        now_ms: int,
        known: dict[int, Any],
    ) -> None:
        """Extend, give back, move, defer or cancel one message."""
        number = change.sequence_number
        if change.act is SettleAction.EXTEND:
            if self._extends_lock(queue, change, group, now_ms):
                known.clear()  # every hold of the session has changed
            else:
                self._do("set_hold", number, queue.number, group, *delivery.extended(hold, change.ms or 0, now_ms))
        elif change.act is SettleAction.NACK:
            self._give_back(queue, number, group, hold or DeliveryState(None), change.ms, now_ms)
        elif change.act is SettleAction.DEFER:
            if group is not None:
                self.pending.leave(queue, {group: {number}})
            self._do("set_aside", number)
            self._do("set_hold", number, queue.number, group, *delivery.deferred(hold))
        elif change.act is SettleAction.CANCEL:
            self._remove(queue, number, group, is_pending=True)
        elif change.to is not None:
            entry = entry_of(self._one("one_message", number))
            self._move(queue, entry, self.queues[change.to], change.note, now_ms)

    def _extends_lock(self, queue: QueueInfo, change: Settlement, group: str | None, now_ms: int) -> bool:
        """Extend the session lock under which a message was received, if there is one; return whether there was."""
        if group is None:
            return False
        gate = sessions.extended(self.gates.of(queue.number, group), change, now_ms)
        if gate is not None:
            self.gates.renew(queue.number, group, gate)
        return gate is not None

    def _leave(self, queue: QueueInfo, messages: list[tuple[int, str | None]]) -> None:
        """Remove acknowledged messages, given by number and group, with their holds; clear the list."""
        if messages:
            groups: defaultdict[str, set[int]] = defaultdict(set)
            for number, group in messages:
                if group is not None:
                    groups[group].add(number)
            numbers = [number for number, _ in messages]
            self._be_done(queue, numbers, groups)
            self._do("remove_holds", as_list(numbers))
            messages.clear()

    def _be_done(self, queue: QueueInfo, numbers: Sequence[int], groups: Mapping[str, set[int]]) -> None:
        """Remove messages that are done; keep those that a reader has yet to read.

        Args:
            queue: the queue.
            numbers: the sequence numbers.
            groups: the same by group, without the messages that have none.
        """
        self.pending.leave(queue, groups)
        read_to = queue.read_to
        kept = [number for number in numbers if number > read_to]
        if kept:
            self._do("acknowledge", as_list(kept))
        self._do("remove_messages", as_list([number for number in numbers if number <= read_to] if kept else numbers))
        queue.depth -= len(numbers)
        self.catalog.counted(queue)

    def _move(self, queue: QueueInfo, entry: StoredMessage, to: QueueInfo, note: str | None, now_ms: int) -> None:
        """Move a message to another queue, or within its queue."""
        moved = delivery.moved(entry, queue, to, note, now_ms)
        number = moved.sequence_number
        is_back = number <= to.last
        if not is_back and to.number not in self.incarnations.begun:
            self.incarnations.begin(to, now_ms)
        self._leave(queue, [(entry.sequence_number, entry.group)])
        self.nonempty.discard((queue.number, entry.group))
        self.line.leave(queue, [entry.sequence_number])
        self._do("add_moved", *moved, to.number)
        if is_back:
            self.pending.come_back(to, number, entry.group)
        else:
            to.last = number
            self.pending.sent(to, number - 1, [(number, entry.group)])
        to.depth += 1
        self.catalog.counted(to)
        if entry.group is not None:
            self.line.leave(to, [self.pending.next(to, entry.group, number) or 0])
        self._refresh(to, [(number if entry.group is None else 0, entry.group)], now_ms)


def _held(row: Sequence[Any] | None) -> tuple[DeliveryState | None, str | None]:
    """Return the hold in a row, and its group."""
    return (DeliveryState._make(row[1:-1]), row[-1]) if row else (None, None)
