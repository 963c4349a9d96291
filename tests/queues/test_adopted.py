"""Verbs in the transaction of a caller's own connection of psycopg: all or nothing, with the caller's own SQL."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import inturn
from inturn.core.errors import InputError, LeaseExpired
from inturn.database import Database


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    with inturn.open(postgres_url) as db:
        with db.transaction() as tx:
            tx.execute("create table account (id text primary key, balance integer)")
            tx.execute("insert into account values ('a', 0)")
        yield db


@pytest.fixture(params=["with the first statement", "in a block"])
def connection(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=request.param == "in a block") as connection:
        yield connection


def balance(db: Database) -> int:
    with db.transaction() as tx:
        return int(tx.execute("select balance from account").fetchone()[0])


def test_verbs_with_tx_commit_or_roll_back_with_the_callers_transaction(
    db: Database, connection: psycopg.Connection[Any]
) -> None:
    payments, receipts = db.queue("payments"), db.queue("receipts")
    payments.send(5, group="a")
    for attempt in (1, 2):
        (message,) = payments.receive(visibility_timeout_s=60)
        try:
            with connection.transaction():
                connection.execute("update account set balance = balance + %s", (message.body,))
                receipts.send("paid", group="a", dedup_id="tx-1", tx=connection)
                message.ack(tx=connection)
                assert receipts.depth(tx=connection).messages == 1
                assert receipts.depth().messages == 0
                1 // (attempt - 1)
        except ZeroDivisionError:
            message.nack()
    connection.commit()
    assert balance(db) == 5
    assert payments.depth().messages == 0
    assert [message.body for message in receipts.receive(10)] == ["paid"]
    assert receipts.send("paid", group="a", dedup_id="tx-1").duplicate


def test_every_verb_accepts_tx_of_an_adopted_connection(db: Database, connection: psycopg.Connection[Any]) -> None:
    queue = db.queue("q")
    with connection.transaction():
        for body in ("a1", "a2", "b1"):
            queue.send(body, group=body[0], tx=connection)
        (first,) = queue.receive(1, tx=connection)
        first.extend(60, tx=connection)
        assert [message.body for message in queue.peek(tx=connection)] == ["a1", "a2", "b1"]
        first.nack(tx=connection)
        session = queue.session("b", tx=connection)
        assert session is not None
        session.set_state(b"x", tx=connection)
        (message,) = session.receive(tx=connection)
        message.ack(tx=connection)
        session.close(tx=connection)
        reader = queue.reader("r")
        assert [message.body for message in reader.read(tx=connection)] == ["a1", "a2"]
        db.create("another", tx=connection)
    connection.commit()
    assert db.queues() == ["another", "q"]
    assert [message.body for message in queue.receive(10)] == ["a1", "a2"]


def test_an_open_caller_transaction_does_not_block_other_connections(
    db: Database, connection: psycopg.Connection[Any]
) -> None:
    queue, other = db.queue("q"), db.queue("other")
    queue.send_many([inturn.queue.draft(body, group=body[0]) for body in ("a1", "a2", "b1", "c1")])
    (message,) = queue.receive()
    with connection.transaction():
        message.ack(tx=connection)
        other.send("done", tx=connection)
        # a is closed until it is known what becomes of a1
        assert [message.body for message in queue.receive()] == ["b1"]
        assert queue.send("d1", group="d").duplicate is False
        assert other.receive() == []
        assert [message.body for message in queue.receive(10)] == ["c1", "d1"]
    connection.commit()
    assert [message.body for message in queue.receive()] == ["a2"]
    assert [message.body for message in other.receive()] == ["done"]


def test_ack_in_a_caller_transaction_refuses_an_expired_lease(
    db: Database, connection: psycopg.Connection[Any]
) -> None:
    queue = db.queue("q")
    queue.send("a")
    (message,) = queue.receive(visibility_timeout_s=0)
    with pytest.raises(LeaseExpired), connection.transaction():
        message.ack(tx=connection)
    assert queue.depth().messages == 1


def test_a_waiting_receive_returns_after_the_caller_transaction_commits(
    db: Database, connection: psycopg.Connection[Any]
) -> None:
    queue = db.queue("q")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, wait_s=60)
        with connection.transaction():
            queue.send("a", tx=connection)
        connection.commit()
        assert [each.body for each in waiting.result(60)] == ["a"]


def test_a_queue_created_in_a_rolled_back_transaction_does_not_exist(
    db: Database, connection: psycopg.Connection[Any]
) -> None:
    for _ in range(2):
        with connection.transaction(force_rollback=True):
            db.create("never", tx=connection)
            db.queue("never", create=False, tx=connection).send("x", tx=connection)
        connection.rollback()
        with connection.transaction(), pytest.raises(inturn.core.errors.NoSuchQueue):
            db.queue("never", create=False, tx=connection)
        assert db.queues() == []
        connection.rollback()


def test_tx_refuses_autocommit_pipeline_mode_and_other_databases(
    db: Database, postgres_url: str, postgres_schemas: Any
) -> None:
    queue = db.queue("q")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        with pytest.raises(InputError, match="autocommit mode and has no transaction"):
            queue.send("x", tx=connection)
        with connection.transaction(), connection.pipeline(), pytest.raises(InputError, match="pipeline mode"):
            queue.send("x", tx=connection)
    with psycopg.connect(postgres_schemas.new()) as elsewhere:
        with pytest.raises(InputError, match="same database, with the same search_path"):
            queue.send("x", tx=elsewhere)
        assert elsewhere.execute("select 1").fetchone() == (1,)  # nothing was spoilt
    with pytest.raises(InputError, match="or a connection of psycopg"):
        queue.send("x", tx="tomorrow")  # type: ignore[arg-type]
    with inturn.open(":memory:") as file, psycopg.connect(postgres_url) as connection:
        file_queue = file.queue("q")
        with pytest.raises(InputError, match="expected the transaction of"):
            file_queue.send("x", tx=connection)


def test_async_verbs_with_tx_of_an_async_connection_commit_once(db: Database, postgres_url: str) -> None:
    queue, done = db.queue("q"), db.queue("done")
    queue.send_many([inturn.queue.draft(number, group=str(number)) for number in range(20)])

    async def work() -> None:
        connection = await psycopg.AsyncConnection.connect(postgres_url)
        async with connection:
            while messages := await queue.receive.aio(3):
                async with connection.transaction():
                    await connection.execute("update account set balance = balance + %s", (len(messages),))
                    # they take turns at the connection, as psycopg's own statements do
                    await asyncio.gather(
                        *(done.send.aio(message.body, group=message.group, tx=connection) for message in messages),
                        queue.ack.aio(messages, tx=connection),
                    )
            with pytest.raises(InputError, match="await the verb"):
                queue.send("x", tx=connection)

    async def several() -> None:
        await asyncio.gather(*(work() for _ in range(3)))

    asyncio.run(several())
    assert balance(db) == 20
    assert queue.depth().messages == 0
    assert sorted(message.body for message in done.receive(100)) == list(range(20))


def test_a_cancelled_async_send_leaves_the_connection_usable(db: Database, postgres_url: str) -> None:
    queue = db.queue("q")

    async def work() -> int:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            for number in range(30):
                sending = asyncio.create_task(queue.send.aio(number, tx=connection))
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                sending.cancel()
                await asyncio.wait([sending])
                await connection.execute("select 1")
            depth = await queue.depth.aio(tx=connection)
            await connection.commit()
        return depth.messages

    assert asyncio.run(work()) == queue.depth().messages


def test_an_adopted_connection_is_garbage_collected_after_use(db: Database, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        db.queue("q").send("x", tx=connection)
    reference = weakref.ref(connection)
    del connection
    gc.collect()
    assert reference() is None
