"""Group commit: the commands of many concurrent callers run in one transaction with one fsync.

There is no writer thread. A caller that finds no leader takes the lead: it runs all queued commands and its own in one
transaction, hands each caller its outcome, and passes the lead to the first caller that has arrived meanwhile. So a
single caller needs no thread switch, and sixty-four callers share one fsync. This is the group commit of databases,
with the leader and followers of LevelDB's write path.

Callers are threads or asyncio tasks. For tasks a helper thread leads, so that no event loop waits for a disk. It starts
after the callbacks that are ready in the loop, so that their commands go into one transaction. A receive that finds
nothing and may wait is parked, and so is a send that finds no room. It is retried with every batch, when a lease or a
delay ends, and every ``limits.POLL_S`` to see the changes of other processes.

The states of a caller::

    queued    in _callers, in the order of arrival
    running   in the leader's batch
    parked    in _parked, between two batches; its deadline is `until`
    leading   has_lead: it runs batches until it has its own outcome, then passes the lead on
    answered  has an outcome, and was notified; only after the commit
    gone      is_gone: interrupted or cancelled; what its command received is given back

Only the leader calls the store and changes ``_parked``. ``_mutex`` guards ``_callers`` and the flag ``_is_led``, and is
not held while the store works. What never happens:

- Two leaders: the flag is set and the lead passed on under the mutex.
- A queued caller without a leader: the lead is given up only if ``_callers`` is empty, in the same hold of the mutex.
  The exception are callers of an event loop before its helper is called: ``_called_by`` says so.
- A wake-up between a batch and its parking is lost: ``_wakeups`` is compared with its number at the batch's begin.
- A caller waits for its own transaction: ``_check_not_within`` refuses the command.
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
from typing import Any, TypeVar

from inturn.core import limits
from inturn.core.errors import QueueError, StoreError
from inturn.store.commands import Command, Outcome
from inturn.store.failures import Busy, RunAgain, closed
from inturn.store.protocols import Store
from inturn.store.writer.retry import BUSY, Watch, outcomes_of, until_no_conflict
from inturn.store.writer.settings import WriterSettings, wall_clock_ms
from inturn.store.writer.timer import Timer
from inturn.store.writer.waiters import (
    Batch,
    Leader,
    LoopWaiter,
    PostedWaiter,
    Retrigger,
    TaskWaiter,
    ThreadWaiter,
    Waiter,
    notify,
)

T = TypeVar("T")


class Writer:
    """A writer that runs commands on a store for any number of threads and tasks.

    Args:
        store: the store.
        clock: returns the time in milliseconds since 1970.
        settings: the ways in which it depends on its database.

    Attributes:
        database: the name of the database in metrics; empty: it has none.
        watch: called by the leader after each transaction with its commands and their raw outcomes, for metrics.
        delegate: called from any thread by the leader to pass the lead on to callers that cannot lead themselves; by
            default the helper leads for them.
    """

    def __init__(
        self, store: Store, clock: Callable[[], int] = wall_clock_ms, settings: WriterSettings | None = None
    ) -> None:
        self.store = store
        self.clock = clock
        settings = settings or WriterSettings()
        self.is_own, self.identity = settings.is_own, settings.identity
        self.adopt, self._poll, self._busy_s = settings.adopt, settings.poll, settings.busy_s
        self._single = settings.single or store.transaction
        self._mutex = threading.Lock()
        self._callers: deque[Waiter] = deque()
        self._parked: list[Waiter] = []  # only the leader changes it
        self._is_led = self._is_closed = False
        self._wakeups = 0
        self.database = ""
        self.watch: Watch = lambda _commands, _outcomes: None
        self.delegate: Callable[[], object] = self.by_helper
        self._leader: Leader | None = None
        self._owner: tuple[int, asyncio.Task[Any] | None] | None = (
            None  # the thread or task whose transaction has the lead
        )
        self._called_by: asyncio.AbstractEventLoop | None = None  # the loop that will call the helper
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="inturn-writer")
        self._timer = Timer(self._on_timer)

    # --- callers ---

    def run(self, command: Command[T]) -> T:
        """Run a command; its effect is durable when this returns.

        Raises:
            StoreError: if the store cannot be written, or is closed.
            QueueError: if a transaction of this thread has the lead or SQLite's write lock, so that the command
                would deadlock.
            Exception: an error of the command.
        """
        self._check_not_within()
        if not command.wait_s and self._is_alone():
            try:
                try:
                    value = self._run_alone(command)
                except RunAgain:
                    value = until_no_conflict(partial(self._run_alone, command))
                self.watch((command,), ((value, None),))
            except Busy:
                value = BUSY
            finally:
                self.pass_on()
            if value is not BUSY:
                return command.answer(value)
        caller = ThreadWaiter(command)
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

    def _run_alone(self, command: Command[Any]) -> Any:
        with self._single():
            return command.run(self.store, self.clock())

    async def arun(self, command: Command[T]) -> T:
        """Run a command from an asyncio task; see :meth:`run`."""
        self._check_not_within(asyncio.current_task())
        caller = TaskWaiter(command, asyncio.get_running_loop())
        self._start_waiting(caller)
        try:
            await caller.future
        except asyncio.CancelledError:
            self._abandon(caller)
            raise
        return command.answer(caller.value())

    def post(self, command: Command[T], done: Callable[[T | None, BaseException | None], None]) -> Callable[[], None]:
        """Run a command and call ``done`` in the running event loop; the cheapest form for very many commands.

        Returns:
            A function to call in that loop if the answer is no longer wanted. Messages that the command has received
            are returned. ``done`` may still be called.
        """
        caller = PostedWaiter(command, asyncio.get_running_loop(), done)
        self._start_waiting(caller)
        return partial(self._abandon, caller)

    def end_waits(self) -> None:
        """End all waits: receives return empty, sends are refused."""
        with self._mutex:
            for caller in (*self._parked, *self._callers):
                caller.until = 0.0
        self._timer.set(time.monotonic())

    def wake(self) -> None:
        """Retry the parked receives, and those about to park, after another process has sent something."""
        self._wakeups += 1
        self._timer.set(time.monotonic())

    def take_lead(self, leader: Leader) -> None:
        """Wait for the lead and keep it until :meth:`give_up_lead`."""
        self._check_not_within()
        caller = ThreadWaiter(None)
        try:
            if not self._enter(caller):
                caller.wait()
            self._begin(caller, leader)
        except BaseException:
            self._abandon(caller)
            raise

    async def atake_lead(self, leader: Leader) -> None:
        """Take the lead from an asyncio task; see :meth:`take_lead`."""
        self._check_not_within(asyncio.current_task())
        caller = TaskWaiter(None, asyncio.get_running_loop())
        try:
            if not self._enter(caller):
                await caller.future
            self._begin(caller, leader, asyncio.current_task())
        except BaseException:
            self._abandon(caller)
            raise

    def give_up_lead(self) -> None:
        """Give up the lead and retry the parked receives, which may find new messages."""
        self._leader = self._owner = None
        if self._parked:
            with self._mutex:
                self._callers.appendleft(Retrigger())
        self.pass_on()

    def close(self) -> None:
        """Wait for the leader, refuse new commands, and fail the waiting ones."""
        if self._is_closed:
            return
        last = ThreadWaiter(None)
        if not self._enter(last):
            last.wait()
        with self._mutex:
            self._is_closed = True
            remaining = [*self._parked, *self._callers]
            self._parked, self._callers = [], deque()
            for caller in remaining:
                caller.outcome = (None, closed())
        notify(remaining)
        self._timer.stop()
        self._helper.shutdown(wait=False)

    # --- the lead ---

    def _is_alone(self) -> bool:
        """Take the lead if there is no other caller; return whether it was taken."""
        with self._mutex:
            if self._is_closed:
                raise closed()
            if self._is_led or self._callers or self._parked:
                return False
            self._is_led = True
            return True

    def _start_waiting(self, caller: LoopWaiter) -> None:
        """Queue a caller; the helper is called after the callbacks that are ready in its loop.

        Until then they have no leader; if the loop ends first, the next caller of the writer leads for them.
        """
        caller.start_waiting()
        with self._mutex:
            if self._is_closed:
                raise closed()
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

    def _enter(self, caller: Waiter) -> bool:
        """Queue a caller; return whether there was no leader, so that the caller or the helper leads."""
        caller.start_waiting()
        with self._mutex:
            if self._is_closed:
                raise closed()
            is_led, self._is_led = self._is_led, True
            if is_led or caller.command is not None:
                self._callers.append(caller)
            if not is_led:
                caller.has_lead = caller.command is None or isinstance(caller, ThreadWaiter)
            return not is_led

    def _check_not_within(self, task: asyncio.Task[Any] | None = None) -> None:
        """Check that this thread, or task, does not wait for the end of its own transaction."""
        owner = self._owner
        if owner is not None and (owner[0] == threading.get_ident() if task is None else owner[1] is task):
            msg = "called inside db.transaction() without tx=: it would deadlock; pass tx=tx"
            raise QueueError(msg)

    def _begin(self, caller: Waiter, leader: Leader, task: asyncio.Task[Any] | None = None) -> None:
        if caller.outcome is not None:
            caller.value()  # closed meanwhile
        self._leader, self._owner = leader, (threading.get_ident(), task)
        if (overdue := leader.overdue()) is not None:
            self._timer.set(overdue)

    def by_helper(self, act: Callable[[], None] | None = None) -> None:
        """Run a function that ends with :meth:`pass_on` in the helper thread; by default :meth:`serve`."""
        self._helper.submit(act or self.serve)

    def pass_on(self) -> None:
        """Pass the lead to the first waiting caller."""
        with self._mutex:
            if not self._callers:
                self._is_led = False
                return
            following = self._callers[0]
            if following.command is None:
                self._callers.popleft()
            following.has_lead = following.command is None or isinstance(following, ThreadWaiter)
        if following.has_lead:
            notify([following])
        else:
            self.delegate()

    def serve(self) -> None:
        """Lead in this thread for callers that cannot lead themselves."""
        self._write()
        self.pass_on()

    def _write(self) -> None:
        """Run the queued commands in one transaction and notify the callers."""
        batch = self.gather()
        try:
            outcomes = outcomes_of(self.store, batch.commands, self.clock, self.watch)
        except BaseException:  # this thread is interrupted; the next leader runs the batch
            self.put_back(batch)
            raise
        self.hand_out(batch, outcomes)

    def gather(self) -> Batch:
        """Return the batch for the next transaction; called by the leader."""
        with self._mutex:
            gathered: list[Waiter] = []
            while self._callers and self._callers[0].command and len(gathered) < limits.COMMANDS_AT_ONCE:
                gathered.append(self._callers.popleft())
        callers = [caller for caller in (*self._parked, *gathered) if not caller.is_gone]
        return Batch(callers, [caller.command for caller in callers if caller.command], gathered, self._wakeups)

    def put_back(self, batch: Batch) -> None:
        """Queue a batch that was not run again, before all later callers."""
        with self._mutex:
            self._callers.extendleft(reversed(batch.gathered))

    def hand_out(
        self, batch: Batch, outcomes: Sequence[Outcome], own_loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Give each caller its outcome, and park callers that may wait for another one; ``own_loop`` is this loop."""
        now = time.monotonic()
        finished, parked, unclaimed, put_back = [], [], [], []
        with self._mutex:
            for caller, outcome in zip(batch.callers, outcomes, strict=True):
                if outcome[0] is BUSY:
                    caller.busy_until = caller.busy_until or now + self._busy_s
                    if not caller.is_gone and now <= caller.busy_until:
                        put_back.append(caller)
                        continue
                    outcome = (None, outcome[1])  # noqa: PLW2901 - the final outcome
                if caller.is_gone:
                    unclaimed.append((caller, outcome))
                elif caller.until > now and caller.command is not None and caller.command.keeps_waiting(outcome):
                    parked.append(caller)
                else:
                    caller.outcome = outcome
                    finished.append(caller)
            self._parked = parked
            self._callers.extendleft(reversed(put_back))
            if put_back and (leading := next((caller for caller in self._callers if caller.command is None), None)):
                self._callers.remove(leading)  # it waits for the lead, and not for their lock
                self._callers.appendleft(leading)
        notify(finished, own_loop)
        for caller, outcome in unclaimed:
            self._give_back(caller, outcome)
        if parked:
            self._timer.set(min(now + self._poll(self.wake), self._due(parked), *(caller.until for caller in parked)))
            if self._wakeups != batch.wakeups:  # woken during this batch, before the alarm was set
                self._timer.set(now)

    def _due(self, parked: Sequence[Waiter]) -> float:
        """Return when the next lease or delay ends in the queues of parked receives, by the monotonic clock."""
        queues = self.store.queues
        infos = [
            queues.get(waiter.command.queue)
            for waiter in parked
            if waiter.command and not waiter.command.waits_for_room
        ]
        next_ms = min((info.due_ms for info in infos if info and info.due_ms is not None), default=None)
        return inf if next_ms is None else time.monotonic() + max(0, next_ms - self.clock()) / 1000

    def _on_timer(self) -> None:
        """End an overdue lead and retry the parked receives; runs in the alarm's thread."""
        if self._leader is not None and (overdue := self._leader.overdue()) is not None:
            self._timer.set(overdue)
        with suppress(StoreError):  # closed meanwhile
            if self._parked and self._enter(Retrigger()):
                self.serve()

    # --- abandoned commands ---

    def _abandon(self, caller: Waiter) -> None:
        """Remove a caller that was interrupted or cancelled."""
        with self._mutex:
            caller.is_gone = True
            if caller in self._callers:
                self._callers.remove(caller)
            had_lead, caller.has_lead = caller.has_lead, False
        if had_lead:
            self.pass_on()
        if caller.outcome is not None:
            self._give_back(caller, caller.outcome)

    def _give_back(self, caller: Waiter, outcome: Outcome) -> None:
        """Return the messages or the session of a caller that is gone, so that they need not expire."""
        undoing = caller.command.compensation(outcome[0]) if caller.command and outcome[0] else None
        with suppress(StoreError):
            if undoing is not None and self._enter(Retrigger(undoing)):
                self.by_helper()
