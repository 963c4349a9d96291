"""Connections to the file: opening, migrations, and SQLite errors in plain words."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from inturn.core import limits
from inturn.core.errors import InputError, NoSuchDatabase, StoreError, StoreMismatch, StoreUnavailable
from inturn.store import limits as store_limits
from inturn.store.sql.steps import read_steps, refuse_unreleased
from inturn.store.sqlite.file import OWNER_ONLY, Files, make

_HERE = files("inturn.store.sqlite")
STEPS: Final = read_steps(_HERE)
"""The schema and its later changes; the number of the last one is the format that this version knows."""

# Prefixes of SQLite error names (https://www.sqlite.org/rescode.html) and their explanations.
_TOLD = {
    "SQLITE_FULL": "the disk is full: the transaction was rolled back; free some space and try again",
    "SQLITE_READONLY": "the file or its directory is not writable; open it as a user who may write both",
    "SQLITE_CORRUPT": "the file is damaged; save a copy, and see https://www.sqlite.org/recovery.html",
    "SQLITE_NOTADB": "the file is not an SQLite database; name another file, or move this one",
    "SQLITE_BUSY": "another connection has held the write lock for too long; nothing was changed",
    "SQLITE_IOERR": "the disk failed: the transaction was rolled back",
    "SQLITE_CANTOPEN": "the file cannot be opened; check that its directory exists and is readable and writable",
}
_PASSING: Final = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR_SHMSIZE")
"""Prefixes of the names of temporary errors, which end without a change of the file or of the user."""


def connect(
    path: str, *, durable: bool, mode: int = OWNER_ONLY, busy_s: float = limits.BUSY_S
) -> tuple[sqlite3.Connection, Files]:
    """Open a file, creating and migrating it as needed.

    Args:
        path: the file; ``:memory:`` for none.
        durable: whether a commit waits until it is on the disk.
        mode: permissions of the file, if it is created.
        busy_s: time for which another connection that holds the write lock is waited for.

    Returns:
        The connection, and the files that it has open.

    Raises:
        StoreError: if the file cannot be opened or written.
        StoreMismatch: if the file has a newer format, or one that was never released.
    """
    if path != ":memory:" and not Path(path).absolute().parent.is_dir():
        raise InputError(f"{path}: directory {str(Path(path).parent)!r} does not exist; create it first")
    if path not in {"", ":memory:"}:
        make(path, mode)
    files = Files(path)
    try:
        connection = sqlite3.connect(
            # Absolute, since SQLite may take a name that begins with "file:" for a URI.
            path if path in {"", ":memory:"} else str(Path(path).absolute()),
            timeout=busy_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=store_limits.STATEMENTS,
        )
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    with _closed_if_not(connection, path):
        _write_ahead(connection, busy_s)
        connection.execute(f"pragma cache_size = -{store_limits.CACHE_BYTES // 1024}")
        connection.execute(f"pragma journal_size_limit = {store_limits.WAL_BYTES}")
        connection.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
        _migrate(connection, path)
        files.opened()
    return connection, files


@contextmanager
def _closed_if_not(connection: sqlite3.Connection, path: str) -> Iterator[None]:
    """Close a connection if its setup fails, and raise the error in plain words."""
    try:
        yield
    except sqlite3.Error as error:
        connection.close()
        raise store_error(error, path) from error
    except BaseException:
        connection.close()
        raise


def _write_ahead(connection: sqlite3.Connection, busy_s: float) -> None:
    """Turn on the write-ahead log, and retry while busy: SQLite's busy timeout does not apply to this switch."""
    until = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return


def check_there(path: str) -> None:
    """Check that a file has queues, without touching it: ``connect`` would create it, or add tables to any database.

    Raises:
        StoreError: if the file has no queues or is not a database.
    """
    connect_for_inspection(path).close()


def connect_for_inspection(path: str) -> sqlite3.Connection:
    """Open a file that has queues, read-only: nothing is created, written or locked.

    Raises:
        NoSuchDatabase: if there is no such file.
        StoreError: if the file has no queues or is not a database.
        StoreMismatch: if the file has a newer format, or one that was never released.
    """
    if not Path(path).is_file():
        raise NoSuchDatabase(f"no database {path!r}")
    try:
        connection = sqlite3.connect(
            f"{Path(path).absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=limits.BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    with _closed_if_not(connection, path):
        _check_version(connection, path)
    return connection


def is_outdated(connection: sqlite3.Connection) -> bool:
    """Return whether the tables have the format of an older version, so that they need a migration."""
    return _version(connection) < STEPS[-1].number


def _check_version(connection: sqlite3.Connection, path: str) -> None:
    version = _version(connection)
    if not version:
        is_empty = connection.execute("select count(*) from sqlite_master").fetchone() == (0,)
        kind = NoSuchDatabase if is_empty else StoreError  # another process may be creating it
        raise kind(f"database {path!r} has no queues; create one first")
    _refuse_others(path, version)


def check_not_newer(connection: sqlite3.Connection) -> None:
    """Check that no newer version has migrated the open file.

    Raises:
        StoreMismatch: if one has: this version might write data that the newer one cannot read.
    """
    version = _version(connection)
    if version > STEPS[-1].number:
        (_, _, path), *_ = connection.execute("pragma database_list")
        _refuse_others(path, version)


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    """Run the steps that the file lacks, each exactly once even if several processes open it at the same time."""
    if _version(connection) == STEPS[-1].number:
        return
    connection.execute("begin exclusive")
    try:
        version = _version(connection)
        _refuse_others(path, version)
        for step in STEPS:
            if step.number > version:
                for statement in _statements(step.text):
                    connection.execute(statement)
                connection.execute("insert or replace into inturn_meta values ('version', ?)", (step.number,))
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


def _refuse_others(path: str, version: int) -> None:
    refuse_unreleased(path, version)
    newest = STEPS[-1].number
    if version > newest:
        msg = f"{path} was written by a newer inturn: its format is {version}, this one knows {newest}; update inturn"
        raise StoreMismatch(msg)


def _statements(script: str) -> list[str]:
    """Split a script into statements; run one by one they do not commit, unlike with ``executescript``."""
    statements, begun = [], ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            statements.append(begun)
            begun = ""
    return statements


def _version(connection: sqlite3.Connection) -> int:
    if not connection.execute("select 1 from sqlite_master where name = 'inturn_meta'").fetchone():
        return 0
    row = connection.execute("select value from inturn_meta where name = 'version'").fetchone()
    if row is None:
        msg = "the file is damaged: its table inturn_meta has no version; restore a copy with inturn restore"
        raise StoreError(msg)
    return int(row[0])


def store_error(error: sqlite3.Error, path: str) -> Exception:
    """Return a SQLite error as a StoreError in plain words, or unchanged if it is not about the database file."""
    name = getattr(error, "sqlite_errorname", None) or ""
    for start, words in _TOLD.items():
        if name.startswith(start):
            kind = StoreUnavailable if name.startswith(_PASSING) else StoreError
            return kind(f"{path}: {words} ({error})")
    return error


def identity_of(connection: sqlite3.Connection, path: str) -> tuple[str, bytes]:
    """Return the identity of the open file, and the random bytes that it was created with.

    The identity is the same for all connections to the file and different for a copy: it names its place on the disk
    too. Copies share the bytes.
    """
    (identity,) = connection.execute("select value from inturn_meta where name = 'identity'").fetchone()
    if path == ":memory:":
        return str(identity), bytes.fromhex(identity)
    status = Path(path).stat()
    return f"{identity} {status.st_dev}:{status.st_ino}", bytes.fromhex(identity)


def is_to(connection: sqlite3.Connection, identity: str) -> tuple[bool, str]:
    """Return whether a connection is to the file of this identity, and the path of its file."""
    path = next((path for _, name, path in connection.execute("pragma database_list") if name == "main"), "")
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path costs as much again
    except OSError:
        return False, path
    return identity.endswith(f" {status.st_dev}:{status.st_ino}"), path


@contextmanager
def plain_rows(connection: sqlite3.Connection) -> Iterator[None]:
    """Read rows as tuples and text as str within the block, regardless of the caller's factories."""
    rows, texts = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        yield
    finally:
        connection.row_factory, connection.text_factory = rows, texts
