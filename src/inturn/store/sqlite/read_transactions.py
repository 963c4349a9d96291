"""Transactions for reading alone, each on a connection of its own.

They take no lock: SQLite's log keeps what each of them sees, while others write. Connections are kept for the next
reads; what one remembers of the queues is refreshed as in another process.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from inturn.store import limits
from inturn.store.failures import closed
from inturn.store.sqlite.connection import connect_to_look, store_error
from inturn.store.sqlite.queues import SqliteQueues


class _ReadQueues(SqliteQueues):
    """Queues as seen by a transaction for reading alone."""

    def transaction(self) -> AbstractContextManager[None]:
        """Return an empty context: the transaction is open."""
        return nullcontext()


class ReadTransactions:
    """The connections for reading of one open file, for any number of threads.

    Args:
        path: the file.
        check: raises if the file was deleted or replaced.
    """

    def __init__(self, path: str, check: Callable[[], None]) -> None:
        self._path, self._check = path, check
        self._idle: list[_ReadQueues] = []
        self._is_closed = False

    @contextmanager
    def begin(self) -> Iterator[_ReadQueues]:
        """Begin a transaction that sees the queues as of its beginning.

        Raises:
            StoreError: if the file cannot be read, was deleted or replaced, or is closed.
        """
        if self._is_closed:
            raise closed()
        self._check()
        try:
            queues = self._idle.pop()
        except IndexError:
            queues = _ReadQueues(connect_to_look(self._path))
        connection = queues.connection
        try:
            connection.execute("begin")
            queues.refresh()
            yield queues
            connection.execute("rollback")
        except sqlite3.Error as error:
            connection.close()
            raise store_error(error, self._path) from error
        except BaseException:
            connection.close()
            raise
        if self._is_closed or len(self._idle) >= limits.READERS:
            connection.close()
        else:
            self._idle.append(queues)

    def close(self) -> None:
        """Close the connections; one that is read from is closed after that."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().connection.close()
