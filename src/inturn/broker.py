"""Turns within one process: one task per group at a time, so many at once, so many waiting; docs/broker.md has the promises.

What makes the next task cheap to find, whatever the backlog: those who wait stand in one queue in the order in which
they came. Whoever comes to its front while its group is busy is set aside behind the group, once. When the group's
slot is freed, the first set aside is older than everybody still in the queue, so the slot is its; if there is none,
the queue moves on. So each is touched twice at most, and the oldest who may go is always the next to go.

Tasks are run by workers, one per task at work, that last as long as there is work: that costs a fraction of an asyncio
task for each. What a worker must then see to itself, since the asyncio task would have done it: each task has its own
context, a cancellation reaches one task only, and the event loop gets its share.
"""

import asyncio
import contextlib
import contextvars
import heapq
import math
import types
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from itertools import count
from time import monotonic
from typing import Any, Self, TypeVar, TypeVarTuple

from inturn.core import limits
from inturn.core.errors import BrokerStopped, QueueFull, TurnTimeout

T = TypeVar("T")
Args = TypeVarTuple("Args")
_STOPPED = "the broker was stopped"
_LATE = "its deadline passed while it waited for its turn"


class _Waiter(asyncio.Future[T]):
    """One who waits for a slot."""

    __slots__ = ("_broker", "_deadline", "_group", "_place")

    def __init__(self, broker: "QueueBroker", loop: asyncio.AbstractEventLoop, group: Hashable) -> None:
        super().__init__(loop=loop)
        self._broker = broker
        self._group = group
        self._place: _Places | None = None  # where it stands while it waits
        self._deadline: float | None = None

    def cancel(self, msg: object = None) -> bool:
        """Leave the queue."""
        if self._place is not None:
            self._broker._withdraw(self)
        return super().cancel(msg)

    def _granted(self) -> None:
        """It has a slot."""
        raise NotImplementedError


_Call = tuple[contextvars.Context, Callable[..., Awaitable[T]], tuple[Any, ...]]
_Places = OrderedDict[_Waiter[Any], None]


class _TurnWaiter(_Waiter[None]):
    """A caller who waits in ``turn``."""

    __slots__ = ("granted",)

    def __init__(self, broker: "QueueBroker", loop: asyncio.AbstractEventLoop, group: Hashable) -> None:
        super().__init__(broker, loop, group)
        self.granted = False

    def _granted(self) -> None:
        self.granted = True
        self.set_result(None)


class Task(_Waiter[T]):
    """A task given to a broker: await it for its result.

    It is an ``asyncio.Future``: ``asyncio.gather``, ``wait`` and ``shield`` take it, and who is cancelled while awaiting
    it cancels it too. It raises what the task raises, and ``TurnTimeout`` or ``BrokerStopped`` if the task did not
    get its turn; if nobody asks, nobody is told.
    """

    __slots__ = ("_call", "_holds", "_keeps", "_worker")

    def __init__(
        self,
        broker: "QueueBroker",
        loop: asyncio.AbstractEventLoop,
        group: Hashable,
        function: Callable[..., Awaitable[T]],
        args: tuple[Any, ...],
        keeps: bool,  # noqa: FBT001 - called in one place
    ) -> None:
        super().__init__(broker, loop, group)
        self._call: _Call[T] | None = (contextvars.copy_context(), function, args)  # until it begins
        self._keeps = keeps  # the slot is to be kept when the task has ended
        self._holds = False  # it has ended, and the slot is kept
        self._worker: asyncio.Task[None] | None = None  # while it runs

    def ack(self) -> None:
        """Free the slot that ``hold=True`` keeps; while the task still runs, when it ends. Again does nothing."""
        self._keeps = False
        if self._holds:
            self._holds = False
            self._broker._release(self._group)

    def cancel(self, msg: object = None) -> bool:
        """Cancel it: it leaves the queue, or is cancelled where it is, or frees the slot it still holds."""
        if self._worker is not None:
            return self._worker.cancel(msg)
        self.ack()
        return super().cancel(msg)

    def _granted(self) -> None:
        self._broker._employ(self)

    async def _run(self, worker: asyncio.Task[None]) -> None:
        assert self._call is not None
        context, function, args = self._call
        self._worker, self._call = worker, None  # who keeps a result keeps no arguments
        coroutine = _coroutine(function, args)
        try:
            try:
                awaited = context.run(coroutine.send, None)
            except StopIteration as stop:  # most tasks of a fast broker end without waiting for anything
                result: T = stop.value
            else:
                result = await _go_on(context, coroutine, awaited)
        except asyncio.CancelledError as error:
            asyncio.Future.cancel(self, *error.args)
        except BaseException as error:  # like an asyncio task: whatever it is, who awaits it is told
            self._fail(error)
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
        else:
            self.set_result(result)
            self._holds = self._keeps
        finally:
            self._worker = None
            del self  # the error's traceback has this frame, and would keep the task and with it the error

    def _fail(self, error: BaseException) -> None:
        self.set_exception(error)
        self.exception()  # told; asyncio complains of no error that nobody asks for


class _HeldTask(Task[T]):
    """A task with ``hold=True``. A class of its own since a finalizer costs every task of a class that has one."""

    __slots__ = ()

    def __del__(self) -> None:
        if self._holds:
            self._broker._release_later(self._group)


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
        loop = broker._bind()
        if not broker._take(self._group):
            waiter = _TurnWaiter(broker, loop, self._group)
            broker._line_up(waiter, self._timeout_s)
            try:
                await waiter
            except BaseException:
                if waiter.granted:  # the caller was cancelled at the same time
                    broker._release(self._group)
                else:
                    waiter.cancel()
                raise
        self._holds = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:  # the block is garbage, and so this may be any moment in any thread
            self.__del__()
        self.ack()

    def ack(self) -> None:
        """Free the slot; again does nothing."""
        if self._holds:
            self._holds = False
            self._broker._release(self._group)

    def __del__(self) -> None:
        if self._holds:
            self._holds = False
            self._broker._release_later(self._group)


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
        ValueError: One of them is less than 1.
    """

    def __init__(self, *, max_active: int = limits.BROKER_ACTIVE, max_queued: int = limits.BROKER_QUEUED) -> None:
        if max_active < 1 or max_queued < 1:
            raise ValueError(f"max_active={max_active} and max_queued={max_queued} must be at least 1")
        self._max_active, self._max_queued = max_active, max_queued
        self._loop: asyncio.AbstractEventLoop | None = None
        self._active = self._queued = 0
        self._stopped = False
        self._arrivals: _Places = OrderedDict()
        self._busy: dict[Hashable, _Places | None] = {}  # the groups with a slot, each with whom is set aside behind it
        self._outside: OrderedDict[_Waiter[Any], asyncio.Future[None]] = OrderedDict()  # who waits in put for room
        self._deadlines = _Deadlines(self._refuse_late)
        self._workers: dict[asyncio.Task[None], Task[Any] | None] = {}  # each with the task that it is about to begin
        self._drainers: set[asyncio.Future[None]] = set()

    @property
    def queued(self) -> int:
        """How many wait for a slot, at most ``max_queued``; callers who wait in ``put`` for room are not among them."""
        return self._queued

    @property
    def active(self) -> int:
        """How many slots are held, at most ``max_active``."""
        return self._active

    def turn(self, group: Hashable = None, *, timeout_s: float | None = None) -> Turn:
        """A slot for the caller itself: ``async with broker.turn("acct-1", timeout_s=5):``.

        Args:
            group: of its group it is the only one active; None is no group.
            timeout_s: how many seconds it waits at most; None for ever, 0 not at all.

        Returns:
            What must be entered or awaited. That raises ``QueueFull`` at once, and ``TurnTimeout`` or
            ``BrokerStopped`` while it waits.
        """
        return Turn(self, group, timeout_s)

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
        """
        task = (_HeldTask if hold else Task)(self, self._bind(), group, function, args, hold)
        if self._take(group):
            self._employ(task)
        else:
            self._line_up(task, timeout_s)
        return task

    async def put(
        self,
        function: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        group: Hashable = None,
        timeout_s: float | None = None,
        hold: bool = False,
    ) -> Task[T]:
        """Like ``submit``, but where that raises ``QueueFull`` wait for room.

        The place in the order, and the deadline, count from the call. Who is cancelled while waiting takes the
        task along.

        Raises:
            TurnTimeout: The deadline passed while it waited for room.
            BrokerStopped: The broker was stopped, before or meanwhile.
        """
        task = (_HeldTask if hold else Task)(self, self._bind(), group, function, args, hold)
        if self._take(group):
            self._employ(task)
        elif (room := self._line_up(task, timeout_s, bounded=False)) is not None:
            try:
                await room
            except asyncio.CancelledError:
                task.cancel()
                raise
        return task

    async def drain(self) -> None:
        """Wait until nothing is queued, running or unacknowledged, with what comes in meanwhile.

        Raises:
            RuntimeError: Called in a task of this broker, which would wait for its own end.
        """
        self._refuse_within("drain")
        while self._active:  # as long as anything waits, something is active
            assert self._loop is not None
            idle = self._loop.create_future()
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
            RuntimeError: Called in a task of this broker, which would wait for its own end.
        """
        self._refuse_within("stop")
        self._stopped = True
        for waiter in list(self._outside):  # before there is room for them
            self._withdraw(waiter, BrokerStopped(_STOPPED))
        for places in [self._arrivals, *self._busy.values()]:
            for waiter in list(places or ()):
                self._withdraw(waiter, BrokerStopped(_STOPPED))
        self._deadlines.close()
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

    def _bind(self) -> asyncio.AbstractEventLoop:
        """The running loop, which must be the one of the first use."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise RuntimeError("this broker is used in another event loop already")
            self._loop = loop
        return loop

    def _refuse_within(self, name: str) -> None:
        if asyncio.current_task() in self._workers:
            raise RuntimeError(f"{name}() in a task of this broker would wait for its own end")

    def _take(self, group: Hashable) -> bool:
        """Take a slot at once, if it can be had. Nobody is overtaken: a slot is free only if no one could use it."""
        if self._stopped:
            raise BrokerStopped(_STOPPED)
        busy = group is not None and group in self._busy  # raises here, and not in others' turn, if it has no hash
        if busy or self._active >= self._max_active:
            return False
        self._active += 1
        if group is not None:
            self._busy[group] = None
        return True

    def _line_up(
        self, waiter: _Waiter[Any], timeout_s: float | None, *, bounded: bool = True
    ) -> asyncio.Future[None] | None:
        """Give it a place, and if there is no room for it something to wait for room by, unless it is bounded."""
        assert self._loop is not None
        if timeout_s is not None and math.isnan(timeout_s):
            raise ValueError("timeout_s is not a number")
        room = None
        if self._queued < self._max_queued:
            self._queued += 1
        elif bounded:
            raise QueueFull(f"{self._queued} wait already, and max_queued={self._max_queued}")
        else:
            room = self._outside[waiter] = self._loop.create_future()
        place = self._arrivals if self._active >= self._max_active else self._behind(waiter._group)
        place[waiter] = None
        waiter._place = place
        if timeout_s is not None:
            waiter._deadline = self._loop.time() + timeout_s
            self._deadlines.add(self._loop, waiter, waiter._deadline)
        return room

    def _behind(self, group: Hashable) -> _Places:
        """Who is set aside behind a busy group."""
        behind = self._busy[group]
        if behind is None:
            behind = self._busy[group] = OrderedDict()
        return behind

    def _next(self, group: Hashable) -> _Waiter[Any] | None:
        """Free the group's slot and take it for the oldest who may go, if there is one.

        One slot lets one go at most: what else waits, waits for another slot or stands behind another group.
        """
        assert self._loop is not None
        if group is not None:
            behind = self._busy[group]
            while behind:
                waiter, _ = behind.popitem(last=False)
                if self._in_time(waiter):
                    return waiter
            del self._busy[group]
        while self._arrivals:
            waiter, _ = self._arrivals.popitem(last=False)
            group = waiter._group
            if group is not None and group in self._busy:
                waiter._place = behind = self._behind(group)
                behind[waiter] = None
            elif self._in_time(waiter):
                if group is not None:
                    self._busy[group] = None
                return waiter
        self._active -= 1
        if not self._active:
            for idle in self._drainers:
                if not idle.done():
                    idle.set_result(None)
        return None

    def _in_time(self, waiter: _Waiter[Any]) -> bool:
        """Let it out of the queue, with an error if its deadline has passed and only the timer has not yet come."""
        assert self._loop is not None
        late = waiter._deadline is not None and waiter._deadline <= self._loop.time()
        self._left(waiter, TurnTimeout(_LATE) if late else None)
        return not late

    def _left(self, waiter: _Waiter[Any], error: Exception | None = None) -> None:
        """Count it out, with an error if it is refused, and let in who waits for room the longest."""
        waiter._place = None
        if waiter._deadline is not None:
            self._deadlines.left()
        if error is not None:
            waiter.set_exception(error)
            waiter.exception()  # told; asyncio complains of no error that nobody asks for
        if not self._outside:
            self._queued -= 1
            return
        room = self._outside.pop(waiter, None)
        if room is None:
            _, room = self._outside.popitem(last=False)
            error = None
        if room.done():  # who waited for it was cancelled, and will take the task along
            return
        if error is None:
            room.set_result(None)
        else:
            room.set_exception(error)

    def _withdraw(self, waiter: _Waiter[Any], error: Exception | None = None) -> None:
        assert waiter._place is not None
        del waiter._place[waiter]
        self._left(waiter, error)

    def _refuse_late(self, waiter: _Waiter[Any]) -> None:
        self._withdraw(waiter, TurnTimeout(_LATE))

    def _release(self, group: Hashable) -> None:
        """Free a slot, and give it to who is next."""
        assert self._loop is not None
        if not self._loop.is_closed() and (waiter := self._next(group)) is not None:
            waiter._granted()

    def _release_later(self, group: Hashable) -> None:
        """The same from a finalizer, which may run at any moment and in any thread."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._release, group)

    def _employ(self, task: Task[Any]) -> None:
        """Have a task that has its slot run by a worker of its own; with an empty context, to keep nobody's alive."""
        worker = asyncio.Task(self._work(), loop=self._loop, context=contextvars.Context())
        self._workers[worker] = task
        worker.add_done_callback(self._worker_ended)

    async def _work(self) -> None:
        """Run the task that it was employed for, and then whoever gets its slot."""
        worker = asyncio.current_task()
        assert worker is not None
        task, self._workers[worker] = self._workers[worker], None
        until = monotonic() + limits.BROKER_BURST_S
        while task is not None:
            group = task._group
            try:
                if not task.done():  # it was not cancelled in the meantime
                    await task._run(worker)
            except BaseException:
                self._release(group)
                raise
            if task._holds:
                return
            waiter = self._next(group)
            # A cancellation is its task's: it may still be pending here, and must not reach another.
            if not isinstance(waiter, Task) or worker.cancelling():
                if waiter is not None:
                    waiter._granted()
                return
            task = waiter
            if monotonic() > until:
                self._workers[worker] = task
                await asyncio.sleep(0)
                self._workers[worker] = None
                until = monotonic() + limits.BROKER_BURST_S

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        """See to the task of a worker that was cancelled, by the end of its loop or by ``stop``, before it began."""
        task = self._workers.pop(worker)
        if task is not None:
            task.cancel()
            self._release(task._group)
        if not worker.cancelled():
            worker.exception()  # of a KeyboardInterrupt; whoever awaits the task is told


class _Deadlines:
    """Who waits until when: one heap, and one timer for the first.

    Whoever leaves the queue earlier stays in the heap until it comes to the front or half of the heap has left: that
    costs a constant share of each.
    """

    def __init__(self, refuse: Callable[[_Waiter[Any]], None]) -> None:
        self._refuse = refuse
        self._heap: list[tuple[float, int, weakref.ref[_Waiter[Any]]]] = []  # weak: who left may be garbage
        self._numbers = count()  # waiters cannot be compared
        self._gone = 0  # how many in the heap have left
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def add(self, loop: asyncio.AbstractEventLoop, waiter: _Waiter[Any], deadline: float) -> None:
        """Refuse it at this time of the loop, if it has not left by then."""
        heapq.heappush(self._heap, (deadline, next(self._numbers), weakref.ref(waiter)))
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(loop, deadline)

    def left(self) -> None:
        """One with a deadline has left the queue."""
        self._gone += 1
        if self._gone > 32 + len(self._heap) // 2:
            self._heap = [each for each in self._heap if _waiting(each[2]) is not None]
            heapq.heapify(self._heap)
            self._gone = 0

    def close(self) -> None:
        """Nobody waits any more."""
        self._heap.clear()
        self._gone = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(at, self._ring, loop), at

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self._heap:
            deadline, _, reference = self._heap[0]
            waiter = _waiting(reference)
            if waiter is None:
                heapq.heappop(self._heap)
                self._gone -= 1
            elif deadline > now:
                self._set_timer(loop, deadline)
                return
            else:
                self._refuse(waiter)  # and so it has left


def _waiting(reference: weakref.ref[_Waiter[Any]]) -> _Waiter[Any] | None:
    """Who is referred to, if it still waits."""
    waiter = reference()
    return None if waiter is None or waiter._place is None else waiter


async def _coroutine(function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    """A coroutine for whatever can be awaited, and for errors of the call itself."""
    return await function(*args)


@types.coroutine
def _go_on(context: contextvars.Context, coroutine: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Await the rest of a coroutine that has begun and now awaits something, each step in its context."""
    while True:
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - it is the coroutine's to catch
            step, value = coroutine.throw, error
        else:
            step, value = coroutine.send, sent
        try:
            awaited = context.run(step, value)
        except StopIteration as stop:
            return stop.value
