"""HTTP/1.1 without I/O: a request parser for one connection, and responses as bytes.

httptools parses, this module applies the rules and the limits, so that every rule is tested with bytes alone. The
result depends on the bytes, not on how they were split in transit. A request is refused for what RFC 9112 forbids where
two servers could read it differently (smuggling).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from http.client import responses
from typing import NamedTuple, Protocol

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from inturn.serving.http import limits as bounds


class Request(NamedTuple):
    """An HTTP request.

    Attributes:
        method: in upper case; any that llhttp knows except CONNECT.
        target: path and query as sent.
        headers: by name in lower case, values without surrounding space; repeated ones are joined by a comma.
        body: decoded if it was sent in chunks.
        peer: address and port of the client.
    """

    method: str
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes
    peer: str


class Response(NamedTuple):
    """An HTTP response. The server adds the headers Date, Content-Length, Content-Type and Connection.

    Attributes:
        status: one that has a body: not 1xx, 204 or 304.
        body: left out in the response to a HEAD.
        content_type: the value of Content-Type.
        headers: further names and values. If one contains a line end, the client gets 500 instead.
    """

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Reply(Protocol):
    """The callback for a response, called once, in the event loop's thread, now or later. A late call does nothing."""

    on_disconnect: Callable[[], None] | None

    def __call__(self, response: Response) -> None:
        """Send the response."""
        ...


Handler = Callable[[Request, Reply], None]
"""Called in the event loop's thread with each request. If it raises, the client gets 500 without details."""

Admit = Callable[[Request], Response | None]
"""Called with the head of a request before its body arrives: returns the response that refuses it, or None."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The bounds on clients, in bytes, numbers and seconds; ``inturn.serving.http.limits`` describes each."""

    header_bytes: int = bounds.HEADER_BYTES
    headers: int = bounds.HEADERS
    body_bytes: int = bounds.BODY_BYTES
    pending_bytes: int = bounds.PENDING_BYTES
    connections: int = bounds.CONNECTIONS
    pipelined: int = bounds.PIPELINED
    idle_s: float = bounds.IDLE_S
    request_s: float = bounds.REQUEST_S
    unread_s: float = bounds.UNREAD_S
    linger_s: float = bounds.LINGER_S


class _Refusal(Exception):
    """Raised in a parser callback to stop the parser: the request is refused with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class RequestReader:
    """The request reader of one connection. Its parser calls the ``on_`` methods.

    Args:
        limits: the bounds on the client.
        peer: the ``peer`` of its requests.

    Attributes:
        requests: the complete requests that wait; :meth:`next_request` removes the first.
        refused: the status that refuses what follows them, or 0. Nothing more is read then.
        is_last: whether the last of them closes the connection. Nothing more is read then.
        has_begun: whether the next request has begun to arrive.
        expects: whether the client waits for ``100 Continue`` before it sends the body (RFC 9110, section 10.1.1).
    """

    def __init__(self, limits: RequestLimits, peer: str) -> None:
        self.requests: deque[Request] = deque()
        self.refused = 0
        self.is_last = False
        self._limits = limits
        self._peer = peer
        self._sizes: deque[int] = deque()  # in bytes, of waiting requests; filled when `held` is read
        self._waiting = 0  # their sum
        self._parser = HttpRequestParser(self)
        self._read = 0  # bytes of the last read
        self._fed = 0  # bytes since the request, or its last piece of body, began; up to one read too many
        self._begin()

    def _begin(self) -> None:
        self.has_begun = self.expects = False
        self._is_head = True  # while headers may come
        self._is_new = False  # the headers are complete and `head` was not called
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated = 0  # headers that had the name of an earlier one
        self._blocks: list[bytes] = []  # of the body, so that a long one is not copied each time it grows
        self._blocked = 0  # bytes in them
        self._body: bytes | bytearray = b""  # the rest after the blocks

    def feed(self, data: memoryview | bytes) -> None:
        """Parse more bytes; ``data`` is at most ``HTTP_READ_BYTES`` long."""
        if self.is_last or self.refused:
            return
        self._read = len(data)
        self._fed += self._read
        while True:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                data = b"".join((self._without_upgrade(), data[upgrade.args[0] :]))
                continue
            except HttpParserCallbackError as error:
                if not isinstance(error.__context__, _Refusal):
                    raise
                self.refused = error.__context__.status
            except HttpParserError:
                if not self.is_last:
                    self.refused = 400
            break
        if self._fed > self._limits.header_bytes + bounds.READ_BYTES and not self.refused:
            self.refused = 431  # endless headers or trailers
        if self.refused:
            self.refuse(self.refused)

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes kept of requests that were not taken; up to one read too many."""
        if len(self._sizes) < len(self.requests):
            for target, headers, body in [request[1:4] for request in self.requests][len(self._sizes) :]:
                self._sizes.append(_size(target, headers) + len(body))
                self._waiting += self._sizes[-1]
        if self.refused or not self.has_begun:
            return self._waiting
        partial = self._fed if self._is_head else _size(self._target, self._headers) + self._length
        return self._waiting + partial

    @property
    def _length(self) -> int:
        return self._blocked + len(self._body)

    def next_request(self) -> Request:
        """Remove and return the oldest waiting request."""
        if self._sizes:
            self._waiting -= self._sizes.popleft()
        return self.requests.popleft()

    def head(self) -> Request | None:
        """Return the head of the request whose body is still to come; once for each, then None."""
        if not self._is_new:
            return None
        self._is_new = False
        return Request(self._parser.get_method().decode(), self._target, self._headers, b"", self._peer)

    def refuse(self, status: int) -> None:
        """Stop reading, and drop what has arrived of an unfinished request."""
        self.refused = status
        self._body = self._target = b""
        self._headers, self._blocks, self._blocked = {}, [], 0

    def drop(self, status: int) -> None:
        """Stop reading, and drop the waiting requests too."""
        self.refuse(status)
        self.requests.clear()
        self._sizes.clear()
        self._waiting = 0

    def close(self) -> None:
        """Stop reading. Until this call, reader and parser reference each other and keep an unfinished body alive."""
        del self._parser

    def _without_upgrade(self) -> bytes:
        """Restart the current request, and return its head without the upgrade that it asked for.

        This server upgrades to no protocol (RFC 9110, section 7.8), and llhttp starts the new protocol where the
        headers end, body or no body.
        """
        first = b"%b %b HTTP/%b" % (self._parser.get_method(), self._target, self._parser.get_http_version().encode())
        lines = [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self._parser = HttpRequestParser(self)
        self._begin()
        return b"\r\n".join((first, *lines, b"\r\n"))

    def on_url(self, url: bytes) -> None:
        """Append a piece of the target."""
        self.has_begun = True
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers are ignored."""
        if not self._is_head:
            return  # RFC 9112, section 7.1.2
        name = name.lower()
        headers = self._headers
        if name not in headers:
            headers[name] = value.strip()
        elif name == b"host":
            raise _Refusal(400)  # RFC 9112, section 3.2
        else:
            headers[name] += b"," + value.strip()
            self._repeated += 1

    def on_headers_complete(self) -> None:
        """Check the complete headers, as far as possible before the body."""
        self._is_head = False
        self._is_new = True
        headers, limits = self._headers, self._limits
        if len(headers) + self._repeated > limits.headers or (
            self._fed > limits.header_bytes and _size(self._target, headers) > limits.header_bytes
        ):
            raise _Refusal(431)
        if b"content-length" in headers and int(headers[b"content-length"]) > limits.body_bytes:
            raise _Refusal(413)
        if b"host" not in headers and self._parser.get_http_version() != "1.0":
            raise _Refusal(400)  # RFC 9112, section 3.2
        if b"transfer-encoding" in headers:
            if headers[b"transfer-encoding"].lower() != b"chunked":
                raise _Refusal(501)
            if self._parser.get_http_version() != "1.1":
                raise _Refusal(400)  # RFC 9112, section 6.1
        if b"expect" in headers:
            self.expects = headers[b"expect"].lower() == b"100-continue" and self._parser.get_http_version() == "1.1"

    def on_body(self, piece: bytes) -> None:
        """Append a piece of the body."""
        if not self._body:
            self._body = piece
            self.expects = False
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += piece
        self._fed = self._read
        if self._length > self._limits.body_bytes:
            raise _Refusal(413)
        if len(self._body) >= bounds.BLOCK_BYTES:
            self._blocks.append(bytes(self._body))
            self._blocked += len(self._body)
            self._body = b""

    def on_message_complete(self) -> None:
        """Add the complete request to those that wait."""
        parser, headers = self._parser, self._headers
        if b"upgrade" in headers and parser.should_upgrade():
            return  # llhttp ended it at the headers: its body is still to come
        method = parser.get_method().decode()
        if method == "CONNECT":
            raise _Refusal(405)
        body = b"".join((*self._blocks, self._body)) if self._blocks else bytes(self._body)
        self.requests.append(Request(method, self._target, headers, body, self._peer))
        self.is_last = not parser.should_keep_alive()
        self._fed = self._read
        self._begin()


def _size(target: bytes, headers: dict[bytes, bytes]) -> int:
    return len(target) + sum(map(len, headers)) + sum(map(len, headers.values()))


# --- responses ---


def refusal(status: int) -> Response:
    """Return the response to a request that is malformed, too large, or beyond the capacity."""
    # From 500 on the body is empty: only then botocore assumes a proxy's error and retries.
    body = b"" if status >= 500 else f"{status} {responses[status]}\n".encode()
    headers = ((b"Retry-After", b"%d" % bounds.RETRY_AFTER_S),) if status == 503 else ()
    return Response(status, body, "text/plain", headers)


def encode(response: Response, server_headers: bytes, method: str = "") -> bytes:
    """Return a response as bytes, with the server's own headers, each preceded by a line end.

    Raises:
        ValueError: if a header contains a line end.
    """
    status, body, content_type, headers = response
    lines = b"".join([b"\r\n%b: %b" % header for header in headers])
    if lines.count(b"\r") != len(headers) or lines.count(b"\n") != len(headers):
        raise ValueError(f"a header in {headers!r} contains a line end; remove or encode it")
    start = _start(status, content_type)
    return b"%b%d%b%b\r\n\r\n%b" % (start, len(body), server_headers, lines, b"" if method == "HEAD" else body)


@lru_cache(maxsize=256)
def _start(status: int, content_type: str) -> bytes:
    if "\r" in content_type or "\n" in content_type:
        raise ValueError(f"content type {content_type!r} contains a line end; remove it")
    return f"HTTP/1.1 {status} {responses.get(status, '')}\r\nContent-Type: {content_type}\r\nContent-Length: ".encode()
