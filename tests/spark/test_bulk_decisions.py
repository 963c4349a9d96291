"""A step of a Spark session takes ten thousand decisions with its messages: its plan goes to every task."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import inturn.spark
from inturn import Gapless, Pipeline

COUNT = 10_000


def pipeline(least: int) -> Pipeline:
    def post(state: dict[str, Any], message: Any) -> tuple[dict[str, Any], list[Any]]:
        if message["amount"] < least:
            raise ValueError(message["amount"])
        return {"balance": state.get("balance", 0) + message["amount"]}, [message["amount"]]

    return Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=post)


@pytest.mark.slow
def test_ten_thousand_decisions_are_applied_in_one_step_with_new_messages(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"

    def messages(revision: int, amount: int) -> Any:
        columns = ["concat('g-', id) account", f"{revision}L revision", f"{amount}L amount"]
        return spark.range(COUNT).selectExpr(*columns)

    inturn.spark.batch(pipeline(0), messages(1, -1), store=store)
    stored = inturn.spark.store(store)
    report = stored.drop(all=True, by="ann")
    assert len(report.pending) == COUNT
    applied = inturn.spark.batch(pipeline(0), messages(2, 3), store=store)
    assert (applied.counts.rejected, applied.counts.applied) == ({"dropped": COUNT}, COUNT)
    report = stored.updated(report)
    assert (len(report.done), report.void, report.pending) == (COUNT, {}, {})
