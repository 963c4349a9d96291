"""Incarnations of this connection, recorded for each queue before the connection gives its first number."""

import uuid

from inturn.core import limits
from inturn.core.queue.incarnation import ORIGIN
from inturn.core.queue.messages import QueueInfo
from inturn.store.postgres.statements import PostgresStatements, Wire

_ALL_READ = 2**63 - 1


class PostgresIncarnations(PostgresStatements):
    """The recorded incarnations of the queues; see :mod:`inturn.core.queue.incarnation`.

    Attributes:
        begun: numbers of the queues in which this connection has given a sequence number.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.begun: set[int] = set()
        self.renew()

    def renew(self) -> None:
        """Begin a new incarnation."""
        self._id = uuid.uuid4().hex
        self._trimmed: set[int] = set()
        self.begun.clear()

    def of(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a sequence number was given."""
        row = self._one("incarnation", queue.number, number)
        return str(row[0]) if row else ORIGIN

    def begin(self, queue: QueueInfo, now_ms: int) -> None:
        """Record the begin of the incarnation, as in core, before this connection gives a number."""
        if queue.number in self.begun:
            return
        self._do("lock_numbering", queue.number)
        self._do("begin_incarnation", queue.number, self._id, now_ms)
        if queue.number not in self._trimmed:
            read_to = min(queue.readers.values(), default=_ALL_READ)
            self._do("trim_incarnations", queue.number, read_to, limits.INCARNATIONS - 1)
        self._trimmed.add(queue.number)
        self.begun.add(queue.number)
