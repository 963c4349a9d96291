"""Every route of the application, for every role, in every way of asking: one table, which has a row for each route."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from console_shop import HOST, Shop
from guarded import TOKENS, Guarded, form_token
from starlette.routing import Mount, Route

from inturn.console import Role
from inturn.console.routes import ACTIONS, PAGES, TRY

pytestmark = pytest.mark.thorough

FIELDS = {page.name: page.fields for page in (*PAGES, TRY)} | {action.path[1:]: action.fields for action in ACTIONS}
ALLOWED = "allowed"


class Row(NamedTuple):
    """A route: how it is asked, who may, and the fields that it takes."""

    kind: str
    role: Role | None
    fields: str = ""


TABLE: dict[tuple[str, str], Row] = {
    ("GET", "/"): Row("page", Role.VIEWER, "stuck"),
    ("GET", "/group"): Row("page", Role.VIEWER, "group"),
    ("GET", "/preview"): Row("page", Role.OPERATOR, "preview"),
    ("GET", "/decided"): Row("page", Role.VIEWER, "decided"),
    ("GET", "/queues"): Row("page", Role.VIEWER, "queues"),
    ("GET", "/queue"): Row("page", Role.VIEWER, "queue"),
    ("GET", "/sources"): Row("page", Role.VIEWER, "sources"),
    ("GET", "/steps"): Row("page", Role.VIEWER, "steps"),
    ("GET", "/dead"): Row("page", Role.VIEWER, "dead"),
    ("GET", "/search"): Row("page", Role.VIEWER, "search"),
    ("GET", "/actions"): Row("page", Role.ADMIN),
    ("GET", "/live"): Row("events", Role.VIEWER),
    ("GET", "/openapi.json"): Row("document", Role.VIEWER),
    ("GET", "/reports/{report}"): Row("document", Role.OPERATOR),  # since masks do not reach into them
    ("GET", "/api/stuck"): Row("document", Role.VIEWER, "stuck"),
    ("GET", "/api/group"): Row("document", Role.VIEWER, "group"),
    ("GET", "/api/preview"): Row("document", Role.OPERATOR, "preview"),
    ("GET", "/api/decided"): Row("document", Role.VIEWER, "decided"),
    ("GET", "/api/queues"): Row("document", Role.VIEWER, "queues"),
    ("GET", "/api/queue"): Row("document", Role.VIEWER, "queue"),
    ("GET", "/api/sources"): Row("document", Role.VIEWER, "sources"),
    ("GET", "/api/steps"): Row("document", Role.VIEWER, "steps"),
    ("GET", "/api/dead"): Row("document", Role.VIEWER, "dead"),
    ("GET", "/api/search"): Row("document", Role.VIEWER, "search"),
    ("GET", "/api/actions"): Row("document", Role.ADMIN),
    ("POST", "/decide"): Row("form", Role.OPERATOR, "decide"),
    ("POST", "/try"): Row("form", Role.OPERATOR, "try"),
    ("POST", "/queue/send"): Row("form", Role.OPERATOR, "queue/send"),
    ("POST", "/queue/redrive"): Row("form", Role.OPERATOR, "queue/redrive"),
    ("POST", "/dead/redrive"): Row("form", Role.OPERATOR, "dead/redrive"),
    ("POST", "/queue/resume"): Row("form", Role.OPERATOR, "queue/resume"),
    ("POST", "/queue/purge"): Row("form", Role.ADMIN, "queue/purge"),
    ("POST", "/sources/pause"): Row("form", Role.OPERATOR, "sources/pause"),
    ("POST", "/sources/resume"): Row("form", Role.OPERATOR, "sources/resume"),
    ("POST", "/sources/seek"): Row("form", Role.OPERATOR, "sources/seek"),
    ("POST", "/api/decide"): Row("call", Role.OPERATOR, "decide"),
    ("POST", "/api/try"): Row("call", Role.OPERATOR, "try"),
    ("POST", "/api/queue/send"): Row("call", Role.OPERATOR, "queue/send"),
    ("POST", "/api/queue/redrive"): Row("call", Role.OPERATOR, "queue/redrive"),
    ("POST", "/api/dead/redrive"): Row("call", Role.OPERATOR, "dead/redrive"),
    ("POST", "/api/queue/resume"): Row("call", Role.OPERATOR, "queue/resume"),
    ("POST", "/api/queue/purge"): Row("call", Role.ADMIN, "queue/purge"),
    ("POST", "/api/sources/pause"): Row("call", Role.OPERATOR, "sources/pause"),
    ("POST", "/api/sources/resume"): Row("call", Role.OPERATOR, "sources/resume"),
    ("POST", "/api/sources/seek"): Row("call", Role.OPERATOR, "sources/seek"),
    ("GET", "/login"): Row("open", None),
    ("POST", "/login"): Row("log-in", None),
    ("POST", "/logout"): Row("log-in", None),
    ("GET", "/static"): Row("open", None),
}


@pytest.fixture
def guarded(shop: Shop, tmp_path: Path) -> Iterator[Guarded]:
    return Guarded(shop, tmp_path)


def test_every_route_of_the_application_is_in_the_table(guarded: Guarded) -> None:
    routes: set[tuple[str, str]] = set()
    for route in guarded.app.routes:
        assert isinstance(route, Route | Mount)
        methods = getattr(route, "methods", None) or {"GET"}
        routes |= {(method, route.path) for method in methods - {"HEAD"}}
    assert routes == set(TABLE), "a new route has a row, with who may and how"


@pytest.mark.parametrize("role", [None, *Role])
def test_every_route_checks_role_and_origin(guarded: Guarded, role: Role | None) -> None:
    browser, program = guarded.logged_in(role), guarded.browser(role)
    token = form_token(browser.get("/").text)
    for (method, path), row in TABLE.items():
        expected = _wanted(row, role)
        fields = guarded.fields_of(FIELDS[row.fields]) if row.fields else {}
        where = {"/static": "/static/console.css", "/reports/{report}": "/reports/audit"}.get(path, path)
        statuses: dict[str, int] = {}
        expectations: dict[str, int | str] = {}
        for name, client in (("session", browser), ("token", program)):
            if row.kind == "events":
                statuses[name], expectations[name] = _begun(guarded, role, where), expected
            elif method == "GET":
                statuses[name], expectations[name] = client.get(where, params=fields).status_code, expected
                stranger = client.get(where, params=fields, headers={"host": "evil.example"})
                statuses[f"{name}, foreign host"], expectations[f"{name}, foreign host"] = stranger.status_code, 400
                statuses[f"{name}, post"], expectations[f"{name}, post"] = _other(client, "POST", where, path)
            else:
                for how, answer in _posts(client, where, row, fields, token, is_session=client is browser):
                    statuses[f"{name}, {how}"] = answer.status_code
                    expectations[f"{name}, {how}"] = _of_post(how, row, expected, is_session=client is browser)
                statuses[f"{name}, get"], expectations[f"{name}, get"] = _other(client, "GET", where, path)
        wrong = {
            name: (statuses[name], expectations[name])
            for name in statuses
            if not _fits(statuses[name], expectations[name])
        }
        assert not wrong, f"{method} {path} as {role}: got, wanted: {wrong}"
        assert all(status < 500 for status in statuses.values()), (method, path, statuses)
    if role is None:
        assert (guarded.folder / "actions.jsonl").exists() is False, "who is unknown leaves no action"


def _wanted(row: Row, role: Role | None) -> int | str:
    if row.role is None:
        return ALLOWED
    if role is None:
        return 401
    return ALLOWED if role.allows(row.role) else 403


def _posts(
    client: Any, path: str, row: Row, fields: dict[str, str], token: str, *, is_session: bool
) -> Iterator[tuple[str, Any]]:
    """Yield the answers to a post in each way; the allowed one is last, since it may change something."""
    ways = {
        "foreign host": {"host": "evil.example"},
        "foreign origin": {"origin": "http://evil.example"},
        "null origin": {"origin": "null"},
        "broken origin": {"origin": "http://[evil"},
        "same site": {"sec-fetch-site": "same-site"},
        "cross site": {"sec-fetch-site": "cross-site"},
    }
    if row.kind == "call":
        for how, headers in ways.items():
            yield how, client.post(path, json=fields, headers=headers)
        yield "as a form", client.post(path, data=fields)
        yield "own", client.post(path, json=fields, headers={"origin": HOST})
        return
    for how, headers in ways.items():
        yield how, client.post(path, data=fields | {"token": token}, headers=headers)
    yield "without the form's token", client.post(path, data=fields)
    yield "with another form's token", client.post(path, data=fields | {"token": "0" * 64})
    if path not in {"/login", "/logout"}:  # they would end the session
        yield "own", client.post(path, data=fields | {"token": token}, headers={"origin": HOST})


def _of_post(how: str, row: Row, expected: int | str, *, is_session: bool) -> int | str:
    if how == "foreign host":
        return 400
    if expected != ALLOWED:
        return expected
    if how == "as a form":
        return 415
    if how == "own":  # the token of a form is that of a session; a program has none, and calls the API
        return ALLOWED if row.kind == "call" or is_session else 403
    return 403


def _other(client: Any, method: str, where: str, path: str) -> tuple[int, int]:
    """Return the status of another method, and the one that it must have."""
    status = client.request(method, where).status_code
    return (status, status if (method, path) in TABLE else 405)


def _fits(status: int, expected: int | str) -> bool:
    return status not in {401, 403, 404, 405, 415} if expected == ALLOWED else status == expected


def _begun(guarded: Guarded, role: Role | None, path: str) -> int:
    """Return the status of an answer that never ends."""
    headers = [(b"host", HOST.removeprefix("http://").encode())]
    if role is not None:
        headers.append((b"authorization", f"Bearer {TOKENS[role]}".encode()))
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": b"", "scheme": "http"}
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 9325), "root_path": "", "http_version": "1.1"}

    async def ask() -> int:
        begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                begun.set_result(message["status"])

        task = asyncio.create_task(guarded.app(scope, receive, send))
        status = await begun
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return status

    return asyncio.run(ask())
