"""SQS FIFO queues, modelled by their three delivery rules."""

from collections import deque
from heapq import heappop, heappush
from operator import itemgetter
from typing import ClassVar
from zlib import crc32

import msgspec

from inturn.core.override import override
from inturn.lab.design import Design, Disposition, SimulationLog
from inturn.lab.draws import AttemptResult, Draws
from inturn.lab.knobs import SECOND_US, Knobs
from inturn.lab.workload import Workload

_NEVER = 1 << 62


class ReceiveTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of a queue with polling consumers.

    Attributes:
        receive_us: from the queue's answer to a receive until the consumer can begin.
        message_us: time of a consumer for each message besides the handler.
        delete_us: time for the deletion of a batch.
        calls_per_s: maximum number of receives per second; None if there is no limit.
        partition_messages_per_s: maximum number of messages per second of each partition (knob ``partitions``), as with
            high throughput; None if there is no limit. The hash that selects a group's partition is this model's own.
    """

    receive_us: int = 5_000
    message_us: int = 0
    delete_us: int = 5_000
    calls_per_s: int | None = 300
    partition_messages_per_s: int | None = None


HIGH_THROUGHPUT = ReceiveTimes(calls_per_s=None, partition_messages_per_s=3_000)
"""The constants of a FIFO queue with high throughput."""


class ReceivedBatch:
    """A batch at a consumer.

    Attributes:
        consumer: the consumer.
        messages: all messages of the batch, by their key.
        to_return: messages to be made visible again, by their key; messages that are only in ``messages`` are deleted.
        is_alive: whether the consumer receives again at the end.
    """

    __slots__ = ("consumer", "is_alive", "messages", "to_return")

    def __init__(self, consumer: int) -> None:
        self.consumer = consumer
        self.messages: dict[int, list[int]] = {}
        self.to_return: dict[int, list[int]] = {}
        self.is_alive = True


class FifoQueue:
    """One run of a FIFO queue.

    Args:
        load: messages.
        draws: the random choices.
        knobs: the knobs.
        times: constants.
    """

    def __init__(self, load: Workload, draws: Draws, knobs: Knobs, times: ReceiveTimes) -> None:
        self.load, self.draws, self.knobs, self.times = load, draws, knobs, times
        self.log = SimulationLog(load, knobs.consumers)
        self.queued: list[deque[int]] = [deque() for _ in range(load.keys)]
        self.blocked = bytearray(load.keys)
        """1 for a key that is ready or has messages in flight."""
        self.ready_keys: list[tuple[int, int]] = []
        """Keys that may be received: position (the number of the oldest message, or of the return) and key."""
        self.idle: deque[int] = deque(range(knobs.consumers))
        self.heap: list[tuple[int, int, ReceivedBatch | int]] = []
        """Events: time, number, and the batch that ends, or the consumer that has restarted."""
        self.number = self.arrived = 0
        self.next_call_us = 0
        self.partition = [crc32(text.encode()) % knobs.partitions for text in load.key_texts()]
        self.next_of_partition_us = [0] * knobs.partitions
        self.accepted_us: dict[int, int] = {}
        self.tried: dict[int, int] = {}
        self.pending_failures = draws.pending_failures()

    def run(self) -> SimulationLog:
        """Run until there are no more events."""
        arrival, heap, ready_keys, idle = self.load.arrival_us, self.heap, self.ready_keys, self.idle
        total, next_us = len(arrival), arrival[0]
        while True:
            if heap and heap[0][0] < next_us:
                now_us, _, event = heappop(heap)
                if isinstance(event, int):
                    idle.append(event)
                else:
                    self._finish(event)
            elif self.arrived < total:
                now_us = next_us
                self._accept(self.arrived, now_us)
                self.arrived += 1
                next_us = arrival[self.arrived] if self.arrived < total else _NEVER
                if next_us == now_us:
                    continue  # messages that arrive at the same time can be in one batch
            else:
                break
            while ready_keys and idle:
                self._receive(idle.popleft(), now_us)
        self.log.attempts.sort(key=itemgetter(1))
        return self.log

    def _accept(self, message: int, now_us: int) -> None:
        """Add a sent message to the queue, unless it repeats one within the deduplication window."""
        first = self.load.first[message]
        if first != message:
            accepted_us = self.accepted_us.get(first, self.load.arrival_us[first])
            if now_us - accepted_us < self.knobs.dedup_s * SECOND_US:
                self.log.disposition[message] = Disposition.DUPLICATE
                self.log.notes.append((now_us, message, "dropped: its deduplication id was seen within the window"))
                return
            self.accepted_us[first] = now_us
        key = self.load.key[message]
        self.queued[key].append(message)
        if not self.blocked[key]:
            self.blocked[key] = 1
            heappush(self.ready_keys, (message, key))

    def _receive(self, consumer: int, now_us: int) -> None:
        """Fill a batch from the first ready key, then from the next ones, and handle it."""
        if self.times.calls_per_s is not None:
            now_us = max(now_us, self.next_call_us)
            self.next_call_us = now_us + SECOND_US // self.times.calls_per_s
        received, remaining = ReceivedBatch(consumer), self.knobs.batch
        messages: list[int] = []
        ready_keys, queued = self.ready_keys, self.queued
        while ready_keys and remaining:
            _, key = heappop(ready_keys)
            queue = queued[key]
            if len(queue) <= remaining:
                own = list(queue)
                queue.clear()
            else:
                own = [queue.popleft() for _ in range(remaining)]
            remaining -= len(own)
            received.messages[key] = own
            messages += own
        if self.times.partition_messages_per_s is not None:
            now_us = self._throttled_us(received, now_us, self.times.partition_messages_per_s)
        deadline_us = now_us + int(self.knobs.visibility_s * SECOND_US)
        mark = len(self.log.attempts)
        end_us = self._handle(received, messages, now_us + self.times.receive_us)
        done_us = end_us + self.times.delete_us
        self.number += 2
        if received.is_alive and done_us <= deadline_us:
            heappush(self.heap, (done_us, self.number, received))
            return
        # The batch becomes visible again, since it is deleted too late or never.
        self._leave_unacked(mark, received, deadline_us)
        back_us = done_us if received.is_alive else end_us + int(self.knobs.restart_s * SECOND_US)
        heappush(self.heap, (back_us, self.number, consumer))
        received.is_alive = False
        heappush(self.heap, (deadline_us, self.number - 1, received))

    def _throttled_us(self, received: ReceivedBatch, now_us: int, most_per_s: int) -> int:
        """Return the time at which the limits of a batch's partitions allow it."""
        next_us, places = self.next_of_partition_us, {self.partition[key] for key in received.messages}
        now_us = max(now_us, *(next_us[place] for place in places))
        for key, own in received.messages.items():
            place = self.partition[key]
            next_us[place] = max(next_us[place], now_us) + len(own) * SECOND_US // most_per_s
        return now_us

    def _handle(self, received: ReceivedBatch, messages: list[int], at_us: int) -> int:
        """Handle a batch, and return the time of its end."""
        append, disposition, failing = self.log.attempts.append, self.log.disposition, self.pending_failures.messages
        duration_us, message_us, consumer = self.draws.duration_us, self.times.message_us, received.consumer
        key_of, back = self.load.key, received.to_return
        for message in messages:
            if back and (key := key_of[message]) in back:
                back[key].append(message)  # its group waits for a failed message
                continue
            begin_us = at_us
            at_us += duration_us[message]
            if message not in failing:
                append((begin_us, at_us, consumer, message, 0))
                disposition[message] = 1
                at_us += message_us
                continue
            result = self.pending_failures.next(message)
            append((begin_us, at_us, consumer, message, int(result)))
            if result in {AttemptResult.APPLIED, AttemptResult.APPLIED_UNACKED}:
                disposition[message] = Disposition.APPLIED
            if result in {AttemptResult.CRASHED, AttemptResult.APPLIED_UNACKED}:
                self.log.notes.append(
                    (at_us, message, f"consumer {consumer} died; its batch is hidden until the visibility timeout")
                )
                received.is_alive = False
                return at_us
            if result is AttemptResult.FAILED:
                self._fail(message, received, at_us)
        return at_us

    def _fail(self, message: int, received: ReceivedBatch, at_us: int) -> None:
        tried = self.tried[message] = self.tried.get(message, 0) + 1
        if tried >= self.knobs.max_attempts and self.log.disposition[message] != Disposition.APPLIED:
            self.log.disposition[message] = Disposition.DEAD_LETTER
            self.log.notes.append((at_us, message, f"dead-lettered after attempt {tried}"))
            return
        received.to_return[self.load.key[message]] = [message]
        self.log.notes.append(
            (at_us, message, "failed: it and the later messages of its group in the batch are made visible again")
        )

    def _leave_unacked(self, mark: int, received: ReceivedBatch, deadline_us: int) -> None:
        """Note that no message of a batch will be deleted."""
        attempts = self.log.attempts
        for index in range(mark, len(attempts)):
            begin_us, end_us, consumer, message, result = attempts[index]
            if result == AttemptResult.APPLIED:
                attempts[index] = (begin_us, end_us, consumer, message, int(AttemptResult.APPLIED_UNACKED))
                self.log.notes.append((deadline_us, message, "visible again: it was not deleted in time"))
                self.tried[message] = self.tried.get(message, 0) + 1
        received.to_return = {
            key: [message for message in own if self._is_receivable(message)] for key, own in received.messages.items()
        }

    def _is_receivable(self, message: int) -> bool:
        """Return whether a message that was not deleted can be received again; otherwise it is a dead letter."""
        is_dead = self.log.disposition[message] == Disposition.DEAD_LETTER
        return not is_dead and self.tried.get(message, 0) < self.knobs.max_attempts

    def _finish(self, received: ReceivedBatch) -> None:
        """Delete the done messages of a batch, and make the rest visible again in order."""
        queued, ready_keys = self.queued, self.ready_keys
        for key in received.messages:
            back = received.to_return.get(key)
            queue = queued[key]
            if back:
                queue.extendleft(reversed(back))
                heappush(ready_keys, (self.arrived, key))
            elif queue:
                heappush(ready_keys, (queue[0], key))
            else:
                self.blocked[key] = 0
        if received.is_alive:
            self.idle.append(received.consumer)


class SqsFifo(Design):
    """An SQS FIFO queue: batches of a group, which is blocked while any message of it is in flight.

    Source: Amazon SQS Developer Guide, "FIFO queue delivery logic", "Exactly-once processing", "Visibility timeout" and
    "Quotas" (300 calls per second, or with ``HIGH_THROUGHPUT`` 3,000 messages per second and partition); AWS's article
    on auctions for the order within a batch. A batch is deleted at its end; a failed message and the later ones of its
    group become visible at once, and the group moves to the end of the ready queue. The deduplication id is group and
    revision.
    """

    name: ClassVar[str] = "sqs-fifo"
    title: ClassVar[str] = "SQS FIFO queue"
    source: ClassVar[str] = "Amazon SQS Developer Guide: FIFO delivery logic, visibility timeout, quotas"
    validated_against: ClassVar[str | None] = "inturn serve 0.1.0 (order; not the service itself)"
    keeps_order: ClassVar[bool] = True

    def __init__(self, times: ReceiveTimes | None = None) -> None:
        self.times = times or ReceiveTimes()

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        return FifoQueue(load, draws, knobs, self.times).run()
