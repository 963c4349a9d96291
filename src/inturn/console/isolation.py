"""Isolation of a process that runs a user's code dry: no network, no programs, no secrets, limited time and memory.

It prevents a handler from causing external effects by mistake, such as posting to an API. It is not a sandbox against
hostile code: the code is the user's own, and is named only on the command line.
"""

import ctypes
import errno
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

CPU_S: Final = 10
_MEMORY: Final = 8 * 2**30
_FILE: Final = 64 * 2**20
_TRIES: Final = 50
_PASSED_VARIABLES: Final = (
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "TMPDIR",
    "TEMP",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "SYSTEMROOT",
)
_OF_STORES: Final = ("PG", "AWS_", "GOOGLE_", "GCLOUD_")
_OTHERS: Final = re.compile(r"/proc/(\d+)(?:/|$)")
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_FORBIDDEN: Final = {
    "socket.connect": "connect to the network",
    "socket.sendto": "send to the network",
    "socket.getaddrinfo": "look up a host",
    "socket.bind": "listen",
    "subprocess.Popen": "start a program",
    "os.system": "start a program",
    "os.exec": "start a program",
    "os.posix_spawn": "start a program",
    "os.fork": "start a process",
}


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of such a process: the variables that Python and opening the store need."""
    return {
        name: value
        for name, value in variables.items()
        if name in _PASSED_VARIABLES or name.startswith(("LC_", *_OF_STORES))
    }


def limit_resources() -> None:
    """Limit the CPU time, memory and files of this process, where the system supports it."""
    with suppress(ImportError):
        import resource

        for kind, most in (
            (resource.RLIMIT_CPU, CPU_S),
            (resource.RLIMIT_AS, _MEMORY),
            (resource.RLIMIT_FSIZE, _FILE),
            (resource.RLIMIT_CORE, 0),
        ):
            with suppress(ValueError, OSError):
                resource.setrlimit(kind, (most, most))


def isolate() -> None:
    """Remove the network, programs and the store's secrets from this process; called before a user's code is loaded."""
    for name in [variable for variable in os.environ if variable.startswith(_OF_STORES)]:
        del os.environ[name]
    if sys.platform == "linux":  # the kernel forbids it in some containers; then only the audit hook protects
        with suppress(OSError, AttributeError):
            _leave_network(ctypes.CDLL(None, use_errno=True))
    sys.addaudithook(_refuse)


def _leave_network(libc: Any) -> None:
    """Move this process to a network namespace of its own; the kernel refuses it (EINVAL) while a thread is ending."""
    for _ in range(_TRIES):
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0 or ctypes.get_errno() != errno.EINVAL:
            return
        time.sleep(0.01)


def _refuse(event: str, arguments: Any) -> None:
    act = _FORBIDDEN.get(event)
    if act is not None:
        _raise(act)
    if event == "open" and _is_of_another_process(arguments[0]):
        _raise("read files of other processes")


def _is_of_another_process(path: Any) -> bool:
    """Return whether a path is below ``/proc/PID`` of another process, whose environment may hold secrets."""
    text = os.fsdecode(path) if isinstance(path, str | bytes) else ""
    match = _OTHERS.match(os.path.normpath(text)) if "proc" in text else None
    return match is not None and int(match[1]) != os.getpid()


def _raise(act: str) -> NoReturn:
    raise PermissionError(f"a dry run may not {act}")
