"""One writer for many callers: commands that wait are done together, in one transaction with one fsync.

There is no thread that writes. Whoever comes while nobody writes takes the lead: it does all that has gathered, its own
command among it, in one transaction, gives each caller its answer, and hands the lead to the first of those that have
come meanwhile. So a lone caller pays for no switch of threads, and sixty-four callers share one fsync. This is the
group commit of databases, with the leader and followers of LevelDB's write path.

Callers are threads or asyncio tasks; for tasks a helper thread leads, so that no event loop waits for a disk; it begins
when the loop has heard all who are ready, so that they go into one transaction. A receive
that finds nothing and may wait stays parked, and is tried again with every batch, when a lease or a delay is over, and
every ``limits.POLL_S`` for the sake of what other processes send.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from inturn.core import limits
from inturn.core.errors import QueueError, StoreError
from inturn.store.alarm import Alarm
from inturn.store.base import Busy, RunAgain, Store
from inturn.store.callers import Caller, LoopCaller, Nobody, PostedCaller, TaskCaller, ThreadCaller, tell
from inturn.store.commands import Command, Joined, Outcome
from inturn.store.outcomes import BUSY, again, outcomes_of

T = TypeVar("T")


class Batch(NamedTuple):
    """Commands that go into one transaction.

    Attributes:
        callers: whose they are; receives that wait already are the first.
        commands: what each of them wants.
        gathered: those callers that have just come.
        heard: how often the writer had been woken until then.
    """

    callers: list[Caller]
    commands: list[Command[Any]]
    gathered: list[Caller]
    heard: int


class Leader(Protocol):
    """Who has the lead for longer than a batch."""

    def overdue(self) -> float | None:
        """Give the lead up if it has been held for too long; else when that will be, by the monotonic clock."""
        ...


class Writer:
    """Does commands over a store, for any number of threads and tasks.

    Args:
        store: where.
        clock: the time, in milliseconds since 1970.

    Attributes:
        watch: called by whoever leads, after each transaction, with its commands and their raw outcomes; for who
            wants to count them.
        is_own: says whether an identity is that of this writer's database, of which transactions may come as ``tx=``.
        identity: the identity of this writer's database; empty if it is none.
        adopt: makes of a connection of the caller's what does commands in its transaction; None: there are none here.
        poll: called when receives wait; after how many seconds they are to be tried again though nothing is heard.
        delegate: called from any thread, by who has the lead and passes it on to those who cannot lead; by default
            the helper leads for them.
    """

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self.store = store
        self.clock = clock
        self._mutex = threading.Lock()
        self._callers: deque[Caller] = deque()
        self._parked: list[Caller] = []  # only who leads changes it
        self._is_led = self._is_closed = False
        self._heard = 0
        self.watch: Callable[[Sequence[Command[Any]], Sequence[Outcome]], None] = _unseen
        self.is_own: Callable[[str], bool] = _is_no_database
        self.identity: Callable[[], str] = str
        self.adopt: Callable[[Any], Joined] | None = None
        self.poll: Callable[[], float] = _poll_s
        self.delegate: Callable[[], object] = self.by_helper
        self._leader: Leader | None = None
        self._owner: Any = None  # the thread or the task that leads for longer
        self._called_by: asyncio.AbstractEventLoop | None = None  # the loop that is about to call the helper
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="inturn-writer")
        self._alarm = Alarm(self._ring)

    # --- what a caller does ---

    def run(self, command: Command[T]) -> T:
        """Do a command; what it did is durable when this returns.

        Raises:
            StoreError: if the store cannot be written, or is closed.
            QueueError: within a transaction of this thread's own, which it would wait for.
            Exception: what else the command has to say.
        """
        if self._owner is not None and self._owner[0] == threading.get_ident():
            raise _within()
        if not command.wait_s and self._is_alone():
            try:
                value = self._alone(command)
                self.watch((command,), ((value, None),))
            except Busy:
                value = BUSY
            finally:
                self.pass_on()
            if value is not BUSY:
                return command.answer(value)
        caller = ThreadCaller(command)
        try:
            if not self._enter(caller):
                caller.wait()
            while caller.outcome is None:
                if caller.has_lead:
                    self._write()
                    caller.has_lead = False
                    self.pass_on()
                if caller.outcome is None:
                    caller.wait()
        except BaseException:
            self._abandon(caller)
            raise
        return command.answer(caller.value())

    def _alone(self, command: Command[Any]) -> Any:
        try:
            return self._once(command)
        except RunAgain:
            return again(partial(self._once, command))

    def _once(self, command: Command[Any]) -> Any:
        with self.store.transaction():
            return command.run(self.store, self.clock())

    async def arun(self, command: Command[T]) -> T:
        """The same for a task."""
        if self._owner is not None and self._owner[1] is asyncio.current_task():
            raise _within()
        caller = TaskCaller(command, asyncio.get_running_loop())
        self._come(caller)
        try:
            await caller.future
        except asyncio.CancelledError:
            self._abandon(caller)
            raise
        return command.answer(caller.value())

    def post(self, command: Command[T], done: Callable[[T | None, BaseException | None], None]) -> Callable[[], None]:
        """The same for who has no task: it costs least where there are very many.

        Args:
            command: what is to be done.
            done: called in the event loop that runs now, with the answer or with the error.

        Returns:
            What to call in that loop if the answer is not wanted any more; messages that were received for nobody are
            given back. ``done`` may be called all the same.

        Raises:
            StoreError: if the store is closed.
        """
        caller = PostedCaller(command, asyncio.get_running_loop(), done)
        self._come(caller)
        return partial(self._abandon, caller)

    def end_waits(self) -> None:
        """Receives that wait for messages wait no more: they are told that there are none."""
        with self._mutex:
            for caller in (*self._parked, *self._callers):
                caller.until = 0.0
        self._alarm.set(time.monotonic())

    def wake(self) -> None:
        """Somebody else has put something there: try the parked receives again, and those that are about to park."""
        self._heard += 1
        self._alarm.set(time.monotonic())

    def take_lead(self, leader: Leader) -> None:
        """Write alone, until :meth:`give_up_lead`."""
        if self._owner is not None and self._owner[0] == threading.get_ident():
            raise _within()
        caller = ThreadCaller(None)
        try:
            if not self._enter(caller):
                caller.wait()
            self._begin(caller, leader, (threading.get_ident(), None))
        except BaseException:
            self._abandon(caller)
            raise

    async def atake_lead(self, leader: Leader) -> None:
        """The same for a task."""
        if self._owner is not None and self._owner[1] is asyncio.current_task():
            raise _within()
        caller = TaskCaller(None, asyncio.get_running_loop())
        try:
            if not self._enter(caller):
                await caller.future
            self._begin(caller, leader, (threading.get_ident(), asyncio.current_task()))
        except BaseException:
            self._abandon(caller)
            raise

    def give_up_lead(self) -> None:
        """Let others write again; what was committed may be what a parked receive waits for."""
        self._leader = self._owner = None
        if self._parked:
            with self._mutex:
                self._callers.appendleft(Nobody())
        self.pass_on()

    def close(self) -> None:
        """Wait for who is writing, let nobody in any more, and tell those who wait."""
        with self._mutex:
            if self._is_closed:
                return
        last = ThreadCaller(None)
        if not self._enter(last):
            last.wait()
        with self._mutex:
            self._is_closed = True
            left = [*self._parked, *self._callers]
            self._parked, self._callers = [], deque()
            for caller in left:
                caller.outcome = (None, _closed())
        tell(left)
        self._alarm.stop()
        self._helper.shutdown(wait=False)

    # --- the lead ---

    def _is_alone(self) -> bool:
        """Whether nobody else is here, so that a thread leads at once and has nobody to tell."""
        with self._mutex:
            if self._is_closed:
                raise _closed()
            if self._is_led or self._callers or self._parked:
                return False
            self._is_led = True
            return True

    def _come(self, caller: LoopCaller) -> None:
        """Come in; the helper is called once all who are ready in this loop have come.

        Until then nobody leads for them, so if the loop ends before, whoever comes next does.
        """
        caller.come()
        with self._mutex:
            if self._is_closed:
                raise _closed()
            self._callers.append(caller)
            if self._is_led or self._called_by is caller.loop:
                return
            self._called_by = caller.loop
        caller.loop.call_soon(self._call_helper)

    def _call_helper(self) -> None:
        with self._mutex:
            self._called_by = None
            if self._is_led or not self._callers:
                return
            self._is_led = True
        self.delegate()

    def _enter(self, caller: Caller) -> bool:
        """Come in; whether nobody leads, so that the caller does, or the helper for it."""
        caller.come()
        with self._mutex:
            if self._is_closed:
                raise _closed()
            if self._is_led:
                self._callers.append(caller)
                return False
            self._is_led = True
            if caller.command is not None:
                self._callers.append(caller)
            caller.has_lead = caller.command is None or isinstance(caller, ThreadCaller)
            return True

    def _begin(self, caller: Caller, leader: Leader, owner: Any) -> None:
        if caller.outcome is not None:
            caller.value()  # closed meanwhile
        self._leader, self._owner = leader, owner
        overdue = leader.overdue()
        if overdue is not None:
            self._alarm.set(overdue)

    def by_helper(self, act: Callable[[], None] | None = None) -> None:
        """Have the helper do something that ends with :meth:`pass_on`; by default, lead for those who cannot."""
        self._helper.submit(act or self.serve)

    def pass_on(self) -> None:
        """Give the lead to the first of those that have come meanwhile."""
        with self._mutex:
            if not self._callers:
                self._is_led = False
                return
            following = self._callers[0]
            if following.command is None:
                self._callers.popleft()
            following.has_lead = following.command is None or isinstance(following, ThreadCaller)
        if following.has_lead:
            tell([following])
        else:
            self.delegate()

    def serve(self) -> None:
        """Lead for those who cannot, in this thread."""
        self._write()
        self.pass_on()

    def _write(self) -> None:
        """Do what has gathered, in one transaction, and tell the callers."""
        batch = self.gather()
        try:
            outcomes = outcomes_of(self.store, batch.commands, self.clock, self.watch)
        except BaseException:  # this thread is interrupted; what it was to do, the next one does
            self.put_back(batch)
            raise
        self.hand_out(batch, outcomes)

    def gather(self) -> Batch:
        """What is to be done in the next transaction, for who has the lead."""
        with self._mutex:
            gathered: list[Caller] = []
            while self._callers and self._callers[0].command and len(gathered) < limits.COMMANDS_AT_ONCE:
                gathered.append(self._callers.popleft())
        callers = [caller for caller in (*self._parked, *gathered) if not caller.is_gone]
        return Batch(callers, [caller.command for caller in callers if caller.command], gathered, self._heard)

    def put_back(self, batch: Batch) -> None:
        """It was not done; it is before all that has come since."""
        with self._mutex:
            self._callers.extendleft(reversed(batch.gathered))

    def hand_out(
        self, batch: Batch, outcomes: Sequence[Outcome], here: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Give each caller its outcome; receives that found nothing and may wait are parked.

        Args:
            batch: what was done.
            outcomes: what it came to.
            here: the event loop that this is called in, if it is.
        """
        now = time.monotonic()
        told, parked, unclaimed, put_back = [], [], [], []
        with self._mutex:
            for caller, outcome in zip(batch.callers, outcomes, strict=True):
                if outcome[0] is BUSY:
                    if not self._is_over(caller, now):
                        put_back.append(caller)
                        continue
                    outcome = (None, outcome[1])  # noqa: PLW2901 - that is what becomes of it
                if caller.is_gone:
                    unclaimed.append((caller, outcome))
                elif caller.until and caller.until > now and outcome == ([], None):
                    parked.append(caller)
                else:
                    caller.outcome = outcome
                    told.append(caller)
            self._parked = parked
            self._wait_again(put_back)
        tell(told, here)
        for caller, outcome in unclaimed:
            self._give_back(caller, outcome)
        if parked:
            self._alarm.set(min(now + self.poll(), self._due(parked), *(caller.until for caller in parked)))
            if self._heard != batch.heard:  # it came too late for this transaction, and too early for the alarm
                self._alarm.set(now)

    def _wait_again(self, callers: Sequence[Caller]) -> None:
        """They are before all who came later, but for one who wants the lead, who need not wait for the same."""
        self._callers.extendleft(reversed(callers))
        leading = next((each for each in self._callers if each.command is None), None) if callers else None
        if leading is not None:
            self._callers.remove(leading)
            self._callers.appendleft(leading)

    @staticmethod
    def _is_over(caller: Caller, now: float) -> bool:
        """Whether a caller has waited long enough for another transaction, or waits no more."""
        caller.busy_until = caller.busy_until or now + limits.BUSY_S
        return caller.is_gone or now > caller.busy_until

    def _due(self, parked: Sequence[Caller]) -> float:
        """When a lease or a delay is over in a queue that is waited for, by the monotonic clock."""
        queues = self.store.queues
        names = {caller.command.queue for caller in parked if caller.command}
        due_ms = [queues[name].due_ms for name in names if name in queues]
        next_ms = min((each for each in due_ms if each is not None), default=None)
        return inf if next_ms is None else time.monotonic() + max(0, next_ms - self.clock()) / 1000

    def _ring(self) -> None:
        """The alarm's thread: end what has lasted too long, and try the parked receives again."""
        leader = self._leader
        overdue = leader.overdue() if leader is not None else None
        if overdue is not None:
            self._alarm.set(overdue)
        if self._parked:
            with suppress(StoreError):  # closed meanwhile
                if self._enter(Nobody()):
                    self.serve()

    # --- leaving ---

    def _abandon(self, caller: Caller) -> None:
        """A caller waits no more: interrupted, or cancelled."""
        with self._mutex:
            caller.is_gone = True
            if caller in self._callers:
                self._callers.remove(caller)
            had_lead, caller.has_lead = caller.has_lead, False
        if had_lead:
            self.pass_on()
        if caller.outcome is not None:
            self._give_back(caller, caller.outcome)

    def _give_back(self, caller: Caller, outcome: Outcome) -> None:
        """Messages and sessions that nobody takes any more need not wait for their lease to end."""
        undoing = caller.command.undoing(outcome[0]) if caller.command and outcome[0] else None
        if undoing is not None:
            with suppress(StoreError):
                if self._enter(Nobody(undoing)):
                    self.by_helper()


def _poll_s() -> float:
    return limits.POLL_S


def _is_no_database(_identity: str) -> bool:
    return False


def _unseen(commands: Sequence[Command[Any]], outcomes: Sequence[Outcome]) -> None:
    """Nobody watches."""


def _within() -> QueueError:
    return QueueError("this is within a transaction, for whose end it would wait: give the verb the transaction, tx=tx")


def _closed() -> StoreError:
    return StoreError("the database is closed; open it again with inturn.open")
