"""Pages for everybody: axe-core finds nothing, the keyboard is enough, a screen reader has what the eye has."""

import re
from urllib.parse import urlencode

import pytest
from bank import ERROR, STUCK, Bank
from chromium import violations
from playwright.sync_api import Page, expect

from inturn.console import Account, ConsoleConfig, Role

pytestmark = pytest.mark.thorough
CLIPPED = """() => [document.scrollingElement, ...document.querySelectorAll("body *")]
    .filter(each => !each.closest(".hidden, .skip, thead, svg, .line, .line-notes, select") && (
        each.getBoundingClientRect().right > innerWidth + 1
        || (each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== "visible")))
    .map(each => each.outerHTML.slice(0, 120))"""
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


def views(bank: Bank) -> dict[str, str]:
    """The paths of all pages, with and without contents."""
    fields, queue = {"store": bank.store}, {"database": bank.at, "queue": "letters"}
    return {
        "stuck": "/",
        "nothing matches": "/?group=none-*",
        "failed group": "/group?" + urlencode(fields | {"group": STUCK}),
        "waiting group": "/group?" + urlencode(fields | {"group": "acct-1311"}),
        "open group": "/group?" + urlencode(fields | {"group": "acct-1500"}),
        "preview": "/preview?" + urlencode(fields | {"action": "resume", "error": "ValueError*"}),
        "queues": "/queues",
        "queue": "/queue?" + urlencode(queue),
        "dead letters": "/dead",
        "no dead letters": "/dead?queue=none",
        "sources": "/sources",
        "steps": "/steps",
        "found": "/search?q=card&within=contents",
        "nothing found": "/search",
        "actions": "/actions",
        "fault": "/group?store=none&group=none",
    }


def wrong(page: Page) -> list[str]:
    """Return what is wrong with a page in both schemes, wide and on a phone."""
    faults = []
    for size in (WIDE, PHONE):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        clipped = page.evaluate(CLIPPED)
        if clipped:
            faults.append(f"clipped at {size['width']}: {clipped}")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            rules = [] if scheme == "light" else ["color-contrast"]  # the others do not depend on colours
            faults += [f"{scheme} {size['width']}: {violation}" for violation in violations(page, rules)]
    return faults


@pytest.mark.slow
def test_no_page_has_an_axe_violation_in_any_colour_scheme_or_size(bank: Bank, page: Page) -> None:
    with bank.served() as address:
        faults = {}
        for name, path in views(bank).items():
            page.goto(address + path, wait_until="load")
            if page_faults := wrong(page):
                faults[name] = page_faults
        page.goto(address + views(bank)["waiting group"])
        page.get_by_role("button", name="try skip").click()
        if page_faults := wrong(page):
            faults["dry run"] = page_faults
        page.get_by_role("button", name="Skip").click()
        if page_faults := wrong(page):
            faults["decided"] = page_faults
        page.goto(address + "/actions")
        if page_faults := wrong(page):
            faults["actions done"] = page_faults
    assert faults == {}


def test_the_login_page_has_no_axe_violation(bank: Bank, page: Page) -> None:
    config = ConsoleConfig(
        people=[Account(name="ann", role=Role.VIEWER, token="x" * 20)], actions_log=str(bank.folder / "actions")
    )
    with bank.served(config=config) as address:
        page.goto(address)
        assert wrong(page) == []
        page.get_by_label("Token").fill("x" * 20)
        page.keyboard.press("Enter")
        page.get_by_role("link", name=STUCK).click()
        assert wrong(page) == []
        expect(page.get_by_role("button", name="Replace")).to_have_count(0)


def spaced(text: str) -> str:
    """Return a text on one line, without times and counts of tasks, which depend on how the worker took them."""
    return re.sub(r"(?<=task) \d+|since .*", "", " ".join(text.split())).strip()


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not come to {selector}")


def test_a_failed_group_is_handled_with_the_keyboard_alone(bank: Bank, page: Page) -> None:
    with bank.served() as address:
        page.goto(address)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        tab_to(page, "a[href*='acct-1402']")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="acct-1402 failed")).to_be_visible()
        tab_to(page, "input[name='field.amount']")
        page.keyboard.type("3")  # Tab has marked the old value
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="acct-1402 failed")).to_be_visible()  # Enter in a field decides nothing
        tab_to(page, "button[aria-label='try replace']")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Dry run: replace")).to_be_visible()
        tab_to(page, "button.main")
        page.keyboard.press("Space")
        expect(page.get_by_role("heading", name="Replace: recorded")).to_be_visible()
        bank.work()
        expect(page.get_by_role("heading", name="Replace: carried out")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_landmarks_and_tables_have_accessible_names(bank: Bank, page: Page, size: dict[str, int]) -> None:
    page.set_viewport_size(size)  # type: ignore[arg-type]
    with bank.served() as address:
        page.goto(address)
        for role, name in (("banner", None), ("navigation", "Console"), ("search", None), ("main", None)):
            expect(page.get_by_role(role, name=name)).to_have_count(1)  # type: ignore[arg-type]
        table = page.get_by_role("table", name="3 groups, the longest wait first")
        assert table.get_by_role("columnheader").all_inner_texts() == ["Group", "Status", "Holds", "Since", "Error"]
        row = table.get_by_role("row", name=ERROR)
        expect(row.get_by_role("rowheader")).to_have_text(STUCK)
        expect(row.get_by_role("cell")).to_have_count(4)
        page.get_by_role("link", name=STUCK).click()
        events = page.get_by_role("region", name="Time line").get_by_role("list").first.get_by_role("listitem")
        assert [*map(spaced, events.all_inner_texts())] == [
            "applied revisions 1 to 4 after task",
            "failed revision 5 the handler raised",
            "held revision 6",
            "held revision 7",
            "missing revisions 8 to 9 not received",
            "held revision 10",
        ]
        assert page.locator("svg.picture").get_attribute("aria-hidden") == "true"
        status = page.locator("#told")
        expect(status).to_have_attribute("role", "status")
        page.context.new_page().goto(address)
        bank.send((STUCK, 8, 1), (STUCK, 9, 1))
        bank.work()
        expect(status).to_contain_text(STUCK)
