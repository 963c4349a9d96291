"""Real engines for the lab's validation: each handles the same messages as its model, and leaves the same kind of log.

A handling sleeps as long as the model's, and fails where the model's fails. What is recorded is when each began and
ended at which consumer, so one function computes the figures of both.
"""

import asyncio
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Protocol
from zlib import crc32

import aio_pika
import boto3
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

import inturn
from inturn.lab import Knobs
from inturn.lab.design import Disposition, SimulationLog
from inturn.lab.draws import AttemptResult, Draws
from inturn.lab.workload import Workload
from inturn.sqs.config import Config, ServerConfig
from inturn.sqs.run import Endpoint

LIMIT_S = 180
"""The longest run of an engine."""


class Recorder:
    """The handler of an engine, and the log of what it did.

    Attributes:
        log: what happened, with times since the first message could be handled.
        done: whether each message was applied.
        arrived_us: when each message was really there: a sender may be late.
        spent_us: times of the engine's calls, by name: what a probe reads.
    """

    def __init__(self, load: Workload, draws: Draws, consumers: int) -> None:
        self.load, self.log = load, SimulationLog(load, consumers)
        self.done = threading.Event()
        self.spent_us: dict[str, list[float]] = defaultdict(list)
        self._duration_us, self._failing = draws.duration_us, draws.pending_failures()
        self.arrived_us = list(load.arrival_us)
        self._left, self._lock = set(range(len(load))), threading.Lock()
        self.began = time.perf_counter()

    def start(self) -> None:
        """Begin to count the time."""
        self.began = time.perf_counter()

    def now_us(self) -> int:
        return int((time.perf_counter() - self.began) * 1e6)

    def arrive(self, message: int) -> None:
        """Note that a message is there."""
        self.arrived_us[message] = self.now_us()

    def handle(self, consumer: int, message: int, *, is_pure: bool = False) -> bool:
        """Handle a message, and return whether it was applied.

        A pure handler may be called again for what it has made already, before the commit: its first call counts.
        """
        begin_us = self.now_us()
        time.sleep(self._duration_us[message] / 1e6)
        end_us = self.now_us()
        with self._lock:
            if is_pure and message not in self._left:
                return True
            result = AttemptResult.APPLIED
            if message in self._failing.messages:
                result = self._failing.next(message)
            self.log.attempts.append((begin_us, end_us, consumer, message, int(result)))
            if result is AttemptResult.APPLIED:
                self.log.disposition[message] = Disposition.APPLIED
                self._left.discard(message)
                if not self._left:
                    self.done.set()
        return result is AttemptResult.APPLIED

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.spent_us[name].append((time.perf_counter() - begun) * 1e6)

    def finished(self) -> SimulationLog:
        """Return the log, in the order in which handlings ended."""
        self.log.attempts.sort(key=lambda attempt: attempt[1])
        return self.log

    def gap_us(self, *, same_group: bool = False) -> float:
        """Return the median time of a consumer between the end of a handling and the begin of the next."""
        last: dict[int, tuple[int, int]] = {}
        gaps = []
        for begin_us, end_us, consumer, message, _ in self.log.attempts:
            group = self.load.group[message]
            if consumer in last and (not same_group or last[consumer][1] == group):
                gaps.append(begin_us - last[consumer][0])
            last[consumer] = (end_us, group)
        return median(gaps)


class Engine(Protocol):
    """A system that handles messages with several consumers."""

    name: str

    def run(self, load: Workload, draws: Draws, knobs: Knobs) -> Recorder:
        """Handle all messages; those with an arrival after 0 are sent then."""
        ...


def paced(load: Workload, recorder: Recorder, send: Callable[[int], None]) -> None:
    """Send each message when it arrives."""
    for message, at_us in enumerate(load.arrival_us):
        if (wait_us := at_us - recorder.now_us()) > 0:
            time.sleep(wait_us / 1e6)
        send(message)
        if at_us:
            recorder.arrive(message)


def is_backlog(load: Workload) -> bool:
    return not load.arrival_us[-1]


class Rabbit:
    """RabbitMQ: consumers with a prefetch that acknowledge what was applied and requeue what failed.

    Args:
        url: the server.
        arguments: those of the queues, such as ``{"x-queue-type": "quorum"}``.
        is_hashed: whether a group goes to one of as many queues as there are partitions, each with one consumer.
    """

    def __init__(
        self, url: str, name: str, arguments: dict[str, Any] | None = None, *, is_hashed: bool = False
    ) -> None:
        self.url, self.name, self._arguments, self._is_hashed = url, name, arguments, is_hashed

    def run(self, load: Workload, draws: Draws, knobs: Knobs) -> Recorder:
        recorder = Recorder(load, draws, knobs.consumers)
        queues = [f"lab-{number}" for number in range(knobs.partitions if self._is_hashed else 1)]
        asyncio.run(self._declare(queues, load if is_backlog(load) else None))
        barrier = threading.Barrier(knobs.consumers + 1)
        places = [queues[number % len(queues)] for number in range(knobs.consumers)]
        threads = [
            threading.Thread(
                target=lambda *args: asyncio.run(self._consume(*args)), args=(*place, knobs, recorder, barrier)
            )
            for place in enumerate(places)
        ]
        for thread in threads:
            thread.start()
        barrier.wait(30)
        recorder.start()
        if not is_backlog(load):
            asyncio.run(self._send_paced(queues, load, recorder))
        assert recorder.done.wait(LIMIT_S), f"{self.name} has not ended after {LIMIT_S} s"
        for thread in threads:
            thread.join()
        return recorder

    async def _declare(self, queues: Sequence[str], load: Workload | None) -> None:
        async with await aio_pika.connect(self.url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            for name in queues:
                await channel.queue_delete(name)
                await channel.declare_queue(name, durable=True, arguments=self._arguments)
            for message in range(len(load) if load is not None else 0):
                assert load is not None
                await channel.default_exchange.publish(_body(message), self._queue(queues, load, message))
            while load is not None:  # until the server has all of them
                counts = [(await channel.declare_queue(name, passive=True)).declaration_result for name in queues]
                if sum(count.message_count or 0 for count in counts) >= len(load):
                    break
                await asyncio.sleep(0.05)

    async def _send_paced(self, queues: Sequence[str], load: Workload, recorder: Recorder) -> None:
        async with await aio_pika.connect(self.url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            for message, at_us in enumerate(load.arrival_us):
                if (wait_us := at_us - recorder.now_us()) > 0:
                    await asyncio.sleep(wait_us / 1e6)
                recorder.arrive(message)
                await channel.default_exchange.publish(_body(message), self._queue(queues, load, message))

    @staticmethod
    def _queue(queues: Sequence[str], load: Workload, message: int) -> str:
        return queues[crc32(load.names[load.group[message]].encode()) % len(queues)]

    async def _consume(
        self, consumer: int, name: str, knobs: Knobs, recorder: Recorder, barrier: threading.Barrier
    ) -> None:
        async with await aio_pika.connect(self.url) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=knobs.prefetch)
            queue = await channel.declare_queue(name, passive=True)

            async def on(incoming: aio_pika.abc.AbstractIncomingMessage) -> None:
                if recorder.handle(consumer, int(incoming.body)):
                    await incoming.ack()
                else:
                    await incoming.nack(requeue=True)

            await asyncio.to_thread(barrier.wait, 30)
            await queue.consume(on)
            while not recorder.done.is_set():
                await asyncio.sleep(0.02)


def _body(message: int) -> aio_pika.Message:
    return aio_pika.Message(str(message).encode(), delivery_mode=1)


class Sqs:
    """SQS clients over ``inturn serve``: batches of ten, one delete for a batch."""

    name = "inturn serve, boto3"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, load: Workload, draws: Draws, knobs: Knobs) -> Recorder:
        return asyncio.run(self._run(load, draws, knobs))

    async def _run(self, load: Workload, draws: Draws, knobs: Knobs) -> Recorder:
        file = self._folder / f"served-{time.time_ns()}.db"
        with inturn.open(file) as db:
            async with Endpoint(db, Config(server=ServerConfig(port=0))) as endpoint:
                return await asyncio.to_thread(self._handle_all, endpoint.url, load, draws, knobs)

    def _handle_all(self, endpoint_url: str, load: Workload, draws: Draws, knobs: Knobs) -> Recorder:
        recorder = Recorder(load, draws, knobs.consumers)
        sqs = _client(endpoint_url)
        url = sqs.create_queue(QueueName="lab.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        names = [load.names[group] for group in load.group]

        def entry(message: int) -> dict[str, str]:
            group = names[message]
            return {
                "Id": str(message),
                "MessageBody": str(message),
                "MessageGroupId": group,
                "MessageDeduplicationId": str(message),
            }

        if is_backlog(load):
            for first in range(0, len(load), 10):
                sqs.send_message_batch(
                    QueueUrl=url, Entries=[entry(number) for number in range(first, min(first + 10, len(load)))]
                )
        threads = [
            threading.Thread(target=self._consume, args=(number, endpoint_url, url, knobs, recorder))
            for number in range(knobs.consumers)
        ]
        recorder.start()
        for thread in threads:
            thread.start()
        if not is_backlog(load):
            paced(load, recorder, lambda message: sqs.send_message_batch(QueueUrl=url, Entries=[entry(message)]))
        assert recorder.done.wait(LIMIT_S)
        for thread in threads:
            thread.join()
        return recorder

    @staticmethod
    def _consume(consumer: int, endpoint_url: str, url: str, knobs: Knobs, recorder: Recorder) -> None:
        sqs = _client(endpoint_url)
        while not recorder.done.is_set():
            with recorder.timed("receive"):
                messages = sqs.receive_message(
                    QueueUrl=url, MaxNumberOfMessages=knobs.batch, WaitTimeSeconds=1, AttributeNames=["MessageGroupId"]
                ).get("Messages", [])
            failed: set[str] = set()
            entries = []
            for message in messages:
                group = message["Attributes"]["MessageGroupId"]
                if group in failed or not recorder.handle(consumer, int(message["Body"])):
                    failed.add(group)
                    sqs.change_message_visibility(
                        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
                    )
                else:
                    entries.append({"Id": message["Body"], "ReceiptHandle": message["ReceiptHandle"]})
            if entries:
                with recorder.timed("delete"):
                    sqs.delete_message_batch(QueueUrl=url, Entries=entries)


def _client(endpoint_url: str) -> Any:
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client("sqs", endpoint_url=endpoint_url, region_name="eu-west-1", **keys)


class Kafka:
    """A consumer group of Kafka: a failed record is tried again in place, offsets are committed after each batch."""

    def __init__(self, servers: str, name: str) -> None:
        self.name, self._servers = name, servers

    def run(self, load: Workload, draws: Draws, knobs: Knobs) -> Recorder:
        recorder = Recorder(load, draws, knobs.consumers)
        topic = f"lab-{time.time_ns()}"
        admin = AdminClient({"bootstrap.servers": self._servers})
        admin.create_topics([NewTopic(topic, knobs.partitions, 1)])[topic].result(30)
        ready = threading.Barrier(knobs.consumers + 1)
        threads = [
            threading.Thread(target=self._consume, args=(number, topic, knobs, recorder, ready))
            for number in range(knobs.consumers)
        ]
        for thread in threads:
            thread.start()
        ready.wait(60)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._servers, "partitioner": "murmur2_random", "linger.ms": 0}
        )

        def send(message: int) -> None:
            producer.produce(topic, str(message).encode(), load.names[load.group[message]].encode())
            producer.poll(0)

        recorder.start()
        paced(load, recorder, send)
        producer.flush(30)
        assert recorder.done.wait(LIMIT_S)
        for thread in threads:
            thread.join()
        return recorder

    def _consume(self, consumer: int, topic: str, knobs: Knobs, recorder: Recorder, ready: threading.Barrier) -> None:
        client = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "partition.assignment.strategy": "roundrobin",
            }
        )
        assigned = threading.Event()
        client.subscribe([topic], on_assign=lambda *_: assigned.set())
        while not assigned.is_set():
            assert not client.consume(1, 0.2)
        time.sleep(1)  # until the last of the group is there
        client.consume(0, 0)
        ready.wait(60)
        while not recorder.done.is_set():
            with recorder.timed("poll"):
                batch = client.consume(knobs.batch, 0.002)
            for record in batch:
                assert not record.error(), record.error()
                while not recorder.handle(consumer, int(record.value())):
                    time.sleep(knobs.backoff_s)
            if batch:
                with recorder.timed("commit"):
                    client.commit(asynchronous=False)
        client.close()


class Worker:
    """``inturn.work`` over an SQLite file: a failed message is tried again after a pause."""

    name = "inturn.work, SQLite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, load: Workload, draws: Draws, knobs: Knobs) -> Recorder:
        recorder = Recorder(load, draws, knobs.consumers)
        numbers: dict[int, int] = {}

        def apply(state: dict[str, int], message: dict[str, int]) -> tuple[dict[str, int], list[Any]]:
            consumer = numbers.setdefault(threading.get_ident(), len(numbers))
            if not recorder.handle(min(consumer, knobs.consumers - 1), message["m"], is_pure=True):
                raise inturn.Retryable("as its model does")
            return {"n": state.get("n", 0) + 1}, []

        retry = inturn.Retry(times=knobs.max_attempts, backoff=f"{int(knobs.backoff_s * 1000)} milliseconds")
        pipeline = inturn.Pipeline(
            name="lab", group="g", order=inturn.Gapless("r", start=0), handler=apply, retry=retry
        )
        with inturn.open(self._folder / f"worked-{time.time_ns()}.db") as db:
            queue = db.queue("lab")

            def draft(message: int) -> dict[str, Any]:
                return {"g": load.names[load.group[message]], "r": load.rank[message], "m": message}

            if is_backlog(load):
                bodies = [draft(message) for message in range(len(load))]
                queue.send_many([inturn.queue.draft(body, group=body["g"]) for body in bodies])
            from inturn.worker import Worker as Running

            recorder.start()
            with Running(pipeline, queue, concurrency=knobs.consumers):
                if not is_backlog(load):
                    paced(load, recorder, lambda message: queue.send(draft(message), group=draft(message)["g"]))
                assert recorder.done.wait(LIMIT_S), json.dumps({"attempts": len(recorder.log.attempts)})
        return recorder
