"""Queue metadata, cached in memory and read again after another connection has written.

The row of a queue holds its depth as of the last removal. Messages sent since then follow that point in the message
table and can be counted there, so a send need not write the row.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo, QueueSettings, first_number
from inturn.store.sqlite.connection import check_not_newer
from inturn.store.sqlite.statements import SQL, SqliteStatements

_REMOVALS: Final = (
    "remove_group_locks",
    "remove_incarnations",
    "remove_rates",
    "remove_revisions",
    "remove_writers",
    "remove_priorities",
    "remove_queue",
)


@dataclass(eq=False)
class SqliteCatalog(SqliteStatements):
    """The queues of one file.

    Attributes:
        queues: the queues by name, as of the open transaction.
        has_lost: whether a queue's last sequence number decreased because an older copy was restored in place.
        indexed: by queue number, the last sequence number in the table of pending messages.
    """

    queues: dict[str, QueueInfo] = field(default_factory=dict)
    indexed: dict[int, int] = field(default_factory=dict)
    has_lost: bool = False
    _version: int | None = None
    _counted: dict[str, QueueInfo] = field(default_factory=dict)
    _written: dict[int, int] = field(
        default_factory=dict
    )  # by queue number, the last sequence number in the queue's row

    def refresh(self) -> bool:
        """Refresh the cache at the start of a transaction; return whether it was stale and has been read again.

        It is stale if another connection has written since the last transaction, or if that was rolled back.

        Raises:
            StoreMismatch: if a newer version of inturn has migrated the file meanwhile.
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
        """Note that messages were appended to a queue."""
        if info.last - self._written[info.number] >= limits.UNCOUNTED_MESSAGES:
            self.counted(info)

    def counted(self, info: QueueInfo) -> None:
        """Mark the counts of a queue as changed."""
        self._counted[info.name] = info

    def save_counts(self) -> None:
        """Write changed counts before a commit."""
        for info in self._counted.values():
            self._run(
                SQL["save_queue_counts"],
                (info.depth, info.last, info.last_token, self.indexed[info.number], info.number),
            )
            self._written[info.number] = info.last
        self._counted.clear()

    def forget(self) -> None:
        """Drop the cache after a rollback."""
        self._version = None
        self._counted.clear()

    def save(self, name: str, info: QueueInfo | None, *, purge: bool) -> None:
        """Create, change or remove a queue."""
        if info is None or purge:
            self._purge(self.queues[name])
        if info is None:
            number = self.queues.pop(name).number
            for statement in _REMOVALS:
                self._execute(statement, number)
            return
        if info.number == 0:
            info.number = self._next_number()
            info.last = self.indexed[info.number] = first_number(info.number)
        self.queues[name] = info
        self._written[info.number] = info.last
        settings, readers = msgspec.json.encode(info.settings).decode(), msgspec.json.encode(info.readers).decode()
        counts = info.depth, info.last, info.last_token, self.indexed[info.number]
        self._execute("save_queue", info.number, name, settings, readers, info.created_ms, *counts)
        self._execute(
            "remove_read_messages", first_number(info.number), info.removed_to, limits.EXPIRE_AT_ONCE
        )  # receives go on

    def _next_number(self) -> int:
        """Return a queue number that was never used, so that sequence numbers of a removed queue never recur."""
        (queue_count,) = self._one("queue_count") or (0,)
        self._execute("save_queue_count", queue_count + 1)
        return int(queue_count) + 1

    def _purge(self, info: QueueInfo) -> None:
        for table in ("purge_messages", "purge_ready", "purge_ready_places", "purge_holds"):
            self._execute(table, *info.number_range)
        for table in ("purge_pending", "purge_leases", "purge_dedup", "purge_log_blocks", "purge_log_groups"):
            self._execute(table, info.number)
        info.depth = 0


def _info(number: int, name: str, settings: str, readers: str, created_ms: int, *counts: int) -> QueueInfo:
    tokens, _, _, depth, last, place, rank = counts
    known = msgspec.json.decode(settings, type=QueueSettings)
    positions = msgspec.json.decode(readers, type=dict[str, int])
    return QueueInfo(number, name, known, created_ms, positions, depth, last, tokens, (place, rank))
