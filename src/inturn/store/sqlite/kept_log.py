"""The kept log of queues in SQLite.

An index by group writes to another place for every message, many times the cost of the message itself. So messages
enter the table ``inturn_log_group`` a block at a time, in the order of the table; messages after the last
block are scanned.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from inturn.core.override import override
from inturn.core.queue.kept_log import LogEntry, LogSpan
from inturn.core.queue.messages import QueueInfo
from inturn.store.sql.kept_log import SqlKeptLog
from inturn.store.sql.statements import MessageStatus
from inturn.store.sqlite.statements import NamedStatements, as_list, entry_of


class SqliteKeptLog(SqlKeptLog):
    """Logs of the queues of a file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._statements = NamedStatements(connection)

    def read(self, queue: QueueInfo, span: LogSpan, limit: int) -> list[LogEntry]:
        """Return messages of a log, acknowledged or not, in order."""
        begin, end = queue.number_range
        after, up_to = max(span.after, begin), end if span.up_to is None else min(span.up_to, end)
        if span.group is None:
            rows = self._rows("log_messages", after, up_to, limit, span.first_revision, span.last_revision)
        else:
            (indexed,) = self._first("log_measured", queue.number) or (begin,)
            about = span.first_revision, span.last_revision
            rows = self._rows("log_of_group", queue.number, span.group, after, min(up_to, indexed), limit, *about)
            if len(rows) < limit:
                newest = max(after, indexed), up_to, limit - len(rows), *about, span.group
                rows = [*rows, *self._rows("log_newest_of_group", *newest)]
        return [LogEntry(entry_of(row[:-1]), row[-1] == MessageStatus.ACKNOWLEDGED) for row in rows]

    def restore(self, queue: QueueInfo, number: int, group: str | None) -> None:
        """Add a message that returned to its old place."""
        if group is not None:
            self._statements.do("add_log_group", queue.number, group, number)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove acknowledged messages, wherever they are in a log; the index by group keeps their numbers."""
        self._statements.do("remove_messages", as_list(numbers))

    @override
    def _first(self, name: str, *values: Any) -> Any:
        return self._statements.one(name, *values)

    @override
    def _rows(self, name: str, *values: Any) -> Sequence[Any]:
        return self._statements.read(name, *values)

    @override
    def _measure(self, queue: QueueInfo, after: int, last: int) -> None:
        self._statements.do("measure_log", queue.number, after, last)
        self._statements.do("index_log", queue.number, after, last)

    @override
    def _remove_messages(self, queue: QueueInfo, removed: Sequence[tuple[int, str | None]]) -> None:
        indexed = [(queue.number, group, number) for number, group in removed if group is not None]
        self._statements.do_each("remove_log_group", indexed)
        self._statements.do("remove_messages", as_list([number for number, _ in removed]))
        self._statements.do("remove_log_blocks", queue.number, removed[-1][0])
