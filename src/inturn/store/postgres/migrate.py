"""Migration of the tables while servers of the previous version are using them; see store/sql/steps.py.

A step that removes something waits until all open transactions have ended. An older version detects it in its next
transaction.
"""

from importlib.resources import files
from typing import Any, Final

import psycopg

from inturn.core import limits
from inturn.core.errors import NoSuchDatabase, StoreError, StoreMismatch
from inturn.store import limits as store_limits
from inturn.store.sql.steps import read_steps, refuse_unreleased

_MIGRATING: Final = int.from_bytes(b"inturn", "big")
"""The advisory lock for migrations."""
_NONE: Final = "the database has no queues; create one first"
STEPS: Final = read_steps(files("inturn.store.postgres"))
"""The schema and its later changes; the number of the last one is the format that this version knows."""


def migrate(connection: "psycopg.Connection[Any]", *, create: bool) -> None:
    """Run the missing steps, each once, even if several processes connect at the same time.

    Args:
        connection: connection in autocommit mode.
        create: whether to create the tables if there are none.

    Raises:
        NoSuchDatabase: if there are no tables, and ``create`` is false.
        StoreError: if the search_path names no existing schema, or the migrations fail ``store_limits.MIGRATION_TRIES``
            times because of deadlocks.
        StoreMismatch: if a newer version of inturn has changed the tables so that this one cannot use them, or their
            format was never released.
    """
    for _ in range(store_limits.MIGRATION_TRIES):
        version, readable_from = _versions(connection)
        check(readable_from, version)
        if version >= STEPS[-1].number:
            return
        if not version and not create:
            raise NoSuchDatabase(_NONE)
        try:
            with connection.transaction():
                connection.execute(f"set local lock_timeout = '{limits.BUSY_S}s'".encode())
                connection.execute("select pg_advisory_xact_lock(%s)", (_MIGRATING,))
                version, readable_from = _versions(connection)  # others may have run them meanwhile
                check(readable_from, version)
                _run(connection, version)
        except psycopg.errors.DeadlockDetected:  # with a transaction that uses the tables
            continue
        return
    tries = store_limits.MIGRATION_TRIES
    raise StoreError(f"its tables cannot be migrated while other processes use them: gave up after {tries} attempts")


def _run(connection: "psycopg.Connection[Any]", version: int) -> None:
    for step in STEPS:
        if step.number <= version:
            continue
        if step.readable_from is not None:
            connection.execute("lock table inturn_meta in access exclusive mode")  # every transaction reads it first
        connection.execute(step.text.encode())
        _set(connection, "version", step.number)
        if step.readable_from is not None:
            _set(connection, "readable_from", step.readable_from)
            connection.execute("update inturn_meta set value = value + 1 where name = 'catalog'")  # so that all check


def _set(connection: "psycopg.Connection[Any]", name: str, value: int) -> None:
    sql = (
        "insert into inturn_meta (name, value) values (%s, %s) on conflict (name) do update set value = excluded.value"
    )
    connection.execute(sql, (name, value))


def check_there(connection: "psycopg.Connection[Any]") -> None:
    """Check that the tables can be read without a migration.

    Raises:
        NoSuchDatabase: if there are no tables.
        StoreMismatch: if they have the format of another version.
    """
    version, readable_from = _versions(connection)
    if not version:
        raise NoSuchDatabase(_NONE)
    check(readable_from, version)
    known = STEPS[-1].number
    if version < known:
        raise StoreMismatch(
            f"it was written by an older inturn: its format is {version}, not {known}; migrate it with inturn.open"
        )


def check(readable_from: int, version: int | None = None) -> None:
    """Check that this version may use the tables.

    Args:
        readable_from: the first format that a version must know to use the tables.
        version: the format of the tables; 0: there are none; None: unknown.

    Raises:
        StoreMismatch: if this version does not know ``readable_from``, or the format was never released.
    """
    refuse_unreleased("the database", version or 0)
    known = STEPS[-1].number
    if readable_from > known:
        newest = "" if version is None else f": its format is {version}"
        raise StoreMismatch(
            f"the database was changed by a newer inturn{newest}, which needs a version that knows format "
            f"{readable_from}; this one knows {known}; update inturn"
        )


def _versions(connection: "psycopg.Connection[Any]") -> tuple[int, int]:
    """Return the format of the tables (0: there are none) and the one that must be known to use them."""
    # From pg_class, since to_regclass may not yet see a table that was created while this waited for the lock.
    cursor = connection.execute(
        "select current_schema(), (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = current_schema() and c.relname = 'inturn_meta')"
    )
    schema, table = cursor.fetchone() or (None, None)
    if schema is None:
        raise StoreError("the search_path of the connection names no existing schema; create one, or name another")
    if table is None:
        return 0, 0
    rows = connection.execute("select name, value from inturn_meta where name in ('version', 'readable_from')")
    meta = dict(rows.fetchall())
    return int(meta.get("version", 0)), int(meta.get("readable_from", 0))
