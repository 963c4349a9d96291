"""A server of PostgreSQL ends with who has started it, whatever was done to the two."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from waiting import DEADLINE_S, is_running, until

TESTS = Path(__file__).parents[1]
PROGRAM = """
import sys, time
from pathlib import Path
from postgres_started import start

postmaster = start(Path(sys.argv[1])).get_postmaster_info().process
if sys.argv[2] == "suspended":
    for each in (postmaster, *postmaster.children()):
        each.suspend()
print(postmaster.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket has room for a hundred characters."""
    folder = Path(tempfile.mkdtemp(prefix="inturn-postgres-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.postgres
@pytest.mark.parametrize("state", ["running", "suspended"])
def test_a_postgres_test_server_ends_when_its_process_is_killed(folder: Path, state: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(folder / "data"), state]
    noted = folder / "pid"
    with noted.open("wb") as out:
        process = subprocess.Popen(command, cwd=TESTS, stdout=out)
    try:
        pid = int(until(noted.read_text, process=process))
        assert psutil.Process(pid).name() == "postgres"
    finally:
        process.kill()
        process.wait(DEADLINE_S)
    until(lambda: not is_running(pid) and not (folder / "data").exists(), "it goes on without its run")
