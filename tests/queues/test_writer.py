"""Many callers, one writer: group commit, waiting, leads that are given up, and nobody left behind."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import inturn
from inturn.core import limits
from inturn.core.errors import LeaseExpired, NoSuchQueue, QueueError, StoreError, TransactionOver
from inturn.database import Database, wall_clock_ms
from inturn.queue import Queue
from inturn.store.postgres import PostgresStore
from inturn.store.sqlite import SqliteStore
from inturn.threads import started
from threads import Running, together
from waiting import DEADLINE_S, until, until_async


class Counting:
    """Counts its transactions."""

    transactions = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():  # type: ignore[misc]
            self.transactions += 1
            yield


class Counted(Counting, SqliteStore):
    """In a file."""

    @contextmanager
    def lasting(self) -> Iterator[None]:
        with super().lasting():
            self.transactions += 1
            yield


class CountedToo(Counting, PostgresStore):
    """On a server."""


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    with Database((CountedToo if "://" in address else Counted)(address)) as db:  # type: ignore[arg-type]
        yield db


def threads(number: int, act: Any) -> list[Any]:
    """What ``act`` returned or raised in each of so many threads."""

    def run(index: int) -> Any:
        try:
            return act(index)
        except Exception as error:  # noqa: BLE001 - it is what is looked at
            return error

    return together(*(partial(run, index) for index in range(number)))


def while_somebody_writes(db: Database, number: int, act: Any) -> list[Any]:
    """Let that many threads gather before the first of them can write."""
    with db.transaction():
        gathering = Running(threads, number, act)
        until(lambda: len(db.writer._callers) >= number)
    return gathering.end()


def test_concurrent_sends_share_one_transaction(db: Database) -> None:
    queue = db.queue("q")
    before = db.store.transactions  # type: ignore[attr-defined]
    sent = while_somebody_writes(db, 20, lambda number: queue.send(number, group=str(number)))
    assert len({receipt.sequence_number for receipt in sent}) == 20
    assert db.store.transactions == before + 2  # type: ignore[attr-defined] # with that of somebody
    assert queue.depth().messages == 20


def test_ready_tasks_of_a_loop_share_one_transaction(db: Database) -> None:
    queue = db.queue("q")
    before = db.store.transactions  # type: ignore[attr-defined]

    async def main() -> None:
        await asyncio.gather(*(queue.send.aio(number) for number in range(64)))

    asyncio.run(main())
    assert db.store.transactions == before + 1  # type: ignore[attr-defined]


def test_a_closed_event_loop_does_not_block_other_callers(db: Database) -> None:
    queue = db.queue("q")
    loop = asyncio.new_event_loop()

    async def leave_at_once() -> None:
        db.writer.post(queue.send._command("nobody waits for it"), lambda sent, error: None)

    loop.run_until_complete(leave_at_once())
    loop.close()
    assert asyncio.run(queue.send.aio("from another loop"))
    assert queue.send("from a thread")
    assert queue.depth().messages == 3


def test_a_posted_command_calls_back_with_the_answer_or_the_error(db: Database) -> None:
    queue = db.queue("q")

    async def main() -> list[Any]:
        outcomes: asyncio.Queue[Any] = asyncio.Queue()
        unhandled: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: unhandled.append(context["exception"]))
        db.writer.post(queue.send._command("a"), lambda sent, error: 1 / 0)
        db.writer.post(queue.send._command("b"), lambda *both: outcomes.put_nowait(both))
        db.writer.post(Queue(db.writer, "nowhere").info._command(), lambda *both: outcomes.put_nowait(both))
        return [await outcomes.get(), await outcomes.get(), unhandled]

    (sent, error), (nothing, refused), unhandled = asyncio.run(main())
    assert sent.sequence_number == queue.depth().last
    assert error is None
    assert nothing is None
    assert isinstance(refused, NoSuchQueue)
    assert [type(error) for error in unhandled] == [ZeroDivisionError]


def test_a_failing_command_does_not_affect_others_of_the_transaction(db: Database) -> None:
    queue = db.queue("q")
    queue.send("held")
    (held,) = queue.receive()
    held.ack()

    def act(number: int) -> Any:
        if number == 0:
            return held.ack()
        if number == 1:
            return Queue(db.writer, "nowhere").send("x")
        if number == 2:
            return Queue(db.writer, "nowhere").info()
        return queue.send(number)

    results = while_somebody_writes(db, 10, act)
    assert [type(result) for result in results[:3]] == [LeaseExpired, NoSuchQueue, NoSuchQueue]
    assert not any(isinstance(result, Exception) for result in results[3:])
    assert queue.depth().messages == 7


def test_a_database_error_fails_only_its_own_command_of_a_batch(db: Database) -> None:
    queue = db.queue("q")
    with db.transaction() as tx:
        if isinstance(db.store, PostgresStore):
            tx.execute("alter table inturn_message add constraint good check (body <> 'bad')")
        else:
            tx.execute(
                "create trigger no before insert on inturn_message when new.body = 'bad' "
                "begin select raise(abort, 'bad body'); end"
            )
    results = while_somebody_writes(db, 6, lambda number: queue.send("bad" if number == 3 else "good"))
    assert [isinstance(result, Exception) for result in results] == [False] * 3 + [True] + [False] * 2
    assert queue.depth().messages == 5


def test_a_waiting_receive_returns_when_a_message_is_sent(db: Database) -> None:
    queue = db.queue("q")
    waiting = Running(lambda: queue.receive(wait_s=3600))
    until(lambda: db.writer._parked)
    queue.send("x")
    assert [message.body for message in waiting.end()] == ["x"]


def test_waiting_receives_are_served_in_order(db: Database) -> None:
    queue = db.queue("q")

    async def run() -> list[list[Any]]:
        waiting = [asyncio.create_task(queue.receive.aio(wait_s=60)) for _ in range(3)]
        await until_async(lambda: len(db.writer._parked) == 3)
        await queue.send.aio("first", group="a")
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.done() for task in waiting] == [True, False, False]
        await asyncio.gather(queue.send.aio("second", group="b"), queue.send.aio("third", group="c"))
        return [await task for task in waiting]

    assert [[message.body for message in messages] for messages in asyncio.run(run())] == [
        ["first"],
        ["second"],
        ["third"],
    ]


def test_a_waiting_receive_returns_when_a_lease_or_a_delay_ends(db: Database) -> None:
    queue = db.queue("q")
    queue.send("leased", group="a")
    queue.receive(visibility_timeout_s=0.2)
    queue.send("delayed", group="b", delay_s=0.3)  # sent later, so due later, however slow the machine is
    assert [message.body for _ in range(2) for message in queue.receive(wait_s=30)] == ["leased", "delayed"]


def test_receive_waits_for_wait_s_in_an_empty_queue(db: Database) -> None:
    queue = db.queue("q")
    before = time.monotonic()
    assert queue.receive(wait_s=0.2) == []
    assert time.monotonic() - before >= 0.2


def test_a_waiting_receive_writes_nothing(db: Database, address: str) -> None:
    queue = db.queue("q")
    queue.receive()  # the first may see that there is nothing
    if "://" in address:
        with db.transaction() as tx:
            assert queue.receive(tx=tx) == queue.receive(group="a", tx=tx) == []
            # a transaction has a number once it writes, and be it the lock of a row
            assert tx.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)
        return
    log = Path(f"{address}-wal")
    before = log.stat().st_size
    queue.receive(wait_s=0.3)
    assert log.stat().st_size == before


def test_a_waiting_receive_notices_a_send_of_another_process(db: Database, address: str) -> None:
    queue = db.queue("q")
    program = f"import inturn; inturn.open({address!r}).queue('q').send('from afar')"
    other = subprocess.Popen([sys.executable, "-c", program])
    assert [message.body for message in queue.receive(wait_s=60)] == ["from afar"]
    assert other.wait(DEADLINE_S) == 0


def test_concurrent_tasks_and_threads_keep_group_order(db: Database) -> None:
    queue = db.queue("q")

    async def many() -> None:
        await asyncio.gather(*(queue.send.aio(number, group=f"t{number % 7}") for number in range(200)))

    runs = [Running(lambda: asyncio.run(many())) for _ in range(2)]
    threads(8, lambda number: [queue.send(n, group=f"g{number}") for n in range(25)])
    for run in runs:
        run.end()
    assert queue.depth().messages == 600
    by_group: dict[str, list[int]] = {}
    while messages := queue.receive(50):
        for message in messages:
            by_group.setdefault(message.group or "", []).append(message.body)
        queue.ack(messages)
    assert all(by_group[f"g{number}"] == list(range(25)) for number in range(8))


@pytest.mark.parametrize("pauses", range(6))
def test_a_cancelled_receive_gives_back_its_message(db: Database, pauses: int) -> None:
    queue = db.queue("q")

    async def run() -> list[Any]:
        waiting = asyncio.create_task(queue.receive.aio(wait_s=60))
        await until_async(lambda: db.writer._parked)
        sending = asyncio.create_task(queue.send.aio("x", group="a"))
        for _ in range(pauses):
            await asyncio.sleep(0)
        waiting.cancel()  # the answer may be there, on its way, or not yet found
        (messages, _) = await asyncio.gather(waiting, sending, return_exceptions=True)
        return messages if isinstance(messages, list) else await queue.receive.aio(wait_s=20)

    assert [message.body for message in asyncio.run(run())] == ["x"]


def test_a_cancelled_waiting_receive_takes_no_message(db: Database) -> None:
    queue = db.queue("q")

    async def run() -> None:
        waiting = asyncio.create_task(queue.receive.aio(wait_s=60))
        await until_async(lambda: db.writer._parked)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(run())
    queue.send("x")
    assert [message.body for message in queue.receive()] == ["x"]


def test_an_async_transaction_accepts_sync_and_async_verbs(db: Database) -> None:
    queue = db.queue("q")

    async def run() -> None:
        async with db.transaction() as tx:
            queue.send("x", tx=tx)
            await asyncio.sleep(0)
            await queue.send.aio("y", tx=tx)

    asyncio.run(run())
    assert queue.depth().messages == 2


def test_a_transaction_that_fails_to_begin_does_not_block_others(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(db, "store", None)
        with pytest.raises(AttributeError), db.transaction():
            pass
    assert db.queue("q").send("x")


def test_transactions_of_threads_and_tasks_are_serialized(db: Database) -> None:
    queue = db.queue("q")
    with db.transaction() as tx:
        tx.execute("create table counter (n integer)")
        tx.execute("insert into counter values (0)")

    def add() -> None:
        with db.transaction() as tx:
            (n,) = tx.execute("select n from counter").fetchone()
            queue.send(n, group="a", tx=tx)
            tx.execute("update counter set n = n + 1")

    async def in_tasks() -> None:
        async def one() -> None:
            async with db.transaction() as tx:
                (n,) = tx.execute("select n from counter").fetchone()
                await asyncio.sleep(0)
                queue.send(n, group="a", tx=tx)
                tx.execute("update counter set n = n + 1")

        await asyncio.gather(*(one() for _ in range(20)))

    tasks = Running(lambda: asyncio.run(in_tasks()))
    threads(4, lambda number: [add() for _ in range(10)])
    tasks.end()
    assert [message.body for message in queue.peek(100)] == list(range(60))


def test_a_transaction_over_its_time_limit_is_rolled_back(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_S", 0.2)
    queue = db.queue("q")
    with pytest.raises(TransactionOver), db.transaction() as tx:  # noqa: PT012 - the block is what is tested
        queue.send("lost", tx=tx)
        assert threads(1, lambda number: queue.send("other").duplicate) == [False]  # it waited until the first was over
        with pytest.raises(TransactionOver):
            tx.execute("select 1")
        with pytest.raises(TransactionOver):
            queue.send("lost too", tx=tx)
    assert [message.body for message in queue.peek()] == ["other"]


def test_a_verb_without_tx_inside_a_transaction_is_refused(db: Database) -> None:
    queue = db.queue("q")
    with db.transaction() as tx:
        for act in (lambda: queue.send("x"), lambda: db.transaction().__enter__()):
            with pytest.raises(QueueError, match="pass tx=tx"):
                act()
        queue.send("y", tx=tx)

    async def run() -> None:
        async with db.transaction() as tx:
            for act in (lambda: queue.send.aio("x"), lambda: db.transaction().__aenter__()):
                with pytest.raises(QueueError, match="pass tx=tx"):
                    await act()
            with pytest.raises(QueueError):  # it would hold up the loop, and the transaction with it
                queue.send("x")
            await queue.send.aio("z", tx=tx)

    asyncio.run(run())
    assert [message.body for message in queue.peek()] == ["y", "z"]


def test_close_fails_waiting_receives(address: str) -> None:
    db = inturn.open(address)
    queue = db.queue("q")
    waiting = Running(threads, 3, lambda number: queue.receive(wait_s=3600))
    until(lambda: len(db.writer._parked) == 3)
    db.close()
    db.close()
    assert [type(error) for error in waiting.end()] == [StoreError] * 3
    with pytest.raises(StoreError, match="closed"):
        queue.send("x")


def test_an_interrupted_leader_thread_leaves_no_command_unanswered(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue("q")
    interrupted = threading.Event()

    def clock() -> int:
        if threading.current_thread().name == "doomed" and not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        return wall_clock_ms()

    monkeypatch.setattr(db.writer, "clock", clock)
    caught: list[BaseException] = []

    def doomed() -> None:
        try:
            queue.send("never")
        except KeyboardInterrupt as error:
            caught.append(error)

    thread = threading.Thread(target=doomed, name="doomed")
    with db.transaction():
        thread.start()
        until(lambda: db.writer._callers)
        senders = Running(threads, 5, queue.send)
        until(lambda: len(db.writer._callers) == 6)
    thread.join(DEADLINE_S)
    assert len(caught) == 1
    assert not any(isinstance(result, Exception) for result in senders.end())
    assert sorted(message.body for message in queue.peek()) == list(range(5))


def test_store_threads_leave_signals_to_the_main_thread() -> None:
    blocked: set[int] = set()
    started(lambda: blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "one").join(60)
    assert blocked == {signal.SIGINT, signal.SIGTERM}
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
