"""A batch on a real Spark: one answer however it is cut, errors in words, and the caller's session left alone."""

import datetime as dt
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from programs.answers import assert_tables
from programs.ledger import DDL, Transfer, apply, cut, history, ledger, pipeline
from pyspark.sql import DataFrame, SparkSession

from inturn import Gapless, Pipeline, Timestamp, Wait
from inturn.core.errors import (
    GapError,
    HandlerError,
    InputError,
    InturnError,
    InvalidMessage,
    PipelineError,
    StateError,
    StoreConflict,
    StoreError,
    StoreMismatch,
)
from inturn.core.pipeline.journal import Counts
from inturn.spark import batch, read
from kernel_harness import total
from threads import Running
from waiting import until

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def frame(spark: SparkSession, rows: list[Any], ddl: str = DDL) -> DataFrame:
    return spark.createDataFrame(rows, ddl)


# -- one answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "buckets"), [(1, 1), (2, 3), (5, 4)])
def test_batches_give_the_result_of_the_replay_for_any_split_of_the_history(
    spark: SparkSession, tmp_path: Path, steps: int, buckets: int
) -> None:
    small = spark.newSession()
    small.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    messages = history(seed=1)
    random.Random(steps).shuffle(messages)
    once = ledger.replay(messages)
    assert once.errors.keys() == {"acct-3", "acct-4"}
    assert len(once.held) > 10
    reports = [batch(ledger, frame(small, part), store=tmp_path, buckets=buckets) for part in cut(messages, steps)]
    assert_tables(spark, tmp_path, once)
    assert [report.step for report in reports] == list(range(1, steps + 1))
    assert total(report.counts for report in reports) == total([once.counts])
    if steps == 1:
        assert reports[0].counts == once.counts


def test_held_messages_are_released_once_and_a_redelivery_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    late = [("a", 1, 5)]
    early = [("a", 2, 1), ("a", 3, 1), ("b", 1, 1)]
    first = batch(ledger, frame(spark, early), store=tmp_path, buckets=2)
    assert first.counts == Counts(received=3, applied=1, held=2)
    second = batch(ledger, frame(spark, late), store=tmp_path)
    assert second.counts == Counts(received=1, released=2, applied=3)
    repeated = batch(ledger, frame(spark, late + early), store=tmp_path)
    assert repeated.counts == Counts(received=4, duplicate=4)
    assert_tables(spark, tmp_path, ledger.replay([Transfer(*row) for row in late + early]))
    assert str(repeated) == (
        "ledger, step 3: received 4 + released 0 = applied 0 + duplicate 4 + stale 0 + held 0 + rejected 0"
    )


def test_a_handler_error_parks_only_its_group(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", 1, 4), ("a", 2, -7), ("a", 3, 4), ("b", 1, 4), ("b", 2, 4)]
    report = batch(ledger, frame(spark, rows), store=tmp_path, buckets=1)
    assert report.counts == Counts(received=5, applied=3, held=2)
    parked = read(spark, tmp_path, "parked").orderBy("revision").collect()
    assert [(row.group, row.status, row.reason, row.revision) for row in parked] == [
        ("a", "parked", "failed", 2),
        ("a", "parked", "failed", 3),
    ]
    assert parked[0].error.endswith("ValueError: amount -7 is below zero\n")
    assert "raise ValueError(msg)" in parked[0].error, "the traceback shows the user's line"
    states = {row.group: (row.status, row.balance, row.seen) for row in read(spark, tmp_path, "states").collect()}
    assert states == {"a": ("parked", 4, "[1]"), "b": ("open", 4 * 31 + 4, "[1,2]")}
    second = batch(ledger, frame(spark, [("a", 4, 1), ("a", 2, -7), ("b", 3, 1)]), store=tmp_path)
    assert second.counts == Counts(received=3, applied=1, duplicate=1, held=1)


def test_messages_without_a_valid_group_or_revision_are_rejected_and_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(None, 1, 5), (None, 1, 5), ("a", None, 5), ("a", 0, 5), ("a", 1, None), ("a", 1, 5)]
    report = batch(ledger, frame(spark, rows), store=tmp_path, buckets=2)
    assert report.counts == Counts(received=6, applied=1, rejected={"invalid": 5})
    rejected = sorted((row.detail, row.message) for row in read(spark, tmp_path, "rejected").collect())
    assert rejected == [
        ("account is null", '{"account":null,"amount":5,"revision":1}'),
        ("account is null", '{"account":null,"amount":5,"revision":1}'),
        ("amount is null, expected int", '{"account":"a","amount":null,"revision":1}'),
        ("revision is 0, below the start 1", '{"account":"a","amount":5,"revision":0}'),
        ("revision is null", '{"account":"a","amount":5,"revision":null}'),
    ]


def test_a_conflict_is_decided_by_the_arrival_column_in_every_run(spark: SparkSession, tmp_path: Path) -> None:
    arriving = pipeline(arrival="came")
    rows = [(f"acct-{number % 10}", 1 + number // 20, number, (number * 37) % 101) for number in range(60)]
    once = arriving.replay([dict(zip(("account", "revision", "amount", "came"), row, strict=True)) for row in rows])
    assert once.counts.rejected == {"conflict": 30}
    for run in range(3):
        random.Random(run).shuffle(rows)
        messages = frame(spark, rows, DDL + ", came bigint").repartition(run + 1)
        report = batch(arriving, messages, store=tmp_path / str(run), buckets=run + 1)
        assert report.counts == once.counts
        assert_tables(spark, tmp_path / str(run), once)


def test_a_log_processed_again_stores_its_conflicts_once(spark: SparkSession, tmp_path: Path) -> None:
    arriving = pipeline(arrival="came")
    rows = [(f"acct-{number % 10}", 1 + number // 20, number, (number * 37) % 101) for number in range(60)]
    messages = frame(spark, rows, DDL + ", came bigint")
    first = batch(arriving, messages, store=tmp_path, buckets=2)
    repeated = batch(arriving, messages, store=tmp_path, buckets=2)
    assert first.counts == Counts(received=60, applied=30, rejected={"conflict": 30})
    assert repeated.counts == Counts(received=60, duplicate=60)
    assert read(spark, tmp_path, "rejected").count() == 30


def test_a_gap_wait_ends_in_a_batch_without_messages(spark: SparkSession, tmp_path: Path) -> None:
    skipping = pipeline(on_gap=Wait("10 minutes", then="skip"))
    first = batch(skipping, frame(spark, [("a", 1, 1), ("a", 3, 1)]), store=tmp_path, buckets=2, now=NOON)
    assert first.counts == Counts(received=2, applied=1, held=1)
    nothing = frame(spark, [])
    soon = batch(skipping, nothing, store=tmp_path, now=NOON + dt.timedelta(minutes=9))
    assert soon.counts == Counts()
    later = batch(skipping, nothing, store=tmp_path, now=NOON + dt.timedelta(minutes=10))
    assert later.counts == Counts(released=1, applied=1)
    (state,) = read(spark, tmp_path, "states").collect()
    assert (state.status, state.revision, state.skipped, state.step) == ("open", 3, "[[2, 2]]", 3)


@dataclass
class Reading:
    device: int
    at: dt.datetime
    id: str
    value: Decimal
    tags: list[str]
    raw: bytes
    day: dt.date | None = None


def sum_up(state: dict[str, Any], reading: Reading) -> tuple[dict[str, Any], list[Any]]:
    assert isinstance(reading.value, Decimal)
    return {"sum": float(Decimal(state.get("sum", 0)) * 2 + reading.value)}, [reading.id]


def test_a_message_is_a_duplicate_in_other_column_types_and_time_zones(spark: SparkSession, tmp_path: Path) -> None:
    readings = Pipeline(
        name="readings",
        group="device",
        order=Timestamp("at", "1 hour"),
        id="id",
        message=Reading,
        handler=sum_up,
    )
    messages = [
        Reading(
            device,
            NOON + dt.timedelta(minutes=7 * number),
            f"{device}-{number}",
            Decimal(number) / 4,
            ["x", "ü"],
            b"\x00",
        )
        for device in (7, -3)
        for number in range(6)
    ]
    rows = [(m.device, m.at, m.id, m.value, m.tags, m.raw) for m in messages]
    typed = "device int, at timestamp, id string, value decimal(10,4), tags array<string>, raw binary"
    first = batch(readings, frame(spark, rows, typed), store=tmp_path, buckets=2, final=True)
    once = readings.replay(messages, final=True)
    assert first.counts == once.counts == Counts(received=12, applied=12)
    outputs = {(row.group, row.effect_id, json.loads(row.output)) for row in read(spark, tmp_path, "outputs").collect()}
    assert outputs == {(output.group, output.effect_id, output.output) for output in once.outputs}
    states = {row.group: json.loads(row.state) for row in read(spark, tmp_path, "states").collect()}
    assert states == once.states == {"7": {"sum": 14.25}, "-3": {"sum": 14.25}}

    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "America/New_York")
    texts = [(str(m.device), m.at, m.id, f"{m.value:.6f}", m.tags, m.raw) for m in reversed(messages)]
    as_text = "device string, at timestamp, id string, value string, tags array<string>, raw binary"
    repeated = batch(readings, frame(elsewhere, texts, as_text), store=tmp_path)
    assert repeated.counts == Counts(received=12, duplicate=12)


def test_the_handler_gets_the_same_dict_as_in_the_replay(spark: SparkSession, tmp_path: Path) -> None:
    plain = Pipeline(name="plain", group="g", order=Gapless("r"), handler=lambda state, message: (state, [message]))
    message = {"g": "a", "r": 1, "tags": {"k": 1}, "list": [{"x": 1}], "none": None}
    ddl = "g string, r int, tags map<string, int>, list array<struct<x: int>>, none string"
    batch(plain, frame(spark, [tuple(message.values())], ddl), store=tmp_path, buckets=1)
    (output,) = read(spark, tmp_path, "outputs").collect()
    assert json.loads(output.output) == plain.replay([message]).outputs[0].output == message


def test_a_column_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    odd = Pipeline(name="odd", group="the group", order=Gapless("`rev.no`"), handler=lambda s, m: (s, []))
    messages = frame(spark, [("a", 1, 1)], "`the group` string, `rev.no` bigint, `ü*` int")
    assert batch(odd, messages, store=tmp_path, buckets=1).counts == Counts(received=1, applied=1)


# -- what does not fit is refused in words -------------------------------------------------------------------


@dataclass
class Account:
    total: int
    owner: str = "nobody"


ROWS = [("a", 1, 5)]
BAD_INPUT: dict[str, tuple[dict[str, Any], list[Any], str, dict[str, Any], type[InturnError], str]] = {
    "a missing column": (
        {},
        [("a", 1)],
        "account string, revision bigint",
        {},
        InputError,
        "the input has no column 'amount', and Transfer has no default for it",
    ),
    "no column for the order": (
        {},
        [("a", 5)],
        "account string, amount bigint",
        {},
        InputError,
        "no column 'revision', which pipeline 'ledger' needs; existing columns: account, amount",
    ),
    "the same column twice": (
        {},
        [("a", 1, 5, 6)],
        DDL + ", amount bigint",
        {},
        InputError,
        "more than one column 'amount'",
    ),
    "a revision that is text": (
        {},
        [("a", "1", 5)],
        "account string, revision string, amount bigint",
        {},
        InputError,
        "the column 'revision' is string; .* cast it to bigint",
    ),
    "a group that is a number with a fraction": (
        {},
        [(1.5, 1, 5)],
        "account double, revision bigint, amount bigint",
        {},
        InputError,
        "the column 'account' is double; .* cast it to string",
    ),
    "a field of another type": (
        {},
        [("a", 1, True)],
        "account string, revision bigint, amount boolean",
        {},
        InputError,
        "the column 'amount' is boolean, but Transfer.amount is int",
    ),
    "final without times": ({}, ROWS, DDL, {"final": True}, InputError, "Gapless has no times"),
    "no buckets": ({}, ROWS, DDL, {"buckets": 0}, PipelineError, "buckets is 0; expected a whole number from 1"),
    "too many buckets": ({}, ROWS, DDL, {"buckets": 10**6}, PipelineError, "buckets is 1000000"),
    "buckets that are a flag": ({}, ROWS, DDL, {"buckets": True}, PipelineError, "buckets is True"),
    "a first state that cannot be stored": (
        {"state": lambda: {1, 2}},
        ROWS,
        DDL,
        {},
        StateError,
        "the first state of pipeline 'ledger' cannot be stored: state is {1, 2} of type set",
    ),
    "a store that is no place for a manifest": (
        {},
        ROWS,
        DDL,
        {"store": "ftp://far/away"},
        StoreError,
        "ftp: is not supported",
    ),
}


BAD_INPUT["columns that differ in their case alone"] = (
    {},
    [("a", 1, 5, 6)],
    DDL + ", AMOUNT bigint",
    {},
    InputError,
    "the columns 'amount' and 'AMOUNT', which differ only in case",
)


@pytest.mark.parametrize("case", BAD_INPUT)
def test_invalid_input_is_refused_before_anything_is_written(spark: SparkSession, tmp_path: Path, case: str) -> None:
    changes, rows, ddl, options, kind, says = BAD_INPUT[case]
    with pytest.raises(InturnError, match=says) as refused:
        batch(pipeline(**changes), frame(spark, rows, ddl), **{"store": tmp_path / "store", **options})
    assert type(refused.value) is kind
    assert not (tmp_path / "store").exists()


BAD_RUNS: dict[str, tuple[dict[str, Any], list[Any], type[InturnError], str]] = {
    "a handler that returns nothing": (
        {"handler": lambda state, message: None},
        ROWS,
        HandlerError,
        r"must take \(state, message\) and return \(state, \[output, …\]\)",
    ),
    "a handler written in C that takes other arguments": (
        {"handler": dict.pop},
        ROWS,
        HandlerError,
        r"must take \(state, message\)",
    ),
    "a handler that returns another state": (
        {"handler": lambda state, message: (7, [])},
        ROWS,
        HandlerError,
        "returned the state 7; expected Account",
    ),
    "a message without a place where that is an error": (
        {"on_invalid": "fail"},
        [("a", None, 1)],
        InvalidMessage,
        "revision is null",
    ),
    "a gap that outlived its wait": (
        {"on_gap": Wait("0 seconds", then="fail")},
        [("b", 2, 1)],
        GapError,
        "group 'b': revision 1 is missing",
    ),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_an_error_on_a_spark_worker_is_raised_unchanged_and_commits_nothing(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    changes, rows, kind, says = BAD_RUNS[case]
    with pytest.raises(InturnError, match=says) as refused:
        batch(pipeline(**changes), frame(spark, [*rows, ("good", 1, 1)]), store=tmp_path, buckets=1)
    assert type(refused.value) is kind
    assert read(spark, tmp_path, "steps").count() == 0


def test_a_column_may_change_its_type_while_messages_are_held(spark: SparkSession, tmp_path: Path) -> None:
    plain = Pipeline(
        name="plain",
        group="g",
        order=Gapless("r"),
        handler=lambda state, message: (state, [message["x"]]),
    )
    batch(plain, frame(spark, [("a", 2, 1)], "g string, r int, x int"), store=tmp_path, buckets=1)
    for rows in ([("a", 3, "one")], [("a", 1, "two")]):
        batch(plain, frame(spark, rows, "g string, r int, x string"), store=tmp_path)
    emitted = read(spark, tmp_path, "outputs").orderBy("revision").select("output").collect()
    assert [row.output for row in emitted] == ['"two"', "1", '"one"']


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"name": "other"}, {}, "the store of a pipeline with pipeline 'ledger', not 'other'"),
        ({"order": Gapless("revision", start=0)}, {}, "with order .*start=1.*, not .*start=0"),
        ({}, {"buckets": 3}, "was created with 2 buckets, not 3"),
    ],
    ids=["another name", "another order", "another number of buckets"],
)
def test_a_batch_into_the_store_of_another_pipeline_is_refused(
    spark: SparkSession, ledger_store: Path, changes: dict[str, Any], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(StoreMismatch, match=says):
        batch(pipeline(**changes), frame(spark, ROWS), store=ledger_store, **options)


@pytest.fixture(scope="module")
def ledger_store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("stores") / "ledger"
    batch(ledger, frame(spark, ROWS), store=store, buckets=2)
    return store


def test_a_directory_with_other_files_is_refused_as_a_store(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(StoreError, match="is neither a store nor empty"):
        batch(ledger, frame(spark, ROWS), store=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_unwritable_store_raises_store_error_and_works_after_the_repair(spark: SparkSession, tmp_path: Path) -> None:
    batch(ledger, frame(spark, [("a", 1, 3)]), store=tmp_path, buckets=1)  # 3 emits nothing
    blocked = tmp_path / "data" / "outputs"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"cannot write .*outputs"):
        batch(ledger, frame(spark, [("a", 2, 4)]), store=tmp_path)
    assert read(spark, tmp_path, "steps").count() == 1
    blocked.unlink()
    assert batch(ledger, frame(spark, [("a", 2, 4)]), store=tmp_path).step == 2
    assert read(spark, tmp_path, "outputs").count() == 1


# -- other writers, and the caller's session -----------------------------------------------------------------


def blocking(began: Path, committed: Path) -> Callable[[Any, Any], Any]:
    """A handler that waits until the other writer has committed."""

    def handler(state: Any, message: Any) -> Any:
        import time

        began.touch()
        give_up = time.monotonic() + 120
        while not committed.exists() and time.monotonic() < give_up:
            time.sleep(0.02)
        return apply(state, message)

    return handler


def test_the_second_of_two_writers_commits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    began, store = tmp_path / "began", tmp_path / "store"
    slow = pipeline(blocking(began, store / "steps" / "000000000001.json"))
    writer = Running(lambda: batch(slow, frame(spark, [("a", 1, 1), ("b", 1, 1)]), store=store, buckets=1))
    until(lambda: began.exists() or writer.is_over)
    assert batch(ledger, frame(spark, [("a", 1, 1)]), store=store).step == 1
    with pytest.raises(StoreConflict, match="another writer committed step 1 first"):
        writer.end()
    assert_tables(spark, store, ledger.replay([{"account": "a", "revision": 1, "amount": 1}]))
    repeated = batch(slow, frame(spark, [("a", 1, 1), ("b", 1, 1)]), store=store)
    assert (repeated.step, repeated.counts) == (2, Counts(received=2, applied=1, duplicate=1))


def test_a_batch_leaves_the_session_of_the_caller_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    def settings() -> dict[str, str | None]:
        return dict(spark.conf.getAll)

    before = settings()
    messages = frame(spark, ROWS)
    batch(ledger, messages, store=tmp_path, buckets=1)
    for table in ("states", "outputs", "parked", "rejected", "steps"):
        read(spark, tmp_path, table).collect()
    assert settings() == before
    assert not messages.is_cached
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0
    assert spark.catalog.listTables() == []
    assert spark.range(3).count() == 3
