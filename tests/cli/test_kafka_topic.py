"""A topic as the source of ``inturn run``: its address, the file of its mapping, and the connector that it needs."""

import socket
from pathlib import Path

import pytest

from inturn.cli.topic import KafkaTopic
from inturn.core.errors import InputError, SourceError
from inturn.ingest import DebeziumMapping, MessageMapping, SchemaRegistry
from inturn.spark.local.connector import connector_package, connector_settings, missing_connector

ADDRESS = "kafka://kafka-1:9092,kafka-2:9093/shop.public-orders_1"


def configured(folder: Path, text: str) -> KafkaTopic:
    (folder / "mapping.toml").write_text(text)
    topic = KafkaTopic.parsed(ADDRESS, folder / "mapping.toml")
    assert topic is not None
    return topic


def test_an_address_names_the_brokers_and_the_topic() -> None:
    topic = KafkaTopic.parsed(ADDRESS, None)
    assert topic is not None
    assert (topic.servers, topic.name) == ("kafka-1:9092,kafka-2:9093", "shop.public-orders_1")
    assert topic.config.message_mapping() == MessageMapping()
    assert topic.config.options() == {"startingOffsets": "earliest"}


@pytest.mark.parametrize(
    "source", ["events/", "shop.db#payments", "s3://bucket/kafka://", "postgresql://h/shop#orders"]
)
def test_other_sources_are_no_topic_and_take_no_mapping(source: str) -> None:
    assert KafkaTopic.parsed(source, None) is None
    with pytest.raises(InputError, match=r"mapping is 'm.toml'.*expected kafka://"):
        KafkaTopic.parsed(source, Path("m.toml"))


@pytest.mark.parametrize(
    "source",
    [
        "kafka://",
        "kafka://h/t",
        "kafka://h:1",
        "kafka://h:1/",
        "kafka://h:1,/t",
        "kafka://h:1/t/u",
        "kafka://me:pw@h:1/t",
    ],
)
def test_a_malformed_address_is_refused_with_its_form(source: str) -> None:
    with pytest.raises(InputError, match="expected kafka://HOST:PORT"):
        KafkaTopic.parsed(source, None)


def test_a_topic_is_reachable_if_one_of_its_brokers_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_ = server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            closed = other.getsockname()[1]
        topic_at(f"127.0.0.1:{closed},127.0.0.1:{open_}").check_reachable()
        alone = topic_at(f"127.0.0.1:{closed}")
        with pytest.raises(SourceError, match=rf"cannot connect to Kafka at 127.0.0.1:{closed}: .*refused"):
            alone.check_reachable()
    beyond = topic_at("127.0.0.1:70000")
    with pytest.raises(SourceError, match="70000"):
        beyond.check_reachable()


def topic_at(servers: str) -> KafkaTopic:
    topic = KafkaTopic.parsed(f"kafka://{servers}/t", None)
    assert topic is not None
    return topic


def test_the_file_of_a_mapping_has_the_settings_of_an_ingest_source(tmp_path: Path) -> None:
    topic = configured(
        tmp_path,
        """
        group = "body.account"
        revision = "headers.version"

        [kafka]
        "security.protocol" = "SASL_SSL"
        "session.timeout.ms" = 9000

        [connector]
        startingOffsets = "latest"
        failOnDataLoss = false

        [schema_registry]
        url = "http://127.0.0.1:1"
        value = "avro"
        """,
    )
    assert topic.config.message_mapping() == MessageMapping(group="body.account", revision="headers.version")
    assert topic.config.options() == {
        "startingOffsets": "latest",
        "failOnDataLoss": "false",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.session.timeout.ms": "9000",
    }
    assert topic.config.schema_registry is not None
    assert isinstance(topic.config.schema_registry.decoder(topic.name, topic.folder), SchemaRegistry)
    assert isinstance(configured(tmp_path, 'preset = "debezium"').config.message_mapping(), DebeziumMapping)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('group = "value.id"', r"mapping.toml.*group is 'value.id'"),
        ('groups = "key"', "mapping.toml.*groups"),
        ('[kafka]\n"bootstrap.servers" = "h:1"', "bootstrap.servers is set; remove it"),
        ('[connector]\nsubscribe = "t"', "subscribe is set; remove it"),
    ],
)
def test_a_wrong_setting_of_a_mapping_names_the_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        configured(tmp_path, text)


def test_a_session_for_a_topic_gets_the_connector_from_maven_or_from_jars() -> None:
    assert connector_settings(None) == {"spark.jars.packages": connector_package()}
    assert connector_settings("a.jar,b.jar") == {"spark.jars": "a.jar,b.jar"}
    assert connector_settings("") == {}
    assert connector_package("3.5.9") == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.9"
    assert connector_package("4.2.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
    assert missing_connector(ValueError("topic not found")) is None
