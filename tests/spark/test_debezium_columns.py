"""Change events as columns: the same messages as in process, whatever types Spark infers for the events."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ingest.envelopes import PASSED_OVER, POSITIONS, Event
from inturn import Monotone, MonotoneFields, Pipeline
from inturn.core.errors import InputError
from inturn.ingest.debezium import POSITION_FIELDS, change_message
from inturn.spark import batch, debezium, read
from inturn.spark.columns.names import CORRUPT


def frame(spark: SparkSession, folder: Path, lines: list[Any]) -> DataFrame:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "events.jsonl").write_text("\n".join(texts))
    return spark.read.option("columnNameOfCorruptRecord", CORRUPT).json(str(folder / "events.jsonl"))


def plain(value: Any) -> Any:
    """Return a value without nulls, which Spark has for absent fields too."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items() if inner is not None}
    return list(map(plain, value)) if isinstance(value, list) else value


ADDED = {"row", "table", "position"}


def rows(df: DataFrame) -> list[Any]:
    return [plain(row.asDict(recursive=True)) for row in df.collect()]


@pytest.mark.parametrize("has_schema", [False, True])
@pytest.mark.parametrize("connector", POSITIONS)
def test_spark_gives_the_same_messages_as_in_process(
    spark: SparkSession, tmp_path: Path, connector: str, has_schema: bool
) -> None:
    events = [event for event, _ in POSITIONS[connector]]
    events += [event | ({"source": events[0]["source"]} if event.get("source") else {}) for event in PASSED_OVER]
    log = [{"schema": {"type": "struct"}, "payload": event} for event in events] if has_schema else events
    df = debezium(frame(spark, tmp_path, log))
    expected = [message for message in map(change_message, events) if message is not None]
    assert rows(df.select("op", *sorted(ADDED & {*df.columns}))) == [
        plain({name: value for name, value in message.items() if name in ADDED | {"op"}}) for message in expected
    ]
    assert len(expected) == len(POSITIONS[connector])
    kinds = dict(df.dtypes)
    assert kinds["table"] == "string"
    assert kinds.get("position") == (None if "position" not in expected[0] else "bigint")


def test_events_of_several_connectors_in_one_dataframe_keep_their_positions(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = [event for name in ("mysql", "mongodb", "sqlserver") for event, _ in POSITIONS[name]]
    messages = [change_message(event) or {} for event in events]
    got = [row.position for row in debezium(frame(spark, tmp_path, events)).collect()]
    assert got == [message.get("position") for message in messages]


SOURCE = "source struct<lsn:bigint>"


@pytest.mark.parametrize(
    ("ddl", "before", "expected"),
    [
        (f"op string, after struct<id:int,at:timestamp>, {SOURCE}", (), "struct<id:int,at:timestamp>"),
        (f"op string, after struct<id:int>, {SOURCE}, before void", (None,), "struct<id:int>"),
        (f"op string, after struct<id:int>, {SOURCE}, before string", (None,), "struct<id:int>"),
    ],
)
def test_before_may_be_absent_void_or_text(
    spark: SparkSession, ddl: str, before: tuple[Any, ...], expected: str
) -> None:
    after = (1, None) if "timestamp" in ddl else (1,)
    df = debezium(spark.createDataFrame([("c", after, (5,), *before)], ddl))
    assert dict(df.dtypes)["row"] == expected
    assert [(row.row.id, row.position) for row in df.collect()] == [(1, 5)]


def test_a_row_of_text_is_read_in_the_type_of_the_other_and_null_if_it_does_not_fit(spark: SparkSession) -> None:
    """A stream that began without deletes reads the rows before them as text."""
    ddl = f"op string, before string, after struct<id:bigint,tags:array<bigint>>, {SOURCE}"
    texts = ['{"id":7,"tags":[1]}', '{"id":"seven"}', "oops"]
    df = debezium(spark.createDataFrame([("d", text, None, (1,)) for text in texts], ddl))
    assert rows(df.select("row")) == [{"row": {"id": 7, "tags": [1]}}, {}, {}]
    assert [row.before for row in df.collect()] == texts


def test_a_row_has_the_fields_of_both_types_and_the_wider_numbers(spark: SparkSession) -> None:
    before = "struct<id:int,old:string,n:bigint,d:decimal(10,2),w:struct<x:bigint>,m:boolean>"
    after = "struct<id:bigint,new:string,n:double,d:bigint,w:struct<y:bigint>,m:bigint>"
    values = [("d", (1, "o", 2, None, (3,), True), None, (1,)), ("u", None, (2, "n", 2.5, 9, (4,), 1), (2,))]
    df = debezium(spark.createDataFrame(values, f"op string, before {before}, after {after}, {SOURCE}"))
    kind = "struct<id:bigint,new:string,n:double,d:decimal(38,2),w:struct<y:bigint,x:bigint>,m:string,old:string>"
    assert dict(df.dtypes)["row"] == kind
    first, second = (plain(row.row.asDict(recursive=True)) for row in df.collect())
    assert first == {"id": 1, "old": "o", "n": 2.0, "w": {"x": 3}, "m": "true"}
    assert (second["n"], second["d"], second["w"], second["m"]) == (2.5, 9, {"y": 4}, "1")


def test_unreadable_lines_stay_and_tombstones_go(spark: SparkSession, tmp_path: Path) -> None:
    lines = [POSITIONS["mysql"][0][0], "null", "oops", '{"op": "u"}', "null"]
    found = debezium(frame(spark, tmp_path, lines)).collect()
    assert [(row.op, row[CORRUPT]) for row in found] == [("d", None), (None, "oops"), ("u", None)]


@pytest.mark.parametrize("options", [{}, {"columnNameOfCorruptRecord": CORRUPT}])
@pytest.mark.parametrize("has_schema", [False, True])
def test_unreadable_lines_of_a_plain_reader_are_rejected_with_their_text(
    spark: SparkSession, tmp_path: Path, has_schema: bool, options: dict[str, str]
) -> None:
    events = [event for event, _ in POSITIONS["postgresql"][:2]]
    log = [{"schema": {}, "payload": event} for event in events] if has_schema else events
    lines = [*map(json.dumps, log), "null", "oops", '{"op":"u","after":{"id"', "", "null"]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    df = debezium(spark.read.options(**options).json(str(tmp_path / "events.jsonl")))
    report = batch(MIRROR, df, store=tmp_path / "store")
    assert (report.counts.applied, report.counts.rejected) == (2, {"invalid": 2})
    rejected = read(spark, tmp_path / "store", "rejected").collect()
    assert {json.loads(row.message)[CORRUPT] for row in rejected} == {"oops", '{"op":"u","after":{"id"'}


def test_a_schema_of_the_readers_own_keeps_unreadable_lines_in_its_column(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('null\noops\n{"op":"c","after":{"id":1},"source":{"lsn":5}}')
    ddl = f"op string, after struct<id:bigint>, {SOURCE}"
    for more, expected in (("", [None]), (", _corrupt_record string", ["oops", None])):
        found = debezium(spark.read.schema(ddl + more).json(str(tmp_path / "events.jsonl"))).collect()
        assert [row.asDict().get(CORRUPT) for row in found] == expected


def wrapped(event: Any) -> Any:
    return {"schema": {"type": "struct"}, "payload": event}


def test_flat_and_wrapped_events_in_one_dataframe_give_the_same_messages(spark: SparkSession, tmp_path: Path) -> None:
    """The two forms have other types: the rows before are text where they are all null, and numbers are fractions."""
    events = [event for event, _ in POSITIONS["postgresql"][1:]] + PASSED_OVER  # the first has a number as text
    for first in (0, 1):
        log = [wrapped(event) if number % 2 == first else event for number, event in enumerate(events)]
        df = debezium(frame(spark, tmp_path, [*log, wrapped(None), "null", "oops"]))
        expected = [message for message in map(change_message, log) if message is not None]
        assert rows(df.select("op", "row", "table", "position").where(f"{CORRUPT} is null")) == [
            plain({name: message.get(name) for name in ("op", "row", "table", "position")}) for message in expected
        ]
        assert [row[CORRUPT] for row in df.where(f"{CORRUPT} is not null").collect()] == ["oops"]


def test_a_payload_of_text_is_no_tombstone(spark: SparkSession, tmp_path: Path) -> None:
    lines = [POSITIONS["mysql"][0][0], *PASSED_OVER, {"payload": "text"}, {"payload": None}]
    found = debezium(frame(spark, tmp_path, lines)).collect()
    assert [(row.op, row.payload, row.position is None) for row in found] == [("d", None, False), (None, "text", True)]
    assert [message and message.get("payload") for message in map(change_message, lines[-2:])] == ["text", None]


def test_a_value_that_fits_one_form_alone_makes_its_row_unreadable(spark: SparkSession) -> None:
    event = f"op:string,after:struct<id:bigint>,{SOURCE.replace(' ', ':', 1)}"
    ddl = f"op string, after struct<id:string>, {SOURCE}, payload struct<{event}>"
    flat = [("c", (text,), (5,), None) for text in ("x", None)]
    df = debezium(spark.createDataFrame([*flat, (None, None, None, ("c", (7,), (6,))), (None,) * 4], ddl))
    first, second, third = df.collect()
    assert json.loads(first[CORRUPT]) == {"op": "c", "after": {"id": "x"}, "source": {"lsn": 5}}
    assert (second.position, second[CORRUPT]) == (5, None)
    assert (third.row.id, third.position, third[CORRUPT]) == (7, 6, None)


def mirror(state: dict[str, Any], event: Event) -> tuple[dict[str, Any], list[Any]]:
    return {"row": None if event["op"] == "d" else event["row"], "n": state.get("n", 0) + 1}, []


MIRROR = Pipeline(name="mirror", group="row.id", order=Monotone("position"), handler=mirror)


def test_a_broken_event_is_rejected_with_its_content(spark: SparkSession, tmp_path: Path) -> None:
    source = {"lsn": 5, "table": "t"}
    lines = [
        {"op": "c", "before": None, "after": {"id": 1}, "source": source},
        {"op": "u", "before": None, "after": {"id": 2}, "source": {"lsn": None, "table": "no lsn"}},
        {"op": "u", "before": None, "after": None, "source": {"lsn": 6, "table": "no row"}},
        {"op": "?", "before": None, "after": {"id": 3}, "source": {"lsn": 7, "table": "no such op"}},
        {"op": "t", "before": None, "after": None, "source": {"lsn": 8, "table": "truncated"}},
        "oops",
    ]
    report = batch(MIRROR, debezium(frame(spark, tmp_path, lines)), store=tmp_path / "store")
    assert (report.counts.received, report.counts.applied, report.counts.rejected) == (5, 1, {"invalid": 4})
    rejected = [json.loads(row.message) for row in read(spark, tmp_path / "store", "rejected").collect()]
    assert {message[CORRUPT] or message["source"]["table"] for message in rejected} == {
        "no lsn",
        "no row",
        "no such op",
        "oops",
    }


@pytest.mark.parametrize("connector", ["sqlserver", "oracle"])
def test_a_position_of_several_fields_orders_the_columns(spark: SparkSession, tmp_path: Path, connector: str) -> None:
    events = [event for event, _ in POSITIONS[connector]]
    df = debezium(frame(spark, tmp_path, events[::-1]))
    order = MonotoneFields(POSITION_FIELDS[connector])
    pipeline = Pipeline(name="mirror", group="row.id", order=order, handler=mirror)
    batch(pipeline, df, store=tmp_path / "store")
    (state,) = read(spark, tmp_path / "store", "states").collect()
    assert json.loads(state.state) == {"row": {"id": 1, "value": 3}, "n": 4}
    with pytest.raises(InputError, match=r"no column 'position'"):
        batch(MIRROR, df, store=tmp_path / "other")


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("id int, __op string, __lsn bigint", r"has the columns id, __op, __lsn; expected .*without debezium\(\)"),
        (f"op string, {SOURCE}", "has the columns op, source; expected .*before or after"),
        ("op string, after struct<id:int>", "expected .*op, source"),
        (f"op string, after struct<id:int>, {SOURCE}, Position int", "column 'Position', which .*; rename it"),
    ],
)
def test_a_dataframe_of_other_columns_is_refused(spark: SparkSession, ddl: str, text: str) -> None:
    df = spark.createDataFrame([], ddl)
    with pytest.raises(InputError, match=text):
        debezium(df)


def test_columns_beside_the_payload_stay(spark: SparkSession) -> None:
    ddl = f"offset bigint, schema string, payload struct<op:string,after:struct<id:int>,{SOURCE.replace(' ', ':', 1)}>"
    df = debezium(spark.createDataFrame([(9, "s", ("c", (1,), (5,)))], ddl))
    assert df.columns == ["op", "after", "source", "offset", "row", "table", "position"]
    assert df.first()["offset"] == 9  # type: ignore[index]
