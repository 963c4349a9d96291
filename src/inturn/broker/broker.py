"""A broker: gives slots to tasks and callers of one event loop, and runs the tasks.

:mod:`inturn.core.scheduler` chooses the next one. Each active task has a worker. When the task ends, the worker
continues with the task that gets its slot, or ends if there is none. So no worker is left when there is no work.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar, TypeVarTuple

from inturn.broker.deadlines import Deadlines, StuckCheck, seconds_to_wait
from inturn.broker.deduplication import POSTED, FirstTasks
from inturn.broker.task import BrokerWorker, HeldTask, Place, Posted, Slot, SlotWaiter, Task, needs_worker, report_error
from inturn.core import limits
from inturn.core.arguments import refusal
from inturn.core.errors import BrokerStopped
from inturn.core.scheduler import Fairness, Scheduler, scheduler

if TYPE_CHECKING:
    import weakref

T = TypeVar("T")
Args = TypeVarTuple("Args")
STOPPED = "the broker was stopped"


class QueueBroker:
    """A broker that gives slots to tasks and callers of one event loop.

    At most ``max_active`` tasks and callers are active at once, and at most one of each group; the oldest that may
    start is first. An active one holds a slot until it is acknowledged: a block by its end, a task by its end or, with
    ``hold=True``, by ``ack``.

    As ``async with QueueBroker() as broker:`` it is drained and stopped at the end of the block. On an error it is
    stopped and its tasks are cancelled. It may be used only in the thread of its loop.

    Args:
        max_active: the number of slots.
        max_queued: the number that may wait for a slot; further ones are refused with ``QueueFull``.
        fairness: ``oldest`` first, or ``ungrouped-first``: tasks without a group before tasks of groups.
        dedup_window_s: the time for which a ``dedup_id`` is known, in seconds; None: for ever.

    Raises:
        InputError: if an argument is invalid.
    """

    def __init__(
        self,
        *,
        max_active: int = limits.BROKER_ACTIVE,
        max_queued: int = limits.BROKER_QUEUED,
        fairness: Fairness = "oldest",
        dedup_window_s: float | None = 300,
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._scheduler: Scheduler[Place | Posted] = scheduler(fairness, max_active, max_queued)
        self._first_tasks = FirstTasks(dedup_window_s, self._open)
        self._deadlines = Deadlines(self._time_out)
        self._workers: dict[asyncio.Task[None], Place | Posted | None] = {}  # each with the task that has its slot
        self._latest_worker: asyncio.Task[None] | None = None  # the worker that ran last
        self._slot_tasks: dict[int, weakref.ref[asyncio.Task[Any]]] = {}  # the entering task by id of the slot
        self._stuck = StuckCheck(self._workers, self._slot_tasks, self._scheduler)
        self._drainers: set[asyncio.Future[None]] = set()

    @property
    def queued(self) -> int:
        """The number waiting for a slot, at most ``max_queued``; callers that wait in ``put`` for room do not count."""
        return self._scheduler.queued

    @property
    def active(self) -> int:
        """The number of slots held, at most ``max_active``."""
        return self._scheduler.active

    def slot(self, group: Hashable = None, *, timeout_s: float | None = None) -> Slot:
        """Return a slot for the caller's own code: ``async with broker.slot("acct-1", timeout_s=5):``.

        Args:
            group: the group, of which at most one is active; None: no group.
            timeout_s: the maximum wait in seconds; None: no limit, 0: no wait.

        Returns:
            A slot to be entered or awaited. Entering raises ``QueueFull`` at once, and ``SlotTimeout`` or
            ``BrokerStopped`` during the wait.

        Raises:
            InputError: if ``timeout_s`` is not a number of seconds.
        """
        return Slot(self, group, seconds_to_wait(timeout_s))

    def submit(
        self,
        function: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        group: Hashable = None,
        timeout_s: float | None = None,
        hold: bool = False,
        dedup_id: Hashable = None,
    ) -> Task[T]:
        """Run ``await function(*args)`` when it gets a slot.

        Args:
            function: called in a copy of the caller's context when it gets its slot.
            args: its arguments.
            group: the group, of which at most one is active; None: no group.
            timeout_s: the maximum wait for its slot in seconds; None: no limit, 0: no wait. It does not limit the run.
            hold: whether it keeps its slot after a result, until ``Task.ack()`` or garbage collection of the task. An
                error frees the slot at once.
            dedup_id: if the broker already knows it, nothing is run.

        Returns:
            The task, or the first one with a known id: await it for the result. It runs even if the caller drops it.

        Raises:
            QueueFull: if it would have to wait, and ``max_queued`` are already waiting.
            BrokerStopped: if the broker was stopped.
            InputError: if ``timeout_s`` is invalid, or ``dedup_id`` is combined with ``hold`` or known from ``post``.
        """
        timeout_s = seconds_to_wait(timeout_s)
        if dedup_id is not None and (first := self._first_tasks.result_of(dedup_id, hold=hold)) is not None:
            return first
        task = self._task(function, args, group, hold=hold)
        if self._scheduler.take(group):
            self._grant([group, task, None])
        else:
            self._wait(task, timeout_s)
        if dedup_id is not None:
            self._first_tasks.remember(dedup_id, task)
        return task

    def post(
        self,
        function: Callable[[*Args], Awaitable[object]],
        *args: *Args,
        group: Hashable = None,
        dedup_id: Hashable = None,
    ) -> None:
        """Run ``await function(*args)`` when it gets a slot, and discard the result.

        It is for many small tasks without results, at less than half the cost of ``submit``. The task has no deadline,
        and only ``stop`` can cancel it. Its error goes to the event loop's exception handler, which logs it by default.

        Args:
            function: called in an empty context.
            args: its arguments.
            group: the group, of which at most one is active; None: no group.
            dedup_id: if the broker already knows it, nothing is run.

        Raises:
            QueueFull: if it would have to wait, and ``max_queued`` are already waiting.
            BrokerStopped: if the broker was stopped.
        """
        if self._stopped or self._loop is None:
            self._open()
        if dedup_id is not None and self._first_tasks.find(dedup_id) is not None:
            return
        posted = (group, function, args)
        if self._scheduler.enter(posted):
            self._grant(posted)
        if dedup_id is not None:
            self._first_tasks.remember(dedup_id, POSTED)

    async def put(
        self,
        function: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        group: Hashable = None,
        timeout_s: float | None = None,
        hold: bool = False,
        dedup_id: Hashable = None,
    ) -> Task[T]:
        """Submit a task like ``submit``, but wait for room where ``submit`` raises ``QueueFull``.

        The place in the order and the deadline count from the call. If the task is refused before there is room,
        awaiting the task raises the error. Cancelling a waiting caller cancels the task.

        Raises:
            BrokerStopped: if the broker was already stopped.
            InputError: as for ``submit``.
        """
        timeout_s = seconds_to_wait(timeout_s)
        if dedup_id is not None and (first := self._first_tasks.result_of(dedup_id, hold=hold)) is not None:
            return first
        task = self._task(function, args, group, hold=hold)
        room, is_outside = asyncio.Event(), False
        if self._scheduler.take(group):
            self._grant([group, task, None])
        else:
            is_outside = self._wait(task, timeout_s, on_room=room.set)
        if dedup_id is not None:
            self._first_tasks.remember(dedup_id, task)
        if is_outside:
            try:
                await room.wait()
            except BaseException:
                task.cancel()
                raise
        return task

    async def drain(self) -> None:
        """Wait until nothing is queued, running or unacknowledged, including tasks added meanwhile.

        Raises:
            RuntimeError: if called in a task or a slot of this broker, which would wait for its own end.
        """
        self._check_not_within("drain")
        while self._scheduler.active:  # something is active as long as anything waits
            idle = asyncio.get_running_loop().create_future()
            self._drainers.add(idle)
            try:
                await idle
            finally:
                self._drainers.discard(idle)

    async def stop(self, *, cancel: bool = False) -> None:
        """Refuse waiting and later calls with ``BrokerStopped``, and wait until all active tasks and slots have ended.

        Args:
            cancel: whether to cancel running tasks. Slots belong to their callers and are waited for.

        Raises:
            RuntimeError: if called in a task or a slot of this broker, which would wait for its own end.
        """
        self._check_not_within("stop")
        self._stopped = True
        for _, waiter, args in self._scheduler.clear():
            if args is None:
                waiter.place = None
                waiter._fail(BrokerStopped(STOPPED))
        self._first_tasks.clear()
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
        """Return the running loop, which must be the loop of the first use; refuse if the broker is stopped."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise RuntimeError("this broker is already used in another event loop; create one for each event loop")
            self._loop = loop
        if self._stopped:
            raise BrokerStopped(STOPPED)
        return loop

    def _task(
        self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...], group: Hashable, *, hold: bool
    ) -> Task[T]:
        if not callable(function):
            raise refusal("function", function, "an async function")
        loop = self._open()
        task: Task[T] = HeldTask(loop=loop) if hold else Task(loop=loop)
        task._broker, task.group, task.place, task.deadline = self, group, None, None
        task._context, task._function, task._args = contextvars.copy_context(), function, args
        task._keeps_slot, task._holds, task._worker = hold, False, None
        return task

    def _check_not_within(self, name: str) -> None:
        caller = asyncio.current_task()
        if caller in self._workers:
            raise RuntimeError(f"{name}() was called in a task of this broker: it would deadlock; call it outside")
        if any(task() is caller for task in self._slot_tasks.values()):
            raise RuntimeError(f"{name}() was called in a slot of this broker: it would deadlock; leave the slot first")

    def _wait(
        self, waiter: SlotWaiter[Any], timeout_s: float | None, on_room: Callable[[], object] | None = None
    ) -> bool:
        """Queue a waiter; return whether it is outside the queue, waiting for room."""
        place: Place = [waiter.group, waiter, None]
        is_outside = self._scheduler.wait(place, on_room)
        waiter.place = place
        if timeout_s is not None:
            loop = waiter.get_loop()
            waiter.deadline = loop.time() + timeout_s
            self._deadlines.add(loop, waiter, waiter.deadline)
        else:
            self._stuck.schedule(waiter.get_loop())
        return is_outside

    def _withdraw(self, waiter: SlotWaiter[Any]) -> None:
        place, waiter.place = waiter.place, None
        assert place is not None  # noqa: S101 - for mypy; callers have checked
        self._scheduler.withdraw(place)
        if waiter.deadline is not None:
            self._deadlines.count_departure()

    def _time_out(self, waiter: SlotWaiter[Any]) -> None:
        self._withdraw(waiter)
        waiter.time_out()

    def _next_ready(self, entry: Place | Posted | None) -> Place | Posted | None:
        """Return the next to get a slot after ``Scheduler.next``, skip late ones; if none is active, end drains."""
        while entry is not None:
            if entry[2] is not None:
                return entry
            waiter: SlotWaiter[Any] = entry[1]
            waiter.place = None
            if waiter.deadline is None:
                return entry
            self._deadlines.count_departure()
            if waiter.deadline > waiter.get_loop().time():
                return entry
            waiter.time_out()  # the timer has not fired yet; the next one gets the slot
            entry = self._scheduler.next(waiter.group)
        if not self._scheduler.active:
            for idle in self._drainers:
                if not idle.done():
                    idle.set_result(None)
        return None

    def _release(self, group: Hashable) -> None:
        if self._loop is not None and not self._loop.is_closed():
            entry = self._next_ready(self._scheduler.next(group))
            if entry is not None:
                self._grant(entry)

    def _release_later(self, group: Hashable) -> None:
        """Release a slot from a finalizer, which may run at any moment and in any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits
                self._loop.call_soon_threadsafe(self._release, group)

    def _grant(self, entry: Place | Posted) -> None:
        """Start the one that got a slot: resume a caller, or create a worker for a task."""
        if not needs_worker(entry):
            entry[1].set_result(None)
            return
        context = contextvars.Context()  # otherwise it would keep the context of its first task alive
        worker = BrokerWorker(self._run_worker(), loop=self._loop, context=context)  # create_task might begin it now
        self._workers[worker] = entry
        worker.add_done_callback(self._worker_ended, context=context)

    async def _run_worker(self) -> None:
        """Run the task for which this worker was created, and then each task that gets its slot."""
        worker = asyncio.current_task()
        if not isinstance(worker, BrokerWorker):
            return
        scheduler, entry, run, args, burst_end_s = self._scheduler, self._workers[worker], None, None, 0.0
        self._workers[worker] = None  # do not keep a finished task alive
        try:
            while entry is not None:
                group, run, args = entry
                if args is not None:
                    try:
                        await run(*args)
                    except BaseException as error:  # noqa: BLE001 - it is reported, or raised again
                        report_error(worker.get_loop(), error)
                    entry = scheduler.next(group)
                else:
                    if not run.done() and (rest := run._begin(worker)) is not None:  # done if cancelled meanwhile
                        await rest
                    entry = None if run._holds else scheduler.next(group)
                if entry is None or entry[2] is None or worker.was_cancelled:
                    entry = self._continue_with(worker, entry)
                if self._latest_worker is not worker:  # others ran meanwhile, so the loop was not blocked
                    self._latest_worker, burst_end_s = worker, 0.0
                elif not burst_end_s:
                    burst_end_s = monotonic() + limits.BROKER_BURST_S
                elif monotonic() > burst_end_s:
                    await asyncio.sleep(0)
                    burst_end_s = 0.0
        finally:
            self._workers[worker] = entry
            del entry, run, args  # a kept error keeps this frame, which must not keep tasks alive

    def _continue_with(self, worker: BrokerWorker, entry: Place | Posted | None) -> Place | Posted | None:
        """Return the task that this worker runs next; start others that get the slot elsewhere."""
        entry = self._next_ready(entry)
        if entry is not None and (worker.was_cancelled or not needs_worker(entry)):  # it may cancel no other task
            self._grant(entry)
            return None
        return entry

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        entry = self._workers.pop(worker)
        if self._latest_worker is worker:
            self._latest_worker = None
        if entry is not None:  # cancelled before it began, by ``stop`` or the end of the loop; or it ended the loop
            if entry[2] is None:
                entry[1].cancel()
            self._release(entry[0])
        if not worker.cancelled():
            worker.exception()  # marks it as retrieved: the task's own future raises it
