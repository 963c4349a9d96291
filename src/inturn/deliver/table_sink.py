"""Delivery to a user table in SQLite or PostgreSQL; the effect id is its primary key."""

import sqlite3
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from inturn.core import limits
from inturn.core.address import checked_target, is_address, without_password
from inturn.core.errors import DeliveryError, DeliveryRefused, InputError, SetupError
from inturn.core.values.path import value_at
from inturn.deliver.fields import body_of

if TYPE_CHECKING:
    import psycopg

_TRANSIENT: Final = frozenset({"08", "25", "40", "53", "55", "57", "58"})
"""Classes of SQLSTATE for which a retry may succeed: connection, rollback, resources, locks, shutdown."""


class table:  # noqa: N801 - it is called as a function is
    """Deliver outputs as rows of a table, each once: a row whose effect id already exists is not changed.

    If the table is in the database of the worker's queue, the rows are written in the commit that produces the outputs.

    The table has the column ``effect_id`` as its primary key. An error of the statement, such as an unknown column or a
    violated constraint, refuses the output for good.

    Args:
        database: the file of SQLite, or the address of PostgreSQL.
        name: the table, also with its schema: ``accounting.postings``.
        columns: for each further column the path of the output's field; empty: one column ``output`` with the whole
            output as JSON.

    Attributes:
        database: the file or address.
        insert: the statement that writes a row.

    Raises:
        InputError: if the address is not valid.
        SetupError: if psycopg is not installed, for PostgreSQL.
    """

    def __init__(self, database: str, name: str, columns: Mapping[str, str] | None = None) -> None:
        self.database, self._columns = checked_target(database), dict(columns or {"output": ""})
        if "effect_id" in self._columns:
            raise InputError("columns contains 'effect_id', which inturn fills itself; remove it")
        if is_address(database) and find_spec("psycopg") is None:
            raise SetupError("PostgreSQL needs psycopg: pip install 'inturn[postgres]'")
        names = ", ".join(map(_quoted, ("effect_id", *self._columns)))
        marks = ", ".join(["%s" if is_address(database) else "?"] * (1 + len(self._columns)))
        where = ".".join(map(_quoted, name.split(".")))
        self.insert = f"insert into {where} ({names}) values ({marks}) on conflict (effect_id) do nothing"  # noqa: S608
        self._mutex = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None

    def __call__(self, output: Any, effect_id: str) -> None:
        """Deliver one output."""
        (self._to_postgres if is_address(self.database) else self._to_sqlite)(self.row(output, effect_id))

    def row(self, output: Any, effect_id: str) -> list[Any]:
        """Return the parameters of the statement ``insert`` for an output."""
        return [effect_id, *(_value(output, path) for path in self._columns.values())]

    def _to_sqlite(self, row: list[Any]) -> None:
        try:
            with closing(sqlite3.connect(self.database, timeout=limits.DELIVER_TIMEOUT_S)) as connection, connection:
                connection.execute(self.insert, row)
        except sqlite3.Error as error:
            is_transient = (
                isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode != sqlite3.SQLITE_ERROR
            )
            raise (DeliveryError if is_transient else DeliveryRefused)(f"{self.database}: {error}") from error

    def _to_postgres(self, row: list[Any]) -> None:
        import psycopg

        with self._mutex:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = psycopg.connect(self.database, autocommit=True)
                self._connection.execute(self.insert.encode(), row)
            except psycopg.Error as error:
                message = without_password(str(error), self.database)
                is_transient = error.sqlstate is None or error.sqlstate[:2] in _TRANSIENT
                if is_transient:
                    self.close()
                raise (DeliveryError if is_transient else DeliveryRefused)(message) from error

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it may be broken
                connection.close()


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""').replace("%", "%%")
    return f'"{doubled}"'


def _value(output: Any, path: str) -> Any:
    """Return a field of an output as the value of a column; lists and objects as JSON."""
    value = value_at(output, path) if path else output
    return body_of(value).decode() if isinstance(value, dict | list) or not path else value
