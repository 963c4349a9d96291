"""A proxy before an object store that does what it is asked and then answers something else, or nothing."""

import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlparse

from waiting import DEADLINE_S

Fault = int | Literal["cut"] | None
"""The status of the answer in place of the real one; "cut": the connection ends without one; None: the real one."""

Faults = Callable[[str, str], Fault]
"""By method and path, what becomes of the answer to a request."""


class Proxy:
    """The address that clients are given, and what it does to answers.

    Attributes:
        url: the address.
        faults: asked for each request, after the store has carried it out.
        refuses: whether no request reaches the store any more.
        answered: each request so far, with the status that the store itself gave.
    """

    def __init__(self, endpoint: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.faults: Faults = lambda method, path: None
        self.refuses = False
        self.answered: list[tuple[str, str, int]] = []
        self.host = str(urlparse(endpoint).netloc)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = Proxy(endpoint, self.server_port)

    def handle_error(self, *_: object) -> None:
        """A connection that was cut is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer in one packet: else it waits for the client's delayed acknowledgement
    server: _Server

    def carry_out(self) -> None:
        """Pass a request on, then answer as the fault says."""
        proxy = self.server.proxy
        body = self.body()
        if proxy.refuses:
            self.cut()
            return
        store = http.client.HTTPConnection(proxy.host)
        try:
            hop = ("transfer-encoding", "content-length", "expect", "connection")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in hop}
            store.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
            answer = store.getresponse()
            content = answer.read()
        finally:
            store.close()
        proxy.answered.append((self.command, self.path, answer.status))
        fault = proxy.faults(self.command, self.path)
        if fault == "cut":
            self.cut()
        elif fault is not None:
            self.answer(fault, {}, b"<Error><Code>InternalError</Code></Error>")
        else:
            self.answer(answer.status, dict(answer.getheaders()), content)

    def body(self) -> bytes:
        """Read the request's body, which pyarrow's client sends in chunks."""
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(parts)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = carry_out  # noqa: N815 - as the library asks for them

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        """Send an answer; that to a HEAD tells the length of what it does not hold."""
        is_head = self.command == "HEAD"
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", headers.get("Content-Length", "0") if is_head else str(len(content)))
        self.end_headers()
        if not is_head:
            self.wfile.write(content)

    def cut(self) -> None:
        """End the connection with a reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def proxied(endpoint: str) -> Iterator[Proxy]:
    """Start a proxy before an endpoint; it ends with the block."""
    server = _Server(endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join(DEADLINE_S)


def once(fault: Fault, *, put: str) -> Faults:
    """The fault for the first PUT whose path has these letters in it, and none afterwards."""
    remaining = [fault]

    def faults(method: str, path: str) -> Fault:
        return remaining.pop() if remaining and method == "PUT" and put in path else None

    return faults
