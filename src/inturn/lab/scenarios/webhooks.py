"""Webhooks of two services: no order, no revisions, and a record that any webhook can create."""

import random
from typing import Any

import msgspec

from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Arrival
from inturn.lab.designs.competing import CompetingConsumers
from inturn.lab.designs.kafka import KafkaSkipping
from inturn.lab.designs.rabbitmq import PhantomRecord
from inturn.lab.designs.sqs import SqsFifo
from inturn.lab.designs.timeline import Inturn
from inturn.lab.knobs import Knobs, UniformTime
from inturn.lab.scenario import Scenario
from inturn.lab.workload import LabMessage

ORDERS = 150


class Sale(msgspec.Struct, frozen=True):
    """The state of an order: its last received status, the amount paid, and the parcel."""

    status: str = "unknown"
    amount: int = 0
    parcel: str | None = None


_RANKS = ["unknown", "created", "paid", "ready"]


def last_wins(state: Sale, message: dict[str, Any]) -> tuple[Sale, list[Any]]:
    """Overwrite the state with the data of a webhook, as handlers of webhooks often do."""
    amount = state.amount + message.get("amount", 0)
    return Sale(message["status"], amount, message.get("parcel") or state.parcel), []


class Known(msgspec.Struct, frozen=True):
    """The phantom record of an order: the data of each kind of webhook, received in any order."""

    amounts: tuple[int, ...] = ()
    parcel: str | None = None
    rank: int = 0


def fill_in(state: Known, message: dict[str, Any]) -> tuple[Known, list[Any]]:
    """Fill in the data of a webhook; the status is the most advanced one received, so order does not matter."""
    amounts = tuple(sorted((*state.amounts, message["amount"]))) if "amount" in message else state.amounts
    rank = max(state.rank, _RANKS.index(message["status"]))
    return Known(amounts, message.get("parcel") or state.parcel, rank), []


NAIVE = Pipeline(name="sales", group="order", order=Arrival(), id="id", state=Sale, handler=last_wins)
PHANTOM = Pipeline(name="known-sales", group="order", order=Arrival(), id="id", state=Known, handler=fill_in)


def webhooks() -> Scenario:
    """Return the scenario: created, paid and ready of each order, in random order of arrival."""
    chance = random.Random(3)  # noqa: S311 - a simulation, not a secret
    messages = []
    for number in range(1, ORDERS + 1):
        order, began_us = f"order-{number}", int(chance.uniform(0, 60) * 1_000_000)
        bodies: list[dict[str, Any]] = [
            {"status": "created"},
            {"status": "paid", "amount": 10 * number},
            {"status": "ready", "parcel": f"P-{number}"},
        ]
        for place, body in enumerate(bodies, start=1):
            full = {"order": order, "id": f"{order}-{place}", **body}
            at_us = began_us + place * 1_000_000 + int(chance.expovariate(1.0) * 1_500_000)
            messages.append(LabMessage(at_us=at_us, group=order, revision=place, body=full))
            if chance.random() < 0.15:  # the answer was lost, so the service sends it again
                again_us = at_us + int(chance.choice([5, 300, 305]) * 1_000_000)
                messages.append(LabMessage(at_us=again_us, group=order, revision=place, body=full))
    return Scenario(
        name="webhooks",
        title="Webhooks",
        description=(
            "A shop's payment service and its warehouse send webhooks about an order: created, paid, ready. They "
            "arrive in any order, some again after minutes, and contain nothing that tells which is newer. No queue "
            "can restore the order. A handler for which order does not matter can cope: the phantom record, on any "
            "queue or on inturn."
        ),
        source="subscription webhooks that arrive before the one of their creation; examples/phantom_record.py",
        messages=messages,
        pipeline=NAIVE,
        knobs=Knobs(consumers=4, prefetch=10, handler=UniformTime(low_ms=5, high_ms=30), crash_rate=0.005),
        designs=[CompetingConsumers(), SqsFifo(), KafkaSkipping(), PhantomRecord(), Inturn(grade="arrival")],
        handlers={PhantomRecord.name: PHANTOM, Inturn.name: PHANTOM},
    )
