"""Idle groups of `Timestamp` on Spark: a stream releases what they hold on time, and at its end if that is asked."""

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from inturn import Pipeline, Timestamp
from inturn.cli import app
from inturn.spark import advance, batch, stream
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.driver.step import Stepper
from inturn.spark.tables.manifest import SparkStore
from inturn.testing import disorder, same
from waiting import until

DDL = "account string, at long, id string"
LIMIT_S = 60
PROGRAM = """
import dataclasses, inturn

@dataclasses.dataclass
class Row:
    account: str
    at: int
    id: str

def collect(state, message):
    return {"seen": [*state.get("seen", []), message.at]}, []

order = inturn.Timestamp("at", lateness="3 seconds", unit="s")
timed = inturn.Pipeline(name="idle", group="account", order=order, id="id", message=Row, handler=collect)
"""
Row = dict[str, Any]


def collect(state: Row, message: Row) -> tuple[Row, list[Any]]:
    return {"seen": [*state.get("seen", []), message["at"]]}, [{"at": message["at"]}]


def define(idle: Any) -> Pipeline:
    order = Timestamp("at", lateness="3 seconds", unit="s", idle=idle)
    return Pipeline(name="idle", group="account", order=order, id="id", handler=collect)


def put(folder: Path, name: str, *times: int, account: str = "a") -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"account": account, "at": instant, "id": f"t{instant}"} for instant in times]
    (folder / f".{name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / f".{name}").rename(folder / name)


@contextmanager
def running(spark: SparkSession, root: Path, pipeline: Pipeline, **more: Any) -> Iterator[Any]:
    df = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(root / "in"))
    query = stream(pipeline, df, store=root / "store", checkpoint=root / "checkpoint", buckets=2, **more)
    try:
        yield query
        assert query.exception() is None
    finally:
        query.stop()


def seen(root: Path) -> Any:
    return SparkInspector(root / "store").group("a").state.get("seen", [])


def rejected(root: Path) -> dict[str, int]:
    store, counts = SparkStore(root / "store"), dict[str, int]()
    for step in store.steps():
        counts |= store.manifest(step).counts["rejected"]
    return counts


def test_a_stream_releases_an_idle_group_without_new_messages(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", 103, 101)
    with running(spark, tmp_path, define("lateness")):
        until((tmp_path / "store" / "steps" / "000000000002.json").exists)
        assert seen(tmp_path) == [101, 103]
        put(tmp_path / "in", "2.json", 102, 104)
        until((tmp_path / "store" / "steps" / "000000000004.json").exists)
    assert (seen(tmp_path), rejected(tmp_path)) == ([101, 103, 104], {"late": 1})
    first, second = (SparkStore(tmp_path / "store").manifest(step) for step in (1, 2))
    assert second.now_us - first.now_us >= 3_000_000


def test_messages_that_came_while_no_stream_ran_are_applied_before_an_idle_release(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline, before = define("10 minutes"), dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    batch(pipeline, spark.createDataFrame([("a", 103, "t103")], DDL), store=tmp_path / "store", now=before, buckets=2)
    put(tmp_path / "in", "1.json", 50, account="b")
    with running(spark, tmp_path, pipeline, trigger="available now") as query:
        assert query.awaitTermination(LIMIT_S)
    put(tmp_path / "in", "2.json", 101)
    with running(spark, tmp_path, pipeline, trigger="available now") as query:
        assert query.awaitTermination(LIMIT_S)
    assert (seen(tmp_path), rejected(tmp_path)) == ([], {})
    late = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=10)
    stepper = Stepper(pipeline, tmp_path / "store", without_spark=True)
    plan = stepper.plan(None, late, final=False, since_us=None)
    assert not plan.is_quiet, "however long it takes to read what is there"
    advance(pipeline, store=tmp_path / "store", now=late)
    assert seen(tmp_path) == [101, 103]


def test_settle_final_releases_all_held_messages_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", 103, 101)
    with running(spark, tmp_path, define(None), trigger="available now") as query:
        assert query.awaitTermination(LIMIT_S)
    assert seen(tmp_path) == []
    advance(define(None), store=tmp_path / "store", final=True)
    assert seen(tmp_path) == [101, 103]


def test_all_engines_release_the_same_messages_at_the_end(spark: SparkSession) -> None:
    rows = [
        {"account": account, "at": instant, "id": f"{account}{instant}"}
        for account in "abc"
        for instant in range(100, 120)
    ]
    pipeline = replace(define("1 minute"), arrival="n")
    log = [{**row, "n": number} for number, row in enumerate(disorder(rows, seed=3))]
    result = same(pipeline, log, engines=("replay", "worker", "batch", "stream"), spark=spark)
    assert (result.holding(), set(result.rejected)) == (0, {"a", "b", "c"})


def test_run_with_final_releases_all_held_messages_of_a_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda _session: None)  # it is everybody's
    (tmp_path / "lines.py").write_text(PROGRAM)
    put(tmp_path / "in", "1.json", 103, 101)
    arguments = [
        "run",
        f"{tmp_path / 'lines.py'}:timed",
        "--from",
        str(tmp_path / "in"),
        "--store",
        str(tmp_path / "store"),
    ]
    refused = CliRunner().invoke(app, [*arguments, "--stream", "--final"])
    assert "expected --trigger 'available now'" in refused.stderr.replace("\n", " ")
    ran = CliRunner().invoke(app, [*arguments, "--stream", "--trigger", "available now", "--final"])
    assert ran.exit_code == 0, ran.stderr
    assert (seen(tmp_path), len(ran.stdout.splitlines())) == ([101, 103], 2)
