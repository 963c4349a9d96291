"""Send numbered messages for ever, in transactions of every kind, of which some are given up, until it is killed.

    python numbering_writer.py ADDRESS NAME

It says "ready" once it has begun. The table ``own`` is the caller's: it has a row for each message sent with it.
"""

import random
import sqlite3
import sys
from contextlib import closing, suppress
from typing import Any

import psycopg

import inturn
from inturn.core.errors import RevisionMismatch, StoreError, TransactionOver
from inturn.database import Database
from inturn.queue.drafts import draft

INSERT = {True: "insert into own values (%s, %s)", False: "insert into own values (?, ?)"}
GROUPS = ["a", "b", "c", "d"]


class GivenUpError(Exception):
    """The caller gives its transaction up."""


def in_callers_transaction(queue: Any, address: str, groups: list[str], name: str, *, gives_up: bool) -> None:
    """Send to several groups, in any order, and write a row for each message, in one transaction."""
    is_server = address.startswith("postgresql:")
    connect = psycopg.connect if is_server else sqlite3.connect
    with closing(connect(address)) as connection, connection:
        if not is_server:
            connection.execute("begin immediate")
        for group in groups:
            sent = queue.send(name, group=group, revision="next", tx=connection)
            connection.execute(INSERT[is_server], (group, sent.revision))
        if gives_up:
            raise GivenUpError


def run(address: str, name: str) -> None:
    """Send until the process is killed."""
    chance = random.Random(name)
    db = inturn.open(address, durable=False)
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        with suppress(TransactionOver, StoreError):  # too many others write on a slow machine
            send(db, address, f"{name} {number}", chance)


def send(db: Database, address: str, name: str, chance: random.Random) -> None:
    """Send in one of six ways."""
    queue, group, kind = db.queue("q"), chance.choice(GROUPS), chance.randrange(6)
    if kind == 0:
        queue.send(name, group=group, revision="next")
    elif kind == 1:
        queue.send_many([draft(name, group=group, revision="next") for group in chance.choices(GROUPS, k=5)])
    elif kind == 2:  # a retry answers with the first revision
        one, two = (queue.send(name, group=group, revision="next", dedup_id=name) for _ in range(2))
        assert (two.revision, two.duplicate) == (one.revision, True), (one, two)
    elif kind == 3:
        with suppress(RevisionMismatch):
            queue.send(name, group=group, revision="next", expected_revision=queue.last_revision(group))
    elif kind == 4:
        groups = chance.sample(GROUPS, k=chance.randint(1, 4))
        with suppress(GivenUpError, sqlite3.OperationalError):
            in_callers_transaction(queue, address, groups, name, gives_up=chance.random() < 0.4)
    else:
        with suppress(GivenUpError), db.transaction() as tx:
            for picked in chance.sample(GROUPS, k=2):
                queue.send(name, group=picked, revision="next", tx=tx)
            if chance.random() < 0.4:
                raise GivenUpError


if __name__ == "__main__":
    run(*sys.argv[1:])
