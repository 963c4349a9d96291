"""The sources of one ``inturn ingest run``: each starts independently when its database is available."""

import threading
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from inturn.cli.targets import opened_database
from inturn.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from inturn.database import Database
    from inturn.ingest import Ingest, IngestCounts


class SharedDatabases:
    """Databases that several sources use, each opened once, from any thread.

    Args:
        stack: closes them.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[str, Database] = {}

    def opened(self, path: str) -> "Database":
        """Return a database.

        Raises:
            StoreError: if it cannot be opened; :class:`StoreUnavailable`: if it may become available later.
        """
        with self._locks[path]:
            if path not in self._open:
                self._open[path] = self._stack.enter_context(opened_database(path, create=True))
            return self._open[path]


class SourceRun:
    """A source that is read once its database is available.

    Args:
        name: the name of the source.
        path: its database.
        databases: the databases of the command.
        make: creates the host of the source in its database.

    Attributes:
        host: the host; None: its database is not available yet.
    """

    def __init__(self, name: str, path: str, databases: SharedDatabases, make: "Callable[[Database], Ingest]") -> None:
        self.name, self.path = name, path
        self._databases, self._make = databases, make
        self.host: Ingest | None = None
        self._error = ""
        self._stopping = threading.Event()

    def begin(self) -> None:
        """Open the database, and create the host.

        Raises:
            StoreError: if the database cannot be opened; :class:`StoreUnavailable`: if it may become available later.
            InputError: if a setting is not valid.
        """
        self.host = self._make(self._databases.opened(self.path))

    def note(self, error: Exception) -> None:
        """Record the error that prevented the start."""
        self._error = str(error)

    def run(self, *, until: Any) -> "IngestCounts":
        """Wait for the database, and read until stopped or, with ``caught up``, until all records are read."""
        from inturn.ingest import IngestCounts, limits
        from inturn.ingest.events import EVENTS

        pause_s = limits.INGEST_PAUSE_S
        while self.host is None:
            text = "source %(source)s: %(error)s; retry in %(pause_s).1f s"
            EVENTS.warning("retry", self.name, text, source=self.name, error=self._error, pause_s=pause_s)
            if self._stopping.wait(pause_s):
                return IngestCounts()
            pause_s = min(2 * pause_s, limits.INGEST_PAUSE_MAX_S)
            try:
                self.begin()
            except StoreUnavailable as error:
                self.note(error)
            except Exception as error:
                self.note(error)
                text = "source %(source)s: %(error)s; it is no longer read"
                EVENTS.error("ended", self.name, text, source=self.name, error=self._error)
                raise
        if self._stopping.is_set():
            self.host.stop_soon()
        return self.host.run(until=until)

    def stop_soon(self) -> None:
        """Stop waiting and reading."""
        self._stopping.set()
        if self.host is not None:
            self.host.stop_soon()

    @property
    def is_ready(self) -> bool:
        """True while the source is read without errors."""
        return self.host is not None and self.host.report.is_ready

    def status(self) -> dict[str, Any]:
        """Return its part of the document of ``/health`` and ``/ready``."""
        from inturn.ingest import IngestCounts

        counts, error = (IngestCounts(), self._error) if self.host is None else (self.host.counts, self.host.problem)
        return {"source": self.name, **counts._asdict(), "error": error}
