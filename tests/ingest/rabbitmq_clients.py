"""Publishers and other clients of RabbitMQ, for tests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aio_pika

from inturn.database import Database
from inturn.ingest import RabbitSource
from waiting import until


def in_channel(url: str, does: Callable[[Any], Awaitable[Any]]) -> Any:
    """Run a coroutine with a channel of a connection of its own."""

    async def run() -> Any:
        connection = await aio_pika.connect(url)
        async with connection:
            return await does(await connection.channel())

    return asyncio.run(run())


def declared(url: str, name: str, kind: str = "classic", **more: Any) -> None:
    """Make a queue."""
    in_channel(url, lambda channel: channel.declare_queue(name, durable=True, arguments={"x-queue-type": kind, **more}))


def published(url: str, queue: str, messages: Iterable[aio_pika.Message]) -> None:
    """Publish messages in order; return when the broker has confirmed them."""

    async def publish(channel: Any) -> None:
        exchange = channel.default_exchange
        await asyncio.gather(*(exchange.publish(outgoing, routing_key=queue) for outgoing in messages))

    in_channel(url, publish)


def depth(url: str, queue: str) -> int:
    """Return the number of messages that no consumer has."""
    queue_state = in_channel(url, lambda channel: channel.declare_queue(queue, passive=True))
    return int(queue_state.declaration_result.message_count)


def deleted(url: str, queue: str) -> None:
    """Delete a queue."""
    in_channel(url, lambda channel: channel.queue_delete(queue))


def message(n: int, account: str = "a", body: bytes | None = None, **more: Any) -> Any:
    """A message of an account, with its number."""
    more.setdefault("message_id", f"{account}-{n}")
    headers = more.pop("headers", {"account": account, "n": n})
    return aio_pika.Message(str(n).encode() if body is None else body, headers=headers, delivery_mode=2, **more)


def polled(source: RabbitSource, count: int) -> list[Any]:
    """The next records of a source."""
    records: list[Any] = []
    until(lambda: records.extend(source.poll(10, 1)) or len(records) >= count, f"{count} records")
    return records


def sent(db: Database) -> list[tuple[str | None, int | None]]:
    """The groups and revisions in the queue of payments."""
    return [(queued.group, queued.revision) for queued in db.queue("payments").peek(10_000)]
