"""Batches on whatever Spark is installed: the answers of the pure timeline, the tables, decisions, the audit."""

import datetime as dt
import random
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from as_replayed import assert_as_replayed
from message_files import DDL
from programs.faulty import DDL as FAULTY_DDL
from programs.faulty import SPOILERS, spoiled
from programs.ledger import Transfer, history, ledger, pipeline
from pyspark.sql import SparkSession

from inturn import Arrival, Gapless, Pipeline, Wait
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.journal import Counts
from inturn.spark import advance, audit, batch, messages, outputs, read
from inturn.spark.audit.report import FaultKind
from inturn.spark.driver.input import key_of_partition
from inturn.spark.driver.inspection import SparkInspector

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def rows_of(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(message.values()) for message in messages]


@pytest.mark.parametrize(("steps", "buckets"), [(1, 1), (2, 8)])
def test_batches_over_gaps_and_duplicates_give_the_same_result_as_the_replay(
    spark: SparkSession, tmp_path: Path, steps: int, buckets: int
) -> None:
    messages = history(seed=buckets)
    size = -(-len(messages) // steps)
    for start in range(0, len(messages), size):
        df = spark.createDataFrame(rows_of(messages[start : start + size]), DDL)
        batch(ledger, df, store=tmp_path, buckets=buckets)
    assert_as_replayed(spark, tmp_path, ledger, messages)
    rows = read(spark, tmp_path, "steps").orderBy("step").collect()
    assert [row.step for row in rows] == list(range(1, steps + 1))
    assert sum(row.received for row in rows) == len(messages)


def test_the_earliest_arrival_wins_among_messages_with_the_same_revision(spark: SparkSession, tmp_path: Path) -> None:
    arriving = pipeline(arrival="came")
    rows = [("a", 1, 5, 2), ("a", 1, 6, 1), ("b", 2, 1, 3), ("b", 1, 1, 4)]
    df = spark.createDataFrame(rows, f"{DDL}, came bigint")
    report = batch(arriving, df, store=tmp_path, buckets=2)
    assert report.counts == Counts(received=4, applied=3, rejected={"conflict": 1})
    assert {row.group: row.balance for row in read(spark, tmp_path, "states").collect()} == {"a": 6, "b": 32}
    (rejected,) = read(spark, tmp_path, "rejected").collect()
    assert (rejected.group, rejected.revision, rejected.reason) == ("a", 1, "conflict")


def test_an_empty_batch_reports_zero_counts(spark: SparkSession, tmp_path: Path) -> None:
    nothing = spark.createDataFrame([], DDL)
    assert batch(ledger, nothing, store=tmp_path, buckets=3).counts == Counts()
    none_left = spark.createDataFrame([("a", 1, 1)], DDL).where("amount > rand() + 5")
    assert batch(ledger, none_left, store=tmp_path).counts == Counts()
    one_message = spark.createDataFrame([("a", 1, 1)], DDL)
    assert batch(ledger, one_message, store=tmp_path).counts == Counts(received=1, applied=1)


def test_adaptive_execution_does_not_coalesce_the_buckets(spark: SparkSession, tmp_path: Path) -> None:
    adaptive = spark.newSession()
    adaptive.conf.set("spark.sql.adaptive.enabled", "true")
    adaptive.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "true")
    df = adaptive.createDataFrame([("a", 1, 1), ("b", 1, 1)], DDL)
    assert batch(ledger, df, store=tmp_path, buckets=64).counts == Counts(received=2, applied=2)


def test_key_of_partition_hashes_to_its_partition_number(spark: SparkSession) -> None:
    keys = [key_of_partition(number) for number in range(2000)]
    hashes = spark.createDataFrame([(key,) for key in keys], "k int").selectExpr("hash(k) AS h").collect()
    assert [row.h for row in hashes] == list(range(2000))


class Way(Enum):
    IN = "in"
    OUT = "out"


@dataclass
class Reading:
    device: int
    number: int
    kind: Way
    note: str | None = None


class Last(msgspec.Struct):
    number: int = 0
    note: str = ""


def test_functions_and_types_defined_in_a_script_are_shipped_to_spark_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    word = "seen"

    class Noted(msgspec.Struct):
        device: int
        text: str

    def note(state: Last, reading: Reading) -> tuple[Last, list[Any]]:
        assert isinstance(reading.kind, Way)
        return Last(reading.number, f"{word} {reading.note}"), [Noted(reading.device, reading.kind.name)]

    devices = Pipeline(
        name="devices", group="device", order=Gapless("number"), message=Reading, state=Last, handler=note
    )  # fmt: skip
    rows = [(7, 2, "out", "second"), (7, 1, "in", None), (8, 1, "in", "first"), (7, 1, "in", None)]
    df = spark.createDataFrame(rows, "device int, number bigint, kind string, note string")
    assert batch(devices, df, store=tmp_path, buckets=2).counts == Counts(received=4, applied=3, duplicate=1)
    assert {row.group: (row.number, row.note) for row in read(spark, tmp_path, "states").collect()} == {
        "7": (2, "seen second"),
        "8": (1, "seen first"),
    }
    effects = {row.effect_id for row in read(spark, tmp_path, "outputs").collect()}
    replayed = devices.replay([Reading(d, n, Way(k), t) for d, n, k, t in rows])
    assert effects == {output.effect_id for output in replayed.outputs}


def test_a_replace_decision_reopens_a_parked_group(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", 1, 4), ("a", 2, -7), ("a", 3, 4), ("b", 1, 4)]
    report = batch(ledger, spark.createDataFrame(rows, DDL), store=tmp_path, buckets=2)
    assert report.counts == Counts(received=4, applied=2, held=2)
    parked = read(spark, tmp_path, "parked").orderBy("revision").collect()
    assert [(row.group, row.reason, row.revision) for row in parked] == [("a", "failed", 2), ("a", "failed", 3)]
    assert parked[0].error.endswith("ValueError: amount -7 is below zero\n")
    inspector = SparkInspector(tmp_path)
    inspector.store.decisions.append(inspector.decision(DecisionAction.REPLACE, "a", by="ann", new={"amount": 7}))
    assert advance(ledger, store=tmp_path).counts.applied == 2
    assert read(spark, tmp_path, "parked").count() == 0
    assert_as_replayed(
        spark, tmp_path, ledger, [Transfer("b", 1, 4), *(Transfer("a", n, a) for n, a in [(1, 4), (2, 7), (3, 4)])]
    )


def test_a_gap_is_skipped_after_its_wait_has_expired(spark: SparkSession, tmp_path: Path) -> None:
    skipping = pipeline(on_gap=Wait("10 minutes", then="skip"))
    df = spark.createDataFrame([("a", 1, 1), ("a", 3, 1)], DDL)
    assert batch(skipping, df, store=tmp_path, buckets=2, now=NOON).counts == Counts(received=2, applied=1, held=1)
    nothing = spark.createDataFrame([], DDL)
    later = batch(skipping, nothing, store=tmp_path, now=NOON + dt.timedelta(minutes=10))
    assert later.counts == Counts(released=1, applied=1)
    (state,) = read(spark, tmp_path, "states").collect()
    assert (state.status, state.revision, state.skipped) == ("open", 3, "[[2, 2]]")


def test_an_audit_reports_each_injected_fault_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    log, injected = spoiled(seed=0)
    df = spark.createDataFrame([tuple(message.values()) for message in log], FAULTY_DDL).coalesce(1)
    report = audit(df, group="account", order="revision", id="id", out=str(tmp_path / "report"))
    kinds = [kind for kind in SPOILERS if injected[kind]]
    assert {kind: report.found[FaultKind(kind)].messages for kind in kinds} == {
        kind: len(injected[kind]) for kind in kinds
    }
    assert set(report.found) == set(kinds)
    assert (tmp_path / "report" / "report.json").exists()


def test_an_audit_parses_numbers_and_times_given_as_text(spark: SparkSession) -> None:
    rows = [
        ("a", "1", "2026-01-01 12:00:00"),
        ("a", "3.0", "2026-01-01 12:00:01"),
        ("a", "x", "soon"),
        ("a", "2.5", ""),
    ]
    random.Random(1).shuffle(rows)
    report = audit(spark.createDataFrame(rows, "g string, n string, at string"), group="g", order="n")
    assert report.messages == 4
    assert report.found[FaultKind.NO_ORDER].messages == 2
    assert report.gaps is not None
    assert report.gaps.open_revisions + report.gaps.lost_revisions == 1


def test_a_pipeline_reads_the_outputs_of_another_store_as_messages(spark: SparkSession, tmp_path: Path) -> None:
    first = Pipeline(
        name="first",
        group="account",
        order=Gapless("revision"),
        handler=lambda state, row: (state, [{"to": {"no": row["revision"] % 2}, "amount": row["amount"]}] * 2),
    )
    totals = Pipeline(
        name="then",
        group="payee",
        order=Arrival(),
        id="id",
        handler=lambda state, row: ({"got": state.get("got", 0) + row["amount"]}, []),
    )
    batch(first, spark.createDataFrame([("a", 1, 5), ("a", 2, 7), ("b", 1, 9)], DDL), store=tmp_path / "first")
    log = outputs(spark, tmp_path / "first", group="to.no", revision="amount")
    assert [row.sequence_number for row in log.orderBy("sequence_number").collect()] == [1, 2, 3, 4, 5, 6]
    assert {(row.group, row.revision) for row in log.collect()} == {("1", 5), ("0", 7), ("1", 9)}
    report = batch(totals, messages(totals, log, "payee string, amount bigint"), store=tmp_path / "then")
    assert report.counts == Counts(received=6, applied=6)
    states = {row.group: row.state for row in read(spark, tmp_path / "then", "states").collect()}
    assert states == {"1": '{"got":28}', "0": '{"got":14}'}
