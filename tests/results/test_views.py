"""The views: states, outputs and rejected messages in SQL, joined with the user's own tables, in both databases."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

import inturn
from inturn.database import Database
from inturn.store.sqlite import SqliteStore

STATES = 'select pipeline, "group", status, held, state from inturn_states order by 1, 2'


@dataclass
class Account:
    """A state that JSON lacks half of."""

    balance: int = 0
    seen: dict[int, bytes] = field(default_factory=dict)
    note: str = ""


def post(state: Account, message: dict[str, Any]) -> tuple[Account, list[Any]]:
    if message["amount"] < 0:
        raise ValueError(f"amount {message['amount']} is below zero")
    state.balance += message["amount"]
    state.seen[message["n"]] = bytes([message["n"]])
    state.note = "a\0b \"' \U0001f600"
    return state, [{"balance": state.balance, "text": "a\0b"}]


LEDGER = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("n"), state=Account, handler=post)


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    """A group that is well, one that failed, one that waits, and a message that is invalid."""
    with inturn.open(address, durable=False) as db:
        queue = db.queue("q")
        for account, n, amount in [("well", 1, 5), ("well", 2, 6), ("bad", 1, 1), ("bad", 2, -1), ("early", 2, 1)]:
            queue.send({"amount": amount}, group=account, revision=n)
        queue.send("no JSON", group="well")
        inturn.work(LEDGER, queue, until="empty")
        yield db


def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    with db.transaction() as tx:
        return [tuple(_value(value) for value in row) for row in tx.execute(sql).fetchall()]


def _value(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith(("{", "[")) else value


def test_the_states_view_joins_with_user_tables(db: Database) -> None:
    nul = "\0" if isinstance(db.store, SqliteStore) else "\ufffd"
    note = f"a{nul}b \"' \U0001f600"
    states = {
        "bad": ("failed", 1, {"balance": 1, "seen": {"1": "AQ=="}, "note": note}),
        "early": ("waiting", 1, {"balance": 0, "seen": {}, "note": ""}),
        "well": ("open", 0, {"balance": 11, "seen": {"1": "AQ==", "2": "Ag=="}, "note": note}),
    }
    assert rows(db, STATES) == [("ledger", group, *more) for group, more in states.items()]
    with db.transaction() as tx:
        tx.execute("create table account (id varchar(20) primary key, owner text)")
        tx.execute("insert into account values ('well', 'ann'), ('other', 'bob')")
    joined = "from account a left join inturn_states s on s.pipeline = 'ledger' and s.\"group\" = a.id order by a.owner"
    try:
        assert rows(db, f"select a.owner, s.state {joined}") == [("ann", states["well"][2]), ("bob", None)]
        assert rows(db, f"select s.state ->> 'balance' {joined} limit 1") in ([(11,)], [("11",)])
    finally:
        with db.transaction() as tx:
            tx.execute("drop table account")


def test_the_states_view_shows_a_changed_state(db: Database) -> None:
    db.queue("q").send({"amount": 4}, group="well", revision=3)
    inturn.work(LEDGER, db.queue("q"), until="empty")
    [(state,)] = rows(db, "select state from inturn_states where \"group\" = 'well'")
    assert state["balance"] == 15


def test_the_outputs_and_rejections_views_list_rows(db: Database) -> None:
    outputs = rows(db, 'select pipeline, "group", revision, "index", output from inturn_outputs order by number')
    assert ("ledger", "well", 2, 0, {"balance": 11, "text": "a\0b"}) in outputs
    assert len(outputs) == 3
    rejected = rows(db, 'select pipeline, "group", reason, message from inturn_rejections')
    assert rejected == [("ledger", "well", "invalid", "no JSON")]


def test_the_states_view_finds_a_group_by_index(db: Database, request: pytest.FixtureRequest) -> None:
    query = f"{STATES.split(' order', maxsplit=1)[0]} where pipeline = 'ledger' and \"group\" = 'well'"
    if isinstance(db.store, SqliteStore):
        with db.transaction() as tx:
            plan_rows = tx.execute(f"explain query plan {query}").fetchall()
    else:  # over a connection of its own, whose settings stay as they are set
        with psycopg.connect(request.getfixturevalue("postgres_url")) as connection:
            connection.execute("set enable_seqscan = off")  # a few rows are scanned whatever there is
            plan_rows = connection.execute(f"explain {query}".encode()).fetchall()
    plan = " ".join(str(value) for row in plan_rows for value in row)
    assert "SCAN" not in plan
    assert "Seq Scan on inturn_group" not in plan


def test_a_plain_sqlite_connection_reads_the_views(tmp_path: Any) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        db.queue("q").send({"amount": 5}, group="a", revision=1)
        inturn.work(LEDGER, db.queue("q"), until="empty")
    connection = sqlite3.connect(tmp_path / "shop.db")
    assert connection.execute("select state ->> 'balance' from inturn_states").fetchall() == [(5,)]
    connection.close()
