"""Disk space reserved so that messages can be received and acknowledged on a full disk, which makes room.

An acknowledgement is written to the write-ahead log first, and a full log can be emptied only if the database can grow
by what was sent. So a reserve file of that size lies beside the database. When the disk is full, the reserve is
truncated. Sends are refused until it has its size again, unless there is free space within the database.
"""

import errno
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from inturn.core import limits
from inturn.core.queue.messages import Draft
from inturn.store.protocols import NoRoom

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_OVERHEAD: Final = 4_096
_ZEROS: Final = bytes(64 * 1024)


class Reserve:
    """The disk reserve of a database.

    Args:
        path: the database; ``:memory:`` has no reserve.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        real = os.path.realpath(path)
        self._log, self._name = f"{real}-wal", f"{real}-reserve"
        self._is_kept = path not in {"", ":memory:"}
        self._is_tried = False
        self._sending = self._allowed = 0
        self._until = 0.0

    def began(self) -> None:
        """Note that a transaction has begun: earlier sends are in the log, or were rolled back."""
        self._allowed -= self._sending
        self._sending = 0

    def check(self, drafts: Sequence[Draft], connection: sqlite3.Connection) -> None:
        """Check before a send that its acknowledgements will have room.

        Args:
            drafts: the messages to be sent.
            connection: to the database.

        Raises:
            NoRoom: if there is not enough space.
        """
        self._sending += sum([len(draft.body) for draft in drafts]) + _OVERHEAD
        if (self._sending >= self._allowed or time.monotonic() >= self._until) and self._is_kept:
            self._look(self._sending, connection)

    def _look(self, sending: int, connection: sqlite3.Connection) -> None:
        """Measure how much may be sent until the next look, and grow the reserve as needed."""
        self._allowed, self._until = 0, time.monotonic() + limits.RESERVE_LOOK_S
        grows, within = self._asked(connection)
        needed = max(0, grows) + 2 * sending + limits.RESERVE_BYTES // 2  # more than this send, so that looks are rare
        wanted = limits.RESERVE_BYTES * (1 + min(needed, limits.RESERVE_MAX_BYTES) // limits.RESERVE_BYTES)
        is_whole = _size(self._name) >= wanted or self._grow(wanted)
        has_room = is_whole and (needed <= limits.RESERVE_MAX_BYTES or self._free() >= needed)
        if has_room:
            self._allowed = sending + limits.RESERVE_BYTES // 4
        elif grows > 0 or within < 2 * sending + limits.RESERVE_BYTES:
            raise NoRoom(
                f"{self._path}: the disk is full: nothing is sent until there is room again; what was sent before can "
                "be received and acknowledged"
            )

    def _asked(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Return by how many bytes a checkpoint grows the database, and how many are free within it."""
        asked = ("page_size", "page_count", "freelist_count")
        size, pages, free = (connection.execute(f"pragma {each}").fetchone()[0] for each in asked)
        return size * pages - _size(self._path), size * free

    def release(self) -> bool:
        """Truncate the reserve on a full disk; return whether to try again, which is once."""
        self._allowed = 0
        self._is_tried = self._is_kept and not self._is_tried
        if not self._is_tried:
            return False
        with suppress(OSError):
            os.truncate(self._name, 0)
        return True

    def committed(self) -> None:
        """Note a commit, so that the reserve may be released again."""
        self._is_tried = False

    def shrink(self) -> None:
        """Reduce the reserve after the last connection has closed the database."""
        if self._is_kept and not Path(self._log).exists() and _size(self._name) > limits.RESERVE_CLOSED_BYTES:
            os.truncate(self._name, limits.RESERVE_CLOSED_BYTES)

    def _free(self) -> int:
        if not hasattr(os, "statvfs"):  # Windows
            return 2**62
        found = os.statvfs(os.path.dirname(self._name))  # noqa: PTH120 - as quick as can be
        return found.f_bavail * found.f_frsize

    def _grow(self, size: int) -> bool:
        """Grow the reserve if the disk has twice that much free: what was just released is not taken back at once."""
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
