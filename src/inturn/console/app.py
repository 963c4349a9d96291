"""The console's ASGI application: its routes and their access control.

Only requests for its own hosts are answered, so that a foreign page that resolves its name to this machine (DNS
rebinding) gets nothing. A form must contain the token of a page (CSRF). Pages run only the scripts that the console
serves itself; their Content-Security-Policy forbids all others.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from inturn.console import openapi
from inturn.console.access import FAILURES_S, ConsoleAccess, address_of
from inturn.console.actions_log import ActionsLog
from inturn.console.config import ConsoleConfig
from inturn.console.decision_applier import DecisionApplier
from inturn.console.fields import RequestFields
from inturn.console.forms import MessageForms
from inturn.console.guard import RequestGuard
from inturn.console.live import StoreWatch
from inturn.console.masks import MaskRules, masked_error
from inturn.console.pages import FOLDER, ConsolePages
from inturn.console.previewed_groups import PreviewedGroups
from inturn.console.rates import QueueRates
from inturn.console.refusal import RequestRefused, status_of
from inturn.console.reports import ReportFiles
from inturn.console.request_body import check_origin, form_fields, json_fields, query_fields
from inturn.console.roles import Person, Role
from inturn.console.routes import ACTIONS, DECIDE, PAGES, TRY, ActionRoute, PageRoute
from inturn.console.store_addresses import store_address
from inturn.console.views import to_json_value
from inturn.core import limits
from inturn.core.errors import InputError, InturnError
from inturn.database import Database

Answer = Callable[[Request], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def console(
    *stores: str | Path | Database,
    hosts: Sequence[str] = (),
    by: str = "",
    pipelines: Sequence[str] = (),
    config: ConsoleConfig | None = None,
    apply_decisions: bool = False,
) -> Starlette:
    """Return the console of some stores: an ASGI application, to be served or mounted.

    ``app.mount("/inturn", console("shop.db"))`` mounts it in Starlette and FastAPI. Without people or a proxy in the
    configuration it has no log-in: everyone who can reach it can read messages and decide. In that case, mount it
    behind your own log-in.

    Args:
        stores: databases, ``shop.db#ledger``, or stores on Spark. Of an open database only the address is used: the
            console opens it for each request, so you may close it.
        hosts: the host names that requests may use; ``*.example.org`` includes all subdomains; none: the hosts of the
            configuration.
        by: the name stored with decisions if no user is logged in and the form names none.
        pipelines: definitions, ``ledger.py:ledger`` or ``package.module:name``, whose handlers dry runs use; each dry
            run is a separate process.
        config: the users, the fields that viewers do not see, and the action log.
        apply_decisions: whether decisions are applied at once with the handlers of ``pipelines``, in a separate
            process; otherwise a worker, or the next step on Spark, applies them.

    Raises:
        InputError: if no store is named, the configuration is not valid, or ``apply_decisions`` is set without
            pipelines.
    """
    if not stores:
        raise InputError("no store is given; name at least one store, such as shop.db")
    if apply_decisions and not pipelines:
        raise InputError(
            "pipelines is empty, but apply_decisions needs their handlers; name pipelines, or let a worker apply "
            "decisions"
        )
    names, applier = [_address(store) for store in stores], DecisionApplier(pipelines) if apply_decisions else None
    return _Console(names, hosts, by, pipelines, config or ConsoleConfig(), applier).app


def _address(store: str | Path | Database) -> str:
    """Return the address of a store.

    Raises:
        InputError: if it is in memory.
    """
    address = store.target if isinstance(store, Database) else str(store)
    if address == ":memory:":
        raise InputError("the console cannot open a database in memory; use a database in a file or on PostgreSQL")
    return address


class _Console:
    """The routes of one console."""

    def __init__(
        self,
        stores: Sequence[str],
        hosts: Sequence[str],
        by: str,
        pipelines: Sequence[str],
        config: ConsoleConfig,
        applier: DecisionApplier | None,
    ) -> None:
        self._applier = applier
        self._stores, self._definitions = tuple(stores), tuple(pipelines)
        self._forms, self._rates, self._previewed = MessageForms(), QueueRates(), PreviewedGroups()
        self._forms.prepare(self._definitions)
        self._access = ConsoleAccess(config, Person(by, Role.ADMIN, is_known=False))
        self._masks, self._log = MaskRules(config.mask), ActionsLog(config.log_file())
        self._pages, self._watch = (
            ConsolePages(self._access.form_token, has_log_in=config.has_log_in),
            StoreWatch(stores),
        )
        self._reports = ReportFiles(config.reports)
        sees_reports = Role.OPERATOR if config.mask else Role.VIEWER  # masks do not apply to reports
        routes: list[BaseRoute] = []
        for page in PAGES:
            routes.append(Route(page.path, self._guarded(page.role, self._page_answer(page)), name=page.name))
            routes.append(
                Route(f"/api/{page.name}", self._guarded(page.role, self._document_answer(page), is_api=True))
            )
        for action in ACTIONS:
            name = action.path.strip("/").replace("/", "_")
            routes.append(
                Route(action.path, self._posted(action, self._form_answer(action)), methods=["POST"], name=name)
            )
            call = self._posted(action, self._api_answer(action), is_api=True)
            routes.append(Route(f"/api{action.path}", call, methods=["POST"]))
        routes += [
            Route("/try", self._posted(TRY, self._try_answer(is_api=False)), methods=["POST"], name="try"),
            Route("/api/try", self._posted(TRY, self._try_answer(is_api=True), is_api=True), methods=["POST"]),
            Route("/actions", self._guarded(Role.ADMIN, self._actions), name="actions"),
            Route("/api/actions", self._guarded(Role.ADMIN, self._actions_document, is_api=True)),
            Route("/reports/{report}", self._guarded(sees_reports, self._report), name="reports"),
            Route("/openapi.json", self._guarded(Role.VIEWER, self._api_document, is_api=True)),
            Route("/live", self._live, name="live"),
            Route("/login", self._login, methods=["GET", "POST"], name="login"),
            Route("/logout", self._logout, methods=["POST"], name="logout"),
            Mount("/static", StaticFiles(directory=FOLDER / "static"), name="static"),
        ]
        self.app = Starlette(
            routes=routes,
            middleware=[Middleware(RequestGuard, hosts=list(hosts) or config.hosts)],
            exception_handlers={HTTPException: self._no_route},
        )
        self.app.state.end_streams = self._watch.end

    # --- access ---

    def _person(self, request: Request, role: Role) -> Person:
        """Return the user of a request.

        Raises:
            RequestRefused: if the user is not identified, or does not have the rights of the role.
        """
        person = self._access.person(request)
        if person is None:
            if "authorization" in request.headers:
                self._log.note(request.url.path, "", f"refused a token from {address_of(request)}")
            raise RequestRefused("not logged in; log in, or send a token", 401)
        if not person.may(role):
            raise RequestRefused(f"{person.name} has the role {person.role}; this requires the role {role}", 403)
        request.state.person = person
        return person

    def _guarded(self, role: Role, answer: Answer, *, is_api: bool = False) -> Endpoint:
        """Return an endpoint that answers only users with the rights of a role; errors are a page or JSON."""

        def answered(request: Request) -> Response:
            try:
                self._person(request, role)
                return answer(request)
            except (InturnError, OSError) as error:
                return self._refused(request, error, is_api=is_api)

        async def endpoint(request: Request) -> Response:
            return await run_in_threadpool(answered, request)

        return endpoint

    def _posted(self, route: PageRoute | ActionRoute, answer: Answer, *, is_api: bool = False) -> Endpoint:
        """Return an endpoint for a form or a JSON object, which must be sent by a page of this console or a program.

        The body is not read if the user does not have the rights.
        """
        guarded = self._guarded(route.role, answer, is_api=is_api)

        async def endpoint(request: Request) -> Response:
            try:
                await run_in_threadpool(self._person, request, route.role)
                request.state.fields = await self._fields(request, route, is_api=is_api)
            except (InturnError, OSError) as error:
                return self._refused(request, error, is_api=is_api)
            return await guarded(request)

        return endpoint

    async def _fields(self, request: Request, route: PageRoute | ActionRoute, *, is_api: bool) -> dict[str, str]:
        """Return the fields of a form or of a JSON object.

        Raises:
            RequestRefused: if it was sent from another site, lacks the token of a page, or is too large.
        """
        check_origin(request.headers)
        if is_api:
            return await json_fields(request, route.fields)
        form = await form_fields(request)
        self._check_form(request, form)
        return form

    def _check_form(self, request: Request, form: dict[str, str]) -> None:
        """Check that a form contains the token of a page of this person, and remove the token.

        Raises:
            RequestRefused: if it does not.
        """
        token = form.pop("token", "").encode("utf-8", "replace")
        if not secrets.compare_digest(token, self._access.form_token(request).encode()):
            raise RequestRefused("the page is from an earlier session, or a restarted console; reload it", 403)

    def _refused(self, request: Request, error: Exception, *, is_api: bool) -> Response:
        status = status_of(error)
        person: Person | None = getattr(request.state, "person", None)
        if person is not None and self._is_masked(person):
            error = masked_error(error)
        headers = {"retry-after": str(int(FAILURES_S))} if status == 429 else {}
        if is_api:
            headers |= {"www-authenticate": "Bearer"} if status == 401 else {}
            return JSONResponse({"error": str(error)}, status, headers)
        if status == 401 and self._access.accepts_tokens:
            return self._pages.log_in(request, 401)
        answer = self._pages.fault(request, error, status)
        answer.headers.update(headers)
        return answer

    async def _no_route(self, request: Request, error: Exception) -> Response:
        """Answer a request for which there is no route, or none with its method."""
        assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for this type
        text = f"{request.method} {request.url.path}: {error.detail.lower()}"
        return JSONResponse({"error": text}, error.status_code, error.headers)

    def _is_masked(self, person: Person) -> bool:
        return bool(self._masks) and person.role is Role.VIEWER

    # --- pages and documents ---

    def _request_fields(self, request: Request, fields: Mapping[str, str]) -> RequestFields:
        person: Person = request.state.person
        if self._is_masked(person) and fields.get("error"):
            raise RequestRefused("viewers cannot filter by error: errors may quote masked fields", 403)
        return RequestFields(self._stores, fields, person, self._definitions, self._forms, self._rates, self._previewed)

    def _page_values(self, request: Request, page: PageRoute, fields: Mapping[str, str]) -> Any:
        values = page.view(self._request_fields(request, fields))
        return self._masks.apply(values) if self._is_masked(request.state.person) else values

    def _page_answer(self, page: PageRoute) -> Answer:
        def answer(request: Request) -> Response:
            values = self._page_values(request, page, dict(request.query_params.multi_items()))
            reports = [] if self._is_masked(request.state.person) else self._reports.names
            return self._pages.page(request, f"{page.name}.html.j2", reports=reports, **values)

        return answer

    def _document_answer(self, page: PageRoute) -> Answer:
        return lambda request: JSONResponse(
            to_json_value(self._page_values(request, page, query_fields(request, page.fields)))
        )

    def _actions(self, request: Request) -> Response:
        return self._pages.page(request, "actions.html.j2", actions=self._log.latest(), path=str(self._log.path))

    def _report(self, request: Request) -> Response:
        return self._reports.answer(request.path_params["report"])

    def _api_document(self, _: Request) -> Response:
        return JSONResponse(openapi.document(has_log_in=self._access.has_log_in))

    def _actions_document(self, _: Request) -> Response:
        return JSONResponse({"actions": self._log.latest()})

    # --- actions ---

    def _run_action(self, request: Request, action: ActionRoute) -> dict[str, str]:
        """Do an action, between two lines of the log."""
        fields: dict[str, str] = request.state.fields
        person: Person = request.state.person
        named = person if person.is_known else person._replace(name=fields.get("by") or person.name)
        with self._log.action(named, action.path, fields) as outcome:
            done = action.act(self._request_fields(request, fields))
            outcome.update(done)
        if self._applier is not None and action is DECIDE:
            self._applier.apply(store_address(self._stores, done["store"]).address)
        return done

    def _form_answer(self, action: ActionRoute) -> Answer:
        def answer(request: Request) -> Response:
            done = self._run_action(request, action)
            return RedirectResponse(self._pages.link(request, action.page, **done), 303)

        return answer

    def _api_answer(self, action: ActionRoute) -> Answer:
        return lambda request: JSONResponse(self._run_action(request, action))

    def _try_answer(self, *, is_api: bool) -> Answer:
        def answer(request: Request) -> Response:
            fields: dict[str, str] = request.state.fields
            with self._log.action(request.state.person, "/try", fields):
                values = TRY.view(self._request_fields(request, fields))
            return JSONResponse(to_json_value(values)) if is_api else self._pages.page(request, "try.html.j2", **values)

        return answer

    # --- log-in, and live updates ---

    async def _login(self, request: Request) -> Response:
        """Show the log-in form, or begin a session with a posted token."""
        if request.method != "POST":
            return self._pages.log_in(request, 200)
        try:
            check_origin(request.headers)
            form = await form_fields(request)
            self._check_form(request, form)
            person = await run_in_threadpool(self._logged_in, request, form.get("secret", ""))
        except (InturnError, OSError) as error:
            return self._refused(request, error, is_api=False)
        if person is None:
            return self._pages.log_in(request, 401, wrong=True)
        response = RedirectResponse(self._pages.link(request, "stuck"), 303)
        self._access.log_in(request, response, person)
        return response

    def _logged_in(self, request: Request, secret: str) -> Person | None:
        """Return the person with a token, after writing an entry to the action log.

        Raises:
            RequestRefused: if the address sent too many wrong tokens.
            StoreError: if the log cannot be written; the person is not logged in then.
        """
        person = self._access.with_token(secret, address_of(request))
        event = "logged in" if person else f"refused a token from {address_of(request)}"
        self._log.note("/login", person.name if person else "", event)
        return person

    async def _logout(self, request: Request) -> Response:
        try:
            check_origin(request.headers)
            self._check_form(request, await form_fields(request))
        except InturnError as error:
            return self._refused(request, error, is_api=False)
        response = RedirectResponse(self._pages.link(request, "login"), 303)
        self._access.log_out(request, response)
        return response

    async def _live(self, request: Request) -> Response:
        """Answer with a stream that has an event for each change of a store."""
        try:
            await run_in_threadpool(self._person, request, Role.VIEWER)
        except (InturnError, OSError) as error:
            return self._refused(request, error, is_api=True)
        if self._watch.is_full:
            text = f"{limits.CONSOLE_LISTENERS} pages already get live updates (the maximum); reload this page instead"
            return JSONResponse({"error": text}, 503)
        return StreamingResponse(self._events(request), media_type="text/event-stream")

    async def _events(self, request: Request) -> AsyncIterator[str]:
        """Yield the events of the stores until the user's session ends."""
        async for event in self._watch.events():
            if self._access.person(request) is None:
                return
            yield event
