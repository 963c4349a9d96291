"""Commands in the transaction of a caller's connection to the file, together with the caller's own SQL.

The caller may roll back unseen, as a whole or to a savepoint. So nothing is remembered from one command to the next:
each reads the queues again. Another connection of this process is to the store like another process: the store notices
the commit before its next transaction, and waiting receives find the messages when they are retried.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from inturn.core.errors import InputError, StoreConflict, StoreUnavailable
from inturn.core.override import override
from inturn.core.queue.messages import Draft, QueueInfo, Sent
from inturn.store.commands import Command
from inturn.store.sqlite.connection import is_to, plain_rows, store_error
from inturn.store.sqlite.file import Reserve
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.queues import SqliteQueues

T = TypeVar("T")


class DiskRoom:
    """The check for room on the disk, for the sends of all callers' connections to one file.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._reserve = Reserve(path)
        self._mutex = threading.Lock()
        self._sends = 0

    def check(self, drafts: Sequence[Draft], connection: sqlite3.Connection) -> None:
        """Raise DiskFull if the acknowledgements of a send may not have room."""
        with self._mutex:
            self._sends += 1
            self._reserve.check(drafts, connection, self._sends)


class SqliteCallerTransaction:
    """The transaction of a caller's connection, in which commands run.

    Args:
        connection: the caller's connection.
        store: the queues of the same file on the store's own connection.
        path: the file.
        identity: identity of the file.
        room: checks for room on the disk.
        clock: returns the time.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        store: SqliteQueues,
        path: str,
        identity: str,
        room: DiskRoom,
        clock: Callable[[], int],
    ) -> None:
        self.identity = identity
        self._connection = connection
        self._store = store
        self._path = path
        self._room = room
        self._clock = clock

    def run(self, command: Command[T]) -> T:
        """Run a command in the transaction: as a whole, or not at all if it raises."""
        with plain_rows(self._connection):
            self._check_file()
            self._lock()
            with _savepoint(self._connection):
                queues = _CallerQueues(self._connection, self._room)
                queues.refresh_from(self._store)
                value = command.run(queues, self._clock())
                queues.catalog.save_counts()
        return command.answer(value)

    async def arun(self, command: Command[T]) -> T:
        """Run a command in the transaction, in the thread of the event loop, to which the connection belongs."""
        return self.run(command)

    def _check_file(self) -> None:
        is_own, path = is_to(self._connection, self.identity)
        if not is_own:
            raise InputError(
                f"the connection is to {path or ':memory:'}, but the queues are in {self._path}; connect to the file "
                "of the queues, or open the queues in the file of the connection"
            )

    def _lock(self) -> None:
        """Begin the transaction if there is none, and take the write lock.

        Raises:
            InputError: if the connection is in autocommit mode, and has begun no transaction.
            StoreConflict: if another writer has committed since the transaction began to read.
            StoreUnavailable: if another connection holds the write lock.
        """
        connection = self._connection
        # From Python 3.12 there is the attribute autocommit; -1 stands for isolation_level.
        begins = connection.isolation_level is not None and getattr(connection, "autocommit", -1) is not True
        if not connection.in_transaction and not begins:
            raise InputError(
                "the connection is in autocommit mode and has no transaction, which tx= needs; execute BEGIN IMMEDIATE "
                "first"
            )
        try:
            # The second one changes no row; it takes the lock before anything is read.
            connection.execute(
                "begin immediate" if not connection.in_transaction else "delete from inturn_meta where 0"
            )
        except sqlite3.OperationalError as error:
            name = getattr(error, "sqlite_errorname", "")
            if name == "SQLITE_BUSY_SNAPSHOT":
                raise StoreConflict(
                    f"{self._path}: another writer has committed since this transaction began to read; roll it back "
                    "and run it again, beginning with BEGIN IMMEDIATE, which takes the write lock first"
                ) from error
            if name.startswith("SQLITE_BUSY"):
                raise StoreUnavailable(
                    f"{self._path}: another connection has held the write lock for longer than the timeout= of this "
                    "one; roll the transaction back and run it again"
                ) from error
            raise store_error(error, self._path) from error


class _QueriedIndex(GroupIndex):
    """An index that keeps nothing in memory: for one command it would read thousands of messages to use a few."""

    @override
    def newest(self, queue: QueueInfo, group: str, after: int, limit: int) -> Sequence[int]:
        return self.unindexed_of(queue, group, after, limit)


class _CallerQueues(SqliteQueues):
    """Queues as seen by a caller's transaction, for one command."""

    def __init__(self, connection: sqlite3.Connection, room: DiskRoom) -> None:
        super().__init__(connection, _QueriedIndex)
        self._room = room

    def refresh_from(self, store: SqliteQueues) -> None:
        """Read the queues; numbers are assigned in the store's incarnation, unless the file was restored since."""
        self.catalog.refresh()
        self.incarnations.id = store.incarnations.id
        seen = {info.number: info.last for info in store.queues.copy().values()}
        if any(info.last < seen.get(info.number, 0) for info in self.queues.values()):
            self.incarnations.renew()

    @override
    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int = 0) -> list[Sent]:
        self._room.check(drafts, self.connection)
        return super().send(queue, drafts, now_ms, ahead)


@contextmanager
def _savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Undo the changes of the block if it raises."""
    connection.execute("savepoint inturn")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):  # on a full disk SQLite has rolled back all of the transaction
            connection.execute("rollback to inturn")
            connection.execute("release inturn")
        raise
    connection.execute("release inturn")
