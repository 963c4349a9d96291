"""Clocks in tests: what lasts a while is tested by moving a clock, never by waiting.

All give milliseconds since 1970, as `inturn.open(clock=…)` takes them.
"""

import datetime as dt
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import inturn
from inturn.database import Database
from inturn.idempotency.keys import DatabaseKeys
from inturn.queue import Queue
from inturn.store.writer.settings import wall_clock_ms

START_MS: Final = 1_700_000_000_000


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms

    def s(self) -> float:
        """Return the time in seconds, for what takes a clock like `time.monotonic`."""
        return self() / 1000

    @property
    def time(self) -> dt.datetime:
        """The time as a datetime."""
        return dt.datetime.fromtimestamp(self() / 1000, dt.UTC)

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.ms += round(seconds * 1000)


class RunningClock:
    """This machine's clock, which can be moved ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return wall_clock_ms() + self.ahead_ms

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.ahead_ms += round(seconds * 1000)


class SkewedClocks:
    """One database that processes with other clocks use, and the time that really is, in seconds."""

    def __init__(self, target: Path | str, stack: ExitStack) -> None:
        self.now = START_MS // 1000
        self._target, self._stack = target, stack

    def open(self, offset: int = 0) -> Database:
        """Return the database as a process sees it whose clock is ahead by so many seconds."""
        return self._stack.enter_context(
            inturn.open(self._target, durable=False, clock=lambda: (self.now + offset) * 1000)
        )

    def queue(self, offset: int = 0) -> Queue:
        """Return a queue in it."""
        return self.open(offset).queue("q")

    def keys(self, offset: int = 0) -> DatabaseKeys:
        """Return idempotency keys in it."""
        return self.open(offset).idempotency_keys("k")
