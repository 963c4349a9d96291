"""A chain on Spark: the next pipeline reads committed outputs, as a batch and as a stream, as from a queue."""

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import inturn
from inturn import Arrival, Gapless, Pipeline, ToQueue
from inturn.core.errors import InputError, StoreError
from inturn.queue import draft
from inturn.spark import batch, messages, outputs, read, stream
from inturn.worker.inspection import DatabaseInspector
from inturn.worker.service import Job, Service

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "money_transfer.py"))
LIMIT_S = 120
Row = dict[str, Any]


def pay(state: Row, message: Row) -> tuple[Row, list[Row]]:
    """Revisions that divide by three pay nobody, the others one or two."""
    paid = state.get("paid", 0) + message["amount"]
    payees = ["x", "y"][: message["revision"] % 3]
    return {"paid": paid}, [{"to": {"name": name}, "amount": message["amount"]} for name in payees]


def get(state: Row, message: Row) -> tuple[Row, list[Row]]:
    total = state.get("got", 0) + message["amount"]
    return {"got": total}, [{"thanks": message["amount"]}]


DEBITS = Pipeline(name="debits", group="account", order=Gapless("revision"), handler=pay)
CREDITS = Pipeline(name="credits", group="payee", order=Arrival(), id="id", handler=get, arrival="at")
ROWS = [{"account": account, "revision": n, "amount": n} for n in range(1, 10) for account in "abc"]
SCHEMA = "payee string, amount bigint"


def debits(spark: SparkSession, store: Path, *steps: list[Row]) -> None:
    for rows in steps:
        batch(DEBITS, spark.createDataFrame(rows, "account string, revision bigint, amount bigint"), store=store)


def credits_of(spark: SparkSession, store: Path, **more: Any) -> DataFrame:
    return messages(CREDITS, outputs(spark, store, group="to.name", **more), SCHEMA)


def in_process(tmp_path: Path) -> tuple[dict[str, Any], set[str]]:
    """The states and the effect ids of the same chain over queues."""
    with inturn.open(tmp_path / "bank.db", durable=False) as db:
        payments, later = db.queue("payments"), db.queue("credits")
        payments.send_many([draft(row, group=row["account"]) for row in ROWS])
        chained = [Job(DEBITS, payments, ToQueue(later, group="to.name")), Job(CREDITS, later)]
        Service(chained).run(until_empty=True)
        inspector = DatabaseInspector(db, "credits")
        return {name: inspector.group(name).state for name in "xy"}, {
            output.effect_id for output in inspector.outputs()
        }


def on_spark(spark: SparkSession, store: Path) -> tuple[dict[str, Any], set[str]]:
    states = {row["group"]: json.loads(row["state"]) for row in read(spark, store, "states").collect()}
    return states, {row["effect_id"] for row in read(spark, store, "outputs").collect()}


def test_outputs_have_the_columns_of_the_queue_log(spark: SparkSession, tmp_path: Path) -> None:
    debits(spark, tmp_path / "d", ROWS[:6], ROWS[6:])
    by_effect = {row["effect_id"]: row for row in read(spark, tmp_path / "d", "outputs").collect()}
    ordered = outputs(spark, tmp_path / "d").orderBy("sequence_number").collect()
    assert [row["sequence_number"] for row in ordered] == list(range(1, len(by_effect) + 1))
    assert {row["dedup_id"] for row in ordered} == by_effect.keys()
    assert all(row["group"] == by_effect[row["dedup_id"]]["group"] for row in ordered)
    assert all(row["body"] == by_effect[row["dedup_id"]]["output"] for row in ordered)
    steps = [by_effect[row["dedup_id"]]["step"] for row in ordered]
    assert steps == sorted(steps)
    for account in "abc":
        revisions = [by_effect[row["dedup_id"]]["revision"] for row in ordered if row["group"] == account]
        assert revisions == sorted(revisions), "in order within a group"
    later = outputs(spark, tmp_path / "d", after=1).orderBy("sequence_number").collect()
    assert later == ordered[steps.count(1) :]
    named = outputs(spark, tmp_path / "d", group="to.name", revision="amount").orderBy("sequence_number").collect()
    assert {row["group"] for row in named} == {"x", "y"}
    assert [row["revision"] for row in named] == [by_effect[row["dedup_id"]]["revision"] for row in named]


def test_a_chained_batch_gives_the_result_of_the_in_process_chain(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "d"
    debits(spark, store, ROWS[::2], ROWS[1::2])
    batch(CREDITS, credits_of(spark, store), store=tmp_path / "c")
    repeated = batch(CREDITS, credits_of(spark, store, after=1), store=tmp_path / "c")
    assert repeated.counts.applied == 0, "none is applied twice"
    assert on_spark(spark, tmp_path / "c") == in_process(tmp_path)


@pytest.mark.slow
def test_a_chained_stream_gives_the_result_of_the_in_process_chain(spark: SparkSession, tmp_path: Path) -> None:
    """Through restarts, and with steps in between that have no outputs."""
    store, later = tmp_path / "d", tmp_path / "c"

    def follow() -> None:
        df = credits_of(spark, store, streaming=True)
        query = stream(CREDITS, df, store=later, checkpoint=tmp_path / "check", trigger="available now")
        assert query.awaitTermination(LIMIT_S)

    for part in range(2):
        debits(spark, store, ROWS[part::2], [])
        follow()
    follow()
    states = on_spark(spark, later)
    assert states == in_process(tmp_path)
    steps = read(spark, later, "steps").where("received > 0").collect()
    assert [row["duplicate"] for row in steps] == [0, 0], "each output was read once"


@pytest.mark.slow
def test_a_micro_batch_of_outputs_contains_whole_steps_up_to_max_rows(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "d"
    debits(spark, store, *(ROWS[start : start + 6] for start in range(0, len(ROWS), 6)))
    df = credits_of(spark, store, streaming=True, max_rows=7, after=1)
    query = stream(CREDITS, df, store=tmp_path / "c", checkpoint=tmp_path / "check", trigger="available now")
    assert query.awaitTermination(LIMIT_S)
    written = [row["count"] for row in read(spark, store, "outputs").groupBy("step").count().orderBy("step").collect()]
    received = [row["received"] for row in read(spark, tmp_path / "c", "steps").orderBy("step").collect()]
    assert sum(received) == sum(written[1:])
    assert len(received) > 1
    assert max(received) <= max(7, *written)


@pytest.mark.slow
def test_a_stream_of_outputs_is_refused_if_its_store_was_replaced(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "d"
    debits(spark, store, ROWS[:9])
    copy = shutil.copytree(store, tmp_path / "copy")
    debits(spark, store, ROWS[9:18])

    def follow() -> None:
        df = credits_of(spark, store, streaming=True)
        query = stream(CREDITS, df, store=tmp_path / "c", checkpoint=tmp_path / "check", trigger="available now")
        query.awaitTermination(LIMIT_S)

    follow()
    shutil.rmtree(store)
    shutil.copytree(copy, store)
    with pytest.raises(StreamingQueryException, match="restored from an older copy"):
        follow()
    debits(spark, store, ROWS[18:], ROWS[9:18])
    with pytest.raises(StreamingQueryException, match="restored from an older copy"):
        follow()


def test_outputs_of_missing_stores_and_steps_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        outputs(spark, tmp_path / "absent")
    debits(spark, tmp_path / "d", ROWS[-3:])
    with pytest.raises(StoreError, match="has no step 7"):
        outputs(spark, tmp_path / "d", after=7)
    for wrong in (-1, True, "1"):
        with pytest.raises(InputError, match="after is"):
            outputs(spark, tmp_path / "d", after=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_rows is 5, but a batch has no limit"):
        outputs(spark, tmp_path / "d", max_rows=5)
    assert outputs(spark, tmp_path / "d").collect() == [], "they wait for their predecessors"


# --- the money transfer of the examples: its outputs come back to itself ---

NAMES = [f"acct-{n}" for n in range(4)]
BOOKINGS = [
    *({"id": f"first-{name}", "account": name, "amount": 1_000, "to": None} for name in NAMES),
    *(
        {"id": f"pay-{n}", "account": NAMES[n % 4], "amount": 10 * n, "to": NAMES[(n + 1 + n % 3) % 4]}
        for n in range(1, 13)
    ),
    {"id": "too much", "account": NAMES[0], "amount": 1_000_000, "to": NAMES[1]},
]
"""Every payment but the last is possible whatever the order, and the last never."""
DDL = "id string, account string, amount bigint, to string"


def transferred(tmp_path: Path) -> tuple[dict[str, Any], set[str]]:
    """The states and effect ids of the same transfers in this process."""
    accounts = EXAMPLE["ACCOUNTS"]
    with inturn.open(tmp_path / "bank.db", durable=False) as db:
        bookings = db.queue("bookings")
        bookings.send_many([draft(booking, group=booking["account"], dedup_id=booking["id"]) for booking in BOOKINGS])
        sent: set[str | None] = set()
        reader = bookings.reader("all")
        reader.commit(0)  # from now on it holds what is sent
        inturn.work(accounts, bookings, deliver=EXAMPLE["BACK"], until="empty")
        while delivered := reader.read(1_000):
            sent |= {message.dedup_id for message in delivered}
            reader.commit(delivered[-1].sequence_number)
        inspector = DatabaseInspector(db, "accounts")
        ids = {str(dedup_id) for dedup_id in sent} - {booking["id"] for booking in BOOKINGS}
        return {name: inspector.group(name).state for name in NAMES}, ids


def balances(spark: SparkSession, store: Path) -> tuple[dict[str, Any], set[str]]:
    rows = read(spark, store, "states").collect()
    states = {row["group"]: {"balance": row["balance"], "declined": row["declined"]} for row in rows}
    assert sum(state["balance"] for state in states.values()) == 1_000 * len(NAMES)
    return states, {row["effect_id"] for row in read(spark, store, "outputs").collect()}


def test_the_transfer_example_in_batches_gives_the_in_process_balances(spark: SparkSession, tmp_path: Path) -> None:
    accounts, store, step = EXAMPLE["ACCOUNTS"], tmp_path / "a", 0
    report = batch(accounts, spark.createDataFrame(BOOKINGS, DDL), store=store)
    while report.counts.applied:
        report = batch(accounts, messages(accounts, outputs(spark, store, group="account", after=step)), store=store)
        step = report.step - 1
    assert balances(spark, store) == transferred(tmp_path)


def test_the_transfer_example_as_a_stream_over_its_own_outputs_gives_the_same_balances(
    spark: SparkSession, tmp_path: Path
) -> None:
    accounts, store = EXAMPLE["ACCOUNTS"], tmp_path / "a"
    batch(accounts, spark.createDataFrame(BOOKINGS[:4], DDL), store=store)
    spark.createDataFrame(BOOKINGS, DDL).write.json(str(tmp_path / "in"))
    for _ in range(3):
        coming = spark.readStream.schema(DDL).json(str(tmp_path / "in"))
        back = messages(accounts, outputs(spark, store, group="account", streaming=True))
        both = coming.unionByName(back, allowMissingColumns=True)
        query = stream(accounts, both, store=store, checkpoint=tmp_path / "check", trigger="available now")
        assert query.awaitTermination(LIMIT_S)
    assert balances(spark, store) == transferred(tmp_path)
    assert read(spark, store, "steps").count() == 3, "then there is nothing more to read"
