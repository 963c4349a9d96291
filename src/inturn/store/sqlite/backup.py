"""A copy of a file while it is in use, and a copy put in the place of a file.

A file that somebody has open must not be copied as other files are: what was written last is in the log beside it, and
while it is copied it changes. And a file that is put in its place must not find the log of another one there.
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
from inturn.store.sqlite.catalog import Catalog
from inturn.store.sqlite.connection import connect, connect_to_look, said
from inturn.store.sqlite.incarnations import Incarnations

_BESIDE = ("-wal", "-shm", "-journal")
"""The files that SQLite has beside one."""


def backup(path: str, target: str) -> None:
    """Copy a file as it is at one moment, while others read and write it.

    Args:
        path: of the file.
        target: of the copy, which is made and complete, or is not there.

    Raises:
        StoreError: if the file has no queues or is damaged, the target is there, or it cannot be written.
    """
    if Path(target).exists():
        msg = f"{target} is there already; name a new file, or move it away"
        raise StoreError(msg)
    with _draft(path, target) as draft:
        _sync(draft)
        try:
            os.link(draft, target)  # which does not replace what somebody else has made there meanwhile
        except FileExistsError as error:
            msg = f"{target} is there already; name a new file, or move it away"
            raise StoreError(msg) from error
        _sync(Path(target).absolute().parent)


def restore(copy: str, target: str, *, replace: bool = False) -> tuple[dict[str, int], str | None]:
    """Put a copy in the place of a file, as a new incarnation: places of what came after the copy are refused.

    Args:
        copy: the copy, which stays as it is.
        target: of the file; nobody may have it open.
        replace: whether one that is there is replaced; it is kept beside it, under another name.

    Returns:
        The last sequence number of each queue, and the path of the file that was replaced, if there was one.

    Raises:
        StoreError: if the copy has no queues or is damaged, the target is there, is open, or cannot be written.
        StoreMismatch: if a newer version of inturn has written the copy.
    """
    place = Path(target)
    if place.exists() and not replace:
        msg = f"{target} is there already; say that it is to be replaced (--replace), and it is kept under another name"
        raise StoreError(msg)
    if place.exists() and Path(copy).exists() and place.samefile(copy):
        msg = f"{copy} is the file itself; name a copy of it"
        raise InputError(msg)
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
    """A sound copy beside the target, for its owner only; deleted at the end, if it is there still."""
    folder = Path(target).absolute().parent
    if not folder.is_dir():
        msg = f"{target}: there is no directory {str(folder)!r}; make it first"
        raise InputError(msg)
    draft = folder / f".{Path(target).name}.{uuid.uuid4().hex}"
    try:
        draft.touch(mode=0o600, exist_ok=False)
        with closing(connect_to_look(path)) as source, closing(sqlite3.connect(draft)) as copied:
            source.backup(copied)  # in one step, within which it sees one state of the file and stops nobody
            (found,) = copied.execute("pragma quick_check(1)").fetchone()
            copied.execute("pragma journal_mode = delete")
        if found != "ok":
            msg = f"{path} is damaged: {found}; see https://www.sqlite.org/recovery.html"
            raise StoreError(msg)
        yield draft
    except sqlite3.Error as error:
        raise said(error, path) from error
    except OSError as error:
        msg = f"{target}: {error.strerror or error}"
        raise StoreError(msg) from error
    finally:
        for name in ("", *_BESIDE):
            Path(f"{draft}{name}").unlink(missing_ok=True)


def _adopt(draft: Path, note: str) -> dict[str, int]:
    """Begin a new incarnation of each queue, that says why; the last number of each.

    Leases from before are void too: the history that is given up has given out tokens that are not known here.
    """
    connection, _ = connect(str(draft), durable=True)
    with closing(connection):
        connection.execute("begin immediate")
        catalog, incarnations = Catalog(connection), Incarnations(connection)
        catalog.look()
        for info in catalog.queues.values():
            incarnations.begin(info, time.time_ns() // 1_000_000, note)
            info.tokens += limits.RESTORED_TOKENS
            catalog.counted(info)
        catalog.save_counts()
        add = (
            "insert into inturn_meta (name, value) values ('key_tokens', ?1) "
            "on conflict (name) do update set value = value + ?1"
        )
        connection.execute(add, (limits.RESTORED_TOKENS,))
        connection.execute("commit")
        return {info.name: info.last for info in catalog.queues.values()}


def _close_for_good(path: Path) -> None:
    """Put what is in the log beside a file into it, and remove the log.

    Raises:
        StoreError: if somebody has the file open.
    """
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("pragma journal_mode = delete").fetchone()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
            msg = f"{path} is open: end the processes that use it, servers and workers too, and try again"
            raise StoreError(msg) from error


def _put_aside(place: Path) -> str | None:
    """Keep a file under another name, with what is beside it; it stays at its place until another replaces it."""
    aside = Path(f"{place}.before-{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:4]}")
    if place.exists():
        try:
            _close_for_good(place)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged, so it is kept with its log as they are
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
