"""Rewriting of a file, so that removed content is neither in its pages nor in its log."""

import sqlite3
import time
from contextlib import closing
from typing import Final

from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.store.sqlite.connection import store_error

_PAUSE_S: Final = 0.1


def clean(path: str) -> None:
    """Rewrite a file without its free space, and empty the write-ahead log, which may have older pages.

    Raises:
        StoreError: if a reader or writer keeps the file busy for longer than ``limits.BUSY_S``.
    """
    try:
        with closing(sqlite3.connect(path, timeout=limits.BUSY_S, isolation_level=None)) as connection:
            connection.execute("pragma secure_delete = on")
            connection.execute("vacuum")
            until = time.monotonic() + limits.BUSY_S
            while connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
                if time.monotonic() > until:
                    raise StoreError(
                        f"{path}: another process has read it for more than {limits.BUSY_S} s, so its log could not be "
                        "emptied, and may still have the removed content; run this again when that process has finished"
                    )
                time.sleep(_PAUSE_S)
    except sqlite3.Error as error:
        raise store_error(error, path) from error
