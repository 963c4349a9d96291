"""Waiting in tests: for a condition, never for a time."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    import subprocess

DEADLINE_S: Final = 60
"""How long a test waits for what must come, before it is taken for stuck; a slow machine needs seconds."""
PROGRAM_S: Final = 300
"""How long a program may take that a test runs, before it is taken for stuck."""


def until(
    condition: Callable[[], Any],
    description: str = "",
    deadline_s: float = DEADLINE_S,
    *,
    process: "subprocess.Popen[Any] | None" = None,
) -> Any:
    """Wait until a condition holds, and return what it gave.

    Args:
        condition: asked again and again; it may take its time, but not for ever.
        description: what did not come, for the error.
        deadline_s: seconds; a test with less says something about time, which it should not.
        process: what the condition waits for; if it ends, nothing will come.

    Raises:
        AssertionError: if it does not hold by then, or the process ended before.
    """
    ends = time.monotonic() + deadline_s
    while not (value := condition()):
        assert process is None or process.poll() is None, (
            f"{process.args} ended: {process.communicate(timeout=DEADLINE_S)}"
        )
        assert time.monotonic() < ends, f"not within {deadline_s:g} s: {description or 'the condition'}"
        time.sleep(0.01)
    return value


async def until_async(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds, while the event loop goes on.

    Raises:
        TimeoutError: if it does not hold by then.
    """
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.001)


def is_running(pid: int) -> bool:
    """Return whether a process is there and not a zombie, which waits for its parent only."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
