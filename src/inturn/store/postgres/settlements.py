"""Settlements in PostgreSQL: acknowledge, extend, give back, move, defer and cancel messages.

A receiver that settles its messages locks only their holds, so its transaction may be long. An operator's change of
messages that are not leased takes the desk.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inturn.core.queue import delivery, redelivery, sessions
from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import QueueInfo
from inturn.store.postgres.ready_list import Move, ReadyList


@dataclass
class _Message:
    """A message to settle.

    Attributes:
        group: its group.
        origin: sequence number under which it was first sent; None if it was never moved.
        hold: its hold after the changes so far.
        before: numbers of earlier messages in its group.
        is_changed: whether the hold has changed.
    """

    group: str | None
    origin: int | None
    hold: DeliveryState | None
    before: Sequence[int] = ()
    is_changed: bool = False


@dataclass
class _Work:
    """The collected writes of several changes; nothing is written before all are decided."""

    messages: dict[int, _Message]
    notes: dict[tuple[str | None, int | None], tuple[int, int | None, int | None]]
    left: list[int]
    removed: list[int]
    deferred: list[int]
    moves: dict[str, list[Move]]
    out: set[int]  # messages that no longer precede others of their group
    free: list[int]  # messages that were not leased, and so may be listed

    def note(
        self, number: int, message: _Message, gone: int, due_ms: int | None = None, back_ms: int | None = None
    ) -> None:
        """Add a note about the group or the message; ``back_ms`` is when it was given back, None if it was not."""
        key = (message.group, None) if message.group is not None or gone else (None, number)
        before, due, back = self.notes.pop(key, (0, None, None))  # its last position counts
        soonest = min((each for each in (due, due_ms) if each is not None), default=None)
        self.notes[key] = (before + gone, soonest, back if back_ms is None else back_ms)


class Settling(ReadyList):
    """Settlements of messages."""

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, give back, move, defer or cancel messages, in order."""
        self.look_at_clock(now_ms)
        if not changes:
            return []
        numbers = [change.sequence_number for change in changes]
        is_plain = all(change.act is SettleAction.ACK and change.token is not None for change in changes)
        is_here = queue.has_given(min(numbers)) and queue.has_given(max(numbers))
        if is_plain and is_here and len(set(numbers)) == len(numbers):
            return self._acknowledge(queue, changes, now_ms)
        return self._settle_each(queue, changes, now_ms)

    def _acknowledge(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge messages with one statement, the usual case."""
        numbers = [change.sequence_number for change in changes]
        tokens = [change.token for change in changes]
        if queue.readers:
            rows = self._all("acknowledge_for_readers", queue.number, numbers, tokens, now_ms, queue.read_to)
        else:
            rows = self._all("acknowledge", queue.number, numbers, tokens, now_ms)
        if rows:
            self._news.add(queue.number)
        if len(rows) == len(numbers):
            return [SettleResult.DONE] * len(numbers)
        done = {row[0] for row in rows}
        there = {row[0] for row in self._all("there", [number for number in numbers if number not in done])}
        missed = {number: SettleResult.EXPIRED if number in there else SettleResult.GONE for number in numbers}
        return [SettleResult.DONE if number in done else missed[number] for number in numbers]

    def _settle_each(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Apply changes of any kinds; each sees the effect of those before it."""
        work = self._load(queue, changes)
        verdicts = []
        for change in changes:
            message = work.messages.get(change.sequence_number)
            if message is None or not queue.has_given(change.sequence_number):
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

    def _load(self, queue: QueueInfo, changes: Sequence[Settlement]) -> _Work:
        numbers = [change.sequence_number for change in changes]
        if any(change.token is None for change in changes):
            self._lock(queue)
        self._do("lock_holds", numbers, [change.token for change in changes])
        nacks = [change.sequence_number for change in changes if change.act is SettleAction.NACK]
        earlier = self._do("earlier", nacks, len(changes)) if nacks else None
        messages = {
            number: _Message(group, origin, None if hold[2] is None else DeliveryState._make(hold))
            for number, group, done, origin, *hold in self._all("settling", numbers)
            if done != 1
        }
        for number, before in earlier.rows if earlier else ():
            if number in messages:
                messages[number].before = before
        return _Work(messages, {}, [], [], [], {}, set(), [])

    def _change(self, queue: QueueInfo, work: _Work, change: Settlement, message: _Message, now_ms: int) -> None:
        number, hold = change.sequence_number, message.hold
        if change.act is SettleAction.EXTEND:
            if not self._extends_lock(queue, work, change, message, now_ms):
                message.hold, message.is_changed = delivery.extended(hold, change.ms or 0, now_ms), True
            work.note(number, message, 0, now_ms + (change.ms or 0))
            return
        if change.act is SettleAction.NACK:
            hold = hold or DeliveryState(None)
            is_head = message.group is None or hold.deferred or work.out.issuperset(message.before)
            left = redelivery.nacked(hold, queue.settings, number, is_head=is_head, delay_ms=change.ms, now_ms=now_ms)
            message.hold, message.is_changed = left, True
            work.note(number, message, 0, left and left.until_ms, now_ms)
            return
        work.out.add(number)
        if change.act is SettleAction.DEFER:
            message.hold, message.is_changed = delivery.deferred(hold), True
            work.deferred.append(number)
            work.note(number, message, 0)
            return
        del work.messages[number]
        if change.act is SettleAction.MOVE and change.to is not None:
            move = Move(number, message.group, message.origin, change.note)
            work.moves.setdefault(change.to, []).append(move)
            return
        (work.removed if change.act is SettleAction.CANCEL else work.left).append(number)
        work.note(number, message, 1)

    def _extends_lock(self, queue: QueueInfo, work: _Work, change: Settlement, message: _Message, now_ms: int) -> bool:
        """Extend the lock of the session in which a message was received; return whether there was one."""
        group = message.group
        if group is None or change.token is None:
            return False
        gate = self.gates.of(queue.number, group, "gate_to_renew")
        if not sessions.is_of(gate, change.token, now_ms):
            return False
        gate = sessions.renewed(gate, change.ms or 0, now_ms)
        self.gates.renew(queue.number, group, gate)
        for each in work.messages.values():
            if each.hold is not None and each.hold.token == gate.token and each.group == group:
                each.hold = sessions.within(gate, each.hold)
        return True

    def _write(self, queue: QueueInfo, work: _Work, now_ms: int) -> None:
        changed = [(number, each.group, each.hold) for number, each in work.messages.items() if each.is_changed]
        self._set_holds(queue, changed)
        if work.deferred:
            self._do("set_done", work.deferred, 2)
        if work.left or work.removed:
            self._do("remove_holds", [*work.left, *work.removed])
            self._leave(queue, work.left)
        if work.removed:
            self._do("remove_messages", work.removed)
        for name in sorted(work.moves):
            self._move(queue, work.moves[name], self.queues[name], now_ms)
        self._touch(queue, [(*key, *value) for key, value in work.notes.items()])
        if work.free:
            self._do("not_ready", work.free)
