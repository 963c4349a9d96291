"""Identity of an open file: its own identity, and its place on the disk, since copies share the first."""

import sqlite3
from pathlib import Path


def identity_of(connection: sqlite3.Connection, path: str) -> str:
    """Return the identity of the open file: the same for all connections to it, different for a copy.

    Args:
        connection: to the file, migrated.
        path: the file; ``:memory:`` for none.
    """
    (identity,) = connection.execute("select value from inturn_meta where name = 'identity'").fetchone()
    if path == ":memory:":
        return str(identity)
    found = Path(path).stat()
    return f"{identity} {found.st_dev}:{found.st_ino}"


def lineage_of(connection: sqlite3.Connection) -> bytes:
    """Return the random bytes that the file was created with; copies share them.

    Args:
        connection: to the file, migrated.
    """
    (identity,) = connection.execute("select value from inturn_meta where name = 'identity'").fetchone()
    return bytes.fromhex(identity)
