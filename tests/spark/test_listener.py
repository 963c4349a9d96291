"""The listener with real streams: each committed step is told once, in order, and a stream never fails of it.

Run as a program (SERVER MESSAGES STORE CHECKPOINT), this is the client that listens through Spark Connect.
"""

import json
import logging
import os
import pickle
import queue
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from programs.ledger import DDL, cut, history, ledger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import inturn.spark
from inturn.core.errors import StoreError
from inturn.core.pipeline.journal import Counts
from inturn.spark import pickling
from inturn.spark.driver.listener import StepListener, StepSummary
from inturn.spark.tables.manifest import SparkStore

LIMIT_S = 120
"""A stream that takes longer hangs."""


def write(folder: Path, messages: list[list[dict[str, object]]]) -> Path:
    """A file for each micro-batch."""
    folder.mkdir()
    for number, part in enumerate(messages):
        file = folder / f"{number:03d}.json"
        file.write_text("\n".join(map(json.dumps, part)))
        os.utime(file, (number, number))  # Spark takes the oldest first
    return folder


def start(spark: SparkSession, messages: Path | str, store: Path | str, checkpoint: Path | str) -> StreamingQuery:
    """Stream the files, one a micro-batch, each a step."""
    sent = pickling.dumps(ledger)  # by value: behind Connect this module is not there
    target = str(store)

    def step(df: DataFrame, _: int) -> None:
        inturn.spark.batch(pickling.loads(sent), df, store=target, buckets=2)

    rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(messages))
    stream = rows.writeStream.foreachBatch(step).option("checkpointLocation", str(checkpoint))
    return stream.trigger(availableNow=True).start()


def stream(
    spark: SparkSession, tmp_path: Path, listener: StepListener, messages: list[list[dict[str, object]]]
) -> None:
    spark.streams.addListener(listener)
    try:
        query = start(spark, write(tmp_path / "messages", messages), tmp_path / "store", tmp_path / "checkpoint")
        assert query.awaitTermination(LIMIT_S)
        # Spark tells its listeners later, one event after the other.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]
    finally:
        spark.streams.removeListener(listener)


def test_the_listener_reports_each_step_once_with_its_held_messages(spark: SparkSession, tmp_path: Path) -> None:
    messages = cut(history(seed=3), 3)
    inturn.spark.batch(ledger, spark.createDataFrame([], DDL), store=tmp_path / "store", buckets=2)
    summaries: list[StepSummary] = []
    stream(spark, tmp_path, StepListener(tmp_path / "store", summaries.append), messages)

    assert [(summary.pipeline, summary.step) for summary in summaries] == [("ledger", 2), ("ledger", 3), ("ledger", 4)]
    after = None
    for summary, part in zip(summaries, messages, strict=True):
        after = ledger.replay(part, after=after)
        assert summary.counts == after.counts
        assert summary.held == len(after.held)
        assert summary.parked == sum(bool(timeline.parked) for timeline in after.timelines.values())
    manifests = [SparkStore(tmp_path / "store").manifest(step) for step in (2, 3, 4)]
    # These accounts wait for ever for their second revision, so the wait goes on from step to step.
    assert summaries[-1].held > 0
    assert summaries[-1].parked > 0
    assert (
        [summary.oldest_us for summary in summaries]
        == [min(summary.oldest_us for summary in summaries)] * 3
        == [manifests[0].now_us] * 3
    )
    assert summaries[-1].oldest_wait_s == (manifests[-1].now_us - manifests[0].now_us) / 1e6


def test_the_listener_logs_a_line_by_default(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "inturn")
    messages: list[dict[str, object]] = [{"account": "a", "revision": revision, "amount": 1} for revision in (1, 1, 3)]
    stream(spark, tmp_path, StepListener(tmp_path / "store"), [messages])
    lines = [record for record in caplog.records if record.name == "inturn.spark.listener"]
    counts = "received 3 + released 0 = applied 1 + duplicate 1 + stale 0 + held 1 + rejected 0"
    expected = f"ledger, step 1: {counts}; held now 1, the oldest for 0 s, groups parked 0"
    assert [(record.levelname, record.message) for record in lines] == [("INFO", expected)]


def test_an_error_of_on_step_is_logged_and_the_stream_continues(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[int] = []

    def fails(summary: StepSummary) -> None:
        steps.append(summary.step)
        raise RuntimeError("the monitor is away")

    stream(spark, tmp_path, StepListener(tmp_path / "store", fails), cut(history(seed=4, accounts=6), 2))
    assert steps == [1, 2]
    warnings = [record for record in caplog.records if record.name == "inturn.spark.listener"]
    assert [record.levelname for record in warnings] == ["WARNING"] * 2
    assert "step 1" in warnings[0].message
    assert "the monitor is away" in caplog.text


def test_the_listener_logs_a_warning_for_an_unreadable_store(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = StepListener(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "steps").mkdir(parents=True)
    (tmp_path / "elsewhere" / "steps" / "000000000001.json").write_text("{")
    stream(spark, tmp_path, listener, cut(history(seed=5, accounts=3), 1))
    warnings = [record for record in caplog.records if record.name == "inturn.spark.listener"]
    assert warnings
    assert {record.levelname for record in warnings} == {"WARNING"}
    assert "000000000001.json is damaged" in caplog.text
    assert SparkStore(tmp_path / "store").steps() == [1]


def test_the_listener_can_be_pickled(tmp_path: Path) -> None:
    restored = pickle.loads(pickle.dumps(StepListener(tmp_path / "store", print)))  # noqa: S301 - its own bytes
    assert vars(restored) == vars(StepListener(tmp_path / "store", print))


def test_the_listener_refuses_an_unsupported_store_location() -> None:
    with pytest.raises(StoreError, match="hdfs"):
        StepListener("hdfs://namenode/store")


def test_a_step_summary_without_held_messages_omits_the_wait() -> None:
    summary = StepSummary("p", "s", 1, Counts(), 0.1, now_us=90_000_000, held=0, parked=0, oldest_us=None)
    assert str(summary).endswith("rejected 0")
    assert summary.oldest_wait_s is None
    assert replace(summary, held=2, oldest_us=30_000_000).oldest_wait_s == 60


@pytest.mark.slow
def test_the_listener_works_over_spark_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect], from the extra [connect]")
    from programs.connecting import run, server

    messages = cut(history(seed=6, accounts=6), 2)
    folder = write(tmp_path / "messages", messages)
    client = run(Path(__file__), server(), folder, tmp_path / "store", tmp_path / "checkpoint")
    assert client.returncode == 0, client.stderr
    first = ledger.replay(messages[0])
    second = ledger.replay(messages[1], after=first)
    summaries = json.loads(client.stdout)
    assert [summary["step"] for summary in summaries] == [1, 2]
    assert [summary["counts"]["applied"] for summary in summaries] == [first.counts.applied, second.counts.applied]


def main(server: str, messages: str, store: str, checkpoint: str) -> None:
    """Stream through Connect, and print what the listener told."""
    spark = SparkSession.builder.remote(server).getOrCreate()
    summaries: queue.Queue[StepSummary] = queue.Queue()
    listener = StepListener(store, summaries.put)
    spark.streams.addListener(listener)
    query = start(spark, messages, store, checkpoint)
    query.awaitTermination(LIMIT_S)
    exception = query.exception()
    if exception is not None:
        raise exception
    steps = [summaries.get(timeout=LIMIT_S).to_dict() for _ in SparkStore(store).steps()]
    spark.streams.removeListener(listener)  # or Spark's thread that listens keeps this process alive
    sys.stdout.write(json.dumps(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
