"""Reads of an SQLite file take no lock: they wait for no writer, and no writer waits for them."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import inturn
from inturn import Gapless, Pipeline
from inturn.cli import app
from inturn.core.errors import NoSuchQueue, QueueError, StoreError, StoreUnavailable
from inturn.database import Database
from inturn.queue import QueueSettings, draft
from inturn.store import limits
from inturn.store.commands import Read
from inturn.store.sqlite import read_transactions
from inturn.worker import Worker
from waiting import DEADLINE_S, until

READS: dict[str, Callable[[Database], Any]] = {
    "depth": lambda db: db.queue("q", create=False).depth().messages,
    "info": lambda db: db.queue("q", create=False).info().depth,
    "peek": lambda db: [message.body for message in db.queue("q", create=False).peek()],
    "peek in a group": lambda db: [message.body for message in db.queue("q", create=False).peek(group="a")],
    "groups": lambda db: [group.group for group in db.queue("q", create=False).groups()],
    "parked groups": lambda db: [group.group for group in db.queue("q", create=False).parked()],
    "deferred": lambda db: [message.body for message in db.queue("q", create=False).deferred()],
    "log": lambda db: [message.body for message in db.queue("q", create=False).log()],
    "last revision": lambda db: db.queue("q", create=False).last_revision("a"),
    "priority": lambda db: db.queue("q", create=False).priority("a"),
    "position": lambda db: db.queue("q", create=False).reader("mirror").position(),
    "place": lambda db: db.queue("q", create=False).reader("mirror").place(),
    "queues": lambda db: db.queues(),
    "pipelines": lambda db: db.pipelines(),
    "figures": lambda db: [figures.queue for figures in db.figures().queues],
    "states": lambda db: [row.state for row in db.pipeline("ledger").states()],
    "explain": lambda db: db.pipeline("ledger").inspector.explain("z"),
}


def reads_of(db: Database) -> read_transactions.ReadTransactions:
    return db.store.reads  # type: ignore[attr-defined,no-any-return]


def post(state: Any, message: Any) -> Any:
    return {"balance": state.get("balance", 0) + message["amount"]}, []


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with a queue, whose newest messages are in no index, and a pipeline."""
    path = str(tmp_path / "shop.db")
    pipeline = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=post)
    with inturn.open(path, durable=False) as db:
        with Worker(pipeline, db.queue("ledger")) as worker:
            db.queue("ledger").send({"account": "z", "revision": 1, "amount": 5}, group="z")
            worker.drain(DEADLINE_S)
        queue = db.queue("q", QueueSettings(keep_for="1 day"))
        queue.send_many([draft(number, group="ab"[number % 2]) for number in range(6)])
        queue.park("b", reason="looked into")
        queue.ack(queue.receive())
    return path


@pytest.fixture
def db(path: str) -> Iterator[Database]:
    with inturn.open(path, busy_s=0) as db:
        yield db


@pytest.fixture
def locked(path: str) -> Iterator[None]:
    """Another program holds the write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        yield


@pytest.mark.parametrize("name", READS)
def test_a_read_succeeds_while_another_connection_holds_the_write_lock(db: Database, path: str, name: str) -> None:
    expected = READS[name](db)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        with pytest.raises(StoreUnavailable):
            db.queue("q", create=False).send(7)
        assert READS[name](db) == expected


def test_reads_return_correct_results_under_a_write_lock(db: Database, locked: None) -> None:
    results = {name: read(db) for name, read in READS.items()}
    assert results | {"explain": "", "place": ""} == {
        "depth": 5,
        "info": 5,
        "peek": [1, 2, 3, 4, 5],
        "peek in a group": [2, 4],
        "groups": ["b", "a"],
        "parked groups": ["b"],
        "deferred": [],
        "log": [0, 1, 2, 3, 4, 5],
        "last revision": 0,
        "priority": 0,
        "position": 0,
        "place": "",
        "queues": ["ledger", "q"],
        "pipelines": ["ledger"],
        "figures": ["ledger", "q"],
        "states": [{"balance": 5}],
        "explain": "",
    }


def test_an_async_read_needs_no_write_lock(db: Database, locked: None) -> None:
    async def read() -> int:
        return (await db.queue("q", create=False).depth.aio()).messages

    assert asyncio.run(read()) == 5


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "#ledger", "z"],
        ["parked", "list", "#ledger"],
        ["states", "#ledger"],
        ["outputs", "#ledger"],
        ["rejected", "#ledger"],
        ["pipelines", ""],
        ["peek", "#q"],
        ["peek", "#q", "--log"],
        ["groups", "#q"],
        ["queue", "show", "#q"],
        ["queue", "list", ""],
    ],
    ids=" ".join,
)
def test_read_only_commands_need_no_write_lock(path: str, locked: None, command: list[str]) -> None:
    done = CliRunner().invoke(
        app, [f"{path}{argument}" if argument in ("", "#q", "#ledger") else argument for argument in command]
    )
    assert done.exit_code == 0, done.output


def test_a_read_sees_earlier_sends_of_its_process(db: Database) -> None:
    queue = db.queue("q", create=False)
    for number in range(6, 9):
        queue.send(number, group=f"new {number}")
        assert [message.body for message in queue.peek(group=f"new {number}")] == [number]
        assert queue.groups(f"new {number}")[0].depth == 1
    assert queue.depth().messages == 8


def test_a_read_sees_nothing_of_an_uncommitted_transaction(db: Database) -> None:
    queue, seen = db.queue("q", create=False), []
    with db.transaction() as tx:
        queue.send("not yet", tx=tx)
        reading = threading.Thread(target=lambda: seen.append(queue.depth().messages))
        reading.start()
        reading.join(DEADLINE_S)
        assert seen == [5]
        assert queue.depth(tx=tx).messages == 6
        with pytest.raises(QueueError, match="pass tx=tx"):
            queue.depth()  # of which of the two?
    assert queue.depth().messages == 6


def test_many_reading_threads_share_few_connections(db: Database) -> None:
    queue = db.queue("q", create=False)
    depths: list[int] = []
    threads = [threading.Thread(target=lambda: depths.append(queue.depth().messages)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert depths == [5] * len(threads)
    assert 1 <= len(reads_of(db)._idle) <= limits.READERS


def test_close_waits_for_running_reads(path: str) -> None:
    """The connection that writes is the last to be closed: it empties the log."""
    begun, go_on = threading.Event(), threading.Event()
    db = inturn.open(path)
    queue = db.queue("q", create=False)
    queue.send(6)

    def slow(store: Any, _now_ms: int) -> int:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return int(store.queues["q"].depth)

    results: list[int] = []
    reading = threading.Thread(target=lambda: results.append(db.writer.run(Read("q", slow))))
    reading.start()
    assert begun.wait(DEADLINE_S)
    closing = threading.Thread(target=db.close)
    closing.start()
    until(lambda: reads_of(db)._is_closed)
    assert closing.is_alive()
    go_on.set()
    for thread in (reading, closing):
        thread.join(DEADLINE_S)
    assert results == [6]
    assert not Path(f"{path}-wal").exists()
    assert not reads_of(db)._idle
    with pytest.raises(StoreError, match="the database is closed"):
        queue.depth()
    with pytest.raises(StoreError, match="the database is closed"):
        asyncio.run(queue.depth.aio())


def test_reads_pause_so_that_a_grown_wal_can_be_reset(db: Database, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read after the other leaves no moment in which the log can begin anew; it grew by 60 MB in a second."""
    monkeypatch.setattr(limits, "WAL_BYTES", 1_000_000)
    monkeypatch.setattr(limits, "MAKE_WAY_S", DEADLINE_S)
    reads_of(db)._tolerated = limits.WAL_BYTES
    db.store.connection.execute("pragma journal_size_limit = 1000000")  # type: ignore[attr-defined]
    queue, log = db.queue("q", create=False), Path(f"{path}-wal")
    with reads_of(db).begin():  # none can begin anew before its end
        while log.stat().st_size < 8_000_000:
            queue.send("x" * 500_000)
    reading = threading.Thread(target=queue.depth)
    reading.start()
    while reading.is_alive():
        queue.send("x")
    assert log.stat().st_size < 2_000_000


def test_a_wal_that_stays_long_delays_reads_only_once(db: Database, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAL_BYTES", 1_000_000)
    monkeypatch.setattr(limits, "MAKE_WAY_S", 0.01)
    queue, log = db.queue("q", create=False), Path(f"{path}-wal")
    with reads_of(db).begin():
        while log.stat().st_size < 4_000_000:
            queue.send("x" * 500_000)
        queue.depth()
        assert reads_of(db)._tolerated > log.stat().st_size
        queue.depth()


def test_a_read_uses_the_writer_connection_if_no_read_connection_opens(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a process has given up the right to open the file."""

    def refuse(_path: str) -> None:
        raise StoreError("the file cannot be opened")

    monkeypatch.setattr(read_transactions, "connect_for_inspection", refuse)
    assert db.queue("q", create=False).depth().messages == 5
    assert asyncio.run(db.queue("q", create=False).depth.aio()).messages == 5


@pytest.mark.parametrize("name", ["shop.db", "file:shop.db"])
def test_changing_the_working_directory_keeps_the_same_database_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with inturn.open(name) as db:
        db.queue("q").send("a")
        monkeypatch.chdir(tmp_path / "other")
        assert db.queue("q").depth().messages == 1
        db.backup(tmp_path / "copy.db")
    assert (tmp_path / name).exists()
    with inturn.open(tmp_path / "copy.db") as copy:
        assert copy.queue("q").depth().messages == 1


def test_a_failed_read_leaves_no_transaction_open(db: Database, path: str) -> None:
    with pytest.raises(NoSuchQueue):
        db.queue("absent", create=False)
    db.queue("q", create=False).send(6)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (busy, *_) = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    assert not busy


def test_a_read_of_a_replaced_file_is_refused(db: Database, path: str) -> None:
    queue = db.queue("q", create=False)
    assert queue.depth().messages == 5
    Path(path).rename(f"{path}-away")
    with inturn.open(path) as other:
        other.queue("q").send(json.dumps("of another file"))
    with pytest.raises(StoreError, match="deleted or replaced"):
        queue.depth()


def test_an_in_memory_database_is_read_through_its_only_connection() -> None:
    with inturn.open(":memory:") as db:
        db.queue("q").send("a")
        assert db.queue("q").depth().messages == 1
        assert asyncio.run(db.queue("q").peek.aio())[0].body == "a"
