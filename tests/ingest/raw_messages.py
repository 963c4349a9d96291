"""Messages of RabbitMQ with properties as bytes of the protocol, which no client would write."""

import struct
from collections.abc import Iterable
from typing import Any, Self

from pamqp import commands, encode
from pamqp.common import Struct

from ingest.rabbitmq_clients import in_channel

_FLAGS = commands.Basic.Properties.flags


class RawText(str):
    """A text that is encoded as the given bytes."""

    encoded: bytes

    def __new__(cls, encoded: bytes) -> Self:
        message = super().__new__(cls, "raw")
        message.encoded = encoded
        return message

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self.encoded


class RawMessage:
    """A message whose properties are encoded by hand, in any order."""

    def __init__(self, body: bytes, **properties: bytes) -> None:
        self.body = body
        names = [name for name in commands.Basic.Properties.__slots__ if name in properties]
        self.encoded = struct.pack(">H", sum(_FLAGS[name] for name in names)) + b"".join(
            properties[name] for name in names
        )


def short(text: bytes) -> bytes:
    """Encode a short text."""
    return bytes([len(text)]) + text


def instant(value: int) -> bytes:
    """Encode a timestamp, in whatever unit."""
    return struct.pack(">Q", value)


def table(*fields: tuple[bytes, bytes]) -> bytes:
    """Encode a table of names and values, each with the letter of its type."""
    return sized(b"".join(short(name) + value for name, value in fields))


def sized(data: bytes) -> bytes:
    """Encode bytes with their length."""
    return struct.pack(">I", len(data)) + data


def text(value: str) -> bytes:
    """Encode a field's value that is a text."""
    return b"S" + encode.long_string(value)


def number(value: int) -> bytes:
    """Encode a field's value that is a number."""
    return b"l" + Struct.long_long_int.pack(value)


def published_raw(
    url: str, routing_key: str, messages: Iterable[RawMessage], *, exchange: str = "", timeout_s: float = 30
) -> None:
    """Publish messages in order, each confirmed."""

    async def publish(channel: Any) -> None:
        raw = await channel.get_underlay_channel()
        for message in messages:
            await raw.basic_publish(
                message.body,
                exchange=exchange,
                routing_key=routing_key,
                properties=_Encoded(message.encoded),
                timeout=timeout_s,
            )

    in_channel(url, publish)


class _Encoded(commands.Basic.Properties):
    """Properties that are encoded already."""

    def __init__(self, encoded: bytes) -> None:
        super().__init__(message_id="unused")
        self._encoded = encoded

    def marshal(self) -> bytes:
        return self._encoded
