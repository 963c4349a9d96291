"""Attacks on a console that a person has open, in real Chromium: scripts in contents, foreign pages, foreign names."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlencode

import pytest
from bank import STUCK, Bank
from playwright.sync_api import Page, expect

from inturn.worker.inspection import open_inspector

pytestmark = pytest.mark.thorough
SCRIPT = "<img src=x onerror=\"window.hit = 'image'\"><script>window.hit = 'script'</script>"
EVIL = f"'\"></textarea></title></option>{SCRIPT}"


@contextmanager
def foreign_page(html: str) -> Iterator[str]:
    """Serve one page; yield its port. Chromium resolves every name below .example to this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://evil.example:{server.server_port}/"
        server.shutdown()


def test_scripts_in_message_contents_do_not_run(bank: Bank, page: Page) -> None:
    bank.send((EVIL, 1, 5), (EVIL, 2, -5), note=EVIL, tags=[EVIL])
    bank.work()
    fields = {"store": bank.store, "group": EVIL}
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    with bank.served() as address:
        for path in (
            "/",
            "/?" + urlencode({"group": EVIL, "error": EVIL}),
            "/group?" + urlencode(fields),
            "/preview?" + urlencode({"store": bank.store, "action": "drop", "error": "*"}),
            "/queue?" + urlencode({"database": bank.at, "queue": "payments", "group": EVIL}),
            "/search?" + urlencode({"q": EVIL, "within": "contents"}),
            "/dead?" + urlencode({"group": EVIL, "error": EVIL}),
            "/group?" + urlencode({"store": EVIL, "group": EVIL}),
        ):
            page.goto(address + path, wait_until="load")
            assert page.evaluate("window.hit") is None, path
            assert page.locator("main img, main script").count() == 0, path
        page.goto(f"{address}/group?{urlencode(fields)}")
        page.get_by_label("Why").fill(EVIL)
        page.get_by_role("button", name="try replace").click()
        expect(page.get_by_role("heading", name="Dry run: replace")).to_be_visible()
        assert page.evaluate("window.hit") is None
        page.evaluate(f"document.querySelector('main').innerHTML = {SCRIPT!r}")  # and if a page let one through
        page.wait_for_timeout(300)
        assert page.evaluate("window.hit") is None, "the policy of contents forbids it"
    assert dialogs == []


def test_a_form_post_from_a_foreign_page_is_refused(bank: Bank, page: Page) -> None:
    fields = {"store": bank.store, "group": STUCK, "action": "drop", "by": "eve"}
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    with bank.served() as address:
        page.goto(f"{address}/group?{urlencode({'store': bank.store, 'group': STUCK})}")
        token = page.locator("input[name=token]").first.get_attribute("value")  # even with the token
        form = f'<form method="post" action="{address}/decide">{inputs}<input name="token" value="{token}"></form>'
        with foreign_page(f"{form}<script>document.forms[0].submit()</script>") as evil:
            page.goto(evil)
            page.wait_for_url(f"{address}/decide")
            expect(page.get_by_role("alert")).to_contain_text("from another site")
        send = f"fetch('{address}/api/decide', {{method: 'POST', mode: 'no-cors', body: '{{}}'}})"
        read = f"fetch('{address}/api/stuck').then(answer => answer.text())"
        with foreign_page("<p>evil</p>") as evil:
            page.goto(evil)
            page.evaluate(f"{send}.catch(() => 0)")
            assert page.evaluate(f"{read}.catch(() => 'refused')") == "refused"
            page.set_content(f"<script src='{address}/api/stuck'></script>")
            assert STUCK not in page.content()
    with open_inspector(bank.at, "ledger") as ledger:
        assert ledger.pending_decisions(STUCK) == []


def test_a_request_with_a_foreign_host_name_gets_400(bank: Bank, page: Page) -> None:
    with bank.served() as address:
        rebound = address.replace("127.0.0.1", "rebound.example")
        for path in ("/", "/api/stuck", "/static/live.js"):
            answer = page.goto(rebound + path)
            assert answer is not None
            assert answer.status == 400
            assert STUCK not in page.content()


def test_no_page_can_be_framed(bank: Bank, page: Page) -> None:
    with bank.served() as address, foreign_page(f'<iframe src="{address}/"></iframe>') as evil:
        page.goto(evil, wait_until="load")
        frame = page.frames[1]
        frame.wait_for_load_state()
        assert STUCK not in frame.content()
        assert frame.url.startswith("chrome-error:")
