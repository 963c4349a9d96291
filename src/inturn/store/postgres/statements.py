"""The statements of the .sql files here, run by their names.

What is done and not asked for its result waits until something is asked, or until the end, and goes to the server
together with that: each journey to the server costs more than most statements.
"""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any, Final

import psycopg

_HERE: Final = files("inturn.store.postgres")


def queries() -> dict[str, str]:
    """The statements of all .sql files here, by name; their parameters are ``$1``, ``$2`` …"""
    found = {}
    for each in sorted(_HERE.iterdir(), key=lambda file: file.name):
        if each.name.endswith(".sql"):
            parts = re.split(r"^-- name: (\w+)\n", each.read_text(), flags=re.MULTILINE)
            for name, text in zip(parts[1::2], parts[2::2], strict=True):
                if name in found:
                    msg = f"two statements are called {name!r}; one is in {each.name}"
                    raise ValueError(msg)
                found[name] = re.sub(r"--.*$", "", text, flags=re.MULTILINE).strip().rstrip(";")
    return found


_SQL: Final = queries()


class Wire:
    """Runs named statements over one connection, which may be replaced by another when it was lost.

    Args:
        connection: made by :func:`inturn.store.postgres.connection.connect`.
    """

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._waiting: list[tuple[str, Sequence[Any]]] = []
        self.use(connection)

    def use(self, connection: "psycopg.Connection[Any]") -> None:
        """From now on it is this one; what was waiting for the old one is forgotten."""
        self.connection = connection
        self._cursor = psycopg.RawCursor(connection)
        self._waiting.clear()

    def all(self, name: str, *values: Any) -> list[Any]:
        """The rows of a statement's result."""
        return self.ask(_SQL[name], values)

    def one(self, name: str, *values: Any) -> Any:
        """The first row of a statement's result; None if it has none."""
        rows = self.ask(_SQL[name], values)
        return rows[0] if rows else None

    def do(self, name: str, *values: Any) -> None:
        """Do something before the next statement that is asked for its result; what goes wrong is told then."""
        self._waiting.append((_SQL[name], values))

    def do_each(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """The same once for each row of values; for few, since one statement that takes arrays is much cheaper."""
        self._waiting += [(_SQL[name], row) for row in rows]

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a statement's result, if it has rows."""
        cursor = self._cursor
        if self._waiting:
            with self._together():
                for each, its in self._taken():
                    cursor.execute(each, its, binary=True)
                cursor.execute(sql, values, binary=True)
        else:
            cursor.execute(sql, values, binary=True)
        while cursor.nextset():  # the results of those before
            pass
        return cursor.fetchall() if cursor.description else []

    def say(self, sql: str) -> None:
        """Have something done that has no name, such as ``begin``, before what is asked next."""
        self._waiting.append((sql, ()))

    def flush(self) -> None:
        """Do what is waiting."""
        if self._waiting:
            sql, values = self._waiting.pop()
            self.ask(sql, values)

    def forget(self) -> None:
        """Do nothing of what is waiting."""
        self._waiting.clear()

    def _together(self) -> AbstractContextManager[Any]:
        return self.connection.pipeline()

    def _taken(self) -> list[tuple[str, Sequence[Any]]]:
        waiting, self._waiting = self._waiting, []
        return waiting


class Statements:
    """Runs statements over a wire.

    Args:
        wire: to the database.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire: Final = wire

    def _one(self, name: str, *values: Any) -> Any:
        return self.wire.one(name, *values)

    def _all(self, name: str, *values: Any) -> list[Any]:
        return self.wire.all(name, *values)

    def _do(self, name: str, *values: Any) -> None:
        self.wire.do(name, *values)

    def _do_each(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        self.wire.do_each(name, rows)
