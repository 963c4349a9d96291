"""Detection of a deadlock of a thread with itself: it waits for the write lock that its own transaction holds.

A caller that has an open transaction on its own connection and calls a verb without ``tx=`` would wait until the
time limit, and all other writers with it. SQLite does not report the holder of the lock. So the connections of this
process are examined, once a wait has lasted for ``limits.OWN_TRANSACTION_S``. A caller that waits for another thread or
process must never be refused, and a connection that another thread may be using must never be touched: in doubt, the
caller waits. A caller whose command is run by another thread must not be refused either: so only a transaction that the
caller's own thread begins, for this one command, is examined.
"""

import gc
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress

from inturn.store.sqlite.connection import is_to, plain_rows


def opened_here(own: sqlite3.Connection) -> Sequence[sqlite3.Connection]:
    """Return the connections with a transaction that only this thread can end, but for the store's own."""
    # issubclass of the type, since isinstance asks proxies, which may answer by connecting.
    connections = [
        found_object
        for found_object in gc.get_objects()
        if issubclass(type(found_object), sqlite3.Connection) and found_object is not own
    ]
    return [connection for connection in connections if _is_open_here(connection)]


def is_writing(connection: sqlite3.Connection, identity: str) -> bool:
    """Return whether the transaction of this connection is the one that holds the write lock of the file.

    A statement that changes no row takes the lock, unless another connection holds it. So call this while it is held.
    """
    with suppress(sqlite3.Error), plain_rows(connection):
        (waits_ms,) = connection.execute("pragma busy_timeout").fetchone()
        connection.execute("pragma busy_timeout = 0").fetchone()
        try:
            if is_to(connection, identity)[0]:
                connection.execute("delete from inturn_meta where 0")
                return True
        finally:
            connection.execute(f"pragma busy_timeout = {waits_ms}").fetchone()
    return False


def _is_open_here(connection: sqlite3.Connection) -> bool:
    with suppress(sqlite3.Error):  # closed, or of another thread
        if not connection.in_transaction:
            return False
        sqlite3.Connection.cursor(connection)
        return _is_of_one_thread(connection) or _is_only_thread()
    return False


def _is_of_one_thread(connection: sqlite3.Connection) -> bool:
    """Return whether a connection may be used only by this thread (``check_same_thread``)."""
    refused = []

    def use() -> None:
        try:
            sqlite3.Connection.cursor(connection)
        except sqlite3.ProgrammingError:
            refused.append(True)

    other = threading.Thread(target=use, name="inturn-other-thread", daemon=True)
    other.start()
    other.join()
    return bool(refused)


def _is_only_thread() -> bool:
    """Return whether no thread of the application runs but this one."""
    return not any(
        thread is not threading.current_thread() and not _is_helper(thread) for thread in threading.enumerate()
    )


def _is_helper(thread: threading.Thread) -> bool:
    return thread.name.startswith(("inturn-alarm", "inturn-writer"))
