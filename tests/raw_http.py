"""A running server, and a client that says exactly the bytes it is told to: what the tests of the HTTP front share."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import uvloop

from inturn.serving.http.http1 import Handler, Reply, Request, RequestLimits, Response
from inturn.serving.http.server import HttpServer

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
WAIT_S = 60
"""How long a test waits for what must come before it fails."""


OK = Response(200, b"ok", "text/plain")


def always(response: Response) -> Handler:
    """A handler that answers so at once."""
    return lambda _, reply: reply(response)


def echo(request: Request, reply: Reply) -> None:
    """Answer with the request as it was understood."""
    answer = {
        "method": request.method,
        "target": request.target.decode("latin-1"),
        "headers": {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()},
        "body": request.body.decode("latin-1"),
        "peer": request.peer,
    }
    reply(Response(200, json.dumps(answer).encode(), "application/json", ((b"X-Told", b"yes"),)))


class Later:
    """A handler that keeps the requests, for the test to answer."""

    def __init__(self) -> None:
        self.held: list[tuple[Request, Any]] = []

    def __call__(self, request: Request, reply: Reply) -> None:
        self.held.append((request, reply))


class Front:
    """A server in a thread of its own, with a loop of the kind that is asked for."""

    def __init__(self, loop: str, handler: Handler = echo, *, tls: ssl.SSLContext | None = None, **limits: Any) -> None:
        self._new_loop = LOOPS[loop]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._start = (handler, tls, RequestLimits(**{"linger_s": 0.2, **limits}))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self.stop(0)

    def _run(self) -> None:
        handler, tls, limits = self._start

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._stopped = asyncio.Event()
            self.server = HttpServer(handler, "127.0.0.1", tls=tls, limits=limits)
            await self.server.start()
            self.port = self.server.port
            self._ready.set()
            await self._stopped.wait()

        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(serve())

    def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns, called in the loop's thread."""

        async def called() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(WAIT_S)

    def stop(self, grace_s: float) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(grace_s), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until the condition holds, seen from the loop's thread."""
        deadline = time.monotonic() + WAIT_S
        while not self.call(condition):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def client(self, tls: ssl.SSLContext | None = None) -> "Client":
        return Client(self.port, tls)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.socket = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, is_head: bool = False) -> Answer:
        """The next answer."""
        status = self._file.readline()
        assert status.startswith(b"HTTP/1.1 "), status
        headers = {}
        while line := self._file.readline().strip():
            name, value = line.decode().split(": ", 1)
            assert name.lower() not in headers
            headers[name.lower()] = value
        body = b"" if is_head else self._file.read(int(headers.get("content-length", 0)))
        return Answer(int(status.split()[1]), headers, body)

    def ask(self, data: bytes) -> Answer:
        self.send(data)
        return self.answer()

    def is_closed(self) -> bool:
        """Whether the server closes without another word; waits for it."""
        try:
            return not self._file.read(1)
        except ConnectionError:
            return True


def get(target: str = "/", *headers: str) -> bytes:
    return "\r\n".join((f"GET {target} HTTP/1.1", "Host: a", *headers, "\r\n")).encode()


def post(body: bytes, *headers: str, target: str = "/") -> bytes:
    return (
        "\r\n".join((f"POST {target} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *headers, "\r\n")).encode()
        + body
    )


def chunked(*pieces: bytes, trailers: bytes = b"") -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailers + b"\r\n"
