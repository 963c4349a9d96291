"""The files of a database: how they are made, and whether they are still those that were opened.

SQLite goes on with a file that was deleted or replaced: what it writes then is kept nowhere. Worse, at its end it
removes the write-ahead log of whatever has the name by then. So such a file is not closed, but left alone.
"""

import ctypes
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Final

from inturn.core.errors import InputError, StoreError

OWNER_ONLY: Final = 0o600
"""Who may read and write a new file, if the user does not say: it may hold anything."""
_NO_CHECKPOINT: Final = getattr(sqlite3, "SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE", 1006)
_MAKING: Final = threading.Lock()
_Identity = tuple[int, int]
_TICK_NS: Final = 100_000_000
"""Longer than the clock of a file system ticks, within which two changes may have the same time."""
_COARSE_NS: Final = 1_000_000_000
_COARSE_TICK_NS: Final = 3 * _COARSE_NS
"""The same for one that knows whole seconds only, or every other of them."""


def checked_mode(mode: int) -> int:
    """What the user says of who may read and write a new file.

    Raises:
        InputError: if that is none, or its owner could not use it.
    """
    if isinstance(mode, bool) or not isinstance(mode, int) or mode & ~0o777 or mode & OWNER_ONLY != OWNER_ONLY:
        told = oct(mode) if isinstance(mode, int) and not isinstance(mode, bool) else repr(mode)
        msg = f"mode is {told}; it is that of a file which its owner may read and write, such as 0o600 or 0o640"
        raise InputError(msg)
    return mode


def make(path: str, mode: int) -> None:
    """Make a file that is not there, with exactly this mode; its log and its index are given the same by SQLite."""
    # To close a file lets go of every lock that this process has on it, so nobody of it may have opened it by then.
    with _MAKING:
        try:
            made = os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        except OSError:
            return  # it is there; or SQLite tells why it cannot be
        os.close(made)
        Path(path).chmod(mode)  # whatever the umask says


class Files:
    """The files of a database that is open, or that is read.

    Args:
        path: of the database.
        beside: whether its log and its index are there as long as it is open.
    """

    def __init__(self, path: str, *, beside: bool = True) -> None:
        self._path = path
        self._name = str(Path(path).absolute())
        real = os.path.realpath(path)
        self._beside = (f"{real}-wal", f"{real}-shm") if beside else ()
        self._before = self._identities((self._name,)) if path != ":memory:" and path else {}
        self._directories = list({os.path.dirname(self._name), os.path.dirname(real)})  # noqa: PTH120 - for os.stat
        self._unchanged: dict[str, tuple[int, int, int]] = {}
        self._are_lost = False

    def opened(self) -> None:
        """It is open now.

        Raises:
            StoreError: if it was replaced meanwhile.
        """
        self.check()
        self._before |= self._identities(self._beside) if self._before else {}

    @property
    def are_lost(self) -> bool:
        """Whether they were deleted or replaced, as far as somebody has looked."""
        return self._are_lost

    def check(self) -> None:
        """See that they are still there; as long as nothing changes in the directory, that is all that is looked at.

        Raises:
            StoreError: if not.
        """
        if not self._before or self._is_nothing_changed() or (not self._are_lost and self._are_there()):
            return
        msg = (
            f"{self._path}: the file, or its -wal or -shm, was deleted or replaced while it was open: nothing more is "
            "kept in it; see that the right file is there, and open it again"
        )
        raise StoreError(msg)

    def _is_nothing_changed(self) -> bool:
        """Whether the directories are as they were when the files were there; asked after each commit."""
        if not self._unchanged:
            return False
        try:
            for directory, seen in self._unchanged.items():
                at = os.stat(directory)  # noqa: PTH116 - a Path costs as much again
                if (at.st_dev, at.st_ino, at.st_mtime_ns) != seen:
                    return False
        except OSError:
            return False
        return True

    def _are_there(self) -> bool:
        self._unchanged = {}
        try:
            directories = {name: os.stat(name) for name in self._directories}  # noqa: PTH116 - as above
            seen = {name: (at.st_dev, at.st_ino, at.st_mtime_ns) for name, at in directories.items()}
            found = {name: os.stat(name) for name in self._before}  # noqa: PTH116 - as above
        except (FileNotFoundError, NotADirectoryError):
            found = {}
        self._are_lost = {name: (each.st_dev, each.st_ino) for name, each in found.items()} != self._before
        if not self._are_lost and all(_is_past(changed_ns) for _, _, changed_ns in seen.values()):
            self._unchanged = seen  # what changes from now on, changes at another time
        return not self._are_lost

    @staticmethod
    def _identities(names: tuple[str, ...]) -> dict[str, _Identity]:
        found = {name: Path(name).stat() for name in names if Path(name).exists()}
        return {name: (each.st_dev, each.st_ino) for name, each in found.items()}


def _is_past(changed_ns: int) -> bool:
    """Whether a file system's clock has gone on since a change, so that the next one has another time."""
    return changed_ns < time.time_ns() - (_TICK_NS if changed_ns % _COARSE_NS else _COARSE_TICK_NS)


def let_go(connection: sqlite3.Connection, files: Files) -> None:
    """Close a connection; one to files that were lost touches nothing that has their names now."""
    try:
        files.check()
    except StoreError:
        if hasattr(connection, "setconfig"):
            connection.setconfig(_NO_CHECKPOINT, True)  # noqa: FBT003 - by position only
        else:  # Python 3.11 cannot say it, so it is left open until the process ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            return
    connection.close()
