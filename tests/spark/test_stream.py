"""The pipeline as a stream: the answers of a batch, whatever the cut; nothing twice, whatever is killed or lost."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.answers import assert_tables
from programs.connecting import environment, run, server
from programs.ledger import DDL, apply, history, ledger, pipeline
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from inturn import Gapless, Wait
from inturn.core.errors import InputError, StoreConflict, StoreError, StoreMismatch
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.journal import Counts
from inturn.spark import advance, batch, read, stream
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.driver.step import Stepper
from inturn.spark.tables.manifest import SparkStore
from kernel_harness import total
from waiting import until

LEDGER = Path(__file__).with_name("programs") / "ledger.py"
MESSAGES = history(seed=3)
LIMIT_S = 60


class Source:
    """A folder into which messages come as files, one a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self.folder, self._files = spark, folder, 0
        folder.mkdir()

    def put(self, messages: Sequence[dict[str, Any]]) -> None:
        self._files += 1
        path = self.folder / f".{self._files:04d}.json"
        path.write_text("".join(json.dumps(message) + "\n" for message in messages))
        os.utime(path, (self._files, self._files))  # Spark takes the oldest first
        path.rename(self.folder / path.name[1:])

    def df(self, ddl: str = DDL) -> DataFrame:
        return self._spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).json(str(self.folder))


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "messages")


def cut(messages: Sequence[Any], sizes: Sequence[int]) -> Iterator[list[Any]]:
    """The messages as micro-batches of these sizes, and the rest."""
    start = 0
    for size in sizes:
        yield list(messages[start : start + size])
        start += size
    yield list(messages[start:])


def take(source: Source, folder: Path, variant: Any = ledger, **more: Any) -> StreamingQuery:
    """Run the stream over what is there, to its end."""
    options = {"store": folder / "store", "checkpoint": folder / "checkpoint", "trigger": "available now", "buckets": 3}
    query = stream(variant, source.df(), **(options | more))
    try:
        assert query.awaitTermination(LIMIT_S)
    finally:
        query.stop()
    return query


@contextmanager
def running(source: Source, folder: Path, variant: Any) -> Iterator[None]:
    query = stream(variant, source.df(), store=folder / "store", checkpoint=folder / "checkpoint", buckets=2)
    try:
        yield
        assert query.exception() is None
    finally:
        query.stop()


def counts(store: Path) -> list[Counts]:
    opened = SparkStore(store)
    return [Counts(**opened.manifest(step).counts) for step in opened.steps()]


# -- one answer ------------------------------------------------------------------------------------------------


@settings(max_examples=3)
@given(data=st.data())
@pytest.mark.slow
def test_a_stream_with_any_batch_split_and_restarts_gives_the_result_of_one_batch(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    source = Source(spark, folder / "messages")
    sizes = data.draw(st.lists(st.integers(0, 150), min_size=2, max_size=4))
    restarts = data.draw(st.sets(st.integers(0, len(sizes)), max_size=2)) | {len(sizes)}
    for number, messages in enumerate(cut(MESSAGES, sizes)):
        source.put(messages)
        if number in restarts:
            take(source, folder)
    once = ledger.replay(MESSAGES)
    assert_tables(spark, folder / "store", once)
    assert total(counts(folder / "store")) == total([once.counts])


def test_messages_read_by_a_batch_and_a_stream_are_applied_once(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    half = MESSAGES[: len(MESSAGES) // 2]
    rows = [tuple(message.values()) for message in half]
    batch(ledger, spark.createDataFrame(rows, DDL), store=tmp_path / "store", buckets=3)
    source.put(MESSAGES)
    take(source, tmp_path, buckets=None)
    assert_tables(spark, tmp_path / "store", ledger.replay(MESSAGES))


def test_a_stream_from_the_rate_source_is_applied(spark: SparkSession, tmp_path: Path) -> None:
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 30).load()
    places = ["CAST(value % 3 AS string) AS account", "value DIV 3 + 1 AS revision", "value AS amount"]
    query = stream(ledger, ticks.selectExpr(*places), store=tmp_path / "store", checkpoint=tmp_path / "checkpoint")
    try:
        until(lambda: bool((last := SparkStore(tmp_path / "store").latest()) and last.step >= 3))
        assert query.exception() is None
    finally:
        query.stop()
    done = total(counts(tmp_path / "store"))
    assert done["applied"] == done["received"] > 0
    states = read(spark, tmp_path / "store", "states").collect()
    assert sum(row.revision for row in states) == done["applied"]


@pytest.mark.slow
def test_a_stream_over_spark_connect_gives_the_result_of_the_replay(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect], from the extra [connect]")
    for messages in cut(MESSAGES, [150]):
        source.put(messages)
    command = ["run", f"{LEDGER}:ledger", "--from", source.folder, "--store", tmp_path / "store", "--buckets", 3]
    command += ["--stream", "--trigger", "available now", "--files", 1, "--master", server(), "--json"]
    done = run("-m", "inturn.cli", *command)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["counts"]["received"] for line in done.stdout.splitlines()] == [150, len(MESSAGES) - 150]
    assert (tmp_path / "store-checkpoint").exists()
    assert_tables(spark, tmp_path / "store", ledger.replay(MESSAGES))


def test_spark_job_descriptions_name_the_step(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    source.put(MESSAGES[:3])
    take(source, tmp_path)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None
    store = spark._jsc.sc().statusStore()  # what the pages are made of
    jobs = store.jobsList(None)
    descriptions = {jobs.apply(index).description() for index in range(jobs.size())}
    assert "inturn ledger: step 1" in {description.get() for description in descriptions if description.isDefined()}


# -- crashes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before files@2", "before commit@2", "after commit@2"])
def test_a_stream_with_a_killed_driver_resumes_without_loss(
    spark: SparkSession, source: Source, tmp_path: Path, point: str
) -> None:
    for messages in cut(MESSAGES, [100, 100]):
        source.put(messages)
    store, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    command = ["run", f"{LEDGER}:ledger", "--from", source.folder, "--store", store, "--buckets", 3, "--stream"]
    command += ["--trigger", "available now", "--files", 1, "--checkpoint", checkpoint, "--master", "local[2]"]
    died = run("-m", "inturn.cli", *command, INTURN_KILL_AT=point)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert SparkStore(store).steps() == ([1, 2] if point.startswith("after") else [1])
    take(source, tmp_path)
    assert_tables(spark, store, ledger.replay(MESSAGES))
    assert [count.received for count in counts(store)] == [100, 100, len(MESSAGES) - 200]


@pytest.mark.slow
def test_a_suspended_driver_that_resumes_late_cannot_commit(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.put(MESSAGES)
    store = tmp_path / "store"
    command = ["run", f"{LEDGER}:ledger", "--from", source.folder, "--store", store, "--buckets", 3, "--stream"]
    command += ["--trigger", "available now", "--checkpoint", tmp_path / "late", "--master", "local[2]"]
    late = subprocess.Popen(
        [sys.executable, "-m", "inturn.cli", *map(str, command)],
        env=environment(INTURN_STOP_AT="before commit"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: psutil.Process(late.pid).status() == psutil.STATUS_STOPPED)
        take(source, tmp_path)
        late.send_signal(signal.SIGCONT)
        printed, _ = late.communicate(timeout=LIMIT_S)
    finally:
        late.kill()
    assert late.returncode == 1
    assert "another writer committed step 1 first" in " ".join(printed.split())
    assert_tables(spark, store, ledger.replay(MESSAGES))


@pytest.mark.slow
def test_a_stream_with_a_killed_spark_worker_resumes_without_loss(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    for messages in cut(MESSAGES, [150]):
        source.put(messages)
    marker = str(tmp_path / "died")

    def fragile(account: Any, transfer: Any) -> Any:
        if transfer.account == "acct-7" and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return apply(account, transfer)

    with pytest.raises(StreamingQueryException):
        take(source, tmp_path, pipeline(fragile))
    assert Path(marker).exists()
    take(source, tmp_path, pipeline(fragile))
    assert_tables(spark, tmp_path / "store", ledger.replay(MESSAGES))


# -- the store and the checkpoint part -------------------------------------------------------------------------


def test_a_stream_with_a_lost_checkpoint_applies_nothing_twice(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    for messages in cut(MESSAGES, [100]):
        source.put(messages)
    take(source, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    take(source, tmp_path)
    assert len(SparkStore(tmp_path / "store").steps()) == 4
    assert_tables(spark, tmp_path / "store", ledger.replay(MESSAGES))


def test_a_checkpoint_without_its_store_is_refused(source: Source, tmp_path: Path) -> None:
    for messages in cut(MESSAGES, [100]):
        source.put(messages)
    take(source, tmp_path)
    shutil.move(tmp_path / "store", tmp_path / "away")
    with pytest.raises(StoreMismatch, match=r"checkpoint has finished micro-batch 1.*store.*none of its micro-batches"):
        take(source, tmp_path)
    shutil.rmtree(tmp_path / "store")
    shutil.move(tmp_path / "away", tmp_path / "store")
    (tmp_path / "store" / "steps" / "000000000002.json").unlink()  # an older backup
    (tmp_path / "store" / "head.json").unlink()
    with pytest.raises(StoreMismatch, match="only those up to 0"):
        take(source, tmp_path)


def test_a_checkpoint_that_is_older_than_its_store_is_refused(source: Source, tmp_path: Path) -> None:
    """It would plan other messages under the numbers of those that the store has, and these would be passed over."""
    first, second = cut(MESSAGES, [100])
    source.put(first)
    take(source, tmp_path)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "old")
    source.put(second[:50])
    take(source, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "old", tmp_path / "checkpoint")
    source.put(second[50:])
    with pytest.raises(Exception, match=r"micro-batch 1, but the store .* restored from an older copy"):
        take(source, tmp_path)
    take(source, tmp_path / "new", store=tmp_path / "store")  # with a new checkpoint, as it says
    assert sum(count.applied for count in counts(tmp_path / "store")) == ledger.replay(MESSAGES).counts.applied


def test_a_repeated_micro_batch_is_skipped(source: Source, tmp_path: Path) -> None:
    source.put(MESSAGES[:50])
    take(source, tmp_path)
    before = counts(tmp_path / "store")
    (tmp_path / "checkpoint" / "commits" / "0").unlink()  # the driver died before Spark had written it
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    take(source, tmp_path)
    assert counts(tmp_path / "store") == before


def test_a_checkpoint_of_another_query_is_refused(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    source.put(MESSAGES[:3])
    take(source, tmp_path)
    with pytest.raises(InputError, match="of pipeline 'ledger', not 'other'"):
        take(source, tmp_path, replace(ledger, name="other"), store=tmp_path / "other")
    writer = source.df().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "theirs"))
    assert writer.trigger(availableNow=True).start().awaitTermination(LIMIT_S)
    with pytest.raises(InputError, match="another library"):
        take(source, tmp_path, checkpoint=tmp_path / "theirs")


def test_the_second_of_two_streams_on_one_store_gets_a_conflict(spark: SparkSession, tmp_path: Path) -> None:
    one, two = (Stepper(ledger, tmp_path / "store", buckets=2, without_spark=True) for _ in range(2))
    one.step()
    steady = two.store.latest
    two.store.latest = lambda after=None: after  # type: ignore[method-assign]  # it has looked already
    with pytest.raises(StoreConflict, match="another writer committed step 1 first"):
        two.step()
    two.store.latest = steady  # type: ignore[method-assign]
    assert two.step().step == 2


# -- time and people -------------------------------------------------------------------------------------------


def test_a_gap_wait_ends_on_time_in_a_stream_without_messages(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    variant = replace(ledger, on_gap=Wait("3 seconds", then="skip"))
    source.put([{"account": "a", "revision": 2, "amount": 1}])
    with running(source, tmp_path, variant):
        until((tmp_path / "store" / "steps" / "000000000002.json").exists)
    first, second = (SparkStore(tmp_path / "store").manifest(step) for step in (1, 2))
    assert (second.counts["received"], second.counts["applied"]) == (0, 1)
    assert second.now_us - first.now_us >= 3_000_000
    assert SparkInspector(tmp_path / "store").group("a").skipped == [(1, 1)]


def test_an_expired_gap_wait_ends_at_the_next_run(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    variant = replace(ledger, on_gap=Wait("1 second", then="park"))
    source.put([{"account": "a", "revision": 2, "amount": 1}])
    take(source, tmp_path, variant)
    time.sleep(1)
    take(source, tmp_path, variant)
    assert SparkInspector(tmp_path / "store").group("a").status == "gap"
    steps = len(SparkStore(tmp_path / "store").steps())
    take(source, tmp_path, variant)
    assert len(SparkStore(tmp_path / "store").steps()) == steps, "nothing came and nothing was due"


def test_a_running_stream_applies_a_decision_at_once(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    source.put([{"account": "a", "revision": 1, "amount": -1}, {"account": "a", "revision": 2, "amount": 5}])
    store = tmp_path / "store"
    with running(source, tmp_path, replace(ledger, on_gap=Wait("1 day", then="skip"))):
        until((store / "steps" / "000000000001.json").exists)
        inspector = SparkInspector(store)
        inspector.store.decisions.append(inspector.decision(DecisionAction.REPLACE, "a", by="ann", new={"amount": 1}))
        until((store / "steps" / "000000000002.json").exists)
        until(lambda: not inspector.store.files.names("decisions/new"))
    group = SparkInspector(store).group("a")
    assert (group.status, group.reached, group.state["balance"]) == ("open", 2, 36)


def test_a_stream_without_waits_applies_a_decision_with_the_next_messages(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.put([{"account": "a", "revision": 1, "amount": -1}])
    take(source, tmp_path)
    inspector = SparkInspector(tmp_path / "store")
    inspector.store.decisions.append(inspector.decision(DecisionAction.REPLACE, "a", by="ann", new={"amount": 1}))
    take(source, tmp_path)
    assert len(counts(tmp_path / "store")) == 1
    source.put([{"account": "b", "revision": 1, "amount": 1}])
    take(source, tmp_path)
    assert counts(tmp_path / "store")[1].applied == 2


def test_a_gap_policy_with_a_new_wait_continues_with_the_old_checkpoint(
    spark: SparkSession, source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.put([{"account": "b", "revision": 1, "amount": 1}])
    take(source, tmp_path)
    assert not caplog.messages
    timed = replace(ledger, on_gap=Wait("1 second", then="skip"))
    source.put([{"account": "a", "revision": 2, "amount": 1}])
    take(source, tmp_path, timed)
    assert any("waits end only when messages arrive" in message for message in caplog.messages)
    time.sleep(1)
    source.put([{"account": "b", "revision": 2, "amount": 1}])
    take(source, tmp_path, timed)
    assert SparkInspector(tmp_path / "store").group("a").skipped == [(1, 1)]


def test_a_stream_leaves_the_session_settings_unchanged(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    before = spark.conf.getAll
    source.put(MESSAGES[:3])
    take(source, tmp_path)
    assert spark.conf.getAll == before


# -- bad input -------------------------------------------------------------------------------------------------


def test_invalid_stream_arguments_are_refused_before_the_start(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.put(MESSAGES[:3])
    paths = {"store": tmp_path / "store", "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(InputError, match="the input is not a stream"):
        stream(ledger, spark.createDataFrame([("a", 1, 1)], DDL), **paths)
    with pytest.raises(InputError, match="the input is a stream; a batch"):
        batch(ledger, source.df(), store=paths["store"])
    with pytest.raises(InputError, match="has no column 'revision'"):
        stream(ledger, source.df("account string, amount bigint"), **paths)
    with pytest.raises(InputError, match="outputs_format is 'csv'"):
        stream(ledger, source.df(), **paths, outputs_format="csv")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot"):
        stream(ledger, source.df(), store=tmp_path / "file" / "store", checkpoint=paths["checkpoint"])
    assert not (tmp_path / "store").exists()


def test_a_column_that_changes_its_type_between_runs_is_refused(source: Source, tmp_path: Path) -> None:
    source.put(MESSAGES[:3])
    take(source, tmp_path)
    with pytest.raises(InputError, match="the column 'revision' is string"):
        stream(
            ledger,
            source.df("account string, revision string, amount bigint"),
            store=tmp_path / "store",
            checkpoint=tmp_path / "checkpoint",
        )


def test_a_changed_handler_is_logged_as_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Stepper(ledger, tmp_path / "store", buckets=1, without_spark=True).step()
    with caplog.at_level(logging.WARNING, logger="inturn"):
        advance(ledger, store=tmp_path / "store")
        assert caplog.text == ""
        advance(replace(ledger, handler=lambda state, message: (state, [])), store=tmp_path / "store")
    assert "ledger: the handler's code has changed since step 2" in caplog.text


# -- the tables ------------------------------------------------------------------------------------------------


def test_an_earlier_step_can_be_read_after_levels_were_merged(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    variant = replace(ledger, order=Gapless("revision"))
    for number in range(1, 12):
        source.put(
            [{"account": "a", "revision": number, "amount": 1}, {"account": f"b{number}", "revision": 1, "amount": 1}]
        )
    take(source, tmp_path, variant)
    for step in (1, 8, 9, 11):
        states = {row.group: row.revision for row in read(spark, tmp_path / "store", "states", step=step).collect()}
        assert states == {"a": step} | {f"b{number}": 1 for number in range(1, step + 1)}


def test_a_stream_with_outputs_format_delta_publishes_its_outputs(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    for messages in cut(MESSAGES, [100, 100]):
        source.put(messages)
    take(source, tmp_path, outputs_format="delta")
    effects = DeltaTable(tmp_path / "store" / "data" / "outputs").to_pyarrow_table().column("effect_id").to_pylist()
    assert sorted(effects) == sorted(output.effect_id for output in ledger.replay(MESSAGES).outputs)


def test_group_hash_equals_xxhash64_of_spark(spark: SparkSession) -> None:
    from inturn.spark.columns.hashing import group_hash

    groups = ["", "a", "acct-1", "é" * 40, "\U0001f600", "x" * 1000]
    rows = (
        spark.createDataFrame([(group,) for group in groups], "g string").selectExpr("g", "xxhash64(g) AS h").collect()
    )
    assert {row.g: row.h for row in rows} == {group: group_hash(group) for group in groups}
