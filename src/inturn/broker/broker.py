"""A broker: gives turns to tasks and callers of one event loop, and runs the tasks.

Who is next is decided in :mod:`inturn.core.turns`. Tasks are run by workers: one for each task at work, which goes on
with the task that gets its slot and ends when there is none. So nothing is left over when there is no work.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar, TypeVarTuple

from inturn.broker.arguments import checked_bound, seconds_to_wait
from inturn.broker.deadlines import Deadlines
from inturn.broker.stuck import StuckCheck
from inturn.broker.task import HeldTask, Place, Posted, Task, Waiter
from inturn.broker.turn import Turn
from inturn.broker.worker import Worker
from inturn.core import limits
from inturn.core.errors import BrokerStopped, TurnTimeout
from inturn.core.turns import Turns

if TYPE_CHECKING:
    import weakref

T = TypeVar("T")
Args = TypeVarTuple("Args")
STOPPED = "the broker was stopped"


class QueueBroker:
    """Gives turns to tasks and callers of one event loop.

    At most ``max_active`` are active at once, and at most one of each group; the oldest that may go goes first. What
    is active holds a slot until it is acknowledged: a block by its end, a task by its end or, with ``hold=True``, by
    ``ack``. At most ``max_queued`` wait.

    As ``async with QueueBroker() as broker:`` it is drained and stopped at the end of the block; on an error, stopped
    and its tasks cancelled. It is used in the thread of its loop only.

    Args:
        max_active: how many are active at once.
        max_queued: how many wait for a slot before others are refused with ``QueueFull``.

    Raises:
        InputError: One of them is no whole number, or less than 1.
    """

    def __init__(self, *, max_active: int = limits.BROKER_ACTIVE, max_queued: int = limits.BROKER_QUEUED) -> None:
        checked_bound("max_active", max_active)
        checked_bound("max_queued", max_queued)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._turns: Turns[Place | Posted] = Turns(max_active, max_queued)
        self._deadlines: Deadlines[Waiter[Any]] = Deadlines(self._refuse)
        self._workers: dict[asyncio.Task[None], Place | Posted | None] = {}  # each with the task that has its slot
        self._latest: asyncio.Task[None] | None = None  # the worker that ran last
        self._turn_tasks: dict[int, weakref.ref[asyncio.Task[Any]]] = {}  # who entered each turn, by the turn's id
        self._stuck = StuckCheck(self._workers, self._turn_tasks, self._turns)
        self._drainers: set[asyncio.Future[None]] = set()

    @property
    def queued(self) -> int:
        """How many wait for a slot, at most ``max_queued``; callers who wait in ``put`` for room are not among them."""
        return self._turns.queued

    @property
    def active(self) -> int:
        """How many slots are held, at most ``max_active``."""
        return self._turns.active

    def turn(self, group: Hashable = None, *, timeout_s: float | None = None) -> Turn:
        """A slot for the caller itself: ``async with broker.turn("acct-1", timeout_s=5):``.

        Args:
            group: of its group it is the only one active; None is no group.
            timeout_s: how many seconds it waits at most; None for ever, 0 not at all.

        Returns:
            What must be entered or awaited. That raises ``QueueFull`` at once, and ``TurnTimeout`` or
            ``BrokerStopped`` while it waits.

        Raises:
            InputError: ``timeout_s`` is no number of seconds.
        """
        return Turn(self, group, seconds_to_wait(timeout_s))

    def submit(
        self,
        function: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        group: Hashable = None,
        timeout_s: float | None = None,
        hold: bool = False,
    ) -> Task[T]:
        """Run ``await function(*args)`` when it is its turn.

        Args:
            function: is called in a copy of the caller's context when its turn has come.
            args: its arguments.
            group: of its group it is the only one active; None is no group.
            timeout_s: how many seconds it waits for its turn at most; None for ever, 0 not at all. Once started it
                has all the time it wants.
            hold: with its result it keeps its slot, until ``Task.ack()`` or until the task is garbage. With an error
                the slot is freed.

        Returns:
            The task: await it for the result. If it is dropped, the function runs all the same.

        Raises:
            QueueFull: It would have to wait, and ``max_queued`` wait already.
            BrokerStopped: The broker was stopped.
            InputError: ``timeout_s`` is no number of seconds.
        """
        timeout_s = seconds_to_wait(timeout_s)
        task = self._task(function, args, group, hold=hold)
        if self._turns.take(group):
            self._grant([group, task, None])
        else:
            self._wait(task, timeout_s)
        return task

    def post(self, function: Callable[[*Args], Awaitable[object]], *args: *Args, group: Hashable = None) -> None:
        """Run ``await function(*args)`` when it is its turn, and keep nothing of it.

        For many small tasks whose results nobody asks for, at less than half the cost of ``submit``. It has no deadline
        and cannot be cancelled but by ``stop``.

        Args:
            function: is called in an empty context.
            args: its arguments.
            group: of its group it is the only one active; None is no group. What it raises goes to the event loop's
                exception handler, which logs it if it is not told otherwise.

        Raises:
            QueueFull: It would have to wait, and ``max_queued`` wait already.
            BrokerStopped: The broker was stopped.
        """
        if self._stopped or self._loop is None:
            self._open()
        posted = (group, function, args)
        if self._turns.enter(posted):
            self._grant(posted)

    async def put(
        self,
        function: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        group: Hashable = None,
        timeout_s: float | None = None,
        hold: bool = False,
    ) -> Task[T]:
        """Like ``submit``, but where that raises ``QueueFull`` wait for room.

        The place in the order and the deadline count from the call. If it is refused before there is room, the task
        says so. Who is cancelled while waiting takes the task along.

        Raises:
            BrokerStopped: The broker was stopped before.
            InputError: ``timeout_s`` is no number of seconds.
        """
        timeout_s = seconds_to_wait(timeout_s)
        task = self._task(function, args, group, hold=hold)
        if self._turns.take(group):
            self._grant([group, task, None])
            return task
        room = asyncio.Event()
        if self._wait(task, timeout_s, let_in=room.set):
            try:
                await room.wait()
            except BaseException:
                task.cancel()  # nobody else knows of it
                raise
        return task

    async def drain(self) -> None:
        """Wait until nothing is queued, running or unacknowledged, with what comes in meanwhile.

        Raises:
            RuntimeError: Called in a task or a turn of this broker, which would wait for its own end.
        """
        self._refuse_within("drain")
        while self._turns.active:  # as long as anything waits, something is active
            idle = asyncio.get_running_loop().create_future()
            self._drainers.add(idle)
            try:
                await idle
            finally:
                self._drainers.discard(idle)

    async def stop(self, *, cancel: bool = False) -> None:
        """Refuse what waits and what comes later with ``BrokerStopped``; wait until all that is active has ended.

        Args:
            cancel: cancel running tasks. Turns are their callers' own: they are waited for.

        Raises:
            RuntimeError: Called in a task or a turn of this broker, which would wait for its own end.
        """
        self._refuse_within("stop")
        self._stopped = True
        for _, waiter, args in self._turns.clear():
            if args is None:
                waiter.place = None
                waiter._fail(BrokerStopped(STOPPED))
        self._deadlines.close()
        self._stuck.close()
        if cancel:
            for worker in list(self._workers):
                worker.cancel()
        await self.drain()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.drain()
        finally:
            await self.stop(cancel=True)

    def _open(self) -> asyncio.AbstractEventLoop:
        """The running loop, which must be the one of the first use; refused once the broker is stopped."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise RuntimeError("this broker is used in another event loop already")
            self._loop = loop
        if self._stopped:
            raise BrokerStopped(STOPPED)
        return loop

    def _task(
        self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...], group: Hashable, *, hold: bool
    ) -> Task[T]:
        loop = self._open()
        task: Task[T] = HeldTask(loop=loop) if hold else Task(loop=loop)
        task._broker, task.group, task.place, task.deadline = self, group, None, None
        task._context, task._function, task._args = contextvars.copy_context(), function, args
        task._keeps, task._holds, task._worker = hold, False, None
        return task

    def _refuse_within(self, name: str) -> None:
        caller = asyncio.current_task()
        if caller in self._workers:
            raise RuntimeError(f"{name}() in a task of this broker would wait for its own end: call it outside")
        if any(task() is caller for task in self._turn_tasks.values()):
            raise RuntimeError(f"{name}() in a turn of this broker would wait for its own end: leave the turn first")

    def _wait(self, waiter: Waiter[Any], timeout_s: float | None, let_in: Callable[[], object] | None = None) -> bool:
        """Let it wait; whether it is outside, to be let in."""
        place: Place = [waiter.group, waiter, None]
        outside = self._turns.wait(place, let_in)
        waiter.place = place
        if timeout_s is not None:
            loop = waiter.get_loop()
            waiter.deadline = loop.time() + timeout_s
            self._deadlines.add(loop, waiter, waiter.deadline)
        else:
            self._stuck.look_later(waiter.get_loop())
        return outside

    def _withdraw(self, waiter: Waiter[Any]) -> None:
        place, waiter.place = waiter.place, None
        assert place is not None  # noqa: S101 - for mypy; callers have looked
        self._turns.withdraw(place)
        if waiter.deadline is not None:
            self._deadlines.left()

    def _refuse(self, waiter: Waiter[Any]) -> None:
        self._withdraw(waiter)
        waiter._fail(_late())

    def _look_at(self, one: Place | Posted | None) -> Place | Posted | None:
        """Who has the slot indeed, after ``Turns.next``: who is late does not. If nobody does, the drained are told."""
        while one is not None:
            if one[2] is not None:
                return one
            waiter: Waiter[Any] = one[1]
            waiter.place = None
            if waiter.deadline is None:
                return one
            self._deadlines.left()
            if waiter.deadline > waiter.get_loop().time():
                return one
            waiter._fail(_late())  # the timer is late itself; the slot goes on to the next
            one = self._turns.next(waiter.group)
        if not self._turns.active:
            for idle in self._drainers:
                if not idle.done():
                    idle.set_result(None)
        return None

    def _release(self, group: Hashable) -> None:
        if self._loop is not None and not self._loop.is_closed():
            one = self._look_at(self._turns.next(group))
            if one is not None:
                self._grant(one)

    def _release_later(self, group: Hashable) -> None:
        """The same from a finalizer, which may run at any moment and in any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._release, group)

    def _grant(self, one: Place | Posted) -> None:
        """Let one who has its slot begin: a caller goes on, a task gets a worker."""
        if not _to_be_run(one):
            one[1].set_result(None)
            return
        nobodys = contextvars.Context()  # else it would keep the context of its first task for as long as it lasts
        # Not by create_task: a task factory could begin it here and now.
        worker = Worker(self._work(), loop=self._loop, context=nobodys)
        self._workers[worker] = one
        worker.add_done_callback(self._worker_ended, context=nobodys)

    async def _work(self) -> None:
        """Run the task that this worker was made for, and then whichever gets its slot."""
        worker = asyncio.current_task()
        if not isinstance(worker, Worker):
            return
        turns, one, run, args = self._turns, self._workers[worker], None, None
        self._workers[worker] = None  # it keeps nothing that it has done with
        until = 0.0
        try:
            while one is not None:
                group, run, args = one
                if args is not None:
                    try:
                        await run(*args)
                    except BaseException as error:  # noqa: BLE001 - it is told, or raised again
                        _complain(worker.get_loop(), error)
                    one = turns.next(group)
                else:
                    if not run.done() and (rest := run._begin(worker)) is not None:  # done: cancelled meanwhile
                        await rest
                    one = None if run._holds else turns.next(group)
                if one is None or one[2] is None or worker.was_cancelled:
                    one = self._hand_on(worker, one)
                if self._latest is not worker:  # others ran meanwhile, so the loop has gone round
                    self._latest, until = worker, 0.0
                elif not until:
                    until = monotonic() + limits.BROKER_BURST_S
                elif monotonic() > until:
                    await asyncio.sleep(0)
                    until = 0.0
        finally:
            self._workers[worker] = one
            del one, run, args  # who keeps an error keeps this frame, and is not to keep others' tasks with it

    def _hand_on(self, worker: Worker, one: Place | Posted | None) -> Place | Posted | None:
        """What the worker itself is to run of that which has its slot now."""
        one = self._look_at(one)
        # A cancellation is its task's own: what of it is still pending must not reach another task.
        if one is not None and (worker.was_cancelled or not _to_be_run(one)):
            self._grant(one)
            return None
        return one

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        one = self._workers.pop(worker)
        if self._latest is worker:
            self._latest = None
        if one is not None:  # cancelled before it began, by ``stop`` or by the end of the loop; or it ended the loop
            if one[2] is None:
                one[1].cancel()
            self._release(one[0])
        if not worker.cancelled():
            worker.exception()  # told: who awaits the task gets it


def _to_be_run(one: Place | Posted) -> bool:
    """Whether it needs a worker; a caller is only told."""
    return one[2] is not None or isinstance(one[1], Task)


def _complain(loop: asyncio.AbstractEventLoop, error: BaseException) -> None:
    """Tell the loop; raise what ends the worker, or the loop itself, which is told by that."""
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    loop.call_exception_handler({"message": "what was posted to a broker raised", "exception": error})


def _late() -> TurnTimeout:
    return TurnTimeout("the deadline passed while the task waited for its turn")
