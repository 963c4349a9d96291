"""The commands that decide about many parked groups: selection, dry run, report; the same over every store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stores import KINDS, InDatabase, StoredLedger, ledger, row, stored
from typer.testing import CliRunner

import inturn
import inturn.spark
from inturn.cli import app

if TYPE_CHECKING:
    from inturn.results.pipeline import PipelineResults

DEFINITION = """
from inturn import Gapless, Pipeline
from stores import ledger as made, mended, post

ledger, fixed = made(post), made(mended)
"""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredLedger]:
    """Four groups that failed, one of which will fail again, and one that waits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "ledger.py").write_text(DEFINITION)
    with stored(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as opened:
        amounts = {"eu-1": -1, "eu-2": -2, "eu-3": -1, "us-1": -1}
        opened.receive(ledger(), [*(row(name, 1, amount) for name, amount in amounts.items()), row("eu-early", 2)])
        yield opened


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["parked", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def document(*arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code))


NOW = ("--pipeline", "ledger.py:fixed")


def test_parked_list_command_selects_groups_by_patterns(store: StoredLedger) -> None:
    def listed(*options: str) -> list[str]:
        return sorted(group["group"] for group in document("list", store.at, *options))

    assert listed("--error", "*-1 is below*") == ["eu-1", "eu-3", "us-1"]
    assert listed("--group", "us-*", "--group", "*early") == ["eu-early", "us-1"]
    assert len(listed()) == 5


def test_parked_resume_command_reports_groups_that_failed_again(store: StoredLedger) -> None:
    printed = run("resume", store.at, "--group", "eu-*", "--error", "ValueError*", *NOW)
    assert f"resume: 3 groups in {store.at}." in printed
    assert "resume: 3 done, 0 void, 0 not applied yet.\n  eu-2: parked, KeyError: 'eu-2 again'" in printed
    assert sorted(parked.group for parked in store.look().parked(error="*")) == ["eu-2", "us-1"]


def test_parked_commands_print_the_whole_report_as_json(store: StoredLedger) -> None:
    report = document("skip", store.at, "eu-1", "eu-early", "nobody", *NOW, code=1)
    assert (report["action"], report["done"], report["pending"]) == ("skip", ["eu-early"], {})
    assert sorted(report["void"]) == ["eu-1", "nobody"]
    assert "has no gap" in report["void"]["eu-1"]
    assert document("resume", store.at, "--all", "--group", "none*") == {
        "action": "resume",
        "done": [],
        "void": {},
        "pending": {},
        "parked": {},
    }


def test_parked_commands_without_a_pipeline_leave_decisions_pending(store: StoredLedger) -> None:
    report = document("drop", store.at, "--all", "--by", "ann", "--wait-s", "0")
    assert sorted(report["pending"]) == ["eu-1", "eu-2", "eu-3", "us-1"]
    assert "not applied yet; " in run("resume", store.at, "--all", "--wait-s", "0")
    store.settle(ledger())
    assert [parked.group for parked in store.look().parked()] == ["eu-early"]


def test_parked_commands_refuse_a_missing_or_ambiguous_selection(store: StoredLedger) -> None:
    before = store.content()
    for verb in ("resume", "drop", "skip", "give-up"):
        assert "no group is selected" in run(verb, store.at, code=1)
        assert "pass either names or these" in run(verb, store.at, "eu-1", "--all", code=1)
    assert "--revision and --id select one message" in run("drop", store.at, "--all", "--revision", "1", code=1)
    assert "--pipeline ledger.py:ledger" in run("resume", store.at, "--all", "--dry-run", code=1)
    assert store.content() == before


def test_dry_run_option_shows_a_sample_of_each_outcome(store: StoredLedger) -> None:
    before = store.content()
    printed = run("resume", store.at, "--all", "--dry-run", *NOW, "--sample", "1")
    assert "resume, dry run: 4 groups: 1 failed, 3 open." in printed
    assert printed.count("would be open: its state would change from") == 1
    assert "Group eu-2 would be parked (failed)" in printed
    assert "KeyError: 'eu-2 again'" in printed
    assert printed.endswith("Nothing was written.\n")
    report = document("give-up", store.at, "eu-1", "nobody", "--dry-run", *NOW, code=1)
    assert (report["groups"], report["outcomes"]) == (2, {"void": 1, "given up": 1})
    assert [group["rejected"] for group in report["sample"]] == [{}, {"given up": 1}]
    report = document("replace", store.at, "us-1", "--content", '{"amount": 9}', "--dry-run", *NOW)
    assert [group["outputs"] for group in report["sample"]] == [[9]]
    report = document("resume", store.at, "us-1", "--dry-run", "--pipeline", "ledger.py:ledger")
    assert report["outcomes"] == {"failed": 1}
    assert store.content() == before


def test_bulk_parked_commands_ask_for_confirmation_on_a_terminal(
    store: StoredLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inturn.cli.output.is_interactive", lambda: True)
    before = store.content()
    done = CliRunner().invoke(app, ["parked", "give-up", store.at, "--all"], input="n\n")
    assert (done.exit_code, "give-up: 4 groups in" in done.output) == (1, True)
    assert store.content() == before
    assert "1 done" in run("give-up", store.at, "--group", "us-*", *NOW)
    assert "3 done" in run("give-up", store.at, "--all", "--yes", *NOW)


def test_pipeline_results_list_dry_run_and_decide_like_the_commands(store: StoredLedger) -> None:
    if isinstance(store, InDatabase):
        stored_ledger: PipelineResults = store.db.pipeline("ledger")
    else:
        stored_ledger = inturn.spark.store(store.at)
    assert [parked.group for parked in stored_ledger.parked(group="us-*")] == ["us-1"]
    (effect,) = inturn.dry_run(ledger(), stored_ledger, "replace", "us-1", content={"amount": 4})
    assert (effect.outcome, effect.outputs) == ("open", [4])
    assert {effect.outcome for effect in inturn.dry_run(ledger(), stored_ledger, "give-up", all=True)} == {"given up"}
    with pytest.raises(inturn.InturnError, match="expected replace, drop, skip, resume, give-up"):
        inturn.dry_run(ledger(), stored_ledger, "explode", all=True)
    report = stored_ledger.drop(error="ValueError*", group=["eu-*"], by="ann")
    store.settle(ledger())
    report = stored_ledger.updated(report)
    assert (sorted(report.done), report.void, report.pending) == (["eu-1", "eu-2", "eu-3"], {}, {})
