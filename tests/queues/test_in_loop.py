"""Commands that an event loop does itself: the same answers, and nobody waits for a disk or a lock in it."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inturn.core.errors import InputError, StoreError
from inturn.core.queue.delivery import SettleAction, Settlement
from inturn.core.queue.messages import Content, Draft, QueueInfo, ReceiveRequest
from inturn.database import Database
from inturn.store.commands import Command, Receive, Send, Settle, StoreCall
from inturn.store.sqlite import SqliteStore
from inturn.store.writer.event_loop import EventLoopWriter


class Threads(SqliteStore):
    """Keeps which thread did what."""

    def __init__(self, path: str) -> None:
        super().__init__(path, durable=False)
        self.waited_in: list[int] = []
        self.sent_in: list[int] = []
        self.committed_in: list[int] = []

    def begin(self, *, wait: bool = True, is_own: bool = False) -> None:
        if wait:
            self.waited_in.append(threading.get_ident())
        super().begin(wait=wait, is_own=is_own)

    def send(self, queue: QueueInfo, drafts: Any, now_ms: int) -> Any:
        self.sent_in.append(threading.get_ident())
        return super().send(queue, drafts, now_ms)

    def commit(self) -> None:
        self.committed_in.append(threading.get_ident())
        super().commit()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(Threads(str(tmp_path / "shop.db"))) as db:
        db.queue("q")
        db.store.waited_in.clear()
        db.store.committed_in.clear()
        yield db


def sending(text: str) -> Command[int]:
    return Send("q", lambda sent: sent[0].sequence_number, (Draft(text, Content.TEXT, "a"),))


class Broken(Send[Any]):
    """A command with a fault of its own."""

    def run(self, store: Any, now_ms: int) -> Any:
        raise InputError("it is broken")


async def posted(db: Any, command: Command[Any]) -> Any:
    """Post a command, as the endpoint does, and wait for its answer."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(value: Any, error: BaseException | None) -> None:
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    db.writer.post(command, done)
    return await answer


def in_loop(db: Any, act: Callable[[], Any]) -> Any:
    async def run() -> Any:
        async with EventLoopWriter(db.writer, db.store):
            return await act()

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_post_executes_commands_in_the_loop_and_commits_in_another_thread(db: Any) -> None:
    numbers = in_loop(db, lambda: asyncio.gather(*(posted(db, sending(str(n))) for n in range(100))))
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 100
    assert set(db.store.sent_in) == {threading.get_ident()}
    assert threading.get_ident() not in db.store.committed_in
    assert len(db.store.committed_in) < 10  # they share their transactions


def test_the_writer_serves_posts_tasks_and_threads_together(db: Any) -> None:
    async def act() -> Any:
        in_thread = asyncio.to_thread(db.writer.run, sending("thread"))
        return await asyncio.gather(in_thread, db.writer.arun(sending("task")), posted(db, sending("post")))

    assert len(set(in_loop(db, act))) == 3


def test_post_supports_send_receive_settle_and_a_long_poll(db: Any) -> None:
    async def act() -> Any:
        receive: Receive[Any] = Receive("q", lambda deliveries: deliveries, ReceiveRequest(10), wait_s=20)
        waiting = asyncio.ensure_future(posted(db, receive))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await posted(db, sending("hello"))
        (delivery,) = await waiting
        assert delivery.message.body == "hello"
        change = Settlement(delivery.message.sequence_number, delivery.token, SettleAction.ACK)
        await posted(db, Settle("q", list, (change,)))
        return await posted(db, StoreCall("q", lambda store, now_ms: store.depth(store.queues["q"], now_ms).messages))

    assert in_loop(db, act) == 0


def test_a_failing_posted_command_does_not_affect_others(db: Any) -> None:
    commands = [sending("one"), Broken("q", list, ()), sending("two")]

    async def act() -> Any:
        return await asyncio.gather(*(posted(db, command) for command in commands), return_exceptions=True)

    one, broken, two = in_loop(db, act)
    assert isinstance(broken, InputError)
    assert two == one + 1


def test_the_event_loop_is_not_blocked_by_the_write_lock_of_another_process(db: Any, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as other:

        async def act() -> Any:
            other.execute("begin immediate")
            sent = asyncio.ensure_future(posted(db, sending("patience")))
            while not db.store.waited_in:
                await asyncio.sleep(0.001)
            assert threading.get_ident() not in db.store.waited_in, "the loop waited for the lock"
            assert not sent.done()
            other.execute("commit")
            first = await sent
            return first, await posted(db, sending("again"))

        first, second = in_loop(db, act)
    assert second == first + 1
    assert db.store.sent_in[-1] == threading.get_ident(), "what comes after is done in the loop again"


def test_a_failed_commit_fails_all_its_posted_commands_and_no_later_one(db: Any) -> None:
    connection = db.store.connection

    async def act() -> Any:
        first = await posted(db, sending("first"))
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages}")  # what SQLite makes of a full disk
        big = [posted(db, sending("x" * 200_000)) for _ in range(3)]
        assert all(isinstance(result, StoreError) for result in await asyncio.gather(*big, return_exceptions=True))
        connection.execute("pragma max_page_count = 1000000")
        return await posted(db, sending("last")) - first

    assert in_loop(db, act) == 1


def test_posted_commands_are_answered_before_the_loop_ends(db: Any) -> None:
    answers: list[Any] = []

    async def act() -> None:
        for n in range(50):
            db.writer.post(sending(str(n)), lambda value, error: answers.append((value, error)))

    in_loop(db, act)
    assert len(answers) == 50
    assert all(error is None for _, error in answers)
    assert db.writer.run(sending("afterwards"))
