"""A local Spark for the command line, the demo and the tests.

Nothing else in this package builds a session: `batch`, `stream` and `read` take the caller's.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from inturn.core.errors import SetupError
from inturn.spark.local.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")


def local_session(
    app_name: str = "inturn", *, cores: str | int = "*", memory: str = "2g", ui: bool = False
) -> "SparkSession":
    """Start a Spark inside this process, quiet and for this machine only; or give the one that runs already.

    Times are UTC, nothing listens beyond 127.0.0.1, and no files stay behind.

    Args:
        app_name: The name that Spark shows for the application.
        cores: How many tasks run at once; ``"*"`` is one for each core of the machine.
        memory: The Java heap, as Spark writes sizes: ``"512m"``, ``"2g"``.
        ui: Whether to serve Spark's web page while the session lasts.

    Returns:
        The running session as it is, if there is one; else a new one. The caller stops it.

    Raises:
        SetupError: pyspark is not installed, or no fitting Java is found.
    """
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SetupError(
            f"Spark is not installed ({error}). Run `pip install 'inturn[spark]'`, "
            "with `[spark,java]` where there is no Java 17 or newer."
        ) from error

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        pass  # there is none yet

    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the workers are any python3 of the PATH
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the web page listens where this says

    builder = SparkSession.builder.master(f"local[{cores}]").appName(app_name)
    for key, value in _settings(cores, memory, ui=ui).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _settings(cores: str | int, memory: str, *, ui: bool) -> dict[str, str]:
    tasks = (os.cpu_count() or 1) if cores == "*" else int(cores)
    return {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"',
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * tasks),  # the 200 of a cluster cost a local run most of its time
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.codegen.cache.maxEntries": "1000",  # with the usual 100 an audit compiles all of its code anew
        "spark.sql.warehouse.dir": _scratch().as_uri(),  # else a folder in the working directory
    }


def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="inturn-warehouse-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def session(master: str) -> "SparkSession":
    """The session of a command: local, on a cluster, or through Spark Connect.

    Args:
        master: ``local``, ``local[4]``, ``local[*]``, ``spark://host:port`` or another cluster's address, or
            ``sc://host:port`` for Connect.

    Raises:
        SetupError: pyspark is not installed, or no fitting Java is found.
    """
    local = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    if local:
        return local_session(cores=local[1] or "1")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("sc://"):
        return SparkSession.builder.remote(master).getOrCreate()
    ensure_java()
    return SparkSession.builder.master(master).appName("inturn").getOrCreate()
