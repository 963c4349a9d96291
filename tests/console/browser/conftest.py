"""A bank, its console, and real Chromium; without Chromium these tests are skipped."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: it is in the group dev")
sys.path.append(str(Path(__file__).parent))

from bank import Bank
from chromium import chromium, missing
from playwright.sync_api import Browser, BrowserContext, Page, expect

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def started_chromium() -> Iterator[Browser]:
    """Chromium. Playwright runs an event loop in this thread, which no other module's tests may find there."""
    if reason := missing():
        pytest.skip(reason)
    with chromium() as browser:
        yield browser


@pytest.fixture
def context(started_chromium: Browser) -> Iterator[BrowserContext]:
    """A browser with no memory."""
    context = started_chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(30_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture(scope="session")
def made_bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a bank with accounts in all states, made once."""
    bank = Bank(tmp_path_factory.mktemp("bank"))
    bank.story()
    return Path(bank.at)


@pytest.fixture
def bank(tmp_path: Path, made_bank: Path) -> Bank:
    """A copy of that bank."""
    bank = Bank(tmp_path)
    shutil.copy(made_bank, bank.at)
    return bank
