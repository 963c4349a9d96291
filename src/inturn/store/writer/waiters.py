"""The callers that wait for the writer: threads, asyncio tasks and event-loop callbacks, and how each is notified."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from inturn.store.commands import Command, Outcome, StoreCall


class Waiter:
    """A caller that waits for the outcome of a command or, without a command, for the lead.

    Attributes:
        command: the command; None: it waits for the lead.
        until: deadline of a waiting receive, by the monotonic clock; 0: it does not wait.
        outcome: the outcome; None until there is one.
        has_lead: whether the caller leads; for a task with a command the helper leads.
        is_gone: whether it has stopped waiting.
        busy_until: deadline of the wait for another transaction; 0: it has not waited for one.
    """

    until = busy_until = 0.0
    outcome: Outcome | None = None
    has_lead = is_gone = False

    def __init__(self, command: Command[Any] | None) -> None:
        self.command = command

    def start_waiting(self) -> None:
        """Start the waiting time of the command."""
        if self.command is not None and self.command.wait_s:
            self.until = time.monotonic() + self.command.wait_s

    def value(self) -> Any:
        """Return the raw answer, or raise the error."""
        value, error = self.outcome or (None, None)
        if error is not None:
            raise error
        return value


class ThreadWaiter(Waiter):
    """A thread, which waits on a lock, the fastest primitive."""

    def __init__(self, command: Command[Any] | None) -> None:
        super().__init__(command)
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    def wake(self) -> None:
        """Wake the thread: it has an outcome or the lead."""
        self._wakeup.release()

    def wait(self) -> None:
        """Wait until :meth:`tell` is called."""
        self._wakeup.acquire()


class LoopWaiter(Waiter):
    """A caller in an event loop."""

    def __init__(self, command: Command[Any] | None, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(command)
        self.loop = loop

    def on_outcome(self) -> None:
        """Handle an outcome or the lead; called in the loop."""
        raise NotImplementedError


class TaskWaiter(LoopWaiter):
    """An asyncio task, which awaits a future."""

    def __init__(self, command: Command[Any] | None, loop: asyncio.AbstractEventLoop) -> None:
        self.command, self.loop = command, loop  # super() would cost twice as much as the rest
        self.future: asyncio.Future[None] = loop.create_future()

    def on_outcome(self) -> None:
        """Complete the future."""
        if not self.future.done():
            self.future.set_result(None)


class PostedWaiter(LoopWaiter):
    """A callback that is called with the answer or the error."""

    def __init__(
        self, command: Command[Any], loop: asyncio.AbstractEventLoop, done: Callable[[Any, BaseException | None], None]
    ) -> None:
        self.command, self.loop = command, loop
        self._answer = command.answer
        self._done = done

    def on_outcome(self) -> None:
        """Call the callback; its failure does not affect other callers."""
        value, error = None, None
        try:
            value = self._answer(self.value())
        except Exception as refused:  # noqa: BLE001 - the error is passed to the caller
            error = refused
        try:
            self._done(value, error)
        except Exception as failed:  # noqa: BLE001 - other callers are still notified
            self.loop.call_exception_handler({"message": f"{self._done!r} failed", "exception": failed})


class Retrigger(Waiter):
    """A command without a waiting caller; by default one that makes the writer retry the parked receives."""

    def __init__(self, command: Command[Any] | None = None) -> None:
        super().__init__(command or StoreCall("", lambda _store, _now_ms: None))


class Batch(NamedTuple):
    """Commands that go into one transaction.

    Attributes:
        callers: callers of the commands; parked receives first.
        commands: command of each caller.
        gathered: callers taken from the queue for this batch.
        wakeups: number of calls of :meth:`Writer.wake` so far.
    """

    callers: list[Waiter]
    commands: list[Command[Any]]
    gathered: list[Waiter]
    wakeups: int


class Leader(Protocol):
    """A caller's transaction, which holds the lead for longer than a batch."""

    def overdue(self) -> float | None:
        """Give up the lead if it is overdue; otherwise return the deadline, by the monotonic clock."""
        ...


def notify(callers: Sequence[Waiter], own_loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Notify callers that have an outcome or the lead; callers of one loop together, those of ``own_loop`` at once."""
    loops: defaultdict[asyncio.AbstractEventLoop, list[LoopWaiter]] = defaultdict(list)
    for caller in callers:
        if isinstance(caller, LoopWaiter):
            loops[caller.loop].append(caller)
        elif isinstance(caller, ThreadWaiter):
            caller.wake()
    if own_loop is not None:
        _notify_all(loops.pop(own_loop, ()))
    for loop, waiters in loops.items():
        with suppress(RuntimeError):  # the loop was closed, so no caller waits
            loop.call_soon_threadsafe(_notify_all, waiters)


def _notify_all(callers: Sequence[LoopWaiter]) -> None:
    for caller in callers:
        caller.on_outcome()
