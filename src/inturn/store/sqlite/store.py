"""The store over SQLite: its transactions, and the parts that do what is asked in them."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from inturn import faults
from inturn.core import limits
from inturn.core.errors import InputError, StoreError
from inturn.core.queue.delivery import Settlement, SettleResult
from inturn.core.queue.messages import Delivery, Draft, QueueInfo, ReceiveRequest, Sent
from inturn.core.queue.sessions import SessionAnswer, SessionRequest
from inturn.store.protocols import RunAgain
from inturn.store.sqlite.backup import backup
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.clock_skew import FutureSpans
from inturn.store.sqlite.connection import connect, identity_of, store_error
from inturn.store.sqlite.file import OWNER_ONLY, Files, Reserve, let_go
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.incarnations import SqliteIncarnations
from inturn.store.sqlite.inspection import SqliteInspection
from inturn.store.sqlite.keys import SqliteKeys
from inturn.store.sqlite.leases import Leases
from inturn.store.sqlite.pipelines import SqlitePipelines
from inturn.store.sqlite.rates import SqliteRates
from inturn.store.sqlite.ready_groups import ReadyGroups
from inturn.store.sqlite.receives import Receives
from inturn.store.sqlite.sends import Sends
from inturn.store.sqlite.servers import SqliteServers
from inturn.store.sqlite.sessions import SqliteSessions
from inturn.store.sqlite.settlements import Removals, Settlements

_NO_ROOM: Final = {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}


class SqliteStore:
    """Queues in one SQLite file, which several processes may have open.

    Args:
        path: the file, created if it does not exist; ``:memory:`` for none.
        durable: whether a commit waits until it is on the disk. If not, a power failure may lose the last commits,
            though never a part of one; the death of the process loses none.
        mode: permissions of the file, if it is created.

    Attributes:
        connection: to the file.
        catalog: the queues.
        pending: the pending messages of groups.

    Raises:
        StoreError: if the file cannot be used; the text says why.
    """

    def __init__(self, path: str, *, durable: bool = True, mode: int = OWNER_ONLY) -> None:
        self._reserve = Reserve(path)
        self.connection, self._files, is_full = _opened(path, self._reserve, durable=durable, mode=mode)
        self._path = path
        self._waits = True
        self._transactions = 0
        self._empty_log(1 if is_full else 0)
        self.identity, self.lineage = identity_of(self.connection, path)
        self._transaction = _SqliteTransaction(self)

        to = self.connection
        self.catalog: Final = SqliteCatalog(to)
        self.pending: Final = GroupIndex(to, self.catalog)
        self._spans = FutureSpans(to)
        self._incarnations = SqliteIncarnations(to)
        locks = SqliteGroupLocks(to)
        leases = Leases(to, self.pending)
        line = ReadyGroups(to, self.pending, locks, leases)
        removals = Removals(to, self.catalog, self.pending, leases, line, self._incarnations)
        self._sends = Sends(to, self.catalog, self.pending, self._incarnations)
        self._receives = Receives(to, self.catalog, self.pending, locks, leases, line, removals, self._spans)
        self._settlements = Settlements(to, self.catalog, self.pending, locks, leases, line, removals)
        self._sessions = SqliteSessions(to, self.catalog, self.pending, locks, leases, line, self._receives)
        inspection = SqliteInspection(to, self.pending, locks, leases)
        self.read: Final = inspection.read
        self.depth: Final = inspection.depth
        self.groups: Final = inspection.groups
        self.parked: Final = self._sessions.parked
        self.decide: Final = SqliteKeys(to).decide
        self.rates: Final = SqliteRates(to)
        self.pipelines: Final = SqlitePipelines(to)
        self.servers: Final = SqliteServers(self)

    # --- transactions ---

    def is_identity(self, identity: str) -> bool:
        """Return whether this is the identity of this file, which another store may have opened."""
        return identity == self.identity

    def transaction(self) -> "_SqliteTransaction":
        """Return a transaction for ``with``: committed at the end of the block, rolled back if it raises."""
        return self._transaction

    def lasting(self) -> "_SqliteTransaction":
        """Return the same as ``transaction``: there is one writer at a time."""
        return self.transaction()

    def begin(self, *, wait: bool = True) -> None:
        """Take the write lock, unless ``wait`` only if no process holds it; refresh what others have changed."""
        try:
            if self._files.are_lost:
                self._files.check()
            self._transactions += 1
            if wait is not self._waits:
                self.connection.execute(f"pragma busy_timeout = {limits.BUSY_S * 1000 if wait else 0}").fetchone()
                self._waits = wait
            self.connection.execute("begin immediate")
            if faults.is_set:
                faults.reach("in transaction")
            if self.catalog.look():
                self.pending.look()
                if self.catalog.has_lost:
                    self._incarnations.renew()
        except BaseException as error:
            self.roll_back(error)
            raise

    def commit(self) -> None:
        """Commit the transaction."""
        try:
            self.catalog.save_counts()
            if faults.is_set:
                faults.reach("before commit")
            self.connection.execute("commit")
            self._files.check()  # raise if the commit went to a deleted or replaced file
            self.pending.commit()
            if self._spans.skew.told:
                self._spans.skew.kept()
            self._reserve.is_tried = False
            if faults.is_set:
                faults.reach("after commit")
        except BaseException as error:
            self.roll_back(error)
            raise

    def roll_back(self, because: BaseException) -> None:
        """Roll back the transaction.

        Raises:
            StoreError: if the cause is an error of the database; the text says what is wrong.
            RunAgain: if the disk was full and the reserve was released.
        """
        self.catalog.forget()
        self.pending.roll_back()
        self._spans.skew.lost()
        self._incarnations.begun.clear()
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:  # SQLite rolls back by itself on a full disk
                self.connection.execute("rollback")
        if isinstance(because, sqlite3.Error):
            told = store_error(because, self._path)
            if getattr(because, "sqlite_errorname", "") in _NO_ROOM and self._reserve.release():
                self._empty_log(1)
                raise RunAgain(str(told)) from because
            if told is not because:
                raise told from because

    def _empty_log(self, pages: int) -> None:
        """Checkpoint now and whenever the log has so many pages; 0 restores the usual threshold."""
        self._is_full = pages > 0
        with suppress(sqlite3.Error):
            self.connection.execute(f"pragma wal_autocheckpoint = {pages or limits.WAL_PAGES}").fetchone()
            if pages:
                self.connection.execute("pragma wal_checkpoint(passive)").fetchone()

    # --- queues ---

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return self.catalog.queues

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Create, change or remove a queue."""
        self.pending.nonempty.clear()
        if name in self.queues and (info is None or purge):
            self.pending.forget(self.queues[name].number)
        self.catalog.save(name, info, purge=purge)

    def incarnation(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a sequence number was given."""
        return self._incarnations.of(queue.number, number)

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Append messages to a queue, if the disk has room beyond what draining the queues needs."""
        self._reserve.check(drafts, self.connection, self._transactions)
        if self._is_full:
            self._empty_log(0)
        self._look_at_clock(now_ms)
        return self._sends.send(queue, drafts, now_ms)

    def receive(self, queue: QueueInfo, wants: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        self._look_at_clock(now_ms)
        return self._receives.receive(queue, wants, now_ms)

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, give back, move, defer or cancel messages."""
        self._look_at_clock(now_ms)
        return self._settlements.settle(queue, changes, now_ms)

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Run a session request on a group, with its effects on messages; None: the next group that can be locked."""
        self._look_at_clock(now_ms)
        return self._sessions.session(queue, group, request, now_ms)

    def _look_at_clock(self, now_ms: int) -> None:
        skew = self._spans.skew
        if skew.seen_ms <= now_ms < skew.next_end_ms:  # nearly always
            skew.seen_ms = now_ms
        else:
            self._spans.look(now_ms)

    # --- the file ---

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement of the caller.

        Raises:
            StoreError: if the statement would end the transaction.
        """
        if re.match(
            r"\s*(begin|commit|end|rollback|savepoint|release|pragma|attach|detach|vacuum)\b", sql, re.IGNORECASE
        ):
            raise StoreError(f"{sql.strip()[:60]!r} cannot be run here: leave the block to commit, raise to roll back")
        return self.connection.execute(sql, parameters)

    def backup(self, target: str) -> None:
        """Copy the file while it is in use."""
        if self._path == ":memory:":
            raise InputError("a database in memory has no file to be copied")
        backup(self._path, target)

    def close(self) -> None:
        """Close the file."""
        let_go(self.connection, self._files)
        if not self._files.are_lost:
            self._reserve.shrink()


def _opened(path: str, reserve: Reserve, *, durable: bool, mode: int) -> tuple[sqlite3.Connection, Files, bool]:
    """Connect; on a full disk, release the reserve for the log and index, and return True as third."""
    try:
        return *connect(path, durable=durable, mode=mode), False
    except StoreError as error:
        if not isinstance(error.__cause__, sqlite3.Error) or not reserve.release():
            raise
        return *connect(path, durable=durable, mode=mode), True


class _SqliteTransaction:
    """One transaction of a store; a plain class, since a generator-based one costs as much as a statement."""

    __slots__ = ("_store",)

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._store.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._store.commit()
        else:
            self._store.roll_back(error)
