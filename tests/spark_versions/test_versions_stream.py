"""Streams on whatever Spark is installed: the same answers, through restarts and a kill, and what a version lacks."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from as_replayed import assert_as_replayed
from message_files import LIMIT_S, Source
from programs.ledger import history, ledger, pipeline
from pyspark.sql import SparkSession

import inturn
from inturn import Wait
from inturn.core.errors import SetupError
from inturn.spark import stream
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.driver.listener import StepListener, StepSummary
from inturn.spark.tables.manifest import SparkStore
from inturn.spark.versions import WRAPS_SOURCES, has_python_sources, has_read_limits

LEDGER = Path(__file__).parents[1] / "spark" / "programs" / "ledger.py"
MESSAGES = history(seed=3)
EARLY = {"account": "a", "revision": 2, "amount": 1}
NEXT = {"account": "b", "revision": 1, "amount": 1}


def take(source: Source, folder: Path, variant: Any = ledger) -> None:
    """Run the stream over what is there, to its end."""
    query = stream(
        variant,
        source.df(),
        store=folder / "store",
        checkpoint=folder / "checkpoint",
        trigger="available now",
        buckets=3,
    )
    try:
        assert query.awaitTermination(LIMIT_S)
    finally:
        query.stop()


def received(folder: Path) -> list[int]:
    store = SparkStore(folder / "store")
    return [store.manifest(step).counts["received"] for step in store.steps()]


def test_a_stream_processes_each_file_as_a_step_and_resumes_after_a_restart(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    summaries: list[StepSummary] = []
    listener = StepListener(tmp_path / "store", summaries.append)
    spark.streams.addListener(listener)
    try:
        source.put(MESSAGES[:100])
        source.put(MESSAGES[100:150])
        take(source, tmp_path)
        source.put(MESSAGES[150:])
        take(source, tmp_path)
        end = time.monotonic() + LIMIT_S
        while len(summaries) < 3 and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert [summary.counts.received for summary in summaries] == received(tmp_path) == [100, 50, len(MESSAGES) - 150]
    assert_as_replayed(spark, tmp_path / "store", ledger, MESSAGES)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_stream_driver_killed_between_two_commits_resumes_without_loss(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.put(MESSAGES[:100])
    source.put(MESSAGES[100:])
    command = ["run", f"{LEDGER}:ledger", "--from", source.folder, "--store", tmp_path / "store", "--buckets", 3]
    command += ["--stream", "--trigger", "available now", "--files", 1, "--checkpoint", tmp_path / "checkpoint"]
    died = subprocess.run(
        [sys.executable, "-m", "inturn.cli", *map(str, command)],
        env={**os.environ, "INTURN_KILL_AT": "after commit@1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert received(tmp_path) == [100]
    take(source, tmp_path)
    assert received(tmp_path) == [100, len(MESSAGES) - 100]
    assert_as_replayed(spark, tmp_path / "store", ledger, MESSAGES)


# -- waits -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has_python_sources(), reason="a wait that ends without messages needs Spark 4.0")
def test_a_gap_wait_ends_in_a_running_stream_without_new_messages(
    source: Source, tmp_path: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    variant = pipeline(on_gap=Wait("1 second", then="skip"))
    source.put([EARLY])
    query = stream(variant, source.df(), store=tmp_path / "store", checkpoint=tmp_path / "checkpoint", buckets=2)
    try:
        until((tmp_path / "store" / "steps" / "000000000002.json").exists)
        assert query.exception() is None
    finally:
        query.stop()
    assert received(tmp_path) == [1, 0]
    assert SparkInspector(tmp_path / "store").group("a").skipped == [(1, 1)]


def test_an_expired_gap_wait_ends_at_the_next_available_now_run(source: Source, tmp_path: Path) -> None:
    variant = pipeline(on_gap=Wait("3 seconds", then="skip"))
    source.put([EARLY])
    source.put([NEXT])
    take(source, tmp_path, variant)
    # Where the first micro-batch alone takes 3 seconds, the wait is over in this run already: a third one, empty.
    assert received(tmp_path)[:2] == [1, 1], "each file is a micro-batch, whatever source is joined to them"
    time.sleep(3)
    if not has_python_sources():
        source.put([{**NEXT, "revision": 2}])
    take(source, tmp_path, variant)
    assert SparkInspector(tmp_path / "store").group("a").skipped == [(1, 1)]
    steps = len(received(tmp_path))
    take(source, tmp_path, variant)
    assert len(received(tmp_path)) == steps, "nothing came and nothing was due"


@pytest.mark.skipif(has_python_sources(), reason="only Spark 3.5 has no sources in Python")
def test_a_stream_without_ticks_warns_that_waits_end_only_with_new_messages(
    source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.put([NEXT])
    with caplog.at_level(logging.WARNING, logger="inturn"):
        take(source, tmp_path, pipeline(on_gap=Wait("1 second", then="skip")))
    assert any("waits end only when messages arrive" in message for message in caplog.messages)
    note = tmp_path / "checkpoint" / "inturn.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"ticks": True}))  # as a newer Spark would have made it
    with pytest.raises(SetupError, match=rf"needs Spark 4.0 or newer, but PySpark {pyspark.__version__} is installed"):
        take(source, tmp_path, pipeline(on_gap=Wait("1 second", then="skip")))


@pytest.mark.skipif(not has_python_sources() or has_read_limits(), reason="only Spark 4.0 and 4.1 need the setting")
def test_available_now_with_waits_is_refused_where_spark_may_end_it_too_early(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    spark.conf.set(WRAPS_SOURCES, "false")
    try:
        source.put([NEXT])
        with pytest.raises(SetupError, match=r"needs Spark 4.2 or newer.*first call spark.conf.set\("):
            take(source, tmp_path, pipeline(on_gap=Wait("1 second", then="skip")))
        take(source, tmp_path / "untimed")
    finally:
        spark.conf.set(WRAPS_SOURCES, "true")


# -- the queue -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(has_python_sources(), reason="only Spark 3.5 has no sources in Python")
def test_registering_the_queue_source_is_refused_before_spark_4(spark: SparkSession) -> None:
    with pytest.raises(SetupError, match=r'^format\("inturn"\) needs Spark 4.0 or newer, but PySpark 3.5'):
        inturn.spark.register(spark)


@pytest.mark.skipif(not has_python_sources(), reason='format("inturn") needs Spark 4.0')
def test_a_queue_is_read_as_a_batch_and_as_a_stream_with_the_same_results(spark: SparkSession, tmp_path: Path) -> None:
    address = f"{tmp_path}/shop.db#payments"
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("payments")
        inturn.spark.register(spark)
        for begin, end in ((0, 100), (100, len(MESSAGES))):
            for message in MESSAGES[begin:end]:
                queue.send(message, group=message["account"], revision=message["revision"])
            log = spark.readStream.format("inturn").option("reader", "ledger").load(address)
            query = stream(
                ledger,
                inturn.spark.messages(ledger, log),
                store=tmp_path / "store",
                checkpoint=tmp_path / "checkpoint",
                trigger="available now",
                buckets=2,
            )
            assert query.awaitTermination(LIMIT_S)
            assert sum(received(tmp_path)) == end, "all that was there is taken"
        assert_as_replayed(spark, tmp_path / "store", ledger, MESSAGES)
        df = inturn.spark.messages(ledger, spark.read.format("inturn").load(address))
        assert inturn.spark.batch(ledger, df, store=tmp_path / "store").counts.applied == 0
        first = queue.peek(100)[-1].sequence_number
        assert queue.reader("ledger").position() >= first, "what is committed is let go of"


@pytest.mark.skipif(not has_python_sources(), reason='format("inturn") needs Spark 4.0')
def test_a_queue_stream_is_read_to_its_end_after_a_failed_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[int] = []
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("payments")
        inturn.spark.register(spark)

        def run(fails: bool) -> None:
            def collect(df: Any, _: int) -> None:
                numbers = [row.sequence_number for row in df.collect()]
                if fails:
                    raise ValueError
                seen.extend(numbers)

            log = spark.readStream.format("inturn").option("reader", "seen").load(f"{tmp_path}/shop.db#payments")
            writer = log.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
            assert writer.trigger(availableNow=True).start().awaitTermination(LIMIT_S)

        queue.send("first")
        run(fails=False)
        queue.send("second")
        with pytest.raises(Exception, match="ValueError"):
            run(fails=True)
        queue.send("third")
        run(fails=False)
        assert seen == [message.sequence_number for message in queue.peek(10)]


def test_streamed_store_outputs_are_read_exactly_once_across_restarts(
    source: Source, spark: SparkSession, tmp_path: Path
) -> None:
    """Each once, through restarts, and what a version lacks is told."""
    seen: list[int] = []

    def follow() -> None:
        def collect(df: Any, _: int) -> None:
            seen.extend(row.sequence_number for row in df.collect())

        log = inturn.spark.outputs(spark, tmp_path / "store", streaming=True)
        writer = log.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "check"))
        assert writer.trigger(availableNow=True).start().awaitTermination(LIMIT_S)

    for part in (MESSAGES[:100], MESSAGES[100:]):
        source.put(part)
        take(source, tmp_path)
        if not has_python_sources():
            with pytest.raises(SetupError, match=r"a stream of a store's outputs needs Spark 4.0 or newer"):
                follow()
            return
        follow()
        output_count = inturn.spark.read(spark, tmp_path / "store", "outputs").count()
        assert sorted(seen) == list(range(1, output_count + 1))
    if not has_read_limits():
        with pytest.raises(Exception, match=r"max_rows needs Spark 4.2"):
            inturn.spark.outputs(spark, tmp_path / "store", streaming=True, max_rows=1).writeStream.format(
                "noop"
            ).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(LIMIT_S)


@pytest.mark.skipif(not has_python_sources() or has_read_limits(), reason="Spark 4.2 and newer have limits")
def test_source_options_that_the_installed_spark_does_not_support_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        db.queue("payments").send({"account": "a", "revision": 1, "amount": 1})
    inturn.spark.register(spark)
    log = spark.readStream.format("inturn").options(reader="r").load(f"{tmp_path}/shop.db#payments")
    options = {"store": tmp_path / "store", "checkpoint": tmp_path / "checkpoint", "trigger": "available now"}
    spark.conf.set(WRAPS_SOURCES, "false")
    try:
        with pytest.raises(SetupError, match=r"needs Spark 4.2 or newer.*first call spark.conf.set\("):
            stream(ledger, inturn.spark.messages(ledger, log), **options)
    finally:
        spark.conf.set(WRAPS_SOURCES, "true")
    limited = spark.readStream.format("inturn").options(reader="r", maxRowsPerBatch=1)
    assert "maxRowsPerBatch needs Spark 4.2" in failure_of(limited.load(f"{tmp_path}/shop.db#payments"), tmp_path / "c")


def failure_of(log: Any, checkpoint: Path) -> str:
    with pytest.raises(Exception) as failed:  # noqa: PT011 - which one differs by version
        log.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start().awaitTermination(LIMIT_S)
    return str(failed.value)
