"""Attempts against the console: scripts in contents, forms of other sites, foreign names of this machine, frames."""

import pytest
from console_shop import LEDGER, Shop
from starlette.testclient import TestClient

import inturn
from inturn.cli.targets import open_inspector
from inturn.console import console

SCRIPT = "<script>alert(1)</script>"


def test_message_contents_are_escaped_on_every_page(shop: Shop) -> None:
    with inturn.open(shop.path) as db:
        db.queue("payments").send({"amount": -5, "note": f'"></textarea>{SCRIPT}'}, group=f"'\">{SCRIPT}", revision=1)
        inturn.work(LEDGER, db.queue("payments"), until="empty")
    pages = [shop.page("/"), shop.page("/group", store=shop.store, group=f"'\">{SCRIPT}")]
    pages += [shop.page("/", group=SCRIPT, error=f'"{SCRIPT}')]
    pages += [shop.page("/preview", store=shop.store, action="drop", error="*")]
    pages += [shop.browser.get("/group", params={"store": SCRIPT, "group": SCRIPT}).text]
    for page in pages:
        assert page.count("<script") == 1, "the console's own"
        assert "<script>" not in page
        assert "</textarea><" not in page.replace("</textarea>\n", "")


@pytest.mark.parametrize("path", ["/", "/group", "/preview", "/api/stuck", "/static/console.css"])
def test_a_request_with_a_foreign_host_name_gets_400(shop: Shop, path: str) -> None:
    answer = shop.browser.get(path, headers={"host": "evil.example:9325"})
    assert answer.status_code == 400
    assert "eu-1" not in answer.text


@pytest.mark.parametrize("path", ["/", "/group", "/preview", "/api/stuck", "/static/console.css", "/none"])
def test_every_response_forbids_frames_and_inline_scripts(shop: Shop, path: str) -> None:
    headers = shop.browser.get(path).headers
    assert headers["x-frame-options"] == "DENY"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused(shop: Shop, headers: dict[str, str]) -> None:
    form = {"token": shop.token(), "store": shop.store, "group": "eu-1", "action": "drop"}
    assert shop.browser.post("/decide", data=form, headers=headers).status_code == 403
    with open_inspector(shop.store) as inspector:
        assert inspector.pending_decisions("eu-1") == []


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_a_form_without_a_valid_token_is_refused(shop: Shop, token: str) -> None:
    form = {"token": token, "store": shop.store, "group": "eu-1", "action": "drop"}
    assert shop.browser.post("/decide", data=form).status_code == 403
    with open_inspector(shop.store) as inspector:
        assert inspector.pending_decisions("eu-1") == []


def test_a_form_token_of_another_console_is_refused(shop: Shop) -> None:
    with TestClient(console(shop.path), base_url="http://localhost") as other:
        form = {"token": shop.token(), "store": shop.store, "group": "eu-1", "action": "drop", "by": "ann"}
        assert other.post("/decide", data=form).status_code == 403


def test_a_get_request_never_records_a_decision(shop: Shop) -> None:
    shop.page("/preview", store=shop.store, group="eu-1", action="drop")
    with open_inspector(shop.store) as inspector:
        assert inspector.pending_decisions("eu-1") == []


def test_a_form_over_the_size_limit_gets_413(shop: Shop) -> None:
    answer = shop.decide(group="eu-1", action="replace", content="x" * 3_000_000)
    assert answer.status_code == 413


def test_a_store_not_named_at_the_start_gets_400(shop: Shop) -> None:
    for store in ("/etc/passwd", f"{shop.path}#other", "../shop.db#ledger", shop.path):
        assert shop.browser.get("/group", params={"store": store, "group": "eu-1"}).status_code == 400
