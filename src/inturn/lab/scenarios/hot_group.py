"""One group with most of the work: a throughput bound that more consumers cannot raise."""

import random

from inturn.lab.knobs import Knobs, UniformTime
from inturn.lab.scenario import Scenario
from inturn.lab.scenarios.transfers import LEDGER, is_deposit
from inturn.lab.workload import LabMessage

MESSAGES, OTHERS, HOT_SHARE = 1_500, 40, 0.4


def hot_group() -> Scenario:
    """Return the scenario: a shop's account with two fifths of all bookings, seven of ten of them deposits."""
    chance = random.Random(40)  # noqa: S311 - a simulation, not a secret
    revisions: dict[str, int] = {}
    amounts: dict[str, int] = {}
    messages = []
    for number in range(MESSAGES):
        account = "shop" if chance.random() < HOT_SHARE else f"acct-{chance.randrange(1, OTHERS + 1)}"
        revision = revisions[account] = revisions.get(account, 0) + 1
        is_in = chance.random() < 0.7 or not amounts.get(account)
        moved = chance.randrange(1, 50) if is_in else chance.randrange(1, amounts[account] + 1)
        amounts[account] = amounts.get(account, 0) + (moved if is_in else -moved)
        kind = "deposit" if is_in else "withdraw"
        body = {"account": account, "revision": revision, "type": kind, "amount": moved}
        messages.append(LabMessage(at_us=number * 600, group=account, revision=revision, body=body))
    return Scenario(
        name="hot-group",
        title="A hot group",
        description=(
            "A shop's account has two fifths of all bookings. If its bookings are handled one after the other, this "
            "account bounds the throughput for any number of consumers (Amdahl's law). Deposits commute: handled "
            "outside of the order, they are spread over all consumers."
        ),
        source="invented, after Amdahl's law",
        messages=messages,
        pipeline=LEDGER,
        knobs=Knobs(consumers=8, prefetch=10, handler=UniformTime(low_ms=1, high_ms=3), failure_rate=0.005),
        commutes=is_deposit,
    )
