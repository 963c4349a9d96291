"""A shop whose process is killed again and again, and the history that shows whether anything was lost or done twice.

    python -m queues.programs.crash_worker DIRECTORY KILLS SEED [POSTGRESQL]

Each life is a fork that is killed (lives.py), and the next one goes on with the same file. A
life sends the next orders of some accounts, each with a deduplication id, and notes in ``sent.log`` what was answered;
it receives orders and, in one transaction each, applies them to the account, sends a receipt, and acknowledges. What is
left at the end is worked off by a life that nobody kills. Prints one line of JSON for the test.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import inturn
from inturn import faults
from inturn.queue import QueueSettings, draft
from inturn.store.sqlite.group_index import GroupIndex
from lives import Death, deaths, die_together

TARGET = sys.argv[4] if len(sys.argv) > 4 else str(Path(sys.argv[1]) / "shop.db")
IS_FILE = "://" not in TARGET
PLACE = "integer primary key" if IS_FILE else "bigserial primary key"
VALUES = "?, ?, ?" if IS_FILE else "%s, %s, %s"
SOUND = "select * from pragma_integrity_check" if IS_FILE else "select 'ok'"
GroupIndex.newest_messages = 4  # so that a short life puts messages into the table of pending ones
ACCOUNTS = [f"acct-{n}" for n in range(6)]
POINTS = [*faults.OF_A_TRANSACTION, "received", "applied", "answered"]


def live(directory: Path, seed: int, death: Death | None = None) -> None:
    """One life: until it is killed or, without a death, until nothing is left to do."""
    chance = random.Random(seed)
    log = os.open(directory / "sent.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if death:
        death.arm()
    with inturn.open(TARGET) as db:
        orders = db.queue("orders", QueueSettings(visibility_timeout_s=0.05, dedup_window_s=None))
        receipts = db.queue("receipts")
        with db.transaction() as tx:
            tx.execute(f"create table if not exists applied (place {PLACE}, account text, number bigint, life bigint)")
        following = _following(directory)
        while death or orders.depth().messages:
            if death:
                _send(orders, chance, following, log)
            for message in orders.receive(chance.randint(1, 5), wait_s=0 if death else 0.1):
                faults.reach("received")
                try:
                    _apply(db, receipts, message, seed)
                except inturn.core.errors.LeaseExpired:
                    break  # the rest of the batch is not ours any more


def _following(directory: Path) -> dict[str, int]:
    """The number of each account's next order: those that were not answered are sent again, with the same id."""
    following = dict.fromkeys(ACCOUNTS, 1)
    for line in (directory / "sent.log").read_text().splitlines():
        account, number = line.split()
        following[account] = int(number) + 1
    return following


def _send(orders: Any, chance: random.Random, following: dict[str, int], log: int) -> None:
    accounts = chance.sample(ACCOUNTS, chance.randint(1, 3))
    drafts = [
        draft({"number": following[account]}, group=account, dedup_id=f"{account}/{following[account]}")
        for account in accounts
    ]
    if chance.random() < 0.5:
        orders.send_many(drafts)
    else:
        for message in drafts:
            orders.send(json.loads(message.body), group=message.group, dedup_id=message.dedup_id)
    faults.reach("answered")
    os.write(log, "".join(f"{account} {following[account]}\n" for account in accounts).encode())
    for account in accounts:
        following[account] += 1


def _apply(db: Any, receipts: Any, message: Any, life: int) -> None:
    with db.transaction() as tx:
        tx.execute(
            f"insert into applied (account, number, life) values ({VALUES})",  # noqa: S608 - placeholders
            (message.group, message.body["number"], life),
        )
        faults.reach("applied")
        receipts.send({"number": message.body["number"]}, group=message.group, tx=tx)
        message.ack(tx)


def main(directory: Path, kills: int, seed: int) -> None:
    """Let them live and die."""
    (directory / "sent.log").touch()
    killed = 0
    for death in enumerate(deaths(POINTS, kills, random.Random(seed), reached=(1, 6)), seed * 1_000_000):
        killed += die_together(lambda *life: live(directory, *life), [death])
    time.sleep(0.1)  # the leases of the dead are over
    live(directory, seed)
    with inturn.open(TARGET) as db:
        receipts = [(message.group, message.body["number"]) for message in db.queue("receipts").peek(10_000)]
        with db.transaction() as tx:
            applied = tx.execute("select account, number, life from applied order by place").fetchall()
            sound = tx.execute(SOUND).fetchall()
    sent = [line.split() for line in (directory / "sent.log").read_text().splitlines()]
    print(json.dumps({"killed": killed, "sent": sent, "applied": applied, "receipts": receipts, "sound": sound}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
