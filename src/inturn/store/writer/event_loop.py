"""Execution of commands in the event loop; only the commit, which waits for the disk, runs in the helper thread.

Next to a busy loop, a thread that runs statements passes the GIL back and forth with each statement, which costs more
than the statements. So a server, whose loop has no other work, runs them in the loop and reads requests while the
helper commits. The helper still runs commands that may take longer, such as a query over all messages, and batches that
find another process writing or that fail.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from inturn.core.errors import StoreError
from inturn.store.commands import Command, Outcome, StoreCall
from inturn.store.execution import outcomes_within
from inturn.store.protocols import Store
from inturn.store.writer.group_commit import Writer
from inturn.store.writer.waiters import Batch


class SteppedStore(Store, Protocol):
    """A store whose transactions can begin in one thread and commit in another."""

    def begin(self, *, wait: bool = True) -> None:
        """Begin a transaction; unless ``wait``, fail if another process writes."""
        ...

    def commit(self) -> None:
        """Commit; if that fails, nothing is written."""
        ...

    def roll_back(self, because: BaseException) -> None:
        """Roll back."""
        ...


class EventLoopWriter:
    """A context in which the running event loop executes the writer's commands; exit it before the loop ends.

    Inside it, code in the loop's thread may wait for the writer only by ``await``: other waits would deadlock.
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
        with suppress(StoreError):  # callers get it too
            await self._writer.arun(StoreCall("", _nothing))  # runs after all that has begun

    def _call(self) -> None:
        """Schedule the lead in the loop, after the callbacks that are ready."""
        self._loop.call_soon_threadsafe(self._lead)

    def _lead(self) -> None:
        batch = self._writer.gather()
        if not all(command.is_short for command in batch.commands):
            self._leave_to_helper(batch)
            return
        try:
            self._store.begin(wait=False)
            outcomes = self._outcomes(batch.commands)
        except Exception:  # noqa: BLE001 - the helper finds the command that failed, and notifies its caller
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
        """Commit, in the helper thread."""
        try:
            self._store.commit()
        except Exception:  # noqa: BLE001 - nothing was stored, so the helper runs it again
            self._writer.put_back(batch)
            self._writer.serve()
            return
        self._loop.call_soon_threadsafe(self._finish, batch, outcomes)

    def _finish(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        self._writer.watch(batch.commands, outcomes)
        self._writer.hand_out(batch, outcomes, self._loop)
        self._writer.pass_on()


def _nothing(_store: Store, _now_ms: int) -> None:
    """Do nothing: the caller only waits for its turn."""
