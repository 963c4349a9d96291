"""The files of a database: their creation, the detection of deleted or replaced ones, and a reserve for a full disk.

SQLite keeps using a file that was deleted or replaced, and its later writes are lost. On close it even removes the
write-ahead log of the file that has the name then. So the connection to such a file is closed without a checkpoint,
or left open.

On a full disk messages can still be received and acknowledged, which frees space. An acknowledgement is written to the
write-ahead log first, and a full log can be emptied only if the database can grow by the size of the sent messages. So
a reserve file of that size is kept next to the database. When the disk is full, the reserve is truncated. Sends are
refused until it has its size again, unless there is free space within the database.
"""

import ctypes
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from inturn.core.errors import InputError, StoreError
from inturn.core.queue.messages import Draft
from inturn.store import limits as store_limits
from inturn.store.failures import DiskFull

OWNER_ONLY: Final = 0o600
"""Default permissions of a new file: owner only, as its content may be confidential."""
_NO_CHECKPOINT: Final = getattr(sqlite3, "SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE", 1006)
_MAKING: Final = threading.Lock()
_Identity = tuple[int, int]
_TICK_NS: Final = 100_000_000
"""Longer than one tick of a file system's clock, within which two changes may get the same time."""
_COARSE_NS: Final = 1_000_000_000
_COARSE_TICK_NS: Final = 3 * _COARSE_NS
"""The same for file systems with a resolution of one or two seconds."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_OVERHEAD: Final = 4_096
_ZEROS: Final = bytes(64 * 1024)


def checked_mode(mode: int) -> int:
    """Check the permissions that the user chose for new files, and return them.

    Raises:
        InputError: if it is not a file mode, or does not let the owner read and write.
    """
    if isinstance(mode, bool) or not isinstance(mode, int) or mode & ~0o777 or mode & OWNER_ONLY != OWNER_ONLY:
        shown = oct(mode) if isinstance(mode, int) and not isinstance(mode, bool) else repr(mode)
        msg = f"mode is {shown}; expected a file mode that lets the owner read and write, such as 0o600 or 0o640"
        raise InputError(msg)
    return mode


def make(path: str, mode: int) -> None:
    """Create a file that does not exist, with exactly this mode; SQLite gives its log and index the same."""
    # Closing a file drops every lock that this process has on it, so no other thread may have opened it by then.
    with _MAKING:
        try:
            descriptor = os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        except OSError:
            return  # it exists, or SQLite will report why it cannot be created
        os.close(descriptor)
        Path(path).chmod(mode)  # regardless of the umask


class Files:
    """The files of an open database.

    Args:
        path: the database.
        has_wal: whether its log and index exist while it is open.

    Attributes:
        are_lost: whether the files were deleted or replaced, as of the last check.
    """

    def __init__(self, path: str, *, has_wal: bool = True) -> None:
        self._path = path
        self._name = str(Path(path).absolute())
        real = os.path.realpath(path)
        self._beside = (f"{real}-wal", f"{real}-shm") if has_wal else ()
        self._before = self._identities((self._name,)) if path != ":memory:" and path else {}
        self._directories = list({os.path.dirname(self._name), os.path.dirname(real)})  # noqa: PTH120 - for os.stat
        self._unchanged: dict[str, tuple[int, int, int]] = {}
        self.are_lost = False

    def opened(self) -> None:
        """Note that the database is open now.

        Raises:
            StoreError: if it was replaced meanwhile.
        """
        self.check()
        self._before |= self._identities(self._beside) if self._before else {}

    def check(self) -> None:
        """Check that the files still exist; while the directories are unchanged, only the directories are examined.

        Raises:
            StoreError: if a file was deleted or replaced.
        """
        if not self._before or self._is_nothing_changed() or (not self.are_lost and self._are_there()):
            return
        raise StoreError(
            f"{self._path}: the file, or its -wal or -shm, was deleted or replaced while it was open: further changes "
            "are not stored; check that the right file is in place, and open it again"
        )

    def _is_nothing_changed(self) -> bool:
        """Return whether the directories are as they were when the files were last seen; called after each commit."""
        if not self._unchanged:
            return False
        try:
            for directory, seen in self._unchanged.items():
                status = os.stat(directory)  # noqa: PTH116 - a Path costs as much again
                if (status.st_dev, status.st_ino, status.st_mtime_ns) != seen:
                    return False
        except OSError:
            return False
        return True

    def _are_there(self) -> bool:
        self._unchanged = {}
        try:
            directories = {name: os.stat(name) for name in self._directories}  # noqa: PTH116 - as above
            seen = {name: (status.st_dev, status.st_ino, status.st_mtime_ns) for name, status in directories.items()}
            statuses = {name: os.stat(name) for name in self._before}  # noqa: PTH116 - as above
        except (FileNotFoundError, NotADirectoryError):
            statuses = {}
        self.are_lost = {name: (status.st_dev, status.st_ino) for name, status in statuses.items()} != self._before
        if not self.are_lost and all(_is_past(changed_ns) for _, _, changed_ns in seen.values()):
            self._unchanged = seen  # any later change gets another time
        return not self.are_lost

    @staticmethod
    def _identities(names: tuple[str, ...]) -> dict[str, _Identity]:
        statuses = {name: Path(name).stat() for name in names if Path(name).exists()}
        return {name: (status.st_dev, status.st_ino) for name, status in statuses.items()}


def _is_past(changed_ns: int) -> bool:
    """Return whether the file system's clock has ticked since a change, so that the next change gets another time."""
    return changed_ns < time.time_ns() - (_TICK_NS if changed_ns % _COARSE_NS else _COARSE_TICK_NS)


def release_files(connection: sqlite3.Connection, files: Files) -> None:
    """Close a connection; if its files were lost, do not touch the files that have their names now."""
    try:
        files.check()
    except StoreError:
        if hasattr(connection, "setconfig"):
            connection.setconfig(_NO_CHECKPOINT, True)  # noqa: FBT003 - by position only
        else:  # Python 3.11 has no setconfig: leave it open until the process ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            return
    connection.close()


class Reserve:
    """The disk reserve of a database.

    Args:
        path: the database; ``:memory:`` has no reserve.

    Attributes:
        is_tried: whether it was released since the last commit; it may be released once.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        real = os.path.realpath(path)
        self._log, self._name = f"{real}-wal", f"{real}-reserve"
        self._is_kept = path not in {"", ":memory:"}
        self.is_tried = False
        self._transaction = self._sending = self._allowed = 0
        self._until = 0.0

    def check(self, drafts: Sequence[Draft], connection: sqlite3.Connection, transaction: int) -> None:
        """Raise DiskFull before a send if there may be no room for its acknowledgements.

        What was sent in transactions of other numbers is in the log, or was rolled back.
        """
        if transaction != self._transaction:
            self._allowed -= self._sending
            self._transaction, self._sending = transaction, 0
        self._sending += sum([len(draft.body) for draft in drafts]) + _OVERHEAD
        if (self._sending >= self._allowed or time.monotonic() >= self._until) and self._is_kept:
            self._measure(self._sending, connection)

    def _measure(self, sending: int, connection: sqlite3.Connection) -> None:
        """Measure how much may be sent until the next check, and grow the reserve as needed."""
        self._allowed, self._until = 0, time.monotonic() + store_limits.RESERVE_LOOK_S
        grows, within = self._asked(connection)
        part, most = store_limits.RESERVE_BYTES, store_limits.RESERVE_MAX_BYTES
        needed = max(0, grows) + 2 * sending + part // 2  # more than this send, so that checks are rare
        size = part * (1 + min(needed, most) // part)
        is_whole = _size(self._name) >= size or self._grow(size)
        has_room = is_whole and (needed <= most or self._free() >= needed)
        if has_room:
            self._allowed = sending + part // 4
        elif grows > 0 or within < 2 * sending + part:
            raise DiskFull(
                f"{self._path}: the disk is full: messages cannot be sent until space is freed; existing messages can "
                "be received and acknowledged"
            )

    def _asked(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Return by how many bytes a checkpoint grows the database, and how many are free within it."""
        pragmas = ("page_size", "page_count", "freelist_count")
        size, pages, free = (connection.execute(f"pragma {pragma}").fetchone()[0] for pragma in pragmas)
        return size * pages - _size(self._path), size * free

    def release(self) -> bool:
        """Truncate the reserve on a full disk; return whether to try again, which is once."""
        self._allowed = 0
        self.is_tried = self._is_kept and not self.is_tried
        if not self.is_tried:
            return False
        with suppress(OSError):
            os.truncate(self._name, 0)
        return True

    def shrink(self) -> None:
        """Reduce the reserve after the last connection has closed the database."""
        if self._is_kept and not Path(self._log).exists() and _size(self._name) > store_limits.RESERVE_CLOSED_BYTES:
            os.truncate(self._name, store_limits.RESERVE_CLOSED_BYTES)

    def _free(self) -> int:
        if not hasattr(os, "statvfs"):  # Windows
            return 2**62
        status = os.statvfs(os.path.dirname(self._name))  # noqa: PTH120 - as quick as can be
        return status.f_bavail * status.f_frsize

    def _grow(self, size: int) -> bool:
        """Grow the reserve if the disk has twice that much free: space that was just freed is not used at once."""
        if self._free() < 2 * size:
            return False
        try:
            file = os.open(self._name, os.O_RDWR | os.O_CREAT, os.stat(self._path).st_mode & 0o777)  # noqa: PTH116
        except OSError:
            self._is_kept = False  # it cannot be created here, so there is no reserve
            return True
        before = os.fstat(file).st_size
        try:
            _fill(file, before, size)
        except OSError as error:
            os.ftruncate(file, before)
            self._is_kept = error.errno in _FULL
            return not self._is_kept
        finally:
            os.close(file)
        if not before:
            Path(self._name).chmod(os.stat(self._path).st_mode & 0o777)  # noqa: PTH116 - the same as the database's
        return True


def _fill(file: int, begin: int, end: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, begin, end - begin)
        return
    os.lseek(file, begin, os.SEEK_SET)
    while begin < end:
        begin += os.write(file, _ZEROS[: end - begin])


def _size(name: str) -> int:
    try:
        return os.stat(name).st_size  # noqa: PTH116 - a Path costs as much again
    except OSError:
        return 0
