"""Starting and stopping the endpoint: here its parts are put together.

    config = load("inturn.toml")
    async with Endpoint(db, config) as endpoint:
        print(endpoint.url)

:func:`serve` does that until a signal comes, :func:`run` in an event loop of its own.
"""

import asyncio
import gc
import logging
import signal
import ssl
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace

from inturn.core import limits
from inturn.core.errors import InputError, InturnError, StoreError
from inturn.database import Database
from inturn.server import http
from inturn.server.access import Access, Local
from inturn.server.actions.queues import create_queue
from inturn.server.app import BOUNDS_S, App
from inturn.server.config import Config, Queue, check_exposure, is_loopback
from inturn.server.context import Context
from inturn.server.errors import SqsError
from inturn.server.http import Reply, Request, Response
from inturn.server.metrics import CONTENT_TYPE, Metrics, figures_of
from inturn.server.model import CreateQueue
from inturn.server.policies import policies_in
from inturn.server.shared import Shared
from inturn.server.wire import Call
from inturn.store.commands import Ask, Command
from inturn.store.in_loop import InLoop
from inturn.store.sqlite import SqliteStore

_LOG: Final = logging.getLogger(__name__)


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Place:
    """How the endpoint's queues are named to clients; the port is known once it listens."""

    def __init__(self, config: Config) -> None:
        self.be_at(config)

    def be_at(self, config: Config) -> None:
        """It is as configured so."""
        server = config.server
        self.account = server.account
        self.region = server.region
        self.base_url = server.base_url or self.at(config, server.port)

    @staticmethod
    def at(config: Config, port: int) -> str:
        """The URL of an endpoint that listens on this port."""
        host = config.server.host.strip("[]")
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - every address, of which this one is sure to be the server's
            host = "localhost"
        scheme = "http" if config.server.tls_cert is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Endpoint:
    """An SQS endpoint over a database, for ``async with``.

    Args:
        db: the queues; it stays open.
        config: all the rest.

    Attributes:
        metrics: what is counted.
    """

    def __init__(self, db: Database, config: Config) -> None:
        if db.store.servers.shared is None:
            check_exposure(config)
        self._db = db
        self._config = config
        self._shared = Shared(db, config)
        self._place = Place(config)
        self._context = Context(db=db, place=self._place)
        self._access: Access | Local = self._accessed()
        self._app = App(
            db,
            self._place,
            check=self._check,
            first=self._first,
        )
        self.metrics = Metrics(db, self._app.counts, BOUNDS_S)
        self._pages: dict[bytes, Callable[[Request], Awaitable[Response]]] = {b"/health": self._health}
        if config.server.metrics != "off":
            self._pages[b"/metrics"] = self._metrics
        self._showing: set[asyncio.Task[None]] = set()
        self._server: http.Server

    @property
    def url(self) -> str:
        """What clients take as the endpoint's URL."""
        return self._place.base_url

    @property
    def port(self) -> int:
        """On which port it listens."""
        return self._server.port

    async def __aenter__(self) -> Self:
        """It has started."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It stops."""
        await self.stop()

    async def start(self) -> None:
        """Make the queues that are configured and listen.

        Raises:
            InputError: if a queue is there otherwise than configured, or the address or the certificate is of no use.
            StoreError: if the database cannot be used.
        """
        self._config = await self._shared.start()
        check_exposure(self._config)
        self._place.be_at(self._config)
        self._access = self._accessed()
        server = self._config.server
        tls = None if server.tls_cert is None else _tls(server.tls_cert, server.tls_key)
        self._server = http.Server(
            self._handle, server.host.strip("[]"), server.port, tls=tls, limits=_limits(self._config)
        )
        await self._app.start()
        try:
            for queue in sorted(self._config.queues, key=lambda each: "RedrivePolicy" in each.attributes):
                await self._make(queue)
            found = await self._db.writer.arun(Ask("", figures_of))
            ruled = await self._db.writer.arun(Ask("", lambda store, _now_ms: policies_in(store)))
            await self._server.start()
        except OSError as error:
            await self._app.stop()
            msg = f"{server.host}:{server.port} cannot be listened on: {error.strerror or error}; name another"
            raise InputError(msg) from error
        except BaseException:
            await self._app.stop()
            raise
        if server.base_url is None:
            self._place.base_url = Place.at(self._config, self._server.port)
        self._looking = asyncio.create_task(self._look())
        self.metrics.front = self._server
        self._db.writer.watch = self.metrics.watch
        told = {
            "queues": len(found),
            "messages": sum(each.messages for each in found),
            "in_flight": sum(each.in_flight for each in found),
            "keys": len(self._config.keys),
            "port": self._server.port,
        }
        _LOG.info("inturn serves %s", self.url, extra=told)
        if ruled and isinstance(self._access, Local):
            self._access.tell_of_policies()

    async def _make(self, queue: Queue) -> None:
        params = CreateQueue(queue.name, queue.as_told(), queue.tags)
        try:
            await self._db.writer.arun(create_queue(self._context, params))
        except SqsError as error:
            msg = f"[[queues]] {queue.name!r} cannot be made as it is configured: {error.message}"
            raise InputError(msg) from error

    # What is asked of each request may become another while it runs.

    def _check(self, request: Request, call: Call) -> str:
        return self._access(request, call)

    def _first(self, command: Command[Any]) -> Command[Any]:
        return self._access.first(command)

    def _accessed(self) -> Access | Local:
        config = self._config
        return Access(config, self._context) if config.keys else Local(config.server.base_url)

    async def _look(self) -> None:
        """See now and then what other servers have been told."""
        while True:
            await asyncio.sleep(limits.SHARED_S)
            try:
                keys = await self._shared.changed()
                if self._db.store.servers.shared is not None:
                    await self._app.look()
                elif isinstance(self._access, Access):  # another server of the file may have set a policy
                    await self._db.writer.arun(Ask("", lambda _store, _now_ms: None))
            except StoreError:  # the database is away; what is asked of it meanwhile is answered so
                continue
            except InturnError as error:
                _LOG.error("what other servers were told cannot be read: %s", error)
                continue
            if keys is None:
                continue
            _LOG.info("access keys were changed", extra={"keys": len(keys)})
            if isinstance(self._access, Access):
                self._access.use(keys)  # and if that is none, nobody may do anything
            elif keys:
                self._config = replace(self._config, keys=tuple(keys))
                self._access = self._accessed()

    async def stop(self, grace_s: float | None = None) -> None:
        """Take no more requests, answer those that have come.

        Args:
            grace_s: for how many seconds at most; None: as configured.
        """
        self._looking.cancel()
        await self._app.stop()
        self._db.writer.end_waits()
        await self._server.stop(self._config.server.grace_s if grace_s is None else grace_s)
        _LOG.info("stopped", extra={"requests": self._server.requests})

    # --- requests ---

    def _handle(self, request: Request, reply: Reply) -> None:
        if request.method == "GET" and (page := self._pages.get(request.target.partition(b"?")[0])) is not None:
            task = asyncio.get_running_loop().create_task(self._show(page, request, reply))
            self._showing.add(task)
            task.add_done_callback(self._showing.discard)
        else:
            self._app.handle(request, reply)

    async def _show(self, page: Callable[[Request], Awaitable[Response]], request: Request, reply: Reply) -> None:
        try:
            reply(await page(request))
        except Exception as error:  # noqa: BLE001 - whatever it is, who asks is answered
            _LOG.error("a page failed", exc_info=error)
            reply(Response(503, b"the store cannot be asked; the log says more\n", "text/plain"))

    async def _health(self, _request: Request) -> Response:
        is_well, document = await self.metrics.health()
        return Response(200 if is_well else 503, msgspec.json.encode(document), "application/json")

    async def _metrics(self, request: Request) -> Response:
        if self._config.server.metrics == "local" and not is_loopback(request.peer.rpartition(":")[0]):
            text = 'metrics are for this machine only; metrics = "all" in [server] shows them to all who come\n'
            return Response(403, text.encode(), "text/plain")
        return Response(200, await self.metrics.page(), CONTENT_TYPE)


async def serve(db: Database, config: Config) -> None:
    """Serve until SIGTERM or SIGINT comes; then finish what is in flight. A second signal cuts that short.

    Raises:
        InturnError: if it cannot start; see :meth:`Endpoint.start`.
    """
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for each in _SIGNALS:
        loop.add_signal_handler(each, signals.put_nowait, each)
    try:
        async with InLoop(db.writer, db.store) if isinstance(db.store, SqliteStore) else nullcontext():
            await _serve(Endpoint(db, config), signals, config.server.grace_s)
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


async def _serve(endpoint: Endpoint, signals: "asyncio.Queue[signal.Signals]", grace_s: float) -> None:
    await endpoint.start()
    came = await signals.get()
    _LOG.info("stopping", extra={"signal": came.name, "grace_s": grace_s})
    stopping, hurry = asyncio.ensure_future(endpoint.stop()), asyncio.ensure_future(signals.get())
    await asyncio.wait((stopping, hurry), return_when=asyncio.FIRST_COMPLETED)
    if hurry.done() and not stopping.done():
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping
        await endpoint.stop(grace_s=0)
    hurry.cancel()


def run(db: Database, config: Config) -> None:
    """The same in an event loop of its own: uvloop's, where that is installed.

    Raises:
        InturnError: if it cannot start.
    """
    gc.freeze()  # what is there now stays: it need not be looked through again and again
    gc.set_threshold(limits.GARBAGE_OBJECTS)
    with asyncio.Runner(loop_factory=_loop()) as runner:
        runner.run(serve(db, config))


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _limits(config: Config) -> http.Limits:
    given = config.limits
    return http.Limits(
        connections=given.connections, idle_s=given.idle_s, request_s=given.request_s, unread_s=given.unread_s
    )


def _tls(cert: str, key: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        msg = (
            f"the certificate {cert} with the key {key} is of no use: {reason}; both are PEM files that belong together"
        )
        raise InputError(msg) from error
    return context
