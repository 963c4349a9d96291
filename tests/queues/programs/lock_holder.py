"""Sessions whose processes are killed again and again, and what is left of their groups.

    python -m queues.programs.lock_holder DIRECTORY KILLS SEED

Each life is a fork that is killed (lives.py). It sends the next messages of some groups and takes sessions, in which
it applies messages to the state and acknowledges them in the same transaction; it parks and resumes, defers and
fetches. What is left at the end is worked off by a life that nobody kills. Prints one line of JSON for the test: how
many messages of each group were sent, and its state, which tells what was applied, in order.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import inturn
from inturn import faults
from inturn.core.errors import LeaseExpired
from inturn.store.sqlite.group_index import GroupIndex
from lives import Death, deaths, die_together

GroupIndex.newest_messages = 4  # so that a short life puts messages into the table of pending ones
GROUPS = [f"flight-{n}" for n in range(4)]
POINTS = [*faults.OF_A_TRANSACTION, "received", "applied"]


def live(directory: Path, seed: int, death: Death | None = None) -> None:
    """One life: until it is killed or, without a death, until nothing is left to do."""
    chance = random.Random(seed)
    if death:
        death.arm()
    with inturn.open(directory / "seats.db", durable=False) as db:
        seats = db.queue("seats")
        while death or seats.depth().messages:
            if death:
                _send(db, seats, chance)
            for parked in seats.parked():
                seats.resume(parked.group)
            session = seats.session(chance.choice([None, *GROUPS]), wait_s=0 if death else 0.05, lock_s=0.02)
            if session is not None:
                try:
                    with session:
                        _serve(db, session, chance)
                except LeaseExpired:
                    pass  # it was too slow, and nothing was changed


def _send(db: Any, seats: Any, chance: random.Random) -> None:
    with db.transaction() as tx:
        for group in chance.sample(GROUPS, 2):
            ((number,),) = tx.execute("update sent set number = number + 1 where grp = ? returning number", (group,))
            seats.send(number, group=group, tx=tx)


def _serve(db: Any, session: Any, chance: random.Random) -> None:
    faults.reach("received")
    for peeked in session.deferred():  # each is the first of the group that is left
        _apply(db, session, session.fetch(peeked.sequence_number))
    for message in session.receive(chance.randint(1, 4)):
        draw = chance.random()
        if draw < 0.1:
            session.park("by chance")
            return
        if draw < 0.3:
            message.defer()
            return
        if draw < 0.5:
            session.renew()
        _apply(db, session, message)


def _apply(db: Any, session: Any, message: Any) -> None:
    with db.transaction() as tx:
        applied = json.loads(session.state(tx) or b"[]")
        faults.reach("applied")
        session.set_state(json.dumps([*applied, message.body]).encode(), tx=tx)
        message.ack(tx)


def main(directory: Path, kills: int, seed: int) -> None:
    """Let them live and die."""
    with inturn.open(directory / "seats.db", durable=False) as db:
        db.queue("seats")
        with db.transaction() as tx:
            tx.execute("create table sent (grp, number)")
            for group in GROUPS:
                tx.execute("insert into sent values (?, 0)", (group,))
    killed = 0
    for death in enumerate(deaths(POINTS, kills, random.Random(seed)), seed * 1_000_000):
        killed += die_together(lambda *life: live(directory, *life), [death])
    live(directory, seed)
    states = {}
    with inturn.open(directory / "seats.db") as db, db.transaction() as tx:
        sent = dict(tx.execute("select * from sent").fetchall())
    with inturn.open(directory / "seats.db") as db:
        for group in GROUPS:
            session = db.queue("seats").session(group, wait_s=10)
            assert session is not None
            states[group] = json.loads(session.state() or b"[]")
    print(json.dumps({"killed": killed, "sent": sent, "states": states}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
