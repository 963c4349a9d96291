"""Keys in the memory of one process, for its threads and tasks, and for tests.

A decision awaits nothing and takes microseconds, so a mutex makes it atomic for threads and for tasks of any loop. To
let duplicates within one process wait for the first instead of getting ``InProgress``, use a ``QueueBroker`` with the
key as the group; see docs/idempotency.md.
"""

import heapq
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from inturn.core import limits
from inturn.core.idempotency_keys import KeyAnswer, KeyRecord, KeyRequest, KeySlot, decide
from inturn.idempotency.keys import IdempotencyKeys
from inturn.store.commands import Command

T = TypeVar("T")


def monotonic_ms() -> int:
    """Return a time in milliseconds that is never set back; it is meaningless outside the process."""
    return time.monotonic_ns() // 1_000_000


class MemoryKeys(IdempotencyKeys):
    """Keys in memory.

    Args:
        clock: returns the time in milliseconds; replaced in tests.
    """

    def __init__(self, *, clock: Callable[[], int] = monotonic_ms) -> None:
        super().__init__(_Records(clock), "memory")


class _Records:
    """A dict of records that also runs the commands: there is nothing to wait for."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._records: dict[str, KeyRecord] = {}
        self._due: list[tuple[int, str]] = []  # times at which keys may expire; stale for a key that changed since
        self._last_token = 0

    def run(self, command: Command[T]) -> T:
        """Run a command from a thread."""
        store: Any = self  # commands about keys use nothing else of a store
        with self._mutex:
            answer = command.run(store, self._clock())
        return command.answer(answer)

    async def arun(self, command: Command[T]) -> T:
        """Run a command from a task."""
        return self.run(command)

    def update_key(self, _space: str, key: str, request: KeyRequest, now_ms: int) -> KeyAnswer:
        """Read, decide and write."""
        before = self._records.get(key)
        (record, self._last_token), answer = decide(KeySlot(before, self._last_token), request, now_ms)
        if record is None:
            self._records.pop(key, None)
        elif record is not before:
            self._records[key] = record
            if record.until_ms is not None:
                heapq.heappush(self._due, (record.until_ms, key))
            self._clear(now_ms)
        return answer

    def _clear(self, now_ms: int) -> None:
        """Delete some of the expired records."""
        for _ in range(limits.KEY_EXPIRE_AT_ONCE):
            if not self._due or self._due[0][0] > now_ms:
                return
            until_ms, key = heapq.heappop(self._due)
            record = self._records.get(key)
            if record is not None and record.until_ms == until_ms:
                del self._records[key]
