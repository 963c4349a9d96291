"""Read-only transactions, each on its own connection.

They take no lock: SQLite's log keeps the snapshot of each, while others write. Connections are kept for the next
reads; the cache of each is refreshed as in another process.

The log can begin anew only in a moment in which no transaction reads it. Where one read follows the other there is
none, so reads make way while the log is long.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inturn.core.errors import StoreError
from inturn.store import limits as store_limits
from inturn.store.failures import NoReader, closed
from inturn.store.sqlite.connection import connect_for_inspection, store_error
from inturn.store.sqlite.queues import SqliteQueues


class ReadTransactions:
    """The connections for reading of one open file, for any number of threads.

    Args:
        path: the file.
        check: raises if the file was deleted or replaced.
    """

    def __init__(self, path: str, check: Callable[[], None]) -> None:
        self._path, self._check = path, check
        self._file = str(Path(path).absolute())  # the working directory may change
        self._log = Path(f"{self._file}-wal")
        self._free = threading.BoundedSemaphore(store_limits.READERS)
        self._idle: list[SqliteQueues] = []
        self._tolerated = store_limits.WAL_BYTES  # the size of the log for which reads make no way
        self._is_closed = False

    @contextmanager
    def begin(self) -> Iterator[SqliteQueues]:
        """Begin a transaction that sees the queues as of its beginning; if there are too many, wait for one to end.

        Raises:
            NoReader: if there is no connection for it.
            StoreError: if the file cannot be read, was deleted or replaced, or is closed.
        """
        self._end_longest()
        with self._free:
            queues = self._connected()
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
            self._idle.append(queues)

    def _connected(self) -> SqliteQueues:
        if self._is_closed:
            raise closed()
        self._check()
        if self._idle:
            return self._idle.pop()
        try:
            return SqliteQueues(connect_for_inspection(self._file))
        except (StoreError, OSError) as error:
            raise NoReader(f"{self._path} cannot be reopened: {error}") from error

    def _end_longest(self) -> None:
        """Wait while the log is long, so that writers can begin it anew; not for longer than for a short time."""
        until = 0.0
        while (size := self._log_bytes()) > self._tolerated:
            until = until or time.monotonic() + store_limits.MAKE_WAY_S
            if time.monotonic() > until:
                self._tolerated = size + store_limits.WAL_BYTES  # there is no writer, or another program reads for long
                return
            time.sleep(store_limits.MAKE_WAY_S / 50)
        if size <= store_limits.WAL_BYTES:
            self._tolerated = store_limits.WAL_BYTES

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def close(self) -> None:
        """Wait for the reads that have begun, and close the connections."""
        self._is_closed = True
        for _ in range(store_limits.READERS):
            self._free.acquire()
        while self._idle:
            self._idle.pop().connection.close()
        self._free.release(store_limits.READERS)
