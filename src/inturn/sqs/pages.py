"""The pages of the endpoint besides the API: health, readiness, metrics, and a start page for browsers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec

from inturn.serving.http.failures import FailureLog
from inturn.serving.http.http1 import Reply, Request, Response
from inturn.serving.listening import is_loopback
from inturn.sqs.config import Config
from inturn.sqs.errors import SqsError
from inturn.sqs.loopback import LoopbackAccess
from inturn.sqs.metrics import Metrics
from inturn.telemetry.families import PAGE_TYPE

Page = Callable[[Request], Awaitable[Response]]

_VITAL: Final = {b"/health", b"/ready"}

_NOTHING_ELSE: Final = ((b"Content-Security-Policy", b"default-src 'none'; style-src 'unsafe-inline'"),)

_ABOUT: Final = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>inturn: an SQS endpoint</title>
<style>body { font: 16px/1.5 sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }</style>
<h1>inturn</h1>
<p>This is an SQS endpoint: ordered, exactly-once queues with message groups, for clients of Amazon SQS.
It is meant for programs. Set its address as the endpoint URL of boto3, the AWS CLI or another SQS client:</p>
<pre>aws --endpoint-url ADDRESS sqs list-queues</pre>
<p><a href="health">/health</a> answers as long as the process runs, <a href="ready">/ready</a> as long as its database
can be written, and <a href="metrics">/metrics</a> is for Prometheus.</p>
<p>Documentation: <a href="https://github.com/inturn-dev/inturn/blob/main/docs/server.md">The SQS endpoint</a>.</p>
</html>
"""


class EndpointPages:
    """The pages of an endpoint.

    Args:
        config: the configuration.
        metrics: the metrics to show.
        failures: the log of failures.
        is_open: whether all clients see all pages, because the address is not that of the API.

    Attributes:
        phase: what the endpoint does now; it is ready while it serves.
    """

    def __init__(self, config: Config, metrics: Metrics, failures: FailureLog, *, is_open: bool = False) -> None:
        self.phase: Literal["starting", "serving", "stopping"] = "starting"
        self._is_open = is_open
        self._metrics = metrics
        self._failures = failures
        self._showing: set[asyncio.Task[None]] = set()
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a configuration."""
        self._pages: dict[bytes, Page] = {b"/health": self._health, b"/ready": self._ready}
        if self._is_open or config.server.metrics != "off":
            self._pages[b"/metrics"] = self._metrics_page
        self._local = LoopbackAccess(config.server.base_url)
        self._is_guarded = not self._is_open and not config.keys
        self._is_for_all = self._is_open or config.server.metrics == "all"

    def answer(self, request: Request, reply: Reply) -> None:
        """Show the page that a request asks for; there is nothing else at the address."""
        if not self.show(request, reply):
            reply(_text(404, f"no such page; pages: {', '.join(sorted(map(bytes.decode, self._pages)))}"))

    def show(self, request: Request, reply: Reply | None) -> bool:
        """Show the page that a request asks for; return False if it asks for none, but for the API.

        Without a reply nothing is shown: the request has not arrived completely.
        """
        page = self._page_of(request)
        if page is not None and reply is not None:
            task = asyncio.get_running_loop().create_task(self._show(page, request, reply))
            self._showing.add(task)
            task.add_done_callback(self._showing.discard)
        return page is not None

    def _page_of(self, request: Request) -> Page | None:
        if request.method not in {"GET", "HEAD"}:
            return None
        path, _, query = request.target.partition(b"?")
        if path in {b"", b"/"}:
            is_browser = b"text/html" in request.headers.get(b"accept", b"").lower()
            return self._start_page if is_browser and b"Action=" not in query else None
        return self._pages.get(path)

    @staticmethod
    def is_vital(request: Request) -> bool:
        """Return whether a request is answered when there are too many connections."""
        return request.method in {"GET", "HEAD"} and request.target.partition(b"?")[0] in _VITAL

    async def _show(self, page: Page, request: Request, reply: Reply) -> None:
        """Return a page, or 403 if an endpoint without keys must not show it to the client."""
        try:
            if self._is_guarded:
                self._local.admit(request)
            response = await page(request)
        except SqsError as error:
            response = _text(403, error.message)
        except Exception as error:  # noqa: BLE001 - the client is answered in any case
            self._failures.failed("the request for a page failed", error)
            response = Response(503, b"the store cannot be read; see the log\n", "text/plain")
        reply(response)

    async def _start_page(self, _request: Request) -> Response:
        return Response(200, _ABOUT, "text/html; charset=utf-8", _NOTHING_ELSE)

    async def _health(self, _request: Request) -> Response:
        return Response(200, b'{"status":"ok"}', "application/json")

    async def _ready(self, _request: Request) -> Response:
        is_ready, document = False, {"status": self.phase}
        if self.phase == "serving":
            is_ready, document = await self._metrics.health()
        return Response(200 if is_ready else 503, msgspec.json.encode(document), "application/json")

    async def _metrics_page(self, request: Request) -> Response:
        if not self._is_for_all and not (
            is_loopback(request.peer.rpartition(":")[0]) and self._local.is_own(request.headers.get(b"host", b""))
        ):
            return _text(
                403,
                'metrics are shown to this machine only; set metrics = "all" in [server] to show them to all clients',
            )
        return Response(200, await self._metrics.page(), PAGE_TYPE)


def _text(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode(), "text/plain")
