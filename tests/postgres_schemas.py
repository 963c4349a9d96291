"""Schemas of PostgreSQL for tests: empty ones, and ones with inturn's tables that are used again.

To make the tables takes longer than most tests: so a schema is emptied after its test and handed to the next, if it
still has the tables it was made with and nothing else.
"""

import itertools
import os
from typing import Any, Final
from urllib.parse import quote

import psycopg
from psycopg import sql

from inturn.store.postgres.connection import connect

_SMALL_BYTES: Final = 4_000_000
"""What a schema may hold to be used again: rows that are deleted leave their room behind."""

_SHAPE: Final = """
select 'relation', c.relname::text, c.relkind::text, coalesce(array_to_string(c.reloptions, ','), '')
  from pg_class c where c.relnamespace = %(schema)s::regnamespace
union all
select 'column', c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod)
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  where c.relnamespace = %(schema)s::regnamespace
union all
select 'trigger', c.relname::text, t.tgname::text, ''
  from pg_class c join pg_trigger t on t.tgrelid = c.oid where c.relnamespace = %(schema)s::regnamespace
union all
select 'function', p.proname::text, '', '' from pg_proc p where p.pronamespace = %(schema)s::regnamespace
order by 1, 2, 3
"""
_BYTES: Final = """
select coalesce(sum(pg_total_relation_size(oid)), 0) from pg_class
where relnamespace = %(schema)s::regnamespace and relkind = 'r'
"""

Rows = list[tuple[Any, ...]]


class Schemas:
    """The schemas of one database, for one process of tests.

    Args:
        url: the database.
        connection: a connection to it that commits each statement.
    """

    def __init__(self, url: str, connection: "psycopg.Connection[Any]") -> None:
        self._url = url
        self._connection = connection
        self._numbers = itertools.count()
        self._free: list[str] = []
        self._shape: Rows = []
        self._first_rows: dict[str, Rows] = {}
        self._last: str | None = None

    def new(self) -> str:
        """Return the address of a schema in which nothing is."""
        return self._address(self._create())

    def take(self) -> str:
        """Return the address of a schema with inturn's tables, as they are when they have just been made."""
        if self._free:
            return self._address(self._free.pop())
        name = self._create()
        connect(self._address(name))[0].close()
        if not self._shape:
            self._shape = self._shape_of(name)
            self._first_rows = {table: self._rows(name, table) for table in self._names("r")}
        return self._address(name)

    def give_back(self, address: str) -> None:
        """Empty a schema that was taken, for the next test; drop it if the test has changed or filled its tables."""
        name = address.rpartition("search_path%3D")[2]
        try:
            with self._connection.transaction():
                self._connection.execute("set local lock_timeout = '1s'")
                if self._shape_of(name) != self._shape or self._bytes(name) > _SMALL_BYTES:
                    self._connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))
                    return
                self._empty(name)
        except psycopg.errors.LockNotAvailable:  # a connection of the test is still at work in it
            return
        self._free.append(name)

    def next(self) -> str:
        """Take a schema, and give back the one that this gave before: for a test that needs one after the other."""
        if self._last is not None:
            self.give_back(self._last)
        self._last = self.take()
        return self._last

    def _empty(self, name: str) -> None:
        for table, rows in self._first_rows.items():
            where = sql.Identifier(name, table)
            self._connection.execute(sql.SQL("delete from {}").format(where))
            for row in rows:
                values = sql.SQL(", ").join(sql.Literal(value) for value in row)
                self._connection.execute(sql.SQL("insert into {} values ({})").format(where, values))
        for sequence in self._names("S"):
            self._connection.execute(sql.SQL("alter sequence {} restart").format(sql.Identifier(name, sequence)))

    def _create(self) -> str:
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self._connection.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
        return name

    def _address(self, name: str) -> str:
        joint = "&" if "?" in self._url else "?"
        return f"{self._url}{joint}options={quote(f'-csearch_path={name}')}"

    def _shape_of(self, name: str) -> Rows:
        return self._connection.execute(_SHAPE, {"schema": name}).fetchall()

    def _names(self, kind: str) -> list[str]:
        return [
            name
            for object_type, name, relation_kind, _ in self._shape
            if object_type == "relation" and relation_kind == kind
        ]

    def _rows(self, name: str, table: str) -> Rows:
        return self._connection.execute(sql.SQL("select * from {}").format(sql.Identifier(name, table))).fetchall()

    def _bytes(self, name: str) -> int:
        row = self._connection.execute(_BYTES, {"schema": name}).fetchone()
        return int(row[0]) if row else 0
