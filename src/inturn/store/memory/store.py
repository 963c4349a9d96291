"""Queues in memory: core's rules run over plain lists, as the oracle for the other stores.

The store is neither fast nor durable. Every operation scans all messages.
"""

import copy
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from inturn.core.queue import deduplication, delivery, ready_groups, redelivery, sessions
from inturn.core.queue.clock_skew import ClockSkew, Span
from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement, SettleResult
from inturn.core.queue.incarnation import Began, begin, incarnation_of
from inturn.core.queue.messages import (
    Delivery,
    Depth,
    Draft,
    GroupView,
    ParkedGroup,
    QueueInfo,
    ReceiveRequest,
    Sent,
    StoredMessage,
    first_number,
)
from inturn.core.queue.ready_groups import LinePlace
from inturn.core.queue.sessions import OPEN, GroupLock, SessionAnswer, SessionRequest, SessionVerb
from inturn.store.memory.pipelines import MemoryPipelines


@dataclass
class _MemoryMessage:
    """A message and the state of its delivery."""

    entry: StoredMessage
    done: bool = False
    hold: DeliveryState | None = None


Key = int | str
"""A group: its name, or the sequence number of a message without a group."""


@dataclass
class _Queue:
    """A queue and all its data.

    ``line`` maps the sequence numbers of the first messages of ready groups to the groups' places in the line.
    """

    info: QueueInfo
    messages: dict[int, _MemoryMessage] = field(default_factory=dict)
    known: dict[tuple[str, str], deduplication.RememberedSend] = field(default_factory=dict)
    gates: dict[str | None, GroupLock] = field(default_factory=dict)
    states: dict[str, bytes | None] = field(default_factory=dict)
    history: list[Began] = field(default_factory=list)
    line: dict[int, LinePlace] = field(default_factory=dict)

    def gate(self, group: str | None) -> GroupLock:
        return self.gates.get(group, OPEN)


class MemoryStore:
    """A store in the memory of the process."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._numbers = 0
        self._behind = ClockSkew()
        self.identity = self._incarnation = uuid.uuid4().hex
        self.pipelines = MemoryPipelines()

    def is_identity(self, identity: str) -> bool:
        """Return whether this is the identity of this store."""
        return identity == self.identity

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Restore the state of the store if the block raises."""
        before = copy.deepcopy(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    lasting = transaction

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return {name: queue.info for name, queue in self._queues.items()}

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Create, change or remove a queue."""
        if info is None:
            del self._queues[name]
            return
        if info.number == 0:
            self._numbers += 1
            info.number, info.last = self._numbers, first_number(self._numbers)
            self._queues[name] = _Queue(info)
        queue = self._queues[name]
        queue.info = info
        if purge:
            queue.messages.clear()
            queue.known.clear()
            queue.line.clear()
            info.depth = 0
        self._forget_read(queue)

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Append messages to a queue."""
        self._look_at_clock(now_ms)
        return [self._send_one(self._queues[queue.name], draft, now_ms) for draft in drafts]

    def _send_one(self, queue: _Queue, draft: Draft, now_ms: int) -> Sent:
        info = queue.info
        keys = [deduplication.known_by(draft, info.settings)]
        (sent,), new = deduplication.numbered(keys, queue.known.get, info.last, info.settings, now_ms)
        if sent.duplicate:
            return sent
        queue.known |= new
        queue.history = begin(queue.history, info.last, self._incarnation)
        info.last += 1
        info.depth += 1
        body, content, group, revision, dedup_id, delay_ms, attributes = draft
        fields = (info.last, body, content, group, revision, dedup_id, attributes, now_ms)
        entry = StoredMessage(*fields, origin=None, came_from=None, note=None)
        delay_ms = info.settings.delay_ms if delay_ms is None else delay_ms
        hold = delivery.delayed(delay_ms, now_ms) if delay_ms else None
        queue.messages[info.last] = _MemoryMessage(entry, hold=hold)
        if any(free[0].entry is entry for free in self._free(queue, now_ms)):
            queue.line[info.last] = LinePlace(info.last)
        return sent

    def incarnation(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a number was given."""
        return incarnation_of(self._queues[queue.name].history, number)

    def receive(self, queue: QueueInfo, wants: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        return [self._receive_one(queue, want, now_ms) for want in wants]

    def _receive_one(self, queue: QueueInfo, want: ReceiveRequest, now_ms: int) -> list[Delivery]:
        kept = self._queues[queue.name]
        self._look_at_clock(now_ms)
        self._tidy(kept, now_ms)
        gate = kept.gate(want.group)
        if want.number is not None:
            taken = self._fetched(kept, want, want.number, now_ms)
        elif want.token is None:
            taken = self._next(kept, want, now_ms)
        elif sessions.is_of(gate, want.token, now_ms):
            taken = self._next_within(kept, want, now_ms)
        else:
            taken = []
        queue.tokens += bool(taken) and want.token is None
        token = queue.tokens if want.token is None else want.token
        if not taken:
            self._look_ahead(kept)
        for message in taken:
            message.hold = delivery.leased(message.hold, token, want.lease_ms(queue.settings), now_ms)
            if want.token is not None:
                message.hold = sessions.within(gate, message.hold)
        return [
            Delivery(each.entry, token, each.hold.until_ms or 0, each.hold.attempts, each.hold.first_ms)
            for each in taken
            if each.hold
        ]

    def _next(self, kept: _Queue, want: ReceiveRequest, now_ms: int) -> list[_MemoryMessage]:
        limit, group = want.limit, want.group
        taken: list[_MemoryMessage] = []
        for messages in self._in_line(kept, now_ms):
            if len(taken) == limit:
                break
            if group is None or messages[0].entry.group == group:
                waiting = self._without_exhausted(kept, messages, now_ms)
                number = delivery.takes([message.hold for message in waiting], limit - len(taken), now_ms)
                taken += waiting[:number]
                kept.line.pop(messages[0].entry.sequence_number, None)
        return taken

    def _next_within(self, kept: _Queue, want: ReceiveRequest, now_ms: int) -> list[_MemoryMessage]:
        """Return what a session can receive next; its own leases do not block it."""
        group = [each for each in self._all_of(kept, want.group) if not delivery.is_deferred(each.hold)]
        others = [each for each in group if each.hold is None or each.hold.token != want.token]
        waiting = self._without_exhausted(kept, others, now_ms)
        return waiting[: delivery.takes([message.hold for message in waiting], want.limit, now_ms)]

    def _fetched(self, kept: _Queue, want: ReceiveRequest, number: int, now_ms: int) -> list[_MemoryMessage]:
        """Return a deferred message if it is not leased."""
        message = kept.messages.get(number)
        if message is None or not delivery.is_deferred(message.hold) or delivery.is_hidden(message.hold, now_ms):
            return []
        if not sessions.may_fetch(kept.gate(message.entry.group), want.token, now_ms):
            return []
        return self._without_exhausted(kept, [message], now_ms)

    def _look_at_clock(self, now_ms: int) -> None:
        """Correct deadlines after the clock was set back, so that nothing waits much longer than its duration."""
        for (kind, number, key, *span), since_ms, until_ms in self._behind.look(now_ms, self._later):
            for queue in (each for each in self._queues.values() if each.info.number == number):
                kept = queue.messages.get(key) if isinstance(key, int) else None
                gate = queue.gate(key) if isinstance(key, str) else OPEN
                if kept is not None and kept.hold is not None and [kept.hold.since_ms, kept.hold.until_ms] == span:
                    kept.hold = kept.hold._replace(since_ms=since_ms, until_ms=until_ms)
                if kind == "lock" and [gate.since_ms, gate.until_ms] == span:
                    queue.gates[str(key)] = gate._replace(since_ms=since_ms, until_ms=until_ms)
        self._behind.kept()  # a rollback restores it all

    def _later(self, now_ms: int) -> list[Span]:
        """Return the holds and locks that begin in the future."""
        spans = [
            Span("hold", queue.info.number, number, kept.hold.since_ms, kept.hold.until_ms)
            for queue in self._queues.values()
            for number, kept in queue.messages.items()
            if kept.hold is not None and kept.hold.until_ms is not None
        ]
        spans += [
            Span("lock", queue.info.number, group, gate.since_ms, gate.until_ms)
            for queue in self._queues.values()
            for group, gate in queue.gates.items()
            if group is not None and gate.until_ms is not None
        ]
        return [span for span in spans if span.since_ms > now_ms]

    def _look_ahead(self, queue: _Queue) -> None:
        """Set the next end of a lease, a delay or a lock."""
        ends = [message.hold.until_ms for message in queue.messages.values() if message.hold]
        ends += [gate.until_ms for gate in queue.gates.values()]
        ends.append(self._behind.next_ms(queue.info.number))
        queue.info.due_ms = min((end for end in ends if end is not None), default=None)

    def _in_line(self, queue: _Queue, now_ms: int) -> list[list[_MemoryMessage]]:
        """Return the groups that can be received, in the order of the line."""
        heads = {group[0].entry.sequence_number: group for group in self._free(queue, now_ms)}
        return [heads[number] for number in sorted(heads, key=lambda number: (queue.line[number], number))]

    def _line_up(self, queue: _Queue, touched: Iterable[Key], now_ms: int) -> None:
        """Add those of the changed groups that are ready now to the line, in this order."""
        free = {_key(group[0]): group[0] for group in self._free(queue, now_ms)}
        heads = {head.entry.sequence_number for head in free.values()}
        queue.line = {number: place for number, place in queue.line.items() if number in heads}
        for key in ready_groups.by_turn(list(touched)):
            head = free.get(key)
            if head is not None and (number := head.entry.sequence_number) not in queue.line:
                queue.line[number], queue.info.back = ready_groups.joined(
                    LinePlace(*queue.info.back), number, queue.info.last, is_back=ready_groups.was_tried(head.hold)
                )

    def _free(self, queue: _Queue, now_ms: int) -> list[list[_MemoryMessage]]:
        """Return the groups that can be received, the oldest first."""
        return [
            group
            for group in self._groups(queue)
            if ready_groups.is_ready(
                group[0].hold,
                [each.hold for each in group],
                now_ms,
                is_closed=sessions.is_closed(queue.gate(group[0].entry.group)),
            )
        ]

    @staticmethod
    def _groups(queue: _Queue) -> list[list[_MemoryMessage]]:
        """Return the pending messages of each group that are not deferred, in order of the groups' heads."""
        groups: dict[Any, list[_MemoryMessage]] = {}
        for number in sorted(queue.messages):
            message = queue.messages[number]
            if not message.done and not delivery.is_deferred(message.hold):
                name = message.entry.group
                groups.setdefault(("no group", number) if name is None else name, []).append(message)
        return list(groups.values())

    def _tidy(self, queue: _Queue, now_ms: int) -> None:
        """Remove messages past their retention, unlock expired locks and give back expired leases."""
        retired_ms = delivery.retired_ms(queue.info.settings, now_ms)
        touched: list[Key] = []
        for number in sorted(queue.messages):
            message = queue.messages[number]
            if retired_ms is None or message.entry.sent_ms > retired_ms:
                break
            self._remove(queue, number)
            touched.append(_key(message))
        touched += self._over(queue, now_ms)
        self._unlock(queue, now_ms)
        heads = [group[0] for group in self._groups(queue)]
        for number, message in queue.messages.items():
            hold = message.hold
            if hold is not None and hold.until_ms is not None and not delivery.is_hidden(hold, now_ms):
                message.hold = redelivery.ended(
                    hold, queue.info.settings, number, is_head=message in heads, now_ms=now_ms
                )
        self._line_up(queue, touched, now_ms)

    @staticmethod
    def _unlock(queue: _Queue, now_ms: int) -> None:
        for name, gate in queue.gates.items():
            if gate.token is not None and not sessions.is_locked(gate, now_ms):
                queue.gates[name] = sessions.unlocked(gate)

    @staticmethod
    def _over(queue: _Queue, now_ms: int) -> list[Key]:
        """Return the groups of which a lock, a lease or a delay has ended, in the order of the deadlines."""
        over: list[tuple[int, int, Key]] = [
            (gate.until_ms, 0, group)
            for group, gate in queue.gates.items()
            if group is not None and gate.until_ms is not None and gate.until_ms <= now_ms
        ]
        over += [
            (message.hold.until_ms, number, _key(message))
            for number, message in queue.messages.items()
            if message.hold and message.hold.until_ms is not None and message.hold.until_ms <= now_ms
        ]
        return [key for *_, key in sorted(over)]

    def _without_exhausted(self, queue: _Queue, group: list[_MemoryMessage], now_ms: int) -> list[_MemoryMessage]:
        """Move messages that were received too often from the head of a group; return the rest of the group."""
        while group and (dead := delivery.dead_letter(group[0].hold, queue.info.settings, self.queues)):
            to, note = self._queues[dead[0].name], dead[1]
            self._move(queue, group[0], to, note, now_ms)
            again = [queue.messages[group[0].entry.sequence_number]] if to is queue else []  # it keeps its place
            group = [*again, *group[1:]]
        return group

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, give back, move, defer or cancel messages."""
        self._look_at_clock(now_ms)
        kept = self._queues[queue.name]
        if ready_groups.ended_go_first(changes, kept.info.settings):
            over = self._over(kept, now_ms)
            self._unlock(kept, now_ms)
            self._line_up(kept, over, now_ms)
        before = dict(kept.messages)
        verdicts = [self._settle_one(kept, change, now_ms) for change in changes]
        done = [
            change.sequence_number for change, each in zip(changes, verdicts, strict=True) if each is SettleResult.DONE
        ]
        touched = [_key(before[number]) for number in done]
        if not ready_groups.are_ordered(changes):
            heads = {_key(group[0]): group[0].entry.sequence_number for group in self._groups(kept)}
            touched.sort(key=lambda key: heads.get(key, 0))
        self._line_up(kept, touched, now_ms)
        return verdicts

    def _settle_one(self, queue: _Queue, change: Settlement, now_ms: int) -> SettleResult:
        message = queue.messages.get(change.sequence_number)
        if message is None or message.done:
            return SettleResult.GONE
        verdict = delivery.verdict(message.hold, change, now_ms)
        if verdict is not SettleResult.DONE:
            return verdict
        if change.act is SettleAction.ACK:
            queue.info.depth -= 1
            message.done, message.hold = True, None
            self._forget_read(queue)
        elif change.act is SettleAction.EXTEND:
            gate = sessions.extended(queue.gate(message.entry.group), change, now_ms)
            if gate is not None:
                self._renew(queue, message.entry.group, gate)
            else:
                message.hold = delivery.extended(message.hold, change.ms or 0, now_ms)
        elif change.act is SettleAction.NACK:
            self._give_back(queue, message, change.ms, now_ms)
        elif change.act is SettleAction.DEFER:
            message.hold = delivery.deferred(message.hold)
        elif change.act is SettleAction.CANCEL:
            self._remove(queue, change.sequence_number)
        elif change.to is not None:
            self._move(queue, message, self._queues[change.to], change.note, now_ms)
        return SettleResult.DONE

    def _give_back(self, queue: _Queue, message: _MemoryMessage, delay_ms: int | None, now_ms: int) -> None:
        is_head = any(message is group[0] for group in self._groups(queue))
        message.hold = redelivery.nacked(
            message.hold or DeliveryState(None),
            queue.info.settings,
            message.entry.sequence_number,
            is_head=is_head,
            delay_ms=delay_ms,
            now_ms=now_ms,
        )

    def _move(self, queue: _Queue, message: _MemoryMessage, to: _Queue, note: str | None, now_ms: int) -> None:
        entry = delivery.moved(message.entry, queue.info, to.info, note, now_ms)
        if entry.sequence_number > to.info.last:
            to.history = begin(to.history, to.info.last, self._incarnation)
            to.info.last += 1
        queue.info.depth -= 1
        to.info.depth += 1
        message.done, message.hold = True, None
        self._forget_read(queue)
        there = to.messages[entry.sequence_number] = _MemoryMessage(entry)
        self._line_up(to, [_key(there)], now_ms)

    def _remove(self, queue: _Queue, number: int) -> None:
        queue.info.depth -= not queue.messages[number].done
        del queue.messages[number]

    @staticmethod
    def _forget_read(queue: _Queue) -> None:
        """Remove the acknowledged messages that every reader has passed."""
        read_to = queue.info.read_to
        for number in [number for number, each in queue.messages.items() if each.done and number <= read_to]:
            del queue.messages[number]

    # --- sessions ---

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Apply a session request to a group and its messages; ``group`` None: the next group that can be locked."""
        kept = self._queues[queue.name]
        self._look_at_clock(now_ms)
        if request.verb is SessionVerb.LOCK:
            self._tidy(kept, now_ms)
            self._look_ahead(kept)
        if group is None:
            free = (messages[0].entry.group for messages in self._in_line(kept, now_ms))
            group = next((each for each in free if each is not None and not self._is_held(kept, each, now_ms)), None)
        if group is None:
            return SessionAnswer(SettleResult.HELD)
        before = kept.gate(group)
        is_held = self._is_held(kept, group, now_ms)
        verdict, gate = sessions.decide(before, request, now_ms, is_held=is_held, token=queue.tokens + 1)
        if verdict is not SettleResult.DONE:
            return SessionAnswer(verdict, group)
        queue.tokens += request.verb is SessionVerb.LOCK
        if request.verb is SessionVerb.SET_STATE:
            kept.states[group] = request.state
        if request.verb in {SessionVerb.CLOSE, SessionVerb.PARK}:
            for message in self._all_of(kept, group):
                if message.hold and message.hold.token is not None and message.hold.token == request.token:
                    self._give_back(kept, message, None, now_ms)
        self._renew(kept, group, gate)
        self._line_up(kept, [group], now_ms)
        return SessionAnswer(
            verdict, group, gate, kept.states.get(group) if request.verb is SessionVerb.GET_STATE else None
        )

    def _renew(self, queue: _Queue, group: str | None, gate: GroupLock) -> None:
        """Set the gate of a group; the leases under its lock end with the lock."""
        queue.gates[group] = gate
        for message in self._all_of(queue, group):
            if message.hold and message.hold.token is not None and message.hold.token == gate.token:
                message.hold = sessions.within(gate, message.hold)

    @staticmethod
    def _all_of(queue: _Queue, group: str | None) -> list[_MemoryMessage]:
        """Return the pending messages of a group, including deferred ones."""
        every = [queue.messages[number] for number in sorted(queue.messages)]
        return [each for each in every if each.entry.group == group and not each.done]

    def _is_held(self, queue: _Queue, group: str, now_ms: int) -> bool:
        return any(delivery.is_leased(each.hold, now_ms) for each in self._all_of(queue, group))

    def parked(self, queue: QueueInfo, limit: int) -> list[ParkedGroup]:
        """Return the parked groups, in the order in which they were parked."""
        gates = self._queues[queue.name].gates.items()
        found = [(gate.parked_ms or 0, group or "", gate.note) for group, gate in gates if gate.note is not None]
        return [ParkedGroup(group, note, parked_ms) for parked_ms, group, note in sorted(found)[:limit]]

    # --- reads ---

    def read(
        self,
        queue: QueueInfo,
        after: int,
        limit: int,
        *,
        pending: bool = False,
        deferred: bool = False,
        group: str | None = None,
    ) -> list[StoredMessage]:
        """Return the messages after a sequence number."""
        messages = self._queues[queue.name].messages
        is_all = not (pending or deferred or group is not None)
        found = [messages[number] for number in sorted(messages) if number > after]
        return [
            each.entry
            for each in found
            if (is_all or not each.done)
            and (not deferred or delivery.is_deferred(each.hold))
            and group in {None, each.entry.group}
        ][:limit]

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """Return the message counts of a queue."""
        holds = [each.hold for each in self._queues[queue.name].messages.values()]
        deferred = sum(map(delivery.is_deferred, holds))
        hidden = [hold for hold in holds if hold is not None and delivery.is_hidden(hold, now_ms)]
        leased = sum(hold.token is not None for hold in hidden)
        return Depth(queue.depth, leased, len(hidden) - leased, queue.last, deferred)

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Return the groups that have messages, oldest head first."""
        kept = self._queues[queue.name]
        wanted = set(names)
        found = [group for group in self._groups(kept) if not wanted or group[0].entry.group in wanted]
        return [
            sessions.view(
                group[0].entry,
                len(group),
                kept.gate(group[0].entry.group),
                group[0].hold,
                [each.hold for each in group],
                now_ms,
            )
            for group in found[:limit]
        ]


def _key(message: _MemoryMessage) -> Key:
    return message.entry.sequence_number if message.entry.group is None else message.entry.group
