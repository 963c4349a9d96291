"""Threads and tasks at once, cancelled at any moment: nobody is left behind, and only one ever writes."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from inturn.core.errors import LeaseExpired
from inturn.database import Database
from inturn.store.postgres import PostgresStore
from inturn.store.sqlite import SqliteStore
from threads import Running


class Guarding:
    """Says so if two write at once."""

    writing = 0
    wrong = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.wrong += self.writing
        self.writing += 1
        try:
            with super().transaction():  # type: ignore[misc]
                yield
        finally:
            self.writing -= 1


class Guarded(Guarding, SqliteStore):
    """In a file, whose messages go into the table of pending ones as soon as a few others have come."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.pending.newest_messages = 4


class GuardedToo(Guarding, PostgresStore):
    """On a server."""


class Storm:
    """What was sent and what was acknowledged, by whom ever."""

    def __init__(self, db: Database, seed: int) -> None:
        self.db, self.queue = db, db.queue("q")
        self.seed = seed
        self.until = time.monotonic() + 0.7
        self.sent: set[int] = set()
        self.done: list[int] = []

    def thread(self, number: int) -> None:
        chance = random.Random(f"{self.seed} thread {number}")
        while time.monotonic() < self.until:
            match chance.choice(["send", "send", "receive", "transaction", "roll back"]):
                case "send":
                    self.sent.add(self.queue.send("x", group=f"g{chance.randrange(9)}").sequence_number)
                case "receive":
                    for message in self.queue.receive(chance.randrange(1, 5), wait_s=chance.choice([0, 0.01])):
                        message.ack()
                        self.done.append(message.sequence_number)
                case "transaction":
                    messages = self.queue.receive(2)
                    with self.db.transaction() as tx:
                        sent = self.queue.send("x", group="t", tx=tx).sequence_number
                        self.queue.ack(messages, tx)
                    self.sent.add(sent)
                    self.done += [message.sequence_number for message in messages]
                case "roll back":
                    with suppress(ZeroDivisionError), self.db.transaction() as tx:
                        self.queue.send("never", tx=tx)
                        self.queue.receive(3, tx=tx)
                        raise ZeroDivisionError

    async def task(self, number: int) -> None:
        chance = random.Random(f"{self.seed} task {number}")
        while time.monotonic() < self.until:
            match chance.choice(["send", "receive", "cancel", "cancel", "transaction"]):
                case "send":
                    self.sent.add((await self.queue.send.aio("x", group=f"g{chance.randrange(9)}")).sequence_number)
                case "receive":
                    for message in await self.queue.receive.aio(2, wait_s=chance.choice([0, 0.01])):
                        await message.ack.aio()
                        self.done.append(message.sequence_number)
                case "cancel":
                    waiting = asyncio.create_task(self.queue.receive.aio(2, wait_s=5))
                    for _ in range(chance.randrange(6)):
                        await asyncio.sleep(0)
                    await asyncio.sleep(chance.choice([0, 0, 0.001]))
                    waiting.cancel()
                    with suppress(asyncio.CancelledError):
                        await self.queue.nack.aio(await waiting)  # it had come before it was cancelled
                case "transaction":
                    entering = asyncio.create_task(self.in_transaction())
                    await asyncio.sleep(chance.choice([0, 0, 0.001]))
                    if chance.random() < 0.3:
                        entering.cancel()
                    with suppress(asyncio.CancelledError):
                        await entering

    async def in_transaction(self) -> None:
        async with self.db.transaction() as tx:
            sent = self.queue.send("x", group="t", tx=tx).sequence_number
            await asyncio.sleep(0)
        self.sent.add(sent)

    async def tasks(self) -> None:
        await asyncio.gather(*(self.task(number) for number in range(8)))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.thorough
def test_concurrent_cancelled_threads_and_tasks_lose_no_message(address: str, seed: int, soak_seed: int) -> None:
    store = (GuardedToo if "://" in address else Guarded)(address, durable=False)
    with Database(store) as db:
        storm = Storm(db, 4 * (soak_seed - 1) + seed)
        tasks = [lambda: asyncio.run(storm.tasks())] * 2
        running = [Running(act) for act in (*(partial(storm.thread, number) for number in range(4)), *tasks)]
        for process in running:
            with suppress(LeaseExpired):
                process.end()
        storm.queue.configure(visibility_timeout_s=0)
        remaining = [message.sequence_number for message in storm.queue.peek(10_000)]
        assert store.wrong == 0, "two wrote at once"
        assert sorted(storm.done) == sorted(set(storm.done)), "acknowledged twice"
        assert storm.sent == {*remaining, *storm.done}
        assert storm.done, "nothing was done"
        assert not db.writer._parked
        assert not db.writer._callers
        assert not db.writer._is_led
