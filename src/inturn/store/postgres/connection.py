"""Connections to the server: settings, migration of the tables, and translation of errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from inturn.core import limits
from inturn.core.address import shown, without_password
from inturn.core.errors import StoreError, StoreMismatch, StoreUnavailable
from inturn.store import limits as store_limits
from inturn.store.postgres.migrate import check_there, migrate

_SETTINGS: Final = {
    # The tables are often empty and often full, and their statistics may be an hour old. Every statement has its
    # index, whatever the statistics say, and is planned once.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "lock_timeout": f"{round(store_limits.LOCK_S * 1000)}ms",
    # A client that locks a queue and then disappears or hangs must not block other clients for ever.
    "idle_in_transaction_session_timeout": f"{2 * limits.TRANSACTION_S}s",
}
_LINE: Final[dict[str, Any]] = {
    "fallback_application_name": "inturn",
    "connect_timeout": limits.BUSY_S,
    # A dead connection is detected after this time instead of after hours, the usual default.
    "keepalives_idle": store_limits.DEAD_LINE_S // 3,
    "keepalives_interval": store_limits.DEAD_LINE_S // 6,
    "keepalives_count": 4,
    "tcp_user_timeout": store_limits.DEAD_LINE_S * 1000,
}
"""Connection parameters that the address may override."""
PLANNING: Final = {name: value for name, value in _SETTINGS.items() if name.startswith(("plan_", "enable_", "jit"))}
"""The planner settings, which apply only to statements of inturn."""


def connect(
    url: str, *, durable: bool = True, create: bool = True, timeout_s: float | None = None
) -> "tuple[psycopg.Connection[Any], dict[str, str]]":
    """Connect to a database and migrate its tables.

    Args:
        url: ``postgresql://user@host/database``, or another form that libpq accepts.
        durable: whether a commit waits until it is on disk.
        create: whether to create the tables if there are none.
        timeout_s: as for :func:`plainly`.

    Returns:
        The connection, and its original values of the ``PLANNING`` settings, for statements of the caller.

    Raises:
        StoreError: if there is no such database, or it cannot be used.
        StoreMismatch: if a newer version of inturn has changed its tables so that this one cannot use them.
    """
    connection = plainly(url, timeout_s)
    with _closed_if_not(connection, url):
        settings = _SETTINGS if durable else {**_SETTINGS, "synchronous_commit": "off"}
        questions = ", ".join(f"current_setting('{name}')" for name in PLANNING)
        usual = connection.execute(f"select {questions}".encode()).fetchone() or ()
        _set(connection, settings)
        migrate(connection, create=create)
    connection.prepare_threshold = None  # psycopg would deallocate ours together with its own
    return connection, dict(zip(PLANNING, usual, strict=True))


def plainly(url: str, timeout_s: float | None = None) -> "psycopg.Connection[Any]":
    """Connect in autocommit mode, without settings or migrations.

    Args:
        url: the address.
        timeout_s: time for which a server that does not answer is waited for, 2 seconds at least; None: as
            the address says.
    """
    try:
        said_there = conninfo_to_dict(url)
        usual = {name: value for name, value in _LINE.items() if name not in said_there}
        if timeout_s is not None:
            usual["connect_timeout"] = max(2, round(timeout_s))
        return psycopg.connect(url, autocommit=True, **usual)
    except psycopg.Error as error:
        raise store_error(error, url) from error


def connect_for_inspection(url: str, timeout_s: float | None = None) -> "psycopg.Connection[Any]":
    """Connect read-only to a database whose tables exist; it may be a standby server.

    ``timeout_s`` is as for :func:`plainly`.

    Raises:
        StoreError: if the database does not exist, cannot be used or has no queues.
        StoreMismatch: if another version of inturn created its tables.
    """
    connection = plainly(url, timeout_s)
    with _closed_if_not(connection, url):
        _set(connection, {**PLANNING, "default_transaction_read_only": "on"})
        check_there(connection)
    return connection


def _set(connection: "psycopg.Connection[Any]", settings: Mapping[str, str]) -> None:
    calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
    connection.execute(f"select {calls}".encode())


@contextmanager
def _closed_if_not(connection: "psycopg.Connection[Any]", url: str) -> Iterator[None]:
    """Close the connection if the block raises, and translate the error."""
    try:
        yield
    except psycopg.Error as error:
        connection.close()
        raise store_error(error, url) from error
    except (StoreError, StoreMismatch) as error:
        connection.close()
        raise type(error)(f"{shown(url)}: {error}") from None
    except BaseException:
        connection.close()
        raise


_TOLD: Final = {
    "53100": "the server's disk is full: the transaction was rolled back; free some space and try again",
    "25006": "the server refuses writes: it is a standby, or read-only",
    "55P03": "another transaction has held a lock for too long; nothing was changed",
    "42501": "the user lacks a privilege in the database; grant it the right to create and write tables in its schema",
}
"""Texts by SQLSTATE, see https://www.postgresql.org/docs/current/errcodes-appendix.html."""
_PASSING: Final = ("08", "25006", "25P03", "40", "53", "55", "57P")
"""Prefixes of the SQLSTATEs of temporary errors: a lost connection, a standby before it is promoted, an idle
transaction that was ended, a conflict, a lack of resources, a lock, and a server that stops or starts."""


def store_error(error: psycopg.Error, url: str) -> StoreError:
    """Return the store error for an error of the connection or the server."""
    words = without_password(str(error).strip(), url) or type(error).__name__
    reason = _TOLD.get(error.sqlstate or "")
    if error.sqlstate is None:  # an error of the client: the connection was lost, or cannot be opened
        is_passing = isinstance(error, psycopg.OperationalError)
    else:
        is_passing = error.sqlstate.startswith(_PASSING)
    kind = StoreUnavailable if is_passing else StoreError
    return kind(f"{shown(url)}: {reason} ({words})" if reason else f"{shown(url)}: {words}")
