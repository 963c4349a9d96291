"""Idempotency keys of several processes at one PostgreSQL database: nobody waits for a stranger; whose clock it is."""

import asyncio
import time
from collections.abc import Iterator

import psycopg
import pytest

import inturn
from clocks import SkewedClocks
from inturn.core.errors import InputError, LockLost
from inturn.database import Database
from inturn.idempotency import Completed, InProgress, Locked


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    with inturn.open(postgres_url, durable=False) as db:
        yield db


@pytest.fixture
def other(db: Database, postgres_url: str) -> Iterator[Database]:
    """Another process's."""
    with inturn.open(postgres_url, durable=False) as other:
        yield other


def test_locking_a_key_in_an_open_transaction_does_not_block_others(
    db: Database, other: Database, postgres_url: str
) -> None:
    """It is in progress for the others until it is known what becomes of it."""
    keys, others = db.idempotency_keys("p"), other.idempotency_keys("p")
    with psycopg.connect(postgres_url) as connection:
        lock = keys.try_lock("tx-1", tx=connection)
        assert lock
        keys.accept(lock, tx=connection)
        answer = others.try_lock("tx-1")
        assert isinstance(answer, InProgress)
        assert 0 < answer.retry_after_s < 1
        assert others.try_lock("tx-2")
        connection.rollback()
    relocked = others.try_lock("tx-1")
    assert isinstance(relocked, Locked)
    assert relocked.fencing_token > lock.fencing_token


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
def test_accepting_a_key_in_an_open_transaction_does_not_block_others(clocks: SkewedClocks) -> None:
    db = clocks.open()
    keys, others = db.idempotency_keys("p"), clocks.open().idempotency_keys("p")
    lock = keys.try_lock("tx-1", 30)
    assert lock
    with db.transaction() as tx:
        keys.accept(lock, "paid", tx=tx)
        clocks.now += 31  # its time is over, and it is accepted in time all the same
        assert isinstance(others.try_lock("tx-1"), InProgress)
    assert others.try_lock("tx-1") == Completed("tx-1", '"paid"')


def test_a_key_is_accepted_in_the_transaction_of_a_psycopg_connection(db: Database, postgres_url: str) -> None:
    keys = db.idempotency_keys("p")
    with db.transaction() as tx:
        tx.execute("create table paid (key text)")
    with psycopg.connect(postgres_url) as connection:
        lock = keys.try_lock("tx-1", tx=connection)
        assert lock
        connection.execute("insert into paid values ('tx-1')")
        keys.accept(lock, 5, tx=connection)
        assert isinstance(keys.try_lock("tx-1"), InProgress)
        with pytest.raises(LockLost):
            keys.release(lock, tx=connection)
    assert keys.try_lock("tx-1") == Completed("tx-1", "5")
    with db.transaction() as tx:
        assert tx.execute("select * from paid").fetchall() == [("tx-1",)]


def test_a_key_is_accepted_in_the_transaction_of_an_async_connection(db: Database, postgres_url: str) -> None:
    keys = db.idempotency_keys("p")

    async def pay() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            lock = await keys.try_lock.aio("tx-1", tx=connection)
            assert lock
            await keys.accept.aio(lock, 5, tx=connection)
            assert isinstance(await keys.try_lock.aio("tx-1"), InProgress)

    asyncio.run(pay())
    assert keys.try_lock("tx-1") == Completed("tx-1", "5")


def test_key_lifetimes_use_the_clock_of_the_postgresql_server(
    db: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is a day ahead takes nobody's lock."""
    assert db.idempotency_keys("p").try_lock("tx-1", 60)
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 86_400 * 10**9)
    with inturn.open(postgres_url) as ahead:
        answer = ahead.idempotency_keys("p").try_lock("tx-1")
    assert isinstance(answer, InProgress)
    assert 50 < answer.retry_after_s <= 60


def test_keys_with_control_characters_are_distinct_and_nul_is_refused(db: Database) -> None:
    keys = db.idempotency_keys("p")
    for text in ("\1", "\1\1", "\2\1", "\1\2", "a\1b", "\x1b[31m"):
        assert keys.try_lock(text), text
        assert isinstance(keys.try_lock(text), InProgress)
    assert db.idempotency_keys("q").try_lock("\1")
    for text in ("\0", "a\0b"):
        with pytest.raises(InputError, match="with a NUL at index"):
            keys.try_lock(text)
