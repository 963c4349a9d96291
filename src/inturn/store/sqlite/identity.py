"""Which file is open: its own identity, and its place on the disk, since a copy has the same identity."""

import sqlite3
from pathlib import Path


def identity_of(connection: sqlite3.Connection, path: str) -> str:
    """Identify the file that is open; two connections to one file have the same, a copy of it has another.

    Args:
        connection: to the file, whose tables are up to date.
        path: of the file; ``:memory:`` for none.
    """
    (identity,) = connection.execute("select value from inturn_meta where name = 'identity'").fetchone()
    if path == ":memory:":
        return str(identity)
    found = Path(path).stat()
    return f"{identity} {found.st_dev}:{found.st_ino}"


def lineage_of(connection: sqlite3.Connection) -> bytes:
    """Return the random bytes that the file was made with; its copies have them too.

    Args:
        connection: to the file, whose tables are up to date.
    """
    (identity,) = connection.execute("select value from inturn_meta where name = 'identity'").fetchone()
    return bytes.fromhex(identity)
