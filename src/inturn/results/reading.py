"""Inspection of a pipeline that takes no lock of its database, so that no writer delays it or is delayed by it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from inturn.core.address import is_address
from inturn.core.errors import SetupError
from inturn.core.override import override
from inturn.results.inspection import DatabaseInspector, OpenDatabase
from inturn.store.pipeline_store import PipelineStore
from inturn.store.records import PipelineInfo
from inturn.store.writer.group_commit import Writer

T = TypeVar("T")


class PipelineReader(Protocol):
    """The pipelines of a database that is open only for reading."""

    def read(self, function: Callable[[PipelineStore], T]) -> T:
        """Call a function with the pipelines as of one moment."""
        ...

    def now_ms(self) -> int:
        """Return the time of the database, in milliseconds since 1970."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


def open_reader(target: str, timeout_s: float) -> PipelineReader:
    """Open the pipelines of a database only for reading.

    Args:
        target: an SQLite file or the address of a PostgreSQL database.
        timeout_s: time after which a read is given up.

    Raises:
        StoreError: if the database does not exist, or has no queues.
        StoreMismatch: if another version of inturn wrote it.
        SetupError: if psycopg is not installed, for PostgreSQL.
    """
    if not is_address(target):
        from inturn.store.sqlite.reader import SqlitePipelineReader

        return SqlitePipelineReader(target, timeout_s)
    try:
        from inturn.store.postgres.reader import PostgresPipelineReader
    except ImportError as error:
        raise SetupError(f"PostgreSQL needs psycopg: pip install 'inturn[postgres]' ({error})") from error
    return PostgresPipelineReader(target, timeout_s)


class LockFreeInspector(DatabaseInspector):
    """Inspection over a reader; the database itself is opened for the first change, and closed with this object.

    Args:
        reader: the reader, closed with this object.
        name: the pipeline.
        opened: opens the database.

    Raises:
        StoreError: if the pipeline does not exist.
    """

    def __init__(self, reader: PipelineReader, name: str, opened: Callable[[], OpenDatabase]) -> None:
        self._reader = reader
        super().__init__(_LazyDatabase(opened), name, owns=True)

    @override
    def __exit__(self, *_: object) -> None:
        self._reader.close()
        super().__exit__()

    @override
    def now_ms(self) -> int:
        return self._reader.now_ms()

    @override
    def _read(self, function: Callable[[PipelineStore, PipelineInfo], T]) -> T:
        return self._reader.read(lambda pipelines: function(pipelines, self._info(pipelines)))


class _LazyDatabase:
    """A database that is opened when it is first used."""

    def __init__(self, opened: Callable[[], OpenDatabase]) -> None:
        self._opened = opened
        self._database: OpenDatabase | None = None

    @property
    def writer(self) -> Writer:
        if self._database is None:
            self._database = self._opened()
        return self._database.writer

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
