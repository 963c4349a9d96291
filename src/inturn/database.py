"""A database of queues: where it is opened, its queues, and transactions of the caller's own.

db = inturn.open("shop.db")
payments = db.queue("payments")
with db.transaction() as tx:
    tx.execute("update account set …")
    message.ack(tx=tx)
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from inturn.core import limits
from inturn.core.address import checked_target, is_address
from inturn.core.envelope import QueueInfo, QueueSettings, checked_name
from inturn.core.errors import InputError, QueueExists, SetupError, TransactionOver
from inturn.idempotency.keys import DatabaseKeys
from inturn.queue.operation import operation
from inturn.queue.queue import Queue, check_dead_letter
from inturn.store.base import SqlStore, Store
from inturn.store.commands import Ask, Command
from inturn.store.sqlite import SqliteStore, check_there
from inturn.store.sqlite.file import OWNER_ONLY, checked_mode
from inturn.store.writer import Writer

T = TypeVar("T")


def wall_clock_ms() -> int:
    """The time of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def open(  # noqa: A001 - inturn.open, as sqlite and shelve have it
    target: str | Path,
    *,
    create: bool = True,
    durable: bool = True,
    mode: int | None = None,
    clock: Callable[[], int] | None = None,
) -> "Database":
    """Open a database of queues, which is made if it is not there.

    Args:
        target: an SQLite file, ``shop.db``; ``:memory:`` for one that ends with the process; or a PostgreSQL
            database, ``postgresql://user@host/shop``, in which tables are made in the first schema of its
            ``search_path``.
        create: whether it is made if it is not there. Without, one that has no queues yet is refused, untouched.
        durable: whether an answer waits until the disk has what was done. Without, the last moments before a power
            failure or a crash of the machine may be lost, whole transactions from the end; a crash of the process
            loses nothing, and the database stays sound.
        mode: who may read and write a new file, its ``-wal``, ``-shm`` and ``-reserve``, whatever the umask says, such
            as ``0o640``; None: its owner only, ``0o600``. A file that is there keeps its mode.
        clock: the time in milliseconds since 1970, for tests; None: this machine's, and with PostgreSQL the server's.

    Raises:
        StoreError: if the database cannot be used: read-only, corrupt, no database, not reached, or the disk is full;
            or, without ``create``, if it is not there.
        StoreMismatch: if a newer version of inturn has written it.
        InputError: if the target is of no known kind.
        SetupError: if psycopg is not installed, for PostgreSQL.
    """
    text = str(target) if isinstance(target, Path) else checked_target(target)
    if is_address(text):
        if mode is not None:
            msg = f"mode is {mode!r}, which is for a file; who may use a PostgreSQL database is said there, by GRANT"
            raise InputError(msg)
        return _open_postgres(text, create=create, durable=durable, clock=clock)
    if "://" in text:
        msg = f"{text.split('://', maxsplit=1)[0]!r}: name an SQLite file, such as shop.db, or a postgresql:// address"
        raise InputError(msg)
    if not create:
        check_there(text)
    new = OWNER_ONLY if mode is None else checked_mode(mode)
    return Database(SqliteStore(text, durable=durable, mode=new), clock or wall_clock_ms)


def _open_postgres(url: str, *, create: bool, durable: bool, clock: Callable[[], int] | None) -> "Database":
    try:
        from inturn.store.postgres import PostgresStore
    except ImportError as error:
        msg = f"for PostgreSQL psycopg is needed: pip install 'inturn[postgres]' ({error})"
        raise SetupError(msg) from error
    store = PostgresStore(url, durable=durable, create=create)
    db = Database(store, clock or store.clock)
    db.writer.poll = partial(store.listen, db.writer.wake)
    db.writer.adopt = partial(store.adopt, clock=clock)
    return db


class Database:
    """Queues in one database, for any number of threads and tasks; see :func:`open`."""

    def __init__(self, store: SqlStore, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.store = store
        self.writer = Writer(store, clock)
        self.writer.is_own, self.writer.identity = store.is_identity, lambda: store.identity

    def __enter__(self) -> Self:
        """It closes at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of the database: what is under way is finished, who waits for messages is told."""
        self.writer.close()
        self.store.close()

    def queue(
        self,
        name: str,
        settings: QueueSettings | None = None,
        *,
        create: bool = True,
        tx: "Transaction | None" = None,
    ) -> Queue:
        """A queue, which is made if it is not there.

        Args:
            name: what it is called, 1 to 200 characters.
            settings: how it delivers; None: as it does, and as usual if it is new.
            create: whether it is made if it is not there.
            tx: a transaction of the caller's.

        Raises:
            QueueExists: if it is there with other settings; ``Queue.configure`` changes them.
            NoSuchQueue: if it is not there, and not to be made.
        """
        if create:
            self.create(name, settings, tx)
        elif settings is not None:
            msg = f"settings are for a queue that may be made; of {name!r}, which is there, configure() changes them"
            raise InputError(msg)
        else:
            Queue(self.writer, name).info(tx)
        return Queue(self.writer, name)

    @operation
    def create(
        self, name: str, settings: QueueSettings | None = None, tx: "Transaction | None" = None
    ) -> Command[QueueInfo]:
        """Make a queue if it is not there; what is known of it is returned.

        Raises:
            QueueExists: if it is there with other settings.
            NoSuchQueue: if its dead_letter queue is not there.
        """
        checked_name(name)

        def make(store: Store, now_ms: int) -> QueueInfo:
            info = store.queues.get(name)
            if settings is not None:
                check_dead_letter(store, name, settings)
            if info is None:
                info = QueueInfo(0, name, settings or QueueSettings(), now_ms)
                store.save(name, info)
            elif settings is not None and settings != info.settings:
                msg = f"the queue {name!r} is there with other settings: {_differences(info.settings, settings)}"
                raise QueueExists(msg)
            return deepcopy(info)

        return Ask(name, make).within(tx)

    @operation
    def queues(self) -> Command[list[str]]:
        """The names of all queues."""
        return Ask("", lambda store, _now_ms: sorted(store.queues))

    def backup(self, target: str | Path) -> None:
        """Copy the file as it is at one moment, while it is used here and elsewhere; nobody waits for it.

        ``cp`` of a file that is open copies no state that it ever was in, and leaves out what was written last.
        ``inturn restore`` puts the copy in the place of a file.

        Args:
            target: of the copy, which is not there yet.

        Raises:
            StoreError: if it is there, cannot be written, or the file is damaged.
            InputError: if this is no file.
        """
        self.store.backup(str(target))

    def idempotency_keys(self, name: str) -> DatabaseKeys:
        """Idempotency keys; those of another name are others. There is nothing to make.

        Args:
            name: what they are called, 1 to 200 characters.

        Raises:
            InputError: if that is no name.
        """
        return DatabaseKeys(self.writer, name)

    def transaction(self) -> "Transaction":
        """Your own SQL and what is done with messages, all of it or nothing; for ``with`` and ``async with``.

        On SQLite it holds the only write lock, so all others wait meanwhile; on PostgreSQL all others of this
        ``Database`` do. It is rolled back after ``limits.TRANSACTION_S`` seconds.
        """
        return Transaction(self.writer, self.store)


def _differences(there: QueueSettings, asked: QueueSettings) -> str:
    fields = [name for name in QueueSettings.__dataclass_fields__ if getattr(there, name) != getattr(asked, name)]
    return ", ".join(f"{name} is {getattr(there, name)!r}, not {getattr(asked, name)!r}" for name in fields)


class Transaction:
    """One transaction over the database: give it to verbs as ``tx=``, and run your own SQL in it.

    It ends with its block: kept if the block is left plainly, rolled back if it raises.
    """

    def __init__(self, writer: Writer, store: SqlStore) -> None:
        self._writer = writer
        self._store = store
        self._unit: AbstractContextManager[None] | None = None
        self._mutex = threading.RLock()  # against the alarm, which ends what takes too long
        self._until = 0.0
        self._is_over = False

    def __enter__(self) -> Self:
        """Wait for who is writing, then begin."""
        self._writer.take_lead(self)
        return self._begun()

    async def __aenter__(self) -> Self:
        """The same in a task."""
        await self._writer.atake_lead(self)
        return self._begun()

    @property
    def identity(self) -> str:
        """Identify the open database that it belongs to."""
        return self._store.identity

    def _begun(self) -> Self:
        try:
            unit = self._store.lasting()
            unit.__enter__()
        except BaseException:
            self._writer.give_up_lead()
            raise
        self._unit = unit
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep it, or roll it back."""
        with self._mutex:
            if self._is_over:
                if kind is None:
                    raise _over()
                return
            self._end(kind, error, trace)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The same in a task."""
        # In the loop's own thread, which waits for the disk: an awaited commit could be cancelled and yet be done.
        self.__exit__(kind, error, trace)

    def _end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over = True
        unit, self._unit = self._unit, None
        try:
            if unit is not None:
                unit.__exit__(kind, error, trace)
        finally:
            self._writer.give_up_lead()

    def overdue(self) -> float | None:
        """Roll back if it has taken too long; else when it will have, by the monotonic clock."""
        if not self._until:
            self._until = time.monotonic() + limits.TRANSACTION_S
        with self._mutex:
            if self._is_over:
                return None
            now = time.monotonic()
            if now < self._until:
                return self._until
            if self._unit is None:  # it is about to begin
                return now + limits.POLL_S
            error = _over()
            with suppress(TransactionOver):
                self._end(TransactionOver, error, None)
            return None

    def execute(self, sql: str, parameters: tuple[Any, ...] | Mapping[str, Any] = ()) -> Any:
        """Run a statement of your own; a cursor of sqlite3 or of psycopg is returned.

        Args:
            sql: one statement; tables that begin with ``inturn_`` are not yours.
            parameters: for its ``?`` or ``:name`` on SQLite, its ``%s`` or ``%(name)s`` on PostgreSQL.

        Raises:
            TransactionOver: if the transaction has ended.
            sqlite3.Error: what SQLite has to say.
            psycopg.Error: what PostgreSQL has to say.
        """
        with self._mutex:
            self._check()
            return self._store.execute(sql, parameters)

    def run(self, command: Command[T]) -> T:
        """Run a command in this transaction; the verbs do it when they are given ``tx=``."""
        with self._mutex:
            self._check()
            return command.answer(command.run(self._store, self._writer.clock()))

    async def arun(self, command: Command[T]) -> T:
        """The same in a task: at once, since nobody else writes meanwhile."""
        return self.run(command)

    def _check(self) -> None:
        if self._is_over or self._unit is None:
            raise _over()


def _over() -> TransactionOver:
    return TransactionOver(
        f"the transaction is over: its block has ended, or it took {limits.TRANSACTION_S} s and was rolled back"
    )
