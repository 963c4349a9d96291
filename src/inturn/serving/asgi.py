"""A server of one ASGI application in a thread of its own, by uvicorn; the SQS endpoint has its own server."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvicorn

from inturn.core.override import override
from inturn.serving.listening import close, listening_sockets, server_url, tls_context

STOP_S: Final = 10.0
"""The longest time for which a stop waits, in seconds."""
_REQUEST_S: Final = 5
"""Time that running requests have when the server is stopped, in seconds."""


async def _nothing() -> None:
    pass


class _StreamingServer(uvicorn.Server):
    """A server that ends the streams of its application before it waits for running requests."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._end_streams()
        await super().shutdown(sockets)


class AsgiServer:
    """A server of one application, for ``with``; clients can connect once it is constructed.

    Args:
        app: the application.
        host: the host to listen on.
        port: the port; 0: any free one.
        tls_cert: the file with the certificate, PEM; None: plain HTTP.
        tls_key: the file with the certificate's key, PEM.
        name: the name of the thread.
        end_streams: ends responses that would not end by themselves; called when the server stops.

    Raises:
        InputError: if the address or the certificate cannot be used.

    Attributes:
        url: the URL of the server, with a slash at its end.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        *,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        name: str,
        end_streams: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",  # a start and a stop are the command's own events
            access_log=False,
            lifespan="off",
            proxy_headers=False,  # the proxy's own address is compared, not one from a header
            server_header=False,
            timeout_graceful_shutdown=_REQUEST_S,
        )
        config.load()
        config.ssl = None if tls_cert is None else tls_context(tls_cert, tls_key)
        self._server = _StreamingServer(config, end_streams)
        self._sockets = listening_sockets(host, port)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.url = f"{server_url(host, self.port, is_tls=tls_cert is not None)}/"

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

    def stop(self) -> None:
        """Stop after running requests have ended; wait for at most ``STOP_S``."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        close(self._sockets)
