"""Spark and Java say nothing unless they are asked, and what goes wrong in them is told in one paragraph."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from programs.connecting import environment

from spark_classes import quick_java
from waiting import PROGRAM_S, until

PIPELINES = """
from inturn import Gapless, Pipeline

class Unmade:
    def __reduce__(self):
        return _fail, ()

def _fail():
    raise RuntimeError("not on a worker")

unmade = Unmade()

def travels_badly(state, message):
    return state, [bool(unmade)]

good = Pipeline(name="good", group="account", order=Gapless("revision"), handler=lambda s, m: (s, [m["revision"]]))
bare = Pipeline(name="bare", group="account", order=Gapless("revision"), handler=lambda s, m: s)
lost = Pipeline(name="lost", group="account", order=Gapless("revision"), handler=travels_badly)
"""
PLAIN = """
import sys
from pyspark.sql import SparkSession
import inturn.spark
from lines import good

spark = SparkSession.builder.config("spark.ui.enabled", "false").master("local[1]").getOrCreate()
try:
    inturn.spark.batch(good, spark.createDataFrame([("a", 1)], "account string, revision long"), store="s")
finally:
    print(spark.conf.get("spark.sql.session.timeZone") == "UTC", spark.sparkContext.pythonExec)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with pipelines and messages, and another python3 on the PATH, which has nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.py").write_text(PIPELINES)
    (tmp_path / "in.jsonl").write_text('{"account": "a", "revision": 1}\n{"account": "b", "revision": 1}\n')
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python3"
    other.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -S "$@"\n')  # -S: without installed packages
    other.chmod(0o755)


def variables(**more: str) -> dict[str, str]:
    known = environment(PATH=f"{Path.cwd() / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in ("PYSPARK_PYTHON", "PYTHONWARNINGS", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS", "INTURN_LOG"):
        known.pop(name, None)
    return {**known, "SPARK_SUBMIT_OPTS": quick_java(), **more}


UNWANTED_WORKER = r"""Traceback \(most recent call last\):
(?:  File ".*pyspark/\w+\.py", .*\n(?:    .*\n)*)+(?:EOFError|ConnectionResetError: .*|BrokenPipeError: .*)\n"""
"""PySpark's daemon prints this for a worker that Spark has given up before it began, which we cannot tell it not to."""


def run(*arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *(["-m", "inturn"] if arguments[0] != "-c" else []), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=variables(**more))
    done.stderr = re.sub(UNWANTED_WORKER, "", done.stderr)
    return done


STORE = ("--from", "in.jsonl", "--store", "s", "--master", "local[1]")


def test_run_prints_only_its_report_with_another_python_on_the_path() -> None:
    done = run("run", "lines.py:good", *STORE, "--json", PYSPARK_PYTHON="python3")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counts"]["applied"] == 2


@pytest.mark.slow
def test_a_failed_step_prints_only_the_inturn_error() -> None:
    done = run("run", "lines.py:bare", *STORE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("HandlerError: the handler of pipeline 'bare' must take (state, message) and return")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_failed_stream_prints_only_the_inturn_error(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "in.jsonl").rename(tmp_path / "events" / "in.jsonl")
    arguments = ("--from", "events", "--store", "s", "--master", "local[1]", "--stream", "--trigger", "available now")
    done = run("run", "lines.py:bare", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the handler of pipeline 'bare' must take (state, message) and return" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_spark_error_is_one_line_that_names_the_log_setting() -> None:
    done = run("run", "lines.py:lost", *STORE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "RuntimeError: not on a worker. Set INTURN_LOG=info to see the traceback" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_inturn_log_shows_the_spark_log_and_the_traceback() -> None:
    done = run("run", "lines.py:lost", *STORE, INTURN_LOG="warn")
    assert done.returncode == 1
    assert "WARN" in done.stderr
    assert "Traceback (most recent call last)" in done.stderr
    assert "at org.apache.spark" in done.stderr
    assert "INTURN_LOG=info" not in done.stderr


@pytest.mark.slow
def test_audit_and_check_print_only_their_reports() -> None:
    done = run("audit", "in.jsonl", "--group", "account", "--order", "revision", "--master", "local[1]", "--json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)["messages"]) == (0, "", 2)
    done = run("check", "lines.py:good", "--from", "in.jsonl", "--master", "local[1]", "--json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)["agree"]) == (0, "", True)


@pytest.mark.slow
def test_a_check_failure_in_spark_is_reported_without_a_traceback() -> None:
    done = run("check", "lines.py:lost", "--from", "in.jsonl", "--master", "local[1]", "--engines", "replay,batch")
    assert done.returncode == 1
    assert "not on a worker" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    assert "\tat " not in done.stderr + done.stdout


def starts_spark(pid: int) -> bool:
    """Whether a process has a Java that starts Spark."""
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "org.apache.spark.deploy.SparkSubmit" in process.cmdline():
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0, 3])
def test_ctrl_c_ends_a_run_without_a_traceback(after_s: int) -> None:
    """Also while Java starts, and it too ends: its output is the command's."""
    command = [sys.executable, "-m", "inturn", "run", "lines.py:good", *STORE]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=variables(), start_new_session=True) as running:
        until(lambda: starts_spark(running.pid), "Java", process=running)
        time.sleep(after_s)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=PROGRAM_S)
    assert running.returncode in (0, 130), "0 if the machine was so fast that it was done"
    assert "Traceback" not in err + out
    assert "Exception" not in err + out


@pytest.mark.slow
def test_a_worker_python_without_inturn_is_named_in_the_error() -> None:
    done = run("-c", PLAIN)
    assert done.stdout == "False python3\n", "nothing of the session was configured"
    assert "inturn.core.errors.SetupError: the workers' Python, python3, cannot import " in done.stderr
    assert "before the session starts, set PYSPARK_PYTHON to a Python that has inturn[spark]" in done.stderr
    assert f"PYSPARK_PYTHON={sys.executable}" in done.stderr
