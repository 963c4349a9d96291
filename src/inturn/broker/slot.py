"""A slot for the caller's own code, which the broker does not run."""

import asyncio
import weakref
from collections.abc import Generator, Hashable
from typing import TYPE_CHECKING, Any, Self

from inturn.broker.task import SlotWaiter

if TYPE_CHECKING:
    from inturn.broker.broker import QueueBroker


class Turn:
    """A slot, held from when it is entered or awaited until it is left, acknowledged or garbage; used once.

    ```
    async with broker.turn("acct-1"):          # until the end of the block
        …
    turn = await broker.turn("acct-1")         # until turn.ack()
    ```
    """

    __slots__ = ("_broker", "_group", "_holds", "_timeout_s", "_used")

    def __init__(self, broker: "QueueBroker", group: Hashable, timeout_s: float | None) -> None:
        self._broker = broker
        self._group = group
        self._timeout_s = timeout_s
        self._used = self._holds = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._used:
            raise RuntimeError("a turn is used once: ask the broker for another")
        self._used = True
        broker = self._broker
        loop = broker._open()
        if not broker._turns.take(self._group):
            waiter: SlotWaiter[None] = SlotWaiter(loop=loop)
            waiter._broker, waiter.group, waiter.place, waiter.deadline = broker, self._group, None, None
            broker._wait(waiter, self._timeout_s)
            try:
                await waiter
            except BaseException:
                if not waiter.cancel() and not waiter.cancelled() and waiter.exception() is None:
                    broker._release(self._group)  # the slot was granted just as the caller was cancelled
                raise
        self._holds = True
        task = asyncio.current_task()
        if task is not None:
            broker._turn_tasks[id(self)] = weakref.ref(task)  # weak: the task may be what keeps this turn alive
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:  # the block is being collected, at any moment in any thread
            self.__del__()
        self.ack()

    def ack(self) -> None:
        """Free the slot; a second call does nothing."""
        if self._holds:
            self._holds = False
            self._broker._turn_tasks.pop(id(self), None)
            self._broker._release(self._group)

    def __del__(self) -> None:
        if self._holds:
            self._holds = False
            self._broker._turn_tasks.pop(id(self), None)
            self._broker._release_later(self._group)
