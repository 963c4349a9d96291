"""ASGI middleware for the ``Idempotency-Key`` header: a request that is repeated with its key runs once.

It follows draft-ietf-httpapi-idempotency-key-header-07 of the IETF: 400 for a missing or malformed key, 409 while the
first request runs, 422 if the key was used for another payload. Once a request has ended, its repetitions get its
status, headers and body, errors included, unless its status asks for a retry. The middleware needs no web framework;
it works with every ASGI framework.
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
from inturn.core.errors import InturnError, KeyConflict, KeyRefused, LockLost, SetupError, StoreError
from inturn.idempotency.fingerprint import fingerprint
from inturn.idempotency.keys import Completed, IdempotencyKeys, InProgress, Locked, noting_release_errors
from inturn.idempotency.responses import (
    REPLAYED,
    CapturedResponse,
    Message,
    Send,
    StoredResponse,
    is_cannot_be_stored,
    is_final,
    problem,
    send_response,
)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("inturn.idempotency")

IN_SCOPE: Final = "inturn.idempotency"
"""The key of an ASGI scope under which the application finds the :class:`KeyedRequest`, or None."""

_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')  # a String of RFC 9651
_BARE: Final = re.compile(r"[!#-+\--\[\]-~]+")  # as most clients send it: no space, quote, comma or backslash
_RETRY_AFTER_S: Final = 2  # a request mostly ends soon, though its lock is long
_PAUSES_S: Final = (0.05, 1.0)  # between attempts of an accept: the first pause, and the longest


class KeyMissing(KeyRefused):
    """A request without an ``Idempotency-Key`` where one is required; the middleware answers it with 400."""


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
    """Return the caller of a request: the user of an authentication middleware, else a digest of ``Authorization``."""
    user = scope.get("user")
    if getattr(user, "is_authenticated", False):
        for name in ("identity", "display_name"):
            with contextlib.suppress(AttributeError, NotImplementedError):  # Starlette's BaseUser has none
                if value := getattr(user, name):
                    return f"user {value}"
        raise SetupError(f"{type(user).__name__} has no identity; pass a function user= to IdempotencyMiddleware")
    sent = b"\n".join(_values(scope, b"authorization"))
    return hashlib.sha256(sent).hexdigest() if sent else ""


class IdempotencyMiddleware:
    """Run requests with the same ``Idempotency-Key``, caller, method and path once.

    Add it inside the framework's handling of errors: with Starlette and FastAPI by
    ``app.add_middleware(IdempotencyMiddleware, keys=keys)``. If the application raises, the key is released and the
    next request runs. The body of a request is read before the application runs. While it runs, the lock is extended;
    if the process dies, the key is free after ``timeout_s`` and the request can run again. The response is stored, then
    sent. A response that is streamed, or too long to be stored, is replaced by a 500 that explains this.

    If the store fails before the request runs, the answer is 503. If it fails to store the response, the middleware
    tries again for half of ``timeout_s``; then the answer is a 500, and the key stays locked until ``timeout_s`` has
    passed.

    Args:
        app: the ASGI application.
        keys: the store of keys, of any kind.
        required: whether a request without a key is refused; a function of the ASGI scope, or a constant.
        methods: the methods whose requests have keys. The keys of other requests are ignored: GET is safe, PUT and
            DELETE are already idempotent.
        user: returns the caller, whose keys are separate; :func:`signed_in` by default. Pass one if callers are
            distinguished by anything but the ``Authorization`` header, such as a cookie, an API key or a certificate.
        timeout_s: the time in seconds after which the key of a process that died is free.
        store: whether a response of this status is stored; by default all but 429, 502, 503 and 504. After any other
            response the key is released, so that a repeated request runs again.
        keep_s: the time in seconds for which a response is kept; publish it to your clients. None: for ever.
        body_bytes: maximum size of a request with a key.
    """

    def __init__(  # noqa: PLR0913 - one argument each option, and all but two have a default
        self,
        app: App,
        keys: IdempotencyKeys,
        *,
        required: bool | Callable[[Scope], bool] = False,
        methods: Collection[str] = ("POST", "PATCH"),
        user: Callable[[Scope], str] = signed_in,
        store: Callable[[int], bool] = is_final,
        timeout_s: float = limits.KEY_LOCK_S,
        keep_s: float | None = limits.KEY_KEPT_S,
        body_bytes: int = limits.BODY_BYTES,
    ) -> None:
        self._app = app
        self._keys = keys
        self._required = required if callable(required) else lambda _scope: required
        self._methods = frozenset(methods)
        self._user = user
        self._store = store
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
            await send_response(send, problem(400, "Idempotency-Key is malformed", str(error)))
            return
        if key is None:
            await self._run_without_key(scope, receive, send)
            return
        body = await read_body(receive, self._body_bytes)
        if body is None:
            return  # the client is gone
        if len(body) > self._body_bytes:
            detail = f"The body of a request with an Idempotency-Key may have at most {self._body_bytes} bytes."
            await send_response(send, problem(413, "The request is too long", detail))
            return
        await self._run_once(key, scope, body, receive, send)

    async def _run_without_key(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._required(scope):
            with contextlib.suppress(KeyMissing):  # a handler requires one
                await self._app({**scope, IN_SCOPE: None}, receive, send)
                return
        detail = "This operation requires an Idempotency-Key header."
        await send_response(send, problem(400, "Idempotency-Key is missing", detail))

    async def _run_once(self, key: str, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        stored_key = _stored_key(self._user(scope), scope["method"], scope.get("path", ""), key)
        payload = fingerprint(scope.get("query_string", b""), _values(scope, b"content-type"), body)
        try:
            attempt = await self._keys.try_lock.aio(stored_key, self._timeout_s, payload=payload)
        except KeyConflict:
            detail = "This Idempotency-Key was already used for another payload; use a new key for each request."
            await send_response(send, problem(422, "Idempotency-Key is already used", detail))
            return
        except StoreError as error:
            _warn(scope, "the Idempotency-Key could not be locked", _cause(error))
            detail = "The request was not processed; repeat it later with the same Idempotency-Key."
            wait = ("retry-after", str(_RETRY_AFTER_S))
            await send_response(send, problem(503, "The store of Idempotency-Keys is unavailable", detail, wait))
            return
        match attempt:
            case Locked():
                await self._run(KeyedRequest(key, attempt), scope, body, receive, send)
            case InProgress(retry_after_s=seconds):
                detail = "A request with this Idempotency-Key is being processed; repeat it later."
                wait = ("retry-after", str(math.ceil(min(seconds, _RETRY_AFTER_S))))
                await send_response(
                    send, problem(409, "A request is outstanding for this Idempotency-Key", detail, wait)
                )
            case Completed(json=text):
                await send_response(send, msgspec.json.decode(text, type=StoredResponse), REPLAYED)

    async def _run(self, request: KeyedRequest, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        async def finish(response: StoredResponse) -> None:
            is_known = await self._accept(request.lock, response, scope)
            await send_response(send, response if is_known else _not_stored())

        async def release() -> None:
            try:
                await self._keys.release.aio_to_the_end(request.lock)
            except (LockLost, StoreError) as error:
                _warn(scope, "the Idempotency-Key was not released", _cause(error))

        captured = CapturedResponse(self._store, finish, release, send)
        extending = asyncio.create_task(self._extend(request.lock))
        own_scope = {**scope, IN_SCOPE: request, "extensions": {}}  # no extension that sends a body past the middleware
        try:
            await self._app(own_scope, _replayed(body, receive), captured.on_message)
        except BaseException as error:
            if not captured.is_finished:
                with noting_release_errors(error):
                    await self._keys.release.aio_to_the_end(request.lock)
            if not is_cannot_be_stored(error):
                raise
        finally:
            extending.cancel()
        if not captured.is_finished:  # the application sent no answer, such as when the client is gone
            await release()

    async def _accept(self, lock: Locked, response: StoredResponse, scope: Scope) -> bool:
        """Store a response, and try again while the store fails; return whether it may be sent.

        The lock was extended at most a third of its time ago, so half of it is within the lock.
        """
        until_s = asyncio.get_running_loop().time() + self._timeout_s / 2
        pause_s, longest_s = _PAUSES_S
        while True:
            try:
                await self._keys.accept.aio_to_the_end(lock, response.result(), keep_s=self._keep_s)
            except LockLost as error:
                _warn(scope, "the response was not stored", _cause(error))
                return True
            except StoreError as error:
                if asyncio.get_running_loop().time() + pause_s > until_s:
                    _warn(scope, "the response was not stored", _cause(error))
                    return False
            else:
                return True
            try:
                await asyncio.sleep(pause_s)
            except asyncio.CancelledError:  # such as when the client is gone: one more short attempt
                with contextlib.suppress(InturnError):
                    await self._keys.accept.aio_to_the_end(lock, response.result(), keep_s=self._keep_s)
                raise
            pause_s = min(2 * pause_s, longest_s)

    async def _extend(self, lock: Locked) -> None:
        """Extend the lock for as long as the application runs."""
        pause_s = self._timeout_s / 3
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._keys.extend.aio(lock, self._timeout_s)
                pause_s = self._timeout_s / 3
            except LockLost:
                return  # the accept reports it
            except InturnError as error:  # such as a lost connection; the lock lasts a while longer
                log.warning("the lock of an Idempotency-Key could not be extended; trying again: %s", _cause(error))
                pause_s = self._timeout_s / 20


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
    raise ValueError('Idempotency-Key must be a text in double quotes, such as "8e03978e-40d5-43e8-bc93-6894a57f9324".')


def _not_stored() -> StoredResponse:
    detail = "The request was processed, but its response was not stored; a later repetition would process it again."
    return problem(500, "The response could not be stored", detail)


def _warn(scope: Scope, event: str, cause: str) -> None:
    log.warning("%s %s: %s: %s", scope["method"], scope.get("path"), event, cause)


def _cause(error: InturnError) -> str:
    """Return the kind and cause of an error without its text, which may name the caller and the key."""
    kind = type(error).__name__
    return kind if error.__cause__ is None else f"{kind}, {error.__cause__}"


def _stored_key(user: str, method: str, path: str, key: str) -> str:
    """Return the key in the store: of a caller, a method and a path; its digest if it is too long."""
    text = json.dumps([user, method, path, key])
    return text if len(text) <= limits.ID_LENGTH else hashlib.sha256(text.encode()).hexdigest()


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for header, value in scope.get("headers", ()) if header.lower() == name]


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
    """Return a ``receive`` that returns the whole body first."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
