"""Server-sent events: they notify a page that its stores have changed, are unavailable, or are available again.

One task polls the stores for all open pages; it does not run while no page is open.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool

from inturn.console.places import is_database, is_pipeline
from inturn.core import limits
from inturn.core.errors import InturnError

if TYPE_CHECKING:
    from inturn.spark.tables.manifest import SparkStore
    from inturn.store.postgres.reader import PostgresPipelineReader

LOOK_S: Final = 2.0
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
        self._marks = [StoreMark(each) for each in stores]
        self._seen: tuple[str, ...] = ()
        self._changes = 0
        self._changed = asyncio.Condition()
        self._has_looked = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._is_over = False

    @property
    def is_full(self) -> bool:
        """Return whether no more pages can listen."""
        return self.listeners >= limits.CONSOLE_LISTENERS

    async def end(self) -> None:
        """End all streams, for a server that stops: it would otherwise wait for them, and then cut them."""
        self._is_over = True
        self._has_looked.set()
        await self._tell()

    async def events(self) -> AsyncIterator[str]:
        """Yield an event when a store has changed, and a comment as keep-alive for proxies."""
        self.listeners += 1
        try:
            if self._looking is None and not self._is_over:
                self._looking = asyncio.create_task(self._look())
            await self._has_looked.wait()  # a page that receives the first line receives all later changes
            seen = self._changes
            yield "retry: 3000\n\n"
            while not self._is_over:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._change(seen), _KEEP_ALIVE_S)
                if self._is_over:
                    return
                if self._changes == seen:
                    yield ": nothing new\n\n"
                    continue
                seen, there = self._changes, sum(map(bool, self._seen))
                yield f"event: {'changed' if there == len(self._seen) else 'away'}\ndata: {there}\n\n"
        finally:
            self.listeners -= 1

    async def _change(self, seen: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._changes != seen)

    async def _tell(self) -> None:
        async with self._changed:
            self._changes += 1
            self._changed.notify_all()

    async def _look(self) -> None:
        """Poll the stores as long as a page listens."""
        self._seen = await self._now()
        self._has_looked.set()
        while self.listeners:
            await asyncio.sleep(LOOK_S)
            now = await self._now()
            if now != self._seen:
                self._seen = now
                await self._tell()
        self._has_looked.clear()
        self._looking = None  # no await since the check of the listeners: the next listener starts a new task
        for each in self._marks:
            each.close()

    async def _now(self) -> tuple[str, ...]:
        return tuple(await asyncio.gather(*(run_in_threadpool(each.now) for each in self._marks)))


class StoreMark:
    """A text that changes whenever a store does.

    Args:
        at: the store.
    """

    def __init__(self, at: str) -> None:
        self._at = at
        self._path = at if is_database(at) else at.rpartition("#")[0] if is_pipeline(at) else ""
        self._server: PostgresPipelineReader | None = None
        self._steps: SparkStore | None = None

    def now(self) -> str:
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
            self._steps = SparkStore(self._at)
        return self._steps.change_marker()


def _of_file(path: str) -> str:
    """Return the times and sizes of an SQLite file and its log."""
    mark = _stat(path)
    with suppress(FileNotFoundError):
        mark += _stat(f"{path}-wal")
    return mark


def _stat(path: str) -> str:
    found = Path(path).stat()
    return f" {found.st_ino}/{found.st_mtime_ns}/{found.st_size}"
