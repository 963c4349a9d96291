"""Opening what is there and nothing else, and settling by receipt from another place than the receive."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import inturn
from inturn.core.errors import InputError, LeaseExpired, NoSuchQueue, StoreError
from inturn.queue import QueueSettings, Receipt
from waiting import DEADLINE_S


def test_open_with_create_false_creates_nothing(tmp_path: Path) -> None:
    for target, words in ((tmp_path / "a.db", "no database '"), (tmp_path, "no database '")):
        with pytest.raises(StoreError, match=words):
            inturn.open(target, create=False)
    with pytest.raises(StoreError, match="no database ':memory:'"):
        inturn.open(":memory:", create=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as theirs:
        theirs.execute("create table account (id)")
    (tmp_path / "text.db").write_text("no database at all, and long enough that this can be seen " * 3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name, words in (("empty", "has no queues"), ("theirs", "has no queues"), ("text", "not an SQLite database")):
        with pytest.raises(StoreError, match=words):
            inturn.open(tmp_path / f"{name}.db", create=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_open_with_create_false_opens_an_existing_database(tmp_path: Path) -> None:
    inturn.open(tmp_path / "a b%20?.db").close()
    with inturn.open(tmp_path / "a b%20?.db", create=False) as db:
        with pytest.raises(NoSuchQueue, match="no queue 'q'; existing queues: none"):
            db.queue("q", create=False)
        assert db.queues() == []
        db.queue("q")
        assert db.queue("q", create=False).depth().messages == 0
        with pytest.raises(InputError, match="configure"):
            db.queue("q", QueueSettings(), create=False)


def test_a_receipt_settles_a_message_from_another_database_object(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "a.db") as db, inturn.open(tmp_path / "a.db") as elsewhere:
        queue = db.queue("q")
        queue.send("a", group="g")
        queue.send("b", group="g")
        messages = queue.receive(2)
        receipts = [Receipt(message.sequence_number, message.fencing_token) for message in messages]
        same_queue = elsewhere.queue("q", create=False)
        same_queue.extend(receipts, 60)
        same_queue.ack(receipts[:1])
        same_queue.nack(receipts[1:])
        assert [message.body for message in queue.receive(2)] == ["b"]
        with pytest.raises(LeaseExpired):
            same_queue.ack(receipts[1:])


def test_concurrent_opens_of_a_new_file_wait_for_each_other(tmp_path: Path) -> None:
    for round_ in range(20):
        start = threading.Barrier(8, timeout=DEADLINE_S)

        def make(path: Path = tmp_path / f"{round_}.db", start: threading.Barrier = start) -> None:
            start.wait()
            inturn.open(path, durable=False).close()

        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(make) for _ in range(8)]:
                future.result()
