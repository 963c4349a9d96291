"""The processes of the demo: producers that send, and a Spark that streams from the queue until it is killed.

The kill is real: SIGKILL to the driver between writing a step's files and committing it, the worst moment there is,
and to all that it has started.
"""

import os
import signal
import subprocess
import sys
import tempfile
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
BUCKETS: Final = 4  # few messages: more tasks would cost more than they win
LIMIT_S: Final = 300  # for whatever is waited for

# Only the driver, not the process beside it that asks the queue: its transactions have points of this name too.
_DYING: Final = (
    "import sys; from inturn.faults import kill_at; from inturn.cli import app; "
    f"kill_at('before commit@{KILLED_STEP}'); app()"
)


class Processes:
    """Processes that end with the ``with`` block, however it ends.

    Args:
        log: the file for what they say.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._running: list[Process] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="inturn-demo-", ignore_cleanup_errors=True)

    def __enter__(self) -> Self:
        """As it is."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what still runs."""
        for process in self._running:
            _kill(process)
            process.wait()
        self._scratch.cleanup()

    def stream(self, source: str, store: Path, checkpoint: Path) -> Process:
        """``inturn run --stream``: the pipeline on Spark over a queue, until it is killed in its third step."""
        command = ["-c", _DYING, "run", "inturn.demo.pipeline:aircraft", "--stream", "--from", source]
        command += ["--store", str(store), "--checkpoint", str(checkpoint), "--master", "local[2]"]
        return self._start(*command, "--trigger", TRIGGER, "--rows", str(STEP_ROWS), "--buckets", str(BUCKETS))

    def producer(self, source: str, file: Path, began: float) -> Process:
        """A producer; see :mod:`inturn.demo.producer`."""
        return self._start("-m", "inturn.demo.producer", source, str(file), str(began))

    def _start(self, *arguments: str) -> Process:
        # What is killed cannot tidy up, so its temporary files are where we can; Spark has a variable of its own.
        scratch = dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS"), self._scratch.name)
        with self._log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, *arguments],
                stdout=log,
                stderr=log,
                env=os.environ | scratch,
                start_new_session=True,  # a group of its own, which is ended with all that it has started
            )
        self._running.append(process)
        return process

    def wait_for_end(self, process: Process, expected: int = 0) -> None:
        """Wait for the end of a process, and end all that it has started.

        Raises:
            InturnError: if it ended otherwise than it should.
        """
        try:
            found = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            found = None
        if found != expected:
            said = self._log.read_text(errors="replace")[-2000:]
            msg = f"{process.args!r} ended with {found}, not with {expected}; the end of {self._log}: {said}"
            raise InturnError(msg)
        _kill(process)


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def go_on(spark: "SparkSession", source: str, store: Path, checkpoint: Path) -> "StreamingQuery":
    """The same stream again, on what the killed one has left."""
    import inturn.spark
    from inturn.spark.source.command import queue_messages

    df = queue_messages(spark, aircraft, source, streaming=True, rows=STEP_ROWS)
    return inturn.spark.stream(aircraft, df, store=store, checkpoint=checkpoint, trigger=TRIGGER, buckets=BUCKETS)
