"""Read-only access to the log of a queue, from any machine; it takes no lock and writes nothing."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import psycopg

from inturn.core import limits
from inturn.core.queue.incarnation import ORIGIN
from inturn.core.queue.messages import QueueInfo, first_number
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.connection import connect_to_look, said
from inturn.store.postgres.names import LongNames, as_it_is
from inturn.store.postgres.statements import PostgresStatements, Wire, text_of
from inturn.store.protocols import no_such_queue

T = TypeVar("T")


class PostgresLogRow(NamedTuple):
    """A message in the log.

    Attributes:
        sequence_number: sequence number.
        group: group; None: it has none.
        revision: revision in the group's timeline.
        dedup_id: deduplication id.
        body: UTF-8 of the text, or the bytes.
        content: kind of the body, by its number.
        attributes: attributes as JSON.
        sent_ms: time of the send.
    """

    sequence_number: int
    group: str | None
    revision: int | None
    dedup_id: str | None
    body: bytes
    content: int
    attributes: str | None
    sent_ms: int


class PostgresLog(PostgresStatements):
    """The log of one queue.

    Args:
        url: address of the database.
        queue: name of the queue.

    Raises:
        StoreError: if the database does not exist, has no queues or cannot be read.
        StoreMismatch: if another version of inturn has made its tables.
    """

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._connection = connect_to_look(url)
        super().__init__(Wire(self._connection.pgconn))
        self._names = LongNames(self.wire)
        self._queue = queue
        self._catalog = PostgresCatalog(self.wire)

    def info(self) -> QueueInfo:
        """Return the current info of the queue.

        Raises:
            NoSuchQueue: if the queue does not exist or was removed.
        """
        _, version = self._one("now")
        self._asked(lambda: self._catalog.look(version))
        info = self._catalog.queues.get(self._queue)
        if info is None:
            raise no_such_queue(self._queue, self._catalog.queues)
        return info

    def first(self) -> int:
        """Return the number before the first sequence number of the queue."""
        return first_number(self.info().number)

    def identity(self) -> str:
        """Return a text that identifies these tables and this queue."""
        return f"{self._one('channel')[0]} {self.info().created_ms}"

    def incarnation(self, number: int) -> str:
        """Return the incarnation in which a sequence number was given."""
        row = self._one("incarnation", self.info().number, number)
        return str(row[0]) if row else ORIGIN

    def place(self, after: int, up_to: int, count: int) -> int | None:
        """Return the sequence number of the count-th message after ``after``; None if fewer are up to ``up_to``."""
        row = self._one("log_place", after, up_to, count - 1)
        return cast("int", row[0]) if row else None

    def rows(self, after: int, up_to: int) -> Sequence[PostgresLogRow]:
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
        return [PostgresLogRow._make((row[0], row[1] and name(row[1]), *row[2:])) for row in rows]

    def _many(self, name: str, *values: int) -> Sequence[PostgresLogRow]:
        """Run a statement with many rows, for which a psycopg cursor is cheaper than a wire."""

        def ask() -> Sequence[Any]:
            with psycopg.RawCursor(self._connection) as cursor:
                return cursor.execute(text_of(name).encode(), values, binary=True).fetchall()

        return self._asked(ask)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _all(self, name: str, *values: Any) -> list[Any]:
        return self._asked(lambda: self.wire.all(name, *values))

    def _one(self, name: str, *values: Any) -> Any:
        return next(iter(self._all(name, *values)), None)

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
            self._connection = connect_to_look(self._url)
            self.wire.use(self._connection.pgconn)
            return ask()
        except psycopg.Error as error:
            raise said(error, self._url) from error
