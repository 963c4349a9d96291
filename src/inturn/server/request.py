"""HTTP/1.1 requests out of the bytes of one connection: httptools parses, this file keeps the rules and the bounds.

It does no I/O, so that every rule is tested by bytes alone. What is read depends on the bytes, not on how they were cut
on their way. A request is refused for what RFC 9112 forbids where two servers could read it differently (smuggling).
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from inturn.core import limits as bounds


class Request(NamedTuple):
    """A request as it came.

    Attributes:
        method: in upper case; any that llhttp knows but CONNECT.
        target: path and query as sent.
        headers: by name in lower case, values without space around them; repeated ones are joined by a comma.
        body: decoded if it came in chunks.
        peer: address and port of the client.
    """

    method: str
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes
    peer: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients can take of the server, in bytes, numbers and seconds; ``inturn.core.limits`` says what each is."""

    header_bytes: int = bounds.HTTP_HEADER_BYTES
    headers: int = bounds.HTTP_HEADERS
    body_bytes: int = bounds.HTTP_BODY_BYTES
    pending_bytes: int = bounds.HTTP_PENDING_BYTES
    connections: int = bounds.HTTP_CONNECTIONS
    pipelined: int = bounds.HTTP_PIPELINED
    idle_s: float = bounds.HTTP_IDLE_S
    request_s: float = bounds.HTTP_REQUEST_S
    unread_s: float = bounds.HTTP_UNREAD_S
    linger_s: float = bounds.HTTP_LINGER_S


class _Refusal(Exception):
    """Raised where the parser calls, to stop it: the request is refused with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class Reader:
    """Reads the requests of one connection. The ``on_`` methods are called by its parser.

    Args:
        limits: what the client can take.
        peer: what its requests have as ``peer``.

    Attributes:
        requests: those that have come in whole and wait; :meth:`take` takes the first out.
        refused: the status with which what comes after them is refused, or 0. Nothing more is read then.
        is_last: whether the last of them closes the connection. Nothing more is read then.
        has_begun: whether the next one has begun to come.
        expects: whether the client waits to be told to go on before it sends the body (RFC 9110, section 10.1.1).
    """

    def __init__(self, limits: Limits, peer: str) -> None:
        self.requests: deque[Request] = deque()
        self.refused = 0
        self.is_last = False
        self._limits = limits
        self._peer = peer
        self._sizes: deque[int] = deque()  # in bytes, of the requests that still wait when it is asked what is held
        self._waiting = 0  # their sum
        self._parser = HttpRequestParser(self)
        self._read = 0  # bytes of the last read
        self._fed = 0  # bytes since the request, or its last piece of body, began; at most one read too many
        self._begin()

    def _begin(self) -> None:
        self.has_begun = self.expects = False
        self._is_head = True  # as long as headers may come
        self._is_new = False  # the headers have come and nobody has looked at them
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated = 0  # headers that had the name of an earlier one
        self._blocks: list[bytes] = []  # of the body, so that a long one is not copied whenever it grows
        self._blocked = 0  # bytes in them
        self._body: bytes | bytearray = b""  # what came after them

    def feed(self, data: memoryview | bytes) -> None:
        """Read on; ``data`` is at most ``HTTP_READ_BYTES`` long."""
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
        if self._fed > self._limits.header_bytes + bounds.HTTP_READ_BYTES and not self.refused:
            self.refused = 431  # headers or trailers without end
        if self.refused:
            self.refuse(self.refused)

    @property
    def held(self) -> int:
        """How many bytes are kept here of requests that nobody has taken; at most one read too many."""
        if len(self._sizes) < len(self.requests):
            for target, headers, body in [each[1:4] for each in self.requests][len(self._sizes) :]:
                self._sizes.append(_size(target, headers) + len(body))
                self._waiting += self._sizes[-1]
        if self.refused or not self.has_begun:
            return self._waiting
        partial = self._fed if self._is_head else _size(self._target, self._headers) + self._length
        return self._waiting + partial

    @property
    def _length(self) -> int:
        return self._blocked + len(self._body)

    def take(self) -> Request:
        """Take out the request that has waited for the longest."""
        if self._sizes:
            self._waiting -= self._sizes.popleft()
        return self.requests.popleft()

    def head(self) -> Request | None:
        """The head of the request whose body is still to come, without the body; once for each, then None."""
        if not self._is_new:
            return None
        self._is_new = False
        return Request(self._parser.get_method().decode(), self._target, self._headers, b"", self._peer)

    def refuse(self, status: int) -> None:
        """Read no more, and let go of what has come of an unfinished request: nobody will have it."""
        self.refused = status
        self._body = self._target = b""
        self._headers, self._blocks, self._blocked = {}, [], 0

    def drop(self, status: int) -> None:
        """Refuse the requests that wait, too."""
        self.refuse(status)
        self.requests.clear()
        self._sizes.clear()
        self._waiting = 0

    def close(self) -> None:
        """Read no more. It and its parser hold each other, and with them what came of a body, until this is called."""
        del self._parser

    def _without_upgrade(self) -> bytes:
        """Go back to where a request began, and give its head again without the protocol that it asked for.

        We speak no other (RFC 9110, section 7.8), and to llhttp it begins where the headers end, body or no body.
        """
        first = b"%b %b HTTP/%b" % (self._parser.get_method(), self._target, self._parser.get_http_version().encode())
        lines = [b"%b: %b" % header for header in self._headers.items() if header[0] != b"upgrade"]
        self._parser = HttpRequestParser(self)
        self._begin()
        return b"\r\n".join((first, *lines, b"\r\n"))

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self.has_begun = True
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
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
        """All headers have come: what can be known of the request before its body."""
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
        """A piece of the body."""
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
        if len(self._body) >= bounds.HTTP_BLOCK_BYTES:
            self._blocks.append(bytes(self._body))
            self._blocked += len(self._body)
            self._body = b""

    def on_message_complete(self) -> None:
        """A request has come in whole."""
        parser, headers = self._parser, self._headers
        if b"upgrade" in headers and parser.should_upgrade():
            return  # its body is still to come
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
