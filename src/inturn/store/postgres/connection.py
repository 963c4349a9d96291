"""A connection to the server: how it is opened, brought up to date, and what its errors mean in plain words."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import psycopg

from inturn.core import limits
from inturn.core.errors import StoreError, StoreMismatch
from inturn.store.address import shown

_HERE: Final = files("inturn.store.postgres")
_MIGRATING: Final = int.from_bytes(b"inturn", "big")
"""The advisory lock under which tables are made."""

_SETTINGS: Final = {
    # The tables are as often empty as they are full, and their statistics are those of an hour ago: every statement
    # has its index, whatever these say. A plan is made once.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "lock_timeout": f"{round(limits.LOCK_S * 1000)}ms",
    # Who has locked a queue and then vanished, or hangs, does not hold up the others for ever.
    "idle_in_transaction_session_timeout": f"{2 * limits.TRANSACTION_S}s",
}
PLANNING: Final = {name: value for name, value in _SETTINGS.items() if name.startswith(("plan_", "enable_", "jit"))}
"""Those of the settings that are for statements of inturn only."""


def connect(url: str, *, durable: bool = True, create: bool = True) -> "tuple[psycopg.Connection[Any], dict[str, str]]":
    """Connect to a database, and make the tables that it does not have.

    Args:
        url: ``postgresql://user@host/database``, or what else libpq takes.
        durable: whether a commit waits until the disk has it.
        create: whether tables are made if there are none.

    Returns:
        The connection, and what it would have in the place of ``PLANNING``, for statements of the caller's.

    Raises:
        StoreError: if there is no such database, or it cannot be used.
        StoreMismatch: if a newer version of inturn has made its tables.
    """
    connection = plainly(url)
    try:
        settings = _SETTINGS if durable else {**_SETTINGS, "synchronous_commit": "off"}
        questions = ", ".join(f"current_setting('{name}')" for name in PLANNING)
        usual = connection.execute(f"select {questions}".encode()).fetchone() or ()
        calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        connection.execute(f"select {calls}".encode())
        _migrate(connection, url, create=create)
    except psycopg.Error as error:
        connection.close()
        raise said(error, url) from error
    except BaseException:
        connection.close()
        raise
    connection.prepare_threshold = None  # psycopg would forget ours too when it forgets its own
    return connection, dict(zip(PLANNING, usual, strict=True))


def plainly(url: str) -> "psycopg.Connection[Any]":
    """A connection with nothing done yet; every statement is a transaction of its own."""
    try:
        return psycopg.connect(url, autocommit=True, fallback_application_name="inturn", connect_timeout=limits.BUSY_S)
    except psycopg.Error as error:
        raise said(error, url) from error


def connect_to_look(url: str) -> "psycopg.Connection[Any]":
    """Connect to a database whose tables are there, to read them only; a server that stands by will do.

    Raises:
        StoreError: if there is no such database, it cannot be used, or has no queues.
        StoreMismatch: if another version of inturn has made its tables.
    """
    connection = plainly(url)
    try:
        settings = {**PLANNING, "default_transaction_read_only": "on"}
        calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        connection.execute(f"select {calls}".encode())
        _check_version(_version(connection), url)
    except psycopg.Error as error:
        connection.close()
        raise said(error, url) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _steps() -> list[tuple[int, Traversable]]:
    """The migrations by their numbers."""
    return sorted((int(step.name[:4]), step) for step in (_HERE / "migrations").iterdir() if step.name.endswith(".sql"))


def _migrate(connection: "psycopg.Connection[Any]", url: str, *, create: bool) -> None:
    """Run the numbered migrations that the schema has not seen, each once, whoever connects at the same time."""
    steps = _steps()
    newest = steps[-1][0]
    version = _version(connection)
    if version == newest:
        return
    if not version and not create:
        _check_version(version, url)
    with connection.transaction():
        connection.execute(f"set local lock_timeout = '{limits.BUSY_S}s'".encode())
        connection.execute("select pg_advisory_xact_lock(%s)", (_MIGRATING,))
        version = _version(connection)
        if version > newest:
            _check_version(version, url)
        for number, step in steps:
            if number > version:
                connection.execute(step.read_text().encode())
                connection.execute("update inturn_meta set value = %s where name = 'version'", (number,))


def _check_version(version: int, url: str) -> None:
    newest = _steps()[-1][0]
    if not version:
        msg = f"{shown(url)} is a database without queues; make one first"
        raise StoreError(msg)
    if version < newest:
        msg = f"{shown(url)} was written by an older inturn; inturn.open brings it up to date"
        raise StoreMismatch(msg)
    if version > newest:
        msg = (
            f"{shown(url)} was written by a newer inturn: its format is {version}, this one knows {newest}; "
            "update inturn"
        )
        raise StoreMismatch(msg)


def _version(connection: "psycopg.Connection[Any]") -> int:
    # of pg_class, since to_regclass may not see yet what was made while this waited for the lock
    there = connection.execute(
        "select current_schema(), (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = current_schema() and c.relname = 'inturn_meta')"
    )
    schema, table = there.fetchone() or (None, None)
    if schema is None:
        msg = "the search_path of the connection names no schema that is there; make one, or name another"
        raise StoreError(msg)
    if table is None:
        return 0
    row = connection.execute("select value from inturn_meta where name = 'version'").fetchone()
    return int(row[0]) if row else 0


_TOLD: Final = {
    "53100": "the server's disk is full: nothing of the transaction was kept; make room and try again",
    "25006": "the server does not let this connection write: it is a standby, or set to read only",
    "55P03": f"another transaction has held a lock for more than {limits.BUSY_S} s; nothing was changed",
    "42501": "the user may not do this in the database; grant it the right to make and write tables in its schema",
}
"""What to tell of an error, https://www.postgresql.org/docs/current/errcodes-appendix.html."""


def said(error: psycopg.Error, url: str) -> StoreError:
    """An error of the connection or the server in plain words."""
    words = str(error).strip() or type(error).__name__
    told = _TOLD.get(error.sqlstate or "")
    return StoreError(f"{shown(url)}: {told} ({words})" if told else f"{shown(url)}: {words}")
