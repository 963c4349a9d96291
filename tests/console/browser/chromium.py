"""Debian's Chromium, driven by Playwright; and axe-core, which checks a page's accessibility."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
]
_AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"


def missing() -> str:
    """Return why there is no Chromium here; empty if there is one."""
    return "" if shutil.which("chromium") else "chromium is not installed: `make services` installs it on Debian"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium, and end it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def violations(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """Return what axe-core finds wrong with a page by some rules or by all: the rule, and the elements."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(_AXE.read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    result: Any = page.evaluate("options => axe.run(options)", options)
    return [
        f"{violation['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for violation in result["violations"]
        for node in violation["nodes"][:3]
    ]
