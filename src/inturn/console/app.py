"""The console's ASGI application: its routes, and who may ask.

Only requests for its own hosts are answered, so that a foreign page that resolves its name to this machine (DNS
rebinding) gets nothing. A form must have the token of a page (CSRF). ConsolePages have no scripts, and their
Content-Security-Policy forbids any.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inturn.console import views
from inturn.console.fields import RequestFields
from inturn.console.pages import FOLDER, ConsolePages
from inturn.core.errors import InputError, InturnError, StoreError

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_BODY: Final = 2 * 1024 * 1024
"""The greatest size of a form, in bytes: a message of the greatest size, encoded for a form."""
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
View: TypeAlias = Callable[[RequestFields], Any]


def console(*stores: str, hosts: Sequence[str] = LOOPBACK, by: str = "") -> Starlette:
    """Make the console of some stores: an ASGI application, to be served or mounted.

    ``app.mount("/inturn", console("shop.db"))`` mounts it in Starlette and FastAPI. It has no log-in: whoever reaches
    it reads messages and decides. Mount it behind your own.

    Args:
        stores: databases, ``shop.db#ledger``, or stores on Spark.
        hosts: the names under which it may be asked for; ``*.example.org`` includes all below.
        by: the person who decides, where a form leaves it out.

    Raises:
        InputError: if no store is named.
    """
    if not stores:
        raise InputError("the console needs at least one store, such as shop.db")
    return _Console(stores, hosts, by).app


class _Console:
    """The routes of one console."""

    def __init__(self, stores: Sequence[str], hosts: Sequence[str], by: str) -> None:
        self._stores, self._by = tuple(stores), by
        self._token = secrets.token_urlsafe(32)
        self._pages = ConsolePages(self._token)
        routes: list[BaseRoute] = [
            Route("/", self._page(views.overview, "stuck.html.j2"), name="stuck"),
            Route("/group", self._page(views.group, "group.html.j2"), name="group"),
            Route("/decide", self._page(views.preview, "decide.html.j2"), name="preview"),
            Route("/decide", self._decide, methods=["POST"], name="decide"),
            Route("/decided", self._page(views.decided, "decided.html.j2"), name="decided"),
            Route("/api/stuck", self._document(views.overview), name="api_stuck"),
            Route("/api/group", self._document(views.group), name="api_group"),
            Mount("/static", StaticFiles(directory=FOLDER / "static"), name="static"),
        ]
        self.app = Starlette(
            routes=routes,
            middleware=[
                Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
                Middleware(_SafeHeaders),
            ],
        )

    def _page(self, view: View, template: str) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that shows what a view finds."""

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(self._shown, request, view, template)

        return answer

    def _shown(self, request: Request, view: View, template: str) -> Response:
        asked = RequestFields.of(self._stores, dict(request.query_params.multi_items()))
        try:
            return self._pages.page(request, template, **view(asked))
        except (InturnError, OSError) as error:
            return self._pages.fault(request, error)

    def _document(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that answers with what a view finds, as JSON."""

        def found(request: Request) -> Response:
            try:
                asked = RequestFields.of(self._stores, dict(request.query_params.multi_items()))
                return JSONResponse(views.plain(view(asked)))
            except (InturnError, OSError) as error:
                return JSONResponse({"error": str(error)}, status_of(error))

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(found, request)

        return answer

    async def _decide(self, request: Request) -> Response:
        """Take a decision from a form, and show what became of it."""
        if not _is_from_here(request):
            return self._pages.fault(request, InputError("the form comes from another site"), 403)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _BODY:
                return self._pages.fault(request, InputError(f"the form has more than {_BODY:,} bytes"), 413)
        try:
            form = {name: values[-1] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        except (UnicodeDecodeError, ValueError) as error:
            return self._pages.fault(request, InputError(f"the form is not readable: {error}"), 400)
        if not secrets.compare_digest(form.get("token", "").encode(), self._token.encode()):
            stale = InputError("the page is of an earlier run of the console: load it again")
            return self._pages.fault(request, stale, 403)

        def decide() -> Response:
            try:
                where = views.decide(RequestFields.of(self._stores, form), by=form.get("by") or self._by)
            except (InturnError, OSError) as error:
                return self._pages.fault(request, error)
            return RedirectResponse(self._pages.link(request, "decided", **where), 303)

        return await run_in_threadpool(decide)


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, StoreError | OSError):
        return 503
    return 400


def _is_from_here(request: Request) -> bool:
    """Return whether a browser says that a form comes from this console's own pages; other clients say nothing."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in {"same-origin", "none"}:
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


class _SafeHeaders:
    """Middleware that sets the headers of :data:`_HEADERS` on each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, sent)
