"""Errors of commands: each names the option, the value and the remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.definitions import load

LEDGER = """
from dataclasses import dataclass
from inturn import Gapless, Pipeline

def fail(state, message):
    raise ValueError("too high")

ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=fail)

def post(message): ...
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database with a queue, a full queue, and a pipeline with a parked group."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "ledger.py").write_text(LEDGER)
    (tmp_path / "in.jsonl").write_text("{}\n")
    with inturn.open("shop.db") as db:
        queue = db.queue("payments")
        queue.send({"account": "a", "revision": 1}, group="a")
        inturn.work(load("ledger.py:ledger"), queue, until="empty")
        db.queue("full", inturn.queue.QueueSettings(max_depth=1)).send("x")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


AT = "shop.db#payments"
CONSUME = ["consume", "ledger.py:post", "--queue", AT]
RUN = ["run", "ledger.py:ledger", "--from", "in.jsonl", "--store", "out"]
NONE = "no database 'none.db'; databases in its directory: shop.db"
WRONG: dict[str, tuple[list[str], str]] = {
    "content of no file": (
        ["parked", "replace", "shop.db#ledger", "a", "--content", "@missing"],
        "InputError: --content is '@missing': No such file or directory; expected JSON, or @FILE",
    ),
    "content that is no text": (
        ["parked", "replace", "shop.db#ledger", "a", "--content", "@shop.db"],
        "InputError: --content is '@shop.db': the file is not UTF-8; expected JSON, or @FILE",
    ),
    "a trigger that is no time": ([*RUN, "--stream", "--trigger", "soon"], "InputError: --trigger is 'soon'; expected"),
    "a burst without a rate": (
        [*CONSUME, "--burst", "5"],
        "InputError: --burst is 5, but no rate is set; pass --rate-limit too, or omit it",
    ),
    "a burst of nothing": (
        [*CONSUME, "--rate-limit", "1/second", "--burst", "0"],
        "InputError: --burst is 0; expected",
    ),
    "a rate of nothing": ([*CONSUME, "--rate-limit", "0/second"], "InputError: --rate-limit is '0/second'; expected"),
    "negative retries": ([*CONSUME, "--retries", "-1"], "InputError: --retries is -1; expected"),
    "a backoff that is no time": ([*CONSUME, "--backoff", "soon"], "InputError: --backoff is 'soon'; expected"),
    "no process": ([*CONSUME, "--processes", "0"], "InputError: --processes is 0; expected"),
    "a function that does not exist": (
        ["consume", "ledger.py:pots", "--queue", AT],
        "no function 'pots' in ledger.py; existing functions: fail, post",
    ),
    "a console of no database": (["console", "none.db"], "no database or store 'none.db'; databases in its directory:"),
    "a console of a pipeline of no database": (["console", "none.db#x"], "no database or store 'none.db'; databases"),
    "accept for an unknown source": (["ingest", "accept", "shop.db#nope"], "shop.db has no source 'nope'"),
    "moved groups of an unknown source": (["ingest", "moved", "shop.db#nope"], "shop.db has no source 'nope'"),
    "a place without numbering": (
        ["send", AT, "x", "--expected-revision", "3", "--revision", "1", "--group", "g"],
        "InputError: --expected-revision is 3, but --revision is 1; it needs --revision next",
    ),
    "numbering without a group": (
        ["send", AT, "x", "--revision", "next"],
        "InputError: --revision is 'next', but the message has no group; pass --group",
    ),
    "a setting of a new queue": (
        ["queue", "create", "shop.db#new", "--dead-letter", "x"],
        "InputError: --dead-letter is 'x' and --max-receives is not set; set both or neither",
    ),
    "a setting that is no number": (
        ["queue", "configure", AT, "max_depth=x"],
        "InputError: max_depth is 'x'; expected a whole number or null",
    ),
    "a setting that is no choice": (
        ["queue", "configure", AT, "dedup_scope=x"],
        "InputError: dedup_scope is 'x'; expected queue or group",
    ),
    "a setting without a value": (
        ["queue", "configure", AT, "max_depth"],
        "InputError: max_depth has no value; expected SETTING=VALUE, such as max_depth=",
    ),
    "an unknown setting": (["queue", "configure", AT, "depth=1"], "InputError: no setting 'depth'; existing settings:"),
    "a full queue": (
        ["send", "shop.db#full", "y", "--wait-s", "0.01"],
        "there is no room for 1 more: send again later, or with a longer --wait-s\n",
    ),
    "a backup of no database": (["backup", "none.db", "copy.db"], f"{NONE}\n"),
    "a group of no database": (["forget", "none.db", "g", "--yes"], f"{NONE}\n"),
    "a queue of no database": (["peek", "none.db#q"], f"{NONE}; create it with 'inturn queue create none.db#q'\n"),
    "no backup": (["restore", "none.db", "new.db"], "no backup file 'none.db'; databases in its directory: shop.db\n"),
}


@pytest.mark.parametrize(("command", "says"), WRONG.values(), ids=WRONG)
def test_a_command_error_names_the_option_and_the_remedy(command: list[str], says: str) -> None:
    done = run(*command)
    assert (done.exit_code, done.stdout) == (1, "")
    assert says in done.stderr


@pytest.mark.parametrize("command", ["drop", "skip", "resume", "give-up", "replace"])
def test_a_negative_wait_is_refused(command: str) -> None:
    done = run("parked", command, "shop.db#ledger", "a", "--wait-s", "-1")
    assert (done.exit_code, "Invalid value for '--wait-s'" in done.stderr) == (2, True)


def test_unknown_fields_of_new_content_are_reported_as_not_checked() -> None:
    replace = ("parked", "replace", "shop.db#ledger", "a", "--wait-s", "0", "--json", "--content")
    done = run(*replace, '{"account": "a"}')
    assert (done.exit_code, done.stderr) == (0, "")
    done = run(*replace, '{"amuont": 1}')
    assert done.exit_code == 0
    assert json.loads(done.stdout)["action"] == "replace"
    assert "no held message has the fields 'amuont'; pass --pipeline to check the content." in done.stderr


def test_parked_redeliver_reports_if_nothing_was_refused() -> None:
    done = run("parked", "redeliver", "shop.db#ledger", "--all")
    assert (done.exit_code, done.stdout) == (0, "Nothing to deliver again: no output was refused permanently.\n")


def test_metavars_are_in_upper_case() -> None:
    text = run("parked", "drop", "--help").stdout
    assert "{STORE} [GROUPS]" in text
