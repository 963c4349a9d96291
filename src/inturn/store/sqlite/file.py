"""Creation of the database files, and detection of deleted or replaced ones.

SQLite keeps using a file that was deleted or replaced, and what it writes then is lost. On close it even removes the
write-ahead log of whichever file has the name by then. So the connection to such a file is closed without a checkpoint,
or left open.
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
"""Default permissions of a new file: owner only, as it may hold anything."""
_NO_CHECKPOINT: Final = getattr(sqlite3, "SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE", 1006)
_MAKING: Final = threading.Lock()
_Identity = tuple[int, int]
_TICK_NS: Final = 100_000_000
"""Longer than one tick of a file system's clock, within which two changes may get the same time."""
_COARSE_NS: Final = 1_000_000_000
_COARSE_TICK_NS: Final = 3 * _COARSE_NS
"""The same for file systems with a resolution of one or two seconds."""


def checked_mode(mode: int) -> int:
    """Check the permissions that the user chose for new files, and return them.

    Raises:
        InputError: if they are no file mode, or do not let the owner read and write.
    """
    if isinstance(mode, bool) or not isinstance(mode, int) or mode & ~0o777 or mode & OWNER_ONLY != OWNER_ONLY:
        told = oct(mode) if isinstance(mode, int) and not isinstance(mode, bool) else repr(mode)
        msg = f"mode is {told}; it is that of a file which its owner may read and write, such as 0o600 or 0o640"
        raise InputError(msg)
    return mode


def make(path: str, mode: int) -> None:
    """Create a file that does not exist, with exactly this mode; SQLite gives its log and index the same."""
    # Closing a file drops every lock that this process has on it, so no other thread may have opened it by then.
    with _MAKING:
        try:
            made = os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        except OSError:
            return  # it exists, or SQLite will report why it cannot be made
        os.close(made)
        Path(path).chmod(mode)  # whatever the umask says


class Files:
    """The files of an open database.

    Args:
        path: the database.
        beside: whether its log and index exist as long as it is open.
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
        """Note that the database is open now.

        Raises:
            StoreError: if it was replaced meanwhile.
        """
        self.check()
        self._before |= self._identities(self._beside) if self._before else {}

    @property
    def are_lost(self) -> bool:
        """Whether the files were deleted or replaced, as of the last check."""
        return self._are_lost

    def check(self) -> None:
        """Check that the files are still there; as long as the directories are unchanged, only those are examined.

        Raises:
            StoreError: if a file was deleted or replaced.
        """
        if not self._before or self._is_nothing_changed() or (not self._are_lost and self._are_there()):
            return
        raise StoreError(
            f"{self._path}: the file, or its -wal or -shm, was deleted or replaced while it was open: nothing more is "
            "kept in it; see that the right file is there, and open it again"
        )

    def _is_nothing_changed(self) -> bool:
        """Return whether the directories are as they were when the files were last seen; called after each commit."""
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
            self._unchanged = seen  # any later change gets another time
        return not self._are_lost

    @staticmethod
    def _identities(names: tuple[str, ...]) -> dict[str, _Identity]:
        found = {name: Path(name).stat() for name in names if Path(name).exists()}
        return {name: (each.st_dev, each.st_ino) for name, each in found.items()}


def _is_past(changed_ns: int) -> bool:
    """Return whether the file system's clock has ticked since a change, so that the next change gets another time."""
    return changed_ns < time.time_ns() - (_TICK_NS if changed_ns % _COARSE_NS else _COARSE_TICK_NS)


def let_go(connection: sqlite3.Connection, files: Files) -> None:
    """Close a connection; if its files were lost, leave whatever has their names now untouched."""
    try:
        files.check()
    except StoreError:
        if hasattr(connection, "setconfig"):
            connection.setconfig(_NO_CHECKPOINT, True)  # noqa: FBT003 - by position only
        else:  # Python 3.11 has no setconfig: leave it open until the process ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            return
    connection.close()
