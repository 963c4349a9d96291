"""Read-only access to the log of one queue from any process, without locks or writes; the same for both databases."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, cast

from inturn.core.queue.incarnation import ORIGIN
from inturn.core.queue.kept_log import find_time
from inturn.core.queue.messages import QueueInfo, first_number
from inturn.store.protocols import no_such_queue


class LogRow(NamedTuple):
    """A message in the log: columns of a :class:`inturn.core.queue.messages.StoredMessage`."""

    sequence_number: int
    group: str | None
    revision: int | None
    dedup_id: str | None
    body: str | bytes  # on a server always bytes, for a text in UTF-8
    content: int
    attributes: str | None
    sent_ms: int


class SqlLog(ABC):
    """The log of one queue; a database adds how statements are run, and how messages are read in batches."""

    _queue: str

    @abstractmethod
    def _one(self, name: str, *values: Any) -> Any:
        """Run a statement; return its first row, None if there is none."""

    @abstractmethod
    def _queues(self) -> dict[str, QueueInfo]:
        """Return the current infos of all queues by name."""

    def info(self) -> QueueInfo:
        """Return the current info of the queue; cheap while it does not change.

        Raises:
            NoSuchQueue: if the queue does not exist or was removed.
        """
        queues = self._queues()
        info = queues.get(self._queue)
        if info is None:
            raise no_such_queue(self._queue, queues)
        return info

    def first(self) -> int:
        """Return the number before the first sequence number of the queue."""
        return first_number(self.info().number)

    def incarnation(self, number: int) -> str:
        """Return the incarnation in which a sequence number was given."""
        row = self._one("incarnation", self.info().number, number)
        return str(row[0]) if row else ORIGIN

    def time(self, at_ms: int) -> int:
        """Return the number before the first message that was sent at a time or later."""
        info = self.info()
        return find_time(info, at_ms, lambda after: self._one("log_place_time", after, info.number_range[1]))

    def place(self, after: int, up_to: int, count: int) -> int | None:
        """Return the sequence number of the count-th message after ``after``; None if fewer are up to ``up_to``."""
        row = self._one("log_place", after, up_to, count - 1)
        return cast("int", row[0]) if row else None
