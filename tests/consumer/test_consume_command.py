"""``inturn consume``: a handler from a file, stopped in order by a signal."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import inturn
from composed import page
from inturn import Rate
from inturn.cli.consume import _rate
from inturn.cli.main import app
from inturn.core.errors import InputError
from inturn.demo.free_ports import free_port
from waiting import PROGRAM_S, until

APP = """
import os, signal, threading, time

def handle(message):
    if message.body == "slow":
        print("begun", flush=True)
        time.sleep(0.3)
    if message.body == "stop":
        (signals,) = [each for each in threading.enumerate() if each.name == "inturn-signals"]
        os.kill(os.getpid(), signal.SIGTERM)
        signals.join(30)  # it ends once the stop was passed on
    if message.body == "bad":
        raise ValueError("bad")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A queue and a handler; afterwards the log goes where it went before."""
    (tmp_path / "app.py").write_text(APP)
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        db.queue("payments")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield tmp_path
    root.handlers[:] = handlers
    root.setLevel(level)


def send(folder: Path, *bodies: str) -> None:
    with inturn.open(folder / "shop.db", durable=False) as db:
        for body in bodies:
            db.queue("payments").send(body, group=body)


def start(folder: Path, *options: str) -> "subprocess.Popen[str]":
    words = ["consume", "app.py:handle", "--queue", "shop.db#payments", *options]
    return subprocess.Popen(
        [sys.executable, "-m", "inturn", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left(folder: Path) -> tuple[Any, ...]:
    with inturn.open(folder / "shop.db", durable=False) as db:
        return db.queue("payments").depth()[:2]


@pytest.mark.thorough
def test_consume_command_creates_a_missing_database_and_queue(folder: Path) -> None:
    (folder / "shop.db").unlink()
    process = start(folder, "--until-empty")
    _, output = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "shop.db had no queues; created payments.\n")
    assert left(folder) == (0, 0)


@pytest.mark.thorough
def test_consume_command_until_empty_prints_its_counts(folder: Path) -> None:
    send(folder, "a", "b", "bad")
    options = ["--until-empty", "--retries", "1", "--backoff", "1 millisecond", "--group-rate-limit", "100/second"]
    process = start(folder, *options, "--json")
    out, errors = process.communicate(timeout=60)
    counts = {"done": 2, "failed": 2, "parked": 1, "deferred": 0, "dead_lettered": 0, "lost": 0}
    assert json.loads(out) == [{"handler": "app.py:handle", "database": "shop.db", "queue": "payments"} | counts]
    assert left(folder) == (1, 0)
    assert process.returncode == 1
    assert "shop.db#payments is not empty" in errors
    assert "1 parked group (reasons: 'inturn queue show shop.db#payments'" in errors
    assert "'inturn queue resume shop.db#payments --all'" in errors


UNTIL_EMPTY = ("app.py:handle", "--queue", "shop.db#payments", "--retries", 0, "--until-empty")


def ran(*words: object) -> Result:
    return CliRunner().invoke(app, ["consume", *map(str, words)])


@pytest.mark.parametrize(
    ("group", "says"), [("a", "1 parked group ("), (None, "1 deferred message (show: 'inturn peek shop.db#payments'")]
)
def test_consume_command_exits_1_if_parked_or_deferred_messages_are_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch, group: str | None, says: str
) -> None:
    monkeypatch.chdir(folder)
    with inturn.open("shop.db", durable=False) as db:
        db.queue("payments").send("bad", group=group)
    for _ in range(2):
        done = ran(*UNTIL_EMPTY)
        assert (done.exit_code, says in done.stderr) == (1, True), done.stderr


def test_consume_command_exits_1_if_a_parked_group_is_left_in_postgres(
    folder: Path, monkeypatch: pytest.MonkeyPatch, empty_postgres_url: str
) -> None:
    monkeypatch.chdir(folder)
    with inturn.open(empty_postgres_url) as db:
        db.queue("payments").send("bad", group="a")
    done = ran(*UNTIL_EMPTY[:2], f"{empty_postgres_url}#payments", *UNTIL_EMPTY[3:])
    assert (done.exit_code, "1 parked group (" in done.stderr) == (1, True), done.stderr


def test_consume_command_exits_0_for_a_parked_group_without_messages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with inturn.open("shop.db", durable=False) as db:
        db.queue("payments").park("a", "no address")
    done = ran(*UNTIL_EMPTY)
    assert (done.exit_code, done.stderr) == (0, "")


def test_consume_command_exits_0_when_stopped_before_the_queue_is_empty(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    send(folder, "bad", "stop")
    done = ran(*UNTIL_EMPTY, "--concurrency", 1, "--log-level", "error")
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.thorough
def test_consume_command_finishes_running_handlers_on_sigterm(folder: Path) -> None:
    send(folder, "slow")
    process = start(folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, left(folder)) == (0, (0, 0)), err
    assert out.startswith("app.py:handle over payments: 1 done, 0 failed")


@pytest.mark.thorough
def test_consume_command_serves_metrics_of_the_consumer_and_queue(folder: Path) -> None:
    send(folder, "a", "bad", "b")
    port = free_port()
    options = ["--health", f"127.0.0.1:{port}", "--retries", "0"]
    process = start(folder, *options)
    shown = [
        'inturn_consumer_up{database="shop.db",queue="payments"} 1.0',
        'inturn_consumer_busy{database="shop.db",queue="payments"} 0.0',
        'inturn_consumer_acknowledged_messages_total{database="shop.db",queue="payments"} 2.0',
        'inturn_consumer_failed_attempts_total{database="shop.db",queue="payments"} 1.0',
        'inturn_consumer_parked_groups_total{database="shop.db",queue="payments"} 1.0',
        'inturn_consumer_handler_duration_seconds_count{database="shop.db",queue="payments"} 3.0',
        'inturn_queue_messages{database="shop.db",queue="payments"} 1.0',
    ]

    def is_shown() -> bool:
        try:
            lines = page(f"http://127.0.0.1:{port}/metrics").splitlines()
        except OSError:  # it does not listen yet
            return False
        return set(shown) <= set(lines)

    try:
        until(is_shown, "the metrics are not shown", PROGRAM_S, process=process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_rate_limit_option_is_parsed_and_invalid_rates_are_refused() -> None:
    assert _rate("--rate-limit", "10/second", 3) == Rate(10, "1 second", burst=3)
    assert _rate("--rate-limit", "100 / 5 minutes") == Rate(100, "5 minutes")
    for text in ("fast", "10", "/second", "0/second", "1/year", "-1/second"):
        with pytest.raises(InputError):
            _rate("--rate-limit", text)
