"""The transaction of a caller's own connection: what is done with messages is part of it, as the caller's own SQL is.

The connection is the caller's: its settings, its isolation and its prepared statements stay as they are. It is spoken
to beneath psycopg, while nobody else uses it, so it does not matter whether it is a plain one or one for asyncio.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from inturn.core.errors import InputError
from inturn.store.commands import Command
from inturn.store.postgres.queues import Queues
from inturn.store.postgres.statements import Wire

T = TypeVar("T")
Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class Adopted:
    """Does commands in the transaction that a caller's connection has begun.

    Args:
        connection: the caller's.
        queues: as they are within it.
        clock: the time; None: the server's.
        identity: of the database whose verbs these are.
    """

    def __init__(
        self, connection: Connection, queues: "AdoptedQueues", clock: Callable[[], int] | None, identity: str
    ) -> None:
        self.identity = identity
        self._connection = connection
        self._queues = queues
        self._clock = clock

    def run(self, command: Command[T]) -> T:
        """Do a command in it."""
        connection = self._connection
        if not isinstance(connection, psycopg.Connection):
            msg = "the connection is an AsyncConnection; await the verb: queue.send.aio(…, tx=connection)"
            raise InputError(msg)
        with connection.lock:
            if not self._is_to_begin():
                return self._run(command)
        connection.execute("select")
        with connection.lock:
            return self._run(command)

    async def arun(self, command: Command[T]) -> T:
        """The same for a task, whose loop goes on meanwhile."""
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
        """Whether psycopg would begin the transaction with the next statement.

        Raises:
            InputError: if the connection has no transaction, so that nothing could be part of it.
        """
        connection = self._connection
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            msg = "the connection is in pipeline mode; leave the block `with connection.pipeline():` before"
            raise InputError(msg)
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            return False
        if connection.autocommit:
            msg = (
                "the connection is in autocommit mode and has begun no transaction, which tx= is for; "
                "write `with connection.transaction():` around it"
            )
            raise InputError(msg)
        return True

    def _run(self, command: Command[T]) -> T:
        queues = self._queues
        now_ms = queues.look()
        try:
            value = command.run(queues, self._clock() if self._clock else now_ms)
            queues.tell()
        finally:
            queues.wire.forget()
        return command.answer(value)


class AdoptedQueues(Queues):
    """Queues as they are within a transaction of a caller's. It does not hold the connection itself.

    Args:
        connection: the caller's.
        channel: on which who waits for messages is told.
        is_own: whether an identity is that of these tables, so that it is seen whether the connection sees the same.
    """

    def __init__(self, connection: Connection, channel: str, is_own: Callable[[str], bool]) -> None:
        super().__init__(Wire(connection.pgconn, prepares=False))
        self._channel = channel
        self._is_own = is_own
        self._is_known = False

    def transaction(self) -> AbstractContextManager[None]:
        """It is the caller's."""
        return nullcontext()

    def look_at_clock(self, now_ms: int) -> None:
        """Who has the queues open sees to what the clock has done."""

    def look(self) -> int:
        """See what others have changed; the server's time.

        Raises:
            InputError: if the connection sees other tables, or none.
        """
        if not self._is_known:
            self._check()
        self.incarnations.begun.clear()  # whether what was written is kept is not known here
        for those in (self._locked, self._news, self._idle):
            those.clear()
        self._look_again()
        ms, version = self._one("now")
        self.catalog.look(version)
        return int(ms)

    def _check(self) -> None:
        if self.wire.pg.parameter_status(b"client_encoding") != b"UTF8":
            msg = "the connection's client_encoding is not UTF8; connect with client_encoding=utf8"
            raise InputError(msg)
        (here,) = self._one("here")
        if not self._is_own(here):
            msg = (
                "the connection does not see the tables of these queues: connect it to the same database, with the "
                "same search_path"
            )
            raise InputError(msg)
        self._is_known = True

    def tell(self) -> None:
        """Have others told at the end of the transaction; and see that all was done."""
        self._notify(self._channel)
        self.wire.flush()
        self.catalog.forget_if_changed()


async def _to_the_end(act: Callable[[], T]) -> T:
    """Do something in a thread; who is cancelled meanwhile waits for the end, since the connection is in use."""
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
