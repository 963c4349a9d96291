"""Verbs in transactions of SQLAlchemy, Django and sqlite3: committed and rolled back with the caller's own rows."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import django
import django.db
import pytest
import sqlalchemy as sa
from django.conf import settings
from django.db import models, transaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.ext.asyncio import create_async_engine as async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import inturn
from inturn.core.errors import InputError, RevisionMismatch, StoreConflict, StoreUnavailable
from inturn.database import Database
from inturn.idempotency import Completed, Locked
from waiting import DEADLINE_S

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()


class Base(DeclarativeBase):
    pass


class Paid(Base):
    __tablename__ = "paid"
    account: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[int]


class DjangoPaid(models.Model):
    account = models.TextField(primary_key=True)
    amount = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "paid"


class RollBack(Exception):
    pass


def roll_back() -> None:
    raise RollBack


Book = Callable[[str, int], None]
Begun = Callable[[], AbstractContextManager[tuple[Any, Book]]]
"""Begins a transaction: what is given as ``tx=``, and a function that writes a row in it."""


def sqlalchemy_url(address: str) -> str:
    return address.replace("postgresql://", "postgresql+psycopg://") if "://" in address else f"sqlite:///{address}"


@contextmanager
def of_sqlite3(address: str) -> Iterator[Begun]:
    connection = sqlite3.connect(address)

    @contextmanager
    def begun() -> Iterator[tuple[Any, Book]]:
        with connection:
            yield connection, lambda *row: connection.execute("insert into paid values (?, ?)", row) and None

    yield begun
    connection.close()


@contextmanager
def of_connection(address: str) -> Iterator[Begun]:
    engine = sa.create_engine(sqlalchemy_url(address))

    @contextmanager
    def begun() -> Iterator[tuple[Any, Book]]:
        with engine.connect() as connection:
            yield connection, lambda *row: connection.execute(sa.insert(Paid).values(row)) and None
            connection.commit()  # of what tx= has begun

    yield begun
    engine.dispose()


@contextmanager
def of_session(address: str, *, scoped: bool = False) -> Iterator[Begun]:
    engine = sa.create_engine(sqlalchemy_url(address))

    @contextmanager
    def begun() -> Iterator[tuple[Any, Book]]:
        session: Any = scoped_session(sessionmaker(engine)) if scoped else Session(engine)
        try:
            yield session, lambda account, amount: session.add(Paid(account=account, amount=amount))
            session.commit()
        finally:
            session.close()

    yield begun
    engine.dispose()


@contextmanager
def of_scoped(address: str) -> Iterator[Begun]:
    with of_session(address, scoped=True) as begun:
        yield begun


@contextmanager
def of_django(address: str) -> Iterator[Begun]:
    connections = django.db.connections
    if "://" in address:
        url, more = urlsplit(address), parse_qs(urlsplit(address).query)
        own: Any = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path.lstrip("/"),
            "USER": url.username or "",
            "PASSWORD": url.password or "",
            "HOST": url.hostname or more["host"][0],
            "PORT": str(url.port or more.get("port", [""])[0]),
            "OPTIONS": {"options": more["options"][0]},
        }
    else:
        own = {"ENGINE": "django.db.backends.sqlite3", "NAME": address}
    before = connections.settings["default"]
    connections.settings["default"] = connections.configure_settings({"default": own})["default"]
    if hasattr(connections._connections, "default"):
        del connections["default"]

    @contextmanager
    def begun() -> Iterator[tuple[Any, Book]]:
        with transaction.atomic():
            yield (
                django.db.connection,
                lambda account, amount: DjangoPaid.objects.create(account=account, amount=amount) and None,
            )

    yield begun
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = before


LIBRARIES = {
    "SQLAlchemy's Connection": of_connection,
    "SQLAlchemy's Session": of_session,
    "SQLAlchemy's scoped_session": of_scoped,
    "Django": of_django,
}
KINDS = [("sqlite", "sqlite3"), *((kind, name) for kind in ("sqlite", "postgres") for name in LIBRARIES)]


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    with inturn.open(address, durable=False) as db:
        with db.transaction() as tx:
            tx.execute("create table paid (account text primary key, amount integer)")
        yield db


@pytest.fixture
def begun(address: str, library: str) -> Iterator[Begun]:
    with (LIBRARIES | {"sqlite3": of_sqlite3})[library](address) as begun:
        yield begun


def rows(db: Database) -> list[Any]:
    with db.transaction() as tx:
        return [tuple(row) for row in tx.execute("select account, amount from paid order by account").fetchall()]


in_each = pytest.mark.parametrize(("address", "library"), KINDS, indirect=["address"])
in_file = pytest.mark.parametrize("address", ["sqlite"], indirect=True)
in_both = pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)


@in_each
def test_verbs_and_library_transactions_commit_or_roll_back_together(db: Database, begun: Begun) -> None:
    due, receipts, keys = db.queue("due"), db.queue("receipts"), db.idempotency_keys("payments")
    due.send(5, group="a")
    for fails in (True, False):
        (message,) = due.receive(visibility_timeout_s=60)
        lock = keys.try_lock("tx-1", payload=5)
        assert isinstance(lock, Locked)
        try:
            with begun() as (tx, book):
                receipts.send("paid", group="a", dedup_id="tx-1", tx=tx)
                book("a", message.body)
                message.ack(tx=tx)
                keys.accept(lock, tx=tx)
                assert receipts.depth(tx=tx).messages == 1
                if fails:
                    roll_back()
        except RollBack:
            assert rows(db) == []
            assert receipts.depth().messages == 0
            message.nack()
            keys.release(lock)
    assert rows(db) == [("a", 5)]
    assert due.depth().messages == 0
    assert [message.body for message in receipts.receive(10)] == ["paid"]
    assert receipts.send("paid", group="a", dedup_id="tx-1").duplicate
    assert isinstance(keys.try_lock("tx-1", payload=5), Completed)


@in_each
def test_revisions_are_assigned_or_rolled_back_with_a_library_transaction(db: Database, begun: Begun) -> None:
    queue = db.queue("q")
    for fails in (False, True, False):
        with suppress(RollBack), begun() as (tx, book):
            inturn.outbox(tx).create()
            number = queue.last_revision("a", tx=tx) + 1
            assert queue.send(number, group="a", revision="next", tx=tx).revision == number
            assert inturn.outbox(tx).send({"n": number}, group="a") == number
            assert inturn.outbox(tx).send_many([("b", 1), ("a", 2)]) == [(number + 1) // 2, number + 1]
            with pytest.raises(RevisionMismatch):
                inturn.outbox(tx).send({}, group="a", expected_revision=77)
            queue.send(0, group="a", revision="next", tx=tx)
            book(f"a{number}", number)
            if fails:
                roll_back()
    assert rows(db) == [("a1", 1), ("a3", 3)]
    assert [message.revision for message in queue.peek(group="a")] == [1, 2, 3, 4]
    with db.transaction() as tx:
        outbox_rows = tx.execute("select group_name, revision from outbox order by id").fetchall()
    assert [revision for group, revision in outbox_rows if group == "a"] == [1, 2, 3, 4]
    assert [revision for group, revision in outbox_rows if group == "b"] == [1, 2]


@in_each
def test_a_waiting_receive_returns_after_a_library_transaction_commits(db: Database, begun: Begun) -> None:
    queue = db.queue("q")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, wait_s=60)
        with begun() as (tx, _):
            queue.send("a", group="g", tx=tx)
        assert [message.body for message in waiting.result(60)] == ["a"]


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", ["AsyncConnection", "AsyncSession", "async_scoped_session"])
def test_async_sqlalchemy_transactions_commit_or_roll_back(db: Database, address: str, kind: str) -> None:
    queue = db.queue("q")

    async def work() -> None:
        engine = async_engine(sqlalchemy_url(address))
        for fails in (True, False):
            tx: Any = AsyncSession(engine)
            if kind == "AsyncConnection":
                tx = AsyncConnection(engine)
                with pytest.raises(InputError, match="not connected yet"):
                    await queue.send.aio("x", tx=tx)
                await tx.start()
            elif kind == "async_scoped_session":
                tx = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
            await queue.send.aio("x", group="a", tx=tx)
            await tx.execute(sa.insert(Paid).values(account="a", amount=5))
            with pytest.raises(InputError, match="await the verb"):
                queue.send("x", tx=tx)
            await (tx.rollback() if fails else tx.commit())
            await tx.close()
        await engine.dispose()

    asyncio.run(work())
    assert rows(db) == [("a", 5)]
    assert [message.body for message in queue.receive(10)] == ["x"]


@in_each
def test_a_library_connection_without_a_transaction_is_refused(db: Database, address: str, library: str) -> None:
    queue = db.queue("q")
    if library == "Django":
        with of_django(address), pytest.raises(InputError, match=r"with transaction\.atomic"):
            queue.send("x", tx=django.db.connection)
    elif library == "sqlite3":
        connection = sqlite3.connect(address, isolation_level=None)
        with pytest.raises(InputError, match="execute BEGIN IMMEDIATE first"):
            queue.send("x", tx=connection)
        connection.close()
    else:
        engine = sa.create_engine(sqlalchemy_url(address), isolation_level="AUTOCOMMIT")
        with engine.connect() as automatic, pytest.raises(InputError, match="autocommit mode"):
            queue.send("x", tx=automatic)
        engine.dispose()
    assert queue.depth().messages == 0


class OfAnother:
    """A connection of another driver, as far as its class tells."""


@in_both
@pytest.mark.parametrize(
    ("module", "mend"),
    [
        ("psycopg2.extensions", r"postgresql\+psycopg://"),
        ("asyncpg.connection", r"postgresql\+psycopg://"),
        ("pg8000.legacy", r"postgresql\+psycopg://"),
        ("aiosqlite.core", "use sqlite3 itself"),
        ("somewhere", "a connection of"),
    ],
)
def test_a_connection_of_an_unsupported_driver_is_refused_by_name(db: Database, module: str, mend: str) -> None:
    with pytest.raises(InputError, match=mend):
        db.queue("q").send("x", tx=type("Connection", (OfAnother,), {"__module__": module})())


@in_both
def test_a_connection_to_another_kind_of_database_is_refused(db: Database, address: str) -> None:
    if "://" in address:
        engine = sa.create_engine("sqlite://")
        with engine.connect() as connection, pytest.raises(InputError, match="the queues are in PostgreSQL"):
            db.queue("q").send("x", tx=connection)
        engine.dispose()
    else:
        psycopg = type("Connection", (OfAnother,), {"__module__": "psycopg"})()
        with pytest.raises(InputError, match="the queues are in an SQLite file"):
            db.queue("q").send("x", tx=psycopg)


@in_file
def test_a_connection_to_another_file_or_to_memory_is_refused(db: Database, address: str, tmp_path: Path) -> None:
    queue = db.queue("q")
    for target in (":memory:", str(tmp_path / "another.db")):
        connection = sqlite3.connect(target)
        with pytest.raises(InputError, match="connect to the file of the queues"):
            queue.send("x", tx=connection)
        connection.close()
    connection = sqlite3.connect(address)
    with inturn.open(":memory:") as memory, pytest.raises(InputError, match="has no other connections; use"):
        memory.queue("q").send("x", tx=connection)
    connection.close()


@in_file
def test_an_outdated_sqlite_snapshot_raises_store_conflict(db: Database, address: str) -> None:
    queue = db.queue("q")
    connection = sqlite3.connect(address, isolation_level=None)
    connection.execute("begin")
    connection.execute("select * from paid").fetchall()
    queue.send("from another")
    with pytest.raises(StoreConflict, match="roll it back and run it again"):
        queue.send("x", tx=connection)
    connection.execute("rollback")
    connection.execute("begin")
    queue.send("x", tx=connection)
    connection.execute("commit")
    connection.close()
    assert queue.depth().messages == 2


@in_file
def test_a_write_lock_held_by_another_connection_is_reported(db: Database, address: str) -> None:
    queue = db.queue("q")
    connection = sqlite3.connect(address, timeout=0)
    with db.transaction() as tx:
        queue.send("first", tx=tx)
        with pytest.raises(StoreUnavailable, match="another connection has held the write lock"):
            queue.send("x", tx=connection)
    connection.close()


@in_file
def test_a_failed_verb_leaves_the_sqlite_transaction_unchanged(db: Database, address: str) -> None:
    queue = db.queue("q")
    connection = sqlite3.connect(address)
    connection.execute("insert into paid values ('a', 1)")
    queue.send("x", tx=connection)
    with pytest.raises(inturn.core.errors.NoSuchQueue):
        db.queue("nowhere", create=False, tx=connection)
    connection.execute("savepoint own")
    queue.send("y", group="g", tx=connection)
    connection.execute("rollback to own")
    queue.send("z", group="h", tx=connection)  # with the number that y had
    connection.commit()
    connection.close()
    assert rows(db) == [("a", 1)]
    assert [(message.body, message.group) for message in queue.receive(10)] == [("x", None), ("z", "h")]


@in_file
def test_a_sqlite3_connection_keeps_its_settings(db: Database, address: str) -> None:
    queue = db.queue("q")
    connection = sqlite3.connect(address, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
    connection.row_factory, connection.text_factory = sqlite3.Row, bytes
    connection.execute("pragma foreign_keys = on")
    for body in ("a", "b"):
        queue.send(body, group="ä", dedup_id=body, tx=connection)
    (message,) = queue.receive(1, tx=connection)
    message.ack(tx=connection)
    assert connection.execute("select 'x' as name").fetchone()["name"] == b"x"
    connection.commit()
    connection.close()
    assert [message.group for message in queue.receive()] == ["ä"]
    with db.transaction() as tx:
        count_row = tx.execute("select count(*) from inturn_incarnation").fetchone()
    assert count_row == (1,)  # the connection is no other incarnation than the store


@in_file
@pytest.mark.thorough
def test_threads_send_in_their_own_sqlalchemy_sessions(db: Database, address: str) -> None:
    queue = db.queue("q")
    engine = sa.create_engine(sqlalchemy_url(address), connect_args={"timeout": 60})
    began = threading.Barrier(4, timeout=DEADLINE_S)

    def work(me: int) -> None:
        began.wait(60)
        for number in range(25):
            with Session(engine) as session, session.begin():
                queue.send(number, group=str(number % 3), dedup_id=f"{me}-{number}", tx=session)
                session.add(Paid(account=f"{me}-{number}", amount=number))
            with db.transaction() as tx:
                queue.send(number, group=str(number % 3), tx=tx)

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(work, me) for me in range(4)]:
            future.result(120)
    engine.dispose()
    assert len(rows(db)) == 100
    received = []
    while messages := queue.receive(10):
        received += [message.body for message in messages]
        queue.ack(messages)
    assert sorted(received) == sorted([*range(25)] * 8)
