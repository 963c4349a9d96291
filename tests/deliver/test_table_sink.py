"""Outputs are rows of a table, each once."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

import inturn
from inturn import deliver
from inturn.core.errors import DeliveryError, DeliveryRefused, InputError
from inturn.core.queue.messages import QueueSettings
from inturn.faults import OF_A_WORKER

TABLE = "create table postings (effect_id varchar(64) primary key, account text not null, amount int, more {json})"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        url = str(request.getfixturevalue("empty_postgres_url"))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE.format(json="jsonb").encode())
        return url
    path = str(tmp_path / "books.db")
    sqlite3.connect(path).execute(TABLE.format(json="text"))
    return path


def rows(address: str) -> list[Any]:
    connection: Any = psycopg.connect(address) if "://" in address else sqlite3.connect(address)
    return connection.execute("select effect_id, account, amount from postings order by 1").fetchall()


def test_an_output_is_inserted_as_one_row(address: str) -> None:
    post = deliver.table(address, "postings", {"account": "to.account", "amount": "amount", "more": "to"})
    for _ in range(2):
        post({"to": {"account": "a"}, "amount": 5}, "e1")
    post({"to": {"account": "b"}}, "e2")
    assert rows(address) == [("e1", "a", 5), ("e2", "b", None)]
    post.close()
    post({"to": {"account": "c"}}, "e3")
    assert len(rows(address)) == 3
    post.close()


def test_an_insert_that_violates_the_schema_raises_delivery_refused(address: str) -> None:
    columns = {"account": "account", "amount": "amount"}
    with pytest.raises(DeliveryRefused, match=r"(?i)not.null"):
        deliver.table(address, "postings", columns)({"amount": 5}, "e1")
    with pytest.raises(DeliveryRefused, match="nowhere"):
        deliver.table(address, "nowhere", columns)({"amount": 5}, "e1")
    with pytest.raises(DeliveryRefused, match="output"):
        deliver.table(address, "postings")({"amount": 5}, "e1")
    assert rows(address) == []
    with pytest.raises(InputError, match="columns contains 'effect_id'"):
        deliver.table(address, "postings", {"effect_id": "x"})


def test_an_unreachable_or_locked_database_raises_a_retryable_delivery_error(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inturn.core.limits.DELIVER_TIMEOUT_S", 0.05)
    if "://" in address:
        other = deliver.table("postgresql://me:geheim@127.0.0.1:9/shop", "postings")
        with pytest.raises(DeliveryError) as error:
            other({}, "e1")
        assert "geheim" not in str(error.value)
    else:
        with sqlite3.connect(address) as connection:
            connection.execute("begin immediate")
            with pytest.raises(DeliveryError, match="locked") as error:
                deliver.table(address, "postings", {"account": "a"})({"a": "x"}, "e1")
    assert not isinstance(error.value, DeliveryRefused)


def test_a_worker_delivers_outputs_into_the_table(address: str, tmp_path: Path) -> None:
    pipeline = inturn.Pipeline(
        name="ledger",
        group="account",
        order=inturn.Gapless("n"),
        handler=lambda state, message: (state, [{"account": message["account"], "amount": message["n"]}]),
    )
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        for n in (2, 1, 1, 3):
            db.queue("payments").send({"account": "a", "n": n}, group="a", revision=n)
        post = deliver.table(address, "postings", {"account": "account", "amount": "amount"})
        inturn.work(pipeline, db.queue("payments"), deliver=post, until="empty")
    assert sorted(row[1:] for row in rows(address)) == [("a", 1), ("a", 2), ("a", 3)]


# --- a table of the queue's own database ---

PROGRAM = Path(__file__).parent / "programs" / "table_worker.py"


def posted(state: Any, message: dict[str, Any]) -> tuple[Any, list[Any]]:
    return state, [{"account": message["account"], "amount": message["n"]}]


LEDGER = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("n"), handler=posted)
COLUMNS = {"account": "account", "amount": "amount"}


def connect(address: str) -> Any:
    return psycopg.connect(address, autocommit=True) if "://" in address else sqlite3.connect(address)


@pytest.fixture
def own(request: pytest.FixtureRequest, address: str) -> str:
    """The database of the table, in which the queues are too."""
    with inturn.open(address, durable=False) as db:
        db.queue("payments", QueueSettings(visibility_timeout_s=1))
    return address


def sent(address: str, accounts: str = "ab", count: int = 3) -> None:
    with inturn.open(address, durable=False) as db:
        for n in range(1, count + 1):
            for account in accounts:
                db.queue("payments").send({"account": account, "n": n}, group=account, revision=n)


def wanted(accounts: str = "ab", count: int = 3) -> list[tuple[str, int]]:
    return sorted((account, n) for account in accounts for n in range(1, count + 1))


def test_rows_in_the_same_database_are_inserted_in_the_workers_commit(
    own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(own)

    def fail(*_: object) -> None:
        raise AssertionError("nothing is delivered later")

    monkeypatch.setattr(deliver.table, "__call__", fail)
    with inturn.open(own, durable=False) as db:
        inturn.work(LEDGER, db.queue("payments"), deliver=deliver.table(own, "postings", COLUMNS), until="empty")
        assert list(db.pipeline("ledger").outputs()) == []
    assert sorted(row[1:] for row in rows(own)) == wanted()


def test_a_row_refused_by_the_table_parks_only_its_group(own: str) -> None:
    constraint = (
        "create trigger no before insert on postings when new.account = 'b' begin select raise(abort, 'no b'); end"
    )
    if "://" in own:
        constraint = "alter table postings add check (account <> 'b')"
    connect(own).execute(constraint)
    sent(own)
    with inturn.open(own, durable=False) as db:
        inturn.work(LEDGER, db.queue("payments"), deliver=deliver.table(own, "postings", COLUMNS), until="empty")
        (failing,) = db.pipeline("ledger").failing()
        assert failing.group == "b"
        assert sorted(row[1:] for row in rows(own)) == wanted("a")
        connect(own).execute(
            "drop trigger no" if "://" not in own else "alter table postings drop constraint postings_account_check"
        )
        db.pipeline("ledger").redeliver("b")
        sent(own, "b", 4)
        inturn.work(LEDGER, db.queue("payments"), deliver=deliver.table(own, "postings", COLUMNS), until="empty")
    assert sorted(row[1:] for row in rows(own)) == sorted([*wanted("ab"), ("b", 4)])


def test_delivery_waits_for_a_locked_table(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create table locked (effect_id text primary key, account text, amount int)")
    try:
        with inturn.open(postgres_url, durable=False) as db, psycopg.connect(postgres_url) as holder:
            db.queue("payments").send({"account": "a", "n": 1}, group="a", revision=1)
            holder.execute("lock table locked in exclusive mode")
            threading.Timer(4, holder.commit).start()
            inturn.work(
                LEDGER, db.queue("payments"), deliver=deliver.table(postgres_url, "locked", COLUMNS), until="empty"
            )
            assert holder.execute("select account, amount from locked").fetchall() == [("a", 1)]
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("drop table locked")


@pytest.mark.slow
@pytest.mark.soak
def test_killed_workers_insert_each_row_once(own: str, soak_seed: int) -> None:
    chance, killed = random.Random(soak_seed), 0
    sent(own, "abcdef", 40)
    for _ in range(20):
        point = f"{chance.choice(OF_A_WORKER)}@{chance.randint(1, 4)}"
        life = subprocess.run(
            [sys.executable, str(PROGRAM), own], env=os.environ | {"INTURN_KILL_AT": point}, check=False, timeout=120
        )
        assert life.returncode in (0, -signal.SIGKILL)
        killed += life.returncode != 0
        delivered = [row[1:] for row in rows(own)]
        assert len(delivered) == len(set(delivered))
    assert subprocess.run([sys.executable, str(PROGRAM), own], check=False, timeout=120).returncode == 0
    assert killed > 5
    print(f"{killed} of 20 lives were killed")
    assert sorted(row[1:] for row in rows(own)) == wanted("abcdef", 40)
