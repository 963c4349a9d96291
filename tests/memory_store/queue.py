"""One queue in memory, with core's rules applied to all its messages."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from inturn.core import limits
from inturn.core.queue import delivery, kept_log, ready_groups, redelivery, sessions
from inturn.core.queue.clock_skew import ExpiredSpan, Span
from inturn.core.queue.deduplication import DedupKey, RememberedSend
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.incarnation import IncarnationStart
from inturn.core.queue.kept_log import LogBlock, LogEntry, LogSpan, Removable
from inturn.core.queue.messages import QueueInfo, StoredMessage
from inturn.core.queue.ready_groups import ReadyPlace
from inturn.core.queue.sessions import OPEN, GroupLock
from inturn.core.queue.writers import WriterLease

Key: TypeAlias = int | str
"""A group: its name, or the sequence number of a message without a group."""


@dataclass
class MemoryMessage:
    """A message and the state of its delivery."""

    entry: StoredMessage
    done: bool = False
    hold: DeliveryState | None = None

    @property
    def key(self) -> Key:
        """The message's group."""
        return self.entry.sequence_number if self.entry.group is None else self.entry.group

    @property
    def until_ms(self) -> int | None:
        """When its lease or delay ends."""
        return None if self.hold is None else self.hold.until_ms


@dataclass
class MemoryQueue:
    """A queue and all its data.

    ``ready_places`` maps the sequence numbers of the first messages of ready groups to the groups' places in the ready
    queue.
    """

    info: QueueInfo
    messages: dict[int, MemoryMessage] = field(default_factory=dict)
    known: dict[DedupKey, RememberedSend] = field(default_factory=dict)
    group_locks: dict[str | None, GroupLock] = field(default_factory=dict)
    states: dict[str, bytes | None] = field(default_factory=dict)
    history: list[IncarnationStart] = field(default_factory=list)
    ready_places: dict[int, ReadyPlace] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    writers: dict[str, WriterLease] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    blocks: list[LogBlock] = field(default_factory=list)

    def group_lock(self, group: str | None) -> GroupLock:
        """Return the lock of a group."""
        return self.group_locks.get(group, OPEN)

    def all_of(self, group: str | None) -> list[MemoryMessage]:
        """Return the pending messages of a group, including deferred ones."""
        every = [self.messages[number] for number in sorted(self.messages)]
        return [message for message in every if message.entry.group == group and not message.done]

    def groups(self) -> list[list[MemoryMessage]]:
        """Return the pending messages of each group that are not deferred, in order of the groups' heads."""
        groups: dict[Key, list[MemoryMessage]] = {}
        for number in sorted(self.messages):
            message = self.messages[number]
            if not message.done and not delivery.is_deferred(message.hold):
                groups.setdefault(message.key, []).append(message)
        return list(groups.values())

    def is_held(self, group: str, now_ms: int) -> bool:
        """Return whether a receiver holds a message of a group."""
        return any(delivery.is_leased(message.hold, now_ms) for message in self.all_of(group))

    # --- the ready queue ---

    def _free(self, now_ms: int) -> list[list[MemoryMessage]]:
        """Return the groups that can be received, the oldest first."""
        free = []
        for group in self.groups():
            is_closed = sessions.excludes_receivers(self.group_lock(group[0].entry.group))
            if ready_groups.is_ready(group[0].hold, [message.hold for message in group], now_ms, is_closed=is_closed):
                free.append(group)
        return free

    def ready_queue(self, now_ms: int) -> list[list[MemoryMessage]]:
        """Return the groups that can be received, in the order of the ready queue."""
        heads = {group[0].entry.sequence_number: group for group in self._free(now_ms)}
        return [heads[number] for number in sorted(heads, key=lambda number: (self.ready_places[number], number))]

    def add(self, message: MemoryMessage, now_ms: int) -> None:
        """Add a message that was just sent."""
        number = message.entry.sequence_number
        self.messages[number] = message
        if any(free[0] is message for free in self._free(now_ms)):
            self.ready_places[number] = self._ahead(ReadyPlace(number), message)

    def update_ready(self, touched: Iterable[Key], now_ms: int) -> None:
        """Add the changed groups that are ready now to the ready queue, in this order."""
        free = {group[0].key: group[0] for group in self._free(now_ms)}
        heads = {head.entry.sequence_number for head in free.values()}
        self.ready_places = {number: place for number, place in self.ready_places.items() if number in heads}
        for key in ready_groups.in_join_order(list(touched)):
            head = free.get(key)
            if head is not None and (number := head.entry.sequence_number) not in self.ready_places:
                is_back = ready_groups.is_requeued(head.hold)
                place, self.info.last_requeue_place = ready_groups.place_of_joining(
                    ReadyPlace(*self.info.last_requeue_place), number, self.info.last, is_back=is_back
                )
                self.ready_places[number] = place if is_back else self._ahead(place, head)

    def _ahead(self, place: ReadyPlace, head: MemoryMessage) -> ReadyPlace:
        """Return the place of a group that was not nacked, by its priority."""
        lead = ready_groups.lead_of(self.priorities.get(head.entry.group or "", 0), self.info.settings)
        return ready_groups.moved_forward(place, lead, self.info.number)

    def set_priority(self, group: str, priority: int, now_ms: int) -> None:
        """Set the priority of a group, and its place if it is ready and was not nacked."""
        self.priorities[group] = priority
        for head, *_ in self._free(now_ms):
            number = head.entry.sequence_number
            if head.key == group and number in self.ready_places and not ready_groups.is_requeued(head.hold):
                del self.ready_places[number]
                self.update_ready([group], now_ms)

    # --- automatic ends ---

    def over(self, now_ms: int) -> list[Key]:
        """Unlock groups whose lock has ended; return them, and groups with ended leases and delays, by deadline."""
        ends: list[tuple[int | None, int, Key]] = [
            (message.until_ms, number, message.key) for number, message in self.messages.items()
        ]
        ends += [(group_lock.until_ms, 0, group) for group, group_lock in self.group_locks.items() if group is not None]
        for name, group_lock in self.group_locks.items():
            if group_lock.token is not None and not sessions.is_locked(group_lock, now_ms):
                self.group_locks[name] = sessions.unlocked(group_lock)
        return [key for _, _, key in sorted(end for end in ends if end[0] is not None and end[0] <= now_ms)]

    def tidy(self, now_ms: int) -> None:
        """Remove messages past their retention, and end expired locks and leases."""
        retired_ms = delivery.retired_ms(self.info.settings, now_ms)
        touched: list[Key] = []
        for number in sorted(self.messages):
            message = self.messages[number]
            if retired_ms is None or message.entry.sent_ms > retired_ms:
                break
            self.remove(number)
            touched.append(message.key)
        touched += self.over(now_ms)
        heads = [group[0] for group in self.groups()]
        for number, message in self.messages.items():
            hold = message.hold
            if hold is not None and hold.until_ms is not None and not delivery.is_hidden(hold, now_ms):
                is_head = message in heads
                message.hold = redelivery.ended(hold, self.info.settings, number, is_head=is_head, now_ms=now_ms)
        self.update_ready(touched, now_ms)

    def look_ahead(self, noted_ms: int | None) -> None:
        """Set the next end of a lease, a delay, a lock or a recorded span."""
        ends = [noted_ms, *(message.until_ms for message in self.messages.values())]
        ends += [group_lock.until_ms for group_lock in self.group_locks.values()]
        self.info.due_ms = min((end for end in ends if end is not None), default=None)

    def spans(self) -> Iterator[Span]:
        """Yield the holds and locks that end automatically."""
        for number, message in self.messages.items():
            if message.hold is not None and message.hold.until_ms is not None:
                yield Span("hold", self.info.number, number, message.hold.since_ms, message.hold.until_ms)
        for group, group_lock in self.group_locks.items():
            if group is not None and group_lock.until_ms is not None:
                yield Span("lock", self.info.number, group, group_lock.since_ms or 0, group_lock.until_ms)

    def end_span(self, expired: ExpiredSpan) -> None:
        """Write the end of a hold or lock, unless it has changed since it was noted."""
        (kind, _, key, *span), since_ms, until_ms = expired
        message = self.messages.get(key) if isinstance(key, int) else None
        group_lock = self.group_lock(key) if isinstance(key, str) else OPEN
        if message is not None and message.hold is not None and [message.hold.since_ms, message.hold.until_ms] == span:
            message.hold = message.hold._replace(since_ms=since_ms, until_ms=until_ms)
        if kind == "lock" and [group_lock.since_ms, group_lock.until_ms] == span:
            self.group_locks[str(key)] = group_lock._replace(since_ms=since_ms, until_ms=until_ms)

    # --- changes ---

    def give_back(self, message: MemoryMessage, delay_ms: int | None, now_ms: int) -> None:
        """End a lease at the receiver's request."""
        is_head = any(message is group[0] for group in self.groups())
        hold, number = message.hold or DeliveryState(None), message.entry.sequence_number
        message.hold = redelivery.nacked(
            hold, self.info.settings, number, is_head=is_head, delay_ms=delay_ms, now_ms=now_ms
        )

    def done(self, message: MemoryMessage) -> None:
        """Remove a message that was acknowledged or moved, unless the log keeps it."""
        self.info.depth -= 1
        message.done, message.hold = True, None
        number = message.entry.sequence_number
        if number <= self.info.removed_to:
            del self.messages[number]

    def remove(self, number: int) -> None:
        """Remove a message, even if a reader has yet to read it."""
        self.info.depth -= not self.messages[number].done
        del self.messages[number]

    def set_gate(self, group: str | None, group_lock: GroupLock) -> None:
        """Set the lock of a group; the leases under its lock end with the lock."""
        self.group_locks[group] = group_lock
        for message in self.all_of(group):
            if message.hold and message.hold.token is not None and message.hold.token == group_lock.token:
                message.hold = sessions.within(group_lock, message.hold)

    # --- the log ---

    def log(self, span: LogSpan, limit: int) -> list[LogEntry]:
        """Return the messages of a part of the log."""
        every = [self.messages[number] for number in sorted(self.messages)]
        return [LogEntry(message.entry, message.done) for message in every if span.has(message.entry)][:limit]

    def trim_log(self, now_ms: int) -> None:
        """Measure the next full block, and remove acknowledged messages that may be removed."""
        if self.info.settings.keeps_log:
            block = kept_log.next_block(
                self.info, self.blocks[-1].last if self.blocks else None, min(self.messages, default=None)
            )
            if block is not None and block[1] <= self.info.last:
                after, last = block
                entries = [message.entry for number, message in self.messages.items() if after < number <= last]
                self.blocks.append(LogBlock(last, sum(len(_bytes(entry.body)) for entry in entries)))
        self.remove_done(kept_log.removable(self.info, self.blocks, now_ms))

    def remove_done(self, removable: Removable) -> None:
        """Remove the oldest acknowledged messages of the log, as far as they may be removed."""
        done = [number for number in sorted(self.messages) if self.messages[number].done]
        for number in done[: limits.EXPIRE_AT_ONCE]:
            if not removable.has(number, self.messages[number].entry.sent_ms):
                break
            del self.messages[number]


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body
