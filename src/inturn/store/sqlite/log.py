"""Read-only access to the log of a queue in a file; its columns can be read joined."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from inturn.core import limits
from inturn.core.override import override
from inturn.core.queue.messages import Content, QueueInfo
from inturn.store import limits as store_limits
from inturn.store.sql.log import LogRow, SqlLog
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.connection import connect_for_inspection
from inturn.store.sqlite.file import Files
from inturn.store.sqlite.statements import SqliteStatements


class PackedTexts(NamedTuple):
    """The texts of a column, joined with NUL."""

    known: int  # the number of texts that are not null; a null is written as U+0001
    packed: bytes  # the joined texts in UTF-8


class PackedMessages(NamedTuple):
    """Many messages, column by column: joining the columns in SQLite costs a third of reading rows."""

    rows: int  # the number of messages
    sequence_number: bytes | range  # decimal numbers separated by commas, or a range without gaps
    group: PackedTexts
    revision: bytes  # decimal numbers, 0 for none
    dedup_id: PackedTexts
    body: PackedTexts
    content: bytes  # one digit for each message: its `Content` number, plus 4 if it has no revision
    attributes: PackedTexts
    sent_ms: bytes  # decimal numbers


class SqliteLog(SqliteStatements, SqlLog):
    """The log of one queue.

    Args:
        path: the file.
        queue: the queue's name.

    Raises:
        StoreError: if the file is missing, has no queues or cannot be read.
        StoreMismatch: if a newer version of inturn wrote it.
    """

    def __init__(self, path: str, queue: str) -> None:
        super().__init__(connect_for_inspection(path))
        self.connection.execute(f"pragma cache_size = -{store_limits.CACHE_BYTES // 1024}")  # for _packed's second pass
        self._queue = queue
        self._catalog = SqliteCatalog(self.connection)
        self._files = Files(path, has_wal=False)

    @override
    def _queues(self) -> dict[str, QueueInfo]:
        self._files.check()
        self._catalog.refresh()
        return self._catalog.queues

    def packed(self, after: int, up_to: int) -> PackedMessages | None:
        """Return the messages in ``(after, up_to]``; None if there are none, they are too long, or some are bytes."""
        self.connection.execute("begin")  # one snapshot for both statements
        try:
            return self._packed(after, up_to)
        finally:
            self.connection.rollback()

    def _packed(self, after: int, up_to: int) -> PackedMessages | None:
        count, size, least, most, revisions, attributes = self._one("log_size", after, up_to)
        if not count or size > limits.SOURCE_ARROW_BYTES or most == Content.BYTES:
            return None
        # Columns that follow from the sums are not joined row by row.
        gaps, mixed = count < up_to - after, least < most or 0 < revisions < count
        row = self._one("log_packed", after, up_to, gaps, mixed, attributes > 0)
        return PackedMessages(
            count,
            row[0] if gaps else range(after + 1, up_to + 1),
            PackedTexts(row[1], row[2]),
            row[3],
            PackedTexts(row[4], row[5]),
            PackedTexts(count, row[6]),
            row[7] if mixed else b"%d" % (most if revisions else most + 4) * count,
            PackedTexts(attributes, row[8]),
            row[9],
        )

    def rows(self, after: int, up_to: int) -> Sequence[LogRow]:
        """Return messages in ``(after, up_to]``: as many as fit in memory limits, and at least one.

        The statement is finished on return: an open one would block checkpoints of the file.
        """
        cursor = self._cursor("log", after, up_to, limits.SOURCE_ARROW_ROWS)
        rows: list[Any] = []
        size = 0
        while size < limits.SOURCE_ARROW_BYTES and (more := cursor.fetchmany(limits.SOURCE_FETCH_ROWS)):
            rows += more
            size += sum([len(row[4]) for row in more])
        cursor.close()
        return rows

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
