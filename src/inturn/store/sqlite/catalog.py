"""What is known of each queue: kept in memory, and read again when another connection has written.

The row of a queue says how much was in it when something was last taken out. What has been sent since is behind that
in the table of messages, so it can be counted, and a send need not write the row too.
"""

import sqlite3

import msgspec

from inturn.core import limits
from inturn.core.envelope import QueueInfo, QueueSettings, first_number
from inturn.store.sqlite.connection import check_not_newer
from inturn.store.sqlite.statements import Statements


class Catalog(Statements):
    """The queues of one file.

    Args:
        connection: to the file.

    Attributes:
        queues: by name, as they are in the transaction that is open.
        has_lost: whether a queue has given fewer numbers than it had: another has put back an older copy in place.
        indexed: by the number of a queue, the last sequence number that is in the table of pending messages.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.queues: dict[str, QueueInfo] = {}
        self.indexed: dict[int, int] = {}
        self.has_lost = False
        self._version: int | None = None
        self._counted: dict[str, QueueInfo] = {}
        self._written: dict[int, int] = {}  # the last sequence number that is in a queue's row

    def look(self) -> bool:
        """A transaction has begun: whether what is known is of no use, and was read again.

        It is not if another connection has written since the last transaction, or if that was rolled back.

        Raises:
            StoreMismatch: if a newer version of inturn has changed the file meanwhile.
        """
        (version,) = self.connection.execute("pragma data_version").fetchone()
        if version == self._version:
            return False
        check_not_newer(self.connection)
        before = {} if self._version is None else {info.number: info.last for info in self.queues.values()}
        self._version = version
        rows = self._all("queues", limits.SEQUENCE_BITS)
        self.queues = {row[1]: _info(*row) for row in rows}
        self.has_lost = any(info.last < before.get(info.number, 0) for info in self.queues.values())
        self._written = {row[0]: row[6] for row in rows}
        self.indexed = {row[0]: row[7] for row in rows}
        return True

    def sent(self, info: QueueInfo) -> None:
        """Messages have been put at the end of a queue."""
        if info.last - self._written[info.number] >= limits.UNCOUNTED_MESSAGES:
            self.counted(info)

    def counted(self, info: QueueInfo) -> None:
        """The counts of a queue have changed."""
        self._counted[info.name] = info

    def save_counts(self) -> None:
        """The transaction is about to end well."""
        for info in self._counted.values():
            self._do("count", info.depth, info.last, info.tokens, self.indexed[info.number], info.number)
            self._written[info.number] = info.last
        self._counted.clear()

    def forget(self) -> None:
        """The transaction has been rolled back, and with it what is known here."""
        self._version = None
        self._counted.clear()

    def save(self, name: str, info: QueueInfo | None, *, purge: bool) -> None:
        """Make, change or remove a queue."""
        if info is None or purge:
            self._purge(self.queues[name])
        if info is None:
            number = self.queues.pop(name).number
            self._do("remove_sessions", number)
            self._do("remove_incarnations", number)
            self._do("remove_queue", number)
            return
        if info.number == 0:
            info.number = self._next_number()
            info.last = self.indexed[info.number] = first_number(info.number)
        self.queues[name] = info
        self._written[info.number] = info.last
        settings, readers = msgspec.json.encode(info.settings).decode(), msgspec.json.encode(info.readers).decode()
        counts = info.depth, info.last, info.tokens, self.indexed[info.number]
        self._do("save_queue", info.number, name, settings, readers, info.created_ms, *counts)
        self._do("forget_read", first_number(info.number), info.read_to)

    def _next_number(self) -> int:
        """A number that no queue has had, so that a sequence number of a removed one never comes again."""
        (number,) = self._one("queues_made") or (0,)
        self._do("set_queues_made", number + 1)
        return int(number) + 1

    def _purge(self, info: QueueInfo) -> None:
        every = first_number(info.number), first_number(info.number + 1)
        for table in ("purge_messages", "purge_ready", "purge_line", "purge_holds"):
            self._do(table, *every)
        for table in ("purge_pending", "purge_leases", "purge_dedup"):
            self._do(table, info.number)
        info.depth = 0


def _info(number: int, name: str, settings: str, readers: str, created_ms: int, *counts: int) -> QueueInfo:
    tokens, _, _, depth, last, *back = counts
    return QueueInfo(
        number,
        name,
        msgspec.json.decode(settings, type=QueueSettings),
        created_ms,
        msgspec.json.decode(readers, type=dict[str, int]),
        depth,
        last,
        tokens,
        (back[0], back[1]),
    )
