"""The health pages of a command: ``/health``: the process lives; ``/ready``: it works; ``/metrics``: for Prometheus."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar, cast

from inturn.core.errors import SetupError
from inturn.serving.asgi import AsgiServer
from inturn.serving.listening import health_address
from inturn.telemetry.families import PAGE_TYPE
from inturn.threads import started

T = TypeVar("T")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_PATHS: Final = ("/health", "/metrics", "/ready")


def health_server(address: str, status: Callable[[], dict[str, Any]], metrics: Callable[[], bytes]) -> AsgiServer:
    """Return a server of the health pages, for ``with``.

    Args:
        address: ``HOST:PORT``, or ``PORT`` of 127.0.0.1; port 0 means any free port.
        status: returns a JSON document whose ``ready`` is whether the command works.
        metrics: returns the page for Prometheus; raises SetupError if a package for it is missing.

    Raises:
        InputError: if the address is malformed, or cannot be listened on.
    """
    return AsgiServer(HealthPages(status, metrics), *health_address(address), name="inturn-health")


class HealthPages:
    """The pages as an ASGI application; see :func:`health_server`.

    Reading may wait for a database, so each page is read in a thread of its own: once at a time, for all who request it
    meanwhile. The threads are daemons, so that a read which hangs does not delay the end of the process.
    """

    def __init__(self, status: Callable[[], dict[str, Any]], metrics: Callable[[], bytes]) -> None:
        self._status = status
        self._metrics = metrics
        self._reading: dict[str, asyncio.Future[Any]] = {}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        if scope["method"] not in {"GET", "HEAD"}:
            code, body, kind = 405, b"expected GET or HEAD\n", _TEXT
        elif scope["path"] == "/metrics":
            code, body, kind = await self._metrics_page()
        else:
            code, body, kind = await self._document(scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _metrics_page(self) -> tuple[int, bytes, str]:
        try:
            return 200, await self._read("/metrics", self._metrics), PAGE_TYPE
        except SetupError as error:
            return 501, f"{error}\n".encode(), _TEXT

    async def _document(self, path: str) -> tuple[int, bytes, str]:
        if path not in _PATHS:
            return 404, json.dumps({"paths": _PATHS}).encode(), _JSON
        status = await self._read(path, self._status)
        return 503 if path == "/ready" and not status["ready"] else 200, json.dumps(status).encode(), _JSON

    async def _read(self, path: str, read: Callable[[], T]) -> T:
        """Return what a function returns, called in a thread; a call that is still running is shared."""
        future = self._reading.get(path)
        if future is None:
            future = self._reading[path] = _in_thread(read)
            future.add_done_callback(lambda _done: self._reading.pop(path))
        return cast("T", await asyncio.shield(future))


def _in_thread(read: Callable[[], T]) -> "asyncio.Future[T]":
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(cast("T", value))
        else:
            future.set_exception(error)

    def run() -> None:
        value, failed = None, None
        try:
            value = read()
        except Exception as error:  # noqa: BLE001 - it is raised where the page is awaited
            failed = error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, value, failed)

    started(run, "inturn-health-read")
    return future
