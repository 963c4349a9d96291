"""Money is transferred between accounts by workers that are killed again and again, two at a time.

    python -m worker.programs.crash_transfer DIRECTORY KILLS SEED [POSTGRESQL-URL]

Each life is a fork that is killed (lives.py) while it works on the bookings of the example
``money_transfer.py``. The parent, which lives, sends payments before each pair of lives, and counts the money after it:
that of all accounts, and that of the bookings on their way. What is left at the end is worked off by a life that nobody
kills. Prints one document of JSON for the test.
"""

import json
import random
import runpy
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

import inturn
from inturn import faults
from inturn.core import limits
from inturn.queue import QueueSettings, draft
from inturn.worker import Worker
from inturn.worker.inspection import DatabaseInspector
from lives import Death, deaths, die_together

EXAMPLE = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "money_transfer.py"))
NAMES = [f"acct-{n}" for n in range(6)]
FIRST = 1_000


def live(target: str, seed: int, death: Death | None = None) -> None:
    """One life: until it is killed or, without a death, until nothing is left to do."""
    chance = random.Random(seed)
    with inturn.open(target, durable=False) as db:
        queue = db.queue("bookings")
        if death:
            death.arm()
        with Worker(EXAMPLE["ACCOUNTS"], queue, concurrency=chance.choice([1, 4]), deliver=EXAMPLE["BACK"]) as worker:
            while death:
                time.sleep(0.01)
                worker.check()
            worker.drain(60)


def money(target: str) -> int:
    """All the money that has come in, as one moment has it."""
    with inturn.open(target) as db, db.transaction() as tx:
        states = [msgspec.msgpack.decode(bytes(state)) for (state,) in tx.execute("select state from inturn_group")]
        coming = db.queue("bookings", tx=tx).peek(10_000, tx=tx)
        return sum(state["balance"] for state in states) + sum(
            message.body["amount"] for message in coming if "to" not in message.body
        )


def main(directory: Path, kills: int, seed: int, target: str) -> None:
    """Let them live and die."""
    chance = random.Random(seed)
    with inturn.open(target, durable=False) as db:
        queue = db.queue("bookings", QueueSettings(visibility_timeout_s=0.04))
        queue.send_many([draft({"amount": FIRST}, group=name, dedup_id=f"first-{name}") for name in NAMES])
    limits.WORKER_LEASE_MS = 40  # type: ignore[misc] # the groups of the dead are free soon
    limits.WORKER_IDLE_S = 0.01  # type: ignore[misc]
    killed = payments = 0
    sums = set()
    after_s = (0.02, 0.4 if "://" in target else 0.2)
    ends = enumerate(deaths(faults.OF_A_TRANSACTION, kills, chance, after_s=after_s), 2 * seed * 1_000_000)
    for two in zip(ends, ends, strict=True):
        with inturn.open(target, durable=False) as db:
            for _ in range(chance.randint(10, 60)):
                payer, payee = chance.sample(NAMES, 2)
                body: dict[str, Any] = {"amount": chance.choice([1, 7, 50, 400]), "to": payee}
                db.queue("bookings").send(body, group=payer, dedup_id=f"pay-{payments}")
                payments += 1
        killed += die_together(lambda *life: live(target, *life), two)
        sums.add(money(target))
    live(target, seed)
    sums.add(money(target))
    with inturn.open(target) as db:
        inspector = DatabaseInspector(db, "accounts")
        states = {name: inspector.group(name).state for name in NAMES}
        counts, remaining = asdict(inspector.counts()), db.queue("bookings").depth().messages
    print(
        json.dumps(
            {
                "killed": killed,
                "payments": payments,
                "sums": [*sums],
                "states": states,
                "counts": counts,
                "left": remaining,
            }
        )
    )


if __name__ == "__main__":
    at = Path(sys.argv[1])
    main(at, int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else str(at / "bank.db"))
