"""Money transfers: one failure at revision 12, and a withdrawal that depends on it."""

import random
from typing import Any

import msgspec

from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Gapless
from inturn.lab.knobs import Knobs, UniformTime
from inturn.lab.scenario import Scenario
from inturn.lab.workload import LabMessage

ACCOUNTS, REVISIONS = 12, 40
FAILING = ("acct-1", 12)


class Balance(msgspec.Struct, frozen=True):
    """The state of an account: its balance, and the number of withdrawals declined for lack of money."""

    amount: int = 0
    declined: int = 0


def book(state: Balance, message: dict[str, Any]) -> tuple[Balance, list[Any]]:
    """Apply a deposit or a withdrawal."""
    amount = message["amount"]
    if message["type"] == "deposit":
        return msgspec.structs.replace(state, amount=state.amount + amount), []
    if amount > state.amount:
        return msgspec.structs.replace(state, declined=state.declined + 1), []
    return msgspec.structs.replace(state, amount=state.amount - amount), []


LEDGER = Pipeline(name="ledger", group="account", order=Gapless("revision"), state=Balance, handler=book)


def is_deposit(body: dict[str, Any]) -> bool:
    """Return whether a message adds money; only deposits commute."""
    return bool(body["type"] == "deposit")


def _bookings() -> list[dict[str, Any]]:
    """Return the bookings of all accounts: a deposit, and then a withdrawal of all the money or a part of it."""
    chance, bookings = random.Random(12), []  # noqa: S311 - a simulation, not a secret
    for account in range(1, ACCOUNTS + 1):
        amount = 0
        for revision in range(1, REVISIONS + 1):
            is_in = revision % 2 == 0 or amount == 0
            moved = chance.randrange(10, 100) if is_in else chance.choice([amount, amount // 2 or 1])
            if (f"acct-{account}", revision - 1) == FAILING:
                moved = amount  # the whole balance, so it needs the deposit before it
            amount += moved if is_in else -moved
            kind = "deposit" if is_in else "withdraw"
            bookings.append({"account": f"acct-{account}", "revision": revision, "type": kind, "amount": moved})
    return bookings


def transfers() -> Scenario:
    """Return the scenario."""
    bookings = _bookings()
    random.Random(7).shuffle(places := [index // REVISIONS for index in range(len(bookings))])  # noqa: S311 - as above
    own = [iter(bookings[start : start + REVISIONS]) for start in range(0, len(bookings), REVISIONS)]
    in_order = [next(own[account]) for account in places]
    failing = next(body for body in in_order if (body["account"], body["revision"]) == FAILING)
    following = [body for body in in_order if body["account"] == FAILING[0] and 0 < body["revision"] - FAILING[1] < 4]
    in_order = [body for body in in_order if body not in following]
    in_order[in_order.index(failing) + 1 : 0] = following  # a burst: revisions 12 to 15 come one after the other
    messages = [
        LabMessage(
            at_us=number * 400,
            group=body["account"],
            revision=body["revision"],
            failures=2 if (body["account"], body["revision"]) == FAILING else 0,
            body=body,
        )
        for number, body in enumerate(in_order)
    ]
    return Scenario(
        name="transfers",
        title="Money transfers",
        description=(
            "Each account numbers its bookings, and a withdrawal depends on the deposits before it. Handling revision "
            "12 of acct-1, a deposit, fails twice. In designs that requeue it, revisions 13 and 14 overtake it, and a "
            "withdrawal is declined although it was covered."
        ),
        source="requeue roulette, as reported for RabbitMQ: 11, 13, 14, 12",
        messages=messages,
        pipeline=LEDGER,
        knobs=Knobs(consumers=4, prefetch=10, handler=UniformTime(low_ms=0.5, high_ms=2.0), failure_rate=0.01),
        commutes=is_deposit,
        follow=FAILING,
    )
