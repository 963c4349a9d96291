"""Reads of pipelines in a file that is open only for reading: they take no lock and wait for no writer."""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from inturn.core.errors import StoreError, StoreMismatch
from inturn.store.pipeline_store import PipelineStore
from inturn.store.sqlite.connection import connect_for_inspection, is_outdated, store_error
from inturn.store.sqlite.pipelines import SqlitePipelines

T = TypeVar("T")


class SqlitePipelineReader:
    """Pipelines in a file, each read as of one moment.

    Args:
        path: the file.
        timeout_s: time after which a read is given up.

    Raises:
        StoreError: if the file is missing, has no queues or cannot be read.
        StoreMismatch: if another version of inturn wrote it.
    """

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._connection: Final = connect_for_inspection(path)
        if is_outdated(self._connection):
            self._connection.close()
            raise StoreMismatch(f"{path} was written by an older inturn; migrate it with inturn.open")
        self._pipelines = SqlitePipelines(self._connection)

    def read(self, function: Callable[[PipelineStore], T]) -> T:
        """Call a function with the pipelines as of now.

        Raises:
            StoreError: if the file cannot be read, or not in time.
        """
        limit = threading.Timer(self._timeout_s, self._connection.interrupt)
        limit.daemon = True
        limit.start()
        try:
            self._connection.execute("begin")
            try:
                return function(self._pipelines)
            finally:
                with suppress(sqlite3.Error):
                    self._connection.execute("rollback")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
                raise StoreError(f"{self._path} did not answer within {self._timeout_s:g} s") from error
            raise store_error(error, self._path) from error
        finally:
            limit.cancel()

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
