"""Names of columns: inturn's own are refused by name, all others are the user's, whatever they are called."""

import json
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn import Gapless, Pipeline
from inturn.core.errors import InputError, StateError
from inturn.results.state_columns import column_of_field
from inturn.spark import audit, batch, read, stream
from inturn.spark.columns.names import CORRUPT, FIXED_COLUMNS

DDL = "account string, revision bigint"
ROWS = [("a", 1), ("a", 2), ("b", 1)]


def keep(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    return {"last": json.loads(json.dumps(message))}, [message]


plain = Pipeline(name="names", group="account", order=Gapless("revision"), handler=keep)


@pytest.fixture
def exact(spark: SparkSession) -> Callable[[str], SparkSession]:
    """A session of its own in which the case of names counts, or not."""

    def make(setting: str) -> SparkSession:
        session = spark.newSession()
        session.conf.set("spark.sql.caseSensitive", setting)
        return session

    return make


def outputs(spark: SparkSession, store: Path) -> list[dict[str, Any]]:
    rows = read(spark, store, "outputs").orderBy("group", "revision").collect()
    return [json.loads(row.output) for row in rows]


# -- names of inturn's own ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["__inturn_hash", "__inturn_group", "__INTURN_Turn", "__inturn_at_x", "__inturn_new"])
@pytest.mark.parametrize("setting", ["false", "true"])
def test_a_column_with_a_reserved_name_is_refused(
    exact: Callable[[str], SparkSession], tmp_path: Path, name: str, setting: str
) -> None:
    spark = exact(setting)
    df = spark.createDataFrame([], DDL).withColumn(name, F.lit(7))
    says = f"the input has a column '{name}'; names that begin with __inturn_ are reserved: rename it"
    with pytest.raises(InputError, match=says):
        batch(plain, df, store=tmp_path / "store")
    with pytest.raises(InputError, match=says):
        audit(df, group="account", order="revision")
    (tmp_path / "messages").mkdir()
    live = spark.readStream.schema(df.schema).parquet(str(tmp_path / "messages"))
    with pytest.raises(InputError, match=says):
        stream(plain, live, store=tmp_path / "store", checkpoint=tmp_path / "checkpoint")
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(("sql", "value"), [("'half a line'", "half a line"), ("7L", 7)])
def test_a_user_column_named_corrupt_record_is_an_ordinary_column(
    spark: SparkSession, tmp_path: Path, sql: str, value: Any
) -> None:
    df = spark.createDataFrame(ROWS, DDL).selectExpr("*", f"{sql} AS _corrupt_record")
    report = batch(plain, df, store=tmp_path, buckets=1)
    assert (report.counts.applied, report.counts.rejected) == (3, {})
    messages = [{"account": name, "revision": revision, "_corrupt_record": value} for name, revision in ROWS]
    assert outputs(spark, tmp_path) == messages


@dataclass
class Move:
    account: str
    revision: int


typed = Pipeline(
    name="names", group="account", order=Gapless("revision"), message=Move, handler=lambda state, message: (state, [])
)


@pytest.mark.parametrize("line", [plain, typed], ids=["plain", "typed"])
def test_a_corrupt_record_of_a_spark_reader_is_rejected_with_its_text(
    spark: SparkSession, tmp_path: Path, line: Pipeline
) -> None:
    (tmp_path / "messages.jsonl").write_text('{"account": "a", "revision": 1}\nno JSON\n')
    reader = spark.read.schema(f"{DDL}, {CORRUPT} string").option("columnNameOfCorruptRecord", CORRUPT)
    report = batch(line, reader.json(str(tmp_path / "messages.jsonl")), store=tmp_path / "store", buckets=1)
    assert (report.counts.applied, report.counts.rejected) == (1, {"invalid": 1})
    (row,) = read(spark, tmp_path / "store", "rejected").collect()
    assert json.loads(row.message)[CORRUPT] == "no JSON"
    number = spark.createDataFrame(ROWS, DDL).withColumn(CORRUPT, F.lit(7))
    with pytest.raises(InputError, match=f"a column '{CORRUPT}'.*rename it, or cast it to string"):
        batch(line, number, store=tmp_path / "other")


def test_nested_fields_may_have_reserved_names(spark: SparkSession, tmp_path: Path) -> None:
    inner = "named_struct('__inturn_hash', 1L, '_corrupt_record', 'x', '__inturn_corrupt_record', 'y') AS inner"
    report = batch(plain, spark.createDataFrame(ROWS, DDL).selectExpr("*", inner), store=tmp_path, buckets=1)
    assert report.counts.applied == 3
    assert outputs(spark, tmp_path)[0]["inner"] == {
        "__inturn_hash": 1,
        "_corrupt_record": "x",
        "__inturn_corrupt_record": "y",
    }


# -- names that are there twice ----------------------------------------------------------------------------------


def test_repeated_column_names_are_refused(exact: Callable[[str], SparkSession], tmp_path: Path) -> None:
    for setting in ("false", "FALSE", "true", "TRUE"):
        df = exact(setting).createDataFrame(ROWS, DDL).selectExpr("*", "1 AS a", "2 AS a")
        with pytest.raises(InputError, match="the input has more than one column 'a'; rename or drop one of them"):
            batch(plain, df, store=tmp_path / "store")
    for setting in ("false", "False"):
        df = exact(setting).createDataFrame(ROWS, DDL).selectExpr("*", "1 AS a", "2 AS A")
        with pytest.raises(InputError, match="the input has the columns 'a' and 'A', which differ only in case"):
            batch(plain, df, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("setting", ["true", "TRUE", "True"])
def test_column_names_may_differ_in_case_in_a_case_sensitive_session(
    exact: Callable[[str], SparkSession], tmp_path: Path, setting: str
) -> None:
    spark = exact(setting)
    df = spark.createDataFrame(ROWS, DDL).selectExpr("*", "1 AS a", "2 AS A")
    assert batch(plain, df, store=tmp_path, buckets=1).counts.applied == 3
    assert outputs(spark, tmp_path)[0] == {"account": "a", "revision": 1, "a": 1, "A": 2}


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("struct<x: int, x: int>", "inner"),
        ("array<struct<y: struct<x: int, x: int>>>", r"inner\[\]\.y"),
        ("map<string, struct<x: int, x: int>>", r"inner\[\]"),
    ],
)
def test_a_repeated_nested_field_name_is_refused(spark: SparkSession, tmp_path: Path, kind: str, where: str) -> None:
    df = spark.createDataFrame(ROWS, DDL).selectExpr("*", f"CAST(NULL AS {kind}) AS inner")
    with pytest.raises(InputError, match=f"the column '{where}' has two fields named 'x'"):
        batch(plain, df, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


# -- the fields of a state ---------------------------------------------------------------------------------------


def stateful(names: list[str]) -> Pipeline:
    kind = make_dataclass("State", [(name, int, 0) for name in names])

    def count(state: Any, message: dict[str, Any]) -> tuple[Any, list[Any]]:
        for index, name in enumerate(names, start=1):
            setattr(state, name, index)
        return state, []

    return Pipeline(name="names", group="account", order=Gapless("revision"), state=kind, handler=count)


def test_state_fields_that_collide_with_columns_get_a_prefix(spark: SparkSession, tmp_path: Path) -> None:
    names = ["status", "state_status", "Group", "state_Held", "state_state_held", "balance", "state_balance"]
    batch(stateful(names), spark.createDataFrame(ROWS, DDL), store=tmp_path, buckets=1)
    states = read(spark, tmp_path, "states")
    assert len({name.lower() for name in states.columns}) == len(states.columns) == len(FIXED_COLUMNS) + len(names)
    (row,) = states.where("group = 'a' AND status = 'open'").collect()
    assert [row[column_of_field(name, FIXED_COLUMNS)] for name in names] == list(range(1, len(names) + 1))
    assert [name for name in states.columns if name not in FIXED_COLUMNS] == [
        "state_status",
        "state_state_status",
        "state_Group",
        "state_state_Held",
        "state_state_state_held",
        "balance",
        "state_balance",
    ]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["total", "Total"], "the state has the fields 'total' and 'Total', .* as one column.*rename one of them"),
        (["__inturn_old"], "the state has a field '__inturn_old'; names that begin with __inturn_ are reserved"),
    ],
)
def test_state_fields_that_cannot_be_columns_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, names: list[str], why: str
) -> None:
    with pytest.raises(StateError, match=why):
        batch(stateful(names), spark.createDataFrame(ROWS, DDL), store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


# -- an audit ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_audit_columns_do_not_collide_with_columns_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    names = ["file", "message", "f", "m", "g", "h", "bad", "other", "__begins", "__file", "__path", "__number"]
    rows = [("a", 1, "x"), ("a", 1, "y"), ("a", 2, "x"), ("a", 2, "x")]
    df: DataFrame = spark.createDataFrame(rows, f"{DDL}, _corrupt_record string")
    df = df.select("*", *(F.lit("x").alias(name) for name in names))
    df.repartition(2).write.parquet(str(tmp_path / "log"))
    log = spark.read.parquet(str(tmp_path / "log"))
    report = audit(log, group="account", order="revision", out=str(tmp_path / "report"))
    assert {kind.value: count.messages for kind, count in report.found.items()} == {"duplicate": 1, "conflict": 1}
