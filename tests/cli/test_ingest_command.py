"""``inturn ingest`` as its users have it: a configuration, a run, a look, a mend."""

import ctypes
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from inturn.cli import app
from inturn.demo.free_ports import free_port
from waiting import DEADLINE_S, until

CONFIG = """
[[sources]]
name = "bank"
kind = "folder"
queue = "shop.db#payments"
path = "drop"

[sources.mapping]
group = "body.account"
revision = "body.n"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("ingest.toml").write_text(CONFIG)
    Path("drop").mkdir()
    Path("drop/1.jsonl").write_text('{"account": "a", "n": 1}\n{"n": 2}\n{"account": "a", "n": 2}\n')
    return tmp_path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_ingest_check_run_status_pause_seek_and_resume() -> None:
    checked = run("ingest", "check", "ingest.toml").stdout.splitlines()
    assert checked[0] == "bank 1.jsonl 1: group a, revision 1, id None"
    assert checked[1] == "bank 1.jsonl 2: rejected: the record has no group"
    assert not Path("shop.db").exists()
    done = run("ingest", "run", "ingest.toml", "--until-caught-up")
    assert done.stdout == "bank: 2 received, 1 rejected, 0 ignored\n"
    ((status,),) = said("ingest", "status", "shop.db")
    assert status.pop("moved_s") < 600
    assert status == {
        "source": "bank",
        "partition": "1.jsonl",
        "position": 3,
        "received": 2,
        "rejected": 1,
        "kept": 1,
        "dropped": 0,
        "error": None,
        "moved": 0,
        "lag": 0,
        "age_s": 0,
        "status": "read to its end",
        "note": None,
    }
    (rejected,) = said("ingest", "rejected", "shop.db#bank")
    assert (rejected["body"], rejected["position"], rejected["reason"]) == ('{"n": 2}', "2", "the record has no group")
    assert run("ingest", "pause", "shop.db#bank").stdout == "pause: 1 partition of bank changed.\n"
    assert "paused" in run("ingest", "status", "shop.db#bank").stdout
    assert run("ingest", "seek", "shop.db#bank", "start", "--partition", "1.jsonl").exit_code == 0
    assert said("ingest", "run", "ingest.toml", "--until-caught-up")[0][0]["received"] == 0
    assert run("ingest", "resume", "shop.db#bank").exit_code == 0
    assert said("ingest", "run", "ingest.toml", "--until-caught-up", "--only", "bank")[0][0]["received"] == 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            ("kind", '"fodler"'),
            'line 4, [[sources]] number 1: kind is \'fodler\'; expected "folder", "kafka", "outbox"',
        ),
        (("path", '"nowhere"'), "is not a folder; create it"),
        (("group", '"account"'), "group is 'account'; expected a path that begins with key, headers, body"),
        (("revision", "7"), "[sources.mapping]: revision is 7; expected a string in quotes"),
        (("queue", '"shop.db"'), "names no queue; expected DATABASE#QUEUE, such as shop.db#payments"),
        (("gruop", '"x"'), "[sources.mapping]: unknown setting 'gruop'; did you mean 'group'?"),
    ],
)
def test_an_invalid_ingest_configuration_is_reported(change: tuple[str, str], text: str) -> None:
    name, value = change
    lines = [f"{name} = {value}" if line.startswith(f"{name} =") else line for line in CONFIG.splitlines()]
    if name == "gruop":
        lines.append(f"{name} = {value}")
    Path("ingest.toml").write_text("\n".join(lines))
    done = run("ingest", "run", "ingest.toml", "--until-caught-up")
    assert done.exit_code == 1
    assert text in done.stderr


@pytest.mark.parametrize(
    "setting", ["batch = 0", "batch_bytes = 0", "max_rejected = 0", "lease_s = -1.0", "lease_s = nan"]
)
@pytest.mark.parametrize("command", [["check"], ["run", "--until-caught-up"]])
def test_a_setting_out_of_range_is_refused_before_a_database_is_created(command: list[str], setting: str) -> None:
    Path("ingest.toml").write_text(CONFIG.replace("path =", f"{setting}\npath ="))
    done = run("ingest", *command, "ingest.toml")
    assert done.exit_code == 1
    assert f", [[sources]] number 1: {setting.partition(' ')[0]} is " in done.stderr
    assert not Path("shop.db").exists()


def test_ingest_status_truncates_no_name_or_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    source, partition = "statements-of-the-bank-in-the-north", "payments-2026-03-01T12-00-00-0000000001.jsonl"
    Path("drop/1.jsonl").rename(f"drop/{partition}")
    Path("ingest.toml").write_text(CONFIG.replace('"bank"', f'"{source}"'))
    assert run("ingest", "run", "ingest.toml", "--until-caught-up").exit_code == 0
    monkeypatch.delenv("COLUMNS")
    shown = run("ingest", "status", "shop.db").stdout
    assert "…" not in shown
    row = next(line for line in shown.splitlines() if partition in line)
    assert source in row
    assert "read to its end; moved" in row
    assert all(heading in shown for heading in ("source", "partition", "position", "received", "rejected", "dropped"))


SERVER = """
[server]
port = 0

[[webhooks]]
name = "shop"
queue = "orders"
signature = "stripe"
secrets = ["whsec_1"]
mapping = { group = "body.order" }
"""


def test_ingest_check_of_a_server_config_checks_its_webhooks() -> None:
    Path("server.toml").write_text(SERVER)
    assert said("ingest", "check", "server.toml") == [[{"webhook": "shop", "queue": "orders", "signature": "stripe"}]]
    assert run("ingest", "check", "server.toml").stdout == "shop: webhook of queue orders, signature stripe\n"
    Path("server.toml").write_text(SERVER.replace("body.order", "order"))
    wrong = run("ingest", "check", "server.toml")
    assert wrong.exit_code == 1
    assert "group is 'order'; expected a path that begins with" in wrong.stderr
    Path("server.toml").write_text('[[queues]]\nname = "orders"\n')
    assert "server.toml contains no webhooks" in run("ingest", "check", "server.toml").stdout


def test_ingest_run_refuses_a_server_config_and_names_the_command() -> None:
    Path("server.toml").write_text(SERVER)
    refused = run("ingest", "run", "server.toml")
    assert refused.exit_code == 1
    assert "server.toml is a server configuration; run it with 'inturn serve --config'" in refused.stderr


def test_duplicate_and_missing_sources_are_reported() -> None:
    Path("ingest.toml").write_text(CONFIG * 2)
    assert "source 'bank' is defined twice" in run("ingest", "run", "ingest.toml").stderr
    Path("ingest.toml").write_text("sources = []")
    assert "existing sources: none" in run("ingest", "run", "ingest.toml").stderr


@pytest.mark.thorough
def test_a_signal_stops_ingest_run_cleanly() -> None:
    command = [sys.executable, "-m", "inturn.cli", "ingest", "run", "ingest.toml", "--json"]
    command += ["--health", f"127.0.0.1:{(port := free_port())}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(600):
            status = run("ingest", "status", "shop.db", "--json")
            if status.exit_code == 0 and '"position": 3' in status.stdout:
                break
            time.sleep(0.1)
        with urlopen(f"http://127.0.0.1:{port}/ready", timeout=DEADLINE_S) as answer:
            assert json.load(answer)["ready"] is True
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
            assert b'source="bank",verdict="received"} 2.0' in answer.read()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(output) == [{"source": "bank", "received": 2, "rejected": 1, "ignored": 0, "moved": 0}]


@pytest.mark.thorough
def test_a_permanently_failing_source_does_not_stop_the_others() -> None:
    never = CONFIG.replace("folder", "kafka").replace('path = "drop"', 'servers = "127.0.0.1:1"\ntopic = "t"')
    never = never.replace('"bank"', '"never"').replace(
        "\n\n[sources.mapping]", "\noptions = {nonsense = 1}\n\n[sources.mapping]"
    )
    Path("ingest.toml").write_text(f"{CONFIG}{never}")
    command = [sys.executable, "-m", "inturn.cli", "ingest", "run", "ingest.toml"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            until(lambda: "source never stopped: " in process.stderr.readline(), process=process)  # type: ignore[union-attr]
            Path("drop/2.jsonl").write_text('{"account": "b", "n": 7}\n')
            until(lambda: "2.jsonl" in run("ingest", "status", "shop.db").stdout, process=process)
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "invalid options for the Kafka client" in stderr


@pytest.mark.thorough
def test_ingest_run_retries_a_database_unavailable_at_the_start() -> None:
    place = f"postgresql://me@127.0.0.1:{free_port()}/shop#payments"
    Path("ingest.toml").write_text(CONFIG.replace("shop.db#payments", place))
    assert run("ingest", "run", "ingest.toml", "--until-caught-up").exit_code == 1
    command = [sys.executable, "-m", "inturn.cli", "ingest", "run", "ingest.toml"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for pause in ("retry in 0.2 s", "retry in 0.4 s"):
                until(lambda pause=pause: pause in process.stderr.readline(), process=process)  # type: ignore[misc, union-attr]
        finally:
            process.kill()


OUTBOX = """
[[sources]]
name = "app"
kind = "outbox"
queue = "shop.db#payments"
database = "app.db"
table = "outbox"
lease_s = 0.3

[sources.mapping]
group = "body.account"
"""


@pytest.mark.thorough
def test_the_ingest_config_has_health_and_log_settings() -> None:
    port = free_port()
    Path("ingest.toml").write_text(f'health = "127.0.0.1:{port}"\nlog_json = true\n{OUTBOX}')
    table = sqlite3.connect("app.db", isolation_level=None)
    table.execute("create table outbox (id integer primary key autoincrement, account text)")
    assert run("ingest", "check", "ingest.toml").exit_code == 0
    stderr = run("ingest", "run", "ingest.toml", "--log-level", "loud").stderr
    assert "--log-level is 'loud'; expected one of debug" in stderr

    def answer() -> tuple[int, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/ready", timeout=DEADLINE_S) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)
        except URLError:
            return 0, None

    command = [sys.executable, "-m", "inturn.cli", "ingest", "run", "ingest.toml", "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: answer()[0] == 200, process=process)
            table.execute("alter table outbox rename to away")
            until(lambda: "outbox" in (answer()[1]["sources"][0]["error"]), process=process)
            assert answer()[0] == 503
            table.execute("alter table away rename to outbox")
            until(lambda: answer()[0] == 200, process=process)
            process.send_signal(signal.SIGTERM)
            _, logged = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    table.close()
    assert process.returncode == 0
    (first, *_) = map(json.loads, logged.splitlines())
    assert (first["level"], first["logger"]) == ("warning", "inturn.ingest")
    assert "source app: " in first["message"]


@pytest.mark.thorough
def test_a_database_unavailable_at_the_start_does_not_delay_others(empty_postgres_url: str, tmp_path: Path) -> None:
    """The one that is down comes first in the file, and is there later: its socket is."""
    (socket,) = parse_qs(urlsplit(empty_postgres_url).query)["host"]
    later = empty_postgres_url.replace(socket, str(tmp_path / "pg"))
    late = CONFIG.replace("shop.db#payments", f"{later}#payments").replace('"bank"', '"late"')
    second = late.replace('"late"', '"again"')
    health = free_port()
    Path("ingest.toml").write_text(f'health = "127.0.0.1:{health}"\n{late}{second}{CONFIG}')

    def ready() -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{health}/ready", timeout=DEADLINE_S) as answer:
                return answer.status, {source["source"]: source for source in json.load(answer)["sources"]}
        except HTTPError as error:
            return error.code, {source["source"]: source for source in json.load(error)["sources"]}
        except URLError:
            return 0, {}

    def metrics() -> str:
        with urlopen(f"http://127.0.0.1:{health}/metrics", timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())

    command = [sys.executable, "-m", "inturn.cli", "ingest", "run", "ingest.toml", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: ready()[1].get("bank", {}).get("received") == 2, process=process)
            code, sources = ready()
            assert code == 503
            assert "No such file or directory" in sources["late"]["error"]
            assert sources["again"]["received"] == 0
            assert 'database="shop.db"' in metrics()
            (tmp_path / "pg").symlink_to(socket)
            until(lambda: ready()[0] == 200, process=process)
            until(lambda: [source["received"] for source in ready()[1].values()] == [2, 2, 2], process=process)
            until(lambda: "inturn_source_records_total{" in metrics() and 'source="late"' in metrics(), process=process)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert {source["source"]: source["received"] for source in json.loads(output)} == {"late": 2, "again": 2, "bank": 2}


@pytest.mark.thorough
@pytest.mark.parametrize("thread", [0, -1])
def test_ingest_run_can_be_stopped_while_all_databases_are_unavailable(thread: int) -> None:
    """The system may give the signal to any thread, such as after the process stood still."""
    place = f"postgresql://me@127.0.0.1:{free_port()}/shop#payments"
    Path("ingest.toml").write_text(CONFIG.replace("shop.db#payments", place))
    command = [sys.executable, "-m", "inturn.cli", "ingest", "run", "ingest.toml"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            until(lambda: "retry in 0.4 s" in process.stderr.readline(), process=process)  # type: ignore[union-attr]
            tasks = Path(f"/proc/{process.pid}/task")
            threads = sorted(int(task.name) for task in tasks.iterdir())  # the main one is the first
            assert ctypes.CDLL(None).tgkill(process.pid, threads[thread], signal.SIGTERM) == 0
            process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0
