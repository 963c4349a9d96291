"""Numbered outbox rows: messages that an application writes together with its own rows in one transaction.

    with engine.begin() as tx:                                  # psycopg, sqlite3, SQLAlchemy or Django
        tx.execute(text("update account set balance = balance - 5 where id = 'acct-1'"))
        inturn.outbox(tx).send({"withdrawn": 5}, group="acct-1")

``OutboxSource`` turns the rows into messages of queues in any database. The revisions of a group have no gaps and no
duplicates, since a group's last revision is a row that a transaction changes and locks until it ends.

Transactions that lock groups in different orders could deadlock. So a transaction waits only for groups in the order of
their names. A group whose name precedes one that the transaction already holds is locked only if no other transaction
holds it; otherwise the send is refused. :meth:`NumberedOutbox.send_many` sorts. PostgreSQL stores the last name in a
setting of the transaction; SQLite has one writer.
"""

import re
import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from inturn.core.errors import InputError, RevisionMismatch, StoreConflict
from inturn.core.queue.messages import Content
from inturn.queue.drafts import draft
from inturn.store.drivers import driver_connection, refuse_driver

if TYPE_CHECKING:
    from inturn.store.commands import Transaction

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_POSTGRES: Final = """
create table if not exists {table} (
    id         bigint generated always as identity primary key,
    xid        xid8   not null default pg_current_xact_id(),
    group_name text   collate "C" not null,
    revision   bigint not null,
    body       json   not null
);
create index if not exists {short}_place on {table} (xid, id);
create table if not exists {table}_revision (
    group_name text   collate "C" primary key,
    last       bigint not null
) with (fillfactor = 70);
"""
_SQLITE: Final = """
create table if not exists {table} (
    id         integer primary key autoincrement,
    group_name text    not null,
    revision   integer not null,
    body       json    not null
);
create table if not exists {table}_revision (
    group_name text    primary key,
    last       integer not null
) without rowid;
"""
_SETTING: Final = "inturn.outbox"


def outbox(tx: "Transaction", table: str = "outbox") -> "NumberedOutbox":
    """Return the outbox of a transaction; its messages are committed, or rolled back, with the transaction.

    Args:
        tx: a connection of psycopg or sqlite3, one of SQLAlchemy or a session, or ``django.db.connection``.
        table: the table, in PostgreSQL also with its schema; see :meth:`NumberedOutbox.create`.

    Raises:
        InputError: if the table's name is not valid, or ``tx`` is not a supported connection in a transaction.
    """
    if not isinstance(table, str) or not _NAME.fullmatch(table):
        raise InputError(f"table is {table!r}; expected letters, digits and _, optionally with a schema: app.outbox")
    connection = driver_connection(tx)
    if isinstance(connection, sqlite3.Connection):
        begins = connection.isolation_level is not None and getattr(connection, "autocommit", -1) is not True
        if not connection.in_transaction and not begins:
            msg = "the connection is in autocommit mode without an open transaction; execute BEGIN IMMEDIATE first"
            raise InputError(msg)
        return _SqliteOutbox(connection, table)
    try:
        import psycopg
    except ImportError:
        refuse_driver(connection, "sqlite3")
    if not isinstance(connection, psycopg.Connection):
        refuse_driver(connection, "psycopg or sqlite3")
    if connection.autocommit and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        msg = "the connection is in autocommit mode without an open transaction; use `with connection.transaction():`"
        raise InputError(msg)
    return _PostgresOutbox(connection, table)


class NumberedOutbox:
    """An outbox table within a transaction.

    Args:
        connection: the connection of the driver.
        table: the table.
    """

    _tables: str

    def __init__(self, connection: Any, table: str) -> None:
        self._connection = connection
        self._table = table

    def create(self) -> None:
        """Create the table of the rows and that of the last revisions, ``…_revision``, if they do not exist."""
        for statement in self._tables.format(table=self._table, short=self._table.rpartition(".")[2]).split(";"):
            if statement.strip():
                self._run(statement)

    def send(self, body: Any, *, group: object, expected_revision: int | None = None) -> int:
        """Write a message as a row, and return its revision, the next one of its group.

        Args:
            body: a value that can be written as JSON.
            group: the message's group, a str, int, date or UUID.
            expected_revision: the expected last revision of the group; if it differs, nothing is written.

        Raises:
            InputError: if an argument is invalid.
            RevisionMismatch: if ``expected_revision`` is not the group's last one.
            StoreConflict: if another transaction holds the group, and this one holds a group with a later name: roll
                back and try again, or send in the order of the names.
        """
        message = draft(body, group=group, revision="next", expected_revision=expected_revision)
        if message.content is not Content.JSON or message.group is None:
            raise InputError(f"the body is {body!r:.200}; an outbox stores JSON, so put a text or bytes into a dict")
        last = self._lock(message.group)
        if expected_revision is not None and expected_revision != last:
            raise RevisionMismatch(
                f"expected_revision is {expected_revision}, but the last revision of group {message.group!r} is {last}",
                expected_revision,
                last,
            )
        self._write(message.group, last + 1, str(message.body))
        return last + 1

    def send_many(self, messages: Iterable[tuple[object, Any]]) -> list[int]:
        """Write messages, each a pair of group and body, and return their revisions; groups are locked in order.

        Raises:
            InputError: if a group or a body is invalid.
            StoreConflict: as in :meth:`send`, if the transaction already holds a later group.
        """
        checked = [(draft("", group=group).group or "", body) for group, body in messages]
        order = sorted(range(len(checked)), key=lambda index: (_key(checked[index][0]), index))
        revisions = {index: self.send(checked[index][1], group=checked[index][0]) for index in order}
        return [revisions[index] for index in range(len(checked))]

    def last_revision(self, group: object) -> int:
        """Return the last revision of a group; 0: none."""
        name = draft("", group=group).group or ""
        row = self._row(f"select last from {self._table}_revision where group_name = {self._mark}", name)  # noqa: S608 - checked
        return int(row[0]) if row else 0

    _mark = "?"

    def _lock(self, group: str) -> int:
        """Lock a group until the transaction ends, and return its last revision."""
        raise NotImplementedError

    def _write(self, group: str, revision: int, body: str) -> None:
        mark = self._mark
        self._run(f"update {self._table}_revision set last = {mark} where group_name = {mark}", revision, group)  # noqa: S608 - checked
        self._run(
            f"insert into {self._table} (group_name, revision, body) values ({mark}, {mark}, {mark})",  # noqa: S608 - checked
            group,
            revision,
            body,
        )

    def _row(self, statement: str, *values: Any) -> Sequence[Any] | None:
        row: Sequence[Any] | None = self._run(statement, *values).fetchone()
        return row

    def _run(self, statement: str, *values: Any) -> Any:
        raise NotImplementedError


class _SqliteOutbox(NumberedOutbox):
    """An outbox table in SQLite, which has one writer at a time."""

    _tables = _SQLITE

    def _lock(self, group: str) -> int:
        self._run(f"insert or ignore into {self._table}_revision values (?, 0)", group)  # noqa: S608 - checked
        return self.last_revision(group)

    def _run(self, statement: str, *values: Any) -> Any:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(statement, values)


class _PostgresOutbox(NumberedOutbox):
    """An outbox table in PostgreSQL."""

    _tables = _POSTGRES
    _mark = "%s"

    def _lock(self, group: str) -> int:
        table = self._table
        latest = (self._row("select current_setting(%s, true)", _SETTING) or ("",))[0] or ""
        place = f"{table} {group}"
        if latest and _key(place) < _key(latest):
            row = self._row(f"select last from {table}_revision where group_name = %s for update skip locked", group)  # noqa: S608 - checked
            if row is not None:
                return int(row[0])
            if self._row(f"select 1 from {table}_revision where group_name = %s", group):  # noqa: S608 - checked
                raise StoreConflict(
                    f"another transaction holds group {group!r}, and this one already holds {latest!r}, so waiting "
                    "could deadlock. Roll back and try again; send in the order of the group names, as send_many() does"
                )
        else:
            self._run("select set_config(%s, %s, true)", _SETTING, place)
        row = self._row(
            f"insert into {table}_revision as r values (%s, 0) "  # noqa: S608 - checked
            "on conflict (group_name) do update set last = r.last returning last",
            group,
        )
        return int(row[0]) if row else 0

    def _run(self, statement: str, *values: Any) -> Any:
        from psycopg.rows import tuple_row

        return self._connection.cursor(row_factory=tuple_row).execute(statement.encode(), values)


def _key(group: str) -> bytes:
    """Return a sort key that orders group names alike in every process."""
    return group.encode()
