"""ASGI middleware for the ``Idempotency-Key`` header: a request that is repeated with its key runs once.

After the IETF draft draft-ietf-httpapi-idempotency-key-header-07: 400 for a missing or malformed key, 409 while the
first request runs, 422 if the key was used for another payload. Once a request has ended, its repetitions get its
status, headers and body, errors included. The middleware needs no web framework; it works with all that speak ASGI.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from inturn.core import limits
from inturn.core.errors import InturnError, KeyConflict, KeyRefused, LockLost, SetupError
from inturn.idempotency.keys import Completed, IdempotencyKeys, InProgress, Locked, noted

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("inturn.idempotency")

IN_SCOPE: Final = "inturn.idempotency"
"""The key of an ASGI scope under which the application finds the :class:`KeyedRequest`, or None."""

REPLAYED: Final = (b"idempotent-replayed", b"true")
"""The header that a stored response bears when it is sent again."""

_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')  # a String of RFC 9651
_BARE: Final = re.compile(r"[!#-+\--\[\]-~]+")  # as most clients send it: no space, quote, comma or backslash
_STORED_BYTES: Final = limits.BODY_BYTES * 3 // 4 - 64 * 1024  # base64 makes 4 bytes of 3; the rest is for headers


class KeyMissing(KeyRefused):
    """A request without an ``Idempotency-Key`` where one is required; the middleware answers it with 400."""


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
        """Return what ``keys.accept(lock, result=…)`` takes; an ``accept`` in a transaction of the caller's own too."""
        return msgspec.Raw(msgspec.json.encode(self))


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A running request that has a key.

    Attributes:
        key: the key that the client sent.
        lock: the lock. ``keys.accept(request.lock, response.result(), tx=tx)`` in the handler commits the response with
            the handler's own changes, exactly once; the ``accept`` of the middleware then changes nothing.
    """

    key: str
    lock: Locked


def signed_in(scope: Scope) -> str:
    """Return who sends a request: the user of an authentication middleware, else a digest of ``Authorization``."""
    user = scope.get("user")
    if getattr(user, "is_authenticated", False):
        for name in ("identity", "display_name"):
            with contextlib.suppress(AttributeError, NotImplementedError):  # Starlette's BaseUser leaves them to others
                if found := getattr(user, name):
                    return f"user {found}"
        raise SetupError(f"{type(user).__name__} has no identity; give IdempotencyMiddleware a user= of your own")
    sent = b"\n".join(_values(scope, b"authorization"))
    return hashlib.sha256(sent).hexdigest() if sent else ""


class IdempotencyMiddleware:
    """Run requests with the same ``Idempotency-Key``, caller, method and path once.

    Add it inside the framework's handling of errors: with Starlette and FastAPI by
    ``app.add_middleware(IdempotencyMiddleware, keys=keys)``. If the application raises, the key is released and the
    next request runs. The body of a request is read before the application runs. While it runs, the lock is extended;
    if the process dies, the key is free after ``timeout_s`` and the request can run again. The response is stored, then
    sent. A response that is streamed, or too long to be stored, is replaced by a 500 that says so.

    Args:
        app: the ASGI application.
        keys: the store of keys; any.
        required: whether a request without a key is refused; a function of the ASGI scope, or a constant.
        methods: the methods whose requests have keys. Other requests ignore theirs: GET is safe, PUT and DELETE are
            idempotent already.
        user: returns the caller, whose keys are separate; :func:`signed_in` by default. Give one where callers are told
            apart by anything but the ``Authorization`` header, such as a cookie, an API key or a certificate.
        timeout_s: the time in seconds after which the key of a process that died is free.
        keep_s: the time in seconds for which a response is kept; publish it to your clients. None: for ever.
        body_bytes: maximum size of a request with a key.
    """

    def __init__(
        self,
        app: App,
        keys: IdempotencyKeys,
        *,
        required: bool | Callable[[Scope], bool] = False,
        methods: Collection[str] = ("POST", "PATCH"),
        user: Callable[[Scope], str] = signed_in,
        timeout_s: float = limits.KEY_LOCK_S,
        keep_s: float | None = limits.KEY_KEPT_S,
        body_bytes: int = limits.BODY_BYTES,
    ) -> None:
        self._app = app
        self._keys = keys
        self._required = required if callable(required) else lambda _scope: required
        self._methods = frozenset(methods)
        self._user = user
        self._timeout_s = timeout_s
        self._keep_s = keep_s
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            key = key_of(_values(scope, b"idempotency-key"))
        except ValueError as error:
            await _send(send, problem(400, "Idempotency-Key is malformed", str(error)))
            return
        if key is None:
            await self._run_without_key(scope, receive, send)
            return
        body = await read_body(receive, self._body_bytes)
        if body is None:
            return  # the client is gone
        if len(body) > self._body_bytes:
            said = f"A request with an Idempotency-Key has at most {self._body_bytes} bytes."
            await _send(send, problem(413, "The request is too long", said))
            return
        await self._run_once(key, scope, body, receive, send)

    async def _run_without_key(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._required(scope):
            with contextlib.suppress(KeyMissing):  # a handler requires one
                await self._app({**scope, IN_SCOPE: None}, receive, send)
                return
        await _send(send, problem(400, "Idempotency-Key is missing", "This operation needs an Idempotency-Key header."))

    async def _run_once(self, key: str, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        stored_key = _stored_key(self._user(scope), scope["method"], scope.get("path", ""), key)
        payload = hashlib.sha256(scope.get("query_string", b"") + b"\0" + body).hexdigest()
        try:
            attempt = await self._keys.try_lock.aio(stored_key, self._timeout_s, payload=payload)
        except KeyConflict:
            said = "This Idempotency-Key was used for another payload before; give another request another key."
            await _send(send, problem(422, "Idempotency-Key is already used", said))
            return
        match attempt:
            case Locked():
                await self._run(KeyedRequest(key, attempt), scope, body, receive, send)
            case InProgress(retry_after_s=seconds):
                said = "A request with this Idempotency-Key is being processed; repeat it later."
                wait = ("retry-after", str(math.ceil(seconds)))
                await _send(send, problem(409, "A request is outstanding for this Idempotency-Key", said, wait))
            case Completed(json=text):
                await _send(send, msgspec.json.decode(text, type=StoredResponse), REPLAYED)

    async def _run(self, request: KeyedRequest, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        async def finish(response: StoredResponse) -> None:
            try:
                await self._keys.accept.aio_to_the_end(request.lock, response.result(), keep_s=self._keep_s)
            except LockLost:  # whose text names the caller and the key
                log.warning(
                    "%s %s: its response is not stored, since its lock was lost", scope["method"], scope.get("path")
                )
            await _send(send, response)

        taken = _Taken(finish)
        extending = asyncio.create_task(self._extend(request.lock))
        own_scope = {**scope, IN_SCOPE: request, "extensions": {}}  # no extension that sends a body past the middleware
        try:
            await self._app(own_scope, _replayed(body, receive), taken.take)
        except BaseException as error:
            if not taken.is_finished:
                with noted(error):
                    await self._keys.release.aio_to_the_end(request.lock)
            if not _is_ours(error):
                raise
        finally:
            extending.cancel()
        if not taken.is_finished:  # the application gave no answer, as when the client is gone
            await self._keys.release.aio_to_the_end(request.lock)

    async def _extend(self, lock: Locked) -> None:
        """Extend the lock for as long as the application runs."""
        pause_s = self._timeout_s / 3
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._keys.extend.aio(lock, self._timeout_s)
                pause_s = self._timeout_s / 3
            except LockLost:
                return  # the accept tells of it
            except InturnError as error:  # as when the connection is lost; the lock lasts a while longer
                log.warning("the lock of an Idempotency-Key could not be extended, and is tried again: %s", error)
                pause_s = self._timeout_s / 20


class _CannotBeStored(Exception):
    """Ends an application whose response is streamed or too long."""


def _is_ours(error: BaseException) -> bool:
    """Return whether an error only ended the application; task groups wrap it."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(_CannotBeStored)[1] is None
    return isinstance(error, _CannotBeStored)


class _Taken:
    """Takes the response of an application in place of the server, and finishes it once it is whole.

    After that the application may go on, with background tasks.
    """

    def __init__(self, finish: Callable[[StoredResponse], Awaitable[None]]) -> None:
        self.is_finished = self.is_refused = False
        self._finish = finish
        self._start: Message = {}
        self._parts: list[bytes] = []

    async def take(self, message: Message) -> None:
        """Take one message of the application.

        Raises:
            _CannotBeStored: if the response is streamed or too long, so that the application makes no more of it.
        """
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body" and not self.is_finished:
            self._parts.append(bytes(message.get("body", b"")))
            is_whole = not message.get("more_body", False)
            sent = [(bytes(name).lower(), bytes(value)) for name, value in self._start.get("headers", ())]
            self.is_refused = sum(map(len, self._parts)) > _STORED_BYTES
            self.is_refused |= not is_whole and b"content-length" not in dict(sent)
            if self.is_refused:
                log.error("a response is streamed or longer than %d bytes: exclude its route", _STORED_BYTES)
                said = "The request was processed, but its response is streamed or too long to be repeated."
                await self._end(problem(500, "The response cannot be stored", said))
                raise _CannotBeStored
            if is_whole:
                headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in sent)
                await self._end(StoredResponse(self._start["status"], headers, b"".join(self._parts)))

    async def _end(self, response: StoredResponse) -> None:
        self.is_finished = True  # from here on nobody knows whether it is stored, so the key is not released
        await self._finish(response)


def key_of(values: Iterable[bytes]) -> str | None:
    """Return the key of a request; None if it has none.

    Args:
        values: the values of its ``Idempotency-Key`` headers.

    The value is a String of RFC 9651, with quotes; a bare value is accepted too, since many clients send one.

    Raises:
        ValueError: if there are several headers, or the value is malformed.
    """
    match list(values):
        case []:
            return None
        case [value]:
            text = value.decode("latin-1").strip(" \t")
        case several:
            raise ValueError(f"The request has {len(several)} Idempotency-Key headers; send one.")
    if quoted := _QUOTED.fullmatch(text):
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if _BARE.fullmatch(text):
        return text
    raise ValueError('Idempotency-Key is a text in double quotes, such as "8e03978e-40d5-43e8-bc93-6894a57f9324".')


def problem(status: int, title: str, detail: str, *headers: tuple[str, str]) -> StoredResponse:
    """Return an error as ``application/problem+json`` (RFC 9457)."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    content = json.dumps(body).encode()
    own = (("content-type", "application/problem+json"), ("content-length", str(len(content))))
    return StoredResponse(status, own + headers, content)


def _stored_key(user: str, method: str, path: str, key: str) -> str:
    """Return the key in the store: of a caller, a method and a path; its digest if it is too long."""
    text = json.dumps([user, method, path, key])
    return text if len(text) <= limits.ID_LENGTH else hashlib.sha256(text.encode()).hexdigest()


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for given, value in scope.get("headers", ()) if given.lower() == name]


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body, or its beginning if it is longer than allowed; None if the client is gone."""
    parts = bytearray()
    while len(parts) <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return bytes(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the whole body first."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


async def _send(send: Send, response: StoredResponse, *headers: tuple[bytes, bytes]) -> None:
    sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    await send({"type": "http.response.start", "status": response.status, "headers": [*sent, *headers]})
    await send({"type": "http.response.body", "body": response.body})
