"""``inturn serve`` with Granian's RSGI server in the place of its own HTTP server; ``sqs.py`` measures it.

    pip install granian && python benchmarks/sqs.py --only inturn "inturn on Granian"

It answers requests and nothing more: without the bounds on clients, the order in which connections make way, TLS and
the graceful stop of the own server, which would cost further time.
"""

import asyncio
from collections import Counter
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from inturn.cli import app
from inturn.serving.http.http1 import Handler, Request, Response, refusal
from inturn.sqs import run


class Reply:
    """The reply to one request, which the handler calls now or later."""

    def __init__(self, answer: "asyncio.Future[Response]") -> None:
        self._answer = answer
        self.on_disconnect: Any = None

    def __call__(self, response: Response) -> None:
        if not self._answer.done():
            self._answer.set_result(response)


class GranianServer:
    """Granian with the interface of ``HttpServer``."""

    def __init__(self, handler: Handler, host: str, port: int, *, limits: Any, admit: Any, **_: Any) -> None:
        self._handler, self._limits, self._admit = handler, limits, admit
        self.port = port
        self.requests = self.open_connections = self.pending_bytes = 0
        self.refused: Counter[int] = Counter()
        self._server = Server(
            self._answer,
            host,
            port,
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            log_enabled=False,
            backlog=1024,
        )

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = self._loop.create_task(self._server.serve())

    async def stop(self, _grace_s: float) -> None:
        self._server.stop()
        await self._serving

    async def _answer(self, scope: Any, protocol: Any) -> None:
        self.requests += 1
        headers = {name.encode("latin-1"): value.encode("latin-1") for name, value in scope.headers.items()}
        query = f"?{scope.query_string}" if scope.query_string else ""
        request = Request(scope.method, f"{scope.path}{query}".encode(), headers, b"", scope.client)
        if int(headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            response: Response | None = refusal(413)
        else:
            response = self._admit(request)
        if response is None:
            body = await protocol()
            answer: asyncio.Future[Response] = self._loop.create_future()
            self._handler(request._replace(body=body), Reply(answer))
            response = await answer
        fields = [("content-type", response.content_type)]
        fields += [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers]
        protocol.response_bytes(response.status, fields, response.body)


if __name__ == "__main__":
    run.HttpServer = GranianServer  # type: ignore[assignment,misc]
    app()
