"""Queues in memory: core's rules run over plain lists, as the oracle for the other stores.

The store is neither fast nor durable. Every operation scans all messages.
"""

import copy
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from inturn.core.queue import back_pressure, deduplication, delivery, numbering, ready_groups, sessions, writers
from inturn.core.queue.clock_skew import ClockSkew, Span
from inturn.core.queue.delivery import ReceiveSelection, SettleAction, Settlement, SettleResult
from inturn.core.queue.incarnation import begin, incarnation_of
from inturn.core.queue.kept_log import LogEntry, LogSpan, Removable, find_time
from inturn.core.queue.messages import (
    Delivery,
    Depth,
    Draft,
    GroupView,
    QueueInfo,
    ReceiveRequest,
    Sent,
    StoredMessage,
    first_number,
)
from inturn.core.queue.sessions import FIRST_PARKED, ParkedGroup, SessionAnswer, SessionRequest, SessionVerb
from memory_store.pipelines import MemoryPipelines
from memory_store.queue import MemoryMessage, MemoryQueue


class MemoryStore:
    """A store in the memory of the process."""

    def __init__(self) -> None:
        self._queues: dict[str, MemoryQueue] = {}
        self._numbers = 0
        self._skew = ClockSkew()
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
            self._queues[name] = MemoryQueue(info)
        queue = self._queues[name]
        queue.info = info
        if purge:
            queue.messages.clear()
            queue.known.clear()
            queue.ready_places.clear()
            queue.blocks.clear()
            info.depth = 0
        queue.remove_done(Removable(info.removed_to))

    def incarnation(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a number was assigned."""
        return incarnation_of(self._queues[queue.name].history, number)

    def _look_at_clock(self, now_ms: int) -> None:
        """Correct deadlines after the clock was set back, so that nothing waits much longer than its duration."""
        for expired in self._skew.end_spans(now_ms, self._later):
            for queue in self._queues.values():
                if queue.info.number == expired.span.queue:
                    queue.end_span(expired)
        self._skew.committed()  # a rollback restores it all

    def _later(self, now_ms: int) -> list[Span]:
        return [span for queue in self._queues.values() for span in queue.spans() if span.since_ms > now_ms]

    # --- sends ---

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int = 0) -> list[Sent]:
        """Append messages to a queue."""
        self._look_at_clock(now_ms)
        to = self._queues[queue.name]
        keys = [deduplication.known_by(draft, queue.settings) for draft in drafts]
        sent, _ = deduplication.numbered(keys, to.known.get, queue.last, queue.settings, now_ms)
        if queue.settings.single_writer:
            writers.check(queue.name, drafts, to.writers)
        numbering.numbered(drafts, sent, to.revisions)
        back_pressure.check_room(queue, sum(not receipt.duplicate for receipt in sent), ahead)
        return [self._send_one(to, draft, now_ms) for draft in drafts]

    def room(self, queue: QueueInfo) -> int | None:
        """Return the number of messages for which a queue has room; None: any number."""
        return back_pressure.room(queue)

    def _send_one(self, queue: MemoryQueue, draft: Draft, now_ms: int) -> Sent:
        info = queue.info
        keys = [deduplication.known_by(draft, info.settings)]
        (sent,), new = deduplication.numbered(keys, queue.known.get, info.last, info.settings, now_ms)
        (sent,), last = numbering.numbered([draft], [sent], queue.revisions)
        if sent.duplicate:
            return sent
        queue.known |= numbering.with_revisions(new, [sent])
        queue.revisions |= last
        self._give_number(queue)
        info.depth += 1
        body, content, group, _, dedup_id, delay_ms, attributes, *_ = draft
        fields = (info.last, body, content, group, sent.revision, dedup_id, attributes, now_ms)
        entry = StoredMessage(*fields, origin=None, came_from=None, note=None)
        delay_ms = info.settings.delay_ms if delay_ms is None else delay_ms
        queue.add(MemoryMessage(entry, hold=delivery.delayed(delay_ms, now_ms) if delay_ms else None), now_ms)
        return sent

    def _give_number(self, queue: MemoryQueue) -> None:
        queue.history = begin(queue.history, queue.info.last, self._incarnation)
        queue.info.last += 1

    # --- receives ---

    def receive(self, queue: QueueInfo, requests: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        memory_queue = self._queues[queue.name]
        memory_queue.trim_log(now_ms)
        taking = ReceiveSelection(queue.settings, now_ms)
        return [self._receive_one(memory_queue, request, taking, now_ms) for request in requests]

    def _receive_one(
        self, queue: MemoryQueue, request: ReceiveRequest, taking: ReceiveSelection, now_ms: int
    ) -> list[Delivery]:
        self._look_at_clock(now_ms)
        queue.tidy(now_ms)
        taking.begin(request)
        info, group_lock = queue.info, queue.group_lock(request.group)
        if request.number is not None:
            messages = self._fetched(queue, request, request.number, taking, now_ms)
        elif request.token is None:
            messages = self._next(queue, request, taking, now_ms)
        elif sessions.is_held_by(group_lock, request.token, now_ms):
            messages = self._next_within(queue, request, taking, now_ms)
        else:
            messages = []
        if not messages:
            queue.look_ahead(self._skew.next_ms(info.number))
            return []
        info.last_token += request.token is None
        token = info.last_token if request.token is None else request.token
        leases = []
        for message in messages:
            hold = delivery.leased(message.hold, token, request.lease_ms(info.settings), now_ms)
            message.hold = hold = hold if request.token is None else sessions.within(group_lock, hold)
            leases.append(Delivery(message.entry, token, hold.until_ms or 0, hold.attempts, hold.first_ms, hold.lapsed))
        return leases

    def _next(
        self, queue: MemoryQueue, request: ReceiveRequest, taking: ReceiveSelection, now_ms: int
    ) -> list[MemoryMessage]:
        selected: list[MemoryMessage] = []
        for messages in queue.ready_queue(now_ms):
            if not taking.left:
                break
            if request.group in {None, messages[0].entry.group}:
                part = self._take(queue, messages, taking, now_ms)
                selected += part
                if part or taking.left:
                    queue.ready_places.pop(messages[0].entry.sequence_number, None)
                else:
                    queue.update_ready([messages[0].key], now_ms)  # dead letters may have left
        return selected

    def _next_within(
        self, queue: MemoryQueue, request: ReceiveRequest, taking: ReceiveSelection, now_ms: int
    ) -> list[MemoryMessage]:
        """Return the messages that a session can receive next; its own leases do not block it."""
        group = [message for message in queue.all_of(request.group) if not delivery.is_deferred(message.hold)]
        available = [message for message in group if message.hold is None or message.hold.token != request.token]
        return self._take(queue, available, taking, now_ms)

    def _fetched(
        self, queue: MemoryQueue, request: ReceiveRequest, number: int, taking: ReceiveSelection, now_ms: int
    ) -> list[MemoryMessage]:
        """Return a deferred message if it is not leased."""
        message = queue.messages.get(number)
        if message is None or not delivery.is_deferred(message.hold) or delivery.is_hidden(message.hold, now_ms):
            return []
        if not sessions.may_fetch(queue.group_lock(message.entry.group), request.token, now_ms):
            return []
        return self._take(queue, [message], taking, now_ms)

    def _take(
        self, queue: MemoryQueue, group: list[MemoryMessage], taking: ReceiveSelection, now_ms: int
    ) -> list[MemoryMessage]:
        """Return the messages of a group that can be received; dead letters leave first."""
        while group and (dead := delivery.dead_letter(group[0].hold, queue.info.settings, self.queues)):
            to, note = self._queues[dead[0].name], dead[1]
            self._move(queue, group[0], to, note, now_ms)
            returned = [queue.messages[group[0].entry.sequence_number]] if to is queue else []  # it keeps its place
            group = [*returned, *group[1:]]
        return group[: taking.take([message.hold for message in group])]

    # --- settlements ---

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, nack, move, defer or cancel messages."""
        self._look_at_clock(now_ms)
        memory_queue = self._queues[queue.name]
        if ready_groups.ended_go_first(changes, memory_queue.info.settings):
            memory_queue.update_ready(memory_queue.over(now_ms), now_ms)
        before = dict(memory_queue.messages)
        verdicts = [self._settle_one(memory_queue, change, now_ms) for change in changes]
        done = [
            change.sequence_number
            for change, verdict in zip(changes, verdicts, strict=True)
            if verdict is SettleResult.DONE
        ]
        touched = [before[number].key for number in done]
        if not ready_groups.are_ordered(changes):
            heads = {group[0].key: group[0].entry.sequence_number for group in memory_queue.groups()}
            touched.sort(key=lambda key: heads.get(key, 0))
        memory_queue.update_ready(touched, now_ms)
        return verdicts

    def _settle_one(self, queue: MemoryQueue, change: Settlement, now_ms: int) -> SettleResult:
        message = queue.messages.get(change.sequence_number)
        if message is None or message.done:
            return SettleResult.GONE
        verdict = delivery.verdict(message.hold, change, now_ms)
        if verdict is not SettleResult.DONE:
            return verdict
        if change.act is SettleAction.ACK:
            queue.done(message)
        elif change.act is SettleAction.EXTEND:
            group_lock = sessions.extended(queue.group_lock(message.entry.group), change, now_ms)
            if group_lock is not None:
                queue.set_gate(message.entry.group, group_lock)
            else:
                message.hold = delivery.extended(message.hold, change.ms or 0, now_ms)
        elif change.act is SettleAction.NACK:
            message.hold = delivery.counted(message.hold, change)
            queue.give_back(message, change.ms, now_ms)
        elif change.act is SettleAction.DEFER:
            message.hold = delivery.deferred(message.hold)
        elif change.act in {SettleAction.CANCEL, SettleAction.ERASE}:
            queue.remove(change.sequence_number)
        elif change.to is not None:
            self._move(queue, message, self._queues[change.to], change.note, now_ms)
        return SettleResult.DONE

    def _move(self, queue: MemoryQueue, message: MemoryMessage, to: MemoryQueue, note: str | None, now_ms: int) -> None:
        entry = delivery.moved(message.entry, queue.info, to.info, note, now_ms)
        if entry.sequence_number > to.info.last:
            self._give_number(to)
        to.info.depth += 1
        queue.done(message)
        moved = to.messages[entry.sequence_number] = MemoryMessage(entry)
        to.update_ready([moved.key], now_ms)

    # --- sessions ---

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Apply a session request to a group and its messages; ``group`` None: the next group that can be locked."""
        memory_queue = self._queues[queue.name]
        self._look_at_clock(now_ms)
        if request.verb is SessionVerb.LOCK:
            memory_queue.tidy(now_ms)
            memory_queue.look_ahead(self._skew.next_ms(queue.number))
        if group is None:
            free = (messages[0].entry.group for messages in memory_queue.ready_queue(now_ms))
            group = next((name for name in free if name is not None and not memory_queue.is_held(name, now_ms)), None)
        if group is None:
            return SessionAnswer(SettleResult.HELD)
        is_held = memory_queue.is_held(group, now_ms)
        verdict, group_lock = sessions.decide(
            memory_queue.group_lock(group), request, now_ms, is_held=is_held, token=queue.last_token + 1
        )
        if verdict is not SettleResult.DONE:
            return SessionAnswer(verdict, group)
        queue.last_token += request.verb is SessionVerb.LOCK
        if request.verb is SessionVerb.SET_STATE:
            memory_queue.states[group] = request.state
        if request.verb in {SessionVerb.CLOSE, SessionVerb.PARK}:
            for message in memory_queue.all_of(group):
                if message.hold and message.hold.token is not None and message.hold.token == request.token:
                    memory_queue.give_back(message, None, now_ms)
        memory_queue.set_gate(group, group_lock)
        memory_queue.update_ready([group], now_ms)
        state = memory_queue.states.get(group) if request.verb is SessionVerb.GET_STATE else None
        return SessionAnswer(verdict, group, group_lock, state)

    def parked(self, queue: QueueInfo, limit: int, after: tuple[int, str] = FIRST_PARKED) -> list[ParkedGroup]:
        """Return the parked groups after a time and a name, in the order of parking."""
        group_locks = self._queues[queue.name].group_locks.items()
        rows = [
            (group_lock.parked_ms or 0, group or "", group_lock.note)
            for group, group_lock in group_locks
            if group_lock.note is not None
        ]
        listed = [row for row in sorted(rows) if row[:2] > after]
        return [ParkedGroup(group, note, parked_ms) for parked_ms, group, note in listed[:limit]]

    # --- producers ---

    def last_revision(self, queue: QueueInfo, group: str) -> int | None:
        """Return the last revision that the queue assigned in a group; None: it does not number the group."""
        return self._queues[queue.name].revisions.get(group)

    def begin_numbering(self, queue: QueueInfo, group: str, revision: int) -> None:
        """Let the queue number a group; its next message gets this revision."""
        revisions = self._queues[queue.name].revisions
        revisions[group] = numbering.begun(revisions.get(group), revision, group)

    def writer(self, queue: QueueInfo, group: str, request: writers.WriterRequest, now_ms: int) -> writers.WriterAnswer:
        """Apply a request about the lease of a group's writer."""
        leases = self._queues[queue.name].writers
        answer = writers.decide(leases.get(group), request, now_ms)
        if answer.lease is not None:
            leases[group] = answer.lease
        return answer

    def priority(self, queue: QueueInfo, group: str) -> int:
        """Return the priority of a group."""
        return self._queues[queue.name].priorities.get(group, 0)

    def set_priority(self, queue: QueueInfo, group: str, priority: int, now_ms: int) -> None:
        """Set the priority of a group."""
        self._queues[queue.name].set_priority(group, priority, now_ms)

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
        selected = [messages[number] for number in sorted(messages) if number > after]
        return [
            message.entry
            for message in selected
            if (is_all or not message.done)
            and (not deferred or delivery.is_deferred(message.hold))
            and group in {None, message.entry.group}
        ][:limit]

    def log(self, queue: QueueInfo, span: LogSpan, limit: int) -> list[LogEntry]:
        """Return messages of the log, acknowledged or not, in order."""
        return self._queues[queue.name].log(span, limit)

    def log_time(self, queue: QueueInfo, at_ms: int) -> int:
        """Return the number before the first message that was sent at a time or later."""
        messages = self._queues[queue.name].messages
        places = [(number, messages[number].entry.sent_ms) for number in sorted(messages)]
        return find_time(queue, at_ms, lambda after: next((place for place in places if place[0] > after), None))

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """Return the message counts of a queue."""
        holds = [message.hold for message in self._queues[queue.name].messages.values()]
        deferred = sum(map(delivery.is_deferred, holds))
        hidden = [hold for hold in holds if hold is not None and delivery.is_hidden(hold, now_ms)]
        leased = sum(hold.token is not None for hold in hidden)
        parked = sum(group_lock.note is not None for group_lock in self._queues[queue.name].group_locks.values())
        return Depth(queue.depth, leased, len(hidden) - leased, queue.last, deferred, parked)

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str | None] = ()) -> list[GroupView]:
        """Return the groups that have messages, oldest head first."""
        memory_queue, selected = self._queues[queue.name], set(names)
        listed = [group for group in memory_queue.groups() if not selected or group[0].entry.group in selected]
        if selected:
            listed = list({group[0].entry.group: group for group in reversed(listed)}.values())[::-1]
        views = []
        for group in listed[:limit]:
            head, group_lock = group[0], memory_queue.group_lock(group[0].entry.group)
            holds = [message.hold for message in group]
            views.append(sessions.view(head.entry, len(group), group_lock, head.hold, holds, now_ms))
        return views
