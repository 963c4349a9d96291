"""The commands tell which states are of an older version than the pipeline, in databases and stores on Spark alike."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.cli.targets import open_inspector
from inturn.definitions import load
from inturn.spark.columns.hashing import group_hash
from inturn.worker import Worker
from kernel_harness import Bench

SCHEMA = pa.schema({"account": pa.string(), "n": pa.int64(), "amount": pa.int64()})
OLDER = "ome states have an older version: 1 group with version 1, 1 group with version 2; the pipeline has version 2."


def post(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    return {"sum": state.get("sum", 0) + message["amount"]}, []


def upgrade(state: dict[str, int], version: int) -> dict[str, int]:
    if state["sum"] == 5:
        raise ValueError("five")
    return state


FIRST = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("n"), handler=post)
SECOND = inturn.Pipeline(
    name="ledger", group="account", order=inturn.Gapless("n"), handler=post, version=2, upgrade=upgrade
)


MENDED = """
import inturn

def post(state, message):
    return {"sum": state["sum"] + message["amount"]}, []

def upgrade(state, version):
    return {"sum": state["sum"] * 100}

ledger = inturn.Pipeline(
    name="ledger", group="account", order=inturn.Gapless("n"), handler=post, version=2, upgrade=upgrade
)
"""


def row(account: str, n: int, amount: int) -> dict[str, Any]:
    return {"account": account, "n": n, "amount": amount}


def command(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(params=["database", "spark"])
def at(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store whose group ``old`` has a state that could not be upgraded."""
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / request.param
    steps = [(FIRST, [row("old", 1, 5), row("new", 1, 1)]), (SECOND, [row("new", 2, 1)])]
    if request.param == "spark":
        for pipeline, rows in steps:
            step(path, pipeline, rows)
        return str(path)
    with inturn.open(path) as db:
        for pipeline, rows in steps:
            queue = db.queue("q", create=True)
            for message in rows:
                queue.send(message)
            with Worker(pipeline, queue) as worker:
                worker.drain(60)
    return f"{path}#ledger"


def step(path: Path, pipeline: inturn.Pipeline[Any, Any, Any], rows: list[dict[str, Any]]) -> None:
    """Take messages, and the decisions about a store on Spark."""
    bench = Bench(pipeline, SCHEMA, root=path)
    bench.hash_of = group_hash  # type: ignore[method-assign] # as Spark has it
    bench.step(rows)


def test_explain_names_the_version_of_an_older_state(at: str) -> None:
    assert "Its state has version 1, the pipeline has version 2: " in command("explain", at, "old")
    assert json.loads(command("explain", at, "old", "--json"))["old_version"] == 1
    assert "version" not in command("explain", at, "new")
    assert json.loads(command("explain", at, "new", "--json"))["old_version"] is None


def test_states_marks_and_counts_older_versions(at: str) -> None:
    printed = command("states", at)
    assert f"S{OLDER}" in printed
    assert "old_version" in printed
    rows = map(json.loads, command("states", at, "--json").splitlines())
    assert {state["group"]: state["old_version"] for state in rows} == {"new": None, "old": 1}
    assert "older" not in command("states", at, "--json")


def test_states_older_lists_only_older_versions(at: str) -> None:
    (state,) = map(json.loads, command("states", at, "--older", "--json").splitlines())
    assert (state["group"], state["old_version"]) == ("old", 1)


def test_a_failed_upgrade_succeeds_with_the_corrected_pipeline(at: str, tmp_path: Path) -> None:
    (name,) = json.loads(command("upgrade", at, "--wait-s", "0", "--json"))["pending"].values()
    take(at, SECOND)
    with open_inspector(at) as inspector:
        assert "upgrade raised five on a state of version 1" in (inspector.verdict(name) or "")
        assert inspector.group("old").old_version == 1

    (tmp_path / "mended.py").write_text(MENDED)
    tried = command("upgrade", at, "--pipeline", f"{tmp_path}/mended.py:ledger", "--dry-run")
    assert 'Group old would be open: its state would change from {"sum": 5} to {"sum": 500}' in tried

    assert "upgrade: 0 done, 0 void, 1 not applied yet" in command("upgrade", at, "--wait-s", "0")
    take(at, load(f"{tmp_path}/mended.py:ledger"))
    rows = map(json.loads, command("states", at, "--json").splitlines())
    assert {state["group"]: (state["state"], state["old_version"]) for state in rows} == {
        "old": ({"sum": 500}, None),
        "new": ({"sum": 2}, None),
    }
    assert command("upgrade", at) == f"upgrade: all states of {at} already have version 2.\n"


@pytest.mark.parametrize("at", ["database"], indirect=True)
def test_upgrade_with_a_pipeline_upgrades_at_once(at: str, tmp_path: Path) -> None:
    (tmp_path / "mended.py").write_text(MENDED)
    printed = command("upgrade", at, "--pipeline", f"{tmp_path}/mended.py:ledger")
    assert "upgrade: 1 done, 0 void, 0 not applied yet." in printed
    assert command("states", at, "--older", "--json") == ""


def take(target: str, pipeline: inturn.Pipeline[Any, Any, Any]) -> None:
    """Take the decisions about a store."""
    path, _, name = target.partition("#")
    if not name:
        step(Path(path), pipeline, [])
        return
    with inturn.open(path) as db, Worker(pipeline, db.queue("q")) as worker:
        worker.drain(60)


@pytest.mark.parametrize("at", ["database"], indirect=True)
def test_pipelines_counts_older_states(at: str) -> None:
    path = at.partition("#")[0]
    assert f"ledger: s{OLDER}" in command("pipelines", path)
    (listed,) = json.loads(command("pipelines", path, "--json"))
    assert listed["versions"] == {"1": 1, "2": 1}


def test_states_of_one_version_show_no_version(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "one") as db:
        db.queue("q", create=True).send(row("a", 1, 1))
        with Worker(FIRST, db.queue("q")) as worker:
            worker.drain(60)
    assert "version" not in command("pipelines", str(tmp_path / "one")) + command("states", f"{tmp_path}/one#ledger")
    assert json.loads(command("pipelines", str(tmp_path / "one"), "--json"))[0]["versions"] == {"1": 1}
