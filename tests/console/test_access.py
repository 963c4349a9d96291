"""Access: log-in, sessions that end, wrong tokens that are counted, and what a cookie is."""

import hmac
import json
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from console_shop import HOST, Shop
from guarded import PEOPLE, TOKENS, Guarded, form_token
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from clocks import Clock
from inturn.console import ConsoleConfig, Role, TrustedProxy, console
from inturn.console.access import FAILURES_S, MOST_FAILURES, SESSION_S, ConsoleAccess
from inturn.console.refusal import RequestRefused
from inturn.console.roles import Person

NOBODY = Person("", Role.ADMIN, is_known=False)


@pytest.fixture
def guarded(shop: Shop, tmp_path: Path) -> Iterator[Guarded]:
    return Guarded(shop, tmp_path)


def request_of(scheme: str = "http", address: str = "10.0.0.1", **headers: str) -> Request:
    """Return a request."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "scheme": scheme, "headers": raw,
                    "server": ("127.0.0.1", 9325), "client": (address, 1)})  # fmt: skip


def begun(access: ConsoleAccess, request: Request) -> str:
    """Begin a session, and return the cookie as the browser sends it."""
    response = Response()
    access.log_in(request, response, Person("ann", Role.VIEWER))
    (morsel,) = SimpleCookie(response.headers["set-cookie"]).values()
    return f"{morsel.key}={morsel.value}"


def test_a_person_logs_in_with_a_token_and_out(guarded: Guarded) -> None:
    browser = guarded.browser(None)
    page = browser.get("/")
    assert (page.status_code, "Token" in page.text) == (401, True)
    token = form_token(page.text)
    wrong = browser.post("/login", data={"token": token, "secret": "no such token"})
    assert (wrong.status_code, "This token is not valid" in wrong.text) == (401, True)
    answer = browser.post("/login", data={"token": token, "secret": TOKENS[Role.VIEWER]}, follow_redirects=False)
    cookie = answer.headers["set-cookie"]
    assert all(attribute in cookie for attribute in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"))
    page = browser.get("/").text
    assert "the viewer, viewer" in page
    cookies = dict(browser.cookies)
    assert browser.post("/logout", data={"token": token}).status_code == 403, "it is not the session's"
    browser.post("/logout", data={"token": form_token(page)})
    assert browser.get("/").status_code == 401
    cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
    assert guarded.browser(None).get("/", headers={"cookie": cookie}).status_code == 401, (
        "nor with the cookie as it was"
    )
    lines = guarded.browser(Role.ADMIN).get("/api/actions").json()["actions"]
    assert [(entry["by"], entry["event"]) for entry in lines] == [
        ("the viewer", "logged in"),
        ("", "refused a token from testclient"),
    ]


def test_a_session_expires() -> None:
    clock = Clock()
    access = ConsoleAccess(ConsoleConfig(people=PEOPLE), NOBODY, clock.s)
    cookie = begun(access, request_of())
    assert access.person(request_of(cookie=cookie)) == Person("ann", Role.VIEWER)
    clock.forward(SESSION_S - 1)
    assert access.person(request_of(cookie=cookie)) is not None
    clock.forward(1)
    assert access.person(request_of(cookie=cookie)) is None


def test_login_does_not_accept_a_preset_session_cookie() -> None:
    access = ConsoleAccess(ConsoleConfig(people=PEOPLE), NOBODY)
    chosen = f"{access.cookie}=chosen-by-eve"
    assert access.person(request_of(cookie=chosen)) is None
    after = begun(access, request_of(cookie=chosen))
    assert after != chosen, "a log-in begins a session of another name"
    assert access.person(request_of(cookie=chosen)) is None
    renewed = begun(access, request_of(cookie=after))
    assert access.person(request_of(cookie=after)) is None, "and ends the one that the browser had"
    assert access.person(request_of(cookie=renewed)) is not None


def test_consoles_of_one_host_do_not_share_a_cookie() -> None:
    first, second = (ConsoleAccess(ConsoleConfig(people=PEOPLE), NOBODY) for _ in range(2))
    assert first.cookie != second.cookie
    assert second.person(request_of(cookie=begun(first, request_of()))) is None


@pytest.mark.parametrize(
    ("request_", "is_secure"),
    [
        (request_of(), False),
        (request_of("https"), True),
        (request_of(origin="https://console.example.org"), True),
        (request_of(origin="http://console.example.org"), False),
    ],
)
def test_the_session_cookie_is_secure_over_https(request_: Request, is_secure: bool) -> None:
    response = Response()
    ConsoleAccess(ConsoleConfig(people=PEOPLE), NOBODY).log_in(request_, response, NOBODY)
    assert ("Secure" in response.headers["set-cookie"]) == is_secure


def test_too_many_wrong_tokens_from_one_address_get_429() -> None:
    clock = Clock()
    access = ConsoleAccess(ConsoleConfig(people=PEOPLE), NOBODY, clock.s)
    right = f"Bearer {TOKENS[Role.ADMIN]}"
    for _ in range(MOST_FAILURES):
        assert access.person(request_of(authorization="Bearer guess")) is None
    with pytest.raises(RequestRefused, match=r"10 wrong tokens .* 10\.0\.0\.1; try again in") as refused:
        access.person(request_of(authorization=right))
    assert refused.value.status == 429
    assert access.person(request_of(address="10.0.0.2", authorization=right)) is not None, "others are not slowed"
    clock.forward(FAILURES_S)
    assert access.person(request_of(authorization=right)) is not None


def test_wrong_tokens_are_logged_and_then_get_429(guarded: Guarded) -> None:
    for _ in range(MOST_FAILURES):
        answer = guarded.browser(None).get("/api/stuck", headers={"authorization": "Bearer guess"})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    answer = guarded.browser(None).get("/api/stuck", headers={"authorization": f"Bearer {TOKENS[Role.ADMIN]}"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    page = guarded.browser(None).get("/login").text
    form = {"token": form_token(page), "secret": TOKENS[Role.ADMIN]}
    assert guarded.browser(None).post("/login", data=form).status_code == 429, "by the form neither"
    lines = [json.loads(line) for line in (guarded.folder / "actions.jsonl").read_text().splitlines()]
    assert [entry["event"] for entry in lines] == ["refused a token from testclient"] * MOST_FAILURES


def test_token_comparison_takes_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def counted(left: Any, right: Any) -> bool:
        compared.append((left, right))
        return real(left, right)

    access = ConsoleAccess(ConsoleConfig(people=PEOPLE), NOBODY)
    monkeypatch.setattr(hmac, "compare_digest", counted)
    for token in (*TOKENS.values(), "wrong", "", "é", "\ud800"):
        compared.clear()
        access.with_token(token, "10.0.0.1")
        assert len(compared) == len(PEOPLE)
        assert {len(digest) for pair in compared for digest in pair} == {32}, "digests, never the tokens"


@pytest.mark.parametrize("header", ["Basic dXNlcjp4", "Bearer", "Bearer ", "bearer  x y", "Digest x", ""])
def test_an_invalid_authorization_header_gets_401(guarded: Guarded, header: str) -> None:
    assert guarded.browser(None).get("/api/stuck", headers={"authorization": header}).status_code == 401


def test_a_token_in_the_url_gets_401(guarded: Guarded) -> None:
    for name in ("token", "secret", "access_token", "authorization"):
        answer = guarded.browser(None).get("/", params={name: TOKENS[Role.ADMIN]})
        assert answer.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"x-user": "eve"},
        {"x-forwarded-for": "10.0.0.9", "x-user": "eve", "x-role": "admin"},
        {"forwarded": "for=10.0.0.9", "x-user": "eve", "x-role": "admin"},
        {"x-real-ip": "10.0.0.9", "x-user": "eve", "x-role": "admin"},
    ],
)
def test_proxy_headers_from_an_untrusted_address_get_401(shop: Shop, tmp_path: Path, headers: dict[str, str]) -> None:
    proxy = TrustedProxy(user_header="X-User", role_header="X-Role", addresses=["10.0.0.9"])
    app = console(shop.path, config=ConsoleConfig(proxy=proxy, actions_log=str(tmp_path / "a")))
    for address in ("127.0.0.1", "10.0.0.99", "::ffff:10.0.0.9"):
        browser = TestClient(app, base_url=HOST, client=(address, 1))
        assert browser.get("/api/stuck", headers=headers).status_code == 401


def test_a_form_token_of_another_session_is_refused(guarded: Guarded) -> None:
    viewer, operator = guarded.logged_in(Role.VIEWER), guarded.logged_in(Role.OPERATOR)
    ask = {"store": guarded.shop.store, "group": "eu-1", "action": "drop"}
    stolen = form_token(viewer.get("/").text)
    assert operator.post("/decide", data=ask | {"token": stolen}).status_code == 403
    assert operator.post("/decide", data=ask | {"token": form_token(operator.get("/").text)}).status_code == 303
