"""The connections of an HTTP server: request order, and load shedding.

A connection has one request with the handler at a time; later requests of the client wait in order (RFC 9112,
section 9.3.2). A request that is malformed or too large is refused: the client gets the refusal after the responses to
all earlier requests, and the connection is closed.

Connections do not wait for capacity. A :class:`Budget` bounds the bytes of requests that are not with the handler yet;
a request that is dropped to make room is answered 503. When the maximum of connections is open, the one that has been
idle for the longest is closed for a new one, else the one whose request has been unfinished for the longest. If all are
with the handler, a few reserved connections are still read, for requests that are always answered
(:attr:`ServerState.is_vital`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from inturn.serving.http import limits as bounds
from inturn.serving.http.budget import Budget
from inturn.serving.http.failures import FailureLog
from inturn.serving.http.http1 import Admit, Handler, Request, RequestLimits, RequestReader, Response, encode, refusal

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"\r\nConnection: close"
_KEEP: Final = b"\r\nConnection: keep-alive"


class Exchange:
    """A request that waits for its response: the ``Reply`` that a handler is given.

    Attributes:
        on_disconnect: called if the client closes the connection before it is answered.
    """

    __slots__ = ("_connection", "on_disconnect", "request")

    def __init__(self, connection: "Connection", request: Request) -> None:
        self._connection = connection
        self.request = request
        self.on_disconnect: Callable[[], None] | None = None

    def __call__(self, response: Response) -> None:
        """Answer the request, unless it has been answered or the client has disconnected."""
        self._connection.answer(self, response)

    @property
    def is_closed(self) -> bool:
        """True if the response is no longer awaited: it was sent, or the client has closed the connection."""
        return not self._connection.is_awaited(self)


class ServerState:
    """The state that all connections of a server share: the limits, the open connections and the byte budget.

    Attributes:
        requests: the number of complete requests.
        refused: the number of refusals by this server, by status; 503 counts those for lack of capacity.
        evicted: the number of idle connections closed for new ones.
    """

    def __init__(
        self,
        handler: Handler,
        limits: RequestLimits,
        *,
        admit: Admit = lambda _head: None,
        is_vital: Callable[[Request], bool] = lambda _request: False,
        failures: FailureLog | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.admit = admit
        self.is_vital = is_vital
        self.failures = failures or FailureLog()
        self.requests = 0
        self.refused: Counter[int] = Counter()
        self.evicted = 0
        self.connections: set[Connection] = set()
        self.budget: Budget[Connection] = Budget(limits.pending_bytes, limits.connections)
        self.idle: dict[Connection, None] = {}  # in the order of entry, the longest first, as in the next two
        self.receiving: dict[Connection, None] = {}
        self.reserved: dict[Connection, None] = {}  # beyond the maximum; in neither of the two above
        self.is_stopping = False
        self.buffer = memoryview(bytearray(bounds.READ_BYTES))  # shared: each read is parsed before the next
        self.now = 0.0  # the loop's time at the last tick: precise enough for time-outs
        self.date = b""
        self.emptied = asyncio.Event()

    @property
    def open_connections(self) -> int:
        """The number of connections, including those about to be closed."""
        return len(self.connections)

    @property
    def pending_bytes(self) -> int:
        """The number of bytes kept of requests that are not with the handler."""
        return self.budget.used

    @property
    def is_full(self) -> bool:
        """True if the maximum of connections is open."""
        return len(self.connections) - len(self.reserved) >= self.limits.connections

    def evict_one(self) -> bool:
        """Close an idle or receiving connection for a new one; return False if there is none."""
        for connections in (self.idle, self.receiving):
            for connection in connections:
                connection.evict()
                return True
        most = self.limits.connections
        text = "too many connections: all %(connections)d wait for responses, and another was opened"
        self.failures.warning("overloaded", "connections", text, connections=most)
        return False

    def reserve(self, connection: "Connection") -> None:
        """Keep reading a surplus connection; beyond the maximum of those, cut the oldest that is not being served."""
        self.reserved[connection] = None
        if len(self.reserved) > bounds.RESERVED:
            oldest = next((candidate for candidate in self.reserved if candidate.current is None), connection)
            del self.reserved[oldest]
            oldest.abort()

    def shed_load(self) -> None:
        """Drop requests until the bytes kept fit the budget."""
        while (connection := self.budget.next_to_drop()) is not None:
            connection.drop()
            text = "incomplete requests exceed limits.pending_bytes; the oldest is dropped"
            self.failures.warning("overloaded", "bytes", text)

    def remove(self, connection: "Connection") -> None:
        """Forget a closed connection."""
        self.connections.discard(connection)
        if self.is_stopping and not self.connections:
            self.emptied.set()


class Connection(asyncio.BufferedProtocol):
    """A client's connection. The transport calls the protocol methods; the server and exchanges call the others."""

    _transport: asyncio.Transport
    _reader: RequestReader

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self.current: Exchange | None = None  # the request that is with the handler
        self._is_serving = False  # `_serve` is running
        self._is_reading = True
        self._is_unread = False  # the write buffer is full: no more is written
        self._is_lingering = False  # the last response is written; input is discarded until the client closes
        self._is_reserved = False  # beyond the maximum of connections
        self._since = server.now  # when it entered its state: idle, receiving, unread, lingering or closing
        self._reported_bytes = 0  # bytes, as last reported to the budget
        self._group: dict[Connection, None] | None = None  # the server's `idle` or `receiving`

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or turn it away."""
        server = self._server
        self._transport = cast("asyncio.Transport", transport)
        host, port, *_ = transport.get_extra_info("peername") or ("gone", 0)
        self._reader = RequestReader(server.limits, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        self._is_reserved = server.is_full and not server.is_stopping and not server.evict_one()
        server.connections.add(self)
        if server.is_stopping:
            self._transport.abort()
        elif self._is_reserved:
            server.reserve(self)
        else:
            self._update_state()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - for any cause
        """Release all that the connection held."""
        exchange, self.current = self.current, None
        if exchange is not None and exchange.on_disconnect is not None:
            exchange.on_disconnect()
        server = self._server
        server.budget.change(self, self._reported_bytes, 0)
        server.reserved.pop(self, None)
        self._move(None)
        self._reader.close()
        del self._reader
        server.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the bound is ours
        """Return the buffer for incoming bytes."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the received bytes."""
        reader = self._reader
        if not reader.has_begun:
            self._since = self._server.now
        reader.feed(self._server.buffer[:nbytes])
        self._serve()
        self._update_state()

    def eof_received(self) -> None:
        """Let the transport close: a client that crashed looks like this, and must not receive further messages."""

    def pause_writing(self) -> None:
        """Stop serving: the client leaves too much unread."""
        self._is_unread = True
        self._since = self._server.now

    def resume_writing(self) -> None:
        """Resume serving: the client has read."""
        self._is_unread = False
        self._since = self._server.now
        self._serve()
        self._update_state()

    def _serve(self) -> None:
        """Give waiting requests to the handler, one at a time, and resume or pause reading."""
        server, reader, transport = self._server, self._reader, self._transport
        requests = reader.requests
        self._is_serving = True
        while requests and self.current is None and not self._is_unread and not transport.is_closing():
            request = reader.next_request()
            if self._is_reserved and not self._may_stay(request):
                reader.drop(503)
                break
            exchange = self.current = Exchange(self, request)
            server.requests += 1
            try:
                server.handler(request, exchange)
            except Exception as error:  # noqa: BLE001 - it is logged, and the client gets 500
                server.failures.failed(f"the handler failed on {_name(request)}", error)
                exchange(refusal(500))
        self._is_serving = False
        if self.current is None and not requests:
            if reader.refused:
                self._refuse(reader.refused)
            elif not transport.is_closing() and (head := reader.head()) is not None:
                self._check_head(head)
        is_reading = not self._is_unread and len(requests) < server.limits.pipelined
        if is_reading is not self._is_reading and not transport.is_closing():
            self._is_reading = is_reading
            self._since = server.now
            if is_reading:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _check_head(self, head: Request) -> None:
        """Refuse a request by its head, or let its body be sent."""
        server = self._server
        if self._is_reserved and not self._may_stay(head):
            self._refuse(503)
            return
        try:
            response = server.admit(head)
        except Exception as error:  # noqa: BLE001 - as above
            server.failures.failed(f"cannot check the headers of {_name(head)}", error)
            response = refusal(500)
        if response is not None:
            server.requests += 1
            self._send_last(response)
        elif self._reader.expects:
            self._transport.write(_CONTINUE)

    def _may_stay(self, request: Request) -> bool:
        """Return whether a surplus connection is no longer surplus, or its request is answered anyway."""
        server = self._server
        if server.is_vital(request):
            return True
        if server.is_full:
            return False
        self._is_reserved = False
        server.reserved.pop(self, None)
        return True

    def _update_state(self) -> None:
        """Report the bytes held to the budget, and register the connection as idle, receiving or neither."""
        server, held = self._server, self._reader.buffered_bytes
        if held != self._reported_bytes:
            before, self._reported_bytes = self._reported_bytes, held
            server.budget.change(self, before, held)
            if held > before:
                server.shed_load()
                held = self._reported_bytes
        if self._is_reserved or self.current is not None or self._transport.is_closing():
            self._move(None)
        else:
            self._move(server.receiving if held else server.idle)

    def _move(self, to: "dict[Connection, None] | None") -> None:
        if self._group is to is not self._server.idle:
            return
        if self._group is not None:
            del self._group[self]
        self._group = to
        if to is not None:
            to[self] = None

    def drop(self) -> None:
        """Drop the requests that are not with the handler; the client gets 503 after the response to one that is."""
        self._reader.drop(503)
        self._server.budget.change(self, self._reported_bytes, 0)
        self._reported_bytes = 0
        if self.current is None:
            self._refuse(503)

    def evict(self) -> None:
        """Close for another connection: an idle client reconnects automatically, a sending one is answered 503."""
        server, transport = self._server, self._transport
        if self._group is server.receiving:
            self.drop()
            transport.close()
        else:
            server.evicted += 1
            if transport.get_write_buffer_size():
                transport.close()
            else:
                transport.abort()
        self._move(None)

    def is_awaited(self, exchange: Exchange) -> bool:
        """Return whether the client waits for this response."""
        return exchange is self.current and not self._transport.is_closing()

    def answer(self, exchange: Exchange, response: Response) -> None:
        """Send a response, if it is still awaited, and serve the next request."""
        if exchange is not self.current:
            return
        self.current = None
        server, reader, transport, request = self._server, self._reader, self._transport, exchange.request
        if transport.is_closing():
            return
        is_last = (reader.is_last or server.is_stopping or self._is_reserved) and not reader.requests
        connection = _CLOSE if is_last else _KEEP if b"connection" in request.headers else b""
        try:
            data = encode(response, server.date + connection, request.method)
        except Exception as error:  # noqa: BLE001 - as above: the client is answered in any case
            server.failures.failed(f"cannot send the response to {_name(request)}", error)
            data = encode(refusal(500), server.date + connection, request.method)
        self._since = server.now
        transport.write(data)
        if is_last:
            transport.close()
        elif not self._is_serving:
            self._serve()
            self._update_state()

    def _refuse(self, status: int) -> None:
        """Send a refusal of this server, once."""
        if not self._is_lingering and not self._transport.is_closing():
            self._server.refused[status] += 1
            self._send_last(refusal(status))

    def _send_last(self, response: Response) -> None:
        """Send the last response, then read for a while: closing at once could lose the response."""
        server, transport = self._server, self._transport
        self._is_lingering = True
        self._reader.refuse(response.status)
        self._since = server.now
        transport.write(encode(response, server.date + _CLOSE))
        if transport.can_write_eof():
            transport.write_eof()

    def check(self) -> None:
        """End the connection's state if it has lasted too long."""
        limits, transport = self._server.limits, self._transport
        end: Callable[[], None] = transport.abort
        if self._is_unread or transport.is_closing():
            most_s = limits.unread_s
        elif self.current is not None:
            return  # the client waits for the handler
        elif self._is_lingering or self._is_reserved:
            most_s = limits.linger_s
        elif self._reader.has_begun:
            most_s, end = limits.request_s, partial(self._refuse, 408)
        else:
            most_s, end = limits.idle_s, transport.close
        if self._server.now - self._since >= most_s:
            self._since = self._server.now
            end()
            self._update_state()

    def retire(self) -> None:
        """Close the connection if no request is to be answered."""
        if self._is_lingering or not (self.current or self._reader.requests or self._reader.has_begun):
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, answered or not."""
        self._transport.abort()


def _name(request: Request) -> str:
    # Without the query, which may hold a message or a signature.
    return f"{request.method} {request.target.partition(b'?')[0][:200]!r}"
