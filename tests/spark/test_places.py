"""What places a message lies within other fields, or is a time in another form: all four engines do the same."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import inturn
from inturn import Gapless, Pipeline, Timestamp
from inturn.core.errors import InputError
from inturn.spark import batch, read
from inturn.spark.source.messages import messages
from inturn.testing import compare, disorder

ALL = ("replay", "worker", "batch", "stream")
Row = dict[str, Any]


def post(state: Row, message: Any) -> tuple[Row, list[Any]]:
    value = message if isinstance(message, dict) else msgspec.to_builtins(message)
    state["n"] = state.get("n", 0) + value["v"]
    return state, [[state["n"], str(value.get("at"))]]


def clean(accounts: int = 4, size: int = 12) -> list[Row]:
    noon = dt.datetime(2014, 10, 22, 11, 15)  # noqa: DTZ001 - as text without a zone is read
    return [
        {
            "after": {"account": f"a{account}", "version": version, "tx.id": f"{account}-{version}"},
            "source": {"lsn": 1_000 * version + account},
            "at": f"{noon + dt.timedelta(seconds=version):%Y/%m/%d %H:%M:%S}.000",
            "v": version * account,
        }
        for version in range(1, size + 1)
        for account in range(accounts)
    ]


class After(msgspec.Struct):
    account: str
    version: int


class Source(msgspec.Struct):
    lsn: int


class Change(msgspec.Struct):
    after: After
    source: Source
    v: int


GROUP = {"group": "after.account"}
CASES: dict[str, Pipeline] = {
    "plain": Pipeline(
        name="p", **GROUP, order=Gapless("after.version"), id="after.`tx.id`", ignore=["source.lsn"], handler=post
    ),
    "typed": Pipeline(name="p", **GROUP, order=Gapless("after.version"), message=Change, handler=post),
    "text": Pipeline(name="p", **GROUP, order=Timestamp("at", "3 seconds"), id="after.`tx.id`", handler=post),
    "within": Pipeline(
        name="p", **GROUP, order=Timestamp("source.lsn", "2 seconds", unit="ms"), id="after.`tx.id`", handler=post
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_all_engines_agree_on_nested_groups_revisions_and_times(spark: SparkSession, case: str) -> None:
    log = disorder(clean(), seed=3, distance=8, contradict=lambda message: {**message, "v": 7})
    log.append({**log[0], "after": {"account": "a1", "version": None, "tx.id": "x"}})
    if case == "text":
        log.append({**log[0], "at": "soon"})
    if case == "typed":
        del log[-1]
        log = [msgspec.convert(message, Change) for message in log]
    comparison = compare(CASES[case], log, engines=ALL, seed=2, spark=spark)
    assert comparison.differences == []
    assert comparison.results["replay"].counts.applied > 20


def test_the_envelope_of_a_queue_fills_nested_fields(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = CASES["typed"]
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("changes")
        for version in (1, 2, 3):
            queue.send({"after": {"account": "a"}, "source": {"lsn": 5}, "v": 2}, group="a", revision=version)
        queue.send({"after": None, "source": {"lsn": 5}, "v": 2}, group="a", revision=4)
        queue.send({"after": {"version": 7}, "source": {"lsn": 5}, "v": 2}, group="a", revision=5)
    log = spark.read.format("inturn").load(f"{tmp_path / 'shop.db'}#changes")
    report = batch(pipeline, messages(pipeline, log), store=tmp_path / "out")
    assert (report.counts.applied, report.counts.rejected) == (4, {"invalid": 1})
    assert json.loads(read(spark, str(tmp_path / "out"), "states").collect()[0].state)["n"] == 8


def test_a_column_with_a_dot_in_its_name_must_be_quoted(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql("select 'a' as `g.x`, 1L as r, 1 as v")
    with pytest.raises(InputError, match=r"has no column 'g\.x'.*; write '`g\.x`'"):
        batch(Pipeline(name="p", group="g.x", order=Gapless("r"), handler=post), df, store=tmp_path / "out")
    pipeline = Pipeline(name="p", group="`g.x`", order=Gapless("r"), handler=post)
    assert batch(pipeline, df, store=tmp_path / "out").counts.applied == 1
