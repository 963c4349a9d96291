"""One of several processes over one file.

python colleague.py send FILE GROUPS MESSAGES      sends 1, 2, … to each of its groups, each after the other
python colleague.py take FILE MESSAGES             applies messages, in one transaction each, until so many are done

Nobody begins before all five are there, so that they are at work at once.
"""

import os
import sys
import time
from contextlib import suppress

import inturn
from inturn.core.errors import LeaseExpired, TransactionOver
from inturn.database import Database
from inturn.store.sqlite.group_index import GroupIndex

GroupIndex.newest_messages = 16  # so that messages go into the table of pending ones

ALL = 5
LIMIT_S = 90


def gather(db: Database) -> None:
    """Wait for the others."""
    with db.transaction() as tx:
        tx.execute("insert into present values (?)", (os.getpid(),))
    present, ends = 0, time.monotonic() + LIMIT_S
    while present < ALL:
        assert time.monotonic() < ends, "the others do not come"
        time.sleep(0.01)
        with db.transaction() as tx:
            (present,) = tx.execute("select count(*) from present").fetchone()


def send(path: str, groups: list[str], messages: int) -> None:
    with inturn.open(path) as db:
        queue = db.queue("q")
        gather(db)
        for number in range(1, messages + 1):
            for group in groups:
                queue.send(number, group=group)


def take(path: str, messages: int) -> None:
    with inturn.open(path) as db:
        queue = db.queue("q")
        gather(db)
        ends = time.monotonic() + LIMIT_S
        while time.monotonic() < ends:
            with suppress(TransactionOver, LeaseExpired):  # this process stood still: what is left comes again
                for message in queue.receive(5, wait_s=0.2):
                    with db.transaction() as tx:
                        row = (message.group, message.body, os.getpid())
                        tx.execute("insert into applied (grp, number, process) values (?, ?, ?)", row)
                        message.ack(tx)
            with db.transaction() as tx:
                (done,) = tx.execute("select count(*) from applied").fetchone()
            if done >= messages:
                return
        raise TimeoutError(f"{done} of {messages} were applied")


if __name__ == "__main__":
    verb, path, *rest = sys.argv[1:]
    if verb == "send":
        send(path, rest[0].split(","), int(rest[1]))
    else:
        take(path, int(rest[0]))
