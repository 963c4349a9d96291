"""The console over every kind of store: it says what the commands say, and decides about ten thousand groups."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from stores import KINDS, StoredLedger, row, stored, waiting
from typer.testing import CliRunner

from inturn.cli import app
from inturn.console import ConsoleConfig, console
from inturn.core import limits
from inturn.core.pipeline.decision import DecisionAction
from inturn.spark import advance as spark_advance
from inturn.worker.inspection import apply_decisions as worker_settle

MANY = 10_000


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoredLedger]:
    with stored(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as opened:
        yield opened


@pytest.fixture
def browser(store: StoredLedger, tmp_path: Path) -> Iterator[TestClient]:
    config = ConsoleConfig(actions_log=str(tmp_path / "actions.jsonl"))
    with TestClient(console(store.at, by="ann", config=config), base_url="http://127.0.0.1:9325") as browser:
        yield browser


def title(browser: TestClient) -> str:
    (listed,) = browser.get("/api/stuck").json()["stores"]
    return str(listed["title"])


def decide(browser: TestClient, **fields: str) -> dict[str, str]:
    answer = browser.post("/api/decide", json={"store": title(browser), **fields})
    assert answer.status_code == 200, answer.text
    decision: dict[str, str] = answer.json()
    return decision


def decided(browser: TestClient, fields: dict[str, str]) -> Any:
    answer = browser.get("/api/decided", params=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def command(*arguments: str) -> str:
    ran = CliRunner().invoke(app, list(arguments))
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


def test_console_pages_and_commands_show_the_same(store: StoredLedger, browser: TestClient) -> None:
    store.receive(waiting(), [row("gap", 2)])
    store.pass_time(11)
    failed = [row(name, revision, -1) for name in ("eu-1", "us-1", "<b>") for revision in (1, 2)]
    store.receive(waiting(), [*failed, row("early", 3), row("well", 1), row("gone", 1, -7)])
    decide(browser, group="gone", action="give-up")
    store.settle(waiting())

    listed = json.loads(command("parked", "list", store.at, "--json"))
    (shown,) = browser.get("/api/stuck").json()["stores"]
    assert shown["groups"] == listed
    assert {group["group"]: group["status"] for group in listed} == {
        "gap": "gap",
        "eu-1": "failed",
        "us-1": "failed",
        "<b>": "failed",
        "early": "waiting",
        "gone": "given up",
    }
    reasons: dict[tuple[str, str], list[int]] = {}
    for group in listed:
        key = group["status"], (group["error"] or "").strip().rpartition("\n")[2]
        counts = reasons.setdefault(key, [0, 0])
        counts[0] += 1
        counts[1] += group["held"]
    assert {
        (reason["status"], reason["error"]): [reason["groups"], reason["held"]] for reason in shown["reasons"]
    } == reasons

    chosen = json.loads(command("parked", "list", store.at, "--json", "--group", "eu-*", "--error", "ValueError*"))
    query = {"group": "eu-*", "error": "ValueError*"}
    assert browser.get("/api/stuck", params=query).json()["stores"][0]["groups"] == chosen

    for name in ("gap", "eu-1", "<b>", "early", "well", "gone"):
        explanation = command("explain", store.at, name).split("\n")[0]
        page = browser.get("/api/group", params={"store": shown["title"], "group": name}).json()
        assert (
            page["said"].partition(" since ")[0]
            == explanation.partition(" since ")[0].removesuffix(page["group"]["error"] or "").strip()
        ), "but for how long ago it was"


@pytest.mark.slow
def test_console_decides_about_ten_thousand_groups(
    store: StoredLedger, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DECISIONS_AT_ONCE", 4_000)
    store.receive(waiting(), [row(f"g-{number}", 1, -1) for number in range(MANY)])
    store.receive(waiting(), [row("alone", 1, -2)])
    (shown,) = browser.get("/api/stuck").json()["stores"]
    assert [(reason["groups"], reason["error"]) for reason in shown["reasons"]] == [
        (MANY, "ValueError: amount -1 is below zero"),
        (1, "ValueError: amount -2 is below zero"),
    ]
    selected = {"action": "drop", "error": "ValueError: amount -1 is below zero"}
    preview = browser.get("/api/preview", params={"store": shown["title"], **selected}).json()
    assert (preview["count"], len(preview["groups"])) == (MANY, 10)

    report = decide(browser, **selected, why="nobody owes us less than nothing")
    assert report["count"] == str(MANY)
    progress = decided(browser, report)
    assert (progress["pending"], progress["done"], progress["void"]) == (MANY, 0, {})

    seen: list[int] = []

    def look(_count: int = 0) -> None:
        if len(seen) < 3 or seen[-1] == MANY:
            seen.append(decided(browser, report)["done"])

    if "#" in store.at:
        worker_settle(waiting(), store.look(), look)
    else:
        for _ in range(3):
            spark_advance(waiting(), store=store.at, now=store.now)  # type: ignore[attr-defined]
            look()
    assert 0 < seen[0] < seen[1] < MANY, "progress is shown as they are taken"
    progress = decided(browser, report)
    assert (progress["pending"], progress["done"], progress["void"], progress["void_groups"]) == (0, MANY, {}, [])
    (shown,) = browser.get("/api/stuck").json()["stores"]
    assert [group["group"] for group in shown["groups"]] == ["alone"]


def test_console_reports_overlapping_bulk_decisions_per_group(store: StoredLedger, browser: TestClient) -> None:
    store.receive(waiting(), [row(f"{part}-{number}", 1, -1) for part in ("eu", "us") for number in range(20)])
    ann = decide(browser, action="drop", like="eu-*", error="*", by="ann")
    bob = decide(browser, action="drop", error="*", by="bob")
    carol = decide(browser, action="resume", group="us-3", by="carol")
    assert (ann["count"], bob["count"], carol["count"]) == ("20", "40", "1")
    store.settle(waiting())
    progress = decided(browser, ann)
    assert (progress["done"], progress["pending"], progress["void"]) == (20, 0, {})
    progress = decided(browser, bob)
    assert (progress["done"], progress["pending"], sum(progress["void"].values())) == (20, 0, 20)
    assert sorted(group["group"] for group in progress["void_groups"]) == sorted(f"eu-{number}" for number in range(20))
    assert all(group["why"].startswith("the group has changed in the meantime: ") for group in progress["void_groups"])
    page = browser.get("/decided", params=bob).text
    assert "eu-7" in page
    assert "us-7" not in page
    progress = decided(browser, carol)
    assert [group["group"] for group in progress["void_groups"]] == ["us-3"]


def test_void_groups_of_a_batch_take_no_decision_number(store: StoredLedger, browser: TestClient) -> None:
    """A group of which nothing is missing any more takes no number, by which the report finds the decisions."""
    store.receive(waiting(), [row("a", 1, -1), row("b", 2), row("c", 2)])
    inspector = store.look()
    draft = inspector.prepare(DecisionAction.SKIP, "a", "b", "c", by="ann")
    assert (list(draft.void), [decision.group for decision in draft.decisions]) == (["a"], ["b", "c"])
    pending = inspector.record(draft).pending
    assert inspector.batch(next(iter(pending.values())), 2) == list(pending.values())
    assert inspector.groups_of([*pending.values(), "none"]) == {name: group for group, name in pending.items()}


MENDED = """
import json
import inturn

def mended(state, message):
    if message["amount"] == -2:
        raise KeyError("again")
    return {"balance": state.get("balance", 0) + message["amount"]}, [message["amount"]]

ledger = inturn.Pipeline(
    name="ledger", group="account", order=inturn.Gapless("revision"), on_gap=inturn.Wait("10 minutes"), handler=mended
)
"""


def test_console_dry_run_shows_outcomes_and_writes_nothing(store: StoredLedger, tmp_path: Path) -> None:
    """Of more than a thousand groups the first thousand are run, in a process of their own."""
    amounts = [-1] * 1_100 + [-2] * 2
    store.receive(waiting(), [row(f"g-{number:04d}", 1, amount) for number, amount in enumerate(amounts)])
    module = tmp_path / "mended_ledger.py"
    module.write_text(MENDED)
    before = store.content()
    config = ConsoleConfig(actions_log=str(tmp_path / "actions.jsonl"))
    web_app = console(store.at, by="ann", pipelines=[f"{module}:ledger"], config=config)
    with TestClient(web_app, base_url="http://127.0.0.1:9325") as browser:

        def attempt(**fields: str) -> Any:
            answer = browser.post("/api/try", json={"store": title(browser), "action": "resume", **fields})
            assert answer.status_code == 200, answer.text
            return answer.json()

        attempted = attempt(error="ValueError*")
        assert (attempted["error"], attempted["groups"], sum(attempted["outcomes"].values())) == ("", 1_102, 1_000)
        assert attempted["outcomes"]["open"] >= 998, "which are the first depends on the store"
        shown = [trial for trial in attempted["trials"] if trial["outcome"] == "open"]
        assert [trial["state"] for trial in shown] == [{"balance": -1}] * 10
        attempted = attempt(group="g-1100")
        assert attempted["outcomes"] == {"failed": 1}
        assert "KeyError: 'again'" in attempted["trials"][0]["error"]
        (trial,) = attempt(group="g-0003", action="replace", content='{"amount": 7}')["trials"]
        assert (trial["state"], trial["outputs"]) == ({"balance": 7}, [7])
    assert store.content() == before
