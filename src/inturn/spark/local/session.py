"""A local Spark for the command line, the demo and the tests.

Nothing else in this package builds a session: `batch`, `stream` and `read` take the caller's.
"""

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from inturn.core.errors import InturnError, SetupError
from inturn.spark.local.connector import unfetched_connector
from inturn.spark.local.java import ensure_java, quiet_home
from inturn.spark.versions import WRAPS_SOURCES, has_python_sources, has_read_limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")
_WARNING = "ignore:PySpark does not yet fully support pandas:FutureWarning"


def local_session(
    app_name: str = "inturn",
    *,
    cores: str | int = "*",
    memory: str = "2g",
    ui: bool = False,
    settings: "Mapping[str, str] | None" = None,
) -> "SparkSession":
    """Start a Spark inside this process, quiet and for this machine only, or return the running one.

    Times are UTC, nothing listens beyond 127.0.0.1, and no files stay behind.

    Args:
        app_name: name that Spark shows for the application.
        cores: number of parallel tasks; ``"*"`` is one for each core of the machine.
        memory: Java heap, in Spark's notation: ``"512m"``, ``"2g"``.
        ui: whether to serve Spark's web page during the session.
        settings: further settings of Spark for a new session.

    Returns:
        The running session unchanged, if there is one; else a new one. The caller stops it.

    Raises:
        SetupError: if pyspark is not installed, or no usable Java is found.
    """
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SetupError(
            f"Spark is not installed ({error}). Run `pip install 'inturn[spark]'`, "
            "or `pip install 'inturn[spark,java]'` if there is no Java 17 or newer."
        ) from error

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        pass  # there is none yet

    os.environ["JAVA_HOME"] = str(_java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else the workers are any python3 of the PATH, without inturn
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the address on which the web page listens

    builder = SparkSession.builder.master(f"local[{cores}]").appName(app_name)
    for key, value in {**_settings(cores, memory, ui=ui), **(settings or {})}.items():
        builder = builder.config(key, value)
    return _start(builder)


def _settings(cores: str | int, memory: str, *, ui: bool) -> dict[str, str]:
    tasks = (os.cpu_count() or 1) if cores == "*" else int(cores)
    wraps = {WRAPS_SOURCES: "true"} if has_python_sources() and not has_read_limits() else {}
    return wraps | {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * tasks),  # the 200 of a cluster cost a local run most of its time
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.codegen.cache.maxEntries": "1000",  # with the default of 100 an audit compiles all its code again
        "spark.sql.warehouse.dir": _warehouse_folder().as_uri(),  # else a folder in the working directory
    }


def _warehouse_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="inturn-warehouse-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def session(master: str, settings: "Mapping[str, str] | None" = None) -> "SparkSession":
    """Return the session of a command: local, on a cluster, or through Spark Connect.

    Args:
        master: ``local``, ``local[4]``, ``local[*]``, ``spark://host:port`` or another cluster's address, or
            ``sc://host:port`` for Connect.
        settings: further settings of Spark for a new session; a server of Connect has its own.

    Raises:
        SetupError: if pyspark is not installed, or no usable Java is found.
    """
    local = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    if local:
        return local_session(cores=local[1] or "1", settings=settings)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("sc://"):
        return _start(SparkSession.builder.remote(master))
    os.environ["JAVA_HOME"] = str(_java_home())
    builder = SparkSession.builder.master(master).appName("inturn")
    for key, value in {"spark.ui.showConsoleProgress": "false", **(settings or {})}.items():
        builder = builder.config(key, value)
    return _start(builder)


@contextlib.contextmanager
def running_session(master: str, settings: "Mapping[str, str] | None" = None) -> "Iterator[SparkSession]":
    """Yield the session of a command, see :func:`session`, and stop it at the end."""
    try:
        spark = session(master, settings)
    except InturnError:
        raise
    except Exception as error:
        if (unfetched := unfetched_connector(settings or {})) is None:
            raise
        raise unfetched from error
    try:
        yield spark
    finally:
        spark.stop()


def _start(builder: "SparkSession.Builder") -> "SparkSession":
    with _silenced(), _not_interrupted():
        return builder.getOrCreate()


@contextlib.contextmanager
def _not_interrupted() -> "Iterator[None]":
    """Delay a first Ctrl-C until the block has ended; a second one has its usual effect.

    PySpark waits for the port that Java writes into a folder. Interrupted, it removes the folder, and Java, which then
    cannot write there, runs forever.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):  # or Ctrl-C is ignored
        yield
        return
    put_off = []

    def delay(number: int, _frame: object) -> None:
        signal.signal(number, usual)
        put_off.append(number)

    signal.signal(signal.SIGINT, delay)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is delay:  # PySpark sets its own
            signal.signal(signal.SIGINT, usual)
    for number in put_off:
        signal.raise_signal(number)


@contextlib.contextmanager
def _silenced() -> "Iterator[None]":
    """Silence the Java process that the block starts, and its workers, unless INTURN_LOG is set.

    Only these processes inherit the variables; other child processes of the caller are not affected.
    """
    before = {name: os.environ.get(name) for name in ("SPARK_SUBMIT_OPTS", "PYTHONWARNINGS")}
    option = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{before['SPARK_SUBMIT_OPTS'] or ''} {option}".strip()
    if not os.environ.get("INTURN_LOG"):
        os.environ["PYTHONWARNINGS"] = f"{before['PYTHONWARNINGS'] or ''},{_WARNING}".strip(",")
        _silence_python()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _silence_python() -> None:
    """Stop PySpark and Py4J in this process from logging what they raise."""
    logging.getLogger().addFilter(_is_no_interrupt)
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # it logs what a stream's step raises, and raises it too
    warnings.filterwarnings("ignore", module=r"pyspark\b")
    with contextlib.suppress(ImportError):  # PySpark before 4 logs nothing of its own
        from pyspark.logger import PySparkLogger

        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)  # each error is raised with the same text


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Return False for Py4J's record of a Ctrl-C, which it logs to the root logger and raises as well."""
    return "while sending command" not in str(record.msg)


def _java_home() -> Path:
    return ensure_java() if os.environ.get("INTURN_LOG") else quiet_home(ensure_java())
