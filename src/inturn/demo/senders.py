"""Senders of the airlines' messages: directly to the queue, or to a broker from which they are ingested."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec

import inturn
from inturn.core.queue.messages import Draft
from inturn.queue import draft

Send: TypeAlias = Callable[[Sequence[dict[str, Any]]], None]
"""Sends messages in their order, and returns when they are stored."""


@contextmanager
def sender(target: str, airline: str) -> Iterator[Send]:
    """Open a sender of an airline's messages.

    Args:
        target: ``flights.db#flights``, ``kafka://HOST:PORT/TOPIC``, or ``amqp://…#QUEUE``.
        airline: the airline; a message to a broker has it in its body.
    """
    if target.startswith("kafka://"):
        yield _to_kafka(target.removeprefix("kafka://"), airline)
    elif target.startswith("amqp"):
        with _to_rabbitmq(target, airline) as send:
            yield send
    else:
        path, _, name = target.partition("#")
        with inturn.open(path, create=False) as db:
            queue = db.queue(name, create=False)
            yield lambda bodies: _discard(queue.send_many([_draft(body, airline) for body in bodies]))


def _discard(_: object) -> None:
    """Return nothing, whatever was sent."""


def _draft(body: dict[str, Any], airline: str) -> Draft:
    return draft(body, group=body["tail"], revision=body["revision"], attributes={"airline": airline})


def _to_kafka(target: str, airline: str) -> Send:
    from confluent_kafka import Producer

    servers, _, topic = target.partition("/")
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})

    def send(bodies: Sequence[dict[str, Any]]) -> None:
        for body in bodies:
            producer.produce(topic, msgspec.json.encode(body | {"airline": airline}), key=body["tail"])
        if producer.flush(60):
            raise TimeoutError(f"Kafka at {servers} does not accept messages")

    return send


@contextmanager
def _to_rabbitmq(target: str, airline: str) -> Iterator[Send]:
    import aio_pika

    url, _, queue = target.partition("#")
    sent = 0

    async def publish(channel: Any, bodies: Sequence[dict[str, Any]]) -> None:
        nonlocal sent
        exchange = channel.default_exchange
        for body in bodies:
            sent += 1
            data = msgspec.json.encode(body | {"airline": airline})
            mode = aio_pika.DeliveryMode.PERSISTENT
            message = aio_pika.Message(data, message_id=f"{airline}-{sent}", delivery_mode=mode)
            await exchange.publish(message, routing_key=queue)

    with asyncio.Runner() as runner:
        connection = runner.run(aio_pika.connect(url))
        channel: Any = runner.run(_channel(connection))
        yield lambda bodies: runner.run(publish(channel, bodies))
        runner.run(connection.close())


async def _channel(connection: Any) -> Any:
    return await connection.channel()
