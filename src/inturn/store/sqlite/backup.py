"""Online backup of a database file, and restore.

A file in use must not be copied by ordinary means: it changes during the copy, and the latest commits are still in its
write-ahead log. A restored file must not be opened with the log of the file that it replaces.
"""

import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from inturn.core import limits
from inturn.core.errors import InputError, StoreError
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.connection import connect, connect_for_inspection, store_error
from inturn.store.sqlite.incarnations import SqliteIncarnations

_BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps next to a database."""


def backup(path: str, target: str) -> None:
    """Copy a database as of one moment, while other processes read and write it.

    Args:
        path: the database.
        target: the copy. It appears only when it is complete.

    Raises:
        StoreError: if the file has no queues or is damaged, or the target exists or cannot be written.
    """
    if Path(target).exists():
        raise StoreError(f"{target} already exists; name a new file, or move the old one")
    with _draft(path, target) as draft:
        _sync(draft)
        try:
            os.link(draft, target)  # unlike a rename, never replaces a file that was created meanwhile
        except FileExistsError as error:
            raise StoreError(f"{target} already exists; name a new file, or move the old one") from error
        _sync(Path(target).absolute().parent)


def restore(copy: str, target: str, *, replace: bool = False) -> tuple[dict[str, int], str | None]:
    """Replace a database with a copy and begin a new incarnation: places from after the copy are refused.

    Args:
        copy: the copy, left unchanged.
        target: the database to write; no process may have it open.
        replace: whether to replace an existing target. The old one is kept in the same directory under another name.

    Returns:
        The last sequence number of each queue, and the new path of the replaced file, if there was one.

    Raises:
        StoreError: if the copy has no queues or is damaged, or the target exists, is open or cannot be written.
        StoreMismatch: if a newer version of inturn wrote the copy.
    """
    place = Path(target)
    if place.exists() and not replace:
        msg = f"{target} already exists; pass --replace to replace it (the old file is kept under another name)"
        raise StoreError(msg)
    if place.exists() and Path(copy).exists() and place.samefile(copy):
        raise InputError(f"{copy} is the target itself; name a copy of it")
    with _draft(copy, target) as draft:
        numbers = _adopt(draft, f"restored from {Path(copy).name}")
        _close_for_good(draft)
        _sync(draft)
        aside = _put_aside(place)
        draft.replace(place)
        _sync(place.absolute().parent)
    return numbers, aside


@contextmanager
def _draft(path: str, target: str) -> Iterator[Path]:
    """Yield a checked copy next to the target, readable by its owner only; delete it at the end unless it was moved."""
    folder = Path(target).absolute().parent
    if not folder.is_dir():
        raise InputError(f"{target}: directory {str(folder)!r} does not exist; create it first")
    draft = folder / f".{Path(target).name}.{uuid.uuid4().hex}"
    try:
        draft.touch(mode=0o600, exist_ok=False)
        with closing(connect_for_inspection(path)) as source, closing(sqlite3.connect(draft)) as copied:
            source.backup(copied)  # in one step: one snapshot of the file, and no writer is blocked
            (verdict,) = copied.execute("pragma quick_check(1)").fetchone()
            copied.execute("pragma journal_mode = delete")
        if verdict != "ok":
            raise StoreError(f"{path} is damaged: {verdict}; see https://www.sqlite.org/recovery.html")
        yield draft
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    except OSError as error:
        raise StoreError(f"{target}: {error.strerror or error}") from error
    finally:
        for name in ("", *_BESIDE):
            Path(f"{draft}{name}").unlink(missing_ok=True)


def _adopt(draft: Path, note: str) -> dict[str, int]:
    """Begin a new incarnation of each queue, with a note, and return each queue's last sequence number.

    Advance the tokens too, so that no lease of the discarded history matches a new one: that history may have used
    tokens that the copy does not know.
    """
    connection, _ = connect(str(draft), durable=True)
    with closing(connection):
        connection.execute("begin immediate")
        catalog, incarnations = SqliteCatalog(connection), SqliteIncarnations(connection)
        catalog.refresh()
        for info in catalog.queues.values():
            incarnations.begin(info, time.time_ns() // 1_000_000, note)
            info.last_token += limits.RESTORED_TOKENS
            catalog.counted(info)
        catalog.save_counts()
        add = (
            "insert into inturn_meta (name, value) values ('last_key_token', ?1) "
            "on conflict (name) do update set value = value + ?1"
        )
        connection.execute(add, (limits.RESTORED_TOKENS,))
        connection.execute("commit")
        return {info.name: info.last for info in catalog.queues.values()}


def _close_for_good(path: Path) -> None:
    """Checkpoint the write-ahead log of a file and remove it.

    Raises:
        StoreError: if another connection has the file open.
    """
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("pragma journal_mode = delete").fetchone()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
            msg = f"{path} is open; stop the processes that use it, also servers and workers, and try again"
            raise StoreError(msg) from error


def _put_aside(place: Path) -> str | None:
    """Link a file under another name and move its log files there; the file stays in place until it is replaced."""
    aside = Path(f"{place}.before-{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:4]}")
    if place.exists():
        try:
            _close_for_good(place)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged: keep it and its log unchanged
            pass
        os.link(place, aside)
    for name in _BESIDE:
        with suppress(FileNotFoundError):
            Path(f"{place}{name}").rename(f"{aside}{name}")
    return str(aside) if place.exists() else None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
