"""The commands about a group of `Timestamp` whose next message does not come: what it waits for, and what helps."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app

PROGRAM = """
import inturn

def collect(state, message):
    return {"seen": [*state.get("seen", []), message["at"]]}, []

order = inturn.Timestamp("at", lateness="1 hour", unit="s")
timed = inturn.Pipeline(name="timed", group="account", order=order, id="id", handler=collect)
order = inturn.Timestamp("at", lateness="1 hour", unit="s", idle="lateness")
idle = inturn.Pipeline(name="timed", group="account", order=order, id="id", handler=collect)
"""


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database with a group whose two messages lie within the lateness."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "app.py").write_text(PROGRAM)
    address = "shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with inturn.open(address, durable=False) as db:
        for time in (103, 101):
            db.queue("rows").send({"account": "a", "at": time, "id": f"t{time}"}, group="a")
        yield address


def work(database: str, pipeline: str, *more: str) -> tuple[int, str]:
    return command("work", f"app.py:{pipeline}", "--queue", f"{database}#rows", *more)


def test_parked_and_explain_suggest_idle_and_final_for_a_group_within_its_lateness(database: str) -> None:
    assert work(database, "timed", "--until-empty")[0] == 0
    code, output = command("parked", "skip", f"{database}#timed", "a", "--by", "ann")
    assert code != 0
    assert "Timestamp(…, idle='lateness') releases them after that time, and --final at the end" in output
    assert "set idle= of its order to end that" in command("explain", f"{database}#timed", "a")[1]
    assert work(database, "idle", "--until-empty")[0] == 0
    assert "are within the lateness, until " in command("explain", f"{database}#timed", "a")[1]


def test_work_final_releases_all_groups_and_requires_until_empty(database: str) -> None:
    assert "--final without --until-empty" in work(database, "timed", "--final")[1]
    assert "--final with processes = 2" in work(database, "timed", "--final", "--until-empty", "--processes", "2")[1]
    assert "2 applied" in work(database, "timed", "--final", "--until-empty")[1]
    assert '{"seen": [101, 103]}' in command("explain", f"{database}#timed", "a")[1]
