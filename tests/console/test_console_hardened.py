"""More attempts against the console: paths, hosts, redirects, numbers, letters, slow and broken bodies, headers."""

import asyncio
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from console_shop import HOST, LEDGER, Shop
from guarded import Guarded, form_token
from starlette.requests import Request

import inturn
from inturn.console import Role, console
from inturn.console.guard import HEADERS
from inturn.console.refusal import RequestRefused
from inturn.console.request_body import json_fields
from inturn.core.errors import InputError

HOSTILE_NAMES = [
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "a&group=b",
    "a#b",
    "a?b",
    "../../etc/passwd",
    "a\r\nSet-Cookie: x=1",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "a\u0000b",
    "{{ 7*7 }}",
    "{% include '/etc/passwd' %}",
    "' or 1=1 --",
    "%00",
    "%2e%2e",
    "\ufeff",
    "e\u0301",
    "é",
    "*",
    "[",
    "x" * 2000,
]


def answers(shop: Shop, **fields: str) -> list[Any]:
    return [
        shop.browser.get(path, params=fields) for path in ("/", "/group", "/search", "/queue", "/preview", "/decided")
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/__init__.py",
        "/static/..%2f__init__.py",
        "/static//etc/passwd",
        "/static/%00",
        "/static/" + "x" * 5000,
        "/static/./../base.html.j2",
        "/static/..\\base.html.j2",
        "/static/",
        "/base.html.j2",
        "/pages/base.html.j2",
        "/.git/config",
        "//evil.example/",
        "//evil.example/%2f..",
        "/\\evil.example",
        "/group/",
        "/group//",
        "/api/",
        "/api",
        "/openapi.json/",
        "/%0d%0aset-cookie:x=1",
        "/é",
        "/..;/actions",
    ],
)
def test_unknown_paths_get_404_and_no_redirect_leaves_the_console(shop: Shop, path: str) -> None:
    answer = shop.browser.get(f"{HOST}{path}", follow_redirects=False)
    assert answer.status_code in {307, 400, 404}, path
    if answer.status_code == 307:  # a slash too many
        assert answer.headers["location"].startswith(f"{HOST}/")
    assert "def " not in answer.text
    assert "set-cookie" not in answer.headers
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:9325",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "",
        " ",
        "127.0.0.1:x",
        "127.0.0.1:",
        "[::1",
        "::1",
        "127.1",
        "2130706433",
        "127.0.0.1, evil.example",
        "localhost\t",
        "LOCALHOST.",
        "localhost:9325:80",
        "[::1]x",
    ],
)
def test_an_unknown_host_header_gets_400(shop: Shop, host: str) -> None:
    answer = shop.browser.get("/", headers={"host": host})
    assert answer.status_code == 400
    assert "eu-1" not in answer.text
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]", "[::1]:9325"])
def test_known_host_headers_get_200(shop: Shop, host: str) -> None:
    assert shop.browser.get("/", headers={"host": host}).status_code == 200


def test_two_host_headers_get_400(shop: Shop) -> None:
    answer = shop.browser.get("/", headers=[("host", "localhost"), ("host", "evil.example")])
    assert answer.status_code == 400


@pytest.mark.parametrize("host", ["", "a b", "x/y", "*x", "a:80", "me@x", "*.*"])
def test_an_invalid_configured_host_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(InputError, match="invalid host name"), inturn_client(host):
        pass


def inturn_client(host: str) -> Any:
    from starlette.testclient import TestClient

    return TestClient(console("shop.db", hosts=[host]), base_url="http://x")


def test_a_wildcard_host_matches_only_its_subdomains(shop: Shop) -> None:
    from starlette.testclient import TestClient

    with TestClient(console(shop.path, hosts=["*.example.org"]), base_url="http://a.example.org") as browser:
        assert browser.get("/").status_code == 200
        assert browser.get("/", headers={"host": "example.org.evil.example"}).status_code == 400
        assert browser.get("/", headers={"host": "evilexample.org"}).status_code == 400


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_hostile_names_are_escaped_on_every_page(shop: Shop, name: str) -> None:
    with inturn.open(shop.path) as db:
        payments = db.queue("payments")
        known = True
        try:
            payments.send({"amount": -5, "note": name, name: name}, group=name, revision=1)
        except InputError:
            known = False
        inturn.work(LEDGER, payments, until="empty")
    for answer in answers(
        shop, store=shop.store, database=shop.path, queue="payments", group=name, q=name, action="drop", first=name
    ):
        assert answer.status_code < 500
        assert answer.text.count("<script") <= 1
        assert "<img" not in answer.text
        assert "49" not in re.findall(r"\{\{.*?\}\}", answer.text)
        links = [unescape(link) for link in re.findall(r'(?:href|action|formaction)="([^"]*)"', answer.text)]
        assert all(link.startswith(("/", "#", "data:,")) and not link.startswith("//") for link in links)
        assert not re.search(r"\son\w+\s*=\s*\"", re.sub(r'"[^"]*"', '""', answer.text)), "no handler in an attribute"
    if known:
        shown = shop.page("/group", store=shop.store, group=name)
        assert "Content of revision 1" in shown
        token = form_token(shown)
        done = shop.browser.post(
            "/decide",
            data={"token": token, "store": shop.store, "group": name, "action": "drop"},
            follow_redirects=False,
        )
        assert done.status_code == 303
        assert done.headers["location"].startswith("/decided?")
        assert "\n" not in done.headers["location"]


@pytest.mark.parametrize(
    "title",
    [
        "/etc/passwd",
        "../shop.db#ledger",
        "http://169.254.169.254/latest#x",
        "postgresql://evil.example/x#ledger",
        "file:///etc/passwd",
        "s3://bucket/x",
        "\\\\evil\\share",
        "shop.db",
        "",
        "\u0000",
        "shop.db#ledger\u0000",
        "SHOP.DB#LEDGER",
    ],
)
def test_an_unknown_store_is_never_opened(shop: Shop, title: str) -> None:
    for path in ("/api/group", "/api/preview", "/api/decided", "/api/stuck"):
        fields = {"store": title, "group": "eu-1", "action": "drop", "first": "x"}
        needed = {
            "/api/stuck": ["store"],
            "/api/group": ["store", "group"],
            "/api/decided": ["store", "action", "first"],
        }
        query = {name: fields[name] for name in needed.get(path, ["store", "group", "action"])}
        if path == "/api/stuck" and not title:
            continue  # all stores
        answer = shop.browser.get(path, params=query)
        assert (answer.status_code, "no store '" in answer.json()["error"]) == (400, True)
    answer = shop.browser.get("/api/queue", params={"database": title, "queue": "payments"})
    assert (answer.status_code, "no database '" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    "first", ["../../../etc/passwd", "x/../../y", "\u0000", "9" * 400, "a.9", ".", "/", "a/000000"]
)
@pytest.mark.parametrize("count", ["1", "2", "1000"])
def test_a_decision_id_is_not_used_as_a_path(shop: Shop, first: str, count: str) -> None:
    answer = shop.browser.get(
        "/api/decided", params={"store": shop.store, "action": "drop", "first": first, "count": count}
    )
    assert answer.status_code in {200, 400}


@pytest.mark.parametrize(
    "number", ["9" * 19, "-" + "9" * 19, "9" * 5000, "1e9", "0x10", "٣", "1_000", " 1", "+1", "NaN", "-0", "1.0"]
)
def test_invalid_number_parameters_are_refused(shop: Shop, number: str) -> None:
    for path, fields in (
        ("/queue", {"database": shop.path, "queue": "payments", "after": number}),
        ("/decided", {"store": shop.store, "action": "drop", "first": "x", "count": number}),
    ):
        assert shop.browser.get(path, params=fields).status_code in {200, 400}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b'{"store": 1}',
        b'{"store": null}',
        b'{"store": ["x"]}',
        b'{"store": {"a": 1}}',
        b'{"store": "\\ud800"}',
        b'{"\\ud800": "x"}',
        b"\xff\xfe",
        b"\x00",
        b"[" * 200_000,
        b'{"count": ' + b"9" * 10_000 + b"}",
        b'{"store": "a", "store": "b"}',
        b'{"store": true}',
        b'{"store": NaN}',
        b"\xef\xbb\xbf{}",
        b'{"token": "x"}',
        b'{"__class__": "x"}',
    ],
)
@pytest.mark.parametrize("path", ["/api/decide", "/api/queue/send"])
def test_a_malformed_json_body_gets_400(shop: Shop, body: bytes, path: str) -> None:
    answer = shop.browser.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "NaN", "Infinity", '"\\ud800"', '{"a": "\\udc00"}', "9" * 5000, "{", ""]
)
def test_malformed_json_in_a_field_gets_400(shop: Shop, content: str) -> None:
    for path, fields in (
        ("/api/decide", {"store": shop.store, "group": "eu-1", "action": "replace", "content": content}),
        ("/api/queue/send", {"database": shop.path, "queue": "payments", "body": content}),
    ):
        answer = shop.browser.post(path, json=fields)
        assert answer.status_code == 400, (path, answer.text)


@pytest.mark.parametrize("form", ["a=1&" * 20_000, "%", "%ff%fe", "=&=&", "token=%ED%A0%80", "token", "&" * 100])
def test_a_malformed_form_gets_an_error(shop: Shop, form: str) -> None:
    answer = shop.browser.post("/decide", content=form, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code in {400, 403}


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""]
)
def test_an_api_request_with_another_content_type_gets_415(shop: Shop, kind: str) -> None:
    body = json.dumps({"store": shop.store, "group": "eu-1", "action": "drop"})
    assert shop.browser.post("/api/decide", content=body, headers={"content-type": kind}).status_code == 415


def test_a_slow_body_gets_408_and_an_aborted_one_400() -> None:
    async def never() -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    for receive, status in ((never, 408), (gone, 400)):
        with pytest.raises(RequestRefused) as refused:
            asyncio.run(json_fields(Request(scope, receive), (), timeout_s=0.05))
        assert refused.value.status == status


def test_the_body_of_an_unauthenticated_request_is_not_read(shop: Shop, tmp_path: Path) -> None:
    app = Guarded(shop, tmp_path).app
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        pytest.fail("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    for path in ("/decide", "/api/decide", "/try", "/api/queue/purge"):
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "root_path": "", "scheme": "http"}
        scope |= {
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
        }
        asyncio.run(app(scope, receive, send))
    assert [message["status"] for message in sent if "status" in message] == [401] * 4


def test_an_unexpected_exception_gets_500_without_its_text(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from inturn.console import app

    def broken(_value: Any) -> None:
        raise ZeroDivisionError("a secret of the program")

    monkeypatch.setattr(app, "to_json_value", broken)
    answer = shop.browser.get("/api/stuck")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "a secret of the program" in caplog.text, "the log says it"


def test_every_response_has_the_security_headers(shop: Shop, tmp_path: Path) -> None:
    guarded = Guarded(shop, tmp_path)
    tried: list[Any] = []
    for role in (None, Role.VIEWER, Role.ADMIN):
        browser = guarded.browser(role)
        for path in (
            "/",
            "/none",
            "/static/console.css",
            "/static/none",
            "/api/stuck",
            "/api/group",
            "/login",
            "/openapi.json",
            "/actions",
        ):
            tried += [browser.get(path), browser.post(path), browser.options(path), browser.head(path)]
    assert {200, 400, 401, 403, 404, 405} <= {response.status_code for response in tried}
    for answer in tried:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, answer.url
        assert "access-control-allow-origin" not in answer.headers


def test_a_websocket_is_refused(shop: Shop) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), shop.browser.websocket_connect("/live"):
        pytest.fail("it was accepted")
