"""Answers as HTTP/1.1 has them: bytes, without I/O; and what is called for an answer."""

from collections.abc import Callable
from functools import lru_cache
from http.client import responses
from typing import NamedTuple, Protocol

from inturn.core import limits
from inturn.server.request import Request


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

Admit = Callable[[Request], Response | None]
"""Called with the head of a request whose body is still to come: the answer, if it is refused whatever the body is."""


def refusal(status: int) -> Response:
    """The answer to what is no request, or is too much."""
    # From 500 on it is empty: botocore takes only that for the word of something in front of SQS, and tries again.
    body = b"" if status >= 500 else f"{status} {responses[status]}\n".encode()
    again = ((b"Retry-After", b"%d" % limits.HTTP_RETRY_AFTER_S),) if status == 503 else ()
    return Response(status, body, "text/plain", again)


def encode(response: Response, server_headers: bytes, method: str = "") -> bytes:
    """An answer as it is sent.

    Args:
        response: the answer.
        server_headers: what the server adds, each header with a line end before it.
        method: of the request.

    Raises:
        ValueError: if a header has a line end within it.
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
