"""A chain of an order by time and `Arrival` without a column of arrival: the same order on Spark as in process."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import inturn
from inturn import Arrival, Gapless, Pipeline, Timestamp
from inturn.queue import draft
from inturn.spark import batch, messages, outputs, read, stream
from inturn.spark.driver.inspection import SparkInspector
from inturn.worker.inspection import DatabaseInspector
from inturn.worker.service import Job, Service

TIMES = (3, 1, 4, 2)
ORDER = Timestamp("at", lateness="1 minute", unit="s")
LIMIT_S = 60
Row = dict[str, Any]


def put_out(state: Row, message: Row) -> tuple[Row, list[Row]]:
    return state, [{"account": message["account"], "of": message["at"]}]


def collect(state: Row, message: Row) -> tuple[Row, list[Row]]:
    return {"seen": [*state.get("seen", []), message["of"]]}, []


FIRST = Pipeline(name="first", group="account", order=ORDER, id="id", handler=put_out)
UNSORTED = Pipeline(name="first", group="account", order=Arrival(), id="id", handler=put_out, arrival="n")
NEXT = Pipeline(name="next", group="account", order=Arrival(), id="id", handler=collect)
NUMBERED = Pipeline(name="next", group="account", order=Gapless("of", start="first"), handler=collect)
ROWS = [{"account": account, "at": moment, "id": f"{account}{moment}"} for moment in TIMES for account in "abc"]


def in_process(tmp_path: Path) -> dict[str, list[int]]:
    with inturn.open(tmp_path / "chain.db", durable=False) as db:
        rows, later = db.queue("rows"), db.queue("later")
        rows.send_many([draft(row, group=row["account"]) for row in ROWS])
        Service([Job(FIRST, rows, later), Job(NEXT, later)], is_final=True).run(until_empty=True)
        inspector = DatabaseInspector(db, "next")
        return {name: inspector.group(name).state["seen"] for name in "abc"}


def on_spark(store: Path) -> dict[str, list[int]]:
    inspector = SparkInspector(store)
    return {name: inspector.group(name).state["seen"] for name in "abc"}


@pytest.mark.parametrize("way", ["batch", "stream"])
def test_chained_outputs_are_applied_in_the_order_of_their_emission(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    df = spark.createDataFrame([tuple(row.values()) for row in ROWS], "account string, at bigint, id string")
    batch(FIRST, df.repartition(3), store=tmp_path / "first", final=True, buckets=2)
    emitted = outputs(spark, tmp_path / "first", streaming=way == "stream")
    coming = messages(NEXT, emitted, "account string, of bigint")
    if way == "batch":
        batch(NEXT, coming.repartition(5), store=tmp_path / "next", buckets=2)
    else:
        query = stream(NEXT, coming, store=tmp_path / "next", checkpoint=tmp_path / "check", trigger="available now")
        assert query.awaitTermination(LIMIT_S)
    stored = on_spark(tmp_path / "next")
    assert stored == in_process(tmp_path) == dict.fromkeys("abc", sorted(TIMES))
    assert "__inturn_arrived" not in read(spark, tmp_path / "next", "rejected").columns


def test_the_first_chained_output_sets_the_start_revision_of_its_group(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(account, moment, f"{account}{moment}", n) for n, moment in enumerate((3, 4, 1)) for account in "abc"]
    df = spark.createDataFrame(rows, "account string, at bigint, id string, n bigint")
    batch(UNSORTED, df.repartition(3), store=tmp_path / "first", buckets=2)
    coming = messages(NUMBERED, outputs(spark, tmp_path / "first"), "account string, of bigint")
    assert batch(NUMBERED, coming.repartition(5), store=tmp_path / "next", buckets=2).counts.stale == 3
    assert on_spark(tmp_path / "next") == {name: [3, 4] for name in "abc"}
