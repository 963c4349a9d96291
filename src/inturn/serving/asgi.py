"""A server of one ASGI application in a thread of its own, by uvicorn; the SQS endpoint has its own server."""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from inturn.core.errors import SetupError
from inturn.core.override import override
from inturn.serving.listening import close, listening_sockets, server_url

STOP_S: Final = 10.0
"""The longest time for which a stop waits, in seconds."""
_GRACE_S: Final = 5
"""Time that running requests have when the server is stopped, in seconds."""
_HEAD_S: Final = 10.0
"""Time in which a client must send the head of a request, in seconds."""
_LOOK_S: Final = 0.5
_CONNECTIONS: Final = 500
"""The number of connections and running requests beyond which a request is answered 503."""


async def _nothing() -> None:
    pass


class _BoundedProtocol(H11Protocol):
    """A connection that is closed if its client sends no whole head in time, which uvicorn would wait for."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        self._waits_since_s = self.loop.time()
        self._check()

    def _check(self) -> None:
        if self.transport.is_closing():
            return
        now_s = self.loop.time()
        if self.cycle is not None and not self.cycle.response_complete:
            self._waits_since_s = now_s
        elif now_s - self._waits_since_s >= _HEAD_S:
            self.transport.close()
            return
        self.loop.call_later(_HEAD_S / 4, self._check)


class _StreamingServer(uvicorn.Server):
    """A server that ends the streams of its application before it waits for running requests."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._end_streams()
        await super().shutdown(sockets)


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Return whether a record is about something else than a request that a stop has cut."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, asyncio.CancelledError)


class AsgiServer:
    """A server of one application, for ``with``; clients can connect once it is constructed.

    Args:
        app: the application.
        host: the host to listen on.
        port: the port; 0: any free one.
        tls: the context for HTTPS; None: plain HTTP.
        name: the name of the thread.
        end_streams: ends responses that would not end by themselves; called when the server stops.

    Raises:
        InputError: if the address cannot be listened on.

    Attributes:
        url: the URL of the server, with a slash at its end.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        name: str,
        end_streams: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=_BoundedProtocol,
            limit_concurrency=_CONNECTIONS,
            log_config=None,
            log_level="error",  # a start and a stop are the command's own events, and what clients send wrong is none
            access_log=False,
            lifespan="off",
            proxy_headers=False,  # the proxy's own address is compared, not one from a header
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        config.load()
        logging.getLogger("uvicorn.error").addFilter(_is_no_stop)
        config.ssl = tls
        self._server = _StreamingServer(config, end_streams)
        self._sockets = listening_sockets(host, port)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.url = f"{server_url(host, self.port, is_tls=tls is not None)}/"

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._sockets[0].getsockname()[1])

    def _run(self) -> None:
        asyncio.run(self._server.serve(self._sockets))

    def __enter__(self) -> Self:
        """Serve from now on."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self.stop()

    def start(self) -> None:
        """Serve until :meth:`stop`."""
        self._thread.start()

    def wait(self, stopped: threading.Event) -> None:
        """Wait until stopped.

        Raises:
            SetupError: if the server has ended by itself.
        """
        while not stopped.wait(_LOOK_S):  # without a limit a signal would not end the wait on every platform
            if not self._thread.is_alive():
                raise SetupError(f"the server at {self.url} has ended; its log says why")

    def stop(self) -> None:
        """Stop after running requests have ended; wait for at most ``STOP_S``."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        close(self._sockets)
