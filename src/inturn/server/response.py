"""HTTP/1.1 responses as bytes, without I/O, and the types of the callbacks that give them."""

from collections.abc import Callable
from functools import lru_cache
from http.client import responses
from typing import NamedTuple, Protocol

from inturn.core import limits
from inturn.server.http1 import Request


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

    on_gone: Callable[[], None] | None

    def __call__(self, response: Response) -> None:
        """Send the response."""
        ...


Handler = Callable[[Request, Reply], None]
"""Called in the event loop's thread with each request. If it raises, the client gets 500 without details."""

Admit = Callable[[Request], Response | None]
"""Called with the head of a request before its body arrives: returns the response that refuses it, or None."""


def refusal(status: int) -> Response:
    """Return the response to a request that is malformed or too much."""
    # From 500 on the body is empty: only then botocore assumes a proxy's error and retries.
    body = b"" if status >= 500 else f"{status} {responses[status]}\n".encode()
    again = ((b"Retry-After", b"%d" % limits.HTTP_RETRY_AFTER_S),) if status == 503 else ()
    return Response(status, body, "text/plain", again)


def encode(response: Response, server_headers: bytes, method: str = "") -> bytes:
    """Return a response as bytes.

    Args:
        response: the response.
        server_headers: the server's own headers, each preceded by a line end.
        method: of the request.

    Raises:
        ValueError: if a header contains a line end.
    """
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
