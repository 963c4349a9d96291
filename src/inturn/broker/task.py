"""A task, from its submission to its result, and how it is run by a worker that runs many.

An asyncio task for each would cost more than everything else that a broker does. What it would have seen to is seen to
here: a task has a context of its own, and its errors and its cancellation are its own.
"""

import asyncio
import contextvars
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Posted: TypeAlias = tuple[Hashable, Any, tuple[Any, ...]]
"""What is posted is no object of its own, which would cost as much again: its group, the function, the arguments."""

Place: TypeAlias = list[Any]
"""Where a :class:`Waiter` stands while it waits, in the same form: its group, the waiter, None."""


class Slots(Protocol):
    """What tasks and turns need of their broker."""

    @property
    def _turns(self) -> object: ...

    def _withdraw(self, waiter: "Waiter[Any]") -> None: ...

    def _release(self, group: Hashable) -> None: ...

    def _release_later(self, group: Hashable) -> None: ...


class Waiter(asyncio.Future[T]):
    """One who waits for a slot.

    There is no ``__init__``, which would make it half as dear again: its broker fills in the attributes.

    Attributes:
        group: of its group it is the only one active; None is no group.
        place: where it stands while it waits; None before and after.
        deadline: when its wait is over, in seconds of the loop's time; None is never.
    """

    __slots__ = ("_broker", "deadline", "group", "place")
    _broker: Slots
    group: Hashable
    place: Place | None
    deadline: float | None

    def cancel(self, msg: object = None) -> bool:
        """Wait no more."""
        if self.place is not None:
            self._broker._withdraw(self)
        return super().cancel(msg)

    def _fail(self, error: BaseException) -> None:
        self.set_exception(error)
        self.exception()  # told: asyncio complains of no error that nobody asks for


class Task(Waiter[T]):
    """A task given to a broker: await it for its result.

    It is an ``asyncio.Future``, which ``asyncio.gather``, ``wait`` and ``shield`` take; and as with an asyncio task,
    who is cancelled while awaiting it cancels it too. It raises what the task raises, and ``TurnTimeout`` or
    ``BrokerStopped`` if the task did not get its turn. If nobody asks, nobody is told.
    """

    __slots__ = ("_args", "_context", "_function", "_holds", "_keeps", "_worker")
    _context: contextvars.Context | None  # these three until it begins
    _function: Callable[..., Awaitable[T]] | None
    _args: tuple[Any, ...]
    _keeps: bool  # its slot is to be kept with its result
    _holds: bool  # it has its result and keeps the slot
    _worker: "asyncio.Task[None] | None"  # while it runs

    def ack(self) -> None:
        """Free the slot that ``hold=True`` keeps; before the task has ended: as soon as it has. Again does nothing."""
        self._keeps = False
        if self._holds:
            self._holds = False
            self._broker._release(self.group)

    def cancel(self, msg: object = None) -> bool:
        """Cancel it: while it waits it leaves the queue, while it runs it is told, and a slot that it keeps is freed.

        Returns:
            Whether there was anything to cancel; False if it had ended.
        """
        if self._worker is not None:
            return self._worker.cancel(msg)
        self.ack()
        return super().cancel(msg)

    def _begin(self, worker: asyncio.Task[None]) -> Awaitable[None] | None:
        """Run it until it ends or awaits something; then what is left of it, to be awaited."""
        context, function, args = self._context, self._function, self._args
        assert context is not None  # noqa: S101 - for mypy; it begins once
        assert function is not None  # noqa: S101 - as above
        self._worker = worker
        self._context, self._function, self._args = None, None, ()  # who keeps a result keeps no arguments
        coroutine = _coroutine(function, args)
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration as stop:
            self._succeed(stop.value)
        except BaseException as error:  # noqa: BLE001 - whatever it is, who awaits the task is told
            self._end(error)
        else:
            return self._go_on(context, coroutine, awaited)
        finally:
            del self  # who keeps an error keeps this frame, and is not to keep the task with it
        return None

    @types.coroutine
    def _go_on(
        self, context: contextvars.Context, coroutine: Coroutine[Any, Any, T], awaited: Any
    ) -> Generator[Any, Any, None]:
        """Run the rest of it, each step in its context."""
        value: Any = None
        try:
            while True:
                step: Callable[[Any], Any] = coroutine.send
                try:
                    value = yield awaited
                except BaseException as error:  # noqa: BLE001 - it is the coroutine's to catch
                    step, value = coroutine.throw, error
                awaited = context.run(step, value)
        except StopIteration as stop:
            self._succeed(stop.value)
        except BaseException as error:  # noqa: BLE001 - whatever it is, who awaits the task is told
            self._end(error)
        finally:
            del self, value  # as above

    def _succeed(self, result: T) -> None:
        self._worker = None
        self.set_result(result)
        self._holds = self._keeps

    def _end(self, error: BaseException) -> None:
        self._worker = None
        if isinstance(error, asyncio.CancelledError):
            asyncio.Future.cancel(self, *error.args)
        else:
            self._fail(error)
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise error


class HeldTask(Task[T]):
    """A task with ``hold=True``. It is a class of its own since a finalizer would cost every task."""

    __slots__ = ()

    def __del__(self) -> None:
        if self._holds:
            self._broker._release_later(self.group)


async def _coroutine(function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    """A coroutine of whatever can be awaited, which has the call and its errors within."""
    return await function(*args)
