"""Incarnations of queues, each recorded before this connection gives its first number in a queue."""

import uuid
from dataclasses import dataclass, field

from inturn.core import limits
from inturn.core.queue.incarnation import ORIGIN
from inturn.core.queue.messages import QueueInfo
from inturn.store.sqlite.statements import SqliteStatements


@dataclass(eq=False)
class SqliteIncarnations(SqliteStatements):
    """Recorded incarnations; see :mod:`inturn.core.queue.incarnation`.

    Attributes:
        begun: the queues, by number, in which this connection has given a sequence number.
        id: the incarnation of the numbers that it gives.
    """

    begun: set[int] = field(default_factory=set)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def renew(self) -> None:
        """Take a new incarnation id."""
        self.id = uuid.uuid4().hex
        self.begun.clear()

    def of(self, queue: int, number: int) -> str:
        """Return the incarnation in which a sequence number was given."""
        row = self._one("incarnation", queue, number)
        return str(row[0]) if row else ORIGIN

    def begin(self, queue: QueueInfo, now_ms: int, note: str | None = None) -> None:
        """Record this connection's incarnation of a queue before it gives a number; ``note`` is a person's reason."""
        if self._one("newest_incarnation", queue.number) != (self.id,):
            self._execute("begin_incarnation", queue.number, queue.last, self.id, now_ms, note)
            self._execute("trim_incarnations", queue.number, queue.read_to, limits.INCARNATIONS - 1)
        self.begun.add(queue.number)
