"""Reads of pipelines in PostgreSQL, over a connection only for reading, which may be to a standby server."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import psycopg

from inturn.core.address import shown
from inturn.core.errors import StoreError
from inturn.store.pipeline_store import PipelineStore
from inturn.store.postgres.connection import connect_for_inspection, store_error
from inturn.store.postgres.names import LongNames
from inturn.store.postgres.pipelines import PostgresPipelines
from inturn.store.postgres.statements import Wire

T = TypeVar("T")
_CHANGED: Final = "select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables"


class PostgresPipelineReader:
    """Pipelines in a database, each read as of one moment.

    Args:
        url: its address.
        timeout_s: time after which a read is given up, whatever the server does.

    Raises:
        StoreError: if the database does not exist, has no queues or cannot be read.
        StoreMismatch: if another version of inturn created its tables.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._connection = connect_for_inspection(url, timeout_s)
        self._wire = Wire(self._connection.pgconn)
        self._pipelines = PostgresPipelines(self._wire, LongNames(self._wire))
        self._is_late = False

    def read(self, function: Callable[[PipelineStore], T]) -> T:
        """Call a function with the pipelines as of now.

        Raises:
            StoreError: if the database cannot be read, or not in time.
        """
        return self._within_limit(lambda: self._read(function))

    def _read(self, function: Callable[[PipelineStore], T]) -> T:
        self._wire.queue_text("begin isolation level repeatable read")
        try:
            return function(self._pipelines)
        finally:
            with suppress(psycopg.Error):
                self._wire.forget()
                self._wire.queue_text("rollback")
                self._wire.flush()

    def now_ms(self) -> int:
        """Return the server's time, in milliseconds since 1970."""
        ms: int = self._within_limit(lambda: self._wire.one("now"))[0]
        return ms

    def changed_rows(self) -> int:
        """Return a number that grows with every change of the database's tables, at most a second late."""

        def ask() -> int:
            row = self._connection.execute(_CHANGED).fetchone()
            return row[0] if row else 0

        return self._within_limit(ask)

    def _within_limit(self, ask: Callable[[], T]) -> T:
        limit = threading.Timer(self._timeout_s, self._cut)
        limit.daemon = True
        limit.start()
        try:
            return ask()
        except psycopg.Error as error:
            if self._is_late:
                raise StoreError(f"{shown(self._url)} did not answer within {self._timeout_s:g} s") from error
            raise store_error(error, self._url) from error
        finally:
            limit.cancel()

    def _cut(self) -> None:
        """End the connection to a server that does not answer, while another thread waits for the answer."""
        self._is_late = True
        with (
            suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(self._connection.pgconn.socket)) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
