"""The ways in which a writer depends on its database, given to it as one value."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from inturn.core import limits
from inturn.store.commands import OpenTransaction
from inturn.store.protocols import Store


def wall_clock_ms() -> int:
    """Return this machine's time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class WriterSettings:
    """The ways in which a writer depends on its database.

    Attributes:
        is_own: returns whether an identity belongs to this writer's database, whose transactions are valid as ``tx=``.
        identity: returns the identity of this writer's database; empty if the store is not a database.
        adopt: wraps a caller's connection so that commands run in its transaction; None: not supported by the store.
        poll: called with :meth:`Writer.wake` when receives are parked; returns after how many seconds to retry them if
            nothing calls that.
        busy_s: time for which a command waits for another process that holds a lock.
        single: opens the transaction of one command in its caller's own thread; None: as any other transaction.
        reading: opens a read-only transaction, concurrent with the writer's, in any thread; None: reads run in
            the writer's transactions.
    """

    is_own: Callable[[str], bool] = lambda _identity: False
    identity: Callable[[], str] = str
    adopt: Callable[[Any], OpenTransaction] | None = None
    poll: Callable[[Callable[[], None]], float] = lambda _wake: limits.POLL_S
    busy_s: float = limits.BUSY_S
    single: Callable[[], AbstractContextManager[None]] | None = None
    reading: Callable[[], AbstractContextManager[Store]] | None = None
