"""A thin HTTP/1.1 server for small requests and answers: connections, their time-outs, and whose turn it is.

It is our own because an ASGI server costs three times as much per request. It knows nothing of what is asked for.

A connection has one request with the handler at a time; what the client sends meanwhile waits in order (RFC 9112,
section 9.3.2). What cannot be understood or is too much is refused: the client is told so once all that came before is
answered, and the connection is closed.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache
from http.client import responses
from typing import Final, NamedTuple, Protocol, cast

from inturn.core import limits as bounds
from inturn.server.request import Limits, Reader, Request

__all__ = ["Exchange", "Handler", "Limits", "Reply", "Request", "Response", "Server"]

_LOG: Final = logging.getLogger(__name__)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"\r\nConnection: close"
_KEEP: Final = b"\r\nConnection: keep-alive"


class Response(NamedTuple):
    """An answer. Date, Content-Length, Content-Type and Connection are added to its headers, so they are not there.

    Attributes:
        status: one that has a body: not 1xx, 204 or 304.
        body: left out where it answers a HEAD.
        content_type: the value of Content-Type.
        headers: further names and values. One with a line end is not sent: the client is told 500.
    """

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Reply(Protocol):
    """Called once with the answer, in the event loop's thread, at once or later. What comes too late does nothing."""

    on_gone: Callable[[], None] | None

    def __call__(self, response: Response) -> None:
        """Answer."""
        ...


Handler = Callable[[Request, Reply], None]
"""Called in the event loop's thread with each request. If it raises, the client is told 500 and no more."""


class Exchange:
    """A request that waits for its answer: the ``Reply`` that a handler is given.

    Attributes:
        on_gone: called if the client closes the connection before it is answered.
    """

    __slots__ = ("_connection", "on_gone", "request")

    def __init__(self, connection: "_Connection", request: Request) -> None:
        self._connection = connection
        self.request = request
        self.on_gone: Callable[[], None] | None = None

    def __call__(self, response: Response) -> None:
        """Answer the request, unless it is answered or nobody waits for it any more."""
        self._connection.answer(self, response)

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for the answer: it was given, or the client has closed the connection."""
        return not self._connection.awaits(self)


class Server:
    """Serves one handler on one address, in the running event loop: uvloop's or asyncio's own.

    Args:
        handler: what answers the requests.
        host: the address to listen on.
        port: the port to listen on; 0 takes a free one.
        tls: serve HTTPS with this context.
        limits: what clients can take; by default what ``inturn.core.limits`` says.

    Attributes:
        requests: how many whole requests have come.
        refused: how many were refused here, by status; 503 counts the connections that were too many.
    """

    def __init__(
        self,
        handler: Handler,
        host: str,
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits = limits or Limits()
        self.requests = 0
        self.refused: Counter[int] = Counter()
        self.connections: set[_Connection] = set()
        self.is_stopping = False
        self.buffer = memoryview(bytearray(bounds.HTTP_READ_BYTES))  # for all: what is read is parsed before the next
        self.now = 0.0  # the loop's time as of the last tick: near enough for time-outs
        self.date = b""
        self._address = (host, port)
        self._tls = tls
        self._tick_s = min(1.0, min(limits.idle_s, limits.request_s, limits.unread_s, limits.linger_s) / 4)
        self._emptied = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that is listened on, once started."""
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def open_connections(self) -> int:
        """How many connections there are, with those that are about to be closed."""
        return len(self.connections)

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: if the address cannot be listened on.
        """
        self._tick()
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                lambda: _Connection(self),
                *self._address,
                ssl=self._tls,
                ssl_handshake_timeout=self.limits.request_s if self._tls else None,
                ssl_shutdown_timeout=self.limits.linger_s if self._tls else None,
                backlog=socket.SOMAXCONN,
            )
        except OSError:
            self._timer.cancel()
            raise

    async def stop(self, grace_s: float) -> None:
        """Listen no more, close what is idle, let the requests be answered that have come or begun to come, then cut.

        Args:
            grace_s: how many seconds there are for the answers.
        """
        self.is_stopping = True
        self._listener.close()
        for connection in tuple(self.connections):
            connection.retire()
        if self.connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._emptied.wait()
        for connection in tuple(self.connections):
            connection.cut()
        if self.connections:
            await self._emptied.wait()
        self._timer.cancel()

    def lost(self, connection: "_Connection") -> None:
        """Forget a connection that is closed."""
        self.connections.discard(connection)
        if self.is_stopping and not self.connections:
            self._emptied.set()

    def _tick(self) -> None:
        """Tell the time and end what has taken too long: one timer for all, as one for each request costs too much."""
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self.date = f"\r\nDate: {formatdate(usegmt=True)}".encode()
        self._timer = loop.call_later(self._tick_s, self._tick)
        for connection in tuple(self.connections):
            connection.check()


class _Connection(asyncio.BufferedProtocol):
    """One client. The methods of a protocol are called by its transport, the others by the server."""

    _transport: asyncio.Transport
    _reader: Reader

    def __init__(self, server: Server) -> None:
        self._server = server
        self._current: Exchange | None = None  # the request that is with the handler
        self._is_serving = False  # requests are being given to it
        self._is_reading = True
        self._is_unread = False  # the client leaves so much unread that no more is written
        self._is_lingering = False  # all is said; what comes is thrown away until the client closes
        self._since = server.now  # when it came into its state: idle, receiving, unread, lingering or closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        self._transport = cast("asyncio.Transport", transport)
        host, port, *_ = transport.get_extra_info("peername") or ("gone", 0)
        self._reader = Reader(server.limits, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        server.connections.add(self)
        excess = len(server.connections) - server.limits.connections
        if server.is_stopping or excess > bounds.HTTP_REFUSED_AT_ONCE:
            self._transport.abort()
        elif excess > 0:
            self._refuse(503)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the cause
        exchange, self._current = self._current, None
        if exchange is not None and exchange.on_gone is not None:
            exchange.on_gone()
        self._reader.close()
        del self._reader
        self._server.lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the bound is ours
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        if not reader.has_begun:
            self._since = self._server.now
        reader.feed(self._server.buffer[:nbytes])
        self._serve()

    def eof_received(self) -> None:
        """Let the transport close: a client that died looks like this, and must not be given another's messages."""

    def pause_writing(self) -> None:
        self._is_unread = True
        self._since = self._server.now

    def resume_writing(self) -> None:
        self._is_unread = False
        self._since = self._server.now
        self._serve()

    def _serve(self) -> None:
        """Give the requests that wait to the handler, one at a time, and read on if there is room for more."""
        server, reader, transport = self._server, self._reader, self._transport
        requests = reader.requests
        self._is_serving = True
        while requests and self._current is None and not self._is_unread and not transport.is_closing():
            request = requests.popleft()
            exchange = self._current = Exchange(self, request)
            server.requests += 1
            try:
                server.handler(request, exchange)
            except Exception:  # noqa: BLE001 - whatever it is, it is logged and the client is told
                _LOG.exception("The handler failed on %s", _name(request))
                exchange(_refusal(500))
        self._is_serving = False
        if self._current is None and not requests:
            if reader.refused:
                self._refuse(reader.refused)
            elif reader.expects and not transport.is_closing():
                reader.expects = False
                transport.write(_CONTINUE)
        is_reading = not self._is_unread and len(requests) < server.limits.pipelined
        if is_reading is not self._is_reading and not transport.is_closing():
            self._is_reading = is_reading
            self._since = server.now
            if is_reading:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def awaits(self, exchange: Exchange) -> bool:
        return exchange is self._current and not self._transport.is_closing()

    def answer(self, exchange: Exchange, response: Response) -> None:
        if exchange is not self._current:
            return
        self._current = None
        server, reader, transport, request = self._server, self._reader, self._transport, exchange.request
        if transport.is_closing():
            return
        is_last = (reader.is_last or server.is_stopping) and not reader.requests
        connection = _CLOSE if is_last else _KEEP if b"connection" in request.headers else b""
        try:
            data = _encode(response, server.date + connection, request.method)
        except Exception:  # noqa: BLE001 - as above: no fault of the handler's leaves a client without an answer
            _LOG.exception("The answer to %s cannot be sent", _name(request))
            data = _encode(_refusal(500), server.date + connection, request.method)
        self._since = server.now
        transport.write(data)
        if is_last:
            transport.close()
        elif not self._is_serving:
            self._serve()

    def _refuse(self, status: int) -> None:
        """Tell the client that it is refused, and listen for a while: closed at once, it could lose the answer."""
        server, transport = self._server, self._transport
        if self._is_lingering or transport.is_closing():
            return
        self._is_lingering = True
        self._reader.refused = status
        self._since = server.now
        server.refused[status] += 1
        transport.write(_encode(_refusal(status), server.date + _CLOSE))
        if transport.can_write_eof():
            transport.write_eof()

    def check(self) -> None:
        """End the state that the connection is in if it has lasted too long."""
        limits, transport, lasted_s = self._server.limits, self._transport, self._server.now - self._since
        if self._is_unread or transport.is_closing():
            if lasted_s >= limits.unread_s:
                transport.abort()
        elif self._is_lingering:
            if lasted_s >= limits.linger_s:
                transport.abort()
        elif self._current is not None:
            pass  # it is we who let the client wait
        elif self._reader.has_begun:
            if lasted_s >= limits.request_s:
                self._refuse(408)
        elif lasted_s >= limits.idle_s:
            self._since = self._server.now
            transport.close()

    def retire(self) -> None:
        """Close the connection if nothing is to be answered."""
        if self._is_lingering or not (self._current or self._reader.requests or self._reader.has_begun):
            self._transport.close()

    def cut(self) -> None:
        """Close the connection, whatever is to be answered."""
        self._transport.abort()


def _name(request: Request) -> str:
    # Without the query: it may hold a message, or a signature.
    return f"{request.method} {request.target.partition(b'?')[0][:200]!r}"


def _refusal(status: int) -> Response:
    # From 500 on it is empty: botocore takes only that for the word of something in front of SQS, and tries again.
    return Response(status, b"" if status >= 500 else f"{status} {responses[status]}\n".encode(), "text/plain")


def _encode(response: Response, server_headers: bytes, method: str = "") -> bytes:
    status, body, content_type, headers = response
    lines = b"".join([b"\r\n%b: %b" % header for header in headers])
    if lines.count(b"\r") != len(headers) or lines.count(b"\n") != len(headers):
        raise ValueError(f"{headers!r} have a line end within one: leave it out, or encode it")
    start = _start(status, content_type)
    return b"%b%d%b%b\r\n\r\n%b" % (start, len(body), server_headers, lines, b"" if method == "HEAD" else body)


@lru_cache(maxsize=256)
def _start(status: int, content_type: str) -> bytes:
    if "\r" in content_type or "\n" in content_type:
        raise ValueError(f"The content type {content_type!r} has a line end: leave it out")
    return f"HTTP/1.1 {status} {responses.get(status, '')}\r\nContent-Type: {content_type}\r\nContent-Length: ".encode()
