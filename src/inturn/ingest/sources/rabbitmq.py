"""A queue of RabbitMQ, classic or quorum: one partition, without positions; acknowledged after the commit.

The connection has an event loop in its own thread, so that heartbeats continue while a commit waits.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import queue
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from inturn.core.errors import InputError, SetupError, SourceError
from inturn.core.override import override
from inturn.ingest import limits as source_limits
from inturn.ingest.events import EVENTS
from inturn.ingest.source import PollBatch, Source, SourceRecord, UnreadableHeader, header_value
from inturn.ingest.sources.amqp_decoding import install_total_decoding
from inturn.ingest.sources.rabbitmq_guard import log_guard

if TYPE_CHECKING:
    from collections.abc import Container, Coroutine, Mapping, Sequence

    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue
    from aiormq.abc import DeliveredMessage
    from pamqp.commands import Basic

    from inturn.ingest.positions import PositionForm

T = TypeVar("T")


_PROPERTIES: Final = {
    "app-id": "app_id",
    "content-encoding": "content_encoding",
    "content-type": "content_type",
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "priority": "priority",
    "reply-to": "reply_to",
    "type": "message_type",
    "user-id": "user_id",
}


class RabbitSource(Source):
    """A queue of RabbitMQ.

    A record's headers are those of the message and its properties, in the protocol's spelling: ``message-id``,
    ``correlation-id``, ``type``, ``app-id``; a property overrides a header of its name. Headers that are not texts
    are JSON. Its key is the routing key, its time the timestamp. Its position counts the deliveries of one connection.

    It is the only consumer: a queue that another consumer reads is refused. The lock among sources is the exclusive
    queue ``inturn.reader.QUEUE``. Nothing is ever requeued.

    Args:
        url: the server, such as ``amqp://user:password@host/vhost``.
        queue: the name of the queue, which exists.
        prefetch: the maximum number of messages that are delivered and not acknowledged.

    Raises:
        InputError: if prefetch is not valid.
        SetupError: if aio-pika is not installed.
    """

    has_positions: ClassVar[bool] = False
    position_form: PositionForm = "none"

    def __init__(self, url: str, queue: str, *, prefetch: int = source_limits.RABBITMQ_PREFETCH) -> None:
        if not isinstance(prefetch, int) or not 1 <= prefetch <= 65_535:
            raise InputError(f"prefetch is {prefetch!r}; expected a number from 1 to 65,535")
        try:
            import aio_pika
        except ImportError as error:
            raise SetupError(f"RabbitMQ needs aio-pika: pip install 'inturn[rabbitmq]' ({error})") from error
        self._pika = aio_pika
        self._url, self._queue, self._prefetch = url, queue, prefetch
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._link: _Link | None = None
        self._has_logged_guard = self._has_logged_size = False

    @override
    def partitions(self) -> Sequence[str]:
        return [self._queue]

    @override
    def open(self, partition: str, position: Any) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.call_soon(install_total_decoding)  # in the thread that decodes
            self._thread = threading.Thread(target=self._loop.run_forever, name="inturn-rabbitmq", daemon=True)
            self._thread.start()
        self._link = self._call(self._connect())

    async def _connect(self) -> _Link:
        """Connect, and check that the queue exists."""
        from aiormq import exceptions

        try:
            connection = await self._pika.connect(
                self._url, timeout=source_limits.BROKER_CALL_S, heartbeat=source_limits.RABBITMQ_HEARTBEAT_S
            )
        except exceptions.ProbableAuthenticationError as error:
            raise SourceError("RabbitMQ refuses the login; check the user and password of the URL") from error
        except exceptions.InvalidFrameError as error:  # the broker closed the connection instead of opening it
            raise SourceError(
                "RabbitMQ has no such virtual host, or this user may not use it; check the URL"
            ) from error
        except (exceptions.AMQPError, OSError) as error:
            raise SourceError(f"RabbitMQ cannot be reached, or has no such virtual host: {error}") from None
        try:
            channel = await connection.channel(publisher_confirms=False)
            await channel.set_qos(prefetch_count=self._prefetch)
            declared = await channel.declare_queue(self._queue, passive=True)
        except (exceptions.AMQPError, ValueError) as error:
            await connection.close()
            raise SourceError(f"the queue {self._queue!r} cannot be read: {error}") from None
        return _Link(connection, channel, declared)

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        link = self._link
        if link is None:
            return []
        if not link.is_consuming:
            self._call(link.consume())
            self._log_guard(link)
        batch = PollBatch(limit, self.batch_bytes)
        try:
            while not batch.is_full:
                record = link.unreturned
                if record is None:
                    message = link.messages.get_nowait() if batch.records else link.messages.get(timeout=timeout_s)
                    self._log_size(link)
                    link.consumed_bytes += len(message.body)
                    record = self._record(message)
                link.unreturned = None if batch.add(record) else record
        except queue.Empty:
            if not batch.records:
                link.check()
        return batch.records

    def _log_guard(self, link: _Link) -> None:
        """Log, once, if another consumer may also read the queue."""
        if not self._has_logged_guard:
            self._has_logged_guard = True
            self._call(log_guard(link.connection, self._queue))

    def _log_size(self, link: _Link) -> None:
        """Log, once, that the delivered messages are large: the broker has no bound in bytes."""
        held_bytes = link.received - link.consumed_bytes
        if held_bytes > source_limits.RABBITMQ_HELD_BYTES and not self._has_logged_size:
            self._has_logged_size = True
            text = (
                "RabbitMQ has delivered %(bytes)d bytes of queue %(queue)r, which wait in memory; lower the source's "
                "prefetch, now %(prefetch)d messages of any size"
            )
            EVENTS.warning(
                "large_messages", self._queue, text, queue=self._queue, bytes=held_bytes, prefetch=self._prefetch
            )

    def _record(self, message: DeliveredMessage) -> SourceRecord:
        key: str | bytes = message.routing_key or ""
        timestamp: Any = message.header.properties.timestamp
        return SourceRecord(
            partition=self._queue,
            position=message.delivery_tag,
            body=message.body,
            key=key.encode() if isinstance(key, str) else key,
            headers=_headers(message.header.properties),
            time_ms=round(timestamp.timestamp() * 1000) if isinstance(timestamp, dt.datetime) else None,
        )

    @override
    def confirm(self, partition: str, position: Any) -> None:
        if self._link is not None:
            self._call(self._link.acknowledge(position))

    @override
    def lag(self, partition: str) -> int | None:
        return None if self._link is None else self._call(self._link.remaining())

    @override
    def close(self, partition: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._call(link.connection.close())

    @override
    def shutdown(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self.close(self._queue)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the connection's loop."""
        assert self._loop is not None  # noqa: S101 - for mypy: a link has a loop
        future = asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(coroutine, 2 * source_limits.BROKER_CALL_S), self._loop
        )
        return future.result()


class _Link:
    """A connection with its channel and consumer; deliveries are valid only within it."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel, declared: AbstractQueue) -> None:
        self.connection = connection
        self.messages: queue.SimpleQueue[DeliveredMessage] = queue.SimpleQueue()
        self.unreturned: SourceRecord | None = None  # for which the last poll had no room
        self.received = self.consumed_bytes = 0  # bytes of bodies, each counted by one thread
        self.is_consuming = False
        self._channel, self._found = channel, declared
        self._consumers: Container[str | None] = ()  # of the channel; the broker removes ours by a cancellation
        self._tag: str | None = None

    async def consume(self) -> None:
        """Begin to receive.

        Raises:
            SourceError: if another consumer reads the queue.
        """
        from aiormq.exceptions import AMQPError

        async def receive(message: DeliveredMessage) -> None:
            self.received += len(message.body)
            self.messages.put(message)

        try:
            # A quorum queue does not refuse a second consumer, such as ours while a paused process still has one. It
            # would divide the messages among both, and later deliver those of the leaving one to the other. So sources
            # take a lock. Other consumers are counted before, and again after in case both counted at once.
            await self._lock()
            await self._check_consumers(0)
            # aio-pika's own message class fails for a property of an unexpected type.
            channel: Any = await self._channel.get_underlay_channel()
            begun = await channel.basic_consume(self._found.name, receive, exclusive=True)
            await self._check_consumers(1)
        except AMQPError as error:
            raise SourceError(f"the queue {self._found.name!r} cannot be read exclusively: {error}") from None
        self._consumers, self._tag = channel.consumers, begun.consumer_tag
        self.is_consuming = True

    async def _lock(self) -> None:
        """Take the lock of the queue's readers: an exclusive queue, which the broker keeps as long as the connection.

        Raises:
            SourceError: if another connection holds it.
        """
        from aiormq import exceptions

        channel, name = await self.connection.channel(publisher_confirms=False), _lock_name(self._found.name)
        try:
            await channel.declare_queue(name, exclusive=True)
        except exceptions.ChannelLockedResource:
            reason = "another source reads it"
            raise SourceError(f"the queue {self._found.name!r} cannot be read exclusively: {reason}") from None
        except exceptions.ChannelAccessRefused:
            text = (
                "the user may not declare queue %(lock)r, the lock that keeps a second reader away from %(queue)r; "
                "grant the user the 'configure' permission for it, or declare a quorum queue with "
                "x-single-active-consumer"
            )
            EVENTS.warning("unguarded", self._found.name, text, queue=self._found.name, lock=name)

    async def _check_consumers(self, own_consumers: int) -> None:
        declared = await self._channel.declare_queue(self._found.name, passive=True)
        count = declared.declaration_result.consumer_count or 0
        if count > own_consumers:
            raise SourceError(f"the queue {self._found.name!r} cannot be read exclusively: it has another consumer")

    async def acknowledge(self, tag: int) -> None:
        """Acknowledge everything up to a delivery."""
        channel = await self._channel.get_underlay_channel()
        await channel.basic_ack(tag, multiple=True)

    async def remaining(self) -> int | None:
        """Return the number of messages that are not delivered."""
        declared = await self._channel.declare_queue(self._found.name, passive=True)
        return declared.declaration_result.message_count

    def check(self) -> None:
        """Check that more may be delivered.

        Raises:
            SourceError: if the connection is lost, or the broker has cancelled the consumer.
        """
        if self._channel.is_closed or self.connection.is_closed:
            raise SourceError("the connection to RabbitMQ was lost")
        if self._tag not in self._consumers:
            raise SourceError(
                f"RabbitMQ has cancelled the consumer of the queue {self._found.name!r}: "
                "the queue was deleted, or its node is down"
            )


def _lock_name(queue: str) -> str:
    """Return the name of the exclusive queue that is the lock of a queue; names have at most 255 bytes."""
    name = f"inturn.reader.{queue}"
    return name if len(name.encode()) <= 255 else f"inturn.reader.{hashlib.sha256(queue.encode()).hexdigest()}"


def _headers(properties: Basic.Properties) -> Mapping[str, bytes | str]:
    """Return the headers and properties of a message."""
    raw_headers: Any = properties.headers or {}
    values = {"headers": raw_headers} if isinstance(raw_headers, UnreadableHeader) else dict(raw_headers)
    for name, attribute in _PROPERTIES.items():
        value = getattr(properties, attribute)
        if value is not None and value != "":
            values[name] = value
    if properties.expiration:
        values["expiration"] = _seconds(properties.expiration)
    if isinstance(properties.timestamp, UnreadableHeader):
        values["timestamp"] = properties.timestamp
    return {name: header_value(value) for name, value in values.items() if value is not None}


def _seconds(expiration: str | UnreadableHeader) -> float | UnreadableHeader:
    """Return the seconds of a text of milliseconds."""
    if isinstance(expiration, UnreadableHeader):
        return expiration
    try:
        return float(expiration) / 1000
    except ValueError as error:
        return UnreadableHeader(expiration.encode(), str(error))
