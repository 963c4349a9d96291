"""``inturn demo --crash``: the deliveries as a stream whose process is killed in the middle, and started again.

The kill is real: SIGKILL to the driver between writing a step's files and committing it, the worst moment there is.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inturn.core.errors import InturnError
from inturn.core.fold import Counts
from inturn.demo.delivery import Delivery, Row, write

if TYPE_CHECKING:
    from inturn.demo.run import Part

STREAM, CHECKPOINT = "stream", "checkpoint"
FILES = 3
"""Into how many files each delivery is cut; a file is a micro-batch."""
KILLED_AT = "before commit@4"
"""The fourth step, the first of the second delivery."""


def stream(sent: Delivery, out: Path, store: str, buckets: int, part: "Part") -> list[Counts]:
    """Stream the deliveries, kill the driver in the middle, and start it again on what it left.

    Returns:
        Where the messages of each step went.

    Raises:
        InturnError: if the stream ended otherwise than it should.
    """
    from inturn.spark.tables.manifest import Store

    folder = out / STREAM
    folder.mkdir()
    for number, rows in enumerate([*_cut(sent.first), *_cut(sent.second)], start=1):
        path = folder / f"{number:02d}.parquet"
        write(rows, path)
        os.utime(path, (number, number))  # Spark takes the oldest first
    command = [sys.executable, "-m", "inturn.cli", "run", "inturn.demo.pipeline:aircraft", "--stream", "--json"]
    command += ["--from", str(folder), "--files", "1", "--trigger", "available now", "--buckets", str(buckets)]
    command += ["--store", store, "--checkpoint", str(out / CHECKPOINT), "--master", "local[2]"]
    with part("inturn, a stream: killed in its fourth step (kill -9), before the commit"):
        _run(command, -signal.SIGKILL, INTURN_KILL_AT=KILLED_AT)
    with part("inturn, the same command again: it goes on where it was"):
        _run(command, 0)
    opened = Store(store)
    return [Counts(**opened.manifest(step).counts) for step in opened.steps()]


def _cut(rows: Sequence[Row]) -> list[Sequence[Row]]:
    size = -(-len(rows) // FILES)
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def _run(command: list[str], expected: int, **variables: str) -> None:
    done = subprocess.run(  # noqa: S603 - our own command
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode != expected:
        msg = f"the stream ended with {done.returncode}, not {expected}: {done.stderr[-2000:]}"
        raise InturnError(msg)
