"""Hostile texts on a real Spark: each harms its own message or group at most."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hostile import HOSTILE, is_utf8
from inturn import Gapless, Pipeline
from inturn.spark import batch, read
from inturn.testing import compare

Row = dict[str, Any]
CARRIED = {name: text for name, text in HOSTILE.items() if is_utf8(text) and len(text) < 10_000}


def keep(state: Row, message: Row) -> tuple[Row, list[Any]]:
    if message["fails"]:
        raise ValueError(message["text"] + "\udce9\0")
    return {"text": message["text"]}, [message["text"]]


hostile = Pipeline(name="hostile", group="g", order=Gapless("r"), id="id", handler=keep)


def rows() -> list[Row]:
    """Each text as a group, as an id, as another text, and as an error that has what nobody can store besides."""
    messages = []
    for index, (name, text) in enumerate(CARRIED.items()):
        messages.append({"g": text, "r": 1, "id": f"{index}", "text": text, "fails": False})
        messages.append({"g": f"ids {name}", "r": 1, "id": text, "text": "x", "fails": False})
        messages.append({"g": f"fails {name}", "r": 1, "id": "i", "text": text, "fails": True})
    return messages


@pytest.mark.slow
def test_hostile_messages_have_the_same_result_in_replay_worker_and_batch(spark: SparkSession) -> None:
    comparison = compare(hostile, rows(), engines=("replay", "worker", "batch"), spark=spark)
    assert [str(difference) for difference in comparison.differences] == []
    assert comparison.results["batch"].counts.rejected["invalid"] > 0


def test_a_string_that_is_not_utf8_makes_only_its_message_invalid(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(b"a", 1, b"x"), (b"b", 1, b"\xe9"), (b"\xe9", 1, b"y")]
    raw = spark.createDataFrame(rows, "g binary, r bigint, text binary")
    df = raw.selectExpr("CAST(g AS string) AS g", "r", "CAST(text AS string) AS text", "'i' AS id", "false AS fails")
    report = batch(hostile, df, store=tmp_path / "store")
    assert (report.counts.applied, report.counts.rejected) == (1, {"invalid": 2})
    rejected = {(row["group"], row["detail"]) for row in read(spark, tmp_path / "store", "rejected").collect()}
    assert rejected == {("b", "the text of text is not valid UTF-8"), ("\\xe9", "the text of g is not valid UTF-8")}
