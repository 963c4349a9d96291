"""The brokers through which the demo can receive its flights: started for the demo, or already running."""

import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar

from inturn.core.errors import SetupError
from inturn.core.override import override
from inturn.demo import kafka_server, rabbitmq_server
from inturn.ingest import KafkaSource, MessageMapping, RabbitSource, Source

_PARTITIONS = 3
_REQUEST_S = 5


class DemoBroker(ABC):
    """A broker between the airlines and the queue.

    Args:
        at: the address of a running broker; None: a broker is started for the demo, and stopped after it.
    """

    name: ClassVar[str]
    mapping: ClassVar[MessageMapping]

    def __init__(self, address: str | None = None) -> None:
        self.at = address

    @abstractmethod
    def check(self) -> None:
        """Check that the broker can be started; this may download it.

        Raises:
            SetupError: if something is missing.
        """

    @contextmanager
    def target(self) -> Iterator[str]:
        """Start the broker; yield the target for :func:`inturn.demo.senders.sender`: a topic or queue of this run."""
        name = f"inturn-demo-{uuid.uuid4().hex[:8]}"
        if self.at is not None:
            with self._create_target(self.at, name) as target:
                yield target
            return
        scratch = tempfile.TemporaryDirectory(prefix="inturn-demo-broker-", ignore_cleanup_errors=True)
        with scratch as folder, self._start(Path(folder)) as address, self._create_target(address, name) as target:
            yield target

    @abstractmethod
    def _start(self, folder: Path) -> AbstractContextManager[str]:
        """Start the broker in a folder; the context has its address."""

    @abstractmethod
    def _create_target(self, address: str, name: str) -> AbstractContextManager[str]:
        """Create a topic or queue, and delete it at the end; the context has the target."""

    @abstractmethod
    def source(self, target: str) -> Source:
        """Return the source that reads what was sent to a target."""


class DemoKafka(DemoBroker):
    """Kafka: a topic with three partitions; the aircraft is the key."""

    name = f"Kafka {kafka_server.VERSION}"
    mapping = MessageMapping(group="key", revision="body.revision")

    @override
    def check(self) -> None:
        try:
            import confluent_kafka  # noqa: F401 - only asked for
        except ImportError as error:
            raise SetupError("--kafka needs confluent-kafka; install it with: pip install 'inturn[kafka]'") from error
        if self.at is None and (reason := kafka_server.fetch(self._cache)):
            raise SetupError(f"{reason}; or use a running broker with --at HOST:PORT")

    @property
    def _cache(self) -> Path:
        return kafka_server.CACHE / f"kafka-{kafka_server.VERSION}"

    @override
    @contextmanager
    def _start(self, folder: Path) -> Iterator[str]:
        server = kafka_server.KafkaServer(folder, self._cache / "jars")
        try:
            yield server.servers
        finally:
            server.kill()

    @override
    @contextmanager
    def _create_target(self, address: str, name: str) -> Iterator[str]:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it has no stub of it

        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        try:
            admin.create_topics([NewTopic(name, _PARTITIONS, 1)], request_timeout=_REQUEST_S)[name].result(60)
        except KafkaException as error:
            raise SetupError(f"cannot create a topic at {address}: {error.args[0].str()}") from error
        try:
            yield f"kafka://{address}/{name}"
        finally:
            admin.delete_topics([name])[name].result(60)

    @override
    def source(self, target: str) -> Source:
        servers, _, topic = target.removeprefix("kafka://").partition("/")
        return KafkaSource(servers, topic)


class DemoRabbitMQ(DemoBroker):
    """RabbitMQ: a quorum queue; each message has an id."""

    name = "RabbitMQ"
    mapping = MessageMapping(group="body.tail", revision="body.revision", id="headers.message-id")

    @override
    def check(self) -> None:
        try:
            import aio_pika  # noqa: F401 - only asked for
        except ImportError as error:
            raise SetupError("--rabbitmq needs aio-pika; install it with: pip install 'inturn[rabbitmq]'") from error
        if self.at is None and rabbitmq_server.missing():
            raise SetupError(
                "--rabbitmq needs a RabbitMQ server: apt-get install rabbitmq-server; or use a running one with --at "
                "amqp://…"
            )

    @override
    def _start(self, folder: Path) -> AbstractContextManager[str]:
        return rabbitmq_server.rabbitmq(folder)

    @override
    @contextmanager
    def _create_target(self, address: str, name: str) -> Iterator[str]:
        import asyncio

        import aio_pika

        async def ask(*, delete: bool) -> None:
            async with await aio_pika.connect(address) as connection:
                channel = await connection.channel()
                if delete:
                    await channel.queue_delete(name)
                else:
                    await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})

        try:
            asyncio.run(ask(delete=False))
        except (OSError, aio_pika.exceptions.AMQPError) as error:
            raise SetupError(f"cannot create a queue in RabbitMQ: {error or type(error).__name__}") from error
        try:
            yield f"{address}#{name}"
        finally:
            asyncio.run(ask(delete=True))

    @override
    def source(self, target: str) -> Source:
        url, _, queue = target.partition("#")
        return RabbitSource(url, queue)
