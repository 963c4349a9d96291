"""Outputs are rows of a table, each once."""

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

import inturn
from inturn import deliver
from inturn.core.errors import DeliveryError, DeliveryRefused, InputError

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


def test_an_output_is_a_row_once(address: str) -> None:
    post = deliver.table(address, "postings", {"account": "to.account", "amount": "amount", "more": "to"})
    for _ in range(2):
        post({"to": {"account": "a"}, "amount": 5}, "e1")
    post({"to": {"account": "b"}}, "e2")
    assert rows(address) == [("e1", "a", 5), ("e2", "b", None)]
    post.close()
    post({"to": {"account": "c"}}, "e3")
    assert len(rows(address)) == 3
    post.close()


def test_what_is_refused_for_good(address: str) -> None:
    columns = {"account": "account", "amount": "amount"}
    with pytest.raises(DeliveryRefused, match=r"(?i)not.null"):
        deliver.table(address, "postings", columns)({"amount": 5}, "e1")
    with pytest.raises(DeliveryRefused, match="nowhere"):
        deliver.table(address, "nowhere", columns)({"amount": 5}, "e1")
    with pytest.raises(DeliveryRefused, match="output"):
        deliver.table(address, "postings")({"amount": 5}, "e1")
    assert rows(address) == []
    with pytest.raises(InputError, match="columns has 'effect_id'"):
        deliver.table(address, "postings", {"effect_id": "x"})


def test_what_may_pass(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_worker_delivers_into_the_table(address: str, tmp_path: Path) -> None:
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
    assert sorted(each[1:] for each in rows(address)) == [("a", 1), ("a", 2), ("a", 3)]
