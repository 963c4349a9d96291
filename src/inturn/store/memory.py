"""Queues in memory: the rules as they are written, run over plain lists. The oracle that other stores are held to.

Nothing here is fast or durable. Every question is answered by looking at all messages.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from inturn.core import dedup, delivery
from inturn.core.delivery import Act, Change, Hold, Verdict
from inturn.core.envelope import Delivery, Depth, Draft, Entry, GroupView, QueueInfo, Sent, Want, first_number
from inturn.store.memory_pipelines import MemoryPipelines


@dataclass
class _Kept:
    """One message, and what is known of its delivery."""

    entry: Entry
    done: bool = False
    hold: Hold | None = None


@dataclass
class _Queue:
    """A queue and all that is in it, by sequence number."""

    info: QueueInfo
    messages: dict[int, _Kept] = field(default_factory=dict)
    known: dict[tuple[str, str], dedup.Remembered] = field(default_factory=dict)


class MemoryStore:
    """A store that lasts as long as its process."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._numbers = 0
        self.pipelines = MemoryPipelines()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        before = copy.deepcopy(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return {name: queue.info for name, queue in self._queues.items()}

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Make, change or remove a queue."""
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
            info.depth = 0
        self._forget_read(queue)

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Put messages at the end of a queue."""
        self._look_at_clock(now_ms)
        return [self._send_one(self._queues[queue.name], draft, now_ms) for draft in drafts]

    def _send_one(self, queue: _Queue, draft: Draft, now_ms: int) -> Sent:
        info = queue.info
        key = dedup.known_by(draft, info.settings)
        if key is not None:
            first = queue.known.get(key)
            if first is not None and dedup.is_same(first, now_ms):
                return Sent(first.sequence_number, duplicate=True)
        info.last += 1
        info.depth += 1
        if key is not None:
            queue.known[key] = dedup.remembered(info.last, info.settings, now_ms)
        body, content, group, revision, dedup_id, delay_ms, attributes = draft
        entry = Entry(
            info.last,
            body,
            content,
            group,
            revision,
            dedup_id,
            attributes,
            now_ms,
            origin=None,
            came_from=None,
            note=None,
        )
        delay_ms = info.settings.delay_ms if delay_ms is None else delay_ms
        hold = Hold(now_ms + delay_ms, since_ms=now_ms) if delay_ms else None
        queue.messages[info.last] = _Kept(entry, hold=hold)
        return Sent(info.last, duplicate=False)

    def receive(self, queue: QueueInfo, wants: Sequence[Want], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        return [self._receive_one(queue, want, now_ms) for want in wants]

    def _receive_one(self, queue: QueueInfo, want: Want, now_ms: int) -> list[Delivery]:
        limit, visibility_ms, group = want
        kept = self._queues[queue.name]
        self._look_at_clock(now_ms)
        self._tidy(kept, now_ms)
        if visibility_ms is None:
            visibility_ms = queue.settings.visibility_ms
        taken: list[_Kept] = []
        for messages in self._free(kept, now_ms):
            if len(taken) == limit:
                break
            if group is None or messages[0].entry.group == group:
                waiting = self._without_exhausted(kept, messages, now_ms)
                number = delivery.takes([message.hold for message in waiting], limit - len(taken), now_ms)
                taken += waiting[:number]
        queue.tokens += bool(taken)
        holds = [] if taken else [message.hold for message in kept.messages.values()]
        queue.due_ms = min((hold.until_ms for hold in holds if hold and hold.until_ms is not None), default=None)
        for message in taken:
            message.hold = delivery.leased(message.hold, queue.tokens, visibility_ms, now_ms)
        return [
            Delivery(each.entry, queue.tokens, each.hold.until_ms or 0, each.hold.attempts, each.hold.first_ms)
            for each in taken
            if each.hold
        ]

    def _look_at_clock(self, now_ms: int) -> None:
        """If it went back, nothing waits longer than it was to wait."""
        for queue in self._queues.values():
            for message in queue.messages.values():
                message.hold = message.hold and delivery.set_right(message.hold, now_ms)

    def _free(self, queue: _Queue, now_ms: int) -> list[list[_Kept]]:
        """The groups of which something can be received, the oldest first."""
        return [
            group
            for group in self._groups(queue)
            if not any(delivery.blocks_all(each.hold, now_ms) for each in group)
            and not delivery.is_hidden(group[0].hold, now_ms)
        ]

    @staticmethod
    def _groups(queue: _Queue) -> list[list[_Kept]]:
        """The pending messages of each group, in order of their heads."""
        groups: dict[Any, list[_Kept]] = {}
        for number in sorted(queue.messages):
            message = queue.messages[number]
            if not message.done:
                name = message.entry.group
                groups.setdefault(("no group", number) if name is None else name, []).append(message)
        return list(groups.values())

    def _tidy(self, queue: _Queue, now_ms: int) -> None:
        """Leases that are over are given back, what is past its retention goes, what was tried too often moves."""
        retention_s = queue.info.settings.retention_s
        for number in sorted(queue.messages):
            message = queue.messages[number]
            if retention_s is None or message.entry.sent_ms > now_ms - retention_s * 1000:
                break
            self._remove(queue, number)
        for group in self._groups(queue):
            for message in group:
                hold = message.hold
                if hold is not None and hold.until_ms is not None and not delivery.is_hidden(hold, now_ms):
                    message.hold = delivery.given_back(hold, is_head=message is group[0])

    def _without_exhausted(self, queue: _Queue, group: list[_Kept], now_ms: int) -> list[_Kept]:
        """What is left of a group when the messages at its head that were tried too often are moved away."""
        settings = queue.info.settings
        to = self._queues.get(settings.dead_letter or "")
        while to is not None and group and delivery.is_exhausted(group[0].hold, settings.max_receives):
            self._move(queue, group[0], to, delivery.exhausted(settings.max_receives), now_ms)
            group = group[1:]
        return group

    def settle(self, queue: QueueInfo, changes: Sequence[Change], now_ms: int) -> list[Verdict]:
        """Acknowledge, extend, give back or move messages."""
        self._look_at_clock(now_ms)
        return [self._settle_one(self._queues[queue.name], change, now_ms) for change in changes]

    def _settle_one(self, queue: _Queue, change: Change, now_ms: int) -> Verdict:
        message = queue.messages.get(change.sequence_number)
        if message is None or message.done:
            return Verdict.GONE
        verdict = delivery.verdict(message.hold, change, now_ms)
        if verdict is not Verdict.DONE:
            return verdict
        if change.act is Act.ACK:
            queue.info.depth -= 1
            message.done, message.hold = True, None
            self._forget_read(queue)
        elif change.act is Act.EXTEND:
            message.hold = delivery.extended(message.hold, change.ms, now_ms)
        elif change.act is Act.NACK:
            group = next(group for group in self._groups(queue) if message in group)
            hold = message.hold or Hold(None)
            message.hold = delivery.given_back(hold, is_head=message is group[0], delay_ms=change.ms, now_ms=now_ms)
        elif change.to is not None:
            self._move(queue, message, self._queues[change.to], change.note, now_ms)
        return Verdict.DONE

    def _move(self, queue: _Queue, message: _Kept, to: _Queue, note: str | None, now_ms: int) -> None:
        """A message that comes back to where it was first sent is in its old place again."""
        entry = message.entry
        origin = entry.origin or entry.sequence_number
        number = origin
        if not to.info.has_given(origin):
            to.info.last += 1
            number = to.info.last
        queue.info.depth -= 1
        to.info.depth += 1
        message.done, message.hold = True, None
        self._forget_read(queue)
        to.messages[number] = _Kept(
            entry._replace(
                sequence_number=number,
                sent_ms=now_ms,
                origin=None if number == origin else origin,
                came_from=queue.info.name,
                note=note,
            )
        )

    def _remove(self, queue: _Queue, number: int) -> None:
        queue.info.depth -= not queue.messages[number].done
        del queue.messages[number]

    @staticmethod
    def _forget_read(queue: _Queue) -> None:
        """What is acknowledged and passed by every reader is kept no longer."""
        read_to = queue.info.read_to
        for number in [number for number, each in queue.messages.items() if each.done and number <= read_to]:
            del queue.messages[number]

    def read(self, queue: QueueInfo, after: int, limit: int, *, pending: bool = False) -> list[Entry]:
        """The messages after a sequence number."""
        messages = self._queues[queue.name].messages
        numbers = [n for n in sorted(messages) if n > after and not (pending and messages[n].done)]
        return [messages[number].entry for number in numbers[:limit]]

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """How much is in a queue."""
        holds = [each.hold for each in self._queues[queue.name].messages.values()]
        hidden = [hold for hold in holds if hold is not None and delivery.is_hidden(hold, now_ms)]
        leased = sum(hold.token is not None for hold in hidden)
        return Depth(queue.depth, leased, len(hidden) - leased, queue.last)

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Groups with messages, those whose head is oldest first."""
        kept = self._queues[queue.name]
        wanted = set(names)
        found = [group for group in self._groups(kept) if not wanted or group[0].entry.group in wanted]
        return [_view(group, now_ms) for group in found[:limit]]


def _view(group: list[_Kept], now_ms: int) -> GroupView:
    head = group[0]
    why, hold = delivery.blocking(head.hold, [each.hold for each in group], now_ms)
    return GroupView(
        head.entry.group,
        len(group),
        head.entry.sequence_number,
        head.entry.sent_ms,
        why,
        hold.until_ms if hold else None,
        hold.token if hold else None,
        head.hold.attempts if head.hold else 0,
    )
