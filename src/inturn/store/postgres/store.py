"""The PostgreSQL store: its connection and transactions; receiver_lock.py describes the locks in them."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors

from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError, StoreError, StoreUnavailable
from inturn.faults import reach
from inturn.store import limits as store_limits
from inturn.store.drivers import refuse_driver
from inturn.store.failures import Busy, RunAgain
from inturn.store.postgres.caller_transaction import CallerQueues, CallerTransaction
from inturn.store.postgres.cleaning import clean
from inturn.store.postgres.connection import PLANNING, connect, plainly, store_error
from inturn.store.postgres.listener import Listener
from inturn.store.postgres.queues import PostgresQueues
from inturn.store.postgres.servers import PostgresServers
from inturn.store.postgres.statements import Wire
from inturn.store.sql.transaction import SqlTransaction
from inturn.telemetry.events import EventLogger

BACKUP = (
    "inturn does not back up PostgreSQL databases; use pg_dump and pg_restore, or the server's own backups. After a "
    "restore no command is needed: each process begins a new incarnation, so later positions are refused"
)
"""The error text for backups."""
_ENDS = re.compile(
    r"\s*(begin|start|commit|end|rollback|abort|savepoint|release|prepare\s+transaction|vacuum|set|reset|discard)\b",
    re.IGNORECASE,
)


_LOG = EventLogger("store")


class PostgresStore(PostgresQueues):
    """A store in a PostgreSQL database, which several processes on several machines may use.

    Args:
        url: ``postgresql://user@host/database``.
        durable: whether a commit waits until it is on the server's disk.
        create: whether to create the tables if there are none.
        busy_s: time for which a transaction of the caller waits for locks, and a connection for the server.

    Raises:
        StoreError: if the database cannot be used; the message states the reason.
        StoreMismatch: if a newer version of inturn has changed its tables so that this one cannot use them.
    """

    identity: str

    def __init__(self, url: str, *, durable: bool = True, create: bool = True, busy_s: float = limits.BUSY_S) -> None:
        self._url = url
        self._durable, self._busy_s = durable, busy_s
        timeout_s = None if busy_s == limits.BUSY_S else busy_s
        self._connection, self._planning = connect(url, durable=durable, create=create, timeout_s=timeout_s)
        super().__init__(Wire(self._connection.pgconn), ends_spans=True)
        self.servers = PostgresServers(self.wire.one, self.wire.all, self.wire.queue)
        self._transaction = SqlTransaction(self.begin, self.commit, self.roll_back)
        self._run = _ServerRun("", frozenset())
        self._identify()
        self._clock = (0, 0.0)  # the server's time, and this machine's monotonic time at the same moment
        self._is_lasting = self._lasts_next = False
        self._listener: Listener | None = None
        self._adopted: WeakKeyDictionary[Any, CallerQueues] = WeakKeyDictionary()
        with self.transaction():
            (self._channel,) = self.wire.one("notify_channel")

    # --- transactions ---

    def is_identity(self, identity: str) -> bool:
        """Return whether this is the identity of these tables, maybe of another store that has them open.

        A restart of the server changes the identity. This connection notices a restart only when it is next used, so
        a different identity is checked on a new connection.
        """
        if identity != self.identity:
            with plainly(self._url) as another:
                self.identity = str(Wire(another.pgconn).one("database_identity")[0])
        return identity == self.identity

    def transaction(self) -> SqlTransaction:
        """Open a transaction, which commits when the block ends and rolls back if it raises."""
        return self._transaction

    def lasting(self) -> AbstractContextManager[None]:
        """Open a transaction of the caller, which may be long.

        It waits for locks, since only the caller knows its other work.
        """
        self._lasts_next = True
        return self.transaction()

    def clock(self) -> int:
        """Return the server's time, which is the same for all its clients, in milliseconds since 1970."""
        ms, read_s = self._clock
        return ms + int((time.monotonic() - read_s) * 1000)

    def begin(self) -> None:
        """Begin a transaction and read the changes of other processes."""
        self._is_lasting, self._lasts_next = self._lasts_next, False
        self.wire.noted = None
        try:
            self.locks.begin()
            self._check_server()
            if self._is_lasting:
                self.wire.queue_text(f"set local lock_timeout = '{round(self._busy_s * 1000)}ms'")
            reach("in transaction")
        except BaseException as error:
            self.roll_back(error)
            raise

    def listen(self, heard: Callable[[], None]) -> float:
        """Call back when another process has put messages into a queue.

        Returns:
            The interval in seconds at which to poll all the same.
        """
        if self._listener is None:
            self._listener = Listener(self._url, self._channel, self._is_own, heard)
        return store_limits.LISTEN_POLL_S if self._listener.is_listening else limits.POLL_S

    def adopt(self, connection: Any, clock: Callable[[], int] | None) -> CallerTransaction:
        """Wrap a caller's connection so that commands run in its transaction.

        Raises:
            InputError: if it is not a psycopg connection.
        """
        if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            refuse_driver(connection, "psycopg")
        queues = self._adopted.get(connection)
        if queues is None:
            queues = self._adopted[connection] = CallerQueues(connection, self._channel, self.is_identity)
        return CallerTransaction(connection, queues, clock, self.identity)

    def _is_own(self, pid: int) -> bool:
        return bool(pid == self._connection.pgconn.backend_pid)

    def _identify(self) -> None:
        self.identity = str(self.wire.one("database_identity")[0])
        # It differs after a reconnect if a dump has replaced the tables.
        self.lineage = b"".join(value.to_bytes(8, "big", signed=True) for (value,) in self.wire.all("lineage"))
        self._run = _ServerRun("", frozenset())  # unknown on a server that does not report it
        with suppress(psycopg.Error):
            timeline, processes = self.wire.one("server_run")
            self._run = _ServerRun(str(timeline), frozenset(str(processes or "").split()))

    def _check_server(self) -> None:
        if self._connection.closed:
            self._reconnect()
        try:
            ms, version = self._begun()
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
            self._reconnect()  # lost between transactions, as by a restart: nothing is lost
            ms, version = self._begun()
        before = self.clock()
        # A difference of less than a second is jitter of the clocks, and no reason to correct deadlines.
        self._clock = (before if before - 1000 < ms < before else ms), time.monotonic()
        self.catalog.refresh(version)

    def _begun(self) -> tuple[int, int]:
        self.wire.queue_text("begin")
        ms, version = self.wire.one("now")
        return ms, version

    def _reconnect(self) -> None:
        pause_s, began = 0.02, time.monotonic()
        while True:
            try:
                self._connection, self._planning = connect(self._url, durable=self._durable, create=False)
            except StoreError:
                if time.monotonic() + pause_s > began + store_limits.RECONNECT_S:
                    raise
                time.sleep(pause_s)
                pause_s *= 2
            else:
                self.wire.use(self._connection.pgconn)
                self._identify()
                self.incarnations.renew()
                self.catalog.forget()
                self.ready.forget()
                text = "the connection to %(database)s was lost, and opened again after %(took_s).3f s"
                name = shown(self._url)
                _LOG.warning("reconnect", name, text, database=name, took_s=time.monotonic() - began)
                return

    def commit(self) -> None:
        """Commit the transaction; if the connection is lost meanwhile, find out whether it was committed.

        Raises:
            RunAgain: if it was not committed.
            StoreUnavailable: if that is unknown, or it was not committed and belongs to a caller.
        """
        try:
            reach("before commit")
            committed = self.wire.queue_text("commit")
            self.locks.notify(self._channel)
        except BaseException as error:
            self.roll_back(error)
            raise
        try:
            self.wire.flush()
        except psycopg.Error as error:
            if committed.is_done:  # only the notification failed: other processes find the change when they poll
                return
            was_lost = self._connection.closed
            if not (was_lost and self._is_committed(error)):
                self.roll_back(error, was_lost=was_lost)
                raise
        self.spans.skew.committed()
        reach("after commit")

    def _is_committed(self, because: psycopg.Error) -> bool:
        """Return whether a transaction was committed whose connection was lost before the answer; reconnect first.

        Raises:
            StoreUnavailable: if this is unknown: the server cannot be reached, still runs the transaction, is another
                server, has crashed, or was not asked for the transaction's id.
        """
        noted, run = self.wire.noted, self._run
        status = ""
        if noted is not None and noted.rows and run.timeline:
            with suppress(StoreError, psycopg.Error):
                self._reconnect()
                if self._run.continues(run):
                    status = self._status_of(noted.rows[0])
        if status not in ("committed", "aborted"):
            self._reset()
            raise StoreUnavailable(
                f"{store_error(because, self._url)}: the connection was lost during the commit, so it is unknown "
                "whether the transaction was committed; messages sent again with the same dedup_id are not duplicated"
            ) from because
        return status == "committed"

    def _status_of(self, transaction: Sequence[Any]) -> str:
        """Return the status of a transaction whose connection was lost; wait until the server has noticed the loss."""
        until = time.monotonic() + store_limits.RECONNECT_S
        while True:
            status = str(self.wire.one("transaction_status", *transaction)[0])
            if status != "in progress" or time.monotonic() > until:
                return status
            time.sleep(limits.POLL_S)

    def roll_back(self, because: BaseException, *, was_lost: bool = False) -> None:
        """Roll back the transaction and translate its error; ``was_lost``: the connection was lost and replaced.

        Raises:
            RunAgain: if the error is a deadlock, a serialization failure or a lost connection, and the transaction is
                not a caller's.
            Busy: if another transaction, which may be long, holds a lock.
            StoreError: if it is another error of the database; the message states it.
        """
        is_lost = was_lost or self._connection.closed
        self._reset()
        if isinstance(because, errors.LockNotAvailable) and not self._is_lasting:
            raise Busy(str(store_error(because, self._url))) from because
        if isinstance(because, errors.DeadlockDetected | errors.SerializationFailure):
            raise RunAgain(str(because)) from because
        if isinstance(because, psycopg.OperationalError | psycopg.InternalError):
            error = store_error(because, self._url)
            if is_lost:
                kind = StoreUnavailable if self._is_lasting else RunAgain
                raise kind(f"{error}: the connection was lost, and the transaction was rolled back") from because
            raise error from because

    def _reset(self) -> None:
        """Forget the reads and changes of the transaction, and roll it back if there is still a connection."""
        self.wire.forget()
        self.catalog.forget()
        self.kept.trim_due()
        self.sends.look_again()
        self.spans.skew.rolled_back()
        self.incarnations.begun.clear()
        with suppress(psycopg.Error):
            if not self._connection.closed:
                self.wire.queue_text("rollback")
                self.wire.flush()

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> "psycopg.Cursor[Any]":
        """Run an SQL statement of the caller, with the server's planner settings.

        Raises:
            StoreError: if the statement would end the transaction or change the connection.
        """
        if _ENDS.match(sql):
            raise StoreError(f"{sql.strip()[:60]!r} is not allowed here; leave the block to commit, raise to roll back")
        self.wire.flush()
        connection = self._connection
        cursor = psycopg.Cursor(connection)
        with connection.pipeline():
            self._plan_as(connection, self._planning)
            cursor.execute(sql.encode(), parameters or None, prepare=False)
            self._plan_as(connection, PLANNING)
        return cursor

    def attempt(self, sql: str, rows: Sequence[Sequence[Any]]) -> bool:
        """Run a statement of the caller for each row, all or none; return False if one was refused or met a lock."""
        self.wire.flush()
        connection = self._connection
        try:
            with connection.transaction(), connection.cursor() as cursor:  # a savepoint
                cursor.executemany(sql.encode(), rows)
        except psycopg.Error:
            if connection.broken:
                raise
            return False
        return True

    @staticmethod
    def _plan_as(connection: "psycopg.Connection[Any]", settings: Mapping[str, str]) -> None:
        calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
        connection.execute(f"select {calls}".encode())

    def backup(self, target: str) -> None:  # noqa: ARG002 - as every store has it
        """Refuse the backup: PostgreSQL has its own tools.

        Raises:
            InputError: always.
        """
        raise InputError(BACKUP)

    def clean(self) -> None:
        """Rewrite the tables with messages and results, so that their files have no removed content.

        Raises:
            StoreError: if another transaction uses a table for too long, or the role may not; nothing is lost then.
        """
        clean(self._url)

    def close(self) -> None:
        """Stop the listener and close the connection."""
        if self._listener is not None:
            self._listener.stop()
        self._connection.close()


class _ServerRun(NamedTuple):
    """A run of a server, in which no transaction number is assigned twice.

    A crash ends it: the server then reuses numbers of transactions that were not on the disk.

    Attributes:
        timeline: the scope of transaction numbers; empty: unknown.
        processes: the server's own processes, of which none outlives a crash.
    """

    timeline: str
    processes: frozenset[str]

    def continues(self, before: "_ServerRun") -> bool:
        """Return whether this is certainly the run that was there before."""
        return self.timeline == before.timeline and not self.processes.isdisjoint(before.processes)
