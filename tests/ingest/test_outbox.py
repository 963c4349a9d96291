"""Rows of an outbox table become messages once, none is lost, whatever the order of the commits."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import inturn
from ingest.source_history import check_came_once
from inturn import Gapless, Monotone, Pipeline
from inturn.core.errors import InputError, SourceError
from inturn.database import Database
from inturn.faults import OF_A_TRANSACTION
from inturn.ingest import Ingest, MessageMapping, OutboxSource, SourceControl
from inturn.ingest.config import read
from threads import together
from waiting import until

pytestmark = pytest.mark.thorough
DDL = {
    "postgres": """create table outbox (id bigserial, xid xid8 not null default pg_current_xact_id(),
        account text, n bigint, payload jsonb, primary key (id)); create index on outbox (xid, id)""",
    "sqlite": "create table outbox (id integer primary key autoincrement, account text, n integer, payload json)",
}
BY_ACCOUNT = MessageMapping(group="body.account", revision="body.n")
PROGRAM = Path(__file__).parent / "programs" / "outbox_host.py"


class Outbox:
    """The application's database, and connections to it."""

    def __init__(self, place: str, stack: ExitStack) -> None:
        self.place, self._stack = place, stack
        self.main = self.connect()
        for statement in DDL["postgres" if "://" in place else "sqlite"].split(";"):
            self.main.execute(statement)

    def connect(self) -> Any:
        connection: Any
        if "://" in self.place:
            connection = psycopg.connect(self.place, autocommit=True)
        else:
            connection = sqlite3.connect(self.place, isolation_level=None)
        self._stack.callback(connection.close)
        return connection

    def insert(self, account: str | None, n: int | None, connection: Any = None, **more: Any) -> None:
        mark = "%s" if "://" in self.place else "?"
        names = ", ".join(["account", "n", *more])
        values = ", ".join([mark] * (2 + len(more)))
        (connection or self.main).execute(
            f"insert into outbox ({names}) values ({values})",  # noqa: S608 - no data in it
            [account, n, *more.values()],
        )


@pytest.fixture(params=["postgres", "sqlite"])
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outbox]:
    sqlite = str(tmp_path / "app.db")
    with ExitStack() as stack:
        yield Outbox(request.getfixturevalue("empty_postgres_url") if request.param == "postgres" else sqlite, stack)


@pytest.fixture
def pg_outbox(empty_postgres_url: str) -> Iterator[Outbox]:
    with ExitStack() as stack:
        yield Outbox(empty_postgres_url, stack)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        yield db


def settled(outbox: Outbox) -> None:
    """Wait until no transaction of this moment runs any more; other tests use the server, as long as one may take."""
    if "://" in outbox.place:
        (now,) = outbox.main.execute("select pg_snapshot_xmax(pg_current_snapshot())").fetchone()
        all_ended = "select pg_snapshot_xmin(pg_current_snapshot()) >= %s::xid8"
        until(
            lambda: outbox.main.execute(all_ended, [now]).fetchone()[0], "the end of older transactions", deadline_s=100
        )


def ingest(
    db: Database, outbox: Outbox, mapping: MessageMapping = BY_ACCOUNT, *, delete: bool = False, is_open: bool = False
) -> int:
    if not is_open:
        settled(outbox)
    source = OutboxSource(outbox.place, "outbox", delete=delete)
    return Ingest(source, db.queue("payments"), mapping, name="outbox").run(until="caught up").received


def sent(db: Database) -> list[tuple[str | None, int | None]]:
    return [(message.group, message.revision) for message in db.queue("payments").peek(1000)]


def test_each_outbox_row_is_sent_once(outbox: Outbox, db: Database) -> None:
    outbox.insert("a", 1, payload='{"amount": 5, "what": "a\\\\b €"}')
    outbox.insert("b", 1)
    assert ingest(db, outbox) == 2
    outbox.insert("a", 2)
    assert ingest(db, outbox) == 1
    assert sent(db) == [("a", 1), ("b", 1), ("a", 2)]
    body = db.queue("payments").peek()[0].body
    assert body["payload"] == {"amount": 5, "what": "a\\b €"}
    mapping = MessageMapping(group="body.account", body="body.payload")
    assert Ingest(OutboxSource(outbox.place, "outbox"), db.queue("q"), mapping, name="x").run(until="caught up")[
        :2
    ] == (3, 0)
    assert db.queue("q").peek()[0].body == {"amount": 5, "what": "a\\b €"}


def test_outbox_rows_are_deleted_after_they_are_sent(outbox: Outbox, db: Database) -> None:
    for n in range(1, 4):
        outbox.insert("a", n)
    assert ingest(db, outbox, delete=True) == 3
    assert outbox.main.execute("select count(*) from outbox").fetchone() == (0,)
    outbox.insert("a", 4)
    assert ingest(db, outbox, delete=True) == 1, "its id is a new one"


def test_unmappable_outbox_rows_are_rejected_and_block_nothing(outbox: Outbox, db: Database) -> None:
    outbox.insert(None, 1)
    outbox.insert("a", 1, payload=json.dumps("x" * 10_000_000))
    outbox.insert("a", 2)
    if "://" not in outbox.place:
        outbox.main.execute("insert into outbox (account, n) values (cast(x'ff' as text), 1), ('c', 1e999)")
    assert ingest(db, outbox) == 1 + ("://" not in outbox.place)
    reasons = [record.reason.split(";")[0] for record in SourceControl(db, "outbox").rejected()]
    assert reasons[0] == "the record has no group"
    assert "at most" in str(list(SourceControl(db, "outbox").rejected())[1].reason)


def test_o1_a_row_with_a_smaller_id_committed_later_is_not_lost(pg_outbox: Outbox, db: Database) -> None:
    late, soon = pg_outbox.connect(), pg_outbox.connect()
    late.execute("begin")
    pg_outbox.insert("a", 41, late)
    soon.execute("begin")
    pg_outbox.insert("a", 42, soon)
    soon.execute("commit")
    pg_outbox.insert("a", 43)
    assert ingest(db, pg_outbox, is_open=True) == 0, "nothing at or after the oldest transaction that runs"
    late.execute("commit")
    assert ingest(db, pg_outbox) == 3
    assert sent(db) == [("a", 41), ("a", 42), ("a", 43)]


def test_o1_a_row_with_an_id_drawn_before_its_transaction_is_not_lost(pg_outbox: Outbox, db: Database) -> None:
    late = pg_outbox.connect()
    (number,) = late.execute("select nextval('outbox_id_seq')").fetchone()
    pg_outbox.insert("a", 42)
    assert ingest(db, pg_outbox) == 1
    late.execute("insert into outbox (id, account, n) values (%s, 'a', 41)", [number])
    assert ingest(db, pg_outbox) == 1
    for order, applied, stale in ((Gapless("n", start=41), [41, 42], 0), (Monotone("n"), [42], 1)):
        pipeline = Pipeline(name="p", group="g", order=order, handler=lambda state, message: (state, [message["n"]]))
        replay = pipeline.replay([{"g": group, "n": n} for group, n in sent(db)[:1]])
        replay = pipeline.replay([{"g": group, "n": n} for group, n in sent(db)[1:]], after=replay)
        assert ([output.output for output in replay.outputs], replay.counts.stale) == (applied, stale)


def test_o2_the_id_gap_of_a_rolled_back_row_does_not_delay_reading(pg_outbox: Outbox, db: Database) -> None:
    other = pg_outbox.connect()
    pg_outbox.insert("a", 41)
    other.execute("begin")
    pg_outbox.insert("a", 42, other)
    pg_outbox.insert("a", 43)
    other.execute("rollback")
    pg_outbox.insert("a", 44)
    assert ingest(db, pg_outbox) == 3
    assert sent(db) == [("a", 41), ("a", 43), ("a", 44)]


@pytest.mark.soak
def test_o3_concurrent_writers_lose_no_row_and_keep_the_group_order(
    outbox: Outbox, db: Database, soak_seed: int
) -> None:
    """Each counts a revision under the group's lock; the order of a group is that of its revisions."""
    outbox.main.execute("create table accounts (name text primary key, n bigint not null)")
    outbox.main.execute("insert into accounts values ('a', 0), ('b', 0)")
    is_postgres = "://" in outbox.place

    def write(seed: int) -> None:
        chance, connection = random.Random(seed), connections[seed - soak_seed * 10]
        for _ in range(30):
            account = chance.choice("ab")
            connection.execute("begin" if is_postgres else "begin immediate")
            if is_postgres and chance.random() < 0.5:
                connection.execute("select pg_current_xact_id()")  # an id from before the wait for the lock
            counted = f"update accounts set n = n + 1 where name = '{account}' returning n"  # noqa: S608 - a or b
            (n,) = connection.execute(counted).fetchone()
            outbox.insert(account, n, connection)
            connection.execute("commit" if chance.random() < 0.9 else "rollback")

    connections = [
        psycopg.connect(outbox.place, autocommit=True)
        if is_postgres
        else sqlite3.connect(outbox.place, timeout=60, isolation_level=None, check_same_thread=False)
        for _ in range(4)
    ]
    with Ingest(OutboxSource(outbox.place, "outbox"), db.queue("payments"), BY_ACCOUNT, name="outbox", batch=3):
        together(*(partial(write, soak_seed * 10 + number) for number in range(4)))
    for connection in connections:
        connection.close()
    ingest(db, outbox)
    written = sorted(outbox.main.execute("select account, n from outbox").fetchall())
    assert sorted(sent(db)) == written
    pipeline = Pipeline(name="p", group="g", order=Gapless("n"), handler=lambda state, m: ({"n": m["n"]}, []))
    replay = pipeline.replay([{"g": g, "n": n} for g, n in sent(db)])
    assert replay.states == {g: {"n": max(n for account, n in written if account == g)} for g in "ab"}


def test_a_recreated_outbox_table_is_refused_until_a_seek(outbox: Outbox, db: Database) -> None:
    outbox.insert("a", 1)
    outbox.insert("a", 2)
    ingest(db, outbox)
    outbox.main.execute("drop table outbox")
    for statement in DDL["postgres" if "://" in outbox.place else "sqlite"].split(";"):
        outbox.main.execute(statement)
    outbox.insert("a", 3)
    assert ingest(db, outbox) == 0
    (partition,) = SourceControl(db, "outbox").partitions()
    assert "recreated" in (partition.note or "")
    SourceControl(db, "outbox").seek(None)
    assert ingest(db, outbox) == 1


def test_an_outbox_table_recreated_between_two_scans_is_refused_before_the_commit(
    pg_outbox: Outbox, db: Database
) -> None:
    pg_outbox.insert("a", 1)
    pg_outbox.insert("a", 2)
    source, control = OutboxSource(pg_outbox.place, "outbox"), SourceControl(db, "outbox")
    with Ingest(source, db.queue("payments"), BY_ACCOUNT, name="outbox", lease_s=86_400) as host:  # it looks once
        until(lambda: host.counts.received == 2, deadline_s=100)
        pg_outbox.main.execute("begin")
        pg_outbox.main.execute("drop table outbox")
        for statement in DDL["postgres"].split(";"):
            pg_outbox.main.execute(statement)
        pg_outbox.insert("a", 3)
        pg_outbox.main.execute("commit")
        until(lambda: host.counts.received == 3 or control.partitions()[0].note, deadline_s=100)
        assert sent(db) == [("a", 1), ("a", 2)], "its rows are not those after the position"
        assert "recreated" in (control.partitions()[0].note or "")
        control.seek(None)
    assert ingest(db, pg_outbox) == 1
    assert sent(db)[2:] == [("a", 3)]


def test_rows_of_a_recreated_outbox_table_are_not_deleted(pg_outbox: Outbox) -> None:
    pg_outbox.insert("a", 1)
    settled(pg_outbox)
    source = OutboxSource(pg_outbox.place, "outbox", delete=True)
    source.incarnation("outbox")
    source.open("outbox", None)
    (record,) = source.poll(10, 0)
    pg_outbox.main.execute("create table restored as select * from outbox")
    pg_outbox.main.execute("drop table outbox")
    pg_outbox.main.execute("alter table restored rename to outbox")
    source.confirm("outbox", record.position)
    assert pg_outbox.main.execute("select count(*) from outbox").fetchone() == (1,)
    source.shutdown()


def test_outbox_lag_is_the_number_of_unread_rows(outbox: Outbox) -> None:
    source = OutboxSource(outbox.place, "outbox")
    for n in range(5):
        outbox.insert("a", n)
    settled(outbox)
    source.open("outbox", None)
    assert source.lag("outbox") == 5
    assert len(source.poll(2, 0)) == 2
    assert source.lag("outbox") == 3
    source.shutdown()


def test_an_outbox_poll_is_limited_in_bytes(outbox: Outbox) -> None:
    source = OutboxSource(outbox.place, "outbox")
    source.batch_bytes = 1_000
    for n in range(7):
        outbox.insert("x" * 250, n)
    settled(outbox)
    source.open("outbox", None)
    polls = [source.poll(100, 0) for _ in range(3)]
    assert [[json.loads(record.body or b"")["n"] for record in records] for records in polls] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]
    assert all(sum(record.size for record in records) <= 1_000 for records in polls)
    source.shutdown()


def test_invalid_outbox_databases_and_tables_are_refused_without_secrets(
    tmp_path: Path, pg_outbox: Outbox, db: Database
) -> None:
    with pytest.raises(InputError, match=r"no file '.*'; set database"):
        OutboxSource(tmp_path / "none.db", "outbox")
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table reused (id integer primary key)")
    connection.close()
    with pytest.raises(InputError, match=r"ids of deleted rows.*; it needs id integer primary key autoincrement"):
        OutboxSource(path, "reused")
    with pytest.raises(InputError, match="table 'none' does not exist; it needs id integer primary key autoincrement"):
        OutboxSource(path, "none")
    with pytest.raises(SourceError, match='relation "none" does not exist'):
        Ingest(OutboxSource(pg_outbox.place, "none"), db.queue("q"), BY_ACCOUNT, name="x").run(until="caught up")
    pg_outbox.main.execute("create table bare (id bigint primary key)")
    with (
        pytest.raises(InputError, match="lacks the columns xid and id"),
        Ingest(OutboxSource(pg_outbox.place, "bare"), db.queue("q"), BY_ACCOUNT, name="y") as working,
    ):
        until(lambda: not working._thread.is_alive())  # type: ignore[union-attr]
    with pytest.raises(SourceError) as error:
        OutboxSource("postgresql://me:geheim@127.0.0.1:9/x", "none").incarnation("none")
    assert "geheim" not in str(error.value)


def test_a_read_only_role_can_read_the_outbox(pg_outbox: Outbox) -> None:
    pg_outbox.insert("a", 1)
    (schema,) = pg_outbox.main.execute("select current_schema()").fetchone()
    role = f"reader_{schema}"
    pg_outbox.main.execute(f"create role {role}")
    pg_outbox.main.execute(f"grant usage on schema {schema} to {role}")
    pg_outbox.main.execute(f"grant select on outbox to {role}")
    source = OutboxSource(pg_outbox.place, f"{schema}.outbox")
    source._table._run(f"set role {role}", [])  # type: ignore[attr-defined]
    assert source.incarnation("outbox")
    settled(pg_outbox)
    source.open("outbox", None)
    assert len(source.poll(10, 0)) == 1
    source.shutdown()
    pg_outbox.main.execute(f"drop owned by {role}")
    pg_outbox.main.execute(f"drop role {role}")


def test_an_outbox_source_is_configured_in_the_ingest_file(tmp_path: Path, outbox: Outbox, db: Database) -> None:
    outbox.insert("a", 1)
    config = tmp_path / "ingest.toml"
    place = outbox.place if "://" in outbox.place else "app.db"
    config.write_text(
        '[[sources]]\nkind = "outbox"\nname = "o"\nqueue = "shop.db#payments"\ntable = "outbox"\n'
        f'database = "{place}"\n'
    )
    (configured,) = read(config).sources
    source = configured.source(tmp_path)
    settled(outbox)
    source.open("outbox", None)
    assert len(source.poll(10, 0)) == 1
    source.shutdown()


@pytest.mark.slow
@pytest.mark.soak
def test_an_outbox_source_killed_at_every_point_sends_each_row_once(
    outbox: Outbox, tmp_path: Path, soak_seed: int
) -> None:
    chance, address, killed = random.Random(soak_seed), str(tmp_path / "shop.db"), 0
    deletes = "delete" if "://" in outbox.place else "keep"
    written = [(f"acct-{n % 5}", n // 5 + 1) for n in range(200)]
    for account, n in written:
        outbox.insert(account, n)
    settled(outbox)
    command = [sys.executable, str(PROGRAM), address, outbox.place, deletes]
    for _ in range(20):
        kill_point = f"{chance.choice((*OF_A_TRANSACTION, 'polled', 'ingested'))}@{chance.randint(1, 6)}"
        life = subprocess.run(command, env=os.environ | {"INTURN_KILL_AT": kill_point}, check=False, timeout=60)
        assert life.returncode in (0, -signal.SIGKILL)
        killed += life.returncode != 0
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
    assert killed > 5
    with inturn.open(address) as db:
        check_came_once(db.queue("payments"), written, is_total=True)
    (remaining,) = outbox.main.execute("select count(*) from outbox").fetchone()
    assert remaining == (0 if deletes == "delete" else len(written))
