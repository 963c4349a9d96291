"""Rewriting of tables on a server, so that removed content is in none of their files."""

import re
import time
from typing import Final, NamedTuple

import psycopg
from psycopg.errors import Diagnostic

from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.store.postgres.connection import plainly, store_error

_TABLES: Final = (
    "inturn_message",
    "inturn_group",
    "inturn_held",
    "inturn_output",
    "inturn_rejected",
    "inturn_decision",
    "inturn_group_lock",
    "inturn_session_state",
    "inturn_source_rejection",
    "inturn_source_moved",
)
"""The tables with content; the others have names, numbers and digests."""
_PAUSE_S: Final = 0.1


class _Notice(NamedTuple):
    """A notice of the server, copied; psycopg's own object is empty after the call."""

    level: str
    message: str
    detail: str


def clean(url: str) -> None:
    """Rewrite the tables, one after the other; each is locked meanwhile. Their statistics are computed again.

    Raises:
        StoreError: if a transaction uses a table, or reads an older state of it, for longer than ``limits.BUSY_S``, or
            the role does not own it.
    """
    try:
        with plainly(url) as connection:
            connection.execute(f"set lock_timeout = '{limits.BUSY_S}s'".encode())
            notices: list[_Notice] = []
            connection.add_notice_handler(lambda diagnostic: notices.append(_noted(diagnostic)))
            for table in _TABLES:
                until = time.monotonic() + limits.BUSY_S
                while _rewrite(connection, table, notices):
                    if time.monotonic() > until:
                        raise StoreError(
                            f"a transaction has read an older state of {table} for more than {limits.BUSY_S} s, so its "
                            "file may still have the removed content; run this again when that transaction has ended"
                        )
                    time.sleep(_PAUSE_S)
    except psycopg.Error as error:
        raise store_error(error, url) from error


def _rewrite(connection: psycopg.Connection, table: str, notices: list[_Notice]) -> int:
    """Rewrite a table; return the number of removed rows that the new file still has, since a transaction sees them."""
    notices.clear()
    connection.execute(f"vacuum (full, verbose, analyze) {table}".encode())
    if skipped := [notice.message for notice in notices if notice.level != "INFO"]:  # such as missing rights
        raise StoreError(f"tables were not rewritten, so their files may still have the removed content: {skipped[0]}")
    # The detail is "9 dead row versions cannot be removed yet. CPU: …", in the server's language.
    counts = [re.search(r"\d+", notice.detail) for notice in notices]
    return sum(int(count[0]) for count in counts if count)


def _noted(diagnostic: Diagnostic) -> _Notice:
    return _Notice(
        diagnostic.severity_nonlocalized or "", diagnostic.message_primary or "", diagnostic.message_detail or ""
    )
