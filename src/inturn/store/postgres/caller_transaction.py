"""Commands in the transaction of a caller's connection, together with the caller's own SQL.

The connection keeps its settings, its isolation level and its prepared statements. inturn uses it below psycopg, under
the connection's lock, so plain and asyncio connections work alike.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from inturn.core.errors import InputError
from inturn.store.commands import Command
from inturn.store.postgres.queues import PostgresQueues
from inturn.store.postgres.statements import Wire

T = TypeVar("T")
Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class CallerTransaction:
    """The transaction of a caller's connection, in which commands run.

    Args:
        connection: the caller's connection.
        queues: the queues as seen by that transaction.
        clock: returns the time; None: the server's time.
        identity: identity of the database whose verbs take this transaction.
    """

    def __init__(
        self, connection: Connection, queues: "CallerQueues", clock: Callable[[], int] | None, identity: str
    ) -> None:
        self.identity = identity
        self._connection = connection
        self._queues = queues
        self._clock = clock

    def run(self, command: Command[T]) -> T:
        """Run a command in the transaction."""
        connection = self._connection
        if not isinstance(connection, psycopg.Connection):
            raise InputError("the connection is an AsyncConnection; await the verb: queue.send.aio(…, tx=connection)")
        with connection.lock:
            if not self._is_to_begin():
                return self._run(command)
        connection.execute("select")
        with connection.lock:
            return self._run(command)

    async def arun(self, command: Command[T]) -> T:
        """Run a command in the transaction without blocking the event loop."""
        connection = self._connection
        if isinstance(connection, psycopg.Connection):
            return await _to_the_end(lambda: self.run(command))
        async with connection.lock:
            if not self._is_to_begin():
                return await _to_the_end(lambda: self._run(command))
        await connection.execute("select")
        async with connection.lock:
            return await _to_the_end(lambda: self._run(command))

    def _is_to_begin(self) -> bool:
        """Return whether psycopg would begin the transaction with the next statement.

        Raises:
            InputError: if the connection is in pipeline mode, or in autocommit mode without a transaction.
        """
        connection = self._connection
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            raise InputError("the connection is in pipeline mode; leave the block `with connection.pipeline():` first")
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            return False
        if connection.autocommit:
            raise InputError(
                "the connection is in autocommit mode and has no transaction, which tx= needs; "
                "write `with connection.transaction():` around the call"
            )
        return True

    def _run(self, command: Command[T]) -> T:
        queues = self._queues
        now_ms = queues.refresh()
        try:
            value = command.run(queues, self._clock() if self._clock else now_ms)
            queues.notify()
        finally:
            queues.wire.forget()
        return command.answer(value)


class CallerQueues(PostgresQueues):
    """Queues as seen by a caller's transaction; without a reference to the psycopg connection.

    Args:
        connection: the caller's connection.
        channel: channel of the notifications for waiting receivers.
        is_own: returns whether an identity is that of these tables, to check which tables the connection sees.
    """

    def __init__(self, connection: Connection, channel: str, is_own: Callable[[str], bool]) -> None:
        super().__init__(Wire(connection.pgconn, is_own=False), ends_spans=False)  # the store does
        self._channel = channel
        self._is_own = is_own
        self._is_known = False

    def transaction(self) -> AbstractContextManager[None]:
        """Return an empty context: the transaction is the caller's."""
        return nullcontext()

    def refresh(self) -> int:
        """Read the changes of other processes; return the server's time.

        Raises:
            InputError: if the connection sees other tables, or none, or its encoding is not UTF8.
        """
        if not self._is_known:
            self._check()
        self.incarnations.begun.clear()  # the caller may have rolled back
        self.locks.begin()
        self.ready.forget_idle()
        self.sends.look_again()
        ms, version = self.wire.one("now")
        self.catalog.refresh(version)
        return int(ms)

    def _check(self) -> None:
        if self.wire.pg.parameter_status(b"client_encoding") != b"UTF8":
            raise InputError("the connection's client_encoding is not UTF8; connect with client_encoding=utf8")
        (identity,) = self.wire.one("database_identity")
        if not self._is_own(identity):
            raise InputError(
                "the connection does not see the tables of these queues; connect it to the same database, with the "
                "same search_path"
            )
        self._is_known = True

    def notify(self) -> None:
        """Run the queued statements, with the notification for others, which is sent when the transaction ends."""
        self.locks.notify(self._channel)
        self.wire.flush()
        self.catalog.forget_if_changed()


async def _to_the_end(act: Callable[[], T]) -> T:
    """Run a function in a thread; a cancelled caller waits for its end, since the connection is in use."""
    doing = asyncio.ensure_future(asyncio.to_thread(act))
    cancelled = None
    while not doing.done():
        try:
            await asyncio.wait([doing])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return doing.result()
