"""Databases, and older copies of them that are put back."""

import shutil
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql


class Files:
    """A file, and copies of it that were made while nobody had it open."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder / "shop.db")
        self._folder = folder

    def copy(self, name: str) -> None:
        shutil.copy(self.place, self._folder / name)

    def put_back(self, name: str) -> None:
        shutil.copy(self._folder / name, self.place)


class Tables:
    """A schema, and its rows as they were at some time, as a dump has them."""

    def __init__(self, url: str, connection: psycopg.Connection[Any]) -> None:
        self.place = url
        self._schema = url.rpartition("search_path%3D")[2]
        self._connection = connection
        self._copies: dict[str, dict[str, list[tuple[Any, ...]]]] = {}

    def copy(self, name: str) -> None:
        names = self._connection.execute("select tablename from pg_tables where schemaname = %s", (self._schema,))
        self._copies[name] = {table: self._rows(table) for (table,) in names.fetchall()}

    def put_back(self, name: str) -> None:
        with self._connection.transaction():
            for table, rows in self._copies[name].items():
                where = sql.Identifier(self._schema, table)
                self._connection.execute(sql.SQL("truncate {}").format(where))
                for row in rows:
                    values = sql.SQL(", ").join(sql.Literal(value) for value in row)
                    self._connection.execute(
                        sql.SQL("insert into {} overriding system value values ({})").format(where, values)
                    )

    def _rows(self, table: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(
            sql.SQL("select * from {}").format(sql.Identifier(self._schema, table))
        ).fetchall()
