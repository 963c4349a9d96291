"""Outputs are confirmed messages of an exchange."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pytest

from inturn import deliver
from inturn.core.errors import DeliveryError, DeliveryRefused
from threads import together

pytestmark = pytest.mark.thorough


@pytest.fixture
def rabbitmq(rabbitmq_url: str) -> Iterator[Callable[..., Any]]:
    """Makes deliveries that are closed at the end."""
    sinks: list[deliver.rabbitmq] = []

    def make(url: str = rabbitmq_url, **more: Any) -> deliver.rabbitmq:
        sinks.append(deliver.rabbitmq(url, **more))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


async def ready(url: str, queue: str, **more: Any) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("postings", "direct", durable=True)
        declared = await channel.declare_queue(queue, durable=True, **more)
        await declared.bind(exchange, "a")


async def taken(url: str, queue: str) -> list[tuple[Any, ...]]:
    async with await aio_pika.connect(url) as connection:
        messages = []
        declared = await (await connection.channel()).get_queue(queue)
        while (message := await declared.get(no_ack=True, fail=False)) is not None:
            messages.append(message)
    return [
        (item.message_id, item.headers["effect-id"], item.delivery_mode, json.loads(item.body)) for item in messages
    ]


def test_an_output_is_a_persistent_rabbitmq_message_with_its_effect_id(
    rabbitmq: Callable[..., Any], rabbitmq_url: str
) -> None:
    asyncio.run(ready(rabbitmq_url, "one"))
    post = rabbitmq(exchange="postings", key="account")
    post({"account": "a", "n": 1}, "e1")
    post.close()
    post({"account": "a", "n": 2}, "e2")
    rabbitmq(routing_key="one")({"n": 3}, "e3")
    assert asyncio.run(taken(rabbitmq_url, "one")) == [
        ("e1", "e1", 2, {"account": "a", "n": 1}),
        ("e2", "e2", 2, {"account": "a", "n": 2}),
        ("e3", "e3", 2, {"n": 3}),
    ]


def test_threads_share_a_rabbitmq_connection(rabbitmq: Callable[..., Any], rabbitmq_url: str) -> None:
    asyncio.run(ready(rabbitmq_url, "many"))
    post = rabbitmq(routing_key="many")
    together(*(partial(post, {"n": n}, f"e{n}") for n in range(20)))
    assert sorted(message[0] for message in asyncio.run(taken(rabbitmq_url, "many"))) == sorted(
        f"e{n}" for n in range(20)
    )


def line_to(port: int, lines: list[socket.socket]) -> int:
    """Carry bytes to a port from the port that is returned; ``lines`` are the connections that there are."""

    def pump(near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(1 << 16):
                far.sendall(data)

    def listen() -> None:
        with suppress(OSError):
            while True:
                near, far = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                lines.extend((near, far))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=listen, daemon=True).start()
    return int(listener.getsockname()[1])


def test_a_lost_rabbitmq_connection_is_reopened(rabbitmq: Callable[..., Any], rabbitmq_url: str) -> None:
    asyncio.run(ready(rabbitmq_url, "again"))
    lines: list[socket.socket] = []
    real = urlsplit(rabbitmq_url).port or 0
    post = rabbitmq(rabbitmq_url.replace(str(real), str(line_to(real, lines))), routing_key="again")
    post({"n": 1}, "e1")
    for connection in lines:
        connection.shutdown(socket.SHUT_RDWR)
    for _ in range(100):
        with suppress(DeliveryError):  # the worker tries again
            post({"n": 2}, "e2")
            break
    assert [message[0] for message in asyncio.run(taken(rabbitmq_url, "again"))] == ["e1", "e2"]


def test_a_missing_exchange_route_or_key_raises_delivery_refused(
    rabbitmq: Callable[..., Any], rabbitmq_url: str
) -> None:
    asyncio.run(ready(rabbitmq_url, "refusing"))
    with pytest.raises(DeliveryRefused, match="NOT_FOUND - no exchange 'nowhere'"):
        rabbitmq(exchange="nowhere")({}, "e")
    post = rabbitmq(exchange="postings", routing_key="nobody")
    with pytest.raises(DeliveryRefused, match="routing key 'nobody': no queue"):
        post({}, "e")
    with pytest.raises(DeliveryRefused, match=r"has no field 'account', which is the routing key"):
        rabbitmq(key="account")({}, "e")


def test_a_full_queue_raises_a_retryable_delivery_error(rabbitmq: Callable[..., Any], rabbitmq_url: str) -> None:
    asyncio.run(ready(rabbitmq_url, "full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}))
    post = rabbitmq(routing_key="full")
    post({"n": 1}, "e1")
    with pytest.raises(DeliveryError, match="did not accept the message") as error:
        post({"n": 2}, "e2")
    assert not isinstance(error.value, DeliveryRefused)
    assert len(asyncio.run(taken(rabbitmq_url, "full"))) == 1
    post({"n": 2}, "e2")
    with pytest.raises(DeliveryError) as error:
        rabbitmq("amqp://guest:geheim@127.0.0.1:9/", routing_key="full")({}, "e")
    assert not isinstance(error.value, DeliveryRefused)
    with pytest.raises(DeliveryError) as error:
        rabbitmq(rabbitmq_url.replace(":guest@", ":geheim@"), routing_key="full")({}, "e")
    assert "geheim" not in str(error.value)
