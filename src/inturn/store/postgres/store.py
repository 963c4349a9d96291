"""The store over PostgreSQL: its connection and its transactions; see desk.py for what is done in them."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors

from inturn.core import limits
from inturn.core.errors import InputError, StoreError
from inturn.faults import reach
from inturn.store.base import Busy, RunAgain
from inturn.store.postgres.adopted import Adopted, AdoptedQueues
from inturn.store.postgres.connection import PLANNING, connect, plainly, said
from inturn.store.postgres.listener import Listener
from inturn.store.postgres.queues import Queues
from inturn.store.postgres.servers import Servers
from inturn.store.postgres.statements import Wire, text_of

BACKUP = (
    "a database of PostgreSQL is copied by pg_dump, or by the server's own backups, and put back by pg_restore; who "
    "opens it then is a new incarnation by itself, so what was remembered of messages after the copy is refused"
)
"""What to tell of backups."""
_ENDS = re.compile(
    r"\s*(begin|start|commit|end|rollback|abort|savepoint|release|prepare\s+transaction|vacuum|set|reset|discard)\b",
    re.IGNORECASE,
)


class PostgresStore(Queues):
    """Queues in a PostgreSQL database; several processes, on several machines, may use it.

    Args:
        url: ``postgresql://user@host/database``.
        durable: whether a commit waits until the server's disk has it.
        create: whether tables are made if there are none.

    Raises:
        StoreError: if the database cannot be used; the words say why.
    """

    def __init__(self, url: str, *, durable: bool = True, create: bool = True) -> None:
        self._url = url
        self._durable = durable
        self._connection, self._planning = connect(url, durable=durable, create=create)
        super().__init__(Wire(self._connection.pgconn))
        self.servers = Servers(self.wire)
        self._transaction = _Transaction(self)
        self.identity = _identity_at(self._connection)
        self.lineage = _lineage_at(self._connection)
        self._clock = (0, 0.0)  # the server's, and this machine's monotonic one at the same moment
        self._is_lasting = False
        self._listener: Listener | None = None
        self._adopted: WeakKeyDictionary[Any, AdoptedQueues] = WeakKeyDictionary()
        with self.transaction():
            (self._channel,) = self._one("channel")

    # --- transactions ---

    def is_identity(self, identity: str) -> bool:
        """Say whether this is the identity of these tables, maybe opened by another store.

        The server may have been started again since, which this connection learns when it is used next.
        """
        if identity != self.identity:
            with plainly(self._url) as another:
                self.identity = _identity_at(another)
        return identity == self.identity

    def transaction(self) -> "_Transaction":
        """Everything inside is kept when the block ends, or nothing."""
        return self._transaction

    def lasting(self) -> AbstractContextManager[None]:
        """A transaction of the caller's: it waits for locks, since only it knows what else could be done meanwhile."""
        self._is_lasting = True
        return self.transaction()

    def clock(self) -> int:
        """The server's time, which is the same for all who use it, in milliseconds since 1970."""
        ms, at = self._clock
        return ms + int((time.monotonic() - at) * 1000)

    def begin(self) -> None:
        """Begin, and see what others have changed."""
        try:
            self._locked.clear()
            self._news.clear()
            self._look()
            if self._is_lasting:
                self.wire.say(f"set local lock_timeout = '{limits.BUSY_S}s'")
            reach("in transaction")
        except BaseException as error:
            self.roll_back(error)
            raise

    def listen(self, heard: Callable[[], None]) -> float:
        """Have something called when others have put something into a queue.

        Returns:
            After how long it is to be asked all the same, in seconds.
        """
        if self._listener is None:
            self._listener = Listener(self._url, self._channel, self._is_own, heard)
        return limits.LISTEN_POLL_S if self._listener.is_listening else limits.POLL_S

    def adopt(self, connection: Any, clock: Callable[[], int] | None) -> Adopted:
        """What does commands in the transaction of a caller's connection.

        Raises:
            InputError: if it is no connection, or not to this database.
        """
        if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            msg = f"tx is {connection!r}; it is that of `with db.transaction() as tx:`, or a connection of psycopg"
            raise InputError(msg)
        queues = self._adopted.get(connection)
        if queues is None:
            queues = self._adopted[connection] = AdoptedQueues(connection, self._channel, self.is_identity)
        return Adopted(connection, queues, clock, self.identity)

    def _is_own(self, pid: int) -> bool:
        return bool(pid == self._connection.pgconn.backend_pid)

    def _look(self) -> None:
        if self._connection.closed:
            self._reconnect()
        try:
            self.wire.say("begin")
            ms, version = self._one("now")
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
            self._reconnect()  # the server was started again while nothing was done: nothing is lost
            self.wire.say("begin")
            ms, version = self._one("now")
        before = self.clock()
        # What differs by less than a second are the clocks' own jumps, and no reason to set everything right.
        self._clock = (before if before - 1000 < ms < before else ms), time.monotonic()
        self.catalog.look(version)

    def _reconnect(self) -> None:
        pause_s, until = 0.02, time.monotonic() + limits.RECONNECT_S
        while True:
            try:
                self._connection, self._planning = connect(self._url, durable=self._durable, create=False)
            except StoreError:
                if time.monotonic() + pause_s > until:
                    raise
                time.sleep(pause_s)
                pause_s *= 2
            else:
                self.wire.use(self._connection.pgconn)
                self.identity = _identity_at(self._connection)
                self.lineage = _lineage_at(self._connection)  # of other tables, if a dump was put in their place
                self.incarnations.renew()
                self.catalog.forget()
                self._idle.clear()
                self._drawn.clear()
                return

    def commit(self) -> None:
        """Keep what was done."""
        try:
            reach("before commit")
            committed = self.wire.say("commit")
            self._notify(self._channel)
        except BaseException as error:
            self.roll_back(error)
            raise
        try:
            self.wire.flush()
        except psycopg.Error as error:
            if committed.is_done:  # others learn of it when they ask again
                return
            if self._connection.closed:
                self.catalog.forget()
                msg = (
                    f"{said(error, self._url)}: the connection was lost during the commit, so nobody knows whether it "
                    "was done; what is sent again with the same dedup_id is not there twice"
                )
                raise StoreError(msg) from error
            self.roll_back(error)
            raise
        self.behind.kept()
        reach("after commit")

    def roll_back(self, because: BaseException) -> None:
        """Keep nothing of it.

        Raises:
            RunAgain: if another transaction was in the way.
            Busy: if one still is, and may be for long.
            StoreError: if that is because of the database; the words say what is wrong.
        """
        self.wire.forget()
        self.catalog.forget()
        self._look_again()
        self.behind.lost()
        self.incarnations.begun.clear()
        is_lasting, self._is_lasting = self._is_lasting, False
        with suppress(psycopg.Error):
            if not self._connection.closed:
                self.wire.say("rollback")
                self.wire.flush()
        if isinstance(because, errors.LockNotAvailable) and not is_lasting:
            raise Busy(str(said(because, self._url))) from because
        if isinstance(because, errors.DeadlockDetected | errors.SerializationFailure):
            raise RunAgain(str(because)) from because
        if isinstance(because, psycopg.OperationalError | psycopg.InternalError):
            raise said(because, self._url) from because

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> "psycopg.Cursor[Any]":
        """Run a statement of the caller's, planned as the server would plan it.

        Raises:
            StoreError: for one that would end the transaction, or change the connection.
        """
        if _ENDS.match(sql):
            msg = f"{sql.strip()[:60]!r} cannot be run here: leave the block to commit, raise to roll back"
            raise StoreError(msg)
        self.wire.flush()
        connection = self._connection
        cursor = psycopg.Cursor(connection)
        with connection.pipeline():
            self._plan_as(connection, self._planning)
            cursor.execute(sql.encode(), parameters or None, prepare=False)
            self._plan_as(connection, PLANNING)
        return cursor

    @staticmethod
    def _plan_as(connection: "psycopg.Connection[Any]", settings: Mapping[str, str]) -> None:
        calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
        connection.execute(f"select {calls}".encode())

    def backup(self, target: str) -> None:  # noqa: ARG002 - as every store has it
        """Refuse it, since the server has its own way.

        Raises:
            InputError: always.
        """
        raise InputError(BACKUP)

    def close(self) -> None:
        """Let go of the database."""
        if self._listener is not None:
            self._listener.stop()
        self._connection.close()


def _identity_at(connection: "psycopg.Connection[Any]") -> str:
    (here,) = connection.execute(text_of("here").encode()).fetchone() or ("",)
    return str(here)


def _lineage_at(connection: "psycopg.Connection[Any]") -> bytes:
    rows = connection.execute(text_of("lineage").encode()).fetchall()
    return b"".join(value.to_bytes(8, "big", signed=True) for (value,) in rows)


class _Transaction:
    """One transaction of a store; a plain class, since one that is made of a generator costs as much as a statement."""

    __slots__ = ("_store",)

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._store.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._store.commit()
            else:
                self._store.roll_back(error)
        finally:
            self._store._is_lasting = False
