"""``inturn work``: one pipeline or several, in one process or several, stopped in order, watched from outside."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import inturn
from inturn.cli.work import WorkedPipeline, read
from inturn.core.errors import InputError
from inturn.demo.free_ports import free_port
from inturn.queue import QueueSettings
from inturn.worker.processes import ProcessGroup, StatusPipe, WorkFailed
from inturn.worker.service import Job, Service
from waiting import is_running, until

PIPELINES = """
import os, pathlib, time
import inturn

HERE = pathlib.Path(__file__).parent

def apply(state, message):
    if message.get("sleep"):
        (HERE / "begun").write_text(str(os.getpid()))
        time.sleep(message["sleep"])
    if message.get("wrong"):
        return None
    if message.get("leave") and not (HERE / "left").exists():
        (HERE / "left").touch()
        os._exit(0)
    balance = state.get("balance", 0) + message["amount"]
    return {"balance": balance}, [{"balance": balance}]

ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)
copy = inturn.Pipeline(name="copy", group="account", order=inturn.Gapless("revision"), handler=apply)

def post(output, effect_id):
    with (HERE / "posted").open("a") as file:
        file.write(f"{os.getpid()} {effect_id} {output['balance']}\\n")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PIPELINES)
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        db.queue("payments", QueueSettings(visibility_timeout_s=5))
        db.queue("others")
    return tmp_path


def send(folder: Path, groups: int = 3, messages: int = 2, queue: str = "payments", **content: Any) -> None:
    with inturn.open(folder / "shop.db", durable=False) as db:
        for revision in range(1, messages + 1):
            for group in range(groups):
                db.queue(queue).send({"amount": 1, **content}, group=f"{group}", revision=revision)


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "inturn", "work", *map(str, words)]


def ran(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def posted(folder: Path) -> list[list[str]]:
    file = folder / "posted"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


ONE = ("app.py:ledger", "--queue", "shop.db#payments", "--deliver", "app.py:post")


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2])
def test_work_creates_a_missing_database_with_its_queues(folder: Path, processes: int) -> None:
    options = ("--queue", "new.db#payments", "--deliver", "#credits", "--processes", processes, "--until-empty")
    done = ran(folder, "app.py:ledger", *options, "--health", f"127.0.0.1:{free_port()}")
    assert done.returncode == 0
    assert done.stdout == "ledger over payments: 0 received, 0 applied, 0 duplicate, 0 rejected\n"
    assert done.stderr == "new.db had no queues; created payments, credits.\n"
    with inturn.open(folder / "new.db") as db:
        assert sorted(db.queues()) == ["credits", "payments"]
    done = ran(folder, "app.py:ledger", "--queue", "other.db#payments", "--until-empty", "--log-json")
    assert all(json.loads(line) for line in done.stderr.splitlines()), "lines of JSON alone"
    done = ran(folder, "app.py:ledger", "--queue", "new.db#paymnts", "--until-empty")
    assert (done.returncode, done.stderr) == (
        1,
        "NoSuchQueue: no queue 'paymnts'; existing queues: credits, payments\n",
    )


@pytest.mark.thorough
def test_work_reports_wrong_arguments_before_it_creates_a_database(folder: Path) -> None:
    new = ("--queue", "new.db#payments", "--until-empty")
    for words in (("app.py:none", *new), ("app.py:ledger", *new, "--deliver", "app.py:none"), ("none.py:x", *new)):
        assert ran(folder, *words).returncode == 1
    assert not (folder / "new.db").exists()
    assert ran(folder, "app.py:ledger", *new, "--deliver", "#" + "x" * 300).returncode == 1
    done = ran(folder, "app.py:ledger", *new, "--deliver", "#credits")
    assert (done.returncode, "created payments, credits." in done.stderr) == (0, True), "no half was made"


@pytest.mark.thorough
def test_commands_started_concurrently_create_one_database(folder: Path) -> None:
    words = command("app.py:ledger", "--queue", "new.db#payments", "--until-empty")
    started = [subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0, 0], outputs


@pytest.mark.thorough
def test_two_spellings_of_one_database_path_are_accepted(folder: Path) -> None:
    table = '[[pipelines]]\npipeline = "app.py:{}"\nqueue = "{}"\n'
    both = table.format("ledger", f"{folder}/new.db#a") + table.format("copy", f"../{folder.name}/new.db#b")
    (folder / "work.toml").write_text(both)
    done = ran(folder, "--config", "work.toml", "--until-empty")
    assert (done.returncode, "created a, b." in done.stderr) == (0, True), done.stderr


@pytest.mark.thorough
def test_work_creates_missing_postgres_tables_with_the_queue(folder: Path, empty_postgres_url: str) -> None:
    done = ran(folder, "app.py:ledger", "--queue", f"{empty_postgres_url}#payments", "--until-empty")
    assert (done.returncode, "created payments." in done.stderr) == (0, True), done.stderr
    with inturn.open(empty_postgres_url) as db:
        assert db.queues() == ["payments"]


@pytest.mark.thorough
def test_until_empty_ends_with_the_empty_queue_and_prints_the_counts(folder: Path) -> None:
    send(folder)
    done = ran(folder, *ONE, "--until-empty")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ledger over payments: 6 received, 6 applied, 0 duplicate, 0 rejected\n"
    assert sorted(balance for _, _, balance in posted(folder)) == ["1", "1", "1", "2", "2", "2"]
    send(folder)
    done = ran(folder, *ONE, "--until-empty", "--json")
    assert json.loads(done.stdout) == [
        {
            "pipeline": "ledger",
            "database": "shop.db",
            "queue": "payments",
            "received": 6,
            "released": 0,
            "applied": 0,
            "duplicate": 6,
        }
        | {"stale": 0, "held": 0, "rejected": 0}
    ]
    with inturn.open(folder / "shop.db", durable=False) as db:
        db.queue("payments").send({"amount": 1}, group="early", revision=2)
    done = ran(folder, *ONE, "--until-empty")
    assert done.stdout == "ledger over payments: 1 received, 0 applied, 0 duplicate, 1 held, 0 rejected\n"


@pytest.mark.thorough
def test_a_configuration_file_runs_several_pipelines_from_its_directory(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    send(folder)
    send(folder, queue="others")
    (folder / "work.toml").write_text(
        """
        grace_s = 5
        [[pipelines]]
        pipeline = "app.py:ledger"
        queue = "shop.db#payments"
        deliver = "app.py:post"
        [[pipelines]]
        pipeline = "app.py:copy"
        queue = "shop.db#others"
        concurrency = 2
        """
    )
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = ran(elsewhere, "--config", folder / "work.toml", "--until-empty", "--json")
    assert done.returncode == 0, done.stderr
    assert [(job["pipeline"], job["applied"]) for job in json.loads(done.stdout)] == [("ledger", 6), ("copy", 6)]
    assert len(posted(folder)) == 6


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("whom", ["parent", "all"])
def test_a_stop_finishes_running_handlers_and_is_visible_to_health_probes(
    folder: Path, processes: int, whom: str
) -> None:
    """A process manager tells the parent, or every process of the group."""
    send(folder, groups=1, messages=1, sleep=2)
    port = free_port()
    words = (*ONE, "--processes", processes, "--health", f"127.0.0.1:{port}", "--json")
    with subprocess.Popen(
        command(*words),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:

        def answer(path: str) -> int:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
                    return int(response.status)
            except urllib.error.HTTPError as error:
                return error.code
            except OSError:
                return 0

        until(lambda: answer("/ready") == 200, process=process)
        assert (answer("/health"), answer("/none")) == (200, 404)
        until((folder / "begun").exists, process=process)
        labels = 'database="shop.db"'
        up = f'inturn_worker_up{{{labels},pipeline="ledger",queue="payments"}} {processes}.0'

        def shows() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
                page = response.read().decode()
            return up in page and f'inturn_queue_messages{{{labels},queue="payments"}} 1.0' in page

        until(shows, process=process)  # processes tell their parent every second
        os.killpg(process.pid, signal.SIGTERM) if whom == "all" else process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)[0]["applied"] == 1
    with inturn.open(folder / "shop.db") as db:
        assert not db.queue("payments").receive()


@pytest.mark.slow
def test_a_stop_during_the_start_ends_all_processes(folder: Path) -> None:
    for pause_s in (0.2, 0.5, 0.9, 1.5):
        with subprocess.Popen(
            command(*ONE, "--processes", 4), cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            time.sleep(pause_s)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        until(lambda: is_gone(process.pid))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended_by", "ending"),
    [(signal.SIGKILL, "was killed by signal 9"), (signal.SIGTERM, "ended without being stopped")],
)
def test_a_killed_worker_process_is_restarted_without_loss(folder: Path, ended_by: signal.Signals, ending: str) -> None:
    send(folder, groups=20, messages=5)
    send(folder, groups=1, messages=0)
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command(*ONE, "--processes", 2), cwd=folder, stdout=subprocess.DEVNULL, stderr=errors
        ) as process,
    ):
        first = until(lambda: posted(folder), process=process)[0][0]
        os.kill(int(first), ended_by)
        until(lambda: len({effect for _, effect, _ in posted(folder)}) == 100, process=process)
        with inturn.open(folder / "shop.db", durable=False) as db:
            db.queue("payments").send({"amount": 1, "sleep": 0.1}, group="last", revision=1)
        until((folder / "begun").exists, process=process)
        until(log.read_text, process=process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    (line,) = log.read_text().splitlines()
    assert line.endswith(f" warning inturn.worker: a worker process {ending}; it is started again")


@pytest.mark.slow
def test_a_worker_process_exited_by_a_handler_is_restarted(folder: Path) -> None:
    send(folder, groups=1, messages=1, leave=True)
    done = ran(folder, *ONE, "--processes", 2, "--until-empty")
    assert done.returncode == 0
    assert done.stderr.endswith(
        " warning inturn.worker: a worker process ended without being stopped; it is started again\n"
    )
    assert done.stdout.startswith("ledger over payments: 1 received, 1 applied")


@pytest.mark.slow
def test_worker_processes_stop_when_their_parent_is_killed(folder: Path) -> None:
    send(folder, groups=40, messages=1)
    with subprocess.Popen(command(*ONE, "--processes", 2), cwd=folder, stderr=subprocess.DEVNULL, text=True) as process:
        pids = until(lambda: {int(pid) for pid, _, _ in posted(folder)}, process=process)
        process.kill()
    until(lambda: not any(map(is_running, pids)), "the end of its processes")


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2])
def test_a_pipeline_error_ends_the_command_with_its_text_and_no_traceback(folder: Path, processes: int) -> None:
    send(folder, groups=1, messages=1, wrong=True)
    done = ran(folder, *ONE, "--processes", processes)
    assert (done.returncode, done.stdout) == (1, "")
    assert "HandlerError" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "nothing to run; pass a pipeline and a queue"),
        (["app.py:ledger"], "--queue DATABASE#QUEUE"),
        (["app.py:ledger", "--queue", "shop.db"], "names no queue"),
        (["app.py:ledger", "--queue", "shop.db#none"], "no queue 'none'; existing queues: "),
        (["app.py:none", "--queue", "shop.db#payments"], "existing pipelines: ledger, copy"),
        ([*ONE[:3], "--deliver", "app.py:none"], "no function or inturn.ToQueue 'none'"),
        ([*ONE, "--concurrency", "0"], "concurrency"),
        ([*ONE, "--processes", "0"], "processes is 0"),
        ([*ONE, "--health", "nowhere"], "HOST:PORT"),
        (["--concurrency", "3"], "need a pipeline"),
        ([*ONE, "--log-level", "loud"], "debug, info, warning, error"),
        (["--config", "none.toml"], "none.toml: No such file"),
        (["--config", "app.py"], ": not valid TOML"),
    ],
)
def test_invalid_command_arguments_are_refused_with_a_clear_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], error: str
) -> None:
    from typer.testing import CliRunner

    from inturn.cli import app

    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    done = CliRunner().invoke(app, ["work", *words])
    assert done.exit_code == 1, done.output
    assert error in done.output


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2])
def test_telemetry_configures_the_sdk_from_the_otel_variables(
    folder: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    send(folder)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    done = ran(folder, *ONE, "--until-empty", "--telemetry", "--log-json", "--processes", processes)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"name": "process payments"' in done.stdout
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nowhere")
    done = ran(folder, *ONE, "--until-empty", "--telemetry")
    assert done.returncode == 1
    assert "OTEL_TRACES_EXPORTER is 'nowhere'" in " ".join(done.stderr.split())


def test_a_configuration_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "work.toml"
    file.write_text('[[pipelines]]\npipeline = "a:b"\nqueue = "shop.db#q"\nconcurency = 3\n')
    with pytest.raises(InputError, match="concurency"):
        read(file)
    file.write_text('[[pipelines]]\npipeline = "a:b"\nqueue = "postgresql://h/d#q"\n')
    assert read(file).pipelines == (WorkedPipeline("a:b", "postgresql://h/d#q"),)


def _fail(argument: Any, uplink: StatusPipe) -> None:
    raise InputError(f"wrong {argument}")


def _one_fails(place: str, uplink: StatusPipe) -> None:
    stop = threading.Event()
    uplink.watch(dict, stop.set)
    with suppress(FileExistsError):
        Path(place, "first").touch(exist_ok=False)  # of two that look at once, one makes it
        raise InputError("wrong")
    stop.wait(60)
    time.sleep(0.5)
    Path(place, "finished").touch()


def _wait(argument: Any, uplink: StatusPipe) -> None:
    stop = threading.Event()
    uplink.watch(dict, stop.set)
    assert stop.wait(60)


def _exit(argument: Any, uplink: StatusPipe) -> None:
    raise SystemExit(argument)


def _finish(argument: Any, uplink: StatusPipe) -> None:
    uplink.send({"is_done": True})


@pytest.mark.thorough
def test_a_failed_process_ends_the_process_group_with_its_error() -> None:
    with pytest.raises(WorkFailed, match="InputError: wrong thing"):
        ProcessGroup(_fail, "thing", 2).run()
    with pytest.raises(WorkFailed, match="exit code 3"):
        ProcessGroup(_exit, 3, 2).run()
    ProcessGroup(_finish, None, 2).run()


@pytest.mark.thorough
def test_a_failed_process_lets_the_other_processes_finish_their_work(tmp_path: Path) -> None:
    with pytest.raises(WorkFailed, match="wrong"):
        ProcessGroup(_one_fails, str(tmp_path), 2).run()
    assert (tmp_path / "finished").exists()


@pytest.mark.thorough
def test_a_process_group_stopped_before_its_start_starts_no_process() -> None:
    group = ProcessGroup(_wait, None, 2)
    group.stop_soon()
    group.run()
    assert not group.status()["ready"]


def test_the_same_pipeline_over_two_databases_is_two_jobs(tmp_path: Path) -> None:
    pipeline = inturn.Pipeline(name="p", group="g", order=inturn.Gapless("n"), handler=lambda s, m: (s, []))
    with inturn.open(tmp_path / "a.db") as one, inturn.open(tmp_path / "b.db") as two:
        jobs = [Job(pipeline, db.queue("q"), database=name) for name, db in (("a", one), ("b", two))]
        assert [worker["database"] for worker in Service(jobs).status()["workers"]] == ["a", "b"]
        with pytest.raises(InputError, match="two jobs run the pipeline 'p'"):
            Service([jobs[0], jobs[0]])
        with pytest.raises(InputError, match="nothing to run; pass a pipeline and a queue"):
            Service([])


CHAIN = """
import inturn

def pay(state, message):
    return {"paid": state.get("paid", 0) + message["amount"]}, [{"to": "z", "amount": message["amount"]}]

def get(state, message):
    return {"got": state.get("got", 0) + message["amount"]}, []

debits = inturn.Pipeline(name="debits", group="account", order=inturn.Gapless("revision"), handler=pay)
credits = inturn.Pipeline(name="credits", group="to", order=inturn.Arrival(), id="id", handler=get)
to_others = inturn.ToQueue("others", group="to")
"""


def got(folder: Path) -> Any:
    with inturn.open(folder / "shop.db") as db:
        from inturn.worker.inspection import DatabaseInspector

        return DatabaseInspector(db, "credits").group("z").state


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_built_in_delivery_is_configured_by_a_table_of_the_configuration_file(folder: Path) -> None:
    books = sqlite3.connect(folder / "books.db")
    books.execute("create table postings (effect_id text primary key, balance int)")
    table = 'deliver = { kind = "table", database = "books.db", name = "postings", columns = { balance = "balance" } }'
    pipeline = '[[pipelines]]\npipeline = "app.py:ledger"\nqueue = "shop.db#payments"\n'
    (folder / "work.toml").write_text(f"{pipeline}{table}")
    send(folder, groups=2, messages=2)
    done = ran(folder, "--config", "work.toml", "--until-empty", "--processes", "2")
    assert done.returncode == 0, done.stderr
    assert len(books.execute("select * from postings").fetchall()) == 4
    books.close()
    smoke = 'kind is \'smoke\'; expected "http", "kafka", "rabbitmq", "sqs" or "table"'
    for wrong, reason in (("kind = 'smoke'", smoke), ("kind = 'http'", "the setting 'url' is missing")):
        (folder / "work.toml").write_text(f"{pipeline}deliver = {{ {wrong} }}")
        assert reason in ran(folder, "--config", "work.toml").stderr


@pytest.mark.parametrize("deliver", ["chain.py:to_others", "#others", "shop.db#others"])
def test_deliver_sends_outputs_to_a_queue_of_the_same_database(folder: Path, deliver: str) -> None:
    """A bare queue gets them with the group of the pipeline, here another than the credits'."""
    (folder / "chain.py").write_text(CHAIN)
    (folder / "work.toml").write_text(
        f"""
[[pipelines]]
pipeline = "chain.py:debits"
queue = "shop.db#payments"
deliver = "{deliver}"

[[pipelines]]
pipeline = "chain.py:credits"
queue = "shop.db#others"
"""
    )
    send(folder)
    done = ran(folder, "--config", "work.toml", "--until-empty", "--json")
    assert done.returncode == 0, done.stderr
    debits, credits_ = json.loads(done.stdout)
    assert (debits["applied"], credits_["received"]) == (6, 6)
    if "#" in deliver:
        assert credits_["rejected"] == 6
    else:
        assert got(folder) == {"got": 6}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("deliver", "why"),
    [
        ("other.db#others", "'others' belongs to another database than 'payments'"),
        ("#absent", "no queue 'absent'; existing queues: others, payments"),
        ("app.py:absent", "no function or inturn.ToQueue 'absent'"),
        ("shop.db#", "names no queue; expected DATABASE#QUEUE"),
    ],
)
def test_an_unsuitable_destination_queue_is_refused_at_the_start(folder: Path, deliver: str, why: str) -> None:
    with inturn.open(folder / "other.db") as db:
        db.queue("others")
    done = ran(folder, "app.py:ledger", "--queue", "shop.db#payments", "--deliver", deliver, "--until-empty")
    assert done.returncode == 1
    assert why in " ".join(done.stderr.split())
