"""Tasks, from submission to result, and slots for the caller's own code.

One worker runs many tasks. An asyncio task for each would cost more than all the rest of a broker. This module does
the work of one instead: each task has its own context, errors and cancellation.
"""

import asyncio
import weakref
from collections.abc import Generator, Hashable
from typing import TYPE_CHECKING, Any, Self

from inturn.core.errors import SlotTimeout

if TYPE_CHECKING:
    from inturn.broker.broker import QueueBroker

import contextvars
import types
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Posted: TypeAlias = tuple[Hashable, Any, tuple[Any, ...]]
"""A posted task: its group, function and arguments. A plain tuple, since an object would cost as much again."""

Place: TypeAlias = list[Any]
"""The place of a :class:`SlotWaiter` in the queue, in the same form: its group, the waiter, None."""


class SlotWaiter(asyncio.Future[T]):
    """A future of something that waits for a slot.

    It has no ``__init__``, which would add half to its cost: its broker sets the attributes.

    Attributes:
        group: the group, of which at most one is active; None: no group.
        place: its place while it waits; None before and after.
        deadline: the end of the wait, in seconds of the loop's time; None: no limit.
    """

    __slots__ = ("_broker", "deadline", "group", "place")
    _broker: "QueueBroker"
    group: Hashable
    place: Place | None
    deadline: float | None

    def cancel(self, msg: object = None) -> bool:
        """Leave the queue and cancel the future."""
        if self.place is not None:
            self._broker._withdraw(self)
        return super().cancel(msg)

    def time_out(self) -> None:
        """Refuse the waiter, since its deadline has passed."""
        self._fail(SlotTimeout("the deadline passed while the task waited for its slot"))

    def _fail(self, error: BaseException) -> None:
        self.set_exception(error)
        self.exception()  # marks the error as retrieved, so that asyncio does not log it


class Task(SlotWaiter[T]):
    """A task of a broker: await it for its result.

    It is an ``asyncio.Future``, for ``asyncio.gather``, ``wait`` and ``shield``. As with an asyncio task, cancelling a
    caller that awaits it cancels it too. It raises the error of the task, and ``SlotTimeout`` or ``BrokerStopped`` if
    the task did not get its slot. Errors that are never retrieved are not logged.
    """

    __slots__ = ("_args", "_context", "_function", "_holds", "_keeps_slot", "_worker")
    _context: contextvars.Context | None  # these three are cleared when it begins
    _function: Callable[..., Awaitable[T]] | None
    _args: tuple[Any, ...]
    _keeps_slot: bool  # whether to keep the slot after a result
    _holds: bool  # whether it has its result and keeps the slot
    _worker: "asyncio.Task[None] | None"  # while it runs

    def never_ran(self) -> bool:
        """Return whether it ended without its slot, or was cancelled."""
        return self.cancelled() or (self.done() and self._function is not None)

    def ack(self) -> None:
        """Free the slot that ``hold=True`` keeps, once the task has ended. A second call does nothing."""
        self._keeps_slot = False
        if self._holds:
            self._holds = False
            self._broker._release(self.group)

    def cancel(self, msg: object = None) -> bool:
        """Cancel the task: remove it from the queue, interrupt it if it runs, and free a slot that it keeps.

        Returns:
            Whether there was anything to cancel; False if it had ended.
        """
        if self._worker is not None:
            return self._worker.cancel(msg)
        self.ack()
        return super().cancel(msg)

    def _begin(self, worker: asyncio.Task[None]) -> Awaitable[None] | None:
        """Run the task until it ends or suspends; if it suspends, return the rest to be awaited."""
        context, function, args = self._context, self._function, self._args
        assert context is not None  # noqa: S101 - for mypy; it begins once
        assert function is not None  # noqa: S101 - as above
        self._worker = worker
        self._context, self._function, self._args = None, None, ()  # a kept result must not keep the arguments alive
        coroutine = _coroutine(function, args)
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration as stop:
            self._succeed(stop.value)
        except BaseException as error:  # noqa: BLE001 - any error is raised where the task is awaited
            self._end(error)
        else:
            return self._resume(context, coroutine, awaited)
        finally:
            del self  # a kept error keeps this frame, which must not keep the task alive
        return None

    @types.coroutine
    def _resume(
        self, context: contextvars.Context, coroutine: Coroutine[Any, Any, T], awaited: Any
    ) -> Generator[Any, Any, None]:
        """Run the rest of the task, each step in its context."""
        value: Any = None
        try:
            while True:
                step: Callable[[Any], Any] = coroutine.send
                try:
                    value = yield awaited
                except BaseException as error:  # noqa: BLE001 - the coroutine may catch it
                    step, value = coroutine.throw, error
                awaited = context.run(step, value)
        except StopIteration as stop:
            self._succeed(stop.value)
        except BaseException as error:  # noqa: BLE001 - any error is raised where the task is awaited
            self._end(error)
        finally:
            del self, value  # as above

    def _succeed(self, result: T) -> None:
        self._worker = None
        self.set_result(result)
        self._holds = self._keeps_slot

    def _end(self, error: BaseException) -> None:
        self._worker = None
        if isinstance(error, asyncio.CancelledError):
            asyncio.Future.cancel(self, *error.args)
        else:
            self._fail(error)
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise error


class HeldTask(Task[T]):
    """A task with ``hold=True``; a separate class, since a finalizer would cost every task."""

    __slots__ = ()

    def __del__(self) -> None:
        if self._holds:
            self._broker._release_later(self.group)


async def _coroutine(function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    """Wrap any awaitable in a coroutine, including the call and its errors."""
    return await function(*args)


class BrokerWorker(asyncio.Task[None]):
    """An asyncio task that knows whether it was ever cancelled.

    ``cancelling()`` is not enough: after ``task.cancel(); task.uncancel()`` it is 0, yet Python 3.11 and 3.12 raise the
    cancellation at the next ``await``, which may be another task's. So a worker that was ever cancelled runs no further
    task.

    Attributes:
        was_cancelled: whether ``cancel`` was called.
    """

    was_cancelled = False

    def cancel(self, msg: object = None) -> bool:
        """Cancel the task that it runs."""
        self.was_cancelled = True
        return super().cancel(msg)


def needs_worker(entry: Place | Posted) -> bool:
    """Return whether one needs a worker; a caller is only resumed."""
    return entry[2] is not None or isinstance(entry[1], Task)


def report_error(loop: asyncio.AbstractEventLoop, error: BaseException) -> None:
    """Report an error of a posted task to the loop, but raise it if it ends the worker or the loop."""
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    loop.call_exception_handler({"message": "a task that was posted to a broker failed", "exception": error})


class Slot:
    """A slot, held from entering or awaiting it until it is left, acknowledged or garbage-collected; used once.

    ```
    async with broker.slot("acct-1"):          # until the end of the block
        …
    slot = await broker.slot("acct-1")         # until slot.ack()
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
            raise RuntimeError("a slot can be used only once; get another one from broker.slot()")
        self._used = True
        broker = self._broker
        loop = broker._open()
        if not broker._scheduler.take(self._group):
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
            broker._slot_tasks[id(self)] = weakref.ref(task)  # weak: the task may keep this slot alive
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:  # the block is being collected, at any moment in any thread
            self.__del__()
        self.ack()

    def ack(self) -> None:
        """Free the slot; a second call does nothing."""
        self._free(self._broker._release)

    def __del__(self) -> None:
        self._free(self._broker._release_later)

    def _free(self, release: Callable[[Hashable], None]) -> None:
        if self._holds:
            self._holds = False
            self._broker._slot_tasks.pop(id(self), None)
            release(self._group)
