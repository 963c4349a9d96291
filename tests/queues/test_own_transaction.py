"""A verb without tx= in a thread whose own transaction holds the write lock of an SQLite file: it is refused."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import inturn
from inturn.core.errors import QueueError, StoreError
from inturn.database import Database
from inturn.queue import Queue
from inturn.store import limits
from inturn.store.sqlite import store as store_module
from waiting import DEADLINE_S, until

REFUSED = "this thread has an open transaction on another connection"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OWN_TRANSACTION_S", 0.05)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
def db(path: str) -> Iterator[Database]:
    # Only a deadlock lasts so long that it fails.
    with inturn.open(path, busy_s=DEADLINE_S) as db:
        db.queue("q")
        with db.transaction() as tx:
            tx.execute("create table orders (id integer)")
        yield db


def connect(path: str, **more: Any) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, **more)


@pytest.mark.parametrize("isolation", ["", None, "IMMEDIATE"])
def test_a_verb_without_tx_in_ones_own_transaction_is_refused(db: Database, path: str, isolation: Any) -> None:
    queue = db.queue("q")
    with closing(connect(path, isolation_level=isolation)) as own:
        if isolation is None:
            own.execute("begin")
        own.execute("insert into orders values (1)")
        with pytest.raises(QueueError, match=f"{REFUSED}.*tx="):
            queue.send("x")
        with pytest.raises(QueueError, match=REFUSED):
            db.queue("q")
        with pytest.raises(QueueError, match=REFUSED), db.transaction():
            pass
        queue.send("y", tx=own)
        own.commit()
    queue.send("z")
    assert [message.body for message in queue.peek()] == ["y", "z"]


UNSEEN = """
import sys, inturn, sqlalchemy
from inturn.core.errors import QueueError

with inturn.open(sys.argv[1]) as db, sqlalchemy.create_engine(f"sqlite:///{sys.argv[1]}").connect() as own:
    queue = db.queue("q")
    own.execute(sqlalchemy.text("insert into orders values (1)"))
    try:
        queue.receive()
    except QueueError as error:
        print(error)
"""


def test_own_transaction_with_check_same_thread_off_is_refused_in_a_process_of_one_thread(
    db: Database, path: str
) -> None:
    command = [sys.executable, "-c", UNSEEN, path]
    assert REFUSED in subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout


def test_other_threads_continue_after_a_verb_was_refused(db: Database, path: str) -> None:
    queue, begun = db.queue("q"), threading.Event()

    def culprit() -> None:
        with closing(connect(path)) as own:
            own.execute("insert into orders values (1)")
            begun.set()
            with pytest.raises(QueueError, match=REFUSED):
                queue.send("refused")

    with ThreadPoolExecutor(2) as pool, inturn.open(path, busy_s=DEADLINE_S) as other:
        bad = pool.submit(culprit)
        assert begun.wait(DEADLINE_S)
        assert pool.submit(other.queue, "q", create=False).result(DEADLINE_S).send("sent").sequence_number
        bad.result(DEADLINE_S)
    assert [message.body for message in queue.peek()] == ["sent"]


def test_a_refused_verb_is_not_executed_in_a_transaction_shared_with_others(path: str) -> None:
    with inturn.open(path, busy_s=0.3) as db, ThreadPoolExecutor(1) as pool:
        queue, empty = db.queue("q"), db.queue("empty")
        with db.transaction() as tx:
            tx.execute("create table orders (id integer)")
        waiting = pool.submit(empty.receive, wait_s=DEADLINE_S)
        until(lambda: db.writer._parked)
        with closing(connect(path)) as own:
            own.execute("insert into orders values (1)")
            with pytest.raises((StoreError, QueueError)):
                queue.send("x")
        with pytest.raises(StoreError):  # the transactions are the same
            waiting.result(DEADLINE_S)
        assert queue.depth().messages == 0


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a wait was so long that it is looked into."""
    looked, real = threading.Event(), store_module.is_writing

    def looking(*arguments: Any) -> Any:
        try:
            return real(*arguments)
        finally:
            looked.set()

    monkeypatch.setattr(store_module, "is_writing", looking)
    return looked


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_thread_with_a_read_transaction_waits_for_the_writer(
    db: Database, path: str, looked: threading.Event, *, is_shared: bool
) -> None:
    """A transaction that reads holds nobody up; the lock is that of another thread, which is waited for."""
    queue, begun = db.queue("q"), threading.Event()
    with closing(connect(path, check_same_thread=not is_shared)) as shared:

        def other() -> None:
            with closing(connect(path)) as connection:
                lender = shared if is_shared else connection
                lender.execute("insert into orders values (1)")
                begun.set()
                assert looked.wait(DEADLINE_S)
                lender.rollback()

        with closing(connect(path, isolation_level=None)) as own, ThreadPoolExecutor(1) as pool:
            if is_shared:  # as a pool lends it, to one thread after the other
                queue.send("w", tx=shared)
                shared.commit()
            own.execute("begin")
            own.execute("select * from orders").fetchall()
            waiting = pool.submit(other)
            assert begun.wait(DEADLINE_S)
            queue.send("x")
            waiting.result(DEADLINE_S)
            assert own.execute("pragma busy_timeout").fetchone() == (0,)
            own.execute("rollback")
    assert queue.depth().messages == 1 + is_shared


def test_a_write_lock_released_before_the_check_is_acquired(
    db: Database, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that has only begun would take the lock if it were asked then."""
    queue, real = db.queue("q"), store_module.opened_here
    with (
        closing(connect(path, isolation_level=None)) as own,
        closing(connect(path, check_same_thread=False)) as other,
        another_thread(),
    ):
        own.execute("begin")
        other.execute("insert into orders values (1)")

        def released(*arguments: Any) -> Any:
            other.rollback()
            return real(*arguments)

        monkeypatch.setattr(store_module, "opened_here", released)
        queue.send("x")
        other.execute("insert into orders values (2)")  # nobody else holds the lock
        other.rollback()
    assert queue.depth().messages == 1


@contextmanager
def another_thread() -> Iterator[None]:
    end = threading.Event()
    other = threading.Thread(target=end.wait, args=(DEADLINE_S,))
    other.start()
    try:
        yield
    finally:
        end.set()
        other.join(DEADLINE_S)


def test_a_transaction_on_another_file_is_not_mistaken_for_ones_own(path: str, db: Database, tmp_path: Path) -> None:
    with inturn.open(path, busy_s=0.2) as impatient, closing(connect(path)) as holder, ThreadPoolExecutor(1) as pool:
        queue = impatient.queue("q")
        holder.execute("insert into orders values (1)")
        with pytest.raises(StoreError, match="another connection has held the write lock"):
            pool.submit(_sent_beside_another_file, queue, str(tmp_path / "other.db")).result(DEADLINE_S)
        holder.rollback()
    assert db.queue("q").depth().messages == 0


def _sent_beside_another_file(queue: Queue, path: str) -> None:
    with closing(connect(path)) as elsewhere:
        elsewhere.execute("create table inturn_meta (id integer)")
        elsewhere.execute("insert into inturn_meta values (1)")
        queue.send("x")
