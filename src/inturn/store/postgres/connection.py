"""A connection to the server: how it is opened, brought up to date, and what its errors mean in plain words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from inturn.core import limits
from inturn.core.address import shown, without_password
from inturn.core.errors import StoreError, StoreMismatch
from inturn.store.postgres.migrate import check_there, migrate

_SETTINGS: Final = {
    # The tables are as often empty as they are full, and their statistics are those of an hour ago: every statement
    # has its index, whatever these say. A plan is made once.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "lock_timeout": f"{round(limits.LOCK_S * 1000)}ms",
    # Who has locked a queue and then vanished, or hangs, does not hold up the others for ever.
    "idle_in_transaction_session_timeout": f"{2 * limits.TRANSACTION_S}s",
}
_LINE: Final[dict[str, Any]] = {
    "fallback_application_name": "inturn",
    "connect_timeout": limits.BUSY_S,
    # A line that is cut without a word is known to be after so long, and not after hours, as is usual.
    "keepalives_idle": limits.DEAD_LINE_S // 3,
    "keepalives_interval": limits.DEAD_LINE_S // 6,
    "keepalives_count": 4,
    "tcp_user_timeout": limits.DEAD_LINE_S * 1000,
}
"""How the server is spoken to, if the address does not say otherwise."""
PLANNING: Final = {name: value for name, value in _SETTINGS.items() if name.startswith(("plan_", "enable_", "jit"))}
"""Those of the settings that are for statements of inturn only."""


def connect(url: str, *, durable: bool = True, create: bool = True) -> "tuple[psycopg.Connection[Any], dict[str, str]]":
    """Connect to a database, and make the tables that it does not have.

    Args:
        url: ``postgresql://user@host/database``, or what else libpq takes.
        durable: whether a commit waits until the disk has it.
        create: whether tables are made if there are none.

    Returns:
        The connection, and what it would have in the place of ``PLANNING``, for statements of the caller's.

    Raises:
        StoreError: if there is no such database, or it cannot be used.
        StoreMismatch: if a newer version of inturn has made its tables.
    """
    connection = plainly(url)
    with _closed_if_not(connection, url):
        settings = _SETTINGS if durable else {**_SETTINGS, "synchronous_commit": "off"}
        questions = ", ".join(f"current_setting('{name}')" for name in PLANNING)
        usual = connection.execute(f"select {questions}".encode()).fetchone() or ()
        _set(connection, settings)
        migrate(connection, create=create)
    connection.prepare_threshold = None  # psycopg would forget ours too when it forgets its own
    return connection, dict(zip(PLANNING, usual, strict=True))


def plainly(url: str) -> "psycopg.Connection[Any]":
    """A connection with nothing done yet; every statement is a transaction of its own."""
    try:
        said_there = conninfo_to_dict(url)
        usual = {name: value for name, value in _LINE.items() if name not in said_there}
        return psycopg.connect(url, autocommit=True, **usual)
    except psycopg.Error as error:
        raise said(error, url) from error


def connect_to_look(url: str) -> "psycopg.Connection[Any]":
    """Connect to a database whose tables are there, to read them only; a server that stands by will do.

    Raises:
        StoreError: if there is no such database, it cannot be used, or has no queues.
        StoreMismatch: if another version of inturn has made its tables.
    """
    connection = plainly(url)
    with _closed_if_not(connection, url):
        _set(connection, {**PLANNING, "default_transaction_read_only": "on"})
        check_there(connection)
    return connection


def _set(connection: "psycopg.Connection[Any]", settings: Mapping[str, str]) -> None:
    calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
    connection.execute(f"select {calls}".encode())


@contextmanager
def _closed_if_not(connection: "psycopg.Connection[Any]", url: str) -> Iterator[None]:
    """A connection that cannot be used is closed, and the reason told."""
    try:
        yield
    except psycopg.Error as error:
        connection.close()
        raise said(error, url) from error
    except (StoreError, StoreMismatch) as error:
        connection.close()
        raise type(error)(f"{shown(url)}: {error}") from None
    except BaseException:
        connection.close()
        raise


_TOLD: Final = {
    "53100": "the server's disk is full: nothing of the transaction was kept; make room and try again",
    "25006": "the server does not let this connection write: it is a standby, or set to read only",
    "55P03": f"another transaction has held a lock for more than {limits.BUSY_S} s; nothing was changed",
    "42501": "the user may not do this in the database; grant it the right to make and write tables in its schema",
}
"""What to tell of an error, https://www.postgresql.org/docs/current/errcodes-appendix.html."""


def said(error: psycopg.Error, url: str) -> StoreError:
    """An error of the connection or the server in plain words."""
    words = without_password(str(error).strip(), url) or type(error).__name__
    told = _TOLD.get(error.sqlstate or "")
    return StoreError(f"{shown(url)}: {told} ({words})" if told else f"{shown(url)}: {words}")
