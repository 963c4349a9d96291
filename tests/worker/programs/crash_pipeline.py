"""Workers that are killed again and again, two at a time, and what they leave behind.

    python -m worker.programs.crash_pipeline DIRECTORY KILLS SEED [POSTGRESQL-URL]

Each life is a fork that is killed (lives.py) while it sends messages, out of order and more
than once, works them off and delivers the outputs; the next one goes on with the same database. What was delivered is
noted in ``told.log``, and a trigger notes every output that was committed. What is left at the end is worked off by a
life that nobody kills. Prints one document of JSON for the test.
"""

import json
import os
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import inturn
from inturn import faults
from inturn.core import limits
from inturn.queue import QueueSettings, draft
from inturn.results.inspection import DatabaseInspector
from inturn.worker import Worker
from lives import Death, deaths, die_together

ACCOUNTS = [f"acct-{n}" for n in range(6)]
BAD = ("acct-0", 40)


def handler(state: Any, message: Any) -> Any:
    state["balance"] = state.get("balance", 0) + message["amount"]
    if message["amount"] < 0:
        raise ValueError(message["amount"])
    return state, [{"balance": state["balance"]}] * (message["revision"] % 3)


RETRY = inturn.Retry(100_000, "1 millisecond")  # as every kill is an attempt
LEDGER = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=handler, retry=RETRY)


def message(account: str, revision: int) -> dict[str, Any]:
    amount = -1 if (account, revision) == BAD else revision
    return {"account": account, "revision": revision, "amount": amount}


_NOTE = "begin insert into made values (new.effect_id, new.output);"
NOTED = {
    False: [f"create trigger note after insert on inturn_output {_NOTE} end"],
    True: [
        f"create function note() returns trigger language plpgsql as $$ {_NOTE} return null; end $$",
        "create trigger note after insert on inturn_output for each row execute function note()",
    ],
}
"""What notes every output that is committed, in SQLite and in PostgreSQL."""
SOUND = {
    False: "select * from pragma_integrity_check",
    True: "select coalesce((select min(grp) from inturn_outbox), (select min(grp) from inturn_outbox_note), 'ok')",
}


def is_server(target: str) -> bool:
    return "://" in target


def live(directory: Path, target: str, seed: int, death: Death | None = None) -> None:
    """One life: until it is killed or, without a death, until nothing is left to do."""
    chance = random.Random(seed)
    log_fd = os.open(directory / "told.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def deliver(output: Any, effect_id: str) -> None:
        os.write(log_fd, f"{json.dumps([effect_id, output])}\n".encode())

    with inturn.open(target, durable=False) as db:
        queue = db.queue("q")
        if death:
            death.arm()
        with Worker(LEDGER, queue, concurrency=chance.choice([1, 4]), deliver=deliver) as worker:
            while death:
                send(directory, queue, chance, seed)
                time.sleep(chance.uniform(0, 0.005))
                worker.check()
            worker.drain(60)


def send(directory: Path, queue: Any, chance: random.Random, seed: int) -> None:
    """The next messages of some accounts, which are noted as sent when that is answered."""
    account = ACCOUNTS[seed % 2 :: 2][chance.randrange(3)]  # the two who live together send for different ones
    log = directory / f"{account}.log"
    first = int(log.read_text()) if log.exists() else 1
    revisions = list(range(first, first + chance.randint(1, 4)))
    repeated = [revision for revision in range(max(1, first - 5), first) if chance.random() < 0.2]
    every = chance.sample([*revisions, *repeated], len(revisions) + len(repeated))
    queue.send_many([draft(message(account, revision), group=account) for revision in every])
    new = log.with_suffix(".new")
    new.write_text(str(revisions[-1] + 1))
    new.replace(log)


def main(directory: Path, kills: int, seed: int, target: str) -> None:
    """Let them live and die."""
    with inturn.open(target, durable=False) as db:
        db.queue("q", QueueSettings(visibility_timeout_s=0.04))
        with db.transaction() as tx:
            for statement in ["create table made (effect_id text, output text)", *NOTED[is_server(target)]]:
                tx.execute(statement)
    limits.WORKER_LEASE_MS = 40  # type: ignore[misc] # the groups of the dead are free soon
    limits.OUTBOX_LEASE_S = 0.04  # type: ignore[misc]
    limits.WORKER_IDLE_S = 0.01  # type: ignore[misc]
    killed = 0
    after_s = (0.01, 0.4 if is_server(target) else 0.2)
    ends = enumerate(deaths(faults.OF_A_WORKER, kills, random.Random(seed), after_s=after_s), 2 * seed * 1_000_000)
    for two in zip(ends, ends, strict=True):
        killed += die_together(lambda *life: live(directory, target, *life), two)
    live(directory, target, seed)
    with inturn.open(target) as db:
        counts = asdict(DatabaseInspector(db, "ledger").counts())
    with inturn.open(target) as db, db.transaction() as tx:
        print(
            json.dumps(
                {
                    "killed": killed,
                    "sent": {
                        path.stem: int(path.read_text()) - 1
                        for path in directory.glob("*.log")
                        if path.stem in ACCOUNTS
                    },
                    "made": tx.execute("select effect_id, output from made").fetchall(),
                    "left": tx.execute("select count(*) from inturn_output").fetchone()[0],
                    "told": [json.loads(line) for line in (directory / "told.log").read_text().splitlines()],
                    "counts": counts,
                    "held": tx.execute("select grp, position from inturn_held order by grp, position").fetchall(),
                    "states": {
                        group: (status, state.hex())
                        for group, status, state in tx.execute("select grp, status, state from inturn_group")
                    },
                    "messages": db.queue("q", tx=tx).depth(tx).messages,
                    "sound": tx.execute(SOUND[is_server(target)]).fetchall(),
                }
            )
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), (*sys.argv[4:], str(Path(sys.argv[1], "shop.db")))[0])
