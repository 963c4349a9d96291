"""What is away comes back by itself: a database that is killed, a console that is started again."""

import signal
import tempfile
import uuid
from pathlib import Path

import pytest
from bank import STUCK, Bank
from playwright.sync_api import Page, expect

from inturn.demo.free_ports import free_port
from postgres_started import start, stop
from waiting import DEADLINE_S

pytestmark = pytest.mark.thorough


@pytest.mark.postgres
@pytest.mark.slow
def test_a_page_shows_a_killed_database_and_recovers(tmp_path: Path, page: Page) -> None:
    server = start(Path(tempfile.gettempdir()) / f"inturn-postgres-{uuid.uuid4().hex[:12]}")  # its user may read this
    try:
        bank = Bank(tmp_path, server.get_uri())
        bank.story()
        with bank.served() as address:
            page.goto(address)
            group = page.context.new_page()
            writing = page.context.new_page()
            for tab in (group, writing):
                tab.goto(address)
                tab.get_by_role("link", name=STUCK).click()
            writing.get_by_label("amount").fill("12.5")
            postmaster = server.get_postmaster_info().process
            postmaster.send_signal(signal.SIGKILL)
            postmaster.wait(DEADLINE_S)
            expect(page.get_by_role("alert")).to_be_visible()
            expect(page.get_by_text("shows it again automatically")).to_be_visible()
            expect(group.get_by_role("heading", name="The store is unavailable")).to_be_visible()
            expect(writing.get_by_text("Your input is not lost")).to_be_visible()
            server.ensure_postgres_running()
            expect(page.get_by_role("link", name=STUCK)).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)
            expect(group.get_by_role("heading", name=f"{STUCK} failed")).to_be_visible()
            expect(writing.get_by_text("Your input is not lost")).to_be_hidden()
            expect(writing.get_by_label("amount")).to_have_value("12.5")
            writing.get_by_role("button", name="Replace", exact=True).click()
            expect(writing.get_by_role("heading", name="Replace: recorded")).to_be_visible()
    finally:
        server.ensure_postgres_running()
        stop(server)


def test_a_page_shows_a_restarting_console_and_keeps_its_form(bank: Bank, page: Page) -> None:
    port = free_port()
    with bank.served(port=port) as address:
        page.goto(address)
        page.get_by_role("link", name=STUCK).click()
        page.get_by_label("amount").fill("12.5")
    expect(page.get_by_text("The console does not respond")).to_be_visible()
    with bank.served(port=port):
        expect(page.get_by_text("The console does not respond")).to_be_hidden()
        expect(page.get_by_label("amount")).to_have_value("12.5")
        page.get_by_role("button", name="Replace", exact=True).click()
        expect(page.get_by_role("heading", name="Replace: recorded")).to_be_visible()
