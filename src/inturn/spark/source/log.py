"""The log of a queue, in a local file or on a server: the interface that the Spark source needs."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

from inturn.core.errors import SetupError
from inturn.core.queue.messages import QueueInfo
from inturn.spark.source.options import QueueLocation
from inturn.store.sqlite.log import SqliteLog

__all__ = ["SourceLog", "SqliteLog", "open_log"]


class SourceLog(Protocol):
    """The log of one queue; see :mod:`inturn.store.sqlite.log` and :mod:`inturn.store.postgres.log`."""

    def info(self) -> QueueInfo:
        """Return the current facts about the queue."""
        ...

    def first(self) -> int:
        """Return the number before the first sequence number of the queue."""
        ...

    def incarnation(self, number: int) -> str:
        """Return the incarnation in which a number was given."""
        ...

    def place(self, after: int, up_to: int, count: int) -> int | None:
        """Return the number of the count-th message after ``after``; None if there are fewer up to ``up_to``."""
        ...

    def rows(self, after: int, up_to: int) -> Sequence[Any]:
        """Return messages after a sequence number and up to another: as many as may be held at once, at least one."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...


class ServerLog(SourceLog, Protocol):
    """The log of a queue on a server."""

    def identity(self) -> str:
        """Return an identity that tells these tables, and this queue, from others."""
        ...


def open_log(place: QueueLocation) -> SourceLog:
    """Return the log of a queue.

    Raises:
        StoreError: if the database does not exist, has no queues or cannot be read.
        StoreMismatch: if another version of inturn wrote it.
        SetupError: if psycopg is not installed here, for PostgreSQL.
    """
    if not place.is_on_server:
        return SqliteLog(*place)
    try:
        from inturn.store.postgres.log import PostgresLog
    except ImportError as error:
        msg = f"for PostgreSQL psycopg is needed wherever Spark runs: pip install 'inturn[postgres]' ({error})"
        raise SetupError(msg) from error
    return cast("ServerLog", PostgresLog(*place))
