"""Ready-made pipelines give one answer in every engine, and typed columns in a Delta table."""

import datetime as dt
import random
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import inturn.spark
from inturn import Arrival, Gapless, Monotone, Pipeline, pipelines
from inturn.testing import disorder, same

ALL = ("replay", "worker", "batch", "stream")
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
Row = dict[str, Any]


@dataclass(frozen=True)
class Holder:
    owner: str | None = None
    balance: Decimal | None = None
    opened: dt.date | None = None
    is_deleted: bool = False


@dataclass(frozen=True)
class HolderVersion:
    valid_from: dt.datetime | None = None
    row: Holder | None = None
    is_current: bool = False


@dataclass(frozen=True)
class Change:
    """A change with types that JSON lacks."""

    id: str
    n: int
    op: str
    at: dt.datetime
    source: str
    after: Holder | None
    amount: Decimal | None


def changes(seed: int) -> list[Row]:
    """Return a disordered change log of dicts; some rows are null, and some lack a field."""
    chance = random.Random(seed)
    clean: list[Row] = []
    for n in range(1, 16):
        for group in range(5):
            row: Row | None = {"owner": chance.choice(["ann", "ben"]), "balance": chance.choice(["1.10", "2.00"])}
            if row and chance.random() < 0.5:
                row["opened"] = "2024-05-01"
            row = None if chance.random() < 0.2 else row
            at = (NOON + dt.timedelta(minutes=n)).isoformat()
            source = chance.choice(["payments", "stock", "customs", "audit"])
            amount = chance.choice([None, 5, 7])
            clean.append(
                {"id": f"g{group}", "n": n, "op": chance.choice("ud"), "at": at, "source": source}
                | {"after": row, "amount": amount, "key": f"{group}-{n}"}
            )
    return list(disorder(clean, seed=seed))


GROUP: Row = {"group": "id", "order": Gapless("n")}
PARTS = ("payments", "stock", "customs")
DICTS: dict[str, Pipeline[Any, Any, Any]] = {
    "latest": pipelines.latest("latest", group="id", order=Monotone("n"), row="after", is_deleted=("op", "d")),
    "typed latest": pipelines.latest("typed", row="after", state=Holder, **GROUP),
    "history": pipelines.history("history", row="after", time="at", **GROUP),
    "count": pipelines.count("count", **GROUP),
    "sum": pipelines.sum("sum", field="amount", **GROUP),
    "phantom": pipelines.phantom("phantom", group="id", order=Arrival(), part="source", parts=PARTS, id="key"),
}


@pytest.mark.parametrize("case", DICTS)
def test_all_four_engines_agree_on_ready_made_pipelines(spark: SparkSession, case: str) -> None:
    result = same(DICTS[case], changes(len(case)), engines=ALL, seed=1, spark=spark)
    assert len(result.states) == 5
    assert set(result.statuses.values()) == {"open"}
    assert bool(result.outputs) == (case in ("history", "phantom"))


TYPED: dict[str, Pipeline[Any, Any, Any]] = {
    "history": pipelines.history("history", row="after", time="at", message=Change, state=HolderVersion, **GROUP),
    "sum": pipelines.sum("sum", field="amount", number=Decimal, message=Change, **GROUP),
    "latest of messages": pipelines.latest("whole", message=Change, **GROUP),
}


@pytest.mark.parametrize("case", TYPED)
def test_all_four_engines_agree_on_typed_messages(spark: SparkSession, case: str) -> None:
    chance = random.Random(len(case))
    clean = [
        Change(
            id=f"g{group}",
            n=n,
            op="u",
            at=(NOON + dt.timedelta(minutes=n)).astimezone(dt.timezone(dt.timedelta(hours=2))),
            source="payments",
            after=chance.choice([None, Holder("ann", Decimal("1.10"), dt.date(2024, 5, 1)), Holder("ben")]),
            amount=chance.choice([None, Decimal("0.10"), Decimal("12.25")]),
        )
        for n in range(1, 12)
        for group in range(4)
    ]
    result = same(TYPED[case], disorder(clean, seed=3), engines=ALL, seed=1, spark=spark)
    assert set(result.statuses.values()) == {"open"}


def test_a_wrong_path_parks_all_groups_on_spark_and_deletes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = pipelines.latest("holders", group="id", order=Monotone("n"), row="aftr")
    df = spark.createDataFrame([("a", 1, ("ann",)), ("b", 1, None)], "id string, n bigint, after struct<owner string>")
    inturn.spark.batch(pipeline, df, store=str(tmp_path / "store"))
    rows = inturn.spark.read(spark, str(tmp_path / "store"), "parked").collect()
    assert sorted(row.group for row in rows) == ["a", "b"]
    assert all("no field 'aftr' in the message; existing fields: id, n, after" in row.error for row in rows)


def test_latest_with_a_record_type_has_typed_columns_in_delta(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = pipelines.latest("holders", group="id", order=Monotone("n"), row="after", state=Holder)
    schema = "id string, n bigint, after struct<owner string, balance string, opened string>"
    rows = [
        ("a", 2, ("ann", "1.10", "2024-05-01")),
        ("a", 1, ("old", "9", None)),
        ("b", 1, ("x", "1", None)),
        ("b", 2, None),
    ]
    for start in (0, 2):
        df = spark.createDataFrame(rows[start : start + 2], schema)
        inturn.spark.batch(pipeline, df, store=str(tmp_path / "store"), states_format="delta")
    table = DeltaTable(str(tmp_path / "store" / "states")).to_pyarrow_table()
    columns = ["group", "owner", "balance", "opened", "is_deleted"]
    assert [str(table.schema.field(name).type) for name in columns[3:]] == ["date32[day]", "bool"]
    assert sorted(tuple(row[name] for name in columns) for row in table.to_pylist()) == [
        ("a", "ann", "1.10", dt.date(2024, 5, 1), False),
        ("b", None, None, None, True),
    ]
