"""Whatever dies between a broker and a queue, each message comes once, in order.

Two instances of ``inturn ingest run`` share a source. Instances, connections, the broker and the database are killed
while messages are sent; an instance is paused until the other has taken over.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

import inturn
from cutting_proxy import CuttingProxy
from ingest.source_history import Name, check_came_once, numbered
from inturn.core.errors import InturnError
from inturn.database import Database
from inturn.demo.free_ports import free_port
from inturn.ingest import SourceControl
from kafka_started import Kafka, produce, topic
from rabbitmq_started import RabbitServer, missing
from sqs.fleet import Postgres
from waiting import DEADLINE_S

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = ["instance"] * 8 + ["pause"] * 3 + ["connection"] * 5 + ["broker"] * 2 + ["database"] * 2
PARTITIONS = 3  # of Kafka: the instances share them
LEASE_S = 1.0
WAIT_S = 120


class Broker(Protocol):
    """A broker that keeps its data when it is killed, behind a proxy.

    Attributes:
        config: the lines of a source that reads it through the proxy.
    """

    config: str

    def send(self, names: Sequence[Name]) -> None: ...

    def cut(self) -> None: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


def body(name: Name) -> bytes:
    return json.dumps({"account": name[0], "n": name[1]}).encode()


class ThroughKafka:
    def __init__(self, kafka: Kafka, proxy: CuttingProxy) -> None:
        self._topic = topic(kafka.servers, f"t{time.time_ns()}", PARTITIONS)
        self._servers = kafka.servers
        self.kill, self.start, self.cut = kafka.kill, kafka.start, proxy.cut
        self.config = f"""
            kind = "kafka"
            servers = "{kafka.proxy}"
            topic = "{self._topic}"
            mapping = {{ group = "body.account", revision = "body.n" }}
        """

    def send(self, names: Sequence[Name]) -> None:
        for number in range(PARTITIONS):
            bodies = [body(name) for name in names if sum(name[0].encode()) % PARTITIONS == number]
            produce(self._servers, self._topic, bodies, number)


class ThroughRabbitMQ:
    def __init__(self, server: RabbitServer, proxy: CuttingProxy) -> None:
        from ingest.rabbitmq_clients import declared

        declared(server.url, "payments", "quorum", **{"x-single-active-consumer": True})
        self._url = server.url
        self.kill, self.start, self.cut = server.kill, server.start, proxy.cut
        self.config = f"""
            kind = "rabbitmq"
            url = "{server.url.replace(str(server.port), str(proxy.port))}"
            from_queue = "payments"
            mapping = {{ group = "body.account", revision = "body.n", id = "headers.message-id" }}
        """

    def send(self, names: Sequence[Name]) -> None:
        import aio_pika

        from ingest.rabbitmq_clients import published

        messages = [aio_pika.Message(body(name), delivery_mode=2, message_id=f"{name[0]}/{name[1]}") for name in names]
        published(self._url, "payments", messages)


class ThroughSqs:
    def __init__(self, folder: Path, port: int, proxy: CuttingProxy) -> None:
        import boto3

        command = [sys.executable, "-m", "inturn", "serve", "--db", str(folder / "served.db"), "--port", str(port)]
        self._command, self.cut = command, proxy.cut
        self.start()
        self._client: Any = boto3.client("sqs", "us-east-1", endpoint_url=f"http://127.0.0.1:{port}")
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "2"}
        self._url = answered(lambda: self._client.create_queue(QueueName="q.fifo", Attributes=attributes)["QueueUrl"])
        self.config = f"""
            kind = "sqs"
            queue_url = "{self._url.replace(str(port), str(proxy.port))}"
            region = "us-east-1"
            visibility_s = 2
            mapping = {{ revision = "body.n" }}
        """

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def send(self, names: Sequence[Name]) -> None:
        for name in names:
            answered(
                lambda name=name: self._client.send_message(
                    QueueUrl=self._url,
                    MessageBody=body(name).decode(),
                    MessageGroupId=name[0],
                    MessageDeduplicationId=f"{name[0]}/{name[1]}",
                )
            )


@pytest.fixture(params=["kafka", "rabbitmq", "sqs"])
def broker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    if request.param == "kafka":
        kafka: Kafka = request.getfixturevalue("kafka")
        with CuttingProxy(kafka.ports["cut"], kafka.ports["proxy"]) as proxy:
            yield ThroughKafka(kafka, proxy)
        return
    if request.param == "rabbitmq":
        if reason := missing():
            pytest.skip(reason)
        (tmp_path / "rabbitmq").mkdir()
        server = RabbitServer(tmp_path / "rabbitmq")
        with CuttingProxy(server.port) as proxy:
            yield ThroughRabbitMQ(server, proxy)
        server.kill()
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    port = free_port()
    with CuttingProxy(port) as proxy:
        through = ThroughSqs(tmp_path, port, proxy)
        yield through
        through.kill()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    postgres = Postgres()
    yield postgres
    postgres.close()


class Instances:
    """Two processes that share the source, started again when they end, as a supervisor does."""

    def __init__(self, config: Path) -> None:
        self._command = [sys.executable, "-m", "inturn", "ingest", "run", str(config)]
        self._log = (config.parent / "log").open("ab")
        self.running = [self._started() for _ in range(2)]

    def _started(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, stdout=self._log, stderr=self._log)

    def keep(self) -> None:
        """Start those again that ended."""
        self.running = [process if process.poll() is None else self._started() for process in self.running]

    def of(self, pid: int) -> "subprocess.Popen[bytes] | None":
        return next((process for process in self.running if process.pid == pid), None)

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait(DEADLINE_S)
        self._log.close()


def test_killed_instances_brokers_and_databases_lose_and_reorder_no_message(
    broker: Broker, postgres: Postgres, tmp_path: Path, soak_seed: int, soak_times: int
) -> None:
    chance = random.Random(soak_seed)
    each_once = sorted(set(KILLS))
    kills = chance.sample(each_once, len(each_once)) + chance.choices(KILLS, k=6 * soak_times - len(each_once))
    names = numbered(chance, 10 * (len(kills) + 1), 9)
    config = tmp_path / "ingest.toml"
    config.write_text(f"""
        [[sources]]
        name = "bank"
        queue = "{postgres.url}#payments"
        batch = 7
        lease_s = {LEASE_S}
        {broker.config}
    """)
    instances = Instances(config)
    try:
        broker.send(names[:10])
        came(instances, postgres, 10)
        for place, kill in enumerate(kills, 1):
            broker.send(names[10 * place : 10 * place + 10])
            time.sleep(chance.random() / 2)
            if kill == "connection":
                broker.cut()
            elif kill == "broker":
                broker.kill()
                broker.start()
            elif kill == "database":
                postgres.kill()
                postgres.start()
            elif kill == "instance":
                chance.choice(instances.running).kill()
            else:
                pause_the_owner(instances, postgres)
            instances.keep()
        came(instances, postgres, len(names))
    finally:
        instances.end()
    with inturn.open(postgres.url) as db:
        check_came_once(db.queue("payments"), names)
    print(f"{len(kills)} of {len(kills)} lives were killed, {len(names)} messages came: {Counter(kills)}")


def pause_the_owner(instances: Instances, postgres: Postgres) -> None:
    """Stop the instance that reads until the other has its partition; then it wakes up with what it had read."""
    paused = None
    with inturn.open(postgres.url) as db:
        ends = time.monotonic() + WAIT_S
        while paused is None:
            assert time.monotonic() < ends, "nobody reads the source"
            instances.keep()
            paused = instances.of(owner(db))
            time.sleep(0.05)
        paused.send_signal(signal.SIGSTOP)
        while owner(db) in (0, paused.pid):
            assert time.monotonic() < ends, "nobody took over"
            instances.keep()
            time.sleep(0.05)
    paused.send_signal(signal.SIGCONT)


def owner(db: Database) -> int:
    """Return the id of the process that reads the source; 0: none."""
    names = [partition.owner for partition in SourceControl(db, "bank").partitions() if partition.owner]
    return int(names[0].split("/")[1]) if names else 0


def came(instances: Instances, postgres: Postgres, count: int) -> None:
    received, ends = 0, time.monotonic() + WAIT_S
    while received < count:
        assert time.monotonic() < ends, f"{received} of {count} came"
        instances.keep()
        with suppress(InturnError), inturn.open(postgres.url, create=False) as db:
            received = db.queue("payments").depth().messages
        time.sleep(0.1)


def answered(call: Callable[[], Any]) -> Any:
    """Call until a server that is being started answers."""
    from botocore.exceptions import BotoCoreError, ClientError

    ends = time.monotonic() + WAIT_S
    while True:
        try:
            return call()
        except (BotoCoreError, ClientError):
            if time.monotonic() > ends:
                raise
            time.sleep(0.1)
