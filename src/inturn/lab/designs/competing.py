"""Competing consumers on one queue: the most common first design."""

from typing import ClassVar

from inturn.core.override import override
from inturn.lab.design import Design, SimulationLog
from inturn.lab.designs.push import PushBroker, PushLayout, PushRules, PushTimes, Requeue
from inturn.lab.draws import Draws
from inturn.lab.knobs import Knobs
from inturn.lab.workload import Workload


class CompetingConsumers(Design):
    """Several consumers on one classic queue; failed messages are requeued.

    Source: RabbitMQ's documentation, "Consumer Acknowledgements and Publisher Confirms": a requeued message goes to its
    original place if possible, and if not (others were delivered and acknowledged meanwhile) nearer the head. Consumers
    with credit take turns.
    """

    name: ClassVar[str] = "competing-classic"
    title: ClassVar[str] = "competing consumers, classic queue"
    source: ClassVar[str] = "RabbitMQ, Consumer Acknowledgements: negative acknowledgement and requeuing"
    validated_against: ClassVar[str | None] = "RabbitMQ 3.10.8 (share out of turn)"
    keeps_order: ClassVar[bool] = False
    requeue: ClassVar[Requeue] = Requeue.OLD_PLACE
    has_limit: ClassVar[bool] = False
    deduplicates: ClassVar[bool] = False

    def __init__(self, times: PushTimes | None = None) -> None:
        self.times = times or PushTimes()

    @override
    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        everyone = [(0, consumer) for consumer in range(knobs.consumers)]
        layout = PushLayout([0] * len(load), 1, everyone, knobs.consumers)
        rules = PushRules(self.requeue, knobs.max_attempts if self.has_limit else None, self.times, self.deduplicates)
        return PushBroker(load, draws, knobs, layout, rules).run()
