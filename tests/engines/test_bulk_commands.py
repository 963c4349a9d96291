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
    with stored(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as made:
        amounts = {"eu-1": -1, "eu-2": -2, "eu-3": -1, "us-1": -1}
        made.receive(ledger(), [*(row(name, 1, amount) for name, amount in amounts.items()), row("eu-early", 2)])
        yield made


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["parked", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def document(*arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code))


NOW = ("--pipeline", "ledger.py:fixed")


def test_parked_list_command_selects_groups_by_patterns(store: StoredLedger) -> None:
    def listed(*options: str) -> list[str]:
        return sorted(each["group"] for each in document("list", store.at, *options))

    assert listed("--error", "*-1 is below*") == ["eu-1", "eu-3", "us-1"]
    assert listed("--group", "us-*", "--group", "*early") == ["eu-early", "us-1"]
    assert len(listed()) == 5


def test_parked_resume_command_reports_groups_that_failed_again(store: StoredLedger) -> None:
    said = run("resume", store.at, "--group", "eu-*", "--error", "ValueError*", *NOW)
    assert f"resume: 3 groups in {store.at}." in said
    assert "resume: 3 done, 0 void, 0 not applied yet.\n  eu-2: parked, KeyError: 'eu-2 again'" in said
    assert sorted(each.group for each in store.look().parked(error="*")) == ["eu-2", "us-1"]


def test_parked_commands_print_the_whole_report_as_json(store: StoredLedger) -> None:
    found = document("skip", store.at, "eu-1", "eu-early", "nobody", *NOW, code=1)
    assert (found["action"], found["done"], found["pending"]) == ("skip", ["eu-early"], {})
    assert sorted(found["void"]) == ["eu-1", "nobody"]
    assert "has no gap" in found["void"]["eu-1"]
    assert document("resume", store.at, "--all", "--group", "none*") == {
        "action": "resume",
        "done": [],
        "void": {},
        "pending": {},
        "parked": {},
    }


def test_parked_commands_without_a_pipeline_leave_decisions_pending(store: StoredLedger) -> None:
    found = document("drop", store.at, "--all", "--by", "ann", "--wait-s", "0")
    assert sorted(found["pending"]) == ["eu-1", "eu-2", "eu-3", "us-1"]
    assert "not applied yet; " in run("resume", store.at, "--all", "--wait-s", "0")
    store.settle(ledger())
    assert [each.group for each in store.look().parked()] == ["eu-early"]


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
    said = run("resume", store.at, "--all", "--dry-run", *NOW, "--sample", "1")
    assert "resume, dry run: 4 groups: 1 failed, 3 open." in said
    assert said.count("would be open: its state would change from") == 1
    assert "Group eu-2 would be parked (failed)" in said
    assert "KeyError: 'eu-2 again'" in said
    assert said.endswith("Nothing was written.\n")
    found = document("give-up", store.at, "eu-1", "nobody", "--dry-run", *NOW, code=1)
    assert (found["groups"], found["outcomes"]) == (2, {"void": 1, "given up": 1})
    assert [each["rejected"] for each in found["sample"]] == [{}, {"given up": 1}]
    found = document("replace", store.at, "us-1", "--content", '{"amount": 9}', "--dry-run", *NOW)
    assert [each["outputs"] for each in found["sample"]] == [[9]]
    found = document("resume", store.at, "us-1", "--dry-run", "--pipeline", "ledger.py:ledger")
    assert found["outcomes"] == {"failed": 1}
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
    assert [each.group for each in stored_ledger.parked(group="us-*")] == ["us-1"]
    (found,) = inturn.dry_run(ledger(), stored_ledger, "replace", "us-1", content={"amount": 4})
    assert (found.outcome, found.outputs) == ("open", [4])
    assert {each.outcome for each in inturn.dry_run(ledger(), stored_ledger, "give-up", all=True)} == {"given up"}
    with pytest.raises(inturn.InturnError, match="expected replace, drop, skip, resume, give-up"):
        inturn.dry_run(ledger(), stored_ledger, "explode", all=True)
    report = stored_ledger.drop(error="ValueError*", group=["eu-*"], by="ann")
    store.settle(ledger())
    report = stored_ledger.updated(report)
    assert (sorted(report.done), report.void, report.pending) == (["eu-1", "eu-2", "eu-3"], {}, {})
