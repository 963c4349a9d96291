"""A console that ``inturn console`` serves in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(folder: Path, stores: Sequence[str], *options: str) -> Iterator[str]:
    """Serve the console of some stores, and yield its address.

    Raises:
        AssertionError: if the console did not foresee an error, which its log says.
    """
    command = [sys.executable, "-m", "inturn", "console", *stores, "--port", "0", *options]
    log = folder / "console.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            printed = process.stdout.readline()
            assert "http" in printed, log.read_text()
            yield printed.split()[-1].rstrip("/")
        finally:
            process.terminate()
            try:
                process.wait(20)
            finally:
                process.kill()
    assert not re.search(r"Traceback|could not answer", log.read_text()), log.read_text()[-5000:]
