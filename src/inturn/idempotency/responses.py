"""Responses of an application behind the ``Idempotency-Key`` middleware: their selection, storage and form."""

import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec

from inturn.core import limits

Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

log = logging.getLogger("inturn.idempotency")

REPLAYED: Final = (b"idempotent-replayed", b"true")
"""The header that is added to a stored response when it is sent again."""

_STORED_BYTES: Final = limits.BODY_BYTES * 3 // 4 - 64 * 1024  # base64 turns 3 bytes into 4; the rest is for headers
_TRANSIENT: Final = frozenset({429, 502, 503, 504})


class StoredResponse(msgspec.Struct, frozen=True):
    """The stored form of a response.

    Attributes:
        status: the HTTP status.
        headers: names and values, in order.
        body: the whole body.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def result(self) -> msgspec.Raw:
        """Return the result for ``keys.accept(lock, result=…)``, also for one in a transaction of the caller."""
        return msgspec.Raw(msgspec.json.encode(self))


def is_final(status: int) -> bool:
    """Return whether a response is stored by default: its status is none of 429, 502, 503 and 504."""
    return status not in _TRANSIENT


def problem(status: int, title: str, detail: str, *headers: tuple[str, str]) -> StoredResponse:
    """Return an error as ``application/problem+json`` (RFC 9457)."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    content = json.dumps(body).encode()
    own = (("content-type", "application/problem+json"), ("content-length", str(len(content))))
    return StoredResponse(status, own + headers, content)


async def send_response(send: Send, response: StoredResponse, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole response to the ASGI server."""
    sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    await send({"type": "http.response.start", "status": response.status, "headers": [*sent, *headers]})
    await send({"type": "http.response.body", "body": response.body})


class CannotBeStored(Exception):
    """Ends an application whose response is streamed or too long."""


def is_cannot_be_stored(error: BaseException) -> bool:
    """Return whether an error is only a :class:`CannotBeStored`; task groups wrap it."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(CannotBeStored)[1] is None
    return isinstance(error, CannotBeStored)


class CapturedResponse:
    """Takes the response of an application in place of the server.

    A response that is stored is finished once it is whole. Any other is passed on as it arrives, and the key is
    released before its last part. After that the application may continue, with background tasks.

    Args:
        stores: whether a response of this status is stored.
        finish: stores and sends a response.
        release: releases the key.
        send: the server's.
    """

    def __init__(
        self,
        stores: Callable[[int], bool],
        finish: Callable[[StoredResponse], Awaitable[None]],
        release: Callable[[], Awaitable[None]],
        send: Send,
    ) -> None:
        self.is_finished = False
        self._stores = stores
        self._finish = finish
        self._release = release
        self._send = send
        self._start: Message = {}
        self._is_stored = True
        self._parts: list[bytes] = []

    async def on_message(self, message: Message) -> None:
        """Take one message of the application.

        Raises:
            CannotBeStored: if the response is to be stored, and is streamed or too long; it ends the application.
        """
        if message["type"] == "http.response.start":
            self._start = message
            self._is_stored = self._stores(message["status"])
            if not self._is_stored:
                await self._send(message)
        elif message["type"] == "http.response.body" and not self.is_finished:
            await (self._buffer(message) if self._is_stored else self._forward(message))

    async def _forward(self, message: Message) -> None:
        if not message.get("more_body", False):
            self.is_finished = True
            await self._release()  # before the client has all of it, and repeats the request
        await self._send(message)

    async def _buffer(self, message: Message) -> None:
        self._parts.append(bytes(message.get("body", b"")))
        is_whole = not message.get("more_body", False)
        sent = [(bytes(name).lower(), bytes(value)) for name, value in self._start.get("headers", ())]
        if sum(map(len, self._parts)) > _STORED_BYTES or (not is_whole and b"content-length" not in dict(sent)):
            log.error(
                "a response is streamed or longer than %d bytes, so it cannot be stored; exclude its route",
                _STORED_BYTES,
            )
            detail = "The request was processed, but its response is streamed or too long to be stored."
            await self._finish_once(problem(500, "The response cannot be stored", detail))
            raise CannotBeStored
        if is_whole:
            headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in sent)
            await self._finish_once(StoredResponse(self._start["status"], headers, b"".join(self._parts)))

    async def _finish_once(self, response: StoredResponse) -> None:
        self.is_finished = True  # from here on it may be stored, so the key is not released
        await self._finish(response)
