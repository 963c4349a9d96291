"""The kept log of queues: the part that both databases share. The rules are in core/queue/kept_log.py."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from inturn.core import limits
from inturn.core.queue.kept_log import LogBlock, Removable, find_time, next_block, removable
from inturn.core.queue.messages import QueueInfo, QueueSettings


class _Trimmed(NamedTuple):
    """A log of which nothing is removable for now, as of these settings and readers."""

    settings: QueueSettings
    readers: dict[str, int]
    until_ms: int | None  # time of the next check; None: when the settings or the readers have changed

    def still(self, queue: QueueInfo, now_ms: int) -> bool:
        """Return whether that is still so."""
        is_over = self.until_ms is not None and self.until_ms <= now_ms
        is_same = self.settings is queue.settings or self.settings == queue.settings
        return not is_over and is_same and self.readers == queue.readers


class SqlKeptLog(ABC):
    """Logs of queues: removal from their beginning, and places by time. A database runs the statements."""

    def __init__(self) -> None:
        self._trimmed: dict[int, _Trimmed] = {}

    def trim_due(self) -> None:
        """Forget which logs were trimmed, after a write of another process or a rollback."""
        self._trimmed.clear()

    def trim(self, queue: QueueInfo, now_ms: int) -> None:
        """Measure the next full block of a log, and remove acknowledged messages that may be removed.

        Up to ``limits.LOG_LOOK_MS`` pass between two checks, unless there is more to do.
        """
        trimmed = self._trimmed.get(queue.number)
        if trimmed is not None and trimmed.still(queue, now_ms):  # the usual case
            return
        keeps = queue.settings.keeps_log
        has_measured = keeps and self._measure_next(queue)
        blocks = self._blocks(queue) if queue.settings.keep_bytes is not None else []
        if self._remove(queue, removable(queue, blocks, now_ms)) or has_measured:
            self._trimmed.pop(queue.number, None)
        else:
            until_ms = now_ms + limits.LOG_LOOK_MS if keeps else None
            self._trimmed[queue.number] = _Trimmed(queue.settings, dict(queue.readers), until_ms)

    def time(self, queue: QueueInfo, at_ms: int) -> int:
        """Return the number before the first message that was sent at a time or later."""
        end = queue.number_range[1]
        return find_time(queue, at_ms, lambda after: self._first("log_place_time", after, end))

    def _measure_next(self, queue: QueueInfo) -> bool:
        measured = self._first("log_measured", queue.number)
        first = None if measured else self._first("log_place_time", *queue.number_range)
        block = next_block(queue, measured and measured[0], first and first[0])
        if block is None or block[1] > queue.last:
            return False
        self._measure(queue, *block)
        return True

    def _remove(self, queue: QueueInfo, allowed: Removable) -> bool:
        """Remove the oldest removable messages; return whether there may be more."""
        begin = queue.number_range[0]
        if allowed.read_to <= begin:
            return False
        oldest = self._rows("log_acknowledged", begin, allowed.read_to, limits.EXPIRE_AT_ONCE)
        removed = []
        for number, sent_ms, group in oldest:
            if not allowed.has(number, sent_ms):
                break
            removed.append((number, group))
        if removed:
            self._remove_messages(queue, removed)
        return len(removed) == limits.EXPIRE_AT_ONCE

    def _blocks(self, queue: QueueInfo) -> list[LogBlock]:
        return [LogBlock(*row) for row in self._rows("log_blocks", queue.number)]

    @abstractmethod
    def _first(self, name: str, *values: Any) -> Any:
        """Run a statement; return its first row, None if there is none."""

    @abstractmethod
    def _rows(self, name: str, *values: Any) -> Sequence[Any]:
        """Run a statement; return its rows."""

    @abstractmethod
    def _measure(self, queue: QueueInfo, after: int, last: int) -> None:
        """Write the size of a block."""

    @abstractmethod
    def _remove_messages(self, queue: QueueInfo, removed: Sequence[tuple[int, str | None]]) -> None:
        """Remove acknowledged messages, given by number and group, and the blocks before the last of them."""
