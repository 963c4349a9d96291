"""Reads outside of the writer, each in its own transaction: it waits for no writer, and no writer waits for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from inturn.core.override import override
from inturn.store import limits as store_limits
from inturn.store.commands import Command
from inturn.store.failures import NoReader, closed
from inturn.store.protocols import Store
from inturn.store.writer.group_commit import Writer
from inturn.store.writer.settings import WriterSettings, wall_clock_ms

T = TypeVar("T")


class ReadingWriter(Writer):
    """A writer that runs reads outside of its transactions, if its database supports that.

    Args:
        store: the store.
        clock: returns the time in milliseconds since 1970.
        settings: the ways in which it depends on its database.
    """

    def __init__(self, store: Store, clock: Callable[[], int] = wall_clock_ms, settings: WriterSettings | None = None):
        super().__init__(store, clock, settings)
        self._reading: Final = None if settings is None else settings.reading
        self._readers: Final = ThreadPoolExecutor(store_limits.READERS, thread_name_prefix="inturn-reader")

    @override
    def run(self, command: Command[T]) -> T:
        if not command.is_read or self._reading is None:
            return super().run(command)
        self._check_not_within()
        try:
            return self._read(command)
        except NoReader:
            return super().run(command)

    @override
    async def arun(self, command: Command[T]) -> T:
        if not command.is_read or self._reading is None:
            return await super().arun(command)
        self._check_not_within(asyncio.current_task())
        try:
            reading = asyncio.get_running_loop().run_in_executor(self._readers, self._read, command)
        except RuntimeError as error:  # they are shut down
            raise closed() from error
        try:
            return await reading
        except NoReader:
            return await super().arun(command)

    def _read(self, command: Command[T]) -> T:
        assert self._reading is not None  # noqa: S101 - the callers have checked
        with self._reading() as store:
            result = command.run(store, self.clock())
        return command.answer(result)

    @override
    def close(self) -> None:
        super().close()
        self._readers.shutdown(wait=False)
