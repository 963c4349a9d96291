"""Execution of the statements of queries.sql, and of those that both databases have alike, by name."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec

from inturn.core.queue.messages import StoredMessage
from inturn.store.sql.statements import SHARED, statements

SQL: Final = {name: re.sub(r"\$(\d)", r"?\1", sql) for name, sql in statements(SHARED, "inturn.store.sqlite").items()}
"""The statements by name."""
_VALUES: Final = re.compile(r"insert .*values (\([?, ]+\))", re.DOTALL)
_FEWEST: Final = 8
_TOGETHER: Final = {
    name: [(size, f"{sql}{f', {inserted[1]}' * (size - 1)}") for size in (64, _FEWEST)]
    for name, sql in SQL.items()
    if (inserted := _VALUES.fullmatch(sql))
}
"""Single-row inserts, rewritten for several rows at once.

Other threads run while a statement runs. Between two statements threads wait for each other, which costs more than the
row.
"""

entry_of: Final[Callable[[Any], StoredMessage]] = partial(tuple.__new__, StoredMessage)
"""Returns the message in a row; half the cost of the constructors."""


@dataclass(eq=False)
class SqliteStatements:
    """Base class that runs statements on a connection.

    What every verb runs goes to the connection itself, ``self._run(SQL["name"], values)``: one more call for each
    statement would cost a tenth of the statement.
    """

    connection: sqlite3.Connection

    def __post_init__(self) -> None:
        self._run = self.connection.execute

    def _one(self, name: str, *values: Any) -> Any:
        return self.connection.execute(SQL[name], values).fetchone()

    def _all(self, name: str, *values: Any) -> list[Any]:
        return self.connection.execute(SQL[name], values).fetchall()

    def _cursor(self, name: str, *values: Any) -> sqlite3.Cursor:
        return self.connection.execute(SQL[name], values)

    def _execute(self, name: str, *values: Any) -> None:
        self.connection.execute(SQL[name], values)

    def _do_each(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        if not rows:
            return
        if len(rows) == 1:  # a little cheaper than executemany
            self.connection.execute(SQL[name], rows[0])
            return
        done = 0
        if len(rows) >= _FEWEST and name in _TOGETHER:
            for size, sql in _TOGETHER[name]:
                while len(rows) - done >= size:
                    self.connection.execute(sql, list(chain.from_iterable(rows[done : done + size])))
                    done += size
        if done < len(rows):
            self.connection.executemany(SQL[name], rows[done:] if done else rows)


class NamedStatements(SqliteStatements):
    """Statements under public names, for a part that both databases share."""

    one = SqliteStatements._one
    read = SqliteStatements._all
    do = SqliteStatements._execute
    do_each = SqliteStatements._do_each


def as_list(values: Iterable[object]) -> str:
    """Encode values as one parameter, to be read with ``json_each``; of a list of numbers ``str`` makes the same."""
    return msgspec.json.encode(list(values)).decode()
