"""The log of one queue for who only reads it, in whichever process: it takes no lock and writes nothing."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from inturn.core import limits
from inturn.core.envelope import Content, QueueInfo, first_number
from inturn.core.incarnation import ORIGIN
from inturn.store.base import no_such_queue
from inturn.store.sqlite.catalog import Catalog
from inturn.store.sqlite.connection import connect_to_look
from inturn.store.sqlite.file import Files
from inturn.store.sqlite.statements import Statements


class Row(NamedTuple):
    """A message as the log has it.

    Attributes:
        sequence_number: its place.
        group: whose timeline it is in.
        revision: its place there.
        dedup_id: what it is known by.
        body: its text or its bytes.
        content: what the body is, by its number.
        attributes: more about it, as JSON.
        sent_ms: when it was sent.
    """

    sequence_number: int
    group: str | None
    revision: int | None
    dedup_id: str | None
    body: str | bytes
    content: int
    attributes: str | None
    sent_ms: int


class Texts(NamedTuple):
    """The texts of a column, one after the other with NUL between them.

    Attributes:
        known: how many are not null; one that is null is written as U+0001.
        packed: their UTF-8.
    """

    known: int
    packed: bytes


class Packed(NamedTuple):
    """Many messages, column by column: SQLite puts them together for a third of what rows cost.

    Attributes:
        rows: how many.
        sequence_number: in decimal, with commas between them; or all of a range.
        group: as texts.
        revision: in decimal, 0 for none.
        dedup_id: as texts.
        body: as texts.
        content: a digit for each: what the body is, and 4 more if there is no revision.
        attributes: as texts.
        sent_ms: in decimal.
    """

    rows: int
    sequence_number: bytes | range
    group: Texts
    revision: bytes
    dedup_id: Texts
    body: Texts
    content: bytes
    attributes: Texts
    sent_ms: bytes


class Log(Statements):
    """The log of one queue.

    Args:
        path: the file.
        queue: the queue's name.

    Raises:
        StoreError: if the file is not there, has no queues or cannot be read.
        StoreMismatch: if a newer version of inturn has written it.
    """

    def __init__(self, path: str, queue: str) -> None:
        super().__init__(connect_to_look(path))
        self.connection.execute(f"pragma cache_size = -{limits.CACHE_BYTES // 1024}")  # what is measured is then packed
        self._queue = queue
        self._has_incarnations = False
        self._catalog = Catalog(self.connection)
        self._files = Files(path, beside=False)

    def info(self) -> QueueInfo:
        """What is known of the queue now; as cheap as can be while nobody writes.

        Raises:
            NoSuchQueue: if it is not there, or not any more.
        """
        self._files.check()
        self._catalog.look()
        info = self._catalog.queues.get(self._queue)
        if info is None:
            raise no_such_queue(self._queue, self._catalog.queues)
        return info

    def first(self) -> int:
        """The number before the first sequence number of the queue."""
        return first_number(self.info().number)

    def incarnation(self, number: int) -> str:
        """Return the incarnation in which a number was given."""
        if not self._has_incarnations:
            tables = self.connection.execute("select name from sqlite_master where name = 'inturn_incarnation'")
            self._has_incarnations = tables.fetchone() is not None
        if not self._has_incarnations:  # no writer of this version has opened the file yet
            return ORIGIN
        row = self._one("incarnation", self.info().number, number)
        return str(row[0]) if row else ORIGIN

    def place(self, after: int, up_to: int, count: int) -> int | None:
        """The sequence number of the count-th message after one, if there are so many up to another."""
        row = self._one("log_place", after, up_to, count - 1)
        return cast("int", row[0]) if row else None

    def packed(self, after: int, up_to: int) -> Packed | None:
        """The messages after a sequence number and up to another; None if they are too long, or not all of text."""
        self.connection.execute("begin")  # both statements are to see the same
        try:
            return self._packed(after, up_to)
        finally:
            self.connection.rollback()

    def _packed(self, after: int, up_to: int) -> Packed | None:
        count, size, least, most, revisions, attributes = self._one("log_size", after, up_to)
        if not count or size > limits.SOURCE_ARROW_BYTES or most == Content.BYTES:
            return None
        # What follows from the sums is not put together row by row.
        gaps, mixed = count < up_to - after, least < most or 0 < revisions < count
        row = self._one("log_packed", after, up_to, gaps, mixed, attributes > 0)
        return Packed(
            count,
            row[0] if gaps else range(after + 1, up_to + 1),
            Texts(row[1], row[2]),
            row[3],
            Texts(row[4], row[5]),
            Texts(count, row[6]),
            row[7] if mixed else b"%d" % (most if revisions else most + 4) * count,
            Texts(attributes, row[8]),
            row[9],
        )

    def rows(self, after: int, up_to: int) -> Sequence[Row]:
        """Messages after a sequence number and up to another: as many as one may hold at once, and one at least.

        The statement is over when this returns: who holds one open keeps the file from being tidied.
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
        """Let go of the file."""
        self.connection.close()
