"""Requeue roulette: competing consumers that requeue messages whose turn it is not."""

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import ClassVar

import msgspec

from inturn.core.override import override
from inturn.lab.design import Design, Disposition, SimulationLog
from inturn.lab.draws import AttemptResult, Draws
from inturn.lab.knobs import SECOND_US, Knobs
from inturn.lab.workload import Workload

_NEVER = 1 << 62
_COMES, _ENDS, _RESTART = range(3)
ATTEMPTS, ATTEMPTS_PER_MESSAGE = 1_000_000, 20
"""The simulation ends after the first number of handlings, plus the second number per message."""


class RouletteTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of requeue roulette.

    Attributes:
        delivery_us: from the broker's decision to send a message until the consumer has it.
        ack_us: from the end of a handling until the broker has its result.
        check_us: time to read and compare the group's revision.
    """

    delivery_us: int = 150
    ack_us: int = 150
    check_us: int = 200


class RouletteBroker:
    """One run of requeue roulette.

    Args:
        load: messages.
        draws: the random choices.
        knobs: the knobs.
        times: constants.
    """

    def __init__(self, load: Workload, draws: Draws, knobs: Knobs, times: RouletteTimes) -> None:
        self.load, self.draws, self.knobs, self.times = load, draws, knobs, times
        self.log = SimulationLog(load, knobs.consumers)
        self.next_place = [0] * load.keys
        self.ready: deque[int] = deque()
        self.ready_consumers: deque[int] = deque(range(knobs.consumers))
        self.credit = [knobs.prefetch] * knobs.consumers
        self.buffer: list[deque[int]] = [deque() for _ in range(knobs.consumers)]
        self.busy = bytearray(knobs.consumers)
        self.heap: list[tuple[int, int, int, int, int, int]] = []
        """Events: time, number, kind, consumer, message, begin."""
        self.number = self.handling = self.stalled = self.inside = 0
        self.begun: set[int] = set()
        """Messages whose turn it was at the begin of their handling."""
        self.tried: dict[int, int] = {}
        self.pending_failures = draws.pending_failures()

    def run(self) -> SimulationLog:
        """Run until there are no more events, or the limit of handlings is reached."""
        arrival, heap, ready = self.load.arrival_us, self.heap, self.ready
        attempts, most = self.log.attempts, ATTEMPTS_PER_MESSAGE * len(self.load) + ATTEMPTS
        coming, total, next_us = 0, len(arrival), arrival[0]
        while len(attempts) < most:
            if heap and heap[0][0] < next_us:
                now_us, _, kind, consumer, message, begin_us = heappop(heap)
                if kind == _COMES:
                    self.buffer[consumer].append(message)
                    if not self.busy[consumer]:
                        self._begin(consumer, now_us)
                    continue
                if kind == _ENDS:
                    self._finish(consumer, message, begin_us, now_us)
                else:
                    self.credit[consumer] = self.knobs.prefetch
                    self.ready_consumers.append(consumer)
            elif coming < total:
                now_us = next_us
                ready.append(coming)
                coming += 1
                self.inside += 1
                self.stalled = 0
                next_us = arrival[coming] if coming < total else _NEVER
            else:
                return self.log
            self._send(now_us)
            if self.stalled > self.inside and not self.handling and self._is_stuck():
                if next_us == _NEVER and all(event[2] != _RESTART for event in heap):
                    break
                self._skip_to(min([next_us, *(event[0] for event in heap if event[2] == _RESTART)]), now_us)
        is_over = len(attempts) < most
        self._note_circulating(
            "a message before it never arrives" if is_over else f"the model stopped after {most} handlings"
        )
        return self.log

    def _is_stuck(self) -> bool:
        """Return whether none of the circulating messages has its turn."""
        self.stalled = 0
        place, key, next_place = self.load.place, self.load.key, self.next_place
        sent = [event[4] for event in self.heap if event[2] != _RESTART]
        inside = chain(self.ready, sent, *self.buffer)
        return not any(place[message] <= next_place[key[message]] for message in inside)

    def _send(self, now_us: int) -> None:
        ready, ready_consumers, credit, heap = self.ready, self.ready_consumers, self.credit, self.heap
        at_us = now_us + self.times.delivery_us
        while ready_consumers and ready:
            message, consumer = ready.popleft(), ready_consumers.popleft()
            credit[consumer] -= 1
            if credit[consumer]:
                ready_consumers.append(consumer)
            self.number += 1
            heappush(heap, (at_us, self.number, _COMES, consumer, message, 0))

    def _begin(self, consumer: int, now_us: int) -> None:
        """Begin the next message of the consumer's buffer: read the group's revision."""
        message = self.buffer[consumer].popleft()
        self.busy[consumer] = 1
        end_us = now_us + self.times.check_us
        if self.load.place[message] == self.next_place[self.load.key[message]]:
            end_us += self.draws.duration_us[message]
            self.handling += 1
            self.begun.add(message)
        self.number += 1
        heappush(self.heap, (end_us, self.number, _ENDS, consumer, message, now_us))

    def _finish(self, consumer: int, message: int, begin_us: int, now_us: int) -> None:
        key, place = self.load.key[message], self.load.place[message]
        result = self._result(message, place, self.next_place[key])
        self.log.attempts.append((begin_us, now_us, consumer, message, int(result)))
        if result in {AttemptResult.APPLIED, AttemptResult.APPLIED_UNACKED}:
            self.next_place[key] = place + 1
            self.log.disposition[message] = Disposition.APPLIED
        elif result is AttemptResult.DUPLICATE and self.log.disposition[message] != Disposition.APPLIED:
            self.log.disposition[message] = Disposition.DUPLICATE
        self.stalled = self.stalled + 1 if result is AttemptResult.REJECTED else 0
        if result in {AttemptResult.CRASHED, AttemptResult.APPLIED_UNACKED}:
            self._stop_consumer(consumer, message, now_us)
            return
        if result in {AttemptResult.APPLIED, AttemptResult.DUPLICATE}:
            self.inside -= 1
        else:
            self._requeue(message, result, now_us)
        if not self.credit[consumer]:
            self.ready_consumers.append(consumer)
        self.credit[consumer] += 1
        self.busy[consumer] = 0
        if self.buffer[consumer]:
            self._begin(consumer, now_us)

    def _result(self, message: int, place: int, next_place: int) -> AttemptResult:
        """Return the end of a handling; the revision is compared at its begin and at its end."""
        if message in self.begun:
            self.begun.discard(message)
            self.handling -= 1
            if place == next_place:
                return (
                    self.pending_failures.next(message)
                    if message in self.pending_failures.messages
                    else AttemptResult.APPLIED
                )
        return AttemptResult.DUPLICATE if place < next_place else AttemptResult.REJECTED

    def _requeue(self, message: int, result: AttemptResult, now_us: int) -> None:
        note = self.log.notes.append
        if result is AttemptResult.FAILED:
            tried = self.tried[message] = self.tried.get(message, 0) + 1
            if tried >= self.knobs.max_attempts and message in self.draws.poison:
                self.inside -= 1
                note((now_us, message, f"fails in every attempt: the model stops after attempt {tried}"))
                return
            revision = self.load.revision[message]
            note((now_us, message, f"revision {revision} failed and was requeued at the back"))
        self.ready.append(message)

    def _stop_consumer(self, consumer: int, message: int, now_us: int) -> None:
        """End a consumer: all messages sent to it are requeued at the back."""
        coming = sorted(event for event in self.heap if event[2] == _COMES and event[3] == consumer)
        lost = [message, *self.buffer[consumer], *(event[4] for event in coming)]
        self.heap[:] = [event for event in self.heap if event[2] != _COMES or event[3] != consumer]
        heapify(self.heap)
        self.buffer[consumer].clear()
        self.ready_consumers = deque(candidate for candidate in self.ready_consumers if candidate != consumer)
        self.busy[consumer] = 0
        self.log.notes.append((now_us, message, f"consumer {consumer} died with {len(lost) - 1} more messages"))
        self.ready.extend(lost)
        self.number += 1
        at_us = now_us + int(self.knobs.restart_s * SECOND_US)
        heappush(self.heap, (at_us, self.number, _RESTART, consumer, 0, 0))

    def _skip_to(self, until_us: int, now_us: int) -> None:
        """Count the rejections of a hot loop, in which nothing can change before that time, without simulating them."""
        inside = [event for event in self.heap if event[2] != _RESTART]
        if until_us <= now_us or self.inside == 0:
            return
        round_us = self.times.check_us + (self.times.delivery_us + self.times.ack_us) // self.knobs.prefetch
        count = (until_us - now_us) * min(self.knobs.consumers, self.inside) // max(1, round_us)
        self.log.unlogged += count
        self.log.unlogged_us += count * self.times.check_us
        self.ready.extend(message for buffer in self.buffer for message in buffer)
        self.ready.extend(event[4] for event in sorted(inside))
        self.heap[:] = [event for event in self.heap if event[2] == _RESTART]
        dead = {event[3] for event in self.heap}
        for consumer, buffer in enumerate(self.buffer):
            buffer.clear()
            self.busy[consumer] = 0
            self.credit[consumer] = self.knobs.prefetch
        self.ready_consumers = deque(consumer for consumer in range(self.knobs.consumers) if consumer not in dead)
        self.stalled = 0

    def _note_circulating(self, cause: str) -> None:
        """Note the messages that were still circulating when the simulation ended."""
        at_us = self.log.attempts[-1][1]
        for message, kind in enumerate(self.log.disposition):
            if kind == Disposition.HELD:
                self.log.notes.append((at_us, message, f"still being requeued at the end of the simulation: {cause}"))


class RequeueRoulette(Design):
    """Competing consumers that check the revision, and requeue every message that is not the next of its group.

    Source: the pattern as reported for RabbitMQ; a quorum queue without a delivery limit, which requeues a message at
    the back (RabbitMQ's documentation, "Quorum Queues"). On a classic queue the same messages would be delivered first
    again and again. The check and the effect are one transaction, so copies are recognised.
    """

    name: ClassVar[str] = "roulette"
    title: ClassVar[str] = "requeue roulette"
    source: ClassVar[str] = "RabbitMQ, Quorum Queues; revisions checked by the consumer"
    validated_against: ClassVar[str | None] = None
    keeps_order: ClassVar[bool] = True

    def __init__(self, times: RouletteTimes | None = None) -> None:
        self.times = times or RouletteTimes()

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        return RouletteBroker(load, draws, knobs, self.times).run()
