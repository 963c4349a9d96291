"""Rewriting of tables on a server, so that removed content is in none of their files."""

from typing import Final

import psycopg

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
    "inturn_session",
    "inturn_state",
    "inturn_source_rejection",
    "inturn_source_moved",
)
"""The tables with content; the others have names, numbers and digests."""


def clean(url: str) -> None:
    """Rewrite the tables, one after the other; each is locked meanwhile. Their statistics are made anew.

    Raises:
        StoreError: if somebody uses a table for longer than ``limits.BUSY_S``, or the role does not own it.
    """
    try:
        with plainly(url) as connection:
            connection.execute(f"set lock_timeout = '{limits.BUSY_S}s'".encode())
            notices: list[str] = []
            connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
            for table in _TABLES:
                connection.execute(f"vacuum (full, analyze) {table}".encode())
    except psycopg.Error as error:
        raise store_error(error, url) from error
    if notices:  # the server skips what the role may not rewrite
        raise StoreError(f"the tables were not rewritten, so their files may have the removed content: {notices[0]}")
