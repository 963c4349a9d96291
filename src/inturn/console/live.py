"""Server-sent events: they notify a page that its stores have changed, are unavailable, or are available again.

One task polls the stores for all open pages; it does not run while no page is open.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool

from inturn.console.store_addresses import is_database, is_pipeline
from inturn.core import limits
from inturn.core.errors import InturnError

if TYPE_CHECKING:
    from inturn.spark.tables.manifest import SparkStore
    from inturn.store.postgres.reader import PostgresPipelineReader

POLL_S: Final = 2.0
"""Polling interval of the stores while a page is open, in seconds; also the minimum time between two events."""
_KEEP_ALIVE_S: Final = 15.0


class StoreWatch:
    """Notifies open pages that a store has changed.

    Args:
        stores: the stores of the console.

    Attributes:
        listeners: number of pages that listen.
    """

    def __init__(self, stores: Sequence[str]) -> None:
        self.listeners = 0
        self._marks = [ChangeMarker(store) for store in stores]
        self._last_marks: tuple[str, ...] = ()
        self._changes = 0
        self._changed = asyncio.Condition()
        self._has_polled = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._is_stopped = False

    @property
    def is_full(self) -> bool:
        """Return whether no more pages can listen."""
        return self.listeners >= limits.CONSOLE_LISTENERS

    async def end(self) -> None:
        """End all streams, for a server that stops: it would otherwise wait for them, and then cut them."""
        self._is_stopped = True
        self._has_polled.set()
        await self._notify()

    async def events(self) -> AsyncIterator[str]:
        """Yield an event when a store has changed, and a comment as keep-alive for proxies."""
        self.listeners += 1
        try:
            if self._polling is None and not self._is_stopped:
                self._polling = asyncio.create_task(self._poll())
            await self._has_polled.wait()  # a page that receives the first line receives all later changes
            seen = self._changes
            yield "retry: 3000\n\n"
            while not self._is_stopped:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._change(seen), _KEEP_ALIVE_S)
                if self._is_stopped:
                    return
                if self._changes == seen:
                    yield ": nothing new\n\n"
                    continue
                seen, available = self._changes, sum(map(bool, self._last_marks))
                yield f"event: {'changed' if available == len(self._last_marks) else 'away'}\ndata: {available}\n\n"
        finally:
            self.listeners -= 1

    async def _change(self, seen: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._changes != seen)

    async def _notify(self) -> None:
        async with self._changed:
            self._changes += 1
            self._changed.notify_all()

    async def _poll(self) -> None:
        """Poll the stores as long as a page listens."""
        self._last_marks = await self._current_marks()
        self._has_polled.set()
        while self.listeners:
            await asyncio.sleep(POLL_S)
            now = await self._current_marks()
            if now != self._last_marks:
                self._last_marks = now
                await self._notify()
        self._has_polled.clear()
        self._polling = None  # no await since the check of the listeners: the next listener starts a new task
        for marker in self._marks:
            marker.close()

    async def _current_marks(self) -> tuple[str, ...]:
        return tuple(await asyncio.gather(*(run_in_threadpool(marker.current) for marker in self._marks)))


class ChangeMarker:
    """A text that changes whenever a store does.

    Args:
        address: the store.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._path = address if is_database(address) else address.rpartition("#")[0] if is_pipeline(address) else ""
        self._server: PostgresPipelineReader | None = None
        self._steps: SparkStore | None = None

    def current(self) -> str:
        """Return the text; empty if the store is unavailable."""
        try:
            if not self._path:
                return self._of_steps()
            return self._of_server() if "://" in self._path else _of_file(self._path)
        except (InturnError, OSError):
            self.close()
            return ""

    def close(self) -> None:
        """Close the connection to a server, if there is one."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _of_server(self) -> str:
        """Return the number of changed rows that PostgreSQL counts for the database, over a connection kept open."""
        if self._server is None:
            from inturn.store.postgres.reader import PostgresPipelineReader

            self._server = PostgresPipelineReader(self._path, limits.CONSOLE_ANSWER_S)
        return f"rows {self._server.changed_rows()}"

    def _of_steps(self) -> str:
        """Return the last step and the new decisions of a store on Spark."""
        from inturn.spark.tables.manifest import SparkStore

        if self._steps is None:
            self._steps = SparkStore(self._address)
        return self._steps.change_marker()


def _of_file(path: str) -> str:
    """Return the times and sizes of an SQLite file and its log."""
    mark = _stat(path)
    with suppress(FileNotFoundError):
        mark += _stat(f"{path}-wal")
    return mark


def _stat(path: str) -> str:
    status = Path(path).stat()
    return f" {status.st_ino}/{status.st_mtime_ns}/{status.st_size}"
