"""Settlements in PostgreSQL: acknowledge, extend, nack, move, defer and cancel messages.

A receiver that settles its messages locks only their holds, so its transaction may be long. An operator's change of
messages that are not leased takes the receiver lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from inturn.core.queue import delivery, redelivery, sessions
from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import QueueInfo
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.clock_skew import PostgresFutureSpans
from inturn.store.postgres.group_locks import PostgresGroupLocks
from inturn.store.postgres.messages import Move, PostgresMessages
from inturn.store.postgres.receiver_lock import ReceiverLocks, Recheck
from inturn.store.postgres.statements import PostgresStatements
from inturn.store.sql.statements import MessageStatus

_REMOVES: Final = (SettleAction.CANCEL, SettleAction.ERASE)
"""Actions after which the log keeps nothing of the message."""


@dataclass
class _Message:
    """A message to settle: its group, its first number if it was moved, its hold, and its predecessors in its group."""

    group: str | None
    origin: int | None
    hold: DeliveryState | None
    before: Sequence[int] = ()
    is_changed: bool = False


@dataclass
class _Work:
    """The collected writes of several changes; nothing is written before all are decided."""

    messages: dict[int, _Message]
    rechecks: dict[tuple[str | None, int | None], Recheck] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    deferred: list[int] = field(default_factory=list)
    moves: dict[str, list[Move]] = field(default_factory=dict)
    out: set[int] = field(default_factory=set)  # messages that no longer precede others of their group
    free: list[int] = field(default_factory=list)  # messages that were not leased, and so may be listed

    def add_recheck(
        self,
        number: int,
        message: _Message,
        removed_count: int = 0,
        due_ms: int | None = None,
        returned_ms: int | None = None,
    ) -> None:
        """Add a recheck of the group or the message; ``returned_ms``: the time of its return, None: not returned."""
        own = None if message.group is not None or removed_count else number
        before = self.rechecks.pop((message.group, own), Recheck(message.group, own))  # its last position counts
        soonest = min((time_ms for time_ms in (before.due_ms, due_ms) if time_ms is not None), default=None)
        returned_ms = before.returned_ms if returned_ms is None else returned_ms
        self.rechecks[message.group, own] = Recheck(
            message.group, own, before.removed_count + removed_count, soonest, returned_ms
        )


@dataclass(eq=False)
class PostgresSettlements(PostgresStatements):
    """Settlements of messages."""

    _catalog: PostgresCatalog
    _locks: ReceiverLocks
    _messages: PostgresMessages
    _group_locks: PostgresGroupLocks
    _spans: PostgresFutureSpans

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, nack, move, defer or cancel messages, in order."""
        self._spans.end(now_ms)
        if not changes:
            return []
        self.wire.note_transaction()
        numbers = [change.sequence_number for change in changes]
        is_plain = all(change.act is SettleAction.ACK and change.token is not None for change in changes)
        is_here = queue.has_assigned(min(numbers)) and queue.has_assigned(max(numbers))
        if is_plain and is_here and len(set(numbers)) == len(numbers):
            return self._acknowledge(queue, numbers, [change.token for change in changes], now_ms)
        return self._settle_each(queue, changes, now_ms)

    def _acknowledge(
        self, queue: QueueInfo, numbers: list[int], tokens: list[int | None], now_ms: int
    ) -> list[SettleResult]:
        """Acknowledge messages with one statement, the usual case."""
        if queue.readers or queue.settings.keeps_log:
            rows = self._all("acknowledge_for_readers", queue.number, numbers, tokens, now_ms, queue.removed_to)
        else:
            rows = self._all("acknowledge", queue.number, numbers, tokens, now_ms)
        if rows:
            self._locks.news.add(queue.number)
        if len(rows) == len(numbers):
            return [SettleResult.DONE] * len(numbers)
        done = {row[0] for row in rows}
        existing = {
            row[0] for row in self._all("existing_messages", [number for number in numbers if number not in done])
        }
        missed = {number: SettleResult.EXPIRED if number in existing else SettleResult.GONE for number in numbers}
        return [SettleResult.DONE if number in done else missed[number] for number in numbers]

    def _settle_each(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Apply changes of any kinds; each sees the effect of the previous ones."""
        work = _Work(self._load(queue, changes))
        verdicts = []
        for change in changes:
            message = work.messages.get(change.sequence_number)
            if message is None or not queue.has_assigned(change.sequence_number):
                verdicts.append(SettleResult.GONE)
                continue
            verdict = delivery.verdict(message.hold, change, now_ms)
            if verdict is SettleResult.DONE:
                if change.token is None:
                    work.free.append(change.sequence_number)
                self._change(queue, work, change, message, now_ms)
            verdicts.append(verdict)
        self._write(queue, work, now_ms)
        return verdicts

    def _load(self, queue: QueueInfo, changes: Sequence[Settlement]) -> dict[int, _Message]:
        numbers = [change.sequence_number for change in changes]
        if any(change.token is None for change in changes):
            self._locks.acquire(queue)
        self._do("lock_holds", numbers, [change.token for change in changes])
        nacks = [change.sequence_number for change in changes if change.act is SettleAction.NACK]
        earlier = self._do("earlier_messages", nacks, len(changes)) if nacks else None
        messages = {
            number: _Message(group, origin, None if hold[2] is None else DeliveryState._make(hold))
            for number, group, status, origin, *hold in self._all("messages_to_settle", numbers)
            if status != MessageStatus.ACKNOWLEDGED
        }
        for number, before in earlier.rows if earlier else ():
            if number in messages:
                messages[number].before = before
        return messages

    def _change(self, queue: QueueInfo, work: _Work, change: Settlement, message: _Message, now_ms: int) -> None:
        number, hold = change.sequence_number, message.hold
        if change.act is SettleAction.EXTEND:
            if not self._extends_lock(queue, work, change, message, now_ms):
                message.hold, message.is_changed = delivery.extended(hold, change.ms or 0, now_ms), True
            work.add_recheck(number, message, due_ms=now_ms + (change.ms or 0))
            return
        if change.act is SettleAction.NACK:
            hold = delivery.counted(hold, change)
            is_head = message.group is None or hold.deferred or work.out.issuperset(message.before)
            remaining = redelivery.nacked(
                hold, queue.settings, number, is_head=is_head, delay_ms=change.ms, now_ms=now_ms
            )
            message.hold, message.is_changed = remaining, True
            work.add_recheck(number, message, due_ms=remaining and remaining.until_ms, returned_ms=now_ms)
            return
        work.out.add(number)
        if change.act is SettleAction.DEFER:
            message.hold, message.is_changed = delivery.deferred(hold), True
            work.deferred.append(number)
            work.add_recheck(number, message)
            return
        del work.messages[number]
        if change.act is SettleAction.MOVE and change.to is not None:
            move = Move(number, message.group, message.origin, change.note)
            work.moves.setdefault(change.to, []).append(move)
            return
        (work.removed if change.act in _REMOVES else work.left).append(number)
        work.add_recheck(number, message, removed_count=1)

    def _extends_lock(self, queue: QueueInfo, work: _Work, change: Settlement, message: _Message, now_ms: int) -> bool:
        """Extend the lock of the session in which a message was received; return whether there was one."""
        group = message.group
        if group is None or change.token is None:
            return False
        group_lock = self._group_locks.of(queue.number, group, "group_lock_to_renew")
        extended = sessions.extended(group_lock, change, now_ms)
        if extended is None:
            return False
        self._group_locks.renew(queue.number, group, extended)
        for leased in work.messages.values():
            if leased.hold is not None and leased.hold.token == extended.token and leased.group == group:
                leased.hold = sessions.within(extended, leased.hold)
        return True

    def _write(self, queue: QueueInfo, work: _Work, now_ms: int) -> None:
        changed = [
            (number, message.group, message.hold) for number, message in work.messages.items() if message.is_changed
        ]
        self._messages.set_holds(queue, changed)
        if work.deferred:
            self._do("set_status", work.deferred, MessageStatus.DEFERRED)
        if work.left or work.removed:
            self._do("remove_holds", [*work.left, *work.removed])
            self._messages.leave(queue, work.left)
        if work.removed:
            self._do("remove_messages", work.removed)
        for name in sorted(work.moves):
            self._messages.move(queue, work.moves[name], self._catalog.queues[name], now_ms)
        self._locks.add_rechecks(queue, work.rechecks.values())
        if work.free:
            self._do("remove_ready", work.free)
