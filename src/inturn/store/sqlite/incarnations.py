"""The incarnation that this connection is to each queue, written down before the first number that it gives."""

import sqlite3
import uuid

from inturn.core import limits
from inturn.core.envelope import QueueInfo
from inturn.core.incarnation import ORIGIN
from inturn.store.sqlite.statements import Statements


class Incarnations(Statements):
    """What is written of incarnations; see :mod:`inturn.core.incarnation`.

    Args:
        connection: to the file.

    Attributes:
        begun: the numbers of the queues in which this connection has given a number.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.begun: set[int] = set()
        self.renew()

    def renew(self) -> None:
        """Be another one from now on."""
        self._id = uuid.uuid4().hex
        self.begun.clear()

    def of(self, queue: int, number: int) -> str:
        """Return the incarnation in which a number was given."""
        row = self._one("incarnation", queue, number)
        return str(row[0]) if row else ORIGIN

    def begin(self, queue: QueueInfo, now_ms: int, note: str | None = None) -> None:
        """Write down that it begins, as the function in core says: this connection is about to give a number.

        Args:
            queue: in which.
            now_ms: the time.
            note: why a person made it; None: nobody did.
        """
        if self._one("newest_incarnation", queue.number) != (self._id,):
            self._do("begin_incarnation", queue.number, queue.last, self._id, now_ms, note)
            self._do("trim_incarnations", queue.number, queue.read_to, limits.INCARNATIONS - 1)
        self.begun.add(queue.number)
