"""What all commands have in common: help, JSON, exit codes, and one paragraph for whatever goes wrong."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.cli.errors import LOG, reason, reported_errors
from inturn.core.errors import InputError

ROOT = Path(__file__).parents[2]
NO_JSON = {
    "serve": "it runs until it is stopped; its log has --log-json",
    "console": "it runs until it is stopped; /api/ answers with JSON",
}


def walk(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The commands of the app by their full names."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part, subcommand in command.commands.items():
        yield from walk(subcommand, f"{name} {part}".strip())


COMMANDS = dict(walk(typer.main.get_command(app)))
each_command = pytest.mark.parametrize("name", COMMANDS)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv(LOG, raising=False)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# -- help and JSON -------------------------------------------------------------------------------------------


@each_command
def test_every_command_has_help_with_a_text_for_each_option(name: str) -> None:
    short, long = run(*name.split(), "-h"), run(*name.split(), "--help")
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert f"Usage: root {name}" in short.stdout
    assert (COMMANDS[name].help or "").strip()
    for parameter in COMMANDS[name].params:
        assert parameter.help, f"{parameter.name} has no help"


@each_command
def test_help_text_is_not_interpreted_as_markup(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich takes ``[console]`` for markup and ``:ledger:`` for an emoji."""
    monkeypatch.setenv("COLUMNS", "400")
    shown = " ".join(run(*name.split(), "--help").stdout.replace("│", " ").split())
    for parameter in COMMANDS[name].params:
        assert " ".join(parameter.help.split()) in shown
    assert " ".join((COMMANDS[name].help or "").split()) in shown


@each_command
def test_every_command_has_json_output_or_is_exempt(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert ("--json" in options) != (name in NO_JSON)


def test_command_groups_have_help() -> None:
    for words in ([], ["ingest"], ["queue"], ["parked"], ["keys"]):
        assert run(*words, "-h").stdout == run(*words, "--help").stdout != ""


def test_docs_cli_lists_every_command() -> None:
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `inturn ([a-z -]+)` \|", page, re.MULTILINE)) == sorted(COMMANDS)


def test_show_completion_prints_a_script() -> None:
    done = process("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "complete" in done.stdout


def test_json_output_contains_only_json() -> None:
    target = "shop.db#payments"
    for words in (
        ("queue", "create", target),
        ("send", target, "a", "--group", "g"),
        ("receive", target, "--keep"),
        ("queue", "show", target),
        ("queue", "resume", target, "g"),
        ("groups", target),
        ("queue", "park", "shop.db#payments", "h", "why"),
        ("queue", "resume", target, "h"),
        ("version",),
        ("queue", "purge", target, "--yes"),
        ("queue", "delete", target, "--yes"),
    ):
        done = run(*words, "--json")
        assert done.exit_code == 0, (words, done.stderr)
        json.loads(done.stdout)


def test_ack_and_nack_report_as_json() -> None:
    with inturn.open("shop.db") as db:
        db.queue("q").send_many([inturn.queue.draft(text) for text in "ab"])
    first, second = (json.loads(run("receive", "shop.db#q", "--keep", "--json").stdout)["receipt"] for _ in "ab")
    assert json.loads(run("ack", "shop.db#q", first, "--json").stdout) == {"acknowledged": 1}
    assert json.loads(run("nack", "shop.db#q", second, "--json").stdout) == {"given_back": 1}


def test_a_confirmation_prompt_goes_to_stderr_with_json() -> None:
    run("queue", "create", "shop.db#q")
    asking = start("queue", "purge", "shop.db#q", "--json")
    out, err = asking.communicate("y\n", timeout=60)
    assert (json.loads(out), asking.returncode) == ({"removed": 0}, 0)
    assert "Remove 0 messages" in err


# -- what an argument names ----------------------------------------------------------------------------------

LEDGER = """
from inturn import Gapless, Pipeline
ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=lambda s, m: (s, []))
"""


@pytest.fixture
def places(tmp_path: Path) -> None:
    """A database with a queue and a pipeline, one with nothing in it, a directory, and a file of text."""
    from inturn.definitions import load

    (tmp_path / "ledger.py").write_text(LEDGER)
    with inturn.open("w.db") as db:
        queue = db.queue("payments")
        queue.send({"account": "a", "revision": 2}, group="a")
        inturn.work(load("ledger.py:ledger"), queue, until="empty")
    inturn.open("empty.db").close()
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("no database")


WRITE_LEDGER = "InputError: w.db is a database; name a pipeline of it, such as w.db#ledger; existing pipelines: ledger"
WRONG: dict[str, tuple[list[str], str]] = {
    "a database": (["w.db"], WRITE_LEDGER),
    "a database and nothing behind the #": (["w.db#"], WRITE_LEDGER),
    "a database without pipelines": (["empty.db"], "such as empty.db#PIPELINE; existing pipelines: none"),
    "a pipeline that is not there": (["w.db#legder"], "no pipeline 'legder'; existing pipelines: ledger"),
    "a database that is not there": (
        ["none.db#ledger"],
        "no database 'none.db'; databases in its directory: empty.db, w.db",
    ),
    "nothing": (["none"], "no store 'none'; expected the directory of a store, or DATABASE#PIPELINE, such as shop"),
    "a file of text": (["notes.txt"], "notes.txt is a file; expected a store, which is a directory, or a database"),
    "a file of text as a database": (["notes.txt#ledger"], "notes.txt: the file is not an SQLite database"),
    "a directory that is no store": (["folder"], "folder is not a store"),
    "a directory as a database": (["folder#ledger"], "'folder' is a directory, not a database"),
}
ON_STORES = {
    "parked list": [],
    "parked show": ["a"],
    "parked drop": ["a"],
    "parked replace": ["a", "--content", "{}"],
    "parked skip": ["a"],
    "parked resume": ["a"],
    "parked give-up": ["a"],
    "explain": ["a"],
}


@pytest.mark.parametrize("command", ON_STORES)
@pytest.mark.parametrize(("given", "says"), WRONG.values(), ids=WRONG)
def test_a_store_argument_of_another_kind_is_named_in_the_error(
    places: None, command: str, given: list[str], says: str
) -> None:
    done = run(*command.split(), *given, *ON_STORES[command], "--json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_distinguish_spark_stores_databases_and_files(places: None) -> None:
    for words, says in {
        ("vacuum", "w.db"): "w.db is a database",
        ("vacuum", "none"): "no store 'none'",
        ("publish", "w.db"): "w.db is a database",
        ("publish", "none"): "no store 'none'",
        ("run", "ledger.py:ledger", "--from", "in.jsonl", "--store", "w.db"): "w.db is a database",
        ("run", "ledger.py:ledger", "--from", "in.jsonl", "--store", "notes.txt"): "notes.txt is a file",
        ("run", "ledger.py:ledger", "--from", "w.db", "--store", "s"): "expected DATABASE#QUEUE, such as w.db#payments",
        ("check", "ledger.py:ledger", "--from", "w.db"): "expected DATABASE#QUEUE, such as w.db#payments",
        (
            "peek",
            "w.db",
        ): "'w.db' names no queue; expected DATABASE#QUEUE, such as w.db#payments; existing queues: paym",
        ("peek", "w.db#payment"): "no queue 'payment'",
        ("peek", "folder#q"): "'folder' is a directory, not a database",
        ("queue", "list", "folder"): "'folder' is a directory, not a database",
        ("queue", "list", "notes.txt"): "the file is not an SQLite database",
    }.items():
        done = run(*words)
        assert (done.exit_code, done.stdout) == (1, "")
        assert says in done.stderr, words
        assert "Traceback" not in done.stderr
    assert not Path("s").exists()


def test_explain_reports_a_group_as_json(places: None) -> None:
    explained = json.loads(run("explain", "w.db#ledger", "a", "--json").stdout)
    assert (explained["group"], explained["status"], explained["held"]) == ("a", "waiting", 1)
    assert explained["explanation"].startswith("Group a waits for revision 1")


def test_parked_skip_reports_the_decision_as_json(places: None) -> None:
    done = run("parked", "skip", "w.db#ledger", "a", "--pipeline", "ledger.py:ledger", "--json")
    assert done.exit_code == 0, done.stderr
    decided = json.loads(done.stdout)
    assert decided | {"decision": ""} == {"action": "skip", "group": "a", "decision": "", "taken": True, "void": None}
    done = run("parked", "skip", "w.db#ledger", "a", "--pipeline", "ledger.py:ledger", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout or '{"void": "refused"}')["void"]


# -- errors --------------------------------------------------------------------------------------------------

FOREIGN = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Scheduler.abort(Scheduler.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    run()
ImportError: no such thing

\tat org.apache.spark.Python.read(Python.scala:1)"""


def test_a_long_spark_error_is_shortened_to_its_reason() -> None:
    assert reason(FOREIGN) == "ImportError: no such thing"
    assert reason(FOREIGN.partition("Caused")[0]).endswith("o1.collect. : org.apache.spark.SparkException: Job aborted")
    assert len(reason("x" * 5_000)) < 1_000


def test_an_inturn_error_inside_another_is_reported_as_itself(capsys: pytest.CaptureFixture[str]) -> None:
    wrapped = (
        "Error in the worker\nTraceback (most recent call last):\ninturn.core.errors.GapError: revision 2 is missing\n"
    )
    with pytest.raises(typer.Exit), reported_errors():
        raise RuntimeError(wrapped)
    assert capsys.readouterr().err == "GapError: revision 2 is missing\n"


def test_the_traceback_is_shown_if_the_log_level_is_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(typer.Exit), reported_errors():
        raise RuntimeError(FOREIGN)
    printed = capsys.readouterr().err
    hint = f"Set {LOG}=info to see the traceback and Spark's log."
    assert printed == f"RuntimeError: ImportError: no such thing. {hint}\n"
    monkeypatch.setenv(LOG, "info")
    for error in (RuntimeError(FOREIGN), InputError("of ours")):
        with pytest.raises(typer.Exit), reported_errors():
            raise error
        printed = capsys.readouterr().err
        assert "Traceback (most recent call last)" in printed
        assert str(error) in printed


@pytest.mark.parametrize(
    ("module", "extra"),
    [("psycopg", "postgres"), ("pyarrow.lib", "spark"), ("httptools", "server"), ("grpc", "connect")],
)
def test_a_missing_package_is_reported_with_its_extra(
    module: str, extra: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), reported_errors():
        raise ModuleNotFoundError(name=module)
    assert (
        capsys.readouterr().err == f"SetupError: this needs {module}; install it with: pip install 'inturn[{extra}]'\n"
    )


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1 / 0\n", "ledger.py cannot be loaded: ZeroDivisionError: division by zero"),
        ("x = (\n", "ledger.py cannot be loaded: SyntaxError: '(' was never closed"),
        ("import no_such_module\n", "no_such_module"),
    ],
)
def test_an_error_in_the_users_module_is_reported_with_its_line(code: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "ledger.py").write_text(code)
    (tmp_path / "in.jsonl").write_text("{}\n")
    done = run("check", "ledger.py:ledger", "--from", "in.jsonl", "--engines", "worker")
    assert (done.exit_code, done.stdout) == (1, "")
    assert says in done.stderr
    assert "ledger.py, line 1" in done.stderr or "no_such" in code


# -- processes -----------------------------------------------------------------------------------------------


def start(*arguments: str, code: str = "", **variables: str) -> "subprocess.Popen[str]":
    command = [sys.executable, *(["-c", code] if code else ["-m", "inturn"]), *arguments]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # What runs the tests in the background may have it ignored, and a process inherits that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, **pipes, text=True, env=os.environ | variables, preexec_fn=heed)  # noqa: PLW1509 - these tests have no threads


def process(*arguments: str, code: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
    started = start(*arguments, code=code, **variables)
    out, err = started.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, started.returncode, out, err)


@pytest.mark.parametrize("absent", ["typer", "rich"])
def test_the_command_line_without_its_extra_names_the_extra(absent: str) -> None:
    done = process(code=f"import sys; sys.modules[{absent!r}] = None; from inturn.__main__ import main; main()")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"The command line of inturn needs {absent}; install it with: pip install 'inturn[cli]'"
    ]


def test_the_package_can_be_run_as_a_module() -> None:
    done = process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"inturn {inturn.__version__}\n", "")


@pytest.mark.parametrize("is_stopped", [False, True])
def test_ctrl_c_ends_a_command_without_a_traceback(is_stopped: bool) -> None:
    run("queue", "create", "shop.db#q")
    waiting = start("receive", "shop.db#q", "--wait-s", "600")
    child, until = psutil.Process(waiting.pid), time.monotonic() + 60
    while not any(file.path.endswith("shop.db") for file in child.open_files()):  # Python itself ends otherwise
        assert time.monotonic() < until, "it does not open the queue"
        time.sleep(0.05)
    time.sleep(0.5)  # until it waits; earlier it would end with 130 as well
    if is_stopped:  # as by Ctrl-Z: when it goes on, any thread may get the signal
        waiting.send_signal(signal.SIGSTOP)
    waiting.send_signal(signal.SIGINT)
    waiting.send_signal(signal.SIGCONT)
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_a_closed_pipe_ends_a_command_without_output_on_stderr() -> None:
    with inturn.open("shop.db", durable=False) as db:
        queue = db.queue("q")
        for _ in range(3):
            queue.send_many([inturn.queue.draft("x" * 1_000) for _ in range(300)])
    piped = f"{sys.executable} -m inturn peek shop.db#q --limit 900 | head -1 | wc -l"
    done = subprocess.run(["/bin/sh", "-c", piped], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("1", "")
