"""Outbox tables: rows that an application writes in its own transactions, in PostgreSQL or SQLite, in commit order.

A sequence of PostgreSQL is neither gapless nor in the order of commits: a reader of ``id > last`` loses the row of a
transaction that commits later than one with a greater id. So each row also has its transaction's id, and rows are read
only up to the horizon: the oldest open transaction. SQLite has one writer, so its ids are in commit order.
"""

import sqlite3
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from inturn.core.address import checked_target, is_address, without_password
from inturn.core.errors import InputError, PositionGone, SetupError, SourceError
from inturn.core.override import override
from inturn.ingest.positions import PositionForm
from inturn.ingest.source import KnownPartition, PartitionComparison, PollBatch, Source, SourceRecord
from inturn.ingest.sources.creation_time import creation_time

if TYPE_CHECKING:
    import psycopg


class OutboxTable(Protocol):
    """A table of one kind of database; positions are JSON values."""

    position_form: PositionForm

    def incarnation(self) -> str:
        """Return the identity of the table's history."""
        ...

    def check(self, position: Any) -> None:
        """Check that the table has reached a position.

        Raises:
            PositionGone: if it has not.
        """
        ...

    def rows(self, position: Any, limit: int) -> Generator[tuple[Any, bytes]]:
        """Yield the rows after a position, each with its own position, as JSON objects, reading them one by one."""
        ...

    def lag(self, position: Any) -> int:
        """Return the number of rows after a position."""
        ...

    def delete(self, position: Any) -> None:
        """Delete the rows up to a position."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class OutboxSource(Source):
    """An outbox table; each row is a record, whose body is the row as a JSON object. It is one partition.

    In PostgreSQL the table has ``xid xid8 not null default pg_current_xact_id()`` and ``id``, of any type that has an
    order, with an index on both: ``(xid, id)``. In SQLite it has ``id integer primary key autoincrement``.

    Args:
        database: the file of SQLite, or the address of PostgreSQL.
        table: the table, also with its schema: ``app.outbox``.
        delete: whether rows are deleted after they became messages.

    Raises:
        InputError: if the file or the address is not valid.
        SetupError: if psycopg is not installed, for PostgreSQL.
    """

    def __init__(self, database: str | Path, table: str, *, delete: bool = False) -> None:
        target = checked_target(str(database))
        self._table: OutboxTable = (_PostgresTable if is_address(target) else _SqliteTable)(target, table)
        self.position_form = self._table.position_form
        self._name, self._deletes = table, delete
        self._positions: dict[str, Any] = {}

    @override
    def partitions(self) -> Sequence[str]:
        return [self._name]

    @property
    @override
    def forgets_confirmed(self) -> bool:
        return self._deletes

    @override
    def incarnation(self, partition: str) -> str:  # noqa: ARG002 - there is one
        return self._table.incarnation()

    @override
    def compare(
        self, known: Mapping[str, KnownPartition], incarnations: Mapping[str, str]
    ) -> Mapping[str, PartitionComparison]:
        same = {
            name: was._replace(incarnation=incarnations[name])
            for name, was in known.items()
            if name in incarnations and _may_be_same(was.incarnation, incarnations[name])
        }
        return super().compare({**known, **same}, incarnations)

    @override
    def open(self, partition: str, position: Any) -> None:
        if position is not None:
            self._table.check(position)
        self._positions[partition] = position

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        batch = PollBatch(limit, self.batch_bytes)
        for partition, position in self._positions.items():
            with closing(self._table.rows(position, limit)) as rows:
                for row_position, body in rows:
                    if not batch.add(SourceRecord(partition, row_position, body)):
                        break
        if batch.records:
            self._positions[self._name] = batch.records[-1].position
        else:
            time.sleep(timeout_s)
        return batch.records

    @override
    def close(self, partition: str) -> None:
        self._positions.pop(partition, None)

    @override
    def confirm(self, partition: str, position: Any) -> None:  # noqa: ARG002 - there is one
        if self._deletes:
            self._table.delete(position)

    @override
    def lag(self, partition: str) -> int | None:
        return self._table.lag(self._positions[partition])

    @override
    def shutdown(self) -> None:
        self._table.close()


class _PostgresTable:
    """A table of PostgreSQL; a position is the transaction's id and the row's, as texts."""

    position_form: PositionForm = "transaction"
    _AFTER = "(xid, id) > (%s::xid8, %s) and xid < pg_snapshot_xmin(pg_current_snapshot())"
    _ALL = "xid < pg_snapshot_xmin(pg_current_snapshot())"

    def __init__(self, address: str, table: str) -> None:
        if find_spec("psycopg") is None:
            raise SetupError("PostgreSQL needs psycopg: pip install 'inturn[postgres]'")
        self._address, self._table = address, ".".join(map(_quoted, table.split("."))).replace("%", "%%")
        self._relation = self._table.replace("%%", "%")
        self._oid: int | None = None  # of the table when its incarnation was last asked for
        self._connection: psycopg.Connection[Any] | None = None

    def incarnation(self) -> str:
        cursor = self._run("select system_identifier, %s::regclass::oid from pg_control_system()", [self._relation])
        system, self._oid = cursor.fetchone() or ("", None)
        return f"{system}/{self._oid}"

    def check(self, position: Any) -> None:
        """Accept any position: a table that was recreated, or moved to another server, has another incarnation."""

    def rows(self, position: Any, limit: int) -> Generator[tuple[Any, bytes]]:
        where, parameters = self._where(position)
        # The statement locks the table before it looks up its id, so all rows are of the table with this id.
        statement = (
            "select %s::regclass::oid, r.xid::text, r.id::text, row_to_json(r)::text "  # noqa: S608 - quoted
            f"from (select * from {self._table} where {where} order by xid, id limit %s) r order by r.xid, r.id"
        )
        with self._connected() as connection:
            rows = connection.cursor().stream(statement.encode(), [self._relation, *parameters, limit])
            with closing(cast("Generator[Any]", rows)):  # which cancels the rest
                for oid, xid, id_, body in rows:
                    if self._oid not in (None, oid):
                        raise SourceError(f"table {self._relation} was recreated while it was read")
                    yield (xid, id_), body.encode()

    def lag(self, position: Any) -> int:
        where, parameters = self._where(position)
        (count,) = self._run(f"select count(*) from {self._table} where {where}", parameters).fetchone() or (0,)  # noqa: S608
        return int(count)

    def delete(self, position: Any) -> None:
        # Not from a table that was recreated since the rows were read.
        self._run(
            f"delete from {self._table} where (xid, id) <= (%s::xid8, %s) "  # noqa: S608 - quoted
            "and %s::regclass::oid = coalesce(%s::oid, %s::regclass::oid)",
            [*position, self._relation, self._oid, self._relation],
        )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _where(self, position: Any) -> tuple[str, list[Any]]:
        return (self._ALL, []) if position is None else (self._AFTER, list(position))

    def _run(self, statement: str, parameters: Sequence[Any]) -> "psycopg.Cursor[Any]":
        with self._connected() as connection:
            return connection.execute(statement.encode(), parameters)

    @contextmanager
    def _connected(self) -> Iterator["psycopg.Connection[Any]"]:
        import psycopg

        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._address, autocommit=True)
            yield self._connection
        except psycopg.errors.UndefinedColumn as error:
            raise InputError(f"table {self._table} lacks the columns xid and id of an outbox: {error}") from error
        except psycopg.Error as error:
            raise SourceError(f"{self._table}: {without_password(str(error), self._address)}") from error


class _SqliteTable:
    """A table of SQLite; a position is the row's id."""

    position_form: PositionForm = "number"

    def __init__(self, path: str, table: str) -> None:
        if not Path(path).is_file():
            raise InputError(f"no file {path!r}; set database to an existing SQLite file")
        self._path, self._name, self._table = Path(path), table, _quoted(table)
        self._connection: sqlite3.Connection | None = None
        self._open_file_id = (0, 0)  # the file that the connection has open
        self._json_columns: list[str] = []
        self._connect()

    def _connect(self) -> None:
        """Open the file that is at the path now."""
        self._open_file_id = self._file_id()
        # Only an existing file: connect() would create a new one.
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda data: data.decode(errors="replace")  # no row stalls the others
        self._connection = connection
        try:
            self._check_table()
            self._check_same()
        except BaseException:
            self.close()
            raise

    def _check_table(self) -> None:
        """Check the table, and note its columns."""
        tables = self._run("select sql from sqlite_master where name = ?", self._name)
        if not tables or "autoincrement" not in tables[0]["sql"].lower():
            msg = "reuses the ids of deleted rows, so rows would be lost" if tables else "does not exist"
            raise InputError(f"table {self._name!r} {msg}; it needs id integer primary key autoincrement")
        columns = self._run("select name, type from pragma_table_info(?)", self._name)
        self._json_columns = [column["name"] for column in columns if column["type"].lower() in ("json", "jsonb")]

    def _file_id(self) -> tuple[int, int]:
        """Return the device and the inode of the file that is at the path now."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            raise SourceError(f"file {str(self._path)!r} is missing; it was deleted or moved") from None
        return status.st_dev, status.st_ino

    def _check_same(self) -> None:
        """Check that the file at the path is the one that is open.

        Raises:
            SourceError: if it is another file: its rows do not follow the current position.
        """
        if self._file_id() != self._open_file_id:
            raise SourceError(f"file {str(self._path)!r} was replaced while it was read")

    def incarnation(self) -> str:
        now = self._file_id()
        if now != self._open_file_id:
            self.close()  # not before: the inode of an open file is not reused
        created = creation_time(self._path)  # an inode may be reused
        return f"{now[1]}:{created}" if created else str(now[1])

    def check(self, position: Any) -> None:
        sequences = self._run("select seq from sqlite_sequence where name = ?", self._name)
        if not sequences or sequences[0]["seq"] < position:
            raise PositionGone(
                f"table {self._name!r} has not reached id {position}: it was recreated; use `inturn ingest seek`"
            )

    def rows(self, position: Any, limit: int) -> Generator[tuple[Any, bytes]]:
        statement = f"select * from {self._table} where id > ? order by id limit ?"  # noqa: S608 - quoted
        with closing(self._execute(statement, position or 0, limit)) as cursor:
            self._check_same()  # when the reading has begun, so that all of it is of this file
            for row in cursor:
                record = dict(row) | {name: _json(row[name]) for name in self._json_columns}
                yield row["id"], msgspec.json.encode(record)

    def lag(self, position: Any) -> int:
        (row,) = self._run(f"select count(*) as count from {self._table} where id > ?", position or 0)  # noqa: S608 - quoted
        return int(row["count"])

    def delete(self, position: Any) -> None:
        self._run(f"delete from {self._table} where id <= ?", position)  # noqa: S608 - quoted

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self, statement: str, *parameters: Any) -> list[sqlite3.Row]:
        return self._execute(statement, *parameters).fetchall()

    def _execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if self._connection is None:
            try:
                self._connect()
            except InputError as error:  # of a file that is being recreated
                raise SourceError(str(error)) from error
        assert self._connection is not None  # noqa: S101 - for mypy
        return self._connection.execute(statement, parameters)


def _may_be_same(before: str, now: str) -> bool:
    """Return whether two incarnations may be of one table; that of a file may lack the creation time."""
    (inode, _, created), (inode_now, _, created_now) = before.partition(":"), now.partition(":")
    return inode == inode_now and (created == created_now or not (created and created_now))


def _json(value: Any) -> Any:
    """Return the value of a JSON column, or its text if it is not JSON."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str | bytes) else value
    except msgspec.DecodeError:
        return value


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
