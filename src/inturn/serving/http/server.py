"""A small HTTP/1.1 server for small requests and responses: listening, time and shutdown.

inturn has its own because a SendMessage costs 1.6 times the CPU on the fastest other server that was measured, Granian,
without these bounds on clients; see ``benchmarks/README.md``. It does not interpret requests.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from socket import SOMAXCONN

from inturn.serving.http.connection import Connection, ServerState
from inturn.serving.http.failures import FailureLog
from inturn.serving.http.http1 import Admit, Handler, Request, RequestLimits
from inturn.serving.listening import listening_sockets


class HttpServer(ServerState):
    """An HTTP server with one handler on one address, in the running event loop: uvloop's or asyncio's own.

    Args:
        handler: the request handler.
        host: the address to listen on.
        port: the port to listen on; 0 takes a free one.
        tls: the context for HTTPS; None: plain HTTP.
        limits: the bounds on clients; None: those of ``inturn.serving.http.limits``.
        admit: the check that refuses requests by their heads.
        is_vital: whether a request is answered when there are too many connections.
        failures: the log of failures, and of clients that are turned away.
    """

    def __init__(
        self,
        handler: Handler,
        host: str,
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        limits: RequestLimits | None = None,
        admit: Admit = lambda _head: None,
        is_vital: Callable[[Request], bool] = lambda _request: False,
        failures: FailureLog | None = None,
    ) -> None:
        limits = limits or RequestLimits()
        super().__init__(handler, limits, admit=admit, is_vital=is_vital, failures=failures)
        self._address = (host, port)
        self._listeners: list[asyncio.Server] = []
        self._tls = tls
        self._tick_s = min(1.0, min(limits.idle_s, limits.request_s, limits.unread_s, limits.linger_s) / 4)

    @property
    def port(self) -> int:
        """The port that the server listens on, once started."""
        return int(self._listeners[0].sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen on the address.

        Raises:
            InputError: if the address cannot be listened on.
        """
        self._tick()
        try:
            for bound in listening_sockets(*self._address):
                listener = await asyncio.get_running_loop().create_server(
                    lambda: Connection(self),
                    sock=bound,
                    ssl=self._tls,
                    ssl_handshake_timeout=self.limits.request_s if self._tls else None,
                    ssl_shutdown_timeout=self.limits.linger_s if self._tls else None,
                    backlog=SOMAXCONN,
                )
                self._listeners.append(listener)
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace_s: float) -> None:
        """Stop listening, close idle connections, let requests that have begun be answered, then cut the rest."""
        self.is_stopping = True
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self.connections):
            connection.retire()
        if self.connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.emptied.wait()
        for connection in tuple(self.connections):
            connection.abort()
        if self.connections:
            await self.emptied.wait()
        self._timer.cancel()

    def _tick(self) -> None:
        """Update the time and end what has timed out: one timer for all, since one for each request costs too much."""
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self.date = f"\r\nDate: {formatdate(usegmt=True)}".encode()
        self._timer = loop.call_later(self._tick_s, self._tick)
        for connection in tuple(self.connections):
            connection.check()
