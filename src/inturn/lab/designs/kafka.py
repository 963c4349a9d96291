"""Kafka: partitions, each read by one consumer of a group."""

from collections import deque
from heapq import heappop, heappush
from operator import itemgetter
from typing import ClassVar

import msgspec

from inturn.core.override import override
from inturn.lab.design import Design, Disposition, SimulationLog
from inturn.lab.draws import AttemptResult, Draws
from inturn.lab.knobs import SECOND_US, Knobs
from inturn.lab.workload import Workload

_NEVER = 1 << 62
_POLL, _RESUME, _TIMED_OUT, _RESTART = range(4)


class PollTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of a consumer group.

    Attributes:
        poll_us: from a record's arrival, or the end of a batch, until the next batch can begin.
        record_us: time of a consumer for each record besides the handler.
        commit_us: time for the commit of a batch's offsets.
        session_us: time until the group notices that a consumer died (``session.timeout.ms``).
    """

    poll_us: int = 500
    record_us: int = 0
    commit_us: int = 1_000
    session_us: int = 45 * SECOND_US


def murmur2(data: bytes) -> int:
    """Return the non-negative hash with which Kafka's Java producer selects a partition."""
    mixed, mask = 0x9747B28C ^ len(data), 0xFFFFFFFF
    aligned_end = len(data) & ~3
    for offset in range(0, aligned_end, 4):
        part = int.from_bytes(data[offset : offset + 4], "little") * 0x5BD1E995 & mask
        part = (part ^ part >> 24) * 0x5BD1E995 & mask
        mixed = mixed * 0x5BD1E995 & mask ^ part
    if rest := data[aligned_end:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & mask
    mixed = (mixed ^ mixed >> 13) * 0x5BD1E995 & mask
    return (mixed ^ mixed >> 15) & 0x7FFFFFFF


class ConsumerGroup:
    """One run of a consumer group over the partitions of a topic.

    Args:
        load: messages.
        draws: the random choices.
        knobs: the knobs.
        times: constants.
        skips: whether a record that has used up its attempts is skipped; otherwise its partition is blocked.
    """

    def __init__(self, load: Workload, draws: Draws, knobs: Knobs, times: PollTimes, *, skips: bool) -> None:
        self.load, self.draws, self.knobs, self.times, self.skips = load, draws, knobs, times, skips
        self.log = SimulationLog(load, min(knobs.consumers, knobs.partitions))
        places = [murmur2(text.encode()) % knobs.partitions for text in load.key_texts()]
        self.partition_of = [places[key] for key in load.key]
        self.records: list[list[int]] = [[] for _ in range(knobs.partitions)]
        self.offset = [0] * knobs.partitions
        """Committed offsets; the positions of the owners between two batches."""
        self.paused = bytearray(knobs.partitions)
        self.owner = [partition % knobs.consumers for partition in range(knobs.partitions)]
        self.next_owner = list(self.owner)
        self.owned: list[deque[int]] = [deque() for _ in range(knobs.consumers)]
        for partition, consumer in enumerate(self.owner):
            self.owned[consumer].append(partition)
        self.idle = bytearray(b"\1" * knobs.consumers)
        self.dead = bytearray(knobs.consumers)
        self.heap: list[tuple[int, int, int, int]] = []
        """Events: time, number, kind, consumer or partition."""
        self.number = 0
        self.tried: dict[int, int] = {}
        self.pending_failures = draws.pending_failures()

    def run(self) -> SimulationLog:
        """Run until there are no more events."""
        arrival, partition_of, records = self.load.arrival_us, self.partition_of, self.records
        heap, idle, owner, paused, poll_us = self.heap, self.idle, self.owner, self.paused, self.times.poll_us
        coming, total, next_us = 0, len(arrival), arrival[0]
        while True:
            if heap and heap[0][0] < next_us:
                now_us, _, kind, subject = heappop(heap)
                if kind == _POLL:
                    self._poll(subject, now_us)
                else:
                    self._on_event(kind, subject, now_us)
            elif coming < total:
                partition = partition_of[coming]
                records[partition].append(coming)
                consumer = owner[partition]
                if idle[consumer] and not paused[partition]:
                    idle[consumer] = 0
                    self.number += 1
                    heappush(heap, (next_us + poll_us, self.number, _POLL, consumer))
                coming += 1
                next_us = arrival[coming] if coming < total else _NEVER
            else:
                break
        self.log.attempts.sort(key=itemgetter(1))
        return self.log

    def _schedule(self, at_us: int, kind: int, subject: int) -> None:
        self.number += 1
        heappush(self.heap, (at_us, self.number, kind, subject))

    def _poll(self, consumer: int, now_us: int) -> None:
        """Poll a batch from the consumer's partitions, handle it and commit it."""
        self._hand_over(consumer, now_us)
        own, records, offset, paused = self.owned[consumer], self.records, self.offset, self.paused
        remaining, at_us = self.knobs.batch, now_us
        read: list[tuple[int, int]] = []
        for _ in range(len(own)):
            partition = own[0]
            own.rotate(-1)
            position = offset[partition]
            if paused[partition] or position >= len(records[partition]):
                continue
            batch = records[partition][position : position + remaining]
            remaining -= len(batch)
            at_us, count = self._handle(batch, partition, consumer, at_us)
            if count < 0:
                self._stop_consumer(consumer, at_us, self.log.attempts[-1][3])
                return
            read.append((partition, position + count))
            if not remaining:
                break
        if not read:
            self.idle[consumer] = 1
            return
        for partition, position in read:
            offset[partition] = position
        self._schedule(at_us + self.times.commit_us + self.times.poll_us, _POLL, consumer)

    def _handle(self, batch: list[int], partition: int, consumer: int, at_us: int) -> tuple[int, int]:
        """Handle records of a partition; return the end and the number of done records, or -1 if the consumer died."""
        append, disposition, failing = self.log.attempts.append, self.log.disposition, self.pending_failures.messages
        duration_us, record_us = self.draws.duration_us, self.times.record_us
        for index, message in enumerate(batch):
            begin_us = at_us
            at_us += duration_us[message]
            if message not in failing:
                append((begin_us, at_us, consumer, message, 0))
                disposition[message] = 1
                at_us += record_us
                continue
            result = self.pending_failures.next(message)
            append((begin_us, at_us, consumer, message, int(result)))
            if result in {AttemptResult.APPLIED, AttemptResult.APPLIED_UNACKED}:
                disposition[message] = Disposition.APPLIED
            if result is AttemptResult.FAILED and not self._give_up(message, partition, at_us):
                return at_us, index
            if result in {AttemptResult.CRASHED, AttemptResult.APPLIED_UNACKED}:
                return at_us, -1
        return at_us, len(batch)

    def _give_up(self, message: int, partition: int, at_us: int) -> bool:
        """Return whether the partition continues after a failed record; otherwise it is paused."""
        tried = self.tried[message] = self.tried.get(message, 0) + 1
        note = self.log.notes.append
        self.paused[partition] = 1
        if tried < self.knobs.max_attempts or not (self.skips or message in self.draws.poison):
            note((at_us, message, f"failed: partition {partition} is paused before the next attempt"))
            self._schedule(at_us + max(1, int(self.knobs.backoff_s * SECOND_US)), _RESUME, partition)
            return False
        if not self.skips:
            note((at_us, message, f"failed {tried} times: it blocks partition {partition}"))
            return False
        self.paused[partition] = 0
        if self.log.disposition[message] != Disposition.APPLIED:
            self.log.disposition[message] = Disposition.DEAD_LETTER
            note((at_us, message, f"skipped after attempt {tried}"))
        return True

    def _stop_consumer(self, consumer: int, at_us: int, message: int) -> None:
        """End a consumer: its uncommitted records will be read again."""
        restart_us = int(self.knobs.restart_s * SECOND_US)
        self.log.notes.append((at_us, message, f"consumer {consumer} died; its batch was not committed"))
        self.dead[consumer] = 1
        self.idle[consumer] = 0
        if restart_us > self.times.session_us:
            self._schedule(at_us + self.times.session_us, _TIMED_OUT, consumer)
        self._schedule(at_us + restart_us, _RESTART, consumer)

    def _on_event(self, kind: int, subject: int, now_us: int) -> None:
        if kind == _RESUME:
            self.paused[subject] = 0
            self._wake(self.owner[subject], now_us)
            return
        self.dead[subject] = kind == _TIMED_OUT
        living = [consumer for consumer, dead in enumerate(self.dead) if not dead]
        for partition in range(len(self.owner)):
            home = partition % self.knobs.consumers
            if not self.dead[home]:
                self.next_owner[partition] = home
            elif living and home == subject:
                self.next_owner[partition] = living[partition % len(living)]
        if kind == _TIMED_OUT:
            self._hand_over(subject, now_us)
        else:
            self._schedule(now_us + self.times.poll_us, _POLL, subject)
        for consumer in living:
            if self.idle[consumer]:
                self._hand_over(consumer, now_us)

    def _hand_over(self, consumer: int, now_us: int) -> None:
        """Hand reassigned partitions to their new owners, between two batches."""
        for partition in [candidate for candidate in self.owned[consumer] if self.next_owner[candidate] != consumer]:
            self.owned[consumer].remove(partition)
            to = self.owner[partition] = self.next_owner[partition]
            self.owned[to].append(partition)
            self._wake(to, now_us)

    def _wake(self, consumer: int, now_us: int) -> None:
        if self.idle[consumer]:
            self.idle[consumer] = 0
            self._schedule(now_us + self.times.poll_us, _POLL, consumer)


class KafkaBlocking(Design):
    """A topic with partitions by the group's hash; a record that always fails blocks its partition.

    Source: Apache Kafka's documentation, "Consumer Configs" and "Design: The Consumer": a partition has one consumer
    of a group, offsets are committed after a batch, and uncommitted records are read again. Spring for Apache Kafka's
    documentation, "Container Error Handlers", without a limit: a failed record is read again after a pause, during
    which its partition is paused. The model ends these attempts after the knob ``max_attempts``.
    """

    name: ClassVar[str] = "kafka-block"
    title: ClassVar[str] = "Kafka partitions, poison blocks"
    source: ClassVar[str] = "Apache Kafka, The Consumer; Spring for Apache Kafka, error handlers"
    validated_against: ClassVar[str | None] = "Kafka 4.1.0 (order, throughput and latency)"
    keeps_order: ClassVar[bool] = True
    skips: ClassVar[bool] = False

    def __init__(self, times: PollTimes | None = None) -> None:
        self.times = times or PollTimes()

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        return ConsumerGroup(load, draws, knobs, self.times, skips=self.skips).run()


class KafkaSkipping(KafkaBlocking):
    """A topic with partitions by the group's hash; a record that always fails goes to a dead-letter topic.

    Source: as for ``kafka-block``; Spring for Apache Kafka's documentation, "Publishing Dead-letter Records".
    """

    name: ClassVar[str] = "kafka-skip"
    title: ClassVar[str] = "Kafka partitions, poison is skipped"
    validated_against: ClassVar[str | None] = None
    skips: ClassVar[bool] = True
