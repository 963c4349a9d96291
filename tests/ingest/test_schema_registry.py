"""Records in Avro, Protobuf and JSON Schema become messages, as Confluent's serializers write them."""

import datetime as dt
import json
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from typer.testing import CliRunner

import inturn
from ingest.schema_registry_server import Registry, registry
from inturn.cli import app
from inturn.core.errors import InputError, SourceError
from inturn.database import Database
from inturn.ingest import Ingest, KafkaSource, MessageMapping, SchemaRegistry, SourceControl, SourceRecord
from inturn.ingest.config import read
from kafka_started import produce, topic
from threads import Running
from waiting import until

pytestmark = pytest.mark.thorough

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "version", "type": "long"}],
}
BY_ID = MessageMapping(group="body.id", revision="body.version")


@pytest.fixture
def name(servers: str) -> str:
    return topic(servers, f"t{time.time_ns()}", 1)


@pytest.fixture
def schemas() -> Iterator[Registry]:
    with registry() as server:
        yield server


def client(schemas: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": schemas.url})


def avro(schemas: Registry, schema: Any, topic: str = "orders", field: Any = MessageField.VALUE) -> Any:
    serialize = AvroSerializer(client(schemas), json.dumps(schema))
    return lambda value: serialize(value, SerializationContext(topic, field))


def decoded(decode: SchemaRegistry, body: bytes | None, key: bytes | None = None, headers: Any = ()) -> SourceRecord:
    return decode(SourceRecord("0", 1, body, key, dict(headers)))


def with_fields(*fields: dict[str, Any]) -> dict[str, Any]:
    return ORDER | {"fields": [*ORDER["fields"], *fields]}


def test_avro_records_of_evolving_schemas_become_messages(
    db: Database, servers: str, name: str, schemas: Registry
) -> None:
    old, new = avro(schemas, ORDER), avro(schemas, with_fields({"name": "vip", "type": "boolean", "default": False}))
    orders = [
        old({"id": "a", "version": 1}),
        new({"id": "a", "version": 2, "vip": True}),
        old({"id": "b", "version": 1}),
    ]
    produce(servers, name, orders)
    decode = SchemaRegistry(schemas.url, name, value="avro")
    ingest = Ingest(KafkaSource(servers, name), db.queue("orders"), BY_ID, name="orders", decode=decode)
    before = len(schemas.asked)
    assert ingest.run(until="caught up") == (3, 0, 0, 0)
    assert [(message.group, message.revision, message.body) for message in db.queue("orders").peek()] == [
        ("a", 1, {"id": "a", "version": 1}),
        ("a", 2, {"id": "a", "version": 2, "vip": True}),
        ("b", 1, {"id": "b", "version": 1}),
    ]
    assert sorted(schemas.asked[before:]) == ["GET /schemas/ids/1", "GET /schemas/ids/2"]


def test_use_latest_version_decodes_old_avro_records_with_the_newest_schema(schemas: Registry) -> None:
    old = avro(schemas, ORDER)({"id": "a", "version": 1})
    avro(schemas, with_fields({"name": "vip", "type": "boolean", "default": False}))({"id": "a", "version": 2})
    options = {"use.latest.version": True, "subject.name.strategy.type": "TOPIC"}
    decode = SchemaRegistry(schemas.url, "orders", value="avro", options=options)
    assert json.loads(decoded(decode, old).body or b"") == {"id": "a", "version": 1, "vip": False}


def test_each_avro_logical_type_has_one_json_form(schemas: Registry) -> None:
    kinds: dict[str, Any] = {
        "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
        "millis": {"type": "long", "logicalType": "timestamp-millis"},
        "micros": {"type": "long", "logicalType": "timestamp-micros"},
        "date": {"type": "int", "logicalType": "date"},
        "uuid": {"type": "string", "logicalType": "uuid"},
        "raw": "bytes",
        "fixed": {"type": "fixed", "name": "F", "size": 2},
        "kind": {"type": "enum", "name": "E", "symbols": ["NEW", "OLD"]},
        "map": {"type": "map", "values": "double"},
        "none": ["null", "string"],
    }
    instant = dt.datetime(2024, 2, 29, 12, 30, 0, 123_000, dt.UTC)
    values = {
        "decimal": Decimal("123456789012345678.90"),
        "millis": instant,
        "micros": instant.replace(microsecond=123_456),
        "date": instant.date(),
        "uuid": uuid.UUID(int=7),
        "raw": b"\x00\xff",
        "fixed": b"ab",
        "kind": "OLD",
        "map": {"x": 0.1},
        "none": None,
    }
    schema = with_fields(*({"name": field, "type": kind} for field, kind in kinds.items()))
    data = avro(schemas, schema)({"id": "a", "version": 2**63 - 1} | values)
    assert json.loads(decoded(SchemaRegistry(schemas.url, "orders", value="avro"), data).body or b"") == {
        "id": "a",
        "version": 2**63 - 1,
        "decimal": "123456789012345678.90",
        "millis": "2024-02-29T12:30:00.123000Z",
        "micros": "2024-02-29T12:30:00.123456Z",
        "date": "2024-02-29",
        "uuid": "00000000-0000-0000-0000-000000000007",
        "raw": "AP8=",
        "fixed": "YWI=",
        "kind": "OLD",
        "map": {"x": 0.1},
        "none": None,
    }


def order_of_protobuf() -> Any:
    """The class that protoc would generate from a message Order."""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate(
        [("account_id", kinds.TYPE_STRING), ("version", kinds.TYPE_INT64), ("raw", kinds.TYPE_BYTES)], 1
    ):
        order.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="at", number=4, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=kinds.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_records_become_json_with_default_values(schemas: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    order = order_of_protobuf()
    serialize = ProtobufSerializer(order, client(schemas))
    first = order(account_id="a", raw=b"\xff")
    first.at.FromJsonString("2024-02-29T12:30:00.5Z")
    data = serialize(first, SerializationContext("orders", MessageField.VALUE))
    decode = SchemaRegistry(schemas.url, "orders", value="protobuf", message=order)
    record = decoded(decode, data)
    assert json.loads(record.body or b"") == {
        "account_id": "a",
        "version": "0",
        "raw": "/w==",
        "at": "2024-02-29T12:30:00.500Z",
    }
    draft = MessageMapping(group="body.account_id", revision="body.version").compiled()(record)
    assert draft is not None
    assert (draft.group, draft.revision) == ("a", 0)
    module = type(inturn)("orders_pb2")
    module.Order = order  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "orders_pb2", module)
    named = SchemaRegistry(schemas.url, "orders", value="protobuf", message="orders_pb2:Order")
    assert decoded(named, data).body == record.body


def test_a_generated_protobuf_module_is_found_beside_the_configuration(schemas: Registry, tmp_path: Path) -> None:
    order = order_of_protobuf()
    (tmp_path / "beside_pb2.py").write_text(
        "from ingest.test_schema_registry import order_of_protobuf\nOrder = order_of_protobuf()"
    )
    config = tmp_path / "ingest.toml"
    config.write_text(f"""
        [[sources]]
        name = "orders"
        kind = "kafka"
        queue = "shop.db#orders"
        servers = "127.0.0.1:1"
        topic = "orders"
        schema_registry = {{ url = "{schemas.url}", value = "protobuf", message = "beside_pb2:Order" }}
    """)
    (table,) = read(config).sources
    decode = table.decoder(tmp_path)
    assert decode is not None
    context = SerializationContext("orders", MessageField.VALUE)
    data = ProtobufSerializer(order, client(schemas))(order(account_id="a"), context) or b""
    assert json.loads(decode(SourceRecord("0", 1, data)).body or b"")["account_id"] == "a"
    with pytest.raises(InputError, match="the value cannot be decoded as protobuf"):
        decode(SourceRecord("0", 2, data[:-1]))


def test_json_schema_records_are_validated_and_kept_unchanged(schemas: Registry) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONSerializer  # two seconds, of each process of all tests

    schema = {"title": "Order", "type": "object", "properties": {"amount": {"type": "number", "minimum": 0}}}
    serialize = JSONSerializer(json.dumps(schema), client(schemas))
    data = serialize({"amount": 1}, SerializationContext("orders", MessageField.VALUE))
    assert data is not None
    decode = SchemaRegistry(schemas.url, "orders", value="json")
    exact = b'{"amount": 12345678901234567890.10}'
    assert decoded(decode, data[:5] + exact).body == exact
    with pytest.raises(InputError, match="-1 is less than the minimum"):
        decoded(decode, data[:5] + b'{"amount": -1}')
    lenient = SchemaRegistry(schemas.url, "orders", value="json", options={"validate": False})
    assert decoded(lenient, data[:5] + b'{"amount": -1}').body == b'{"amount": -1}'


def test_registry_keys_are_decoded_and_text_keys_are_unquoted(schemas: Registry) -> None:
    body = avro(schemas, ORDER)({"id": "a", "version": 1})
    text = avro(schemas, "string", field=MessageField.KEY)('a"é')
    record = avro(schemas, ORDER, field=MessageField.KEY)({"id": "k", "version": 7})
    decode = SchemaRegistry(schemas.url, "orders", value="avro", key="avro")
    assert decoded(decode, body, text).key == 'a"é'.encode()
    draft = MessageMapping(group="key.id", revision="key.version").compiled()(decoded(decode, body, record))
    assert draft is not None
    assert (draft.group, draft.revision) == ("k", 7)
    assert decoded(decode, None, text) == SourceRecord("0", 1, None, 'a"é'.encode(), {})
    assert decoded(SchemaRegistry(schemas.url, "orders", key="avro"), b"\xff", text).body == b"\xff"


def test_an_undecodable_record_is_rejected_with_its_bytes(
    db: Database, servers: str, name: str, schemas: Registry
) -> None:
    write = avro(schemas, ORDER)
    framed = write({"id": "a", "version": 1})
    unknown = b"\x00\x00\x00\x00\x63" + framed[5:]
    bad = [unknown, b"", b"\xff", b"no frame at all", framed[:6], b"\x00\x00\x00\x00\x01" + b"\xff" * 40, unknown]
    produce(servers, name, [framed, *bad, None, write({"id": "a", "version": 2})], key=b"k")
    decode = SchemaRegistry(schemas.url, name, value="avro")
    mapping = MessageMapping(group="body.id", revision="body.version", ignore_empty=True)
    ingest = Ingest(KafkaSource(servers, name), db.queue("orders"), mapping, name="orders", decode=decode)
    assert ingest.run(until="caught up") == (2, len(bad), 1, 0)
    rejected = list(SourceControl(db, "orders").rejected())
    assert [record.body for record in rejected] == bad
    assert rejected[0].reason == (
        "the value cannot be decoded as avro: "
        "SchemaRegistryError: Schema not found (HTTP status code 404, SR code 40403)"
    )
    assert "magic byte" in rejected[3].reason
    assert schemas.asked.count("GET /schemas/ids/99") == 1


def test_a_too_deeply_nested_avro_value_is_rejected(schemas: Registry) -> None:
    chain = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    tree = {"type": "record", "name": "T", "fields": [{"name": "of", "type": {"type": "map", "values": "T"}}]}
    decode = SchemaRegistry(schemas.url, "orders", value="avro")
    for schema, value, level, end in (
        (chain, {"n": {"n": None}}, b"\x02", b"\x00"),
        (tree, {"of": {"a": {"of": {}}}}, b"\x02\x02a", b"\x00"),
    ):
        data = avro(schemas, schema)(value)
        assert json.loads(decoded(decode, data).body or b"") == value
        for count in (5_000, 1_000_000):
            with pytest.raises(InputError, match="RecursionError"):
                decoded(decode, data[:5] + level * count + end)


def test_a_schema_with_references_is_decoded(schemas: Registry) -> None:
    item = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
    registry_client = client(schemas)
    registry_client.register_schema("item", Schema(json.dumps(item), "AVRO"))
    both = [{"name": "first", "type": "shop.Item"}, {"name": "all", "type": {"type": "array", "items": "shop.Item"}}]
    order = Schema(json.dumps(with_fields(*both)), "AVRO", [SchemaReference("shop.Item", "item", 1)])
    value = {"id": "a", "version": 1, "first": {"sku": "x"}, "all": [{"sku": "y"}]}
    data = AvroSerializer(registry_client, order)(value, SerializationContext("orders", MessageField.VALUE))
    assert json.loads(decoded(SchemaRegistry(schemas.url, "orders", value="avro"), data).body or b"") == value


def test_an_unavailable_schema_registry_is_retried(db: Database, servers: str, name: str, schemas: Registry) -> None:
    write = avro(schemas, ORDER)
    produce(servers, name, [write({"id": "a", "version": number}) for number in range(1, 31)])
    decode = SchemaRegistry(schemas.url, name, value="avro")
    ingest = Ingest(KafkaSource(servers, name), db.queue("orders"), BY_ID, name="orders", decode=decode)
    schemas.answer = (503, {"error_code": 50301, "message": "no leader"})
    before = len(schemas.asked)
    reading = Running(lambda: ingest.run(until="caught up"))
    until(lambda: len(schemas.asked) >= before + 2)
    schemas.stop()
    assert not list(SourceControl(db, "orders").rejected())
    schemas.answer = None
    schemas.start()
    reading.end()
    assert ingest.counts == (30, 0, 0, 0)
    assert [message.revision for message in db.queue("orders").peek(100)] == list(range(1, 31))


def test_each_kind_of_schema_registry_error_has_its_own_message(schemas: Registry) -> None:
    data = avro(schemas, ORDER)({"id": "a", "version": 1})
    schemas.login = "me:right"
    for login, words in ((None, r"refuses the credentials \(HTTP 401\)"), ("me:wrong", "check basic.auth.user.info")):
        options = {} if login is None else {"basic.auth.user.info": login}
        with pytest.raises(SourceError, match=words):
            decoded(SchemaRegistry(schemas.url, "orders", value="avro", options=options), data)
    options = {"basic.auth.user.info": "me:right"}
    decode = SchemaRegistry(schemas.url, "orders", value="avro", options=options)
    for answer, words in (
        ((403, {"error_code": 40301, "message": "no"}), "refuses the credentials"),
        ((500, {"error_code": 50001, "message": "store"}), "answers HTTP 500: store"),
        ((429, b"slower"), "answers HTTP 429"),
        ((404, b"<html>nothing here</html>"), "answers HTTP 404"),
        ((302, b""), "answers HTTP 302"),
        ((200, b"<html>please log in</html>"), "cannot be reached: JSONDecodeError"),
        ((200, {"status": "up"}), "check that it is a schema registry"),
    ):
        schemas.answer = answer
        with pytest.raises(SourceError, match=words):
            decoded(decode, data)
    schemas.answer = None
    assert decoded(decode, data).body == b'{"id":"a","version":1}'
    away = SchemaRegistry("http://127.0.0.1:1", "orders", value="avro")
    with pytest.raises(SourceError, match="cannot be reached: ConnectError"):
        decoded(away, data)


def test_ingest_commands_decode_records_and_report_refused_credentials(
    servers: str, name: str, schemas: Registry, tmp_path: Path
) -> None:
    produce(servers, name, [avro(schemas, ORDER)({"id": "a", "version": 1})])
    schemas.login = "me:right"

    def config(login: str) -> str:
        path = tmp_path / "ingest.toml"
        path.write_text(f"""
            [[sources]]
            name = "orders"
            kind = "kafka"
            queue = "shop.db#orders"
            servers = "{servers}"
            topic = "{name}"
            [sources.schema_registry]
            url = "{schemas.url}"
            value = "avro"
            options = {{ "basic.auth.user.info" = "{login}" }}
            [sources.mapping]
            group = "body.id"
        """)
        return str(path)

    run = CliRunner().invoke
    checked = run(app, ["ingest", "check", config("me:wrong")])
    assert checked.exit_code != 0
    assert "refuses the credentials (HTTP 401)" in " ".join(checked.output.split())
    (draft,) = json.loads(run(app, ["ingest", "check", config("me:right"), "--json"]).stdout)
    assert draft["group"] == "a"
    done = run(app, ["ingest", "run", config("me:right"), "--until-caught-up", "--json"])
    assert json.loads(done.stdout)[0]["received"] == 1


def test_invalid_schema_registry_settings_are_refused(schemas: Registry) -> None:
    for options, words in (
        ({}, "neither value nor key is set"),
        ({"value": "xml"}, "value is 'xml'; .* avro, protobuf, json"),
        ({"value": "protobuf"}, "value is 'protobuf', which needs message, such as 'orders_pb2:Order'"),
        ({"value": "avro", "message": "a:B"}, "value is 'avro', which takes no message"),
        ({"value": "protobuf", "message": "nowhere_pb2:Order"}, "cannot be imported: No module named 'nowhere_pb2'"),
        ({"value": "protobuf", "message": "Order"}, "expected a module and a class"),
        ({"value": "protobuf", "message": "json:loads"}, "is not a Protobuf message"),
        ({"value": "avro", "options": {"nonsense": 1}}, "Unrecognized properties: nonsense"),
        ({"value": "avro", "options": {"use.latest.version": 1}}, "must be a boolean"),
        ({"value": "avro", "options": {"ssl.ca.location": "/nowhere.pem"}}, "No such file"),
    ):
        with pytest.raises(InputError, match=words):
            SchemaRegistry(schemas.url, "orders", **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Invalid url"):
        SchemaRegistry("registry:8081", "orders", value="avro")
