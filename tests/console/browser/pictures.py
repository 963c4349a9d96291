"""Pictures of the console's pages, made by real Chromium.

``PYTHONPATH=src:tests python tests/console/browser/pictures.py`` makes those of docs/console; with a folder it puts
every view there, light and dark, wide and as on a phone, for somebody to look at. ``--groups`` says how many groups
stopped at one error.
"""

import argparse
import base64
import contextlib
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from bank import STUCK, Bank
from chromium import chromium
from playwright.sync_api import Browser, Page

import inturn
from inturn.core.pipeline.decision import DecisionAction
from inturn.queue import draft
from inturn.worker.inspection import open_inspector

DOCS = Path(__file__).parents[3] / "docs" / "console"
SHORTER = """() => document.querySelectorAll("pre").forEach(each => {
    each.textContent = each.textContent.replace(/"\\/[^"]*\\/(inturn\\/|)([^"/]*\\/)*([^"/]*)"/g, '"$1$3"');
})"""
"""Cuts folders of this machine from tracebacks."""
WIDE, PHONE = (1180, 760), (390, 800)


def page_of(browser: Browser, scheme: str, size: tuple[int, int]) -> Page:
    width, height = size
    return browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})  # type: ignore[arg-type]


def views(bank: Bank) -> dict[str, str]:
    fields = {"store": bank.store, "group": STUCK}
    return {
        "stuck": "/",
        "group": "/group?" + urlencode(fields),
        "waiting": "/group?" + urlencode(fields | {"group": "acct-1311"}),
        "open": "/group?" + urlencode(fields | {"group": "acct-1500"}),
        "preview": "/preview?" + urlencode({"store": bank.store, "action": "resume", "error": "ValueError*"}),
        "queues": "/queues",
        "queue": "/queue?" + urlencode({"database": bank.at, "queue": "letters"}),
        "dead-letters": "/dead",
        "sources": "/sources",
        "steps": "/steps",
        "search": "/search?q=card&within=contents",
        "actions": "/actions",
        "fault": "/group?store=none&group=none",
    }


def try_mending(page: Page, address: str, bank: Bank) -> None:
    """Come to the page of a dry run, as a person does."""
    page.goto(address + views(bank)["group"])
    page.get_by_label("amount").fill("12.5")
    page.get_by_label("Why").fill("the sign was wrong")
    page.get_by_role("button", name="try replace").click()
    page.get_by_role("heading", name="Dry run: replace").wait_for()


def keep(page: Page, name: str) -> None:
    """Keep a picture of what a page shows in docs/console, as WebP."""
    page.evaluate(SHORTER)
    session = page.context.new_cdp_session(page)
    data = session.send("Page.captureScreenshot", {"format": "webp", "quality": 82, "captureBeyondViewport": False})
    (DOCS / f"{name}.webp").write_bytes(base64.b64decode(data["data"]))


def for_docs(bank: Bank, address: str, browser: Browser) -> None:
    """Make the pictures of docs/console."""
    DOCS.mkdir(exist_ok=True)
    for name, path, scheme, size in (
        ("stuck", "stuck", "light", WIDE),
        ("group", "group", "light", (1180, 940)),
        ("group-dark", "group", "dark", (1180, 430)),
        ("group-phone", "group", "light", PHONE),
        ("dead-letters", "dead-letters", "light", (1180, 420)),
        ("queue", "queue", "dark", (1180, 520)),
    ):
        page = page_of(browser, scheme, size)
        page.goto(address + views(bank)[path], wait_until="load")
        keep(page, name)
        page.close()
    page = page_of(browser, "light", (1180, 800))
    try_mending(page, address, bank)
    keep(page, "try")
    page = page_of(browser, "light", (1180, 330))
    busy_queues(bank, address, page)
    keep(page, "queues")


def busy_queues(bank: Bank, address: str, page: Page) -> None:
    """Look at the queues while messages come and go."""
    page.goto(address + "/queues")
    with inturn.open(bank.at) as db:
        payments = db.queue("orders")
        for beat in range(48):
            payments.send_many([draft({"n": n}, group=f"g-{n}") for n in range(20 + 15 * (beat // 6 % 2))])
            payments.ack(payments.receive(max_messages=10 + beat % 16))
            page.wait_for_timeout(500)


def every_view(bank: Bank, address: str, browser: Browser, folder: Path) -> None:
    """Make pictures of every view in a folder, as PNG."""
    folder.mkdir(exist_ok=True, parents=True)
    for scheme in ("light", "dark"):
        for kind, size in (("wide", WIDE), ("phone", PHONE)):
            page = page_of(browser, scheme, size)
            for name, path in views(bank).items():
                page.goto(address + path, wait_until="load", timeout=120_000)
                page.screenshot(path=folder / f"{name}-{kind}-{scheme}.png", full_page=name != "stuck")
            try_mending(page, address, bank)
            page.screenshot(path=folder / f"try-{kind}-{scheme}.png", full_page=True)
            page.close()


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where to put every view; none: renew docs/console")
    parser.add_argument("--groups", type=int, default=0, help="groups that stopped at one error (default: 0)")
    options = parser.parse_args()
    target = None if options.folder is None else options.folder.absolute()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, contextlib.chdir(folder):
        bank = Bank(Path(folder), "bank.db")  # a path that says nothing of this machine
        bank.story()
        bank.stuck(options.groups)
        with open_inspector(bank.at, "ledger") as ledger:
            ledger.decide(ledger.decision(DecisionAction.SKIP, "acct-1311", by="bob", why="it is lost"))
        with bank.served() as address:
            if target is None:
                for_docs(bank, address, browser)
            else:
                every_view(bank, address, browser, target)


if __name__ == "__main__":
    main()
