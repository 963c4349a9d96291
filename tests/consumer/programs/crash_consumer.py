"""Consumers that are killed again and again, two at a time, and what they leave behind.

    python -m consumer.programs.crash_consumer DIRECTORY KILLS SEED [POSTGRESQL-URL]

Each life is a fork that is killed (lives.py) while it sends messages and consumes them. The
handler writes an effect in its transaction, notes its call in a file, and fails now and then. What is left at the end
is consumed by a life that nobody kills. Prints one document of JSON for the test.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import inturn
from inturn import Rate, Retry, faults
from inturn.consumer import Consumer
from inturn.core import limits
from inturn.queue import Message, QueueSettings, draft
from lives import Death, deaths, die_together

GROUPS = [f"g{n}" for n in range(5)]
POINTS = (*faults.OF_A_TRANSACTION, "received", "handled")


def live(directory: Path, target: str, seed: int, death: Death | None = None) -> None:
    """One life: until it is killed or, without a death, until nothing is left to do."""
    chance = random.Random(seed)
    calls = os.open(directory / "calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    mark = "%s" if "://" in target else "?"

    def handle(message: Message, tx: Any) -> None:
        os.write(calls, f"{json.dumps([message.fencing_token, message.group, message.body])}\n".encode())
        if message.body % 2:  # the others acknowledge without a transaction
            values = (message.group, message.body)
            tx.execute(f"insert into effect (grp, body) values ({mark}, {mark})", values)  # noqa: S608 - ours
        if message.body % 5 == 0 and message.attempts == 1:
            raise ValueError("once")

    with inturn.open(target, durable=False) as db:
        queue = db.queue("q")
        limited = {"group_rate_limit": Rate(1000, "1 second", burst=5)} if chance.random() < 0.3 else {}
        retry = Retry(100_000, "1 millisecond")  # as every kill is an attempt
        with Consumer(queue, handle, concurrency=chance.choice([1, 4]), retry=retry, **limited) as consumer:
            if death:
                death.arm()
            while death:
                send(directory, queue, chance, seed)
                time.sleep(chance.uniform(0, 0.005))
                consumer.check()
            consumer.drain(120)


def send(directory: Path, queue: Any, chance: random.Random, seed: int) -> None:
    """The next messages of a group, which are noted as sent when that is answered."""
    group = GROUPS[seed % 2 :: 2][chance.randrange(2)]  # the two who live together send for different ones
    log = directory / f"{group}.log"
    first = int(log.read_text()) if log.exists() else 1
    numbers = range(first, first + chance.randint(1, 4))
    queue.send_many([draft(n, group=group, dedup_id=f"{group}-{n}") for n in numbers])
    new = log.with_suffix(".new")
    new.write_text(str(numbers[-1] + 1))
    new.replace(log)


def main(directory: Path, kills: int, seed: int, target: str) -> None:
    """Let them live and die."""
    with inturn.open(target, durable=False) as db:
        db.queue("q", QueueSettings(visibility_timeout_s=0.04, dedup_window_s=None))
        with db.transaction() as tx:
            key = "serial primary key" if "://" in target else "integer primary key"
            tx.execute(f"create table effect (id {key}, grp text, body int)")
    limits.WORKER_LEASE_MS = 40  # type: ignore[misc] # the groups of the dead are free soon
    limits.WORKER_IDLE_S = 0.01  # type: ignore[misc]
    killed = 0
    fates = deaths(POINTS, kills, random.Random(seed), reached=(1, 20), after_s=(0.05, 0.4))
    ends = enumerate(fates, 2 * seed * 1_000_000)
    for two in zip(ends, ends, strict=True):
        killed += die_together(lambda *life: live(directory, target, *life), two)
    live(directory, target, seed)
    with inturn.open(target) as db, db.transaction() as tx:
        history = {
            "killed": killed,
            "sent": {path.stem: int(path.read_text()) - 1 for path in directory.glob("g*.log")},
            "calls": [json.loads(line) for line in (directory / "calls.log").read_text().splitlines()],
            "effects": [list(row) for row in tx.execute("select grp, body from effect order by id").fetchall()],
            "messages": db.queue("q", tx=tx).depth(tx).messages,
        }
    print(json.dumps(history))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), (*sys.argv[4:], str(Path(sys.argv[1], "shop.db")))[0])
