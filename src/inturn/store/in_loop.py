"""Commands of an event loop done in that loop: only the commit, which waits for the disk, is left to the helper.

Beside a loop that is busy, a thread that runs statements hands Python's lock to and fro with every one of them, which
costs more than the statements. So a server, whose loop has nothing else to do, does them itself, and goes on reading
requests while the helper commits. What may take longer, a question about everything for example, is left to the helper
as ever, and so is a batch that finds another process writing, or that fails.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from inturn.core.errors import StoreError
from inturn.store.base import Store
from inturn.store.commands import Ask, Command, Outcome, outcomes_within
from inturn.store.writer import Batch, Writer


class SteppedStore(Store, Protocol):
    """A store whose transactions can be begun in one thread and committed in another."""

    def begin(self, *, wait: bool = True) -> None:
        """Begin a transaction.

        Args:
            wait: for another process that writes; otherwise it is refused.

        Raises:
            StoreError: if it cannot be begun.
        """
        ...

    def commit(self) -> None:
        """Keep what was done; or nothing, if that fails."""
        ...

    def roll_back(self, because: BaseException) -> None:
        """Keep nothing of it."""
        ...


class InLoop:
    """While this is entered, the commands of the running event loop are done in it; it is to be left before that ends.

    Meanwhile nothing in that loop's thread may wait for the writer but by ``await``: it would wait for itself.

    Args:
        writer: whose commands.
        store: that it writes to.
    """

    _loop: asyncio.AbstractEventLoop

    def __init__(self, writer: Writer, store: SteppedStore) -> None:
        self._writer = writer
        self._store = store

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._writer.delegate = self._call
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.delegate = self._writer.by_helper
        with suppress(StoreError):  # whoever asked is told
            await self._writer.arun(Ask("", _nothing))  # which comes after all that has begun

    def _call(self) -> None:
        """Lead in the loop, as soon as it has heard all who are ready."""
        self._loop.call_soon_threadsafe(self._lead)

    def _lead(self) -> None:
        batch = self._writer.gather()
        if not all(command.is_short for command in batch.commands):
            self._leave_to_helper(batch)
            return
        try:
            self._store.begin(wait=False)
            outcomes = self._outcomes(batch.commands)
        except Exception:  # noqa: BLE001 - the helper finds out whose fault it is, and tells them
            self._leave_to_helper(batch)
            return
        self._writer.by_helper(partial(self._commit, batch, outcomes))

    def _outcomes(self, commands: Sequence[Command[Any]]) -> list[Outcome]:
        try:
            return outcomes_within(self._store, commands, self._writer.clock())
        except BaseException as error:
            self._store.roll_back(error)
            raise

    def _leave_to_helper(self, batch: Batch) -> None:
        self._writer.put_back(batch)
        self._writer.by_helper()

    def _commit(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        """Called in the helper's thread."""
        try:
            self._store.commit()
        except Exception:  # noqa: BLE001 - nothing was kept, so it is done once more
            self._writer.put_back(batch)
            self._writer.serve()
            return
        self._loop.call_soon_threadsafe(self._finish, batch, outcomes)

    def _finish(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        self._writer.watch(batch.commands, outcomes)
        self._writer.hand_out(batch, outcomes, self._loop)
        self._writer.pass_on()


def _nothing(_store: Store, _now_ms: int) -> None:
    """Only its turn is waited for."""
