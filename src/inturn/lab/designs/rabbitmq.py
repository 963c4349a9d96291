"""The designs on RabbitMQ's queues, except competing consumers on a classic queue."""

from typing import ClassVar
from zlib import crc32

from inturn.core.override import override
from inturn.lab.design import Design, SimulationLog
from inturn.lab.designs.competing import CompetingConsumers
from inturn.lab.designs.push import PushBroker, PushLayout, PushRules, PushTimes, Requeue
from inturn.lab.draws import Draws
from inturn.lab.knobs import Knobs
from inturn.lab.workload import Workload


class QuorumConsumers(CompetingConsumers):
    """Several consumers on one quorum queue without a delivery limit: a failed message is requeued at the back.

    Source: RabbitMQ's documentation, "Quorum Queues", of versions before 4.0, where no limit is the default.
    """

    name: ClassVar[str] = "competing-quorum"
    title: ClassVar[str] = "competing consumers, quorum queue"
    source: ClassVar[str] = "RabbitMQ, Quorum Queues: repeated requeues, without a delivery limit"
    requeue: ClassVar[Requeue] = Requeue.BACK


class LimitedQuorumConsumers(CompetingConsumers):
    """Several consumers on one quorum queue with a delivery limit: failed messages are requeued near the head.

    Source: RabbitMQ's documentation, "Quorum Queues": poison message handling. The limit is the knob ``max_attempts``.
    """

    name: ClassVar[str] = "competing-quorum-limit"
    title: ClassVar[str] = "competing consumers, quorum queue with a delivery limit"
    source: ClassVar[str] = "RabbitMQ, Quorum Queues: poison message handling"
    requeue: ClassVar[Requeue] = Requeue.NEAR_HEAD
    validated_against: ClassVar[str | None] = None
    has_limit: ClassVar[bool] = True


class SingleActiveConsumer(Design):
    """One consumer of a classic queue at a time; the others stand by until it dies.

    Source: RabbitMQ's documentation, "Consumers": single active consumer.
    """

    name: ClassVar[str] = "single-active-classic"
    title: ClassVar[str] = "single active consumer, classic queue"
    source: ClassVar[str] = "RabbitMQ, Consumers: single active consumer"
    validated_against: ClassVar[str | None] = "RabbitMQ 3.10.8 (share out of turn)"
    keeps_order: ClassVar[bool] = True
    requeue: ClassVar[Requeue] = Requeue.OLD_PLACE

    def __init__(self, times: PushTimes | None = None) -> None:
        self.times = times or PushTimes()

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        everyone = [(0, consumer) for consumer in range(knobs.consumers)]
        layout = PushLayout([0] * len(load), 1, everyone, knobs.consumers, standby=True)
        return PushBroker(load, draws, knobs, layout, PushRules(self.requeue, None, self.times)).run()


class QuorumSingleActiveConsumer(SingleActiveConsumer):
    """One consumer of a quorum queue at a time: a failed message is requeued at the back.

    Source: RabbitMQ's documentation, "Consumers" and "Quorum Queues", without a delivery limit.
    """

    name: ClassVar[str] = "single-active-quorum"
    title: ClassVar[str] = "single active consumer, quorum queue"
    requeue: ClassVar[Requeue] = Requeue.BACK


class ConsistentHash(Design):
    """An exchange that hashes the group to one of N classic queues, each with one consumer.

    Source: README of RabbitMQ's plugin ``rabbitmq_consistent_hash_exchange``. The number of queues is the knob
    ``partitions``; the queues are dealt to the consumers in turn. The hash that selects a group's queue is this model's
    own.
    """

    name: ClassVar[str] = "consistent-hash"
    title: ClassVar[str] = "consistent hash to N queues"
    source: ClassVar[str] = "RabbitMQ, plugin rabbitmq_consistent_hash_exchange"
    validated_against: ClassVar[str | None] = "RabbitMQ 3.10.8 (share out of turn)"
    keeps_order: ClassVar[bool] = True

    def __init__(self, times: PushTimes | None = None) -> None:
        self.times = times or PushTimes()

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        queues = knobs.partitions
        places = [crc32(text.encode()) % queues for text in load.key_texts()]
        subscriptions = [(queue, queue % knobs.consumers) for queue in range(queues)]
        layout = PushLayout([places[key] for key in load.key], queues, subscriptions, min(knobs.consumers, queues))
        return PushBroker(load, draws, knobs, layout, PushRules(Requeue.OLD_PLACE, None, self.times)).run()


class QueuePerGroup(Design):
    """A classic queue for each group, with one consumer; a consumer has many queues.

    Source: the same rules as for one queue; each queue has a prefetch of its own.
    """

    name: ClassVar[str] = "queue-per-group"
    title: ClassVar[str] = "a queue for each group"
    source: ClassVar[str] = "RabbitMQ, Consumer Prefetch: the limit is per consumer of a queue"
    validated_against: ClassVar[str | None] = None
    keeps_order: ClassVar[bool] = True

    def __init__(self, times: PushTimes | None = None) -> None:
        self.times = times or PushTimes()

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        subscriptions = [(key, key % knobs.consumers) for key in range(load.keys)]
        layout = PushLayout(load.key, load.keys, subscriptions, min(knobs.consumers, load.keys))
        return PushBroker(load, draws, knobs, layout, PushRules(Requeue.OLD_PLACE, None, self.times)).run()


class PhantomRecord(QuorumConsumers):
    """A handler for which order does not matter, on a quorum queue: the first message to arrive creates the record.

    Source: the example of two services in ``examples/phantom_record.py``. The record is changed in one transaction that
    also records the message's id, so copies are recognised. Needs a handler written for this pattern.
    """

    name: ClassVar[str] = "phantom"
    title: ClassVar[str] = "phantom record"
    source: ClassVar[str] = "examples/phantom_record.py; RabbitMQ, Quorum Queues"
    validated_against: ClassVar[str | None] = None
    deduplicates: ClassVar[bool] = True
