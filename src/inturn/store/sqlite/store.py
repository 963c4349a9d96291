"""The store over SQLite: its transactions, and the parts that run commands in them."""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from inturn import faults
from inturn.core import limits
from inturn.core.errors import InputError, StoreError
from inturn.core.override import override
from inturn.core.queue.messages import Draft, QueueInfo, Sent
from inturn.store import limits as store_limits
from inturn.store.drivers import refuse_driver
from inturn.store.failures import OwnTransaction, RunAgain
from inturn.store.sql.transaction import SqlTransaction
from inturn.store.sqlite.backup import backup
from inturn.store.sqlite.caller_transaction import DiskRoom, SqliteCallerTransaction
from inturn.store.sqlite.cleaning import clean
from inturn.store.sqlite.connection import connect, identity_of, store_error
from inturn.store.sqlite.file import OWNER_ONLY, Files, Reserve, release_files
from inturn.store.sqlite.own_transaction import is_writing, opened_here
from inturn.store.sqlite.queues import SqliteQueues
from inturn.store.sqlite.read_transactions import ReadTransactions

_NO_ROOM: Final = {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}


class SqliteStore(SqliteQueues):
    """Queues in one SQLite file, which several processes may have open.

    Args:
        path: the file, created if it does not exist; ``:memory:`` for none.
        durable: whether a commit waits until it is on the disk. If not, a power failure may lose the last commits,
            though never a part of one; the death of the process loses none.
        mode: permissions of the file, if it is created.
        busy_s: time for which a transaction waits for another process that holds the write lock.

    Raises:
        StoreError: if the file cannot be used; the message states the reason.
    """

    def __init__(
        self, path: str, *, durable: bool = True, mode: int = OWNER_ONLY, busy_s: float = limits.BUSY_S
    ) -> None:
        self._reserve, self._busy_s = Reserve(path), busy_s
        opening = partial(connect, path, durable=durable, mode=mode, busy_s=busy_s)
        connection, self._files, is_full = _opened(opening, self._reserve)
        super().__init__(connection)
        self._path, self._file = path, str(Path(path).absolute())  # the working directory may change
        self._waits_s = busy_s
        self._transactions = 0
        self._room = DiskRoom(path)
        self._empty_log(1 if is_full else 0)
        self.identity, self.lineage = identity_of(self.connection, path)
        self._transaction = SqlTransaction(self.begin, self.commit, self.roll_back)
        self._own = SqlTransaction(partial(self.begin, is_own=True), self.commit, self.roll_back)
        self.reads: Final = ReadTransactions(path, self._files.check)

    # --- transactions ---

    def is_identity(self, identity: str) -> bool:
        """Return whether this is the identity of this file, which another store may have opened."""
        return identity == self.identity

    @override
    def transaction(self) -> SqlTransaction:
        """Return a transaction for ``with``: committed at the end of the block, rolled back if it raises."""
        return self._transaction

    def lasting(self) -> SqlTransaction:
        """Return a transaction of the calling thread only, refused if it would deadlock with the thread's own."""
        return self._own

    def adopt(self, connection: Any, clock: Callable[[], int]) -> SqliteCallerTransaction:
        """Wrap a caller's connection so that commands run in its transaction.

        Raises:
            InputError: if it is not a connection of sqlite3, or the queues are in memory.
        """
        if not isinstance(connection, sqlite3.Connection):
            refuse_driver(connection, "sqlite3")
        if self._path == ":memory:":
            raise InputError("a database in memory has no other connections; use `with db.transaction() as tx:`")
        return SqliteCallerTransaction(connection, self, self._path, self.identity, self._room, clock)

    def begin(self, *, wait: bool = True, is_own: bool = False) -> None:
        """Take the write lock, and read the changes of other processes.

        Args:
            wait: whether to wait for another process that holds the lock.
            is_own: whether the transaction belongs to the calling thread only.

        Raises:
            OwnTransaction: if ``is_own``, and another transaction of the thread holds the lock.
        """
        try:
            if self._files.are_lost:
                self._files.check()
            self._transactions += 1
            # All wait for the same time at first, so that the timeout need not be set for each transaction.
            first_s = min(self._busy_s, store_limits.OWN_TRANSACTION_S) if wait else 0
            rest_s = self._busy_s - first_s if wait else 0
            if not (self._lock(first_s, is_last=not rest_s) or (is_own and self._lock_unless_own())):
                self._lock(rest_s, is_last=True)
            if faults.is_set:
                faults.reach("in transaction")
            self.refresh()
        except BaseException as error:
            self.roll_back(error)
            raise

    def _lock(self, wait_s: float, *, is_last: bool = False) -> bool:
        """Begin a transaction with the write lock; if it is not free in time, return False, or raise if ``is_last``."""
        if wait_s != self._waits_s:
            self.connection.execute(f"pragma busy_timeout = {round(wait_s * 1000)}").fetchone()
            self._waits_s = wait_s
        try:
            self.connection.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if is_last or error.sqlite_errorname != "SQLITE_BUSY":
                raise
            return False
        return True

    def _lock_unless_own(self) -> bool:
        """Take the lock if it is free by now; return whether it was, and check that this thread does not hold it.

        Raises:
            OwnTransaction: if it does.
        """
        opened = opened_here(self.connection)
        if opened and self._lock(0):
            return True
        if any(is_writing(connection, self.identity) for connection in opened):
            raise OwnTransaction
        return False

    def commit(self) -> None:
        """Commit the transaction."""
        try:
            self.catalog.save_counts()
            if faults.is_set:
                faults.reach("before commit")
            self.connection.execute("commit")
            self._files.check()  # raise if the commit went to a deleted or replaced file
            self.pending.commit()
            if self._spans.skew.reported:
                self._spans.skew.committed()
            self._reserve.is_tried = False
            if faults.is_set:
                faults.reach("after commit")
        except BaseException as error:
            self.roll_back(error)
            raise

    def roll_back(self, because: BaseException) -> None:
        """Roll back the transaction.

        Raises:
            StoreError: if the cause is an error of the database; the message states it.
            RunAgain: if the disk was full and the reserve was released.
        """
        self.catalog.forget()
        self.producers.forget()
        self.pending.roll_back()
        self._spans.skew.rolled_back()
        self.incarnations.begun.clear()
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:  # SQLite rolls back automatically on a full disk
                self.connection.execute("rollback")
        if isinstance(because, sqlite3.Error):
            error = store_error(because, self._path)
            if getattr(because, "sqlite_errorname", "") in _NO_ROOM and self._reserve.release():
                self._empty_log(1)
                raise RunAgain(str(error)) from because
            if error is not because:
                raise error from because

    def _empty_log(self, pages: int) -> None:
        """Checkpoint now and whenever the log has this number of pages; 0 restores the usual threshold."""
        self._is_full = pages > 0
        with suppress(sqlite3.Error):
            self.connection.execute(f"pragma wal_autocheckpoint = {pages or store_limits.WAL_PAGES}").fetchone()
            if pages:
                self.connection.execute("pragma wal_checkpoint(passive)").fetchone()

    # --- queues ---

    @override
    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int = 0) -> list[Sent]:
        # If the disk has room beyond what draining the queues needs.
        self._reserve.check(drafts, self.connection, self._transactions)
        if self._is_full:
            self._empty_log(0)
        return super().send(queue, drafts, now_ms, ahead)

    @override
    def _check_clock(self, now_ms: int) -> None:
        skew = self._spans.skew
        if skew.seen_ms <= now_ms < skew.next_end_ms:  # nearly always
            skew.seen_ms = now_ms
        else:
            self._spans.end_spans(now_ms)

    # --- the file ---

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement of the caller.

        Raises:
            StoreError: if the statement would end the transaction.
        """
        if re.match(
            r"\s*(begin|commit|end|rollback|savepoint|release|pragma|attach|detach|vacuum)\b", sql, re.IGNORECASE
        ):
            raise StoreError(f"{sql.strip()[:60]!r} is not allowed here; leave the block to commit, raise to roll back")
        return self.connection.execute(sql, parameters)

    def attempt(self, sql: str, rows: Sequence[Sequence[Any]]) -> bool:
        """Run a statement of the caller for each row, all or none; return False if one was refused."""
        self.connection.execute("savepoint inturn_attempt")
        try:
            self.connection.executemany(sql, rows)
        except sqlite3.Error:
            if not self.connection.in_transaction:  # such as after a full disk
                raise
            self.connection.execute("rollback to inturn_attempt")
            return False
        finally:
            if self.connection.in_transaction:
                self.connection.execute("release inturn_attempt")
        return True

    def backup(self, target: str) -> None:
        """Copy the file while it is in use."""
        if self._path == ":memory:":
            raise InputError("a database in memory has no file to copy; open a file to make backups")
        backup(self._file, target)

    def clean(self) -> None:
        """Rewrite the file and empty its log, so that neither has removed content.

        Raises:
            StoreError: if another process uses the file for too long; nothing is lost then.
        """
        if self._path != ":memory:":
            clean(self._file)

    def close(self) -> None:
        """Close the file."""
        self.reads.close()
        release_files(self.connection, self._files)
        if not self._files.are_lost:
            self._reserve.shrink()


def _opened(
    opening: Callable[[], tuple[sqlite3.Connection, Files]], reserve: Reserve
) -> tuple[sqlite3.Connection, Files, bool]:
    """Connect; on a full disk, release the reserve for the log and index, and return True as third."""
    try:
        return *opening(), False
    except StoreError as error:
        if not isinstance(error.__cause__, sqlite3.Error) or not reserve.release():
            raise
        return *opening(), True
