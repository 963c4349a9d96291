"""Brokers that give a group to one consumer at a time: one loop for all such designs.

A consumer receives a group and some of its messages, handles them one after the other, and releases the group. The
failures of each message are drawn beforehand, so a task is fully determined when it begins; it costs one event.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from inturn.lab.design import Disposition, SimulationLog
from inturn.lab.draws import AttemptResult, Draws
from inturn.lab.knobs import SECOND_US, Knobs
from inturn.lab.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

NEVER = 1 << 62
_BOTH, _KEY, _CONSUMER, ARRIVAL = 0, 1, 2, 3
IDLE_SESSION = 2


class TaskTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of a broker that gives groups to consumers.

    Attributes:
        receive_us: from the decision to give a group to a consumer until it can begin.
        settle_us: time of a consumer for each message besides the handler, such as its acknowledgement.
        commit_us: time at the end of a task, when all of it is committed.
        idle_us: time for which a consumer keeps a group without messages.
    """

    receive_us: int = 300
    settle_us: int = 0
    commit_us: int = 0
    idle_us: int = 0


@dataclass(slots=True)
class TaskRules:
    """The rules of a broker that gives groups to consumers.

    Attributes:
        batch: maximum number of messages of a group in a task.
        times: constants.
        in_place: whether the consumer itself retries a failed message; otherwise the group pauses before the retry.
        backoff_us: pause before another attempt.
        after_limit: outcome of a message that has used up its attempts: ``dead-letter`` (the group continues), ``park``
            (the group stops), ``block`` (it is retried without limit, and its group waits).
        atomic: whether effects and acknowledgements of a task are one transaction.
        lease_us: time from the begin of a task until the group of a consumer that died is free again.
    """

    batch: int
    times: TaskTimes = field(default_factory=TaskTimes)
    in_place: bool = False
    backoff_us: int = 0
    after_limit: str = "dead-letter"
    atomic: bool = False
    lease_us: int = 30 * SECOND_US


class TaskBroker:
    """One run of a broker that gives each group to one consumer at a time.

    Args:
        load: messages.
        draws: the random choices.
        knobs: the knobs.
        rules: the rules of the broker.
    """

    def __init__(self, load: Workload, draws: Draws, knobs: Knobs, rules: TaskRules) -> None:
        self.load, self.draws, self.knobs, self.rules = load, draws, knobs, rules
        self.log = SimulationLog(load, knobs.consumers)
        self.queued: list[deque[int]] = [deque() for _ in range(load.keys)]
        self.leased = bytearray(load.keys)
        """1 for a key that is in the ready queue, at a consumer, pausing or parked."""
        self.holder = [-1] * load.keys
        """Consumer of a key whose task will end as planned."""
        self.ready_keys: deque[int] = deque()
        self.idle: deque[int] = deque(range(knobs.consumers))
        self.heap: list[tuple[int, int, int, int]] = []
        """Events: time, number, kind, consumer or key."""
        self.number = 0
        self.tried: dict[int, int] = {}
        self.order: Sequence[int] = range(len(load))
        """The messages in the order in which they arrive at the broker."""
        self.arrival_us: Sequence[int] = load.arrival_us
        self.pending_failures = draws.pending_failures()

    def run(self) -> SimulationLog:
        """Run until there are no more events."""
        arrival, order, key_of, queued, leased = self.arrival_us, self.order, self.load.key, self.queued, self.leased
        heap, ready_keys, idle, start, holder = self.heap, self.ready_keys, self.idle, self.start, self.holder
        coming, total = 0, len(order)
        next_us = arrival[0] if total else NEVER
        while True:
            if heap and heap[0][0] <= next_us:
                now_us, _, kind, subject = heappop(heap)
                if kind == _BOTH:
                    idle.append(holder[subject])
                    if queued[subject]:
                        ready_keys.append(subject)
                    else:
                        leased[subject] = 0
                else:
                    self.on_event(kind, subject, now_us)
            elif coming < total:
                now_us = next_us
                message = order[coming]
                key = key_of[message]
                queued[key].append(message)
                if not leased[key]:
                    leased[key] = 1
                    ready_keys.append(key)
                elif leased[key] == IDLE_SESSION:
                    self.on_event(ARRIVAL, key, now_us)
                coming += 1
                next_us = arrival[coming] if coming < total else NEVER
            else:
                break
            while ready_keys and idle:
                start(ready_keys.popleft(), idle.popleft(), now_us)
        self.log.attempts.sort(key=itemgetter(1))
        return self.log

    def start(self, key: int, consumer: int, now_us: int) -> None:
        """Run a task: the consumer receives messages of the key and handles them."""
        queue, rules, times = self.queued[key], self.rules, self.rules.times
        append, disposition, failing = self.log.attempts.append, self.log.disposition, self.pending_failures.messages
        duration_us, settle_us = self.draws.duration_us, times.settle_us
        at_us = now_us + times.receive_us
        for _ in range(min(len(queue), rules.batch)):
            message = queue.popleft()
            if message in failing:
                at_us, rest_us, back_us = self.handle_failing(message, consumer, at_us, now_us)
                if rest_us:
                    queue.appendleft(message)
                    self.end(key, consumer, at_us, rest_us, back_us)
                    return
                continue
            begin_us = at_us
            at_us += duration_us[message]
            append((begin_us, at_us, consumer, message, 0))
            disposition[message] = 1
            at_us += settle_us
        self.end(key, consumer, at_us + times.commit_us, 0)

    def end(self, key: int, consumer: int, at_us: int, rest_us: int, back_us: int = 0) -> None:
        """Schedule the return of the consumer, and that of the key after its pause (never, if it is parked)."""
        self.number += 2
        if not (rest_us or back_us):
            self.holder[key] = consumer
            heappush(self.heap, (at_us, self.number, _BOTH, key))
            return
        heappush(self.heap, (at_us + back_us, self.number, _CONSUMER, consumer))
        if rest_us < NEVER:
            heappush(self.heap, (at_us + rest_us, self.number - 1, _KEY, key))

    def on_event(self, kind: int, subject: int, now_us: int) -> None:  # noqa: ARG002 - subclasses need the time
        """Make a consumer available again, or a key after its pause; subclasses add further kinds."""
        if kind == _CONSUMER:
            self.idle.append(subject)
        elif self.queued[subject]:
            self.ready_keys.append(subject)
        else:
            self.leased[subject] = 0

    def handle_failing(self, message: int, consumer: int, at_us: int, began_us: int) -> tuple[int, int, int]:
        """Handle a message that fails.

        Args:
            message: the message.
            consumer: the consumer.
            at_us: begin of the first attempt.
            began_us: begin of the task, from which the lease counts.

        Returns:
            The end of the last attempt; the pause of the group, 0 if the message is settled and the group continues;
                the time until the consumer has restarted.
        """
        log, rules = self.log, self.rules
        while True:
            result = self.pending_failures.next(message)
            if rules.atomic and result is AttemptResult.APPLIED_UNACKED:
                result = AttemptResult.CRASHED  # the effect is rolled back
            end_us = at_us + self.draws.duration_us[message]
            log.attempts.append((at_us, end_us, consumer, message, int(result)))
            at_us = end_us
            if result is AttemptResult.APPLIED:
                log.disposition[message] = Disposition.APPLIED
                return at_us + rules.times.settle_us, 0, 0
            if result is not AttemptResult.FAILED:
                if result is AttemptResult.APPLIED_UNACKED:
                    log.disposition[message] = Disposition.APPLIED
                log.notes.append(
                    (at_us, message, f"consumer {consumer} died; the group is released when its lease ends")
                )
                rest_us = max(1, began_us + rules.lease_us - at_us)
                return at_us, rest_us, int(self.knobs.restart_s * SECOND_US)
            tried = self.tried[message] = self.tried.get(message, 0) + 1
            if tried >= self.knobs.max_attempts and self.has_limit(message):
                return at_us, self.give_up(message, at_us, tried), 0
            if not rules.in_place:
                log.notes.append((at_us, message, "failed: its group pauses before the next attempt"))
                return at_us, max(1, rules.backoff_us), 0
            at_us += rules.backoff_us

    def has_limit(self, message: int) -> bool:
        """Return whether the attempts are limited; the model also limits attempts of a message that always fails."""
        if self.rules.after_limit == "block":
            return message in self.draws.poison
        return self.log.disposition[message] != Disposition.APPLIED

    def give_up(self, message: int, at_us: int, tried: int) -> int:
        """Settle a message that has used up its attempts, and return the pause of its group."""
        if self.rules.after_limit != "dead-letter":
            self.log.notes.append((at_us, message, f"failed {tried} times: its group stops here"))
            return NEVER
        self.log.disposition[message] = Disposition.DEAD_LETTER
        self.log.notes.append((at_us, message, f"dead-lettered after attempt {tried}"))
        return 0
