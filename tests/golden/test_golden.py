"""What earlier versions have kept is opened by this one, and goes on as if nothing had been; see golden.py."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

import golden
import inturn
import inturn.spark
from inturn.database import Database
from inturn.idempotency import Completed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = f"golden_restored_{os.getpid()}"  # processes of a test run share a server


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    """The database as it was left."""
    if request.param == "sqlite":
        with golden.opened() as folder, inturn.open(folder / "shop.db", create=False) as db:
            yield db
        return
    url = request.getfixturevalue("postgres_server")
    golden.restore(url, SCHEMA)
    try:
        with inturn.open(f"{url}&options=-csearch_path%3D{SCHEMA}", create=False) as db:
            yield db
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"drop schema {SCHEMA} cascade".encode())


def test_stored_queues_of_earlier_versions_are_unchanged(db: Database) -> None:
    assert db.queues() == ["dead", "orders", "payments", "seen"]
    orders = db.queue("orders", create=False)
    assert orders.info().settings.dead_letter == "dead"
    assert [(group.group, group.note) for group in orders.parked()] == [("b", "asked for by its owner")]
    assert [message.body for message in orders.deferred()] == ["deferred"]
    assert [message.body for message in db.queue("dead").peek()] == ["dies"]
    with orders.session("c") as session:  # type: ignore[union-attr] # nobody else has it
        assert session.state() == b"where it was"
        assert [(message.body, message.attributes) for message in session.receive()] == [
            (b"\x00bytes", {"colour": "red"})
        ]
    assert orders.send("again", group="a", dedup_id="in flight").duplicate

    assert orders.resume("b")
    bodies = [message.body for message in orders.receive(10)]
    assert sorted(map(str, bodies)) == [
        "after deferred", "behind it", "delayed", "without a group", "{'to': 'be parked'}"
    ]  # fmt: skip
    assert [message.body for message in db.queue("dead").peek()] == ["dies", "in flight", b"\x00bytes"], (
        "leases that were over"
    )


def test_stored_reader_positions_are_continued(db: Database) -> None:
    reader = db.queue("orders").reader("spark")
    assert reader.position() > 0
    assert reader.read(1)[0].body == "after deferred"


def test_a_stored_idempotency_key_has_its_result(db: Database) -> None:
    attempt = db.idempotency_keys("requests").try_lock("tx-77", payload={"amount": 5})
    assert isinstance(attempt, Completed)
    assert attempt.result == {"charge": "ch-1"}


def test_a_stored_pipeline_continues_in_a_worker(db: Database) -> None:
    effects = {}
    golden.send(db.queue("payments"), golden.THEN)
    counts = inturn.work(
        golden.LEDGER, db.queue("payments"), deliver=lambda output, id_: effects.update({id_: output}), until="empty"
    )
    assert (counts.received, counts.released, counts.applied, counts.duplicate) == (4, 1, 4, 1)
    replay = golden.LEDGER.replay(golden.FIRST + golden.THEN)
    assert {group: state.balance for group, state in replay.states.items()} == golden.BALANCES
    assert effects == {output.effect_id: output.output for output in replay.outputs}, "those from before too"


def test_the_states_view_shows_states_stored_before_it_existed(db: Database) -> None:
    sql = "select \"group\", state ->> 'balance' from inturn_states where pipeline = 'ledger'"
    with db.transaction() as tx:
        balances = {group: int(balance) for group, balance in tx.execute(sql).fetchall()}
    assert balances == {"applied": 12, "failed": 2, "waits": 1}


def test_stored_message_ids_are_detected_as_duplicates(db: Database) -> None:
    seen = db.queue("seen")
    seen.configure(dedup_window_s=300)  # else the queue itself knows them
    for name in "bad":
        seen.send({"id": name}, group="one")
    counts = inturn.work(golden.SEEN, seen, until="empty")
    assert (counts.received, counts.applied, counts.duplicate) == (3, 1, 2)


@pytest.mark.spark
def test_a_stored_spark_store_continues_from_its_checkpoint(spark: "SparkSession") -> None:
    with golden.opened() as folder:
        with inturn.open(folder / "shop.db", create=False) as db:
            golden.send(db.queue("payments"), golden.THEN)
        golden.stream(spark, folder)
        states = inturn.spark.read(spark, folder / "store", "states").collect()
        steps = inturn.spark.read(spark, folder / "store", "steps").collect()
        outputs = inturn.spark.read(spark, folder / "store", "outputs").collect()
    assert {row.group: row.balance for row in states} == golden.BALANCES
    assert [step.received for step in steps] == [len(golden.FIRST), len(golden.THEN)]
    replay = golden.LEDGER.replay(golden.FIRST + golden.THEN)
    assert {output.effect_id for output in outputs} == {output.effect_id for output in replay.outputs}
