"""The health pages of a command: ``/health``: the process lives; ``/ready``: it works; ``/metrics``: for Prometheus."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from inturn.core.errors import InturnError, SetupError
from inturn.serving.asgi import AsgiServer
from inturn.serving.listening import split_address
from inturn.telemetry.families import PAGE_TYPE

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
        metrics: returns the page for Prometheus; raises SetupError if a package for it is missing, and StoreError if it
            cannot be read.

    Raises:
        InputError: if the address is malformed, or cannot be listened on.
    """
    return AsgiServer(HealthPages(status, metrics), *split_address(address), name="inturn-health")


class HealthPages:
    """The pages as an ASGI application; see :func:`health_server`.

    Reading waits for databases, so it runs in threads. Metrics have one thread: however many clients request them while
    a database is unavailable, threads are left for health.
    """

    def __init__(self, status: Callable[[], dict[str, Any]], metrics: Callable[[], bytes]) -> None:
        self._status = status
        self._metrics = metrics
        self._reading = asyncio.Lock()

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
        async with self._reading:
            try:
                return 200, await asyncio.to_thread(self._metrics), PAGE_TYPE
            except InturnError as error:
                return 501 if isinstance(error, SetupError) else 503, f"{error}\n".encode(), _TEXT

    async def _document(self, path: str) -> tuple[int, bytes, str]:
        if path not in _PATHS:
            return 404, json.dumps({"paths": _PATHS}).encode(), _JSON
        status = await asyncio.to_thread(self._status)
        return 503 if path == "/ready" and not status["ready"] else 200, json.dumps(status).encode(), _JSON
