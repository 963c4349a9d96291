"""Delivery to an exchange of RabbitMQ, with publisher confirms."""

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from inturn.core import limits
from inturn.core.address import without_password
from inturn.core.errors import DeliveryError, DeliveryRefused, SetupError
from inturn.deliver.fields import EFFECT_ID, body_of, text_at

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange


class rabbitmq:  # noqa: N801 - it is called as a function is
    """Deliver outputs as persistent JSON messages; ``message_id`` is the effect id.

    The call returns once the broker has confirmed the message. An exchange that does not exist or is forbidden, a
    message that no queue receives, and a message that is too large refuse the output for good.

    Args:
        url: ``amqp://user:password@host/vhost``.
        exchange: an existing exchange; empty: the default exchange, whose routing keys are queue names.
        routing_key: the routing key.
        key: path of the output's field that holds the routing key, instead of ``routing_key``.

    Raises:
        SetupError: if aio-pika is not installed.
    """

    def __init__(self, url: str, *, exchange: str = "", routing_key: str = "", key: str | None = None) -> None:
        try:
            import aio_pika
        except ImportError as error:
            raise SetupError(f"RabbitMQ needs aio-pika: pip install 'inturn[rabbitmq]' ({error})") from error
        self._library = aio_pika
        self._url, self._name, self._routing_key, self._key = url, exchange, routing_key, key
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mutex = threading.Lock()
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None
        self._opening: asyncio.Lock | None = None

    def __call__(self, output: Any, effect_id: str) -> None:
        """Deliver one output."""
        routing_key = self._routing_key if self._key is None else text_at(output, self._key, "routing key")
        sending = self._send(body_of(output), routing_key, effect_id)
        asyncio.run_coroutine_threadsafe(sending, self._running_loop()).result()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._mutex:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._disconnect(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    async def _send(self, body: bytes, routing_key: str, effect_id: str) -> None:
        from aiormq import exceptions

        message = self._library.Message(
            body,
            headers={EFFECT_ID: effect_id},
            message_id=effect_id,
            content_type="application/json",
            delivery_mode=self._library.DeliveryMode.PERSISTENT,
        )
        target = f"exchange {self._name!r}, routing key {routing_key!r}"
        try:
            exchange = await self._open_exchange()
            await exchange.publish(message, routing_key, mandatory=True, timeout=limits.DELIVER_TIMEOUT_S)
        except exceptions.PublishError as error:
            raise DeliveryRefused(f"{target}: no queue receives the message ({error}); bind one") from error
        except (
            exceptions.ChannelNotFoundEntity,
            exceptions.ChannelAccessRefused,
            exceptions.ChannelPreconditionFailed,
        ) as error:
            await self._disconnect()
            raise DeliveryRefused(f"{target}: {error}") from error
        except exceptions.DeliveryError as error:  # a negative confirm, such as from a full queue
            raise DeliveryError(f"{target}: the broker did not accept the message ({error})") from error
        except Exception as error:
            await self._disconnect()
            raise DeliveryError(without_password(f"{target}: {error!r}", self._url)) from error

    async def _open_exchange(self) -> "AbstractExchange":
        """Return the exchange, on the open connection or on another one."""
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._exchange is None or self._channel is None or self._channel.is_closed:
                await self._disconnect()
                self._connection = await self._library.connect(self._url, timeout=limits.DELIVER_TIMEOUT_S)
                self._channel = channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                self._exchange = (
                    await channel.get_exchange(self._name, ensure=True) if self._name else channel.default_exchange
                )
            return self._exchange

    async def _disconnect(self) -> None:
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            with suppress(Exception):  # it may be broken
                await connection.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the connection, which runs in a thread of its own."""
        with self._mutex:
            if self._loop is None:
                self._loop, self._opening = asyncio.new_event_loop(), None
                threading.Thread(target=self._loop.run_forever, name="inturn-rabbitmq", daemon=True).start()
            return self._loop
