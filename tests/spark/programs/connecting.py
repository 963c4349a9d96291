"""Spark's own servers on this machine, for the tests that need one, and commands that run against them."""

import atexit
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import psutil
import pyspark

from inturn.demo.free_ports import free_port
from inturn.spark.local import session
from inturn.spark.local.java import ensure_java
from spark_classes import QUICK

BIN = Path(pyspark.__file__).parent / "bin"
LOGGING = f"-Dlog4j2.configurationFile={Path(session.__file__).with_name('log4j2.properties').as_uri()}"
LIMIT_S = 300
"""A run that takes longer hangs."""


def environment(**more: str) -> dict[str, str]:
    """What Spark's processes need to know."""
    known = {"JAVA_HOME": str(ensure_java()), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **known, **more}


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process listens."""
    give_up = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    msg = f"{process.args!r} does not listen on {port}"
    raise RuntimeError(msg)


# Ends its command when standard input closes, which it does with the process that holds the other end, however that
# dies; and ends itself when its command does.
_TIED = 'exec 3<&0; "$@" 3<&- & it=$!; { cat <&3; kill $it; } > /dev/null 2>&1 & wait $it'


def tied(*command: object, **variables: str) -> subprocess.Popen[bytes]:
    """Start one of Spark's own processes; it ends when its ``stdin`` is closed, or this process is no more."""
    arguments = ["sh", "-c", _TIED, "sh", *map(str, command)]
    return subprocess.Popen(arguments, env=environment(**variables), stdin=subprocess.PIPE)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a tied process, and all that it started."""
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.communicate(timeout=LIMIT_S)
    _, alive = psutil.wait_procs(family, timeout=30)
    for survivor in alive:
        survivor.kill()


@cache
def server() -> str:
    """The address of a Spark Connect server; the first who asks starts it, and it ends with this process."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": LOGGING,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    process = tied(BIN / "spark-submit", "--master", "local[2]", *options, *main, SPARK_CONNECT_MODE="0")
    atexit.register(end, process)
    wait_for(port, process)
    return f"sc://127.0.0.1:{port}"


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python process of its own; what it prints is kept as text."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@contextmanager
def started(name: str, *arguments: object, spark: Path = BIN) -> Iterator[subprocess.Popen[bytes]]:
    """One of Spark's own processes; it and all that it started end with the block."""
    settings = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} {LOGGING}",
        "SPARK_HOME": str(spark.parent),
    }
    process = tied(spark / "spark-class", f"org.apache.spark.deploy.{name}", *arguments, **settings)
    try:
        yield process
    finally:
        end(process)


@contextmanager
def cluster(folder: Path, spark: Path = BIN) -> Iterator[str]:
    """The address of a master with two workers of one core each; ``spark`` has the commands of another Spark."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        local = ("--host", "127.0.0.1", "--webui-port", 0)
        leader = running.enter_context(started("master.Master", *local, "--port", port, spark=spark))
        wait_for(port, leader)
        for number in range(2):
            size = ["--cores", 1, "--memory", "600m", "--work-dir", folder / str(number)]
            running.enter_context(started("worker.Worker", *local, *size, address, spark=spark))
        yield address
