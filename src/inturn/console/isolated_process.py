"""Processes that run a user's code for a page: without secrets and network, for at most ten seconds."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

from inturn.console.isolation import environment
from inturn.core.errors import InputError

WALL_S: Final = 10.0
_ANSWER: Final = 16 * 2**20
_STDERR_CHARS: Final = 2000


class ProcessEnded(InputError):
    """A process that ended without an answer."""


def run_isolated(module: str, request: bytes, task: str, timeout_s: float = WALL_S) -> bytes:
    """Run a module of this package with a request on its standard input, and return what it writes.

    Args:
        module: name of the module.
        request: the request.
        task: name of the process in errors.
        timeout_s: the process is killed after this time, in seconds.

    Raises:
        ProcessEnded: if it takes too long, ends with an error, or its answer is empty or too large.
    """
    process = subprocess.Popen(  # noqa: S603 - this program, with a module of this package
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(os.environ),
        start_new_session=True,
    )
    try:
        out, stderr = process.communicate(request, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise ProcessEnded(f"the {task} took longer than {timeout_s:g} s and was killed") from None
    if process.returncode != 0 or not out or len(out) > _ANSWER:
        ending = f"signal {-process.returncode}" if process.returncode < 0 else f"code {process.returncode}"
        last = stderr.decode("utf-8", "replace").strip()[-_STDERR_CHARS:].rsplit("\n", 1)[-1]
        raise ProcessEnded(f"the process of the {task} ended with {ending}: {last or 'no error output'}")
    return out


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.communicate()
