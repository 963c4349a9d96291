"""The designs that give a group to one consumer at a time, in the order of arrival."""

from heapq import heappush
from typing import ClassVar

from inturn.core.override import override
from inturn.lab.design import Design, Disposition, SimulationLog
from inturn.lab.designs.exclusive import ARRIVAL, IDLE_SESSION, NEVER, TaskBroker, TaskRules, TaskTimes
from inturn.lab.draws import AttemptResult, Draws
from inturn.lab.knobs import SECOND_US, Knobs
from inturn.lab.workload import Workload

_SESSION, _LEAVE, _CRASH, _RESTART = 3, 4, 5, 6


class SessionBroker(TaskBroker):
    """A consumer keeps its group until the group has been empty for a while."""

    def __init__(self, load: Workload, draws: Draws, knobs: Knobs, rules: TaskRules) -> None:
        super().__init__(load, draws, knobs, rules)
        self.left_at_us = [0] * load.keys

    @override
    def start(self, key: int, consumer: int, now_us: int) -> None:
        self.holder[key] = consumer
        super().start(key, consumer, now_us)

    @override
    def end(self, key: int, consumer: int, at_us: int, rest_us: int, back_us: int = 0) -> None:
        if back_us or rest_us >= NEVER:
            super().end(key, consumer, at_us, rest_us, back_us)
            return
        self.number += 1
        heappush(self.heap, (at_us + rest_us, self.number, _SESSION, key))

    @override
    def on_event(self, kind: int, subject: int, now_us: int) -> None:
        if kind not in {_SESSION, _LEAVE, ARRIVAL}:
            super().on_event(kind, subject, now_us)
            return
        consumer = self.holder[subject]
        if kind == _LEAVE:
            if self.leased[subject] == IDLE_SESSION and self.left_at_us[subject] == now_us:
                self.leased[subject] = 0
                self.idle.append(consumer)
        elif self.queued[subject]:
            self.leased[subject] = 1
            self.start(subject, consumer, now_us)
        else:
            self.leased[subject] = IDLE_SESSION
            self.left_at_us[subject] = now_us + self.rules.times.idle_us
            self.number += 1
            heappush(self.heap, (self.left_at_us[subject], self.number, _LEAVE, subject))


class Sessions(Design):
    """Sessions: a consumer locks a group, handles its messages in order, and unlocks it when no more arrive.

    Source: Azure Service Bus documentation, "Message sessions" and "Message transfers, locks, and settlement".
    An abandoned message is delivered again at once to the holder of the session; a message that has used up its
    delivery count is dead-lettered. The lock of a consumer that died ends after the knob ``visibility_s``; a live
    consumer renews it. A consumer leaves an empty session after ``idle_us``; with the processor's own default it would
    stay with each group for a minute.
    """

    name: ClassVar[str] = "sessions"
    title: ClassVar[str] = "Service Bus sessions"
    source: ClassVar[str] = "Azure Service Bus, Message sessions; Message transfers, locks, and settlement"
    validated_against: ClassVar[str | None] = None
    keeps_order: ClassVar[bool] = True

    def __init__(self, times: TaskTimes | None = None) -> None:
        self.times = times or TaskTimes(receive_us=2_000, settle_us=2_000, idle_us=10_000)

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        lease_us = int(knobs.visibility_s * SECOND_US)
        rules = TaskRules(knobs.prefetch, self.times, in_place=True, lease_us=lease_us)
        return SessionBroker(load, draws, knobs, rules).run()


class KeyParallelBroker(TaskBroker):
    """Threads of one process that handle messages by key; offsets are committed periodically."""

    commit_every_us = 5 * SECOND_US

    @override
    def handle_failing(self, message: int, consumer: int, at_us: int, began_us: int) -> tuple[int, int, int]:
        end_us, rest_us, back_us = super().handle_failing(message, consumer, at_us, began_us)
        if back_us:  # all threads die with their process at the end of this attempt
            self.number += 1
            heappush(self.heap, (end_us, self.number, _CRASH, message))
            return end_us, NEVER, NEVER >> 1
        return end_us, rest_us, back_us

    @override
    def on_event(self, kind: int, subject: int, now_us: int) -> None:
        if kind == _CRASH:
            self._crash(subject, now_us)
        elif kind == _RESTART:
            self.idle.extend(range(self.knobs.consumers))
        else:
            super().on_event(kind, subject, now_us)

    def _crash(self, crashed: int, now_us: int) -> None:
        """End the process: messages in progress and uncommitted messages will be read again."""
        log, key_of = self.log, self.load.key
        unfinished = sorted({crashed, *self._uncommitted(crashed, now_us)}, reverse=True)
        self.heap.clear()
        self.idle.clear()
        for message in unfinished:
            queue = self.queued[key_of[message]]
            if message not in queue:
                queue.appendleft(message)
                log.notes.append((now_us, message, "read again: its offset was not committed when the process died"))
        parked = {key for key, queue in enumerate(self.queued) if queue and self._is_blocked(queue[0])}
        self.ready_keys.clear()
        self.ready_keys.extend(key for key, queue in enumerate(self.queued) if queue and key not in parked)
        for key, queue in enumerate(self.queued):
            self.leased[key] = 1 if queue else 0
        self.number += 1
        heappush(self.heap, (now_us + int(self.knobs.restart_s * SECOND_US), self.number, _RESTART, 0))

    def _uncommitted(self, crashed: int, now_us: int) -> list[int]:
        """Return and mark the messages whose handling was cut off or whose offsets were not committed."""
        attempts, unfinished = self.log.attempts, []
        committed_us = now_us - now_us % self.commit_every_us
        oldest_us = committed_us - max(self.draws.duration_us)
        for index in range(len(attempts) - 1, -1, -1):
            begin_us, end_us, consumer, message, result = attempts[index]
            if begin_us < oldest_us:
                break
            if end_us > now_us:
                attempts[index] = (min(begin_us, now_us), now_us, consumer, message, int(AttemptResult.CRASHED))
                if result != AttemptResult.FAILED:
                    self.log.disposition[message] = Disposition.HELD
                    unfinished.append(message)
            elif end_us > committed_us and result == AttemptResult.APPLIED and message != crashed:
                attempts[index] = (begin_us, end_us, consumer, message, int(AttemptResult.APPLIED_UNACKED))
                unfinished.append(message)
        return unfinished

    def _is_blocked(self, message: int) -> bool:
        return message in self.draws.poison and self.tried.get(message, 0) >= self.knobs.max_attempts


class KeyParallel(Design):
    """Threads of one process that read a Kafka topic, ordered by key; a failed key pauses and other keys continue.

    Source: README of Confluent's Parallel Consumer: ordering ``KEY``, retries with a delay (``retryDelayProvider``) and
    no limit, offsets committed every five seconds with the offsets that are still open. After a crash, the process
    reads all uncommitted messages again.
    """

    name: ClassVar[str] = "key-parallel"
    title: ClassVar[str] = "key-level parallel consumer"
    source: ClassVar[str] = "Confluent Parallel Consumer, README: ordering by key, retries, commit of offsets"
    validated_against: ClassVar[str | None] = "Confluent Parallel Consumer's published table (throughput)"
    keeps_order: ClassVar[bool] = True

    def __init__(self, times: TaskTimes | None = None) -> None:
        self.times = times or TaskTimes(receive_us=50)

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        rules = TaskRules(1, self.times, backoff_us=int(knobs.backoff_s * SECOND_US), after_limit="block")
        return KeyParallelBroker(load, draws, knobs, rules).run()
