"""What a handler writes in its transaction is written together with the acknowledgement, or not at all."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import psycopg
import psycopg_pool
import pytest

import inturn
from inturn import Retry
from inturn.consumer import Consumer
from inturn.core.errors import HandlerError, InputError, TransactionOver
from inturn.database import Database
from inturn.queue import Message, draft
from waiting import DEADLINE_S

SOON = Retry(2, "1 millisecond")


@pytest.fixture
def shop(db: Database) -> Database:
    with db.transaction() as tx:
        tx.execute("create table effect (body text)")
    return db


def insert(tx: Any, message: Message, mark: str) -> None:
    tx.execute(f"insert into effect values ({mark})", (str(message.body),))  # noqa: S608 - ours


def effects(db: Database) -> list[str]:
    with db.transaction() as tx:
        return sorted(body for (body,) in tx.execute("select body from effect").fetchall())


@pytest.fixture
def mark(address: str) -> str:
    return "%s" if "://" in address else "?"


def test_handler_transaction_is_rolled_back_on_failure_and_committed_with_the_ack(shop: Database, mark: str) -> None:
    queue = shop.queue("q")
    queue.send_many([draft(f"{n:02}", group=f"g{n % 3}") for n in range(12)])

    def handle(message: Message, tx: Any) -> None:
        insert(tx, message, mark)
        if message.attempts <= int(message.body) % 3:
            raise ValueError("after the insert")

    counts = inturn.consume(queue, handle, retry=SOON, until="empty")
    assert effects(shop) == [f"{n:02}" for n in range(12)]
    assert (counts.done, counts.failed, counts.lost) == (12, 12, 0)


def test_an_unused_handler_transaction_is_not_begun(shop: Database) -> None:
    queue = shop.queue("q")
    queue.send_many([draft(n, group=f"g{n}") for n in range(2)])
    meeting = threading.Barrier(2, timeout=DEADLINE_S)

    def handle(message: Message, tx: Any) -> None:
        meeting.wait(60)  # a transaction of one would keep the other out
        assert not tx.is_begun

    assert inturn.consume(queue, handle, until="empty").done == 2


def test_a_handler_transaction_ends_with_its_handler(shop: Database) -> None:
    queue = shop.queue("q")
    queue.send(1)
    opened: list[Any] = []
    inturn.consume(queue, lambda message, tx: opened.append(tx), until="empty")
    with pytest.raises(TransactionOver, match="has returned"):
        opened[0].execute("select 1")


def test_a_handler_transaction_of_an_expired_lease_is_rolled_back(shop: Database, mark: str) -> None:
    queue = shop.queue("q")
    queue.send("a1", group="a")

    def handle(message: Message, tx: Any) -> None:
        queue.purge()
        insert(tx, message, mark)

    with Consumer(queue, handle) as consumer:
        consumer.drain(60)
    assert effects(shop) == []
    assert (consumer.counts.done, consumer.counts.failed, consumer.counts.lost) == (0, 0, 1)


def test_an_async_handler_awaits_its_transaction(shop: Database, mark: str) -> None:
    queue, out = shop.queue("q"), shop.queue("out")
    queue.send_many([draft(f"{n:02}", group=f"g{n % 3}") for n in range(9)])

    async def handle(message: Message, tx: Any) -> None:
        with pytest.raises(InputError, match=r"await tx\.execute\.aio"):
            tx.execute("select 1")
        await tx.execute.aio(f"insert into effect values ({mark})", (message.body,))  # noqa: S608 - as above
        await asyncio.sleep(0)  # others wait for the transaction, and the event loop does not
        await out.send.aio(message.body, tx=tx)
        if message.attempts == 1:
            raise ValueError("after both")

    counts = inturn.consume(queue, handle, retry=SOON, until="empty")
    assert (counts.done, counts.failed) == (9, 9)
    assert effects(shop) == sorted(message.body for message in out.peek(100)) == [f"{n:02}" for n in range(9)]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_ack_is_part_of_the_database_transaction(shop: Database, mark: str, is_async: bool) -> None:
    queue = shop.queue("q")
    queue.send_many([draft(f"{n:02}", group=f"g{n % 3}") for n in range(6)])

    def plain(message: Message, tx: Any) -> None:
        insert(tx, message, mark)
        if message.attempts == 1:
            raise ValueError("after the insert")

    async def awaited(message: Message, tx: Any) -> None:
        plain(message, tx)

    handler = awaited if is_async else plain
    counts = inturn.consume(queue, handler, retry=SOON, transaction=shop.transaction, until="empty")
    assert effects(shop) == [f"{n:02}" for n in range(6)]
    assert (counts.done, counts.failed) == (6, 6)


def test_the_ack_is_part_of_a_pool_connection_transaction(shop: Database, address: str) -> None:
    if "://" not in address:
        pytest.skip("a pool is for PostgreSQL")
    queue = shop.queue("q")
    queue.send_many([draft(f"{n:02}", group=f"g{n % 4}") for n in range(12)])

    def handle(message: Message, connection: psycopg.Connection[Any]) -> None:
        insert(connection, message, "%s")
        if message.attempts <= int(message.body) % 2:
            raise ValueError("after the insert")

    with psycopg_pool.ConnectionPool(address, min_size=1, max_size=4) as pool:
        counts = inturn.consume(queue, handle, retry=SOON, transaction=pool.connection, until="empty")
    assert effects(shop) == [f"{n:02}" for n in range(12)]
    assert (counts.done, counts.failed, counts.lost) == (12, 6, 0)


def test_the_ack_is_part_of_an_async_pool_connection_transaction(shop: Database, address: str) -> None:
    if "://" not in address:
        pytest.skip("a pool is for PostgreSQL")
    queue = shop.queue("q")
    queue.send_many([draft(f"{n:02}", group=f"g{n % 4}") for n in range(12)])

    async def handle(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("insert into effect values (%s)", (message.body,))
        if message.attempts == 1:
            raise ValueError("after the insert")

    async def main() -> Consumer:
        async with (
            psycopg_pool.AsyncConnectionPool(address, min_size=1, max_size=4, open=False) as pool,
            Consumer(queue, handle, retry=SOON, transaction=pool.connection) as consumer,
        ):
            await asyncio.to_thread(consumer.drain, 60)
            return consumer

    assert asyncio.run(main()).counts.done == 12
    assert effects(shop) == [f"{n:02}" for n in range(12)]


def test_an_unsuitable_transaction_factory_stops_the_consumer(shop: Database) -> None:
    queue = shop.queue("q")
    queue.send("a1", group="a")

    @contextmanager
    def keeping() -> Iterator[Any]:
        with suppress(ValueError), shop.transaction() as tx:
            yield tx

    def refuse(message: Message, tx: Any) -> None:
        raise ValueError("no")

    with pytest.raises(HandlerError, match="suppressed the handler's error"):
        inturn.consume(queue, refuse, transaction=keeping, retry=SOON)
    with pytest.raises(HandlerError, match="returned None"):
        inturn.consume(queue, lambda message, tx: None, transaction=nullcontext)
    with pytest.raises(HandlerError, match="cannot be acknowledged in transaction=: tx is 'text'"):
        inturn.consume(queue, lambda message, tx: None, transaction=lambda: nullcontext("text"))
    (message,) = queue.receive(wait_s=60)
    assert message.attempts == 4, "each began the message"
