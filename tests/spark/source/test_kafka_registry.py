"""Records of Kafka in the framing of a schema registry: workers decode them, each with a client of its own."""

import base64
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from ingest.schema_registry_server import Registry, registry
from inturn import Gapless, Pipeline
from inturn.ingest import MessageMapping, SchemaRegistry
from inturn.spark import batch, from_kafka, messages, read

DDL = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "version", "type": "long"}],
}
BY_ID = MessageMapping(group="body.id", revision="body.version")
MODULE = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

kinds = descriptor_pb2.FieldDescriptorProto
file = descriptor_pb2.FileDescriptorProto(name="on_workers.proto", package="shop", syntax="proto3")
order = file.message_type.add(name="Order")
order.field.add(name="id", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
order.field.add(name="version", number=2, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
"""


@pytest.fixture
def schemas() -> Iterator[Registry]:
    with registry() as server:
        yield server


def client(schemas: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": schemas.url})


def records(spark: SparkSession, *values: bytes) -> DataFrame:
    rows = [(b"k", value, "orders", offset % 2, offset, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, DDL)


def encoded(serialize: Any, *orders: Any) -> list[bytes]:
    return [serialize(order, SerializationContext("orders", MessageField.VALUE)) for order in orders]


def bytes_of(fault: dict[str, str]) -> bytes:
    """The value of a rejected record, which is a text if it happens to be one."""
    return fault["value"].encode() if "value" in fault else base64.b64decode(fault["value_base64"])


def test_workers_decode_avro_records_and_reject_those_that_are_not(
    spark: SparkSession, schemas: Registry, tmp_path: Path
) -> None:
    serialize = AvroSerializer(client(schemas), json.dumps(ORDER))
    values = encoded(serialize, *({"id": "a", "version": version} for version in (2, 1, 3)))
    cut, unknown = values[0][:-1], b"\0\0\0\0\x63" + values[0][5:]
    decode = SchemaRegistry(schemas.url, "orders", value="avro")
    log = from_kafka(records(spark, *values, cut, unknown), BY_ID, decode=decode)
    orders = Pipeline(
        name="orders",
        group="id",
        order=Gapless("version"),
        handler=lambda state, event: ({"seen": [*state.get("seen", []), event["version"]]}, []),
    )
    report = batch(orders, messages(orders, log, "id string, version bigint"), store=tmp_path / "store")
    assert (report.counts.applied, report.counts.rejected) == (3, {"invalid": 2})
    (state,) = read(spark, tmp_path / "store", "states").collect()
    assert json.loads(state.state) == {"seen": [1, 2, 3]}
    rejected = [json.loads(row.message) for row in read(spark, tmp_path / "store", "rejected").collect()]
    faults = {fault["offset"]: fault for row in rejected for fault in [json.loads(row["__inturn_corrupt_record"])]}
    assert [bytes_of(faults[offset]) for offset in (3, 4)] == [cut, unknown]
    assert all(fault["error"].startswith("the value cannot be decoded as avro") for fault in faults.values())


def test_workers_decode_protobuf_with_a_module_from_a_folder(
    spark: SparkSession, schemas: Registry, tmp_path: Path
) -> None:
    (tmp_path / "on_workers_pb2.py").write_text(MODULE)
    decode = SchemaRegistry(schemas.url, "orders", value="protobuf", message="on_workers_pb2:Order", folder=tmp_path)
    from on_workers_pb2 import Order  # type: ignore[import-not-found]

    values = encoded(ProtobufSerializer(Order, client(schemas)), Order(id="a", version=5), Order(id="b"))
    rows = from_kafka(records(spark, *values), BY_ID, decode=decode).collect()
    assert sorted((row.group, row.revision, json.loads(row.body)) for row in rows) == [
        ("a", 5, {"id": "a", "version": "5"}),
        ("b", 0, {"id": "b", "version": "0"}),
    ]


def test_an_unavailable_registry_fails_the_step_and_a_repetition_loses_nothing(
    spark: SparkSession, schemas: Registry, tmp_path: Path
) -> None:
    values = encoded(AvroSerializer(client(schemas), json.dumps(ORDER)), {"id": "a", "version": 0})
    decode = SchemaRegistry(schemas.url, "orders", value="avro")
    orders = Pipeline(name="orders", group="id", order=Gapless("version", start=0), handler=lambda s, _: (s, []))
    log = from_kafka(records(spark, *values), BY_ID, decode=decode)
    columns = messages(orders, log, "id string, version bigint")
    schemas.answer = 503, {"error_code": 50301, "message": "away"}
    with pytest.raises(PythonException, match="HTTP 503"):
        batch(orders, columns, store=tmp_path / "store")
    schemas.answer = None
    assert batch(orders, columns, store=tmp_path / "store").counts.applied == 1


def test_a_pickled_decoder_shares_one_client_within_a_process(schemas: Registry) -> None:
    decode = SchemaRegistry(schemas.url, "orders", value="avro")
    copies = [pickle.loads(pickle.dumps(decode)) for _ in range(2)]  # noqa: S301 - its own
    assert copies[0] is copies[1]
    other = SchemaRegistry(schemas.url, "refunds", value="avro")
    assert pickle.loads(pickle.dumps(other)) is not copies[0]  # noqa: S301 - its own
