"""Every type of Spark on a real Spark: carried as the table says, or invalid alone, or refused in words."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession, functions
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it
from type_rows import GOOD, assert_each_alone, frame, hint_of, pipelines, tell
from type_table import AS_TEXT, CARRIED, INVALID, KEYS, REFUSED, Kind, there_are

from inturn import Arrival, Gapless, Pipeline, Timestamp
from inturn.core.errors import InputError
from inturn.spark import advance, batch, read, store, stream

JSON = msgspec.json.Encoder()
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _times(spark: SparkSession) -> Iterator[None]:
    """Spark has times of the day, and a zone in which none of these days is the same."""
    settings = {"spark.sql.timeType.enabled": "true", "spark.sql.session.timeZone": "America/New_York"}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_every_supported_spark_type_is_converted_or_makes_only_its_message_invalid(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert_each_alone(spark, [CARRIED[name] for name in there_are(CARRIED)], tmp_path)


def test_a_stream_continues_after_messages_with_invalid_values(spark: SparkSession, tmp_path: Path) -> None:
    kinds = [CARRIED[name] for name in ("DateType", "TimestampType", "TimestampNTZType", "StringType", "MapType")]
    df, groups = frame(spark, kinds)
    df.write.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema(df.schema).parquet(str(tmp_path / "in"))
    store = tmp_path / "store"
    pipeline = next(pipelines(kinds))
    query = stream(pipeline, rows, store=store, checkpoint=tmp_path / "checkpoint", trigger="available now")
    query.awaitTermination()
    (steps,) = read(spark, store, "steps").selectExpr("sum(received)", "sum(rejected)").collect()
    assert tuple(steps) == (len(groups) + GOOD, sum(value is INVALID for *_, value in groups.values()))


def test_a_decision_recognizes_its_message_for_every_type(spark: SparkSession, tmp_path: Path) -> None:
    df, groups = frame(spark, [CARRIED[name] for name in there_are(CARRIED)])

    def fail(state: Row, message: Row) -> Any:
        raise ValueError("as ever")

    failing = Pipeline(name="failing", group="g", order=Gapless("r"), handler=fail)
    batch(failing, df, store=tmp_path)
    report = store(tmp_path).drop(all=True, by="ann")
    assert len(report.pending) > len(groups) / 2
    advance(failing, store=tmp_path)
    report = store(tmp_path).updated(report)
    assert (report.void, report.pending) == ({}, {})


def nested(depth: int) -> st.SearchStrategy[Kind]:
    """Types of any depth, with some values of each."""
    flat = st.sampled_from([CARRIED[name] for name in there_are(CARRIED) if name != "NullType"])
    if not depth:
        return flat
    return st.one_of(lists(depth - 1), maps(depth - 1), structs(depth - 1))


def made(kind: Kind, cases: list[tuple[str, Any]]) -> Kind:
    return dataclasses.replace(kind, cases=dict(cases))


def of(kind: Kind) -> list[tuple[str, Any]]:
    return [*kind.cases.items(), (f"CAST(NULL AS {kind.sql})", None)]


@st.composite
def lists(draw: st.DrawFn, depth: int) -> Kind:
    inner = draw(nested(depth))
    rows = draw(st.lists(st.lists(st.sampled_from(of(inner)), max_size=3), min_size=1, max_size=4))
    cases = []
    for items in rows:
        sql, values = ", ".join(sql for sql, _ in items), [value for _, value in items]
        cases.append((f"CAST(array({sql}) AS array<{inner.sql}>)", INVALID if INVALID in values else values))
    return made(Kind(f"array<{inner.sql}>", list[hint_of(inner) | None]), cases)


@st.composite
def maps(draw: st.DrawFn, depth: int) -> Kind:
    key, inner = CARRIED[draw(st.sampled_from(there_are(sorted(KEYS))))], draw(nested(depth))
    pairs = st.tuples(st.sampled_from(list(key.cases.items())), st.sampled_from(of(inner)))
    # Spark refuses a map with a key twice, and makes one of the zeros.
    rows = draw(st.lists(st.lists(pairs, max_size=3, unique_by=lambda pair: zero(pair[0][1])), min_size=1, max_size=4))
    cases = []
    for entries in rows:
        sql = ", ".join(f"{key_sql}, {value_sql}" for (key_sql, _), (value_sql, _) in entries)
        mapping = {zero(made_key): value for (_, made_key), (_, value) in entries}
        expected = INVALID if any(INVALID in (made_key, value) for (_, made_key), (_, value) in entries) else mapping
        cases.append((f"CAST(map({sql}) AS map<{key.sql},{inner.sql}>)", expected))
    return made(Kind(f"map<{key.sql},{inner.sql}>", dict[key.python, hint_of(inner) | None]), cases)


def zero(key: Any) -> Any:
    return 0.0 if isinstance(key, float) and key == 0 else repr(key) if key is INVALID else key


@st.composite
def structs(draw: st.DrawFn, depth: int) -> Kind:
    inner = [draw(nested(depth)), draw(nested(0))]
    names = ["a", "B b"]
    sql = ",".join(f"`{name}`:{kind.sql}" for name, kind in zip(names, inner, strict=True))
    rows = draw(st.lists(st.tuples(*(st.sampled_from(of(kind)) for kind in inner)), min_size=1, max_size=4))
    cases = []
    for fields in rows:
        parts = ", ".join(f"'{name}', {part}" for name, (part, _) in zip(names, fields, strict=True))
        record = {name: value for name, (_, value) in zip(names, fields, strict=True)}
        expected = INVALID if INVALID in record.values() else record
        cases.append((f"CAST(named_struct({parts}) AS struct<{sql}>)", expected))
    return made(Kind(f"struct<{sql}>"), cases)


@settings(
    max_examples=max(2, settings.default.max_examples // 50), phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
@given(columns=st.lists(nested(2) | nested(1), min_size=8, max_size=8))
@pytest.mark.slow
@pytest.mark.soak
def test_every_nested_type_is_converted_or_makes_only_its_message_invalid(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, columns: list[Kind]
) -> None:
    assert_each_alone(spark, columns, tmp_path_factory.mktemp("nested"))


@pytest.mark.parametrize("name", there_are(REFUSED))
def test_an_unsupported_spark_column_type_is_refused_before_a_store_is_created(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Before a store is made, with the column and its type, at any depth; a column that nobody reads harms nobody."""
    sql = REFUSED[name]
    df = spark.range(1).selectExpr("'a' AS g", "1 AS r", f"named_struct('x', array({sql})) AS c0")
    kind = df.schema["c0"].dataType.fields[0].dataType.elementType.simpleString()
    store = tmp_path / "store"
    with pytest.raises(InputError, match=rf"^the column 'c0\.x\[\]' is {re.escape(kind)}, which messages do not"):
        batch(next(pipelines([])), df, store=store)
    assert not store.exists()
    *_, records = pipelines([])
    assert batch(records, df, store=store).counts.applied == 1


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("map(named_struct('a', 1), 2)", "map_entries"),
        ("map(array(1), 2)", "map_entries"),
        ("map()", r"map<string,string>"),
        ("map('a', NULL)", r"map<string,string>"),
        ("array()", r"array<string>"),
        ("array(map(map_entries(map('a', 1)), 1))", "map_entries"),
        ("named_struct('a', 1, 'a', 2)", "two fields named 'a'"),
    ],
)
def test_unhashable_map_keys_and_void_or_repeated_fields_are_refused(
    spark: SparkSession, tmp_path: Path, sql: str, says: str
) -> None:
    df = spark.range(1).selectExpr("'a' AS g", "1 AS r", f"{sql} AS c0")
    with pytest.raises(InputError, match=rf"^the column '(a key of )?c0(\[\])*' .*{says}"):
        batch(next(pipelines([])), df, store=tmp_path / "store")


def test_a_user_defined_spark_type_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    schema = T.StructType([T.StructField("g", T.StringType()), T.StructField("r", T.LongType())]).add("c0", Own())
    df = spark.createDataFrame([("a", 1, None)], schema)
    with pytest.raises(InputError, match=r"'c0' is .* do not support: convert it to columns of plain types"):
        batch(next(pipelines([])), df, store=tmp_path / "store")


class Own(T.UserDefinedType):
    """A type of a user's own."""

    @classmethod
    def sqlType(cls) -> T.DataType:  # noqa: N802 - as Spark calls it
        return T.LongType()

    @classmethod
    def module(cls) -> str:
        return __name__

    def serialize(self, obj: Any) -> Any:
        return obj

    def deserialize(self, datum: Any) -> Any:
        return datum


@pytest.mark.parametrize("sql", AS_TEXT.values())
def test_char_and_varchar_columns_are_read_as_text(spark: SparkSession, tmp_path: Path, sql: str) -> None:
    """Everywhere: as the group, as an id and as a field, where Spark keeps them."""
    setting = "spark.sql.preserveCharVarcharTypeInfo"  # of Spark 4.1 and newer
    spark.conf.set(setting, "true")
    try:
        columns = [f"CAST('abc' AS {sql}) AS {name}" for name in ("g", "i", "c0")]
        df = spark.range(1).selectExpr("1 AS r", *columns)
        for number, pipeline in enumerate(pipelines([Kind("string", str)])):
            named = dataclasses.replace(pipeline, id="c0")
            assert batch(named, df, store=tmp_path / str(number)).counts.applied == 1
            rows = read(spark, tmp_path / str(number), "outputs").collect()
            assert ("abc", "abc", '["c0","abc"]') in {(row.group, row.id, row.output) for row in rows}
    finally:
        spark.conf.unset(setting)


@pytest.mark.skipif(not hasattr(functions, "collate"), reason="Spark has collations from 4.0 on")
def test_a_collated_string_is_text_except_as_a_group_or_id(spark: SparkSession, tmp_path: Path) -> None:
    """But where it could say which groups are one: there a user has to decide."""
    df = spark.sql("SELECT 'a' AS g, 1 AS r, 'B' COLLATE UTF8_LCASE AS c0")
    for number, pipeline in enumerate(pipelines([Kind("string", str)])):
        assert batch(pipeline, df, store=tmp_path / str(number)).counts.applied == 1
    by_collated = dataclasses.replace(next(pipelines([])), group="c0")
    with pytest.raises(InputError, match=r"'c0' is string collate UTF8_LCASE; expected .*: cast it to string"):
        batch(by_collated, df, store=tmp_path / "store")


@pytest.mark.parametrize("order", [Gapless("r"), Arrival(), Timestamp("at", lateness="1 day")], ids=str)
def test_a_group_id_time_or_arrival_beyond_the_python_range_is_invalid(
    spark: SparkSession, tmp_path: Path, order: Any
) -> None:
    """A year that Python lacks in the group, the id, the time and the arrival: each alone is invalid."""
    fine = [
        "DATE'2024-01-01'",
        "1",
        "DATE'2024-01-01'",
        "TIMESTAMP'2024-01-01'",
        "named_struct('x', TIMESTAMP'2024-01-01')",
    ]
    beyond = {
        0: "make_date(20260, 1, 1)",
        2: "CAST('-0001-01-01' AS date)",
        3: "timestamp_micros(-9223372036854775808)",
    }
    beyond[4] = "named_struct('x', timestamp_micros(9223372036854775807))"
    names = ["g", "r", "i", "at", "came"]
    rows = [fine] + [
        [sql if index == place else value for index, value in enumerate(fine)] for place, sql in beyond.items()
    ]
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    df = spark.sql(f"SELECT * FROM VALUES {values} AS t({', '.join(names)})")  # noqa: S608 - ours
    pipeline = Pipeline(name="places", group="g", order=order, id="i", arrival="came.x", handler=tell)
    final = {"final": True} if isinstance(order, Timestamp) else {}
    report = batch(pipeline, df, store=tmp_path / "store", **final)
    assert (report.counts.applied, report.counts.rejected) == (1, {"invalid": 4})
    rejected = {(row.group, row.detail.split(";")[0]) for row in read(spark, tmp_path / "store", "rejected").collect()}
    assert rejected == {
        ("+20260-01-01", "g is +20260-01-01"),
        ("2024-01-01", "i is -0001-01-01"),
        ("2024-01-01", "at is -290308-12-21T19:59:05.224192+00:00"),
        ("2024-01-01", "came.x is +294247-01-10T04:00:54.775807+00:00"),
    }
