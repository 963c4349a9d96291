"""Start and stop of the endpoint, which is assembled here.

    config = load("inturn.toml")
    async with Endpoint(db, config) as endpoint:
        print(endpoint.url)

:func:`serve` does that until a signal arrives, :func:`run` in an event loop of its own.
"""

import asyncio
import gc
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec.structs import replace

from inturn.core.errors import InputError, InturnError, SetupError, StoreError
from inturn.database import Database
from inturn.serving.http.failures import FailureLog
from inturn.serving.http.http1 import Reply, Request, RequestLimits, Response
from inturn.serving.http.server import HttpServer
from inturn.serving.listening import health_address, server_url, tls_context
from inturn.serving.signals import end_process, stop_on_signals
from inturn.sqs import limits
from inturn.sqs.access import KeyAccess
from inturn.sqs.actions.queues import create_queue
from inturn.sqs.app import App
from inturn.sqs.config import Config, QueueConfig, check_exposure
from inturn.sqs.console_config import ConsoleTable
from inturn.sqs.context import Context
from inturn.sqs.errors import SqsError
from inturn.sqs.events import EVENTS
from inturn.sqs.loopback import LoopbackAccess
from inturn.sqs.metrics import Metrics
from inturn.sqs.model import CreateQueue
from inturn.sqs.naming import Home, RequestOrigin, Scope, named_by_arn, scope_of
from inturn.sqs.pages import EndpointPages
from inturn.sqs.policies import policies_in
from inturn.sqs.shared_config import SharedConfig
from inturn.sqs.webhooks import WebhookRoutes
from inturn.store.commands import StoreCall
from inturn.store.sqlite import SqliteStore
from inturn.store.writer.event_loop import EventLoopWriter

if TYPE_CHECKING:
    from inturn.serving.asgi import AsgiServer


class EndpointNaming:
    """The naming of the endpoint's queues to clients; the port is known once it listens."""

    def __init__(self, config: Config) -> None:
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a configuration."""
        server = config.server
        self.home = Home(Scope(server.region, server.account))
        self.joined = server.regions == "joined"
        self.base_url = server.base_url or self.url_at(config, server.port)

    @staticmethod
    def url_at(config: Config, port: int) -> str:
        """Return the URL of an endpoint that listens on this port."""
        server = config.server
        return server_url(server.host, port, is_tls=server.tls_cert is not None)


class Endpoint:
    """An SQS endpoint over a database, for ``async with``.

    Args:
        db: the database with the queues; it stays open.
        config: the configuration.

    Attributes:
        metrics: the endpoint's metrics.
    """

    def __init__(self, db: Database, config: Config) -> None:
        self._db = db
        self._config = config
        self._shared_config = SharedConfig(db, config)
        self._naming = EndpointNaming(config)
        self._context = Context(db=db, naming=self._naming)
        self._failures = FailureLog()
        self._app = App(db, self._naming, access=self._access_check(), failures=self._failures)
        self.metrics = Metrics(db, self._app.counts, failures=self._failures)
        self._pages = EndpointPages(config, self.metrics, self._failures)
        self._app.show_page = self._pages.show
        self._server: HttpServer
        self._health_pages = EndpointPages(config, self.metrics, self._failures, is_open=True)
        self._health: HttpServer | None = None
        self._console: AsgiServer | None = None

    @property
    def url(self) -> str:
        """The endpoint URL for clients."""
        return self._naming.base_url

    @property
    def console_url(self) -> str | None:
        """The address of the console; None: no console is configured."""
        return None if self._console is None else self._console.url

    @property
    def port(self) -> int:
        """The port that the endpoint listens on."""
        return self._server.port

    async def __aenter__(self) -> Self:
        """Start the endpoint."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the endpoint."""
        await self.stop()

    async def start(self) -> None:
        """Create the configured queues and listen.

        Raises:
            InputError: if a queue differs from its configuration, or the address or the certificate cannot be used.
            StoreError: if the database cannot be used.
        """
        self._config = await self._shared_config.start()
        check_exposure(self._config)
        self._naming.configure(self._config)
        self._app.access = self._access_check()
        self._pages.configure(self._config)
        try:
            began = await self._listen()
        except BaseException:
            await self._stop_parts()
            raise
        if self._config.server.base_url is None:
            self._naming.base_url = EndpointNaming.url_at(self._config, self._server.port)
        self._polling = asyncio.create_task(self._poll_changes())
        self.metrics.front = self._server
        self._db.writer.watch = self.metrics.watch
        self._set_phase("serving")
        EVENTS.info("started", self.url, "inturn serves %(url)s", url=self.url, **began)
        if self._console is not None:
            self._console.start()
            url = self._console.url
            EVENTS.info("started", url, "the console is at %(url)s", url=url)

    async def _listen(self) -> dict[str, Any]:
        """Listen: first for health, and at the API's address once all else has succeeded; return the figures to log."""
        server = self._config.server
        if server.health is not None:
            health = HttpServer(self._health_pages.answer, *health_address(server.health), failures=self._failures)
            await health.start()
            self._health = health
        webhooks = [webhook.webhook() for webhook in self._config.webhooks]
        self._webhooks = WebhookRoutes(
            self._db, webhooks, LoopbackAccess(server.base_url), self._app.counts, self._failures
        )
        tls = tls_context(server.tls_cert, server.tls_key)
        self._server = HttpServer(
            self._handle,
            server.host,
            server.port,
            tls=tls,
            limits=_limits(self._config),
            admit=self._admit,
            is_vital=self._pages.is_vital,
            failures=self._failures,
        )
        if self._config.console is not None:
            self._console = _console_server(self._db, self._config.console, tls)
        await self._app.start()
        self._find_home()
        for queue in sorted(self._config.queues, key=lambda configured: "RedrivePolicy" in configured.attributes):
            await self._create_queue(queue)
        await self._webhooks.start()
        figures = (await self._db.figures.aio()).queues
        has_policies = await self._db.writer.arun(StoreCall("", lambda store, _now_ms: policies_in(store)))
        await self._server.start()
        if has_policies and isinstance(self._app.access, LoopbackAccess):
            self._app.access.warn_of_policies()
        return {
            "queues": len(figures),
            "messages": sum(figure.messages for figure in figures),
            "in_flight": sum(figure.in_flight for figure in figures),
            "keys": len(self._config.keys),
            "port": self._server.port,
        }

    def _set_phase(self, phase: Literal["serving", "stopping"]) -> None:
        self._pages.phase = self._health_pages.phase = phase

    async def _stop_parts(self) -> None:
        if self._console is not None:
            await asyncio.to_thread(self._console.stop)
        await self._app.stop()
        if self._health is not None and self._pages.phase == "starting":
            await self._health.stop(0)

    def _admit(self, head: Request) -> Response | None:
        return self._webhooks.admit(head) if self._webhooks.matches(head) else self._app.admit(head)

    def _handle(self, request: Request, reply: Reply) -> None:
        (self._webhooks if self._webhooks.matches(request) else self._app).handle(request, reply)

    def _find_home(self) -> None:
        """Find the queues of the server's own region and account, and warn of queues that cannot be reached."""
        queues, home = list(self._db.store.queues), self._context.home
        self._naming.home = Home(home, named_by_arn(home, queues))
        elsewhere = sum(scope_of(home, stored)[0].region != home.region for stored in queues)
        if elsewhere and self._naming.joined:
            text = 'queues of regions other than the server\'s cannot be reached: server.regions is "joined"'
            EVENTS.warning("unreachable_queues", self._db.name, text, region=home.region, queues=elsewhere)

    async def _create_queue(self, queue: QueueConfig) -> None:
        params = CreateQueue(queue.name, queue.api_attributes(), queue.tags)
        region, account = self._config.scope_of(queue)
        try:
            await self._db.writer.arun(
                create_queue(self._context.for_caller(RequestOrigin("", region, account)), params)
            )
        except SqsError as error:
            msg = f"[[queues]] {queue.name!r} cannot be created as configured: {error.message}"
            raise InputError(msg) from error

    def _access_check(self) -> KeyAccess | LoopbackAccess:
        config = self._config
        if config.keys:
            return KeyAccess(config, self._context, failures=self._failures)
        return LoopbackAccess(config.server.base_url, config.server.region if config.server.check_region else None)

    async def _poll_changes(self) -> None:
        """Apply the changes of other servers at regular intervals."""
        while True:
            await asyncio.sleep(limits.SHARED_S)
            self._failures.flush()
            try:
                keys = await self._shared_config.changed_keys()
                await self._app.resume_moves()  # which also reads the policies that another server has set
            except StoreError:  # the database is unavailable; requests meanwhile are answered with an error
                continue
            except InturnError as error:
                self._failures.failed("cannot read the changes of other servers", error)
                continue
            if keys is None:
                continue
            EVENTS.info("keys_changed", self._db.name, "the access keys have changed", keys=len(keys))
            if isinstance(self._app.access, KeyAccess):
                self._app.access.replace_keys(keys)  # without keys, every request is refused
            elif keys:
                self._config = replace(self._config, keys=tuple(keys))
                self._app.access = self._access_check()
                self._pages.configure(self._config)

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop accepting requests, and answer those that have arrived.

        Args:
            grace_s: the time for the answers, in seconds; None: as configured.
        """
        grace_s = self._config.server.grace_s if grace_s is None else grace_s
        EVENTS.info("stopping", self.url, "stopping", grace_s=grace_s)
        self._set_phase("stopping")
        self._polling.cancel()
        await self._stop_parts()
        self._db.writer.end_waits()
        await self._server.stop(grace_s)
        if self._health is not None:
            await self._health.stop(0)
        self._failures.flush(is_last=True)
        EVENTS.info("stopped", self.url, "stopped", requests=self._server.requests)


async def serve(db: Database, config: Config) -> None:
    """Serve until SIGTERM or SIGINT; then finish the requests in progress. A later SIGINT ends the process at once.

    Raises:
        InturnError: if the endpoint cannot start; see :meth:`Endpoint.start`.
    """
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    writer = EventLoopWriter(db.writer, db.store) if isinstance(db.store, SqliteStore) else nullcontext()
    with stop_on_signals(lambda: loop.call_soon_threadsafe(stopped.set), force=end_process):  # type: ignore[arg-type]
        async with writer, Endpoint(db, config):
            await stopped.wait()


def run(db: Database, config: Config) -> None:
    """Serve in a new event loop: uvloop's, if it is installed.

    Raises:
        InturnError: if the endpoint cannot start.
    """
    gc.freeze()  # objects of the start stay alive: the collector need not scan them
    gc.set_threshold(limits.GARBAGE_OBJECTS)
    with asyncio.Runner(loop_factory=_loop()) as runner:
        runner.run(serve(db, config))


def _console_server(db: Database, table: ConsoleTable, tls: ssl.SSLContext | None) -> "AsgiServer":
    """Return a server of the database's console, on a port of its own.

    It shares no path with SQS clients, and no event loop, so a slow page does not delay them.

    Raises:
        SetupError: if a package of the console is not installed.
        InputError: if its configuration is not valid, or its address cannot be listened on.
    """
    try:
        from inturn.console import ConsoleConfig, read_config
        from inturn.console.server import console_server
    except ModuleNotFoundError as error:
        raise SetupError(f"the console needs {error.name}; install it with: pip install 'inturn[console]'") from error
    return console_server(
        [db],
        ConsoleConfig() if table.config is None else read_config(Path(table.config)),
        host=table.host,
        port=table.port,
        tls=tls,
        pipelines=table.pipelines,
    )


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _limits(config: Config) -> RequestLimits:
    configured = config.limits
    return RequestLimits(
        pending_bytes=configured.pending_bytes,
        connections=configured.connections,
        idle_s=configured.idle_s,
        request_s=configured.request_s,
        unread_s=configured.unread_s,
    )
