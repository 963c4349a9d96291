"""The driver's connection of a caller's transaction, from an object of SQLAlchemy, Django or the driver itself.

Objects are recognised by the names of their classes, so that no library is imported that the caller does not use.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from inturn.core.errors import InputError
from inturn.store.commands import Command, OpenTransaction

T = TypeVar("T")
Adopt = Callable[[Any], OpenTransaction]
"""A function that wraps a driver's connection so that commands run in its transaction."""

_CONNECTION: Final = "sqlalchemy.engine.base.Connection"
_SESSION: Final = "sqlalchemy.orm.session.Session"
_ASYNC_CONNECTION: Final = "sqlalchemy.ext.asyncio.engine.AsyncConnection"
_ASYNC_SESSION: Final = "sqlalchemy.ext.asyncio.session.AsyncSession"
_SCOPED: Final = {"sqlalchemy.orm.scoping.scoped_session", "sqlalchemy.ext.asyncio.scoping.async_scoped_session"}
_DJANGO: Final = {"django.utils.connection.ConnectionProxy", "django.db.backends.base.base.BaseDatabaseWrapper"}

_PSYCOPG: Final = "use psycopg 3; with SQLAlchemy, in threads and in tasks: postgresql+psycopg://"
_MENDS: Final = {
    "psycopg": "the queues are in an SQLite file: pass a connection to that file",
    "sqlite3": "the queues are in PostgreSQL: pass a connection to that database",
    "psycopg2": f"{_PSYCOPG}; Django uses psycopg 3 if it is installed",
    "asyncpg": _PSYCOPG,
    "pg8000": _PSYCOPG,
    "aiosqlite": "use sqlite3 itself, with SQLAlchemy sqlite://, or `async with db.transaction() as tx:`",
}
"""Drivers whose connections are refused, with the alternatives."""


def adopted(tx: Any, adopt: Adopt) -> OpenTransaction:
    """Wrap a caller's connection or session so that commands run in its transaction, which is begun if necessary.

    Raises:
        InputError: if it has no connection of a driver that ``adopt`` accepts, or Django has begun no transaction.
    """
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(tx).__mro__}
    if names & _SCOPED:
        return adopted(tx(), adopt)
    return _AsyncSession(tx, adopt) if _ASYNC_SESSION in names else adopt(_driver_connection(tx, names))


def driver_connection(tx: Any) -> Any:
    """Return the driver's connection of a caller's transaction, which is begun if necessary.

    Raises:
        InputError: if it is only for tasks, or Django has begun no transaction.
    """
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(tx).__mro__}
    if names & _SCOPED:
        return driver_connection(tx())
    if names & {_ASYNC_SESSION, _ASYNC_CONNECTION}:
        raise InputError(f"tx is {tx!r:.200}, which is for tasks; get a plain session with `await session.run_sync(…)`")
    return _driver_connection(tx, names)


def _driver_connection(tx: Any, names: set[str]) -> Any:
    if _SESSION in names:
        return _of_sqlalchemy(tx.connection())
    if _ASYNC_CONNECTION in names:
        if tx.sync_connection is None:
            raise InputError(f"{tx!r} is not connected yet; write `async with engine.connect() as connection:`")
        return _of_sqlalchemy(tx.sync_connection)
    if _CONNECTION in names:
        return _of_sqlalchemy(tx)
    if names & _DJANGO:
        if not tx.in_atomic_block:
            msg = (
                f"Django's connection {tx.alias!r} has no transaction; use `with transaction.atomic():` around the call"
            )
            raise InputError(msg)
        return tx.connection
    return tx


def _of_sqlalchemy(connection: Any) -> Any:
    """Return the driver's connection, in a transaction that SQLAlchemy begins, as with the first statement."""
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


def refuse_driver(connection: Any, expected: str) -> NoReturn:
    """Refuse a connection of an unexpected driver.

    Raises:
        InputError: always; it names the connection and the alternatives.
    """
    remedy = _MENDS.get(type(connection).__module__.split(".")[0])
    known = "" if remedy is None else f"; {remedy}"
    msg = f"tx is {connection!r:.200}; expected the transaction of `with db.transaction() as tx:`, or a connection of"
    raise InputError(f"{msg} {expected}, or of SQLAlchemy or Django with {expected}{known}")


class _AsyncSession:
    """The transaction of an ``AsyncSession`` of SQLAlchemy, whose connection has to be awaited.

    Args:
        session: the session.
        adopt: wraps its connection.
    """

    identity = ""

    def __init__(self, session: Any, adopt: Adopt) -> None:
        self._session = session
        self._adopt = adopt

    def run(self, command: Command[T]) -> T:
        """Refuse a call from a thread."""
        del command
        raise InputError("the session is an AsyncSession; await the verb: queue.send.aio(…, tx=session)")

    async def arun(self, command: Command[T]) -> T:
        """Run a command in the session's transaction."""
        return await adopted(await self._session.connection(), self._adopt).arun(command)
