"""The creation time of a file, which distinguishes it from a later file with the same inode."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

_AT_FDCWD: Final = -100
_BTIME: Final = 0x800  # STATX_BTIME


class _Statx(ctypes.Structure):
    """The beginning of ``struct statx`` of Linux, the same on each machine; it has 256 bytes."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("others", ctypes.c_uint8 * 76),
        ("born_s", ctypes.c_int64),
        ("born_ns", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 164),
    )


def creation_time(path: Path) -> str:
    """Return the creation time of a file; empty: the file system or the system does not provide it.

    Python's own ``stat`` does not have it on Linux, so this calls the C library.
    """
    if sys.platform != "linux":
        return str(getattr(path.stat(), "st_birthtime", ""))
    statx, fields = getattr(ctypes.CDLL(None), "statx", None), _Statx()
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), 0, _BTIME, ctypes.byref(fields)) != 0:
        return ""
    return f"{fields.born_s}.{fields.born_ns:09}" if fields.mask & _BTIME else ""
