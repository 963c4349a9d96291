"""Names at their longest, of characters with four bytes by chance, which no compression shortens: every store has them.

An entry of an index of PostgreSQL has 2,704 bytes at most; a name has up to 4,000.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inturn
from inturn.core import limits
from inturn.database import Database
from inturn.idempotency import Completed, Locked
from inturn.queue import QueueSettings, draft
from inturn.store.postgres import names
from inturn.store.postgres.log import PostgresLog
from memory_store.store import MemoryStore


def longest(seed: int, length: int = limits.ID_LENGTH) -> str:
    """A name of so many characters of four bytes each."""
    chance = random.Random(seed)
    return "".join(chr(chance.randrange(0x10000, 0x110000)) for _ in range(length))


A, B = longest(1), longest(2)
A2 = A[:-1] + "z"
"""Differs from A in the last character only."""
LOOKALIKE = names.short(A)
"""As A stands in an index."""
GROUPS = [A, A2, B, LOOKALIKE, "й" * 1_000, "é" * 600, "é" * 601, "x" * 1_000, "\1\3"]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "memory":
        memory: Any = MemoryStore()
        db = Database(memory)
        yield db
        db.writer.close()
        return
    target = tmp_path / "shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with inturn.open(target, durable=False) as db:
        yield db


def test_longest_group_names_and_dedup_ids_are_stored(db: Database) -> None:
    queue = db.queue("q")
    for _ in range(2):  # the second is the same again
        queue.send_many([draft(number, group=group, dedup_id=group) for number, group in enumerate(GROUPS)])
    assert [(message.group, message.dedup_id) for message in queue.peek(100)] == [(group, group) for group in GROUPS]
    assert [view.group for view in queue.groups()] == GROUPS
    assert [view.group for view in queue.groups(A2, LOOKALIKE)] == [A2, LOOKALIKE]
    for number, group in enumerate(GROUPS):
        (message,) = queue.receive(10, group=group)
        assert (message.group, message.dedup_id, message.body) == (group, group, number)
        message.nack()
    received = queue.receive(100)
    assert [message.group for message in received] == GROUPS
    queue.extend(received, 60)
    queue.ack(received)
    assert queue.depth().messages == 0


def test_message_verbs_accept_the_longest_group_names(db: Database) -> None:
    dead = db.queue("dead")
    queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=3))
    first, _ = queue.send_many([draft("a1", group=A), draft("a2", group=A)])
    (message,) = queue.receive(group=A)
    message.defer()
    assert [message.group for message in queue.deferred()] == [A]
    fetched = queue.fetch(first.sequence_number)
    assert fetched is not None
    assert fetched.group == A
    fetched.ack()
    (message,) = queue.receive()
    message.reject("no such account")
    assert [(message.group, message.body) for message in dead.peek()] == [(A, "a2")]
    late = queue.send("late", group=B, delay_s=60)
    assert queue.cancel(late.sequence_number)
    reader = queue.reader("r")
    queue.send("b1", group=B)
    assert [message.group for message in reader.read(10)] == [B]


def test_sessions_and_parking_accept_the_longest_group_names(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many([draft(group[:3], group=group) for group in (A, A2, B)])
    session = queue.session(A)
    assert session is not None
    assert session.group == A
    session.set_state(b"s")
    (message,) = session.receive()
    session.renew(60)
    message.ack()
    assert session.state() == b"s"
    assert [message.group for message in queue.receive(10, group=A)] == []
    session.close()
    with queue.session() as following:
        assert following is not None
        assert following.group == A2
    for group in (B, A2):
        queue.park(group, "why")
    assert [group.group for group in queue.parked()] == [B, A2]
    assert queue.receive(10) == []
    for group in (B, A2):
        queue.resume(group)
    assert [message.group for message in queue.receive(10)] == [A2, B]


@pytest.mark.parametrize("db", ["sqlite", "postgres"], indirect=True)
def test_idempotency_keys_accept_the_longest_names(db: Database) -> None:
    space = longest(3, limits.NAME_LENGTH)
    keys = db.idempotency_keys("".join(char if char.isprintable() else "é" for char in space))
    for key in (A, A2):
        lock = keys.try_lock(key)
        assert isinstance(lock, Locked)
        keys.extend(lock, 60)
        keys.accept(lock, key[:3])
    for key in (A, A2):
        assert isinstance(keys.try_lock(key), Completed)


def test_another_process_reads_the_longest_names(postgres_url: str) -> None:
    with inturn.open(postgres_url, durable=False) as db:
        db.queue("q").send_many([draft("x", group=group) for group in GROUPS])
    with inturn.open(postgres_url, durable=False) as db:
        queue = db.queue("q")
        assert [message.group for message in queue.peek(100)] == GROUPS
        with db.transaction() as tx:
            assert [message.group for message in queue.receive(100, tx=tx)] == GROUPS
    with psycopg.connect(postgres_url) as connection, inturn.open(postgres_url, durable=False) as db:
        queue = db.queue("q")
        queue.send("mine", group=longest(9), tx=connection)
        connection.commit()
        (message,) = queue.receive(100)
        assert message.group == longest(9)
    log = PostgresLog(postgres_url, "q")
    try:
        rows = log.rows(log.first(), log.info().last or 2**62)
        assert [row.group for row in rows] == [*GROUPS, longest(9)]
    finally:
        log.close()


def test_a_rolled_back_send_leaves_its_long_name_usable(postgres_url: str) -> None:
    with inturn.open(postgres_url, durable=False) as db:
        queue = db.queue("q")
        with suppress(ZeroDivisionError), db.transaction() as tx:
            print(queue.send("x", group=A, tx=tx).sequence_number / 0)
        queue.send("y", group=A)
    with inturn.open(postgres_url, durable=False) as db:
        assert [message.group for message in db.queue("q").receive()] == [A]


@given(name=st.text(min_size=1, max_size=limits.ID_LENGTH))
def test_the_short_form_of_a_name_fits_and_is_unique(name: str) -> None:
    if not name.isascii():
        name = name.encode(errors="replace").decode()
    short_form = names.short(name)
    assert len(short_form.encode()) <= names.LONGEST
    assert short_form == name or names.is_short(short_form)
    assert names.short(short_form) != short_form or short_form == name, "no name is taken for another's short form"


def test_two_longest_short_names_fit_one_postgres_index_entry(postgres_url: str) -> None:
    """Beside numbers, as in the indices of what groups hold."""
    text = longest(4, names.LONGEST // 4)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create temporary table t (a bigint, b text, c bigint, d bigint, e bigint, f text)")
        connection.execute("create index on t (a, b, c, d, e, f)")
        connection.execute("insert into t values (1, %s, 2, 3, 4, %s)", (text, text[::-1]))
