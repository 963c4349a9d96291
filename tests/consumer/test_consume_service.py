"""``inturn consume`` as a service: several processes, a file of settings, the user's own transaction, the log."""

import json
import logging
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import inturn
from inturn.cli.consume import ConsumedQueue, read
from inturn.cli.main import app
from inturn.core.errors import InputError
from inturn.demo.free_ports import free_port
from inturn.queue import QueueSettings, draft
from waiting import is_running, until

APP = """
import os, pathlib, time

HERE = pathlib.Path(__file__).parent

def handle(message):
    with (HERE / "handled").open("a") as file:
        file.write(f"{os.getpid()} {message.group} {message.body}\\n")
    if message.body == "wait" and message.attempts == 1:
        time.sleep(60)
    if message.body == "bad":
        raise ValueError("bad")

def other(message):
    (HERE / "other").write_text(str(message.body))

def wants_three(message, tx, more):
    pass

nothing = None
"""
OPEN_TX = """
import contextlib, functools, sqlite3, psycopg

AT = {address!r}

@contextlib.contextmanager
def of_sqlite():
    connection = sqlite3.connect(AT, timeout=30)
    with contextlib.closing(connection), connection:
        connection.execute("begin immediate")
        yield connection

open_tx = functools.partial(psycopg.connect, AT) if "://" in AT else of_sqlite

def post(message, tx):
    tx.execute("insert into effect values (" + ("%s" if "://" in AT else "?") + ")", (message.body,))
    if message.body == "bad":
        raise ValueError("after the insert")
"""
ONE = ("app.py:handle", "--queue", "shop.db#payments")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; afterwards the log goes where it went before."""
    (tmp_path / "app.py").write_text(APP)
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        for name in ("payments", "others"):
            db.queue(name, QueueSettings(visibility_timeout_s=1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield tmp_path
    root.handlers[:] = handlers
    root.setLevel(level)


def send(folder: Path, *bodies: str, groups: int = 1, queue: str = "payments") -> None:
    with inturn.open(folder / "shop.db", durable=False) as db:
        db.queue(queue).send_many([draft(body, group=f"g{group}") for body in bodies for group in range(groups)])


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "inturn", "consume", *map(str, words)]


def ran(folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def here(*words: object) -> Result:
    """The same in this process."""
    return CliRunner().invoke(app, ["consume", *map(str, words)])


def handled(folder: Path) -> list[list[str]]:
    file = folder / "handled"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


# --- processes ---


@pytest.mark.thorough
def test_consume_with_several_processes_keeps_order_and_sums_counts(folder: Path) -> None:
    send(folder, *map(str, range(5)), groups=20)
    done = ran(folder, *ONE, "--processes", 2, "--until-empty", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = json.loads(done.stdout)
    assert row == {"handler": "app.py:handle", "database": "shop.db", "queue": "payments", "done": 100} | dict.fromkeys(
        ("failed", "parked", "deferred", "dead_lettered", "lost"), 0
    )
    by_group: dict[str, list[str]] = {}
    for _, group, body in handled(folder):
        by_group.setdefault(group, []).append(body)
    assert list(by_group.values()) == [["0", "1", "2", "3", "4"]] * 20


@pytest.mark.thorough
def test_consume_with_several_processes_reports_parked_groups(folder: Path) -> None:
    send(folder, "bad", groups=3)
    done = ran(folder, *ONE, "--retries", 0, "--processes", 2, "--until-empty")
    assert done.returncode == 1
    assert done.stdout.startswith("app.py:handle over payments: 0 done, 3 failed, 3 parked")
    assert done.stderr.splitlines()[-1].startswith("shop.db#payments is not empty")
    assert "3 parked groups" in done.stderr


@pytest.mark.slow
def test_a_killed_consumer_process_is_restarted(folder: Path) -> None:
    send(folder, "wait")
    send(folder, "0", queue="payments")
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command(*ONE, "--processes", 2), cwd=folder, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        (pid, *_), *_ = until(lambda: handled(folder), process=process)
        assert int(pid) != process.pid
        os.kill(int(pid), signal.SIGKILL)
        until(lambda: [body for _, _, body in handled(folder)] == ["wait", "wait", "0"], process=process)
        until(log.read_text, process=process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert log.read_text().splitlines()[0].endswith(" a worker process was killed by signal 9; it is started again")


@pytest.mark.slow
def test_consumer_processes_stop_without_their_parent(folder: Path) -> None:
    send(folder, "0", groups=40)
    with subprocess.Popen(command(*ONE, "--processes", 2), cwd=folder, stderr=subprocess.DEVNULL) as process:
        pids = {int(pid) for pid, *_ in until(lambda: handled(folder), process=process)}
        process.kill()
    until(lambda: not any(map(is_running, pids)), "the end of its processes")


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2])
def test_consume_command_serves_health_and_stops_on_sigterm(folder: Path, processes: int) -> None:
    port = free_port()
    words = command(*ONE, "--processes", processes, "--health", f"127.0.0.1:{port}")
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:

        def answer(path: str) -> Any:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
                    return json.load(response)
            except (urllib.error.HTTPError, OSError):
                return None

        until(lambda: answer("/ready"), process=process)
        send(folder, "0")
        # processes tell their parent every second
        until(lambda: sum(worker["done"] for worker in answer("/health")["workers"]) == 1, process=process)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("app.py:handle over payments: 1 done, 0 failed")


# --- settings from a file ---


def test_consume_config_names_several_handlers_relative_to_its_file(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(folder, "bad", "0")
    send(folder, "1", queue="others")
    (folder / "consume.toml").write_text(
        """
        grace_s = 5
        log_level = "error"
        [[consumers]]
        handler = "app.py:handle"
        queue = "shop.db#payments"
        retries = 1
        backoff = "1 millisecond"
        group_rate_limit = "100/second"
        [[consumers]]
        handler = "app.py:other"
        queue = "shop.db#others"
        concurrency = 2
        rate_limit = "100/second"
        burst = 3
        """
    )
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = here("--config", folder / "consume.toml", "--until-empty", "--json")
    assert done.exit_code == 1
    first, second = json.loads(done.stdout)
    assert (first["failed"], first["parked"], second["done"]) == (2, 1, 1)
    assert second["handler"] == f"{folder}/app.py:other"
    assert done.stderr.startswith(f"{folder}/shop.db#payments is not empty"), "and no warning in the log"
    assert (folder / "other").read_text() == "1"


def test_consume_config_is_parsed_and_unknown_settings_are_refused(folder: Path) -> None:
    file = folder / "consume.toml"
    consumer = '[[consumers]]\nhandler = "a:b"\nqueue = "postgresql://h/d#q"\n'
    file.write_text(f'processes = 3\n{consumer}transaction = "app.py:open_tx"\ndead_letter = true\n')
    config = read(file)
    transaction = f"{folder}/app.py:open_tx"
    assert (config.processes, config.consumers) == (
        3,
        (ConsumedQueue("a:b", "postgresql://h/d#q", transaction, dead_letter=True),),
    )
    file.write_text(f"{consumer}concurency = 3\n")
    with pytest.raises(InputError, match="concurency"):
        read(file)


def test_command_options_override_the_consume_config(folder: Path) -> None:
    (folder / "consume.toml").write_text('log_level = "error"\nhealth = "nowhere"\n')
    send(folder, "bad")
    config = ("--config", "consume.toml", "--until-empty")
    assert "health is 'nowhere'" in here(*ONE, *config).stderr
    done = here(*ONE, *config, "--health", f"127.0.0.1:{free_port()}", "--log-level", "warning", "--retries", 0)
    assert " warning inturn.consumer: group 'g0' of 'payments' is parked: " in done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "pass a handler and a queue"),
        (["app.py:handle"], "--queue DATABASE#QUEUE"),
        (["--retries", "3"], "--retries without a handler"),
        ([*ONE, "--processes", "0"], "processes is 0"),
        ([*ONE, "--processes", "2", "--retries", "-1"], "-1"),
        ([*ONE, "--log-level", "loud"], "debug, info, warning, error"),
        ([*ONE, "--transaction", "app.py:none"], "no function 'none'"),
        ([*ONE, "--transaction", "app.py:nothing"], "no function 'nothing'"),
        ([*ONE, "--transaction", "app.py:other"], "expected handler(message, tx)"),
        (["app.py:wants_three", *ONE[1:], "--processes", "2"], "expected handler(message) or handler(message, tx)"),
        (["--config", "none.toml"], "none.toml: No such file"),
        (["--config", "app.py"], ": not valid TOML"),
        ([*ONE, "--config", "twice.toml"], "queue 'payments' of shop.db has two consumers"),
    ],
)
def test_consume_command_refuses_invalid_arguments_with_a_message(folder: Path, words: list[str], error: str) -> None:
    (folder / "twice.toml").write_text('[[consumers]]\nhandler = "app.py:other"\nqueue = "shop.db#payments"\n')
    done = here(*words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert error in done.stderr


def test_consume_command_with_an_invalid_setting_creates_nothing(folder: Path) -> None:
    for words in (["--transaction", "app.py:none"], ["--rate-limit", "fast"], ["--backoff", "soon"]):
        assert here("app.py:handle", "--queue", "new.db#payments", *words).exit_code == 1
    assert not (folder / "new.db").exists()


# --- the user's own transaction ---


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, folder: Path) -> str:
    """A database with a queue and a table of the user's, and app.py beside which opens transactions in it."""
    address = request.getfixturevalue("postgres_url") if request.param == "postgres" else str(folder / "shop.db")
    (folder / "app.py").write_text(OPEN_TX.format(address=address))
    with inturn.open(address, durable=False) as db, db.transaction() as tx:
        tx.execute("create table effect (body text)")
        db.create("orders", tx=tx)
    return address


def effects(address: str) -> list[str]:
    with inturn.open(address, create=False) as db, db.transaction() as tx:
        return sorted(body for (body,) in tx.execute("select body from effect").fetchall())


@pytest.mark.parametrize("is_file", [False, True], ids=["option", "file"])
def test_a_handler_writes_in_the_users_own_transaction(folder: Path, address: str, is_file: bool) -> None:
    with inturn.open(address, durable=False) as db:
        db.queue("orders").send_many([draft(body, group=body) for body in ("a", "b", "bad")])
    settings = {"handler": "app.py:post", "queue": f"{address}#orders", "transaction": "app.py:open_tx"}
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
    (folder / "consume.toml").write_text("".join(["[[consumers]]\n", *lines, "retries = 0\n"]))
    words: list[str] = ["--config", "consume.toml"]
    if not is_file:
        words = ["app.py:post", "--queue", settings["queue"], "--transaction", "app.py:open_tx", "--retries", "0"]
    done = here(*words, "--until-empty", "--json")
    (row,) = json.loads(done.stdout)
    assert (row["done"], row["failed"], row["parked"]) == (2, 1, 1), done.stderr
    assert effects(address) == ["a", "b"], "what was written before the failure is rolled back"


@pytest.mark.thorough
def test_each_consumer_process_opens_its_own_transactions(folder: Path, address: str) -> None:
    with inturn.open(address, durable=False) as db:
        db.queue("orders").send_many([draft(f"{n:02}", group=f"g{n % 7}") for n in range(40)])
    words = ("app.py:post", "--queue", f"{address}#orders", "--transaction", "app.py:open_tx")
    done = ran(folder, *words, "--processes", 2, "--until-empty")
    assert done.returncode == 0, done.stderr
    assert effects(address) == [f"{n:02}" for n in range(40)]


# --- the log ---


def test_log_json_writes_json_lines_from_log_level_on(folder: Path) -> None:
    send(folder, "bad")
    done = here(*ONE, "--retries", 0, "--until-empty", "--log-json")
    first, last = done.stderr.splitlines()
    assert json.loads(first)["level"] == "warning"
    assert "ValueError" in json.loads(first)["message"]
    assert last.startswith("shop.db#payments is not empty")
    send(folder, "bad", queue="others")
    done = here("app.py:handle", "--queue", "shop.db#others", "--retries", 0, "--until-empty", "--log-level", "error")
    assert done.stderr.splitlines() == [last.replace("payments", "others")]


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2])
def test_telemetry_option_configures_opentelemetry_from_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    send(folder, "0")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    done = ran(folder, *ONE, "--until-empty", "--telemetry", "--log-json", "--processes", processes)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"name": "process payments"' in done.stdout
