"""Sixteen producers that give up and are killed leave neither a hole nor a double in the numbers of any group."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import inturn
from inturn.core import limits
from waiting import DEADLINE_S

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "programs" / "numbering_writer.py"
WRITERS = 16
WAVES = 2


def test_killed_and_aborting_producers_leave_no_revision_gap_or_duplicate(address: str, soak_seed: int) -> None:
    chance = random.Random(soak_seed)
    with inturn.open(address, durable=False) as db, closing(connected(address)) as connection:
        db.queue("q").reader("log").seek(0)  # all of it stays to be read
        connection.execute("create table own (grp text, revision bigint)")
        connection.commit()
        for wave in range(WAVES):
            kill_all(address, chance, wave)
        revisions = defaultdict[str, list[int | None]](list)
        for group, revision in log(db):
            revisions[group].append(revision)
        own = connection.execute("select grp, revision from own").fetchall()
    assert sum(map(len, revisions.values())) > 20 * WRITERS, "too little was done to say anything"
    assert own, "no transaction of a caller was committed"
    for group, numbers in revisions.items():
        assert numbers == list(range(1, len(numbers) + 1)), group
    assert len(own) == len(set(own)), "a revision was given to two callers"
    assert all(revision <= len(revisions[group]) for group, revision in own), "a committed row has lost its message"


def kill_all(address: str, chance: random.Random, wave: int) -> None:
    """Start all writers, and kill each at a random moment; one that ends by itself has failed."""
    writers = [
        subprocess.Popen(
            [sys.executable, PROGRAM, address, f"{wave}/{n}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for n in range(WRITERS)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n", writer.communicate(timeout=DEADLINE_S)[1].decode()
        for writer in chance.sample(writers, k=WRITERS):
            time.sleep(chance.uniform(0, 0.2))
            assert writer.poll() is None, writer.communicate(timeout=DEADLINE_S)[1].decode()
            writer.send_signal(signal.SIGKILL)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate(timeout=DEADLINE_S)


def connected(address: str) -> Any:
    """The caller's own connection."""
    return psycopg.connect(address) if address.startswith("postgresql:") else sqlite3.connect(address)


def log(db: Any) -> list[tuple[str, int | None]]:
    """The group and the revision of every message, in order."""
    pairs: list[tuple[str, int | None]] = []
    after = 0
    while part := db.queue("q").peek(limits.READ_MESSAGES, after=after):
        after = part[-1].sequence_number
        pairs += [(message.group, message.revision) for message in part]
    return pairs
