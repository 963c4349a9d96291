"""The processes of the demo: producers that send, and a Spark that streams from the queue until it is killed.

The kill is real: SIGKILL to the driver and all its child processes between the writing of a step's files and their
commit, which is the worst moment.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from inturn.core.errors import InturnError
from inturn.demo.pipeline import aircraft

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Process = subprocess.Popen[bytes]

KILLED_STEP: Final = 3
STEP_ROWS: Final = 4_000
TRIGGER: Final = "1 second"
BUCKETS: Final = 4  # with few messages, more tasks would cost more than they gain
LIMIT_S: Final = 300  # for every wait
_NOT_STARTED: Final = "Python worker failed to connect back"

# Only the driver dies, not the process next to it that reads the queue, whose transactions also have kill points of
# this name.
_KILLED_PROGRAM: Final = (
    "import sys; from inturn.faults import kill_at; from inturn.cli import app; "
    f"kill_at('before commit@{KILLED_STEP}'); app()"
)


class Processes:
    """Processes that are ended with the ``with`` block, also after an error.

    Args:
        log: file for their output.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._running: list[Process] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="inturn-demo-", ignore_cleanup_errors=True)

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the processes that still run."""
        for process in self._running:
            _kill(process)
            process.wait()
        self._scratch.cleanup()

    def stream(self, source: str, store: Path, checkpoint: Path) -> Process:
        """Start ``inturn run --stream``: the pipeline on Spark over a queue, until it is killed in its third step."""
        command = ["-c", _KILLED_PROGRAM, "run", "inturn.demo.pipeline:aircraft", "--stream", "--from", source]
        command += ["--store", str(store), "--checkpoint", str(checkpoint), "--master", "local[2]"]
        return self._start(*command, "--trigger", TRIGGER, "--rows", str(STEP_ROWS), "--buckets", str(BUCKETS))

    def producer(self, target: str, file: Path, began: float) -> Process:
        """Start a producer; see :mod:`inturn.demo.producer`."""
        return self._start("-m", "inturn.demo.producer", target, str(file), str(began))

    def _start(self, *arguments: str) -> Process:
        # A killed process cannot remove its temporary files, so they are in our folder; Spark has its own variable.
        scratch = dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS"), self._scratch.name)
        with self._log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, *arguments],
                stdout=log,
                stderr=log,
                env=os.environ | scratch,
                start_new_session=True,  # a process group of its own, which ends with all its children
            )
        self._running.append(process)
        return process

    def wait_for_end(self, process: Process, expected: int = 0) -> None:
        """Wait for the end of a process, and kill all its children.

        Raises:
            InturnError: if it did not end with the expected exit code.
        """
        try:
            exit_code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            exit_code = None
        if exit_code != expected:
            log_end = self._log.read_text(errors="replace")[-2000:]
            msg = f"{process.args!r} ended with {exit_code}, expected {expected}; the end of {self._log}: {log_end}"
            raise InturnError(msg)
        _kill(process)


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def continue_stream(spark: "SparkSession", source: str, store: Path, checkpoint: Path) -> "StreamingQuery":
    """Continue the stream of the killed Spark, from its store and checkpoint."""
    import inturn.spark
    from inturn.spark.source.messages import queue_messages

    df = queue_messages(spark, aircraft, source, streaming=True, rows=STEP_ROWS)
    return inturn.spark.stream(aircraft, df, store=store, checkpoint=checkpoint, trigger=TRIGGER, buckets=BUCKETS)


def drain_stream(query: "StreamingQuery", restart: Callable[[], "StreamingQuery"]) -> "StreamingQuery":
    """Wait until a stream has processed everything, and return it; start it again if it could not begin.

    Spark waits 10 seconds for a Python process that it starts, which may be too short on a busy machine.
    """
    from pyspark.errors import StreamingQueryException

    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        if _NOT_STARTED not in str(error):
            raise
        query = restart()
        query.processAllAvailable()
    return query
