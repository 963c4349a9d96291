"""Databases of queues: opening, queues, and the caller's transactions.

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
from typing import Any, Self, TypeVar, cast

from inturn.core import limits
from inturn.core.address import checked_target, is_address, shown
from inturn.core.arguments import check_type
from inturn.core.errors import InputError, QueueExists, SetupError, StoreError, TransactionOver
from inturn.core.queue.messages import QueueInfo, QueueSettings, checked_name
from inturn.core.texts import checked_text
from inturn.idempotency.keys import DatabaseKeys
from inturn.queue.operation import operation
from inturn.queue.queue import Queue, check_dead_letter
from inturn.results.inspection import DatabaseInspector
from inturn.results.pipeline import PipelineResults
from inturn.store.commands import Command, Read, StoreCall
from inturn.store.drivers import adopted
from inturn.store.protocols import QueueAndPipelineStore, SqlStore, Store
from inturn.store.sqlite import SqliteStore, check_there
from inturn.store.sqlite.file import OWNER_ONLY, checked_mode
from inturn.store.writer.group_commit import Writer
from inturn.store.writer.reading import ReadingWriter
from inturn.store.writer.settings import WriterSettings, wall_clock_ms
from inturn.telemetry.figures import Figures

T = TypeVar("T")


def open(  # noqa: A001 - inturn.open, as sqlite and shelve have it
    target: str | Path,
    *,
    create: bool = True,
    durable: bool = True,
    mode: int | None = None,
    clock: Callable[[], int] | None = None,
    busy_s: float = limits.BUSY_S,
) -> "Database":
    """Open a database of queues, and create it if it does not exist.

    Args:
        target: an SQLite file such as ``shop.db``; ``:memory:`` for a database that ends with the process; or a
            PostgreSQL database, ``postgresql://user@host/shop``, with tables in the first schema of its
            ``search_path``.
        create: whether to create the database. If False, a database without queues is refused and left untouched.
        durable: whether each call returns only once its commit is on the disk. If False, a power failure or a crash of
            the machine may lose the last transactions, each as a whole. A crash of the process loses nothing, and the
            database stays sound.
        mode: permissions of a new file and its ``-wal``, ``-shm`` and ``-reserve``, such as ``0o640``, regardless of
            the umask; None: ``0o600``, the owner only. An existing file keeps its mode.
        clock: a function that returns milliseconds since 1970, for tests; None: this machine's clock or, with
            PostgreSQL, the server's.
        busy_s: the time in seconds for which a command waits for another process that holds a lock that it needs, or
            for a server that does not accept connections.

    Raises:
        StoreError: if the database is read-only, corrupt, unreachable or not a database, the disk is full or, with
            ``create=False``, the database does not exist.
        StoreMismatch: if a newer version of inturn wrote it.
        InputError: if the kind of the target is unknown, or an argument is invalid.
        SetupError: if psycopg is not installed, for PostgreSQL.
    """
    check_type("busy_s", busy_s, int | float, "a number of seconds")
    check_type("clock", clock, Callable | None, "a function that returns milliseconds since 1970")
    text = str(target) if isinstance(target, Path) else checked_target(target)
    if is_address(text):
        if mode is not None:
            msg = f"mode is {mode!r}, but only a file has a mode; use GRANT to control access to a PostgreSQL database"
            raise InputError(msg)
        return _open_postgres(text, create=create, durable=durable, clock=clock, busy_s=busy_s)
    if "://" in text:
        scheme = text.split("://", maxsplit=1)[0]
        raise InputError(f"unknown scheme {scheme!r}; expected an SQLite file, such as shop.db, or postgresql://…")
    if not create:
        check_there(text)
    elif Path(text).is_dir():
        raise StoreError(f"target is {text!r}, a directory; expected a file in it, such as shop.db")
    new = OWNER_ONLY if mode is None else checked_mode(mode)
    store = SqliteStore(text, durable=durable, mode=new, busy_s=busy_s)
    clock = clock or wall_clock_ms
    adopt = partial(adopted, adopt=partial(store.adopt, clock=clock))
    reading = None if text in {"", ":memory:"} else store.reads.begin
    settings = WriterSettings(
        store.is_identity, lambda: store.identity, adopt, busy_s=busy_s, single=store.lasting, reading=reading
    )
    return Database(store, clock, settings, text, text)


def _open_postgres(
    url: str, *, create: bool, durable: bool, clock: Callable[[], int] | None, busy_s: float
) -> "Database":
    try:
        from inturn.store.postgres import PostgresStore
    except ImportError as error:
        raise SetupError(f"PostgreSQL needs psycopg: pip install 'inturn[postgres]' ({error})") from error
    store = PostgresStore(url, durable=durable, create=create, busy_s=busy_s)
    adopt = partial(adopted, adopt=partial(store.adopt, clock=clock))
    settings = WriterSettings(store.is_identity, lambda: store.identity, adopt, store.listen, busy_s)
    return Database(store, clock or store.clock, settings, shown(url), url)


class Database:
    """Queues in one database, for any number of threads and tasks; see :func:`open`.

    Attributes:
        name: the file, or the address without its password; it names the database in metrics.
        target: the file, or the address with its password, by which it was opened; empty if created from a store.
    """

    def __init__(
        self,
        store: SqlStore,
        clock: Callable[[], int] = wall_clock_ms,
        settings: WriterSettings | None = None,
        name: str = "",
        target: str = "",
    ) -> None:
        self.store = store
        self.name = name
        self.target = target
        self.writer: Writer = ReadingWriter(
            store, clock, settings or WriterSettings(store.is_identity, lambda: store.identity)
        )
        self.writer.database = name

    def __enter__(self) -> Self:
        """Return the database, to be closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the database."""
        self.close()

    def close(self) -> None:
        """Close the database: finish running commands, and end waiting receives with an error."""
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
        """Return a queue, and create it if it does not exist.

        Args:
            name: the queue's name, 1 to 200 characters.
            settings: the settings it must have; None: any, and the defaults for a new queue.
            create: whether to create it if it does not exist.
            tx: the caller's transaction.

        Raises:
            QueueExists: if it exists with different settings; ``Queue.configure`` changes them.
            NoSuchQueue: if it does not exist and ``create`` is False.
        """
        if create:
            self.create(name, settings, tx)
        elif settings is not None:
            msg = f"settings and create=False exclude each other; change queue {name!r} with configure()"
            raise InputError(msg)
        else:
            Queue(self.writer, name).info(tx)
        return Queue(self.writer, name)

    @operation
    def create(
        self, name: str, settings: QueueSettings | None = None, tx: "Transaction | None" = None
    ) -> Command[QueueInfo]:
        """Create a queue if it does not exist, and return its metadata.

        Raises:
            QueueExists: if it exists with different settings.
            NoSuchQueue: if its dead_letter queue does not exist.
        """
        checked_name(name)
        check_type("settings", settings, QueueSettings | None, "a QueueSettings(…), or None")

        def make(store: Store, now_ms: int) -> QueueInfo:
            info = store.queues.get(name)
            if settings is not None:
                check_dead_letter(store, name, settings)
            if info is None:
                info = QueueInfo(0, name, settings or QueueSettings(), now_ms)
                store.save(name, info)
            elif settings is not None and settings != info.settings:
                different = _differences(info.settings, settings)
                msg = f"queue {name!r} exists with different settings: {different}; change them with configure()"
                raise QueueExists(msg)
            return deepcopy(info)

        return StoreCall(name, make).within(tx)

    @operation
    def queues(self) -> Command[list[str]]:
        """Return the names of all queues."""
        return Read("", lambda store, _now_ms: sorted(store.queues))

    def pipeline(self, name: str) -> PipelineResults:
        """Return the results of a pipeline: states, outputs, rejected messages, parked groups and counts.

        They are empty until a worker has run the pipeline over this database; :meth:`pipelines` returns the names of
        the pipelines with results.
        """
        return PipelineResults(DatabaseInspector(self, checked_text("pipeline", name), must_exist=False))

    @operation
    def pipelines(self) -> Command[list[str]]:
        """Return the names of the pipelines with results."""
        return Read("", lambda store, _now_ms: sorted(cast("QueueAndPipelineStore", store).pipelines.names()))

    @operation
    def figures(self) -> Command[Figures]:
        """Return the figures of all queues, pipelines and sources, as metrics show them."""

        def look(store: Any, now_ms: int) -> Figures:
            parts: SqlStore = store
            infos = [info for name in parts.pipelines.names() if (info := parts.pipelines.info(name)) is not None]
            of_pipelines = [parts.servers.pipeline_figures(info, now_ms) for info in infos]
            return Figures(parts.servers.figures(now_ms), of_pipelines, parts.sources.figures(now_ms))

        return Read("", look)

    def backup(self, target: str | Path) -> None:
        """Copy the file as of one moment, while it is in use; no reader or writer is blocked.

        ``cp`` of an open file yields a state that never existed, without the latest commits. ``inturn restore``
        replaces a file with the copy.

        Args:
            target: the copy, which must not exist.

        Raises:
            StoreError: if the target exists or cannot be written, or the file is damaged.
            InputError: if the database is not a file.
        """
        self.store.backup(str(target))

    def idempotency_keys(self, name: str) -> DatabaseKeys:
        """Return the idempotency keys of a name, separate from those of other names. Nothing needs to be created.

        Args:
            name: 1 to 200 characters.

        Raises:
            InputError: if the name is not valid.
        """
        return DatabaseKeys(self.writer, name)

    def transaction(self) -> "Transaction":
        """Return a transaction for your own SQL and for verbs, for ``with`` and ``async with``.

        On SQLite it holds the only write lock, so all other writers wait; on PostgreSQL only those of this ``Database``
        do. It is rolled back after ``limits.TRANSACTION_S`` seconds.
        """
        return Transaction(self.writer, self.store)


def _differences(existing: QueueSettings, new: QueueSettings) -> str:
    fields = [name for name in QueueSettings.__dataclass_fields__ if getattr(existing, name) != getattr(new, name)]
    return ", ".join(f"{name} is {getattr(existing, name)!r}, not {getattr(new, name)!r}" for name in fields)


class Transaction:
    """A transaction over the database: pass it to verbs as ``tx=``, and run your own SQL in it.

    It is committed at the end of its block, and rolled back if the block raises.
    """

    def __init__(self, writer: Writer, store: SqlStore) -> None:
        self._writer = writer
        self._store = store
        self._unit: AbstractContextManager[None] | None = None
        self._mutex = threading.RLock()  # against the alarm, which rolls back at the time limit
        self._until = 0.0
        self._is_over = False

    def __enter__(self) -> Self:
        """Wait for the current writer, then begin."""
        self._writer.take_lead(self)
        return self._begun()

    async def __aenter__(self) -> Self:
        """Wait for the current writer, then begin."""
        await self._writer.atake_lead(self)
        return self._begun()

    @property
    def identity(self) -> str:
        """The identity of the open database."""
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
        """Commit or, after an error, roll back."""
        with self._mutex:
            if self._is_over:
                if kind is None:
                    raise _over()
                return
            self._end(kind, error, trace)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit or, after an error, roll back."""
        # Blocks the event loop on purpose: an awaited commit could be cancelled and yet be done.
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
        """Roll back if the time limit has passed; otherwise return its end on the monotonic clock."""
        if not self._until:
            self._until = time.monotonic() + limits.TRANSACTION_S
        with self._mutex:
            if self._is_over:
                return None
            now = time.monotonic()
            if now < self._until:
                return self._until
            if self._unit is None:  # not begun yet
                return now + limits.POLL_S
            error = _over()
            with suppress(TransactionOver):
                self._end(TransactionOver, error, None)
            return None

    def execute(self, sql: str, parameters: tuple[Any, ...] | Mapping[str, Any] = ()) -> Any:
        """Run a statement of your own, and return a cursor of sqlite3 or psycopg.

        Args:
            sql: one statement; leave tables whose names begin with ``inturn_`` alone.
            parameters: values for ``?`` or ``:name`` on SQLite, for ``%s`` or ``%(name)s`` on PostgreSQL.

        Raises:
            TransactionOver: if the transaction has ended.
            sqlite3.Error: an error of SQLite.
            psycopg.Error: an error of PostgreSQL.
        """
        with self._mutex:
            self._check()
            return self._store.execute(sql, parameters)

    def run(self, command: Command[T]) -> T:
        """Run a command in this transaction; verbs do so when given ``tx=``."""
        with self._mutex:
            self._check()
            return command.answer(command.run(self._store, self._writer.clock()))

    async def arun(self, command: Command[T]) -> T:
        """Run a command in this transaction, without waiting, since there is no other writer."""
        return self.run(command)

    def _check(self) -> None:
        if self._is_over or self._unit is None:
            raise _over()


def _over() -> TransactionOver:
    return TransactionOver(
        f"the transaction has ended: its block was left, or it exceeded {limits.TRANSACTION_S} s and was rolled back"
    )
