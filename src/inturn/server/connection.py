"""The connections of an HTTP server: whose turn it is, and who makes room when there is too much.

A connection has one request with the handler at a time; what the client sends meanwhile waits in order (RFC 9112,
section 9.3.2). What cannot be understood or is too much is refused: the client is told so once all that came before is
answered, and the connection is closed.

Nobody waits for room. What is kept of requests that are not with the handler yet is bounded by a :class:`Budget`; a
request that makes room is told 503. When there are as many connections as may be, the one that has been idle for the
longest makes way for a new one, else the one whose request has been unfinished for the longest. If all are with the
handler, a few more are listened to, for requests that are always answered (:attr:`Room.is_vital`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from inturn.core import limits as bounds
from inturn.server.budget import Budget
from inturn.server.failures import Failures
from inturn.server.request import Limits, Reader, Request
from inturn.server.response import Admit, Handler, Response, encode, refusal

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"\r\nConnection: close"
_KEEP: Final = b"\r\nConnection: keep-alive"


class Exchange:
    """A request that waits for its answer: the ``Reply`` that a handler is given.

    Attributes:
        on_gone: called if the client closes the connection before it is answered.
    """

    __slots__ = ("_connection", "on_gone", "request")

    def __init__(self, connection: "Connection", request: Request) -> None:
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


class Room:
    """What all connections of a server share: the limits, who is there, who makes way and who makes room.

    Args:
        handler: what answers the requests.
        limits: what clients can take.
        admit: what refuses requests by their heads.
        is_vital: whether a request is answered when there are too many connections.
        failures: what is told of failures, and of clients for which there is no room.

    Attributes:
        requests: how many whole requests have come.
        refused: how many were refused here, by status; 503 counts those for which there was no room.
        made_way: how many idle connections were closed for new ones.
    """

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        *,
        admit: Admit = lambda _head: None,
        is_vital: Callable[[Request], bool] = lambda _request: False,
        failures: Failures | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.admit = admit
        self.is_vital = is_vital
        self.failures = failures or Failures()
        self.requests = 0
        self.refused: Counter[int] = Counter()
        self.made_way = 0
        self.connections: set[Connection] = set()
        self.budget: Budget[Connection] = Budget(limits.pending_bytes, limits.connections)
        self.idle: dict[Connection, None] = {}  # the one that has been so for the longest first, as in the next two
        self.receiving: dict[Connection, None] = {}
        self.reserved: dict[Connection, None] = {}  # beyond what may be; not among those above
        self.is_stopping = False
        self.buffer = memoryview(bytearray(bounds.HTTP_READ_BYTES))  # for all: what is read is parsed before the next
        self.now = 0.0  # the loop's time as of the last tick: near enough for time-outs
        self.date = b""
        self.emptied = asyncio.Event()

    @property
    def open_connections(self) -> int:
        """How many connections there are, with those that are about to be closed."""
        return len(self.connections)

    @property
    def pending_bytes(self) -> int:
        """How many bytes are kept of requests that are not with the handler."""
        return self.budget.used

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as may be."""
        return len(self.connections) - len(self.reserved) >= self.limits.connections

    def make_way(self) -> bool:
        """Close a connection for a new one; whether there was one that waits for nothing of ours."""
        for connections in (self.idle, self.receiving):
            for connection in connections:
                connection.give_way()
                return True
        most = self.limits.connections
        self.failures.note("connections", f"too many connections: {most} wait for answers, and more come")
        return False

    def reserve(self, connection: "Connection") -> None:
        """Listen to one that is too much; of too many of those the oldest is cut, but for who is served."""
        self.reserved[connection] = None
        if len(self.reserved) > bounds.HTTP_RESERVED:
            oldest = next((each for each in self.reserved if each.current is None), connection)
            del self.reserved[oldest]
            oldest.cut()

    def make_room(self) -> None:
        """Let go of requests until what is kept of them fits the budget."""
        while (connection := self.budget.to_make_room()) is not None:
            connection.drop()
            self.failures.note("bytes", "unfinished requests fill the memory they may take; the oldest is dropped")

    def lost(self, connection: "Connection") -> None:
        """Forget a connection that is closed."""
        self.connections.discard(connection)
        if self.is_stopping and not self.connections:
            self.emptied.set()


class Connection(asyncio.BufferedProtocol):
    """One client. The methods of a protocol are called by its transport, the others by the room and by exchanges."""

    _transport: asyncio.Transport
    _reader: Reader

    def __init__(self, server: Room) -> None:
        self._server = server
        self.current: Exchange | None = None  # the request that is with the handler
        self._is_serving = False  # requests are being given to it
        self._is_reading = True
        self._is_unread = False  # the client leaves so much unread that no more is written
        self._is_lingering = False  # all is said; what comes is thrown away until the client closes
        self._is_reserved = False  # there are too many
        self._since = server.now  # when it came into its state: idle, receiving, unread, lingering or closing
        self._held = 0  # bytes, as the budget knows it
        self._among: dict[Connection, None] | None = None  # those that are idle, or those that receive

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find a place for it."""
        server = self._server
        self._transport = cast("asyncio.Transport", transport)
        host, port, *_ = transport.get_extra_info("peername") or ("gone", 0)
        self._reader = Reader(server.limits, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        self._is_reserved = server.is_full and not server.is_stopping and not server.make_way()
        server.connections.add(self)
        if server.is_stopping:
            self._transport.abort()
        elif self._is_reserved:
            server.reserve(self)
        else:
            self._stand()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the cause
        """Give back all that it had."""
        exchange, self.current = self.current, None
        if exchange is not None and exchange.on_gone is not None:
            exchange.on_gone()
        server = self._server
        server.budget.change(self, self._held, 0)
        server.reserved.pop(self, None)
        self._move(None)
        self._reader.close()
        del self._reader
        server.lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the bound is ours
        """Where what comes is to be put."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read what has come."""
        reader = self._reader
        if not reader.has_begun:
            self._since = self._server.now
        reader.feed(self._server.buffer[:nbytes])
        self._serve()
        self._stand()

    def eof_received(self) -> None:
        """Let the transport close: a client that died looks like this, and must not be given another's messages."""

    def pause_writing(self) -> None:
        """The client leaves too much unread."""
        self._is_unread = True
        self._since = self._server.now

    def resume_writing(self) -> None:
        """The client has read."""
        self._is_unread = False
        self._since = self._server.now
        self._serve()
        self._stand()

    def _serve(self) -> None:
        """Give the requests that wait to the handler, one at a time, and read on if there is room for more."""
        server, reader, transport = self._server, self._reader, self._transport
        requests = reader.requests
        self._is_serving = True
        while requests and self.current is None and not self._is_unread and not transport.is_closing():
            request = reader.take()
            if self._is_reserved and not self._may_stay(request):
                reader.drop(503)
                break
            exchange = self.current = Exchange(self, request)
            server.requests += 1
            try:
                server.handler(request, exchange)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is logged and the client is told
                server.failures.failed(f"The handler failed on {_name(request)}", error)
                exchange(refusal(500))
        self._is_serving = False
        if self.current is None and not requests:
            if reader.refused:
                self._refuse(reader.refused)
            elif not transport.is_closing() and (head := reader.head()) is not None:
                self._look_at(head)
        is_reading = not self._is_unread and len(requests) < server.limits.pipelined
        if is_reading is not self._is_reading and not transport.is_closing():
            self._is_reading = is_reading
            self._since = server.now
            if is_reading:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _look_at(self, head: Request) -> None:
        """Refuse a request before its body comes, or let the body come."""
        server = self._server
        if self._is_reserved and not self._may_stay(head):
            self._refuse(503)
            return
        try:
            response = server.admit(head)
        except Exception as error:  # noqa: BLE001 - as above
            server.failures.failed(f"The head of {_name(head)} could not be looked at", error)
            response = refusal(500)
        if response is not None:
            server.requests += 1
            self._say_last(response)
        elif self._reader.expects:
            self._transport.write(_CONTINUE)

    def _may_stay(self, request: Request) -> bool:
        """Whether a connection that was too much is not any more, or is answered all the same."""
        server = self._server
        if server.is_vital(request):
            return True
        if server.is_full:
            return False
        self._is_reserved = False
        server.reserved.pop(self, None)
        return True

    def _stand(self) -> None:
        """Say how many bytes it keeps, and whether it is idle, receives a request, or is with the handler."""
        server, held = self._server, self._reader.held
        if held != self._held:
            before, self._held = self._held, held
            server.budget.change(self, before, held)
            if held > before:
                server.make_room()
                held = self._held
        if self._is_reserved or self.current is not None or self._transport.is_closing():
            self._move(None)
        else:
            self._move(server.receiving if held else server.idle)

    def _move(self, to: "dict[Connection, None] | None") -> None:
        if self._among is to is not self._server.idle:
            return
        if self._among is not None:
            del self._among[self]
        self._among = to
        if to is not None:
            to[self] = None

    def drop(self) -> None:
        """Let go of the requests that are not with the handler: the client is told 503 after what is."""
        self._reader.drop(503)
        self._server.budget.change(self, self._held, 0)
        self._held = 0
        if self.current is None:
            self._refuse(503)

    def give_way(self) -> None:
        """Close for another connection: an idle client tries again by itself, another one is told to."""
        server, transport = self._server, self._transport
        if self._among is server.receiving:
            self.drop()
            transport.close()
        else:
            server.made_way += 1
            if transport.get_write_buffer_size():
                transport.close()
            else:
                transport.abort()
        self._move(None)

    def awaits(self, exchange: Exchange) -> bool:
        """Whether the client waits for this answer."""
        return exchange is self.current and not self._transport.is_closing()

    def answer(self, exchange: Exchange, response: Response) -> None:
        """Send an answer, if it is still waited for, and go on with the next request."""
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
        except Exception as error:  # noqa: BLE001 - as above: no fault of the handler's leaves a client unanswered
            server.failures.failed(f"The answer to {_name(request)} cannot be sent", error)
            data = encode(refusal(500), server.date + connection, request.method)
        self._since = server.now
        transport.write(data)
        if is_last:
            transport.close()
        elif not self._is_serving:
            self._serve()
            self._stand()

    def _refuse(self, status: int) -> None:
        """Tell the client that it is refused here."""
        if not self._is_lingering and not self._transport.is_closing():
            self._server.refused[status] += 1
            self._say_last(refusal(status))

    def _say_last(self, response: Response) -> None:
        """Refuse, and listen for a while: closed at once, the client could lose the answer."""
        server, transport = self._server, self._transport
        self._is_lingering = True
        self._reader.refuse(response.status)
        self._since = server.now
        transport.write(encode(response, server.date + _CLOSE))
        if transport.can_write_eof():
            transport.write_eof()

    def check(self) -> None:
        """End the state that the connection is in if it has lasted too long."""
        limits, transport = self._server.limits, self._transport
        end: Callable[[], None] = transport.abort
        if self._is_unread or transport.is_closing():
            most_s = limits.unread_s
        elif self.current is not None:
            return  # it is we who let the client wait
        elif self._is_lingering or self._is_reserved:
            most_s = limits.linger_s
        elif self._reader.has_begun:
            most_s, end = limits.request_s, partial(self._refuse, 408)
        else:
            most_s, end = limits.idle_s, transport.close
        if self._server.now - self._since >= most_s:
            self._since = self._server.now
            end()
            self._stand()

    def retire(self) -> None:
        """Close the connection if nothing is to be answered."""
        if self._is_lingering or not (self.current or self._reader.requests or self._reader.has_begun):
            self._transport.close()

    def cut(self) -> None:
        """Close the connection, whatever is to be answered."""
        self._transport.abort()


def _name(request: Request) -> str:
    # Without the query: it may hold a message, or a signature.
    return f"{request.method} {request.target.partition(b'?')[0][:200]!r}"
