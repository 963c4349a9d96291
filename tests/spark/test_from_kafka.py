"""Records of Kafka as messages of a pipeline: the mapping as columns."""

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from programs.ledger import ledger
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from inturn import Arrival, Monotone, MonotoneFields, Pipeline
from inturn.core.errors import InputError
from inturn.ingest import DebeziumMapping, MessageMapping
from inturn.ingest.debezium import POSITION_FIELDS
from inturn.spark import batch, from_kafka, messages, read

DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
BY_KEY = MessageMapping(group="key", revision="body.revision")


def records(spark: SparkSession, *values: bytes | None, key: bytes = b"acct-1", **headers: bytes) -> DataFrame:
    """What Spark's connector returns, from a topic with one partition."""
    pairs = list(headers.items())
    rows = [(key, value, "bank", 0, offset, None, 0, pairs) for offset, value in enumerate(values)]
    df = spark.createDataFrame(rows, DDL)
    return df.withColumn("timestamp", df["offset"].cast("timestamp"))


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_from_kafka_gives_a_record_the_columns_of_the_queue_log(spark: SparkSession) -> None:
    (row,) = from_kafka(records(spark, body(revision=7, amount=5)), BY_KEY).collect()
    assert row.asDict() | {"sent_at": row.sent_at.timestamp()} == {
        "sequence_number": 0,
        "group": "acct-1",
        "revision": 7,
        "dedup_id": None,
        "body": '{"revision": 7, "amount": 5}',
        "content": "json",
        "attributes": None,
        "sent_at": 0.0,
        "topic": "bank",
        "partition": 0,
        "__inturn_arrived": 0,
        "__inturn_corrupt_record": None,
    }


def test_from_kafka_maps_record_parts_like_an_ingest_source(spark: SparkSession) -> None:
    mapping = MessageMapping(group="partition", revision="position", id="headers.id", format="text")
    rows = from_kafka(records(spark, b"one", b"two", id=b"x-1"), mapping).collect()
    assert [(row.group, row.revision, row.dedup_id, row.body) for row in rows] == [
        ("0", 1, "x-1", "one"),
        ("0", 2, "x-1", "two"),
    ]
    (row,) = from_kafka(records(spark, b"\xff"), MessageMapping(format="bytes")).collect()
    assert (base64.b64decode(row.body), row.content) == (b"\xff", "bytes")


def test_an_unmappable_kafka_record_is_rejected_with_its_bytes(spark: SparkSession, tmp_path: Path) -> None:
    df = records(spark, body(revision=1, amount=5), b"\xff{", None, body(revision=2), b"{}", body(revision=3, amount=1))
    report = batch(ledger, messages(ledger, from_kafka(df, BY_KEY)), store=tmp_path / "store")
    assert (report.counts.applied, report.counts.rejected) == (1, {"invalid": 4})
    rejected = [json.loads(row.message) for row in read(spark, tmp_path / "store", "rejected").collect()]
    texts = [message["__inturn_corrupt_record"] for message in rejected if message.get("__inturn_corrupt_record")]
    by_offset = {message.get("offset"): message for message in map(json.loads, texts)}
    assert base64.b64decode(by_offset[1]["value_base64"]) == b"\xff{"
    assert by_offset[1]["error"].startswith("the body is not")


@pytest.mark.parametrize("arrival", [None, "at"], ids=["the place in the log", "a field of the pipeline"])
def test_kafka_records_arrive_by_partition_and_offset_in_whatever_order_rows_are(
    spark: SparkSession, tmp_path: Path, arrival: str | None
) -> None:
    """Offsets of a group fall and repeat from partition to partition; a replay applies the records alike."""
    last = 2**48 - 1
    places = [(0, 7), (0, 9), (0, last), (1, 0), (1, 1), (1, 7), (2, 0), (2, 7), (2**15 - 1, last)]
    seen = Pipeline(
        name="seen",
        group="account",
        order=Arrival(),
        id="id",
        arrival=arrival,
        handler=lambda state, event: ({"at": [*state.get("at", []), event["place"]]}, []),
    )

    def read_again(seed: int) -> list[list[int]]:
        shuffled = random.Random(seed).sample(places, len(places))
        rows = [(b"a", body(id=str(place), place=place), "bank", *place, None, 0, []) for place in shuffled]
        log = from_kafka(spark.createDataFrame(rows, DDL).repartition(3), MessageMapping())
        store = tmp_path / str(seed)
        batch(seen, messages(seen, log, "account string, id string, place array<bigint>"), store=store)
        (state,) = read(spark, store, "states").collect()
        return json.loads(state.state)["at"]

    assert [read_again(seed) for seed in range(3)] == [[list(place) for place in places]] * 3


def test_records_of_two_topics_at_equal_places_are_applied_alike_in_each_replay(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen = Pipeline(
        name="seen",
        group="account",
        order=Arrival(),
        id="id",
        handler=lambda state, event: ({"at": [*state.get("at", []), event["place"]]}, []),
    )

    def rows_of(topic: str) -> list[Any]:
        names = [f"{topic}{offset}" for offset in range(4)]
        return [(b"a", body(id=name, place=name), topic, 0, n, None, 0, []) for n, name in enumerate(names)]

    def replayed(topics: str) -> list[str]:
        rows = [row for topic in topics for row in rows_of(topic)]
        log = from_kafka(spark.createDataFrame(rows, DDL).coalesce(1), MessageMapping())
        batch(seen, messages(seen, log, "account string, id string, place string"), store=tmp_path / topics)
        (state,) = read(spark, tmp_path / topics, "states").collect()
        return json.loads(state.state)["at"]

    once = replayed("xyz")
    assert once == replayed("zxy") == replayed("yzx")
    assert [place[1] for place in once] == sorted(place[1] for place in once)


@pytest.mark.parametrize(("place", "says"), [((2**15, 0), "partition of a record.* is 32768"), ((0, 2**48), "offset")])
def test_a_place_beyond_the_range_of_arrivals_is_refused(
    spark: SparkSession, place: tuple[int, int], says: str
) -> None:
    log = from_kafka(spark.createDataFrame([(b"a", b"{}", "bank", *place, None, 0, [])], DDL), MessageMapping())
    with pytest.raises(PythonException, match=says):
        log.collect()


def test_from_kafka_skips_tombstones_with_ignore_empty(spark: SparkSession) -> None:
    mapping = MessageMapping(group="key", revision="body.revision", ignore_empty=True)
    assert from_kafka(records(spark, None, body(revision=1), None), mapping).count() == 1


def test_from_kafka_maps_debezium_changes_to_columns(spark: SparkSession, tmp_path: Path) -> None:
    def change(lsn: int, op: str, before: Any, after: Any) -> bytes:
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "stock", "lsn": lsn}
        return body(op=op, before=before, after=after, source=source)

    rows = [
        change(10, "c", None, {"sku": "a", "left": 3}),
        change(30, "d", {"sku": "a", "left": 1}, None),
        None,
        change(20, "u", {"sku": "a", "left": 3}, {"sku": "a", "left": 1}),
        change(40, "t", None, None),
    ]
    log = from_kafka(records(spark, *rows, key=body(sku="a")), DebeziumMapping())
    assert {(row.group, row.revision) for row in log.collect()} == {
        ('shop.public.stock/{"sku":"a"}', 10),
        ('shop.public.stock/{"sku":"a"}', 20),
        ('shop.public.stock/{"sku":"a"}', 30),
        (None, None),
    }
    stock = Pipeline(
        name="stock",
        group="row",
        order=Monotone("lsn"),
        handler=lambda _state, event: ({"now": event["after"]}, [event["op"]]),
    )
    columns = messages(stock, log, "op string, after struct<sku:string,left:bigint>")
    report = batch(stock, columns, store=tmp_path / "store")
    assert report.counts.applied == 3
    outputs = read(spark, tmp_path / "store", "outputs").orderBy("revision").collect()
    assert [json.loads(row.output) for row in outputs] == ["c", "u", "d"]


def test_sql_server_changes_are_ordered_by_their_positions(spark: SparkSession, tmp_path: Path) -> None:
    """Behind the last one the connector started again, and sends the first two again at another time."""
    places = [
        ("27:ac0:1", None, None),
        ("27:ac0:00A", "27:0ac0:3", 1),
        ("00000027:00000AC0:000a", "00000027:00000ac0:0003", 9),
        ("27:ac0:a", "27:ac0:3", 10),
        ("100:1:1", "27:fff:1", 1),
    ]

    def change(left: int, position: tuple[Any, ...], ts_ms: int) -> bytes:
        source = dict(zip(("commit_lsn", "change_lsn", "event_serial_no"), position, strict=True))
        return body(op="u", before=None, after={"left": left}, ts_ms=ts_ms, source={"table": "stock", **source})

    rows = [change(left, position, 1) for left, position in enumerate(places)]
    rows += [change(left, position, 2) for left, position in enumerate(places[:2])]
    log = from_kafka(records(spark, *rows, key=body(sku="a")), DebeziumMapping())
    stock = Pipeline(
        name="stock",
        group="row",
        order=MonotoneFields(POSITION_FIELDS["sqlserver"]),
        ignore=("ts_ms",),
        handler=lambda state, event: ({"seen": [*state.get("seen", []), event["after"]["left"]]}, [event["op"]]),
    )
    source = "struct<commit_lsn:string,change_lsn:string,event_serial_no:bigint>"
    columns = messages(stock, log, f"op string, after struct<left:bigint>, ts_ms bigint, source {source}")
    report = batch(stock, columns, store=tmp_path / "store")
    assert (report.counts.applied, report.counts.duplicate + report.counts.rejected.get("conflict", 0)) == (5, 2)
    (state,) = read(spark, tmp_path / "store", "states").collect()
    assert (state.group, state.revision) == ('stock/{"sku":"a"}', None)
    assert json.loads(state.state) == {"seen": [0, 1, 2, 3, 4]}
    outputs = read(spark, tmp_path / "store", "outputs").collect()
    assert {"27:ac0:1/-/-", "100:1:1/27:fff:1/1"} < {row.id for row in outputs}


@pytest.mark.parametrize(
    ("drop", "mapping", "says"),
    [
        ("offset", BY_KEY, "no column 'offset'; from_kafka"),
        ("headers", MessageMapping(group="headers.account"), "includeHeaders"),
    ],
)
def test_a_data_frame_without_the_kafka_columns_is_refused(
    spark: SparkSession, drop: str, mapping: MessageMapping, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        from_kafka(records(spark).drop(drop), mapping)
