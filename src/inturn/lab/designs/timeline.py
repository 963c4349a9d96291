"""The designs that use revisions: inturn, and a resequencer with a timeout."""

from heapq import heappop, heappush
from typing import ClassVar, Literal, TypeAlias

from inturn.core.override import override
from inturn.lab.design import Design, Disposition, SimulationLog
from inturn.lab.designs.exclusive import TaskBroker, TaskRules, TaskTimes
from inturn.lab.draws import AttemptResult, Draws
from inturn.lab.knobs import SECOND_US, Knobs
from inturn.lab.workload import Workload

OrderGrade: TypeAlias = Literal["gapless", "monotone", "arrival"]
_DUPLICATE = int(AttemptResult.DUPLICATE)
_CRASHED = int(AttemptResult.CRASHED)


class TimelineBroker(TaskBroker):
    """A queue of groups whose worker applies a message when it is its turn, and holds early messages with the state.

    Attributes:
        grade: the grade of the messages' order: ``gapless`` waits for missing messages, ``monotone`` refuses messages
            older than the last one, ``arrival`` applies messages as they arrive; all recognise copies.
    """

    def __init__(
        self, load: Workload, draws: Draws, knobs: Knobs, rules: TaskRules, grade: OrderGrade = "gapless"
    ) -> None:
        super().__init__(load, draws, knobs, rules)
        self.grade = grade
        self.seen: set[int] = set()
        """Applied messages, for grades in which the place does not show it."""
        self.next_place = [0] * load.keys
        self.early: list[dict[int, int] | None] = [None] * load.keys

    @override
    def start(self, key: int, consumer: int, now_us: int) -> None:  # noqa: C901 - hot, and one transaction
        queue, place, log, failing = self.queued[key], self.load.place, self.log, self.pending_failures.messages
        duration_us, settle_us = self.draws.duration_us, self.rules.times.settle_us
        attempts, done_us = log.attempts, log.done_us
        at_us = max(now_us, self.load.arrival_us[queue[0]] + self.rules.times.receive_us)  # it was prefetched
        mark, next_place = len(log.attempts), self.next_place[key]
        is_loose = self.grade != "gapless"
        received: list[int] = []
        drained: list[int] = []
        for _ in range(min(len(queue), self.rules.batch)):
            message = queue.popleft()
            received.append(message)
            if is_loose:
                if not self._admit(message, next_place, consumer, at_us):
                    continue
                next_place = place[message]
            elif place[message] != next_place:
                self._hold_early(message, key, next_place, consumer, at_us)
                continue
            early = self.early[key]
            while True:
                if message in failing:
                    at_us, rest_us, back_us = self.handle_failing(message, consumer, at_us, now_us)
                    if back_us:
                        self._roll_back(key, mark, received, drained)
                        self.end(key, consumer, at_us, rest_us, back_us)
                        return
                    if rest_us:  # messages applied before it remain applied
                        queue.appendleft(message)
                        self.seen.discard(self.load.first[message])
                        self._commit(mark, at_us + self.rules.times.commit_us)
                        self.next_place[key] = next_place
                        self.end(key, consumer, at_us, rest_us)
                        return
                else:
                    begin_us = at_us
                    at_us += duration_us[message]
                    attempts.append((begin_us, at_us, consumer, message, 0))
                    at_us += settle_us
                next_place += 1
                if not early or next_place not in early:
                    break
                message = early.pop(next_place)
                drained.append(message)
                log.notes.append((at_us, message, "released: it is its turn"))
        if len(attempts) == mark + 1 and not attempts[mark][4]:
            message = attempts[mark][3]
            done_us[message] = at_us + self.rules.times.commit_us
            log.disposition[message] = 1
        else:
            self._commit(mark, at_us + self.rules.times.commit_us)
        self.next_place[key] = next_place
        self.end(key, consumer, at_us, 0)

    @override
    def end(self, key: int, consumer: int, at_us: int, rest_us: int, back_us: int = 0) -> None:
        """Let the consumer continue at once, and the group when the task is committed."""
        super().end(key, consumer, at_us, rest_us + self.rules.times.commit_us, back_us)

    def _commit(self, mark: int, at_us: int) -> None:
        """Settle the messages of a task."""
        for _, _, _, message, result in self.log.attempts[mark:]:
            if result == AttemptResult.APPLIED:
                self.log.done_us[message] = at_us
                self.log.disposition[message] = Disposition.APPLIED
            elif result == AttemptResult.DUPLICATE and self.log.disposition[message] != Disposition.REFUSED:
                self.log.disposition[message] = Disposition.DUPLICATE

    def _hold_early(self, message: int, key: int, next_place: int, consumer: int, at_us: int) -> None:
        """Hold a message that is early, and drop a copy of a held one."""
        early, place = self.early[key], self.load.place[message]
        if place < next_place or (early and place in early):
            self.log.attempts.append((at_us, at_us, consumer, message, _DUPLICATE))
            return
        if early is None:
            early = self.early[key] = {}
        early[place] = message
        self.log.notes.append((at_us, message, f"held: {place - next_place} messages before it are missing"))

    def _admit(self, message: int, next_place: int, consumer: int, at_us: int) -> bool:
        """Return whether a message is applied in a grade without waiting; otherwise settle it."""
        first = self.load.first[message]
        is_known, is_stale = first in self.seen, self.load.place[message] < next_place
        if is_known or (is_stale and self.grade == "monotone"):
            self.log.attempts.append((at_us, at_us, consumer, message, _DUPLICATE))
            if not is_known:
                self.log.disposition[message] = Disposition.REFUSED
                self.log.notes.append((at_us, message, "refused: a later message had been applied"))
            return False
        self.seen.add(first)
        return True

    def _roll_back(self, key: int, mark: int, received: list[int], drained: list[int]) -> None:
        """Undo a task whose consumer died before the commit."""
        attempts, early = self.log.attempts, self.early[key] or {}
        for index in range(mark, len(attempts)):
            begin_us, end_us, consumer, message, result = attempts[index]
            if result != AttemptResult.DUPLICATE:
                self.seen.discard(self.load.first[message])
            if result != AttemptResult.FAILED:
                attempts[index] = (begin_us, end_us, consumer, message, _CRASHED)
        for message in received:
            if early.get(self.load.place[message]) == message:
                del early[self.load.place[message]]
        for message in drained:
            if message not in received:
                early[self.load.place[message]] = message
        self.queued[key].extendleft(reversed(received))


class Inturn(Design):
    """A queue with groups and a timeline: each message is applied once, when it is its turn.

    Source: inturn's own documentation, ``docs/guarantees.md`` and ``docs/worker.md``. Early messages are held with the
    group's state. State and acknowledgements are one transaction, so a crash undoes both. A failed message is retried
    after a pause, in which its worker handles other groups; after the knob ``max_attempts`` its group is parked. For an
    order by time, the model waits for all older messages, as with a sufficient lateness.
    """

    name: ClassVar[str] = "inturn"
    title: ClassVar[str] = "inturn: queue and timeline"
    source: ClassVar[str] = "inturn, docs/guarantees.md and docs/worker.md"
    validated_against: ClassVar[str | None] = "inturn.work 0.1.0 (order)"
    keeps_order: ClassVar[bool] = True

    def __init__(self, times: TaskTimes | None = None, grade: OrderGrade = "gapless") -> None:
        self.times = times or TaskTimes(receive_us=300, commit_us=500)
        self.grade = grade

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        rules = TaskRules(
            knobs.batch,
            self.times,
            backoff_us=int(knobs.backoff_s * SECOND_US),
            after_limit="park",
            atomic=True,
            lease_us=int(knobs.visibility_s * SECOND_US),
        )
        return TimelineBroker(load, draws, knobs, rules, self.grade).run()


class Resequencer(Design):
    """A resequencer in front of consumers: it holds early messages, and skips a missing message after a timeout.

    Source: Hohpe and Woolf, "Enterprise Integration Patterns": resequencer; Apache Camel's documentation,
    "Resequence": stream resequencing with ``timeout`` and ``rejectOld``. After it, a group is handled by one consumer
    at a time, and a message that uses up its attempts is dead-lettered.
    """

    name: ClassVar[str] = "resequencer"
    title: ClassVar[str] = "resequencer with timeout"
    source: ClassVar[str] = "Enterprise Integration Patterns, Resequencer; Apache Camel, stream resequencing"
    validated_against: ClassVar[str | None] = None
    keeps_order: ClassVar[bool] = True

    def __init__(self, times: TaskTimes | None = None) -> None:
        self.times = times or TaskTimes()

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        rules = TaskRules(
            knobs.batch,
            self.times,
            backoff_us=int(knobs.backoff_s * SECOND_US),
            lease_us=int(knobs.visibility_s * SECOND_US),
        )
        broker = TaskBroker(load, draws, knobs, rules)
        released = resequence(load, int(knobs.reorder_s * SECOND_US), broker.log)
        broker.arrival_us = [at_us for at_us, _ in released]
        broker.order = [message for _, message in released]
        return broker.run()


def resequence(load: Workload, timeout_us: int, log: SimulationLog) -> list[tuple[int, int]]:
    """Return the messages that a resequencer lets through, with the time of each.

    Args:
        load: messages.
        timeout_us: longest wait for a missing message.
        log: log for the outcome of messages that are not let through.
    """
    next_place = [0] * load.keys
    held: list[dict[int, int]] = [{} for _ in range(load.keys)]
    released: list[tuple[int, int]] = []
    passed: set[int] = set()
    timers: list[tuple[int, int]] = []

    def drain(key: int, at_us: int) -> None:
        while next_place[key] in held[key]:
            message = held[key].pop(next_place[key])
            released.append((at_us, message))
            passed.add(message)
            next_place[key] += 1

    def expire(until_us: float) -> None:
        while timers and timers[0][0] <= until_us:
            at_us, message = heappop(timers)
            key = load.key[message]
            while message not in passed:
                skipped = next_place[key]
                next_place[key] = min(held[key])
                log.notes.append(
                    (at_us, message, f"released by timeout: {next_place[key] - skipped} messages were missing")
                )
                drain(key, at_us)

    for message, at_us in enumerate(load.arrival_us):
        expire(at_us)
        key, place = load.key[message], load.place[message]
        if place < next_place[key] or place in held[key]:
            is_copy = load.first[message] in passed or place in held[key]
            log.disposition[message] = Disposition.DUPLICATE if is_copy else Disposition.REFUSED
            log.notes.append((at_us, message, "dropped: a copy" if is_copy else "refused: its turn had been skipped"))
            continue
        held[key][place] = message
        drain(key, at_us)
        if message not in passed:
            log.notes.append((at_us, message, f"held: {place - next_place[key]} messages before it are missing"))
            heappush(timers, (at_us + timeout_us, message))
    expire(float("inf"))
    return released
