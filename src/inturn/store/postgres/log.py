"""Read-only access to the log of a queue on a server, from any machine."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from inturn.core import limits
from inturn.core.override import override
from inturn.core.queue.messages import QueueInfo
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.connection import connect_for_inspection, store_error
from inturn.store.postgres.names import LongNames, as_it_is
from inturn.store.postgres.statements import Wire, text_of
from inturn.store.sql.log import LogRow, SqlLog

T = TypeVar("T")


class PostgresLog(SqlLog):
    """The log of one queue.

    Args:
        url: address of the database.
        queue: name of the queue.

    Raises:
        StoreError: if the database does not exist, has no queues or cannot be read.
        StoreMismatch: if another version of inturn created its tables.
    """

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._connection = connect_for_inspection(url)
        self._wire = Wire(self._connection.pgconn)
        self._names = LongNames(self._wire)
        self._queue = queue
        self._catalog = PostgresCatalog(self._wire)

    @override
    def _queues(self) -> dict[str, QueueInfo]:
        _, version = self._one("now")
        self._asked(lambda: self._catalog.refresh(version))
        return self._catalog.queues

    def identity(self) -> str:
        """Return a text that identifies these tables and this queue."""
        return f"{self._one('notify_channel')[0]} {self.info().created_ms}"

    def rows(self, after: int, up_to: int) -> Sequence[LogRow]:
        """Return the messages after a sequence number and up to another: one batch at most, and at least one if any.

        A batch has at most ``limits.SOURCE_ARROW_ROWS`` messages and ends with the one whose body reaches
        ``limits.SOURCE_ARROW_BYTES``.
        """
        part = after, up_to, limits.SOURCE_ARROW_ROWS
        (size,) = self._one("log_size", *part)
        if (size or 0) <= limits.SOURCE_ARROW_BYTES:
            rows = self._many("log", *part)
        else:
            rows = self._many("log_bounded", *part, limits.SOURCE_ARROW_BYTES)
        name = self._asked(lambda: self._names.reader(row[1] for row in rows))
        if name is as_it_is:  # the usual case
            return rows
        return [LogRow._make((row[0], row[1] and name(row[1]), *row[2:])) for row in rows]

    def _many(self, name: str, *values: int) -> Sequence[LogRow]:
        """Run a statement with many rows, for which a psycopg cursor is cheaper than a wire."""

        def ask() -> Sequence[Any]:
            with psycopg.RawCursor(self._connection) as cursor:
                return cursor.execute(text_of(name).encode(), values, binary=True).fetchall()

        return self._asked(ask)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @override
    def _one(self, name: str, *values: Any) -> Any:
        return self._asked(lambda: self._wire.one(name, *values))

    def _asked(self, ask: Callable[[], T]) -> T:
        """Run a query, and retry it once after a lost connection, which is safe since it only reads.

        Raises:
            StoreError: if the server reports an error.
        """
        try:
            try:
                return ask()
            except psycopg.OperationalError:
                if not self._connection.closed:
                    raise
            self._connection = connect_for_inspection(self._url)
            self._wire.use(self._connection.pgconn)
            return ask()
        except psycopg.Error as error:
            raise store_error(error, self._url) from error
