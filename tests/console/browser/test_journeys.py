"""What people come for, in real Chromium: find what is stuck, understand it, mend it, and see that it goes on."""

import re
from pathlib import Path

import pytest
from bank import ERROR, STUCK, Bank
from playwright.sync_api import Browser, BrowserContext, Page, expect

import inturn
from inturn.console import Account, ConsoleConfig, Role
from inturn.worker.inspection import open_inspector

pytestmark = pytest.mark.thorough
COUNT = "addEventListener('click', event => event.isTrusted && clicked(), true)"


class Clicks:
    """Counts the clicks that a page gets, over all that it loads."""

    def __init__(self, page: Page) -> None:
        self.count = 0
        page.expose_function("clicked", self._add)
        page.add_init_script(COUNT)

    def _add(self) -> None:
        self.count += 1


def test_a_failed_group_is_found_corrected_and_resumed_in_four_clicks(bank: Bank, page: Page) -> None:
    clicks = Clicks(page)
    with bank.served() as address:
        page.goto(address)
        page.get_by_role("link", name="acct-1402").click()
        expect(page.get_by_role("heading", name="acct-1402 failed")).to_be_visible()
        expect(page.locator(".picture .stand")).to_contain_text("stopped here: ValueError: amount -3 is below zero")
        page.get_by_label("amount").fill("3")
        expect(page.locator(".was")).to_have_text("was -3")
        page.get_by_label("Why").fill("the sign was wrong")
        page.get_by_role("button", name="try replace").click()
        expect(page.get_by_role("status").first).to_contain_text("1 group: 1 open. Nothing was written.")
        message = page.get_by_role("row", name="amount -3 3")
        expect(message.locator("del")).to_have_text("-3")
        expect(message.locator("ins")).to_have_text("3")
        expect(page.get_by_role("row", name="balance 0.0 12.0")).to_be_visible()
        page.get_by_role("button", name="Replace").click()
        expect(page.get_by_role("heading", name="Replace: recorded")).to_be_visible()
        bank.work()
        expect(page.get_by_role("heading", name="Replace: carried out")).to_be_visible()
        page.get_by_role("link", name="Back to acct-1402").click()
        expect(page.get_by_role("heading", name="acct-1402 open")).to_be_visible()
        expect(page.get_by_role("row", name=re.compile("ann replace the sign was wrong carried out"))).to_be_visible()
    assert clicks.count == 4
    with open_inspector(bank.at, "ledger") as ledger:
        assert ledger.group("acct-1402").state == {"balance": 12.0, "transactions": 2}


@pytest.mark.slow
def test_ten_thousand_groups_are_resumed_at_once(tmp_path: Path, page: Page) -> None:
    bank, clicks = Bank(tmp_path), Clicks(page)
    bank.stuck(10_000)
    bank.mend()
    with bank.served() as address:
        page.goto(address)
        expect(page.get_by_role("heading", name="10,000 groups need a decision")).to_be_visible()
        page.get_by_role("link", name="resume …").click()
        expect(page.get_by_role("heading", name="Resume 10,000 groups?")).to_be_visible()
        page.get_by_label("Why").fill("the handler is mended")
        page.get_by_role("button", name="Resume 10,000 groups").click()
        expect(page.get_by_text("0 of 10,000 decisions are applied")).to_be_visible()
        bank.work()
        expect(page.get_by_text("10,000 of 10,000 decisions are applied")).to_be_visible()
        expect(page.get_by_role("row", name="Carried out 10,000")).to_be_visible()
        page.get_by_role("link", name="Other stuck groups").click()
        expect(page.get_by_text("No group is stuck.")).to_be_visible()
    assert clicks.count == 3


def test_the_second_of_two_operators_is_refused(bank: Bank, started_chromium: Browser, tmp_path: Path) -> None:
    tokens = {name: f"{name}-0123456789-0123456789" for name in ("ann", "bob")}
    people = [Account(name=name, role=Role.OPERATOR, token=token) for name, token in tokens.items()]
    config = ConsoleConfig(people=people, actions_log=str(tmp_path / "actions"))
    with bank.served(config=config) as address:
        pages = {}
        for name, token in tokens.items():
            page = pages[name] = started_chromium.new_context().new_page()
            page.goto(address)
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("link", name=STUCK).click()
        ann, bob = pages["ann"], pages["bob"]
        bob.get_by_label("amount").fill("12.5")
        ann.get_by_role("button", name="Drop", exact=True).click()
        expect(ann.get_by_role("heading", name="Drop: recorded")).to_be_visible()
        expect(bob.locator("#standing").get_by_role("status")).to_contain_text("ann has decided: drop")
        expect(bob.get_by_label("amount")).to_have_value("12.5")
        bob.get_by_role("button", name="Replace", exact=True).click()
        bank.work()
        expect(ann.get_by_role("heading", name="Drop: carried out")).to_be_visible()
        expect(bob.get_by_role("heading", name="Replace: void")).to_be_visible()
        expect(bob.get_by_role("alert")).to_contain_text("no longer applies, so nothing was changed")
        for page in pages.values():
            page.context.close()


def test_a_page_refreshes_but_keeps_a_form_being_edited(bank: Bank, page: Page, context: BrowserContext) -> None:
    with bank.served() as address:
        page.goto(address)
        group = context.new_page()
        group.goto(address)
        group.get_by_role("link", name=STUCK).click()
        group.get_by_label("amount").press_sequentially("1")
        page.evaluate("window.isSamePage = true")
        group.evaluate("window.isSamePage = true")
        bank.send(("acct-9", 1, -12.5), (STUCK, 11, 4))
        bank.work()
        expect(page.get_by_role("link", name="acct-9")).to_be_visible()
        expect(group.locator(".picture .box.held")).to_have_count(4)
        expect(group.get_by_label("amount")).to_have_value("1-12.5")
        expect(group.get_by_label("amount")).to_be_focused()
        group.get_by_label("amount").fill("-12.5")
        bank.send((STUCK, 12, 4))
        bank.work()
        group.get_by_label("amount").blur()
        expect(group.locator("#holds details")).to_have_count(6)
        assert page.evaluate("window.isSamePage")
        assert group.evaluate("window.isSamePage")


def test_form_fields_have_inputs_of_their_types(bank: Bank, page: Page) -> None:
    with bank.served() as address:
        page.goto(address)
        page.get_by_role("link", name=STUCK).click()
        assert page.get_by_label("kind").locator("option").all_text_contents() == ["deposit", "withdrawal"]
        assert page.get_by_label("is_reviewed").locator("option").all_text_contents() == ["missing", "true", "false"]
        expect(page.locator("output")).to_have_text([STUCK, "5"])
        page.get_by_label("kind").select_option("withdrawal")
        page.get_by_label("is_reviewed").select_option("true")
        page.get_by_label("none").check()
        page.get_by_label("tags").fill('["late"]')
        page.get_by_label("amount").fill("12,5")
        page.get_by_label("amount").press("Enter")
        expect(page.get_by_role("heading", name=STUCK)).to_be_visible()
        page.get_by_role("button", name="try replace").click()
        expect(page.get_by_role("alert")).to_contain_text("the field 'amount' is '12,5', which is not a number")
        page.go_back()
        page.get_by_label("amount").fill("12.5")
        page.get_by_role("button", name="try replace").click()
        rows = page.locator("table").first.locator("tbody tr").all_text_contents()
        assert rows == [
            'kind"deposit""withdrawal"',
            "amount-12.512.5",
            'note"card payment"null',
            'is_reviewed"(absent)"true',
            'tags"(absent)"["late"]',
        ]


def test_a_drop_is_refused_if_another_message_fails_since_the_page_was_loaded(bank: Bank, page: Page) -> None:
    bank.send(("acct-1600", 1, -1), ("acct-1600", 2, -2))
    bank.work()
    with bank.served() as address:
        other = page.context.new_page()
        for tab in (page, other):
            tab.goto(address)
            tab.get_by_role("link", name="acct-1600").click()
        page.get_by_label("Why").fill("it is a copy")  # what is written stays, and so does what the form is about
        other.get_by_role("button", name="Drop", exact=True).click()
        expect(other.get_by_role("heading", name="Drop: recorded")).to_be_visible()
        bank.work()
        expect(page.locator("#standing .line")).to_contain_text("revision 2")
        page.get_by_role("button", name="Drop", exact=True).click()
        expect(page.get_by_role("heading", name="The group has changed since this page was shown")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("the group is at revision 2, which is not the state")
        page.get_by_role("link", name="the current status of acct-1600").click()
        expect(page.get_by_role("group", name="Content of revision 2")).to_be_visible()
        page.get_by_role("button", name="Drop", exact=True).click()
        bank.work()
        expect(page.get_by_role("heading", name="Drop: carried out")).to_be_visible()


def test_a_bulk_decision_applies_only_to_the_groups_shown(bank: Bank, page: Page) -> None:
    bank.send(("acct-1601", 1, -1), ("acct-1602", 1, -1))
    bank.work()
    with bank.served() as address:
        page.goto(address)
        page.get_by_role("row", name="amount -1 is below zero").first.get_by_role("link", name="drop …").click()
        expect(page.get_by_role("heading", name="Drop 2 groups?")).to_be_visible()
        bank.send(("acct-1603", 1, -1))
        bank.work()
        page.get_by_role("button", name="try drop").click()
        expect(page.get_by_role("status").first).to_contain_text("2 groups: 2 open. Nothing was written.")
        page.get_by_role("button", name="Drop 2 groups").click()
        expect(page.get_by_role("heading", name="Drop: 2 groups")).to_be_visible()
        bank.work()
        page.goto(address)
        expect(page.get_by_role("link", name="acct-1603")).to_be_visible()
        expect(page.get_by_role("link", name="acct-1601")).to_be_hidden()


def test_redrive_all_includes_messages_shown_since_the_page_was_loaded(bank: Bank, page: Page) -> None:
    with bank.served() as address:
        page.goto(f"{address}/queues")
        page.get_by_role("link", name="letters-failed", exact=True).last.click()
        expect(page.locator("#live")).to_contain_text("3 messages: ")
        with inturn.open(bank.at) as db:
            (late,) = db.queue("letters").receive()
            late.reject("no address")
        expect(page.locator("#live")).to_contain_text("4 messages: ")
        page.get_by_role("button", name="Redrive all").click()
        expect(page.locator("#live")).to_contain_text("0 messages: ")


def test_enter_in_a_form_field_submits_nothing(bank: Bank, page: Page) -> None:
    with bank.served() as address:
        page.goto(address)
        page.get_by_role("link", name="acct-1402").click()
        at_group = page.url
        for label in ("Why", "amount", "Your name"):
            page.get_by_label(label).press("Enter")
        assert page.url == at_group
        page.goto(f"{address}/queues")
        page.get_by_role("link", name="letters", exact=True).click()
        at_queue = page.url
        page.get_by_label("Body, as JSON").fill("1")
        page.get_by_role("region", name="Send").get_by_label("Group").press("Enter")
        page.get_by_label("Type the queue's name to confirm").fill("letters")
        page.get_by_label("Type the queue's name to confirm").press("Enter")
        page.reload()
        assert page.url == at_queue
        expect(page.locator("#live")).to_contain_text("3 messages: ")


def test_the_pages_work_without_javascript(bank: Bank, started_chromium: Browser) -> None:
    page = started_chromium.new_context(java_script_enabled=False).new_page()
    with bank.served(pipelines=[]) as address:
        page.goto(address)
        page.get_by_role("link", name="acct-1402").click()
        page.get_by_label("amount").fill("3")
        page.get_by_role("button", name="Replace").click()
        bank.work()
        page.reload()
        expect(page.get_by_role("heading", name="Replace: carried out")).to_be_visible()
    page.context.close()


def test_dead_letters_are_selected_and_redriven_to_their_source_queue(bank: Bank, page: Page) -> None:
    with bank.served() as address:
        page.goto(address)
        page.get_by_role("link", name="Dead letters").click()
        page.get_by_role("link", name="TimeoutError: the printer did not answer").click()
        expect(page.get_by_text("2 dead letters, by reason")).to_be_visible()
        page.get_by_role("button", name="Redrive matching messages").click()
        expect(page.get_by_text("No match in 1 message.")).to_be_visible()
        page.get_by_role("link", name="Queues").click()
        page.get_by_role("link", name="letters", exact=True).click()
        rows = page.locator("#blocks + table tbody tr")
        expect(rows.first).to_contain_text("city-0")  # the first of all again
        expect(page.get_by_role("row", name=re.compile("city-2 in flight lease"))).to_be_visible()


def test_search_finds_groups_message_ids_effect_ids_and_texts(bank: Bank, page: Page) -> None:
    with open_inspector(bank.at, "ledger") as ledger:
        effect = next(iter(ledger.outputs())).effect_id
    with bank.served() as address:
        page.goto(address)
        for text, expected in (
            (STUCK, "Groups of pipelines"),
            ("letter-4", "queue letters, group city-1"),
            (effect, f"output, group {STUCK}"),
            ("card payment", f"held, group {STUCK}"),
            ("acct-1[34]*", "acct-1311"),
        ):
            page.wait_for_load_state("domcontentloaded")  # the page's script, which hears the keys, has run
            page.keyboard.press("/")
            page.keyboard.press("Control+A")
            page.keyboard.type(text)
            page.keyboard.press("Enter")
            page.wait_for_url("**/search*")
            expect(page.get_by_role("heading", name=f"Find {text[:20]}")).to_be_visible()
            expect(page.get_by_role("main")).to_contain_text(expected)


def test_the_first_page_loads_less_than_250_kb(bank: Bank, page: Page) -> None:
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(0 if "/live" in answer.url else len(answer.body())))
    bank.stuck(300)
    with bank.served() as address:
        page.goto(address, wait_until="load")
        expect(page.get_by_role("row", name=re.compile(re.escape(ERROR))).first).to_be_visible()
        page.wait_for_timeout(200)
    assert len(sizes) >= 3
    assert sum(sizes) < 250_000
