"""What belongs to one database is refused by the verbs of another, though it is open in the same process."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

import inturn
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.queue.message import Receipt

Verb = Callable[[Database, Any], object]


def received(db: Database, group: str = "a") -> Any:
    queue = db.queue("q")
    queue.send("x", group=group)
    return queue.receive(visibility_timeout_s=60)[0]


def locked(db: Database) -> Any:
    session = db.queue("q").session("s")
    assert session is not None
    return session


VERBS: dict[str, Verb] = {
    "make a queue": lambda db, tx: db.create("new", tx=tx),
    "find a queue": lambda db, tx: db.queue("q", create=False, tx=tx),
    "send": lambda db, tx: db.queue("q").send("x", tx=tx),
    "send many": lambda db, tx: db.queue("q").send_many([inturn.queue.draft("x")], tx=tx),
    "receive": lambda db, tx: db.queue("q").receive(tx=tx),
    "peek": lambda db, tx: db.queue("q").peek(tx=tx),
    "depth": lambda db, tx: db.queue("q").depth(tx=tx),
    "purge": lambda db, tx: db.queue("q").purge(tx=tx),
    "ack": lambda db, tx: received(db).ack(tx=tx),
    "nack": lambda db, tx: received(db).nack(tx=tx),
    "extend": lambda db, tx: received(db).extend(9, tx=tx),
    "defer": lambda db, tx: received(db).defer(tx=tx),
    "reject": lambda db, tx: received(db).reject("no", tx=tx, to="q"),
    "ack by receipt": lambda db, tx: db.queue("q").ack([Receipt(1, 1)], tx=tx),
    "take a session": lambda db, tx: db.queue("q").session("a", tx=tx),
    "renew a session": lambda db, tx: locked(db).renew(tx=tx),
    "the state of a session": lambda db, tx: locked(db).set_state(b"x", tx=tx),
    "receive in a session": lambda db, tx: locked(db).receive(tx=tx),
    "close a session": lambda db, tx: locked(db).close(tx=tx),
    "lock a key": lambda db, tx: db.idempotency_keys("k").try_lock("a", tx=tx),
    "accept a key": lambda db, tx: db.idempotency_keys("k").accept(db.idempotency_keys("k").try_lock("b"), tx=tx),  # type: ignore[arg-type]
    "read": lambda db, tx: db.queue("q").reader("r").read(tx=tx),
    "a reader's position": lambda db, tx: db.queue("q").reader("r").position(tx=tx),
    "seek": lambda db, tx: db.queue("q").reader("r").seek(0, tx=tx),
    "forget a reader": lambda db, tx: db.queue("q").reader("r").delete(tx=tx),
}


class Copied:
    """A database, another one, and a copy of the first, in which the same identity is written."""

    def __init__(self, kind: str, path: Path, url: Callable[[], str], connection: Any) -> None:
        self.stack = ExitStack()
        self.names = []
        if kind == "postgres":
            self.names = [url(), url(), url()]
            for name in self.names:
                inturn.open(name).close()
            first, _, copy = (location.rpartition("search_path%3D")[2] for location in self.names)
            table = sql.Identifier(copy, "inturn_meta")
            connection.execute(sql.SQL("delete from {}").format(table))
            source = sql.Identifier(first, "inturn_meta")
            connection.execute(sql.SQL("insert into {} select * from {}").format(table, source))
        else:
            self.names = [str(path / file) for file in ("a.db", "b.db", "copy.db")]
            inturn.open(self.names[0]).close()
            shutil.copy(self.names[0], self.names[2])

    def open(self, index: int) -> Database:
        return self.stack.enter_context(inturn.open(self.names[index]))


@pytest.fixture(params=["sqlite", "postgres"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copied]:
    schemas: Any = request.getfixturevalue("postgres_schemas") if request.param == "postgres" else None
    setup = Copied(request.param, tmp_path, schemas and schemas.new, schemas and schemas._connection)
    with setup.stack:
        yield setup


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_transaction_of_another_database_is_refused(verb: Verb, tmp_path: Path) -> None:
    with inturn.open(tmp_path / "a.db") as own, inturn.open(":memory:") as other:
        for db in (own, other):
            db.queue("q")
        with other.transaction() as tx, pytest.raises(InputError, match="another database"):
            verb(own, tx)
        with own.transaction() as tx, pytest.raises(InputError, match="another database"):
            verb(other, tx)
        assert (own.queues(), other.queues()) == (["q"], ["q"])


def test_a_transaction_of_a_copied_database_is_refused(copied: Copied) -> None:
    own, same, other, copy = copied.open(0), copied.open(0), copied.open(1), copied.open(2)
    queue = own.queue("q")
    for foreign in (other, copy):
        with foreign.transaction() as tx:
            with pytest.raises(InputError, match="another database"):
                queue.send("x", tx=tx)
            with pytest.raises(InputError, match="another database"):
                own.idempotency_keys("k").try_lock("a", tx=tx)
    with same.transaction() as tx:
        queue.send("x", tx=tx)
    assert queue.depth().messages == 1


def test_a_message_is_settled_only_by_its_own_database(copied: Copied) -> None:
    own, same, copy = copied.open(0), copied.open(0), copied.open(2)
    message = received(copy)
    own_message = received(own)
    assert (own_message.sequence_number, own_message.fencing_token) == (message.sequence_number, message.fencing_token)
    for act in (own.queue("q").ack, own.queue("q").nack, lambda lease: own.queue("q").extend(lease, 5)):
        with pytest.raises(InputError, match="another database"):
            act([message])
    same.queue("q").ack([own_message])
    assert (own.queue("q").depth().messages, copy.queue("q").depth().messages) == (0, 1)


def test_a_connection_to_a_copied_database_is_refused(postgres_server: str, postgres_schemas: Any) -> None:
    """All in a copy of a whole database is as in the first, even the numbers of its tables."""
    name, copy = f"first_{uuid.uuid4().hex[:8]}", f"copy_{uuid.uuid4().hex[:8]}"
    place = urlsplit(postgres_server)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        url, other = (urlunsplit(place._replace(path=f"/{database}")) for database in (name, copy))
        inturn.open(url).close()
        template = sql.SQL("create database {} template {}")
        connection.execute(template.format(sql.Identifier(copy), sql.Identifier(name)))
        with inturn.open(url) as db, psycopg.connect(url) as same, psycopg.connect(other) as foreign:
            queue = db.queue("q")
            queue.send("x", tx=same)
            for _ in range(2):
                with pytest.raises(InputError, match="same database"):
                    queue.send("x", tx=foreign)
            assert foreign.execute("select count(*) from inturn_message").fetchone() == (0,)
            same.commit()
            assert queue.depth().messages == 1
        for created in (copy, name):
            connection.execute(sql.SQL("drop database {}").format(sql.Identifier(created)))
