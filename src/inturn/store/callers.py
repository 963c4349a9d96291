"""Who waits for the writer: threads, tasks, callbacks in an event loop; and how each is told that it is done."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from inturn.store.commands import Ask, Command, Outcome


class Caller:
    """Somebody who waits: for the answer to a command or, without a command, for the lead.

    Attributes:
        command: what is to be done.
        until: when a receive has waited long enough, by the monotonic clock.
        outcome: the answer, once there is one.
        has_lead: whether it has the lead itself; for a task with a command the helper has it.
        is_gone: whether it waits no more.
        busy_until: when it has waited long enough for another transaction, if it waits for one.
    """

    until = busy_until = 0.0
    outcome: Outcome | None = None
    has_lead = is_gone = False

    def __init__(self, command: Command[Any] | None) -> None:
        self.command = command

    def come(self) -> None:
        """From now on it waits."""
        if self.command is not None and self.command.wait_s:
            self.until = time.monotonic() + self.command.wait_s

    def value(self) -> Any:
        """The raw answer; or raise the error."""
        value, error = self.outcome or (None, None)
        if error is not None:
            raise error
        return value


class ThreadCaller(Caller):
    """A thread, which waits at a lock: the quickest there is."""

    def __init__(self, command: Command[Any] | None) -> None:
        super().__init__(command)
        self._gate = threading.Lock()
        self._gate.acquire()

    def tell(self) -> None:
        """Let it go on: it has an outcome, or the lead."""
        self._gate.release()

    def wait(self) -> None:
        """Wait to be told."""
        self._gate.acquire()


class LoopCaller(Caller):
    """Somebody in an event loop."""

    def __init__(self, command: Command[Any] | None, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(command)
        self.loop = loop

    def told(self) -> None:
        """Called in the loop: it has an outcome, or the lead."""
        raise NotImplementedError


class TaskCaller(LoopCaller):
    """A task, which awaits a future."""

    def __init__(self, command: Command[Any] | None, loop: asyncio.AbstractEventLoop) -> None:
        self.command, self.loop = command, loop  # calls of super() would cost twice as much as all of it
        self.future: asyncio.Future[None] = loop.create_future()

    def told(self) -> None:
        """Let it go on."""
        if not self.future.done():
            self.future.set_result(None)


class PostedCaller(LoopCaller):
    """A function that is called with the answer or with the error."""

    def __init__(
        self, command: Command[Any], loop: asyncio.AbstractEventLoop, done: Callable[[Any, BaseException | None], None]
    ) -> None:
        self.command, self.loop = command, loop
        self._answer = command.answer
        self._done = done

    def told(self) -> None:
        """Call it; nobody else's turn suffers if it fails."""
        value, error = None, None
        try:
            value = self._answer(self.value())
        except Exception as refused:  # noqa: BLE001 - it is the caller's, who is told
            error = refused
        try:
            self._done(value, error)
        except Exception as failed:  # noqa: BLE001 - so that the others are told
            self.loop.call_exception_handler({"message": f"{self._done!r} failed", "exception": failed})


class Nobody(Caller):
    """No caller: something is to be done, by default to try the parked receives again, and nobody waits for it."""

    def __init__(self, command: Command[Any] | None = None) -> None:
        super().__init__(command or Ask("", lambda _store, _now_ms: None))


def tell(callers: Sequence[Caller], here: asyncio.AbstractEventLoop | None = None) -> None:
    """Let callers go on; those of one loop all at once.

    Args:
        callers: whom.
        here: the event loop that this is called in, if it is.
    """
    loops: defaultdict[asyncio.AbstractEventLoop, list[LoopCaller]] = defaultdict(list)
    for caller in callers:
        if isinstance(caller, LoopCaller):
            loops[caller.loop].append(caller)
        elif isinstance(caller, ThreadCaller):
            caller.tell()
    if here is not None:
        _tell_all(loops.pop(here, ()))
    for loop, those in loops.items():
        with suppress(RuntimeError):  # the loop was closed, so nobody waits
            loop.call_soon_threadsafe(_tell_all, those)


def _tell_all(callers: Sequence[LoopCaller]) -> None:
    for caller in callers:
        caller.told()
