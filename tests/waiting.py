"""Waiting in tests: for a condition, never for a time."""

import time
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 60
"""How long a test waits for what must come, before it is taken for stuck; a slow machine needs seconds."""


def until(condition: Callable[[], object], what: str = "", deadline_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds.

    Args:
        condition: asked again and again; it may take its time, but not for ever.
        what: what did not come, for the error.
        deadline_s: seconds; a test with less says something about time, which it should not.

    Raises:
        AssertionError: if it does not hold by then.
    """
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, f"not within {deadline_s:g} s: {what or 'the condition'}"
        time.sleep(0.005)
