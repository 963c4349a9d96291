"""The five tables of a store: what columns they have, as of which step, and with or without inturn."""

import datetime as dt
import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertSchemaEqual

from inturn import Gapless, Pipeline
from inturn.core.errors import InputError, StoreError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.spark import advance, batch, read
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.driver.read import TABLES

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
DDL = "parcel string, revision bigint, place string, at timestamp"


class Parcel(msgspec.Struct):
    """A state with a field of every kind, two of them named as columns of the table are."""

    place: str = ""
    stops: int = 0
    weight: float = 0.5
    sealed: bool = True
    label: bytes = b"\x00"
    seen: dt.datetime | None = None
    day: dt.date = dt.date(2026, 1, 1)
    route: list[str] = []
    status: str = "new"
    group: str | None = None


class Moved(msgspec.Struct):
    to: str


def move(parcel: Parcel, message: dict[str, Any]) -> tuple[Parcel, list[Any]]:
    if message["place"] == "nowhere":
        raise LookupError("no such place")
    parcel.place, parcel.seen, parcel.status = message["place"], message["at"], "moved"
    parcel.stops += 1
    parcel.route.append(message["place"])
    return parcel, [Moved(message["place"]), {"stops": parcel.stops}]


parcels = Pipeline(name="parcels", group="parcel", order=Gapless("revision"), state=Parcel, handler=move)


def at(minute: int) -> dt.datetime:
    return NOON + dt.timedelta(minutes=minute)


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps: a waits in the first and goes on in the second, b is parked in the second, c does nothing there."""
    store = tmp_path_factory.mktemp("read") / "parcels"
    first = [("a", 1, "Rome", at(1)), ("a", 3, "Bonn", at(3)), ("b", 1, "Oslo", at(1)), ("c", 1, "Kyiv", at(1))]
    second = [("a", 2, "Nice", at(2)), ("b", 2, "nowhere", at(2)), ("b", 1, "Riga", at(1))]
    batch(parcels, spark.createDataFrame(first, DDL), store=store, buckets=2, now=NOON)
    batch(parcels, spark.createDataFrame(second, DDL), store=store, now=at(60))
    return store


def rows(spark: SparkSession, store: Path, table: str, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in read(spark, store, table, **options).select(*columns).collect())


SCHEMAS = {
    "states": "group string, status string, epoch bigint, revision bigint, held bigint, skipped string, step bigint, "
    "place string, stops bigint, weight double, sealed boolean, label binary, seen timestamp, day date, route string, "
    "state_status string, state_group string",
    "outputs": "group string, epoch bigint, revision bigint, id string, index bigint, effect_id string, type string, "
    "output string, step bigint",
    "parked": "group string, status string, reason string, error string, epoch bigint, revision bigint, id string, "
    "since timestamp, message string, step bigint",
    "rejected": "group string, epoch bigint, revision bigint, id string, reason string, detail string, message string, "
    "step bigint",
    "steps": "step bigint, time timestamp, committed timestamp, seconds double, received bigint, released bigint, "
    "applied bigint, duplicate bigint, stale bigint, held bigint, rejected bigint, reasons map<string, bigint>, "
    "handler string, writer string",
}


@pytest.mark.parametrize("table", SCHEMAS)
def test_each_store_table_has_its_documented_columns(spark: SparkSession, store: Path, table: str) -> None:
    schema = spark.createDataFrame([], SCHEMAS[table]).schema
    assertSchemaEqual(read(spark, store, table).schema, schema, ignoreNullable=True)


def test_read_states_returns_the_states_of_the_last_step(spark: SparkSession, store: Path) -> None:
    columns = ("group", "status", "revision", "held", "step", "place", "stops", "state_status")
    assert rows(spark, store, "states", *columns) == [
        ("a", "open", 3, 0, 2, "Bonn", 3, "moved"),
        ("b", "parked", 1, 1, 2, "Oslo", 1, "moved"),
        ("c", "open", 1, 0, 1, "Kyiv", 1, "moved"),
    ]
    assert rows(spark, store, "states", *columns, step=1) == [
        ("a", "waiting", 1, 1, 1, "Rome", 1, "moved"),
        ("b", "open", 1, 0, 1, "Oslo", 1, "moved"),
        ("c", "open", 1, 0, 1, "Kyiv", 1, "moved"),
    ]
    (a,) = read(spark, store, "states").where("`group` = 'a'").collect()
    assert (a.weight, a.sealed, bytes(a.label), a.day) == (0.5, True, b"\x00", dt.date(2026, 1, 1))
    assert a.seen.astimezone(dt.UTC) == at(3)
    assert json.loads(a.route) == ["Rome", "Nice", "Bonn"]
    assert (a.epoch, a.skipped, a.state_group) == (None, None, None)


def test_read_outputs_returns_the_outputs_up_to_a_step(spark: SparkSession, store: Path) -> None:
    columns = ("group", "revision", "index", "type", "output", "step")
    actual = rows(spark, store, "outputs", *columns)
    assert actual == [
        ("a", 1, 0, "Moved", '{"to":"Rome"}', 1),
        ("a", 1, 1, "dict", '{"stops":1}', 1),
        ("a", 2, 0, "Moved", '{"to":"Nice"}', 2),
        ("a", 2, 1, "dict", '{"stops":2}', 2),
        ("a", 3, 0, "Moved", '{"to":"Bonn"}', 2),
        ("a", 3, 1, "dict", '{"stops":3}', 2),
        ("b", 1, 0, "Moved", '{"to":"Oslo"}', 1),
        ("b", 1, 1, "dict", '{"stops":1}', 1),
        ("c", 1, 0, "Moved", '{"to":"Kyiv"}', 1),
        ("c", 1, 1, "dict", '{"stops":1}', 1),
    ]
    assert rows(spark, store, "outputs", *columns, step=1) == [row for row in actual if row[-1] == 1]
    assert read(spark, store, "outputs").select("effect_id").distinct().count() == len(actual)


def test_read_parked_returns_the_held_messages_as_of_a_step(spark: SparkSession, store: Path) -> None:
    columns = ("group", "status", "reason", "revision", "id", "step")
    assert rows(spark, store, "parked", *columns) == [("b", "parked", "failed", 2, None, 2)]
    assert rows(spark, store, "parked", *columns, step=1) == [("a", "waiting", None, 3, None, 1)]
    (b,) = read(spark, store, "parked").collect()
    assert b.error.endswith("LookupError: no such place\n")
    assert b.since.astimezone(dt.UTC) == at(60)
    message = json.loads(b.message)
    assert {**message, "at": None} == {"parcel": "b", "revision": 2, "place": "nowhere", "at": None}
    assert dt.datetime.fromisoformat(message["at"]) == at(2)


def test_read_rejected_returns_the_rejected_messages_up_to_a_step(spark: SparkSession, store: Path) -> None:
    (b,) = read(spark, store, "rejected").collect()
    assert (b.group, b.revision, b.reason, b.step) == ("b", 1, "conflict", 2)
    assert json.loads(b.message)["place"] == "Riga"
    assert read(spark, store, "rejected", step=1).count() == 0


def test_read_steps_returns_the_counts_and_times_of_each_step(spark: SparkSession, store: Path) -> None:
    counts = ("received", "released", "applied", "duplicate", "stale", "held", "rejected", "reasons")
    assert sorted(tuple(row) for row in read(spark, store, "steps").select("step", *counts).collect()) == [
        (1, 4, 0, 3, 0, 0, 1, 0, {}),
        (2, 3, 1, 2, 0, 0, 1, 1, {"conflict": 1}),
    ]
    first, second = read(spark, store, "steps").orderBy("step").collect()
    assert (first.time.astimezone(dt.UTC), second.time.astimezone(dt.UTC)) == (NOON, at(60))
    assert first.handler == second.handler
    assert first.writer != second.writer
    assert read(spark, store, "steps", step=1).count() == 1


def test_the_state_of_plain_dicts_is_json_text(spark: SparkSession, tmp_path: Path) -> None:
    plain = Pipeline(
        name="plain",
        group="g",
        order=Gapless("r"),
        handler=lambda state, message: ({**state, "at": [message["r"]]}, []),
    )
    batch(plain, spark.createDataFrame([("x", 1), ("x", 2)], "g string, r int"), store=tmp_path, buckets=1)
    (row,) = read(spark, tmp_path, "states").collect()
    assert row.asDict() == {
        "group": "x",
        "status": "open",
        "epoch": None,
        "revision": 2,
        "held": 0,
        "skipped": None,
        "step": 1,
        "state": '{"at":[2]}',
    }
    for table in ("outputs", "parked", "rejected"):
        empty = read(spark, tmp_path, table)
        assertSchemaEqual(empty.schema, spark.createDataFrame([], SCHEMAS[table]).schema, ignoreNullable=True)
        assert empty.count() == 0


@pytest.fixture(scope="module")
def stepless(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose only step failed."""
    store = tmp_path_factory.mktemp("stepless")
    parked = Pipeline(name="p", group="g", order=Gapless("r"), state=Parcel, handler=lambda state, message: None)
    with pytest.raises(Exception, match="must take"):
        batch(parked, spark.createDataFrame([("x", 1)], "g string, r int"), store=store, buckets=1)
    return store


@pytest.mark.parametrize("table", ["outputs", "parked", "rejected", "steps"])
def test_a_store_without_steps_has_empty_tables(spark: SparkSession, stepless: Path, table: str) -> None:
    empty = read(spark, stepless, table)
    assertSchemaEqual(empty.schema, spark.createDataFrame([], SCHEMAS[table]).schema, ignoreNullable=True)
    assert empty.count() == 0


def test_a_store_without_steps_has_no_state_columns(spark: SparkSession, stepless: Path) -> None:
    empty = read(spark, stepless, "states")
    assert empty.count() == 0
    assert empty.columns[:2] == ["group", "status"]


def test_missing_tables_stores_and_steps_are_refused(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no table 'state'; existing tables: states, outputs, parked, rejected, steps"):
        read(spark, store, "state")
    with pytest.raises(StoreError, match="is not a store; create one with"):
        read(spark, tmp_path / "nowhere", "states")
    for step in (0, 3):
        with pytest.raises(StoreError, match=f"has no step {step}; it has steps 1 to 2"):
            read(spark, store, "states", step=step)


def test_store_files_can_be_read_without_inturn(spark: SparkSession, store: Path) -> None:
    assert json.loads((store / "inturn.json").read_bytes())["pipeline"] == "parcels"
    manifests = [json.loads(path.read_bytes()) for path in sorted((store / "steps").glob("*.json"))]
    assert [manifest["step"] for manifest in manifests] == [1, 2]

    def table(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
        paths = [store / file["path"] for file in files]
        return ds.dataset(paths, format=paths[0].suffix[1:]).to_table().to_pylist()

    outputs = table([file for manifest in manifests for file in manifest["outputs"]])
    assert sorted(row["effect_id"] for row in outputs) == sorted(
        row.effect_id for row in read(spark, store, "outputs").collect()
    )
    newest: dict[str, Any] = {}
    for level in manifests[-1]["levels"]:
        for row in table(level["groups"]):
            newest[row["group"]] = row["state"]
    assert {group: (state["place"], state["stops"]) for group, state in newest.items()} == {
        "a": ("Bonn", 3),
        "b": ("Oslo", 1),
        "c": ("Kyiv", 1),
    }


def test_a_file_that_no_manifest_names_is_not_read(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    before = rows(spark, copy, "outputs", "effect_id")
    for path in [*copy.rglob("*.parquet"), *copy.rglob("*.arrow")]:
        shutil.copy(path, path.with_name(f"left-{path.name}"))
    assert rows(spark, copy, "outputs", "effect_id") == before
    assert len(rows(spark, copy, "states", "group")) == 3
    (copy / "steps" / "000000000002.json").unlink()
    with pytest.raises(StoreError, match=r"lacks steps/000000000002\.json"):
        rows(spark, copy, "states", "group", "step")
    (copy / "head.json").unlink()  # as in a copy that is older than the step
    assert rows(spark, copy, "states", "group", "step") == [("a", 1), ("b", 1), ("c", 1)]


def test_a_missing_store_file_is_named(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    for file in copy.glob("data/outputs/*.parquet"):
        file.unlink()
        with pytest.raises(StoreError, match=re.escape(file.name)):
            rows(spark, copy, "outputs", "effect_id")
        break
    last = "steps/000000000002.json"
    (copy / last).unlink()
    for table in TABLES:
        with pytest.raises(StoreError, match=re.escape(f"lacks {last}")):
            read(spark, copy, table).count()


@dataclass
class Sum:
    total: int = 0


@dataclass
class Cents:
    cents: int = 0


@dataclass
class Payment:
    account: str
    revision: int
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            msg = "amount is below zero"
            raise ValueError(msg)


def in_cents(state: dict[str, int], version: int) -> Cents:
    if state["total"] == 13:
        msg = "thirteen"
        raise LookupError(msg)
    return Cents(state["total"] * 100)


def test_groups_with_failed_upgrades_and_refused_messages_are_read(spark: SparkSession, tmp_path: Path) -> None:
    ddl = "account string, revision bigint, amount bigint"
    pipeline = Pipeline(
        name="sums", group="account", order=Gapless("revision"), message=Payment, state=Sum,
        handler=lambda state, payment: (Sum(state.total + payment.amount), []),
    )  # fmt: skip
    first = [("a", 1, 13), ("b", 1, 5), ("c", 1, 13), ("d", 1, -1)]
    report = batch(pipeline, spark.createDataFrame(first, ddl), store=tmp_path, buckets=1)
    assert (report.counts.applied, report.counts.rejected) == (3, {"invalid": 1})
    assert rows(spark, tmp_path, "rejected", "group", "reason", "detail") == [
        ("d", "invalid", "it is not a valid Payment: amount is below zero")
    ]
    new = replace(
        pipeline, state=Cents, version=2, upgrade=in_cents,
        handler=lambda state, payment: (Cents(state.cents + payment.amount), []),
    )  # fmt: skip
    report = batch(new, spark.createDataFrame([("a", 2, 1), ("b", 2, 1)], ddl), store=tmp_path)
    assert (report.counts.applied, report.counts.held) == (1, 1)
    columns = ("group", "status", "revision", "cents")
    assert rows(spark, tmp_path, "states", *columns) == [
        ("a", "parked", 1, None),
        ("b", "open", 2, 501),
        ("c", "open", 1, None),
    ]
    ((error,),) = rows(spark, tmp_path, "parked", "error")
    assert "upgrade raised LookupError: thirteen on a state of version 1: {'total': 13}" in error
    inspector = SparkInspector(tmp_path)
    assert [inspector.group(name).state for name in "abc"] == [{"total": 13}, {"cents": 501}, {"total": 13}]
    inspector.decide(Decision(id="r", action=DecisionAction.RESUME, group="a", by="ann", at_us=1))
    mended = replace(new, upgrade=lambda state, version: Cents(state["total"]))
    assert advance(mended, store=tmp_path).counts.released == 1
    assert rows(spark, tmp_path, "states", *columns)[0] == ("a", "open", 2, 14)


def test_tables_without_an_earlier_manifest_return_the_remaining_steps(
    spark: SparkSession, store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """States and held messages lack nothing; the other tables lack the lost step, which is logged."""
    root = Path(shutil.copytree(store, tmp_path / "lost"))
    deleted = root / "steps" / f"{1:012d}.json"
    deleted.unlink()
    for table in ("states", "parked"):
        assert sorted(read(spark, root, table).collect(), key=str) == sorted(
            read(spark, store, table).collect(), key=str
        )
    for table in ("outputs", "rejected", "steps"):
        caplog.clear()
        every = [row for row in read(spark, store, table).collect() if row["step"] != 1]
        assert sorted(read(spark, root, table).collect(), key=str) == sorted(every, key=str)
        assert deleted.name in caplog.text
    with pytest.raises(StoreError, match=deleted.name):
        read(spark, root, "states", step=1)
