"""Brokers that push messages to consumers, with a prefetch limit, as RabbitMQ does: one loop for all such designs.

A consumer handles messages in the order in which they were sent to it, so begin and end of a handling are known when
the broker sends the message; a message costs one event. When a consumer dies, its events are cancelled.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush

import msgspec

from inturn.lab.design import Disposition, SimulationLog
from inturn.lab.draws import AttemptResult, Draws
from inturn.lab.knobs import SECOND_US, Knobs
from inturn.lab.workload import Workload

_NEVER = 1 << 62


class PushTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of a broker that pushes.

    The defaults are fitted on four of ten set-ups that were measured with RabbitMQ 3.10.8 (four consumers without
    failures, and with prefetch 10; one consumer with prefetch 10; a consistent hash with prefetch 10); the other six
    are held out. tests/lab/test_lab_calibration.py contains all ten.

    Attributes:
        delivery_us: from the broker's decision to send a message until the consumer can begin with it.
        ack_us: from the end of a handling until the broker has the acknowledgement.
        overhead_us: time that a consumer needs for each message besides the handler.
        jitter_us: maximum random addition to the overhead.
    """

    delivery_us: int = 20
    ack_us: int = 20
    overhead_us: int = 0
    jitter_us: int = 150


class Requeue(Enum):
    """The place of a message that is requeued."""

    OLD_PLACE = "old place"  # by its number in the queue
    NEAR_HEAD = "near the head"  # before all undelivered messages, after other requeued ones
    BACK = "back"


@dataclass(slots=True)
class PushLayout:
    """The queues and their consumers.

    Attributes:
        queue_of: queue of each message.
        queues: number of queues.
        subscriptions: queue and consumer of each subscription.
        standby: whether one subscription of a queue is active at a time, and the others stand by.
        consumers: number of consumers.
    """

    queue_of: Sequence[int]
    queues: int
    subscriptions: list[tuple[int, int]]
    consumers: int
    standby: bool = False


@dataclass(slots=True)
class PushRules:
    """The rules of a broker that pushes.

    Attributes:
        requeue: place of a requeued message.
        delivery_limit: attempts after which a message is dead-lettered; None if there is no limit.
        times: constants.
        deduplicates: whether the effect records the message's id, so that no message is applied twice.
    """

    requeue: Requeue
    delivery_limit: int | None = None
    times: PushTimes = field(default_factory=PushTimes)
    deduplicates: bool = False


class PushBroker:
    """One run of a broker that pushes.

    Args:
        load: messages.
        draws: the random choices.
        knobs: the knobs.
        layout: the queues and their consumers.
        rules: the rules of the broker.
    """

    def __init__(self, load: Workload, draws: Draws, knobs: Knobs, layout: PushLayout, rules: PushRules) -> None:
        self.load, self.draws, self.knobs, self.layout, self.rules = load, draws, knobs, layout, rules
        self.log = SimulationLog(load, layout.consumers)
        self.ready: list[deque[int]] = [deque() for _ in range(layout.queues)]
        self.returned: list[list[int]] = [[] for _ in range(layout.queues)]
        """Requeued messages that are not in their original place; sent before the messages in ``ready``."""
        self.ready_subscriptions: list[deque[int]] = [deque() for _ in range(layout.queues)]
        """Subscriptions with credit, the next one first."""
        self.waiting: list[deque[int]] = [deque() for _ in range(layout.queues)]
        """Subscriptions in standby."""
        self.credit = [0] * len(layout.subscriptions)
        self.free_us = [0] * layout.consumers
        self.heap: list[tuple[int, int, int, int]] = []
        """Events: time, message, subscription, begin; a message below 0 is a restarted consumer."""
        self.attempts: dict[int, int] = {}
        self.down = bytearray(layout.consumers)
        self.pending_failures = draws.pending_failures()
        self.watched = set(self.pending_failures.messages)
        """Messages that need special treatment when their handling ends."""
        self.known: set[int] = set()
        """Messages that were applied and may be delivered again, if copies are recognised."""
        if rules.deduplicates:
            copied = {first for message, first in enumerate(load.first) if message != first}
            self.watched |= {message for message, first in enumerate(load.first) if first in copied}

    def run(self) -> SimulationLog:
        """Run until there are no more events."""
        for subscription in range(len(self.layout.subscriptions)):
            self._join(subscription)
        arrival, queue_of, ready = self.load.arrival_us, self.layout.queue_of, self.ready
        subscriptions, credit, ready_subscriptions = self.layout.subscriptions, self.credit, self.ready_subscriptions
        heap, send = self.heap, self._send
        append, disposition, special = self.log.attempts.append, self.log.disposition, self.watched
        ack_us, applied = self.rules.times.ack_us, int(AttemptResult.APPLIED)
        coming, total, next_us = 0, len(arrival), arrival[0]
        while True:
            if heap and heap[0][0] <= next_us:
                now_us, message, subscription, begin_us = heappop(heap)
                if message < 0:
                    self._restart(-1 - message, now_us)
                    continue
                queue, consumer = subscriptions[subscription]
                if message in special:
                    self._finish_watched(now_us, message, subscription, begin_us)
                else:
                    append((begin_us, now_us - ack_us, consumer, message, applied))
                    disposition[message] = 1
                    if not credit[subscription]:
                        ready_subscriptions[queue].append(subscription)
                    credit[subscription] += 1
            elif coming < total:
                now_us, queue = next_us, queue_of[coming]
                ready[queue].append(coming)
                coming += 1
                next_us = arrival[coming] if coming < total else _NEVER
            else:
                return self.log
            if ready_subscriptions[queue] and (ready[queue] or self.returned[queue]):
                send(queue, now_us)

    def _send(self, queue: int, now_us: int) -> None:
        """Send as many messages as subscriptions have credit for."""
        ready, returned, ready_subscriptions, credit = (
            self.ready[queue],
            self.returned[queue],
            self.ready_subscriptions[queue],
            self.credit,
        )
        free_us, heap, subscriptions = self.free_us, self.heap, self.layout.subscriptions
        duration_us, times = self.draws.duration_us, self.rules.times
        ready_us, ack_us, overhead_us = now_us + times.delivery_us, times.ack_us, times.overhead_us
        jitter_us, noise = times.jitter_us, self.draws.noise
        while ready_subscriptions and (returned or ready):
            message = returned.pop(0) if returned else ready.popleft()
            subscription = ready_subscriptions.popleft()
            credit[subscription] -= 1
            if credit[subscription]:
                ready_subscriptions.append(subscription)
            consumer = subscriptions[subscription][1]
            begin_us = free_us[consumer]
            if begin_us < ready_us:  # noqa: PLR1730 - max() costs a call for each message
                begin_us = ready_us
            end_us = begin_us + duration_us[message] + overhead_us
            if jitter_us:
                end_us += int(noise[message] * jitter_us)
            free_us[consumer] = end_us
            heappush(heap, (end_us + ack_us, message, subscription, begin_us))

    def _finish_watched(self, now_us: int, message: int, subscription: int, begin_us: int) -> None:
        """End a handling of a watched message."""
        queue, consumer = self.layout.subscriptions[subscription]
        result = self._result(message)
        end_us = now_us - self.rules.times.ack_us
        self.log.attempts.append((begin_us, end_us, consumer, message, int(result)))
        if result in {AttemptResult.APPLIED, AttemptResult.APPLIED_UNACKED}:
            self.log.disposition[message] = Disposition.APPLIED
        elif result is AttemptResult.DUPLICATE and self.log.disposition[message] != Disposition.APPLIED:
            self.log.disposition[message] = Disposition.DUPLICATE
        if result in {AttemptResult.CRASHED, AttemptResult.APPLIED_UNACKED}:
            self._crash(consumer, now_us, message)
            return
        if not self.credit[subscription]:
            self.ready_subscriptions[queue].append(subscription)
        self.credit[subscription] += 1
        if result is AttemptResult.FAILED:
            self._requeue(message, now_us)

    def _result(self, message: int) -> AttemptResult:
        """Return the end of a handling of a watched message."""
        first = self.load.first[message]
        if first in self.known:
            return AttemptResult.DUPLICATE
        result = self.pending_failures.next(message)
        if self.rules.deduplicates and result in {AttemptResult.APPLIED, AttemptResult.APPLIED_UNACKED}:
            self.known.add(first)
        return result

    def _requeue(self, message: int, now_us: int) -> None:
        """Put a message back into its queue, unless it has used up its attempts."""
        tried = self.attempts[message] = self.attempts.get(message, 0) + 1
        queue, limit, note = self.layout.queue_of[message], self.rules.delivery_limit, self.log.notes
        if limit is not None and tried >= limit and self.log.disposition[message] != Disposition.APPLIED:
            self.log.disposition[message] = Disposition.DEAD_LETTER
            note.append((now_us, message, f"dead-lettered after attempt {tried}"))
            return
        if limit is None and tried >= self.knobs.max_attempts and message in self.draws.poison:
            note.append((now_us, message, f"fails in every attempt: the model stops after attempt {tried}"))
            return
        ready, returned = self.ready[queue], self.returned[queue]
        if self.rules.requeue is Requeue.BACK:
            ready.append(message)
            note.append((now_us, message, f"requeued at the back, after {len(ready) - 1 + len(returned)} others"))
        elif self.rules.requeue is Requeue.NEAR_HEAD:
            returned.append(message)
            note.append((now_us, message, "requeued near the head, after messages already sent to consumers"))
        else:
            insort(returned, message)
            note.append((now_us, message, "requeued at its original place, after messages already sent to consumers"))

    def _crash(self, consumer: int, now_us: int, message: int) -> None:
        """End a consumer: all messages sent to it are requeued, in the order in which they were sent."""
        own = {subscription for subscription, (_, owner) in enumerate(self.layout.subscriptions) if owner == consumer}
        lost = sorted(event for event in self.heap if event[1] >= 0 and event[2] in own)
        self.heap[:] = [event for event in self.heap if event[1] < 0 or event[2] not in own]
        heapify(self.heap)
        self.down[consumer] = 1
        queues = {self.layout.subscriptions[subscription][0] for subscription in own}
        for queue in sorted(queues):
            self.ready_subscriptions[queue] = deque(
                subscription for subscription in self.ready_subscriptions[queue] if subscription not in own
            )
            self.waiting[queue] = deque(subscription for subscription in self.waiting[queue] if subscription not in own)
        self.log.notes.append((now_us, message, f"consumer {consumer} died with {len(lost)} more messages"))
        for requeued in [message, *(event[1] for event in lost)]:
            self._requeue(requeued, now_us)
        heappush(self.heap, (now_us + int(self.knobs.restart_s * SECOND_US), -1 - consumer, 0, 0))
        for queue in sorted(queues):
            self._promote(queue)
            self._send(queue, now_us)

    def _restart(self, consumer: int, now_us: int) -> None:
        self.down[consumer] = 0
        self.free_us[consumer] = now_us
        for subscription, (queue, who) in enumerate(self.layout.subscriptions):
            if who == consumer:
                self._join(subscription)
                self._send(queue, now_us)

    def _join(self, subscription: int) -> None:
        """Activate a subscription, or put it in standby."""
        queue = self.layout.subscriptions[subscription][0]
        self.waiting[queue].append(subscription)
        self._promote(queue)

    def _promote(self, queue: int) -> None:
        """Activate subscriptions in standby, if allowed."""
        waiting = self.waiting[queue]
        while waiting and not (self.layout.standby and self._is_active(queue)):
            subscription = waiting.popleft()
            self.credit[subscription] = self.knobs.prefetch
            self.ready_subscriptions[queue].append(subscription)

    def _is_active(self, queue: int) -> bool:
        """Return whether the queue already has an active subscription."""
        return any(
            subscription not in self.waiting[queue] and not self.down[consumer]
            for subscription, (own, consumer) in enumerate(self.layout.subscriptions)
            if own == queue
        )
