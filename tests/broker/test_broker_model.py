"""A QueueBroker does what a list does that is searched from its beginning: the oldest whose group is free goes."""

import asyncio
import gc
import math
from collections.abc import Coroutine, Hashable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inturn.broker import QueueBroker, Task
from inturn.core.errors import InputError, QueueFull, SlotTimeout
from virtual_time import VirtualLoop


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@dataclass
class Job:
    group: Hashable
    deadline: float | None
    hold: bool
    outside: bool = False  # waits in put for room


@dataclass
class Model:
    """The rules, with a scan of everything for every question."""

    max_active: int
    max_queued: int
    jobs: dict[int, Job] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)  # in the order of arrival
    running: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)

    @property
    def active(self) -> set[int]:
        return self.running | self.held

    @property
    def queued(self) -> int:
        return sum(not self.jobs[number].outside for number in self.waiting)

    def may_go(self, number: int) -> bool:
        group = self.jobs[number].group
        busy = {self.jobs[number].group for number in self.active} - {None}
        return len(self.active) < self.max_active and group not in busy

    def arrive(self, number: int, job: Job, *, put: bool) -> bool:
        """Whether it is taken in."""
        self.jobs[number] = job
        if not self.may_go(number) and self.queued >= self.max_queued:
            if not put:
                return False
            job.outside = True
        self.waiting.append(number)
        self.go_on()
        return True

    def go_on(self) -> None:
        while (number := next(filter(self.may_go, self.waiting), None)) is not None:
            self.waiting.remove(number)
            self.jobs[number].outside = False
            self.running.add(number)
        for number in self.waiting:
            if self.queued < self.max_queued:
                self.jobs[number].outside = False

    def end(self, number: int) -> None:
        self.running.remove(number)
        (self.held if self.jobs[number].hold else self.ended).add(number)
        self.go_on()

    def give_up(self, number: int) -> None:
        """It is cancelled, acknowledged or garbage."""
        if number in self.waiting:
            self.waiting.remove(number)
        self.running.discard(number)
        self.held.discard(number)
        self.ended.add(number)
        self.go_on()

    def expire(self, now: float) -> None:
        for number in list(self.waiting):
            deadline = self.jobs[number].deadline
            if deadline is not None and deadline <= now:
                self.waiting.remove(number)
                self.refused.add(number)
        self.go_on()


class Broker(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.count = 0
        self.running: set[int] = set()
        self.begun: set[int] = set()
        self.gates: dict[int, asyncio.Future[None]] = {}
        self.tasks: dict[int, Task[None]] = {}  # as far as anybody has them
        self.callers: dict[int, asyncio.Task[Any]] = {}  # who holds a slot, or is in put
        self.puts: set[int] = set()
        self.posted: set[int] = set()
        self.refused: set[int] = set()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        async def and_settle() -> None:
            await coroutine
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(and_settle())

    @initialize(max_active=st.integers(1, 4), max_queued=st.integers(1, 5))
    def bounds(self, max_active: int, max_queued: int) -> None:
        self.broker = QueueBroker(max_active=max_active, max_queued=max_queued)
        self.model = Model(max_active, max_queued)

    async def work(self, number: int) -> None:
        assert number not in self.begun, "it ran twice"
        self.begun.add(number)
        self.running.add(number)
        self.gates[number] = self.loop.create_future()
        try:
            await self.gates[number]
        finally:
            self.running.remove(number)

    async def slot(self, number: int, group: Hashable, timeout_s: float | None) -> None:
        try:
            async with self.broker.slot(group, timeout_s=timeout_s):
                await self.work(number)
        except SlotTimeout:
            self.refused.add(number)

    async def put(self, number: int, group: Hashable, timeout_s: float | None, hold: bool) -> None:
        self.keep(number, await self.broker.put(self.work, number, group=group, timeout_s=timeout_s, hold=hold))

    def keep(self, number: int, task: Task[None]) -> None:
        def ended(task: asyncio.Future[None]) -> None:
            if not task.cancelled() and isinstance(task.exception(), SlotTimeout):
                self.refused.add(number)

        self.tasks[number] = task
        task.add_done_callback(ended)

    @rule(
        way=st.sampled_from(["submit", "post", "put", "slot"]),
        group=st.sampled_from([None, "a", "a", "b", "c"]),
        timeout_s=st.sampled_from([None, None, 0, 1, 2, 5]),
        hold=st.booleans(),
    )
    def arrive(self, way: str, group: Hashable, timeout_s: float | None, hold: bool) -> None:
        self.count += 1
        number = self.count
        if way == "post":
            timeout_s, hold = None, False
        deadline = None if timeout_s is None else self.loop.time() + timeout_s
        job = Job(group, deadline, hold and way != "slot")
        taken = self.model.arrive(number, job, put=way == "put")

        async def arriving() -> None:
            if way == "submit":
                self.keep(number, self.broker.submit(self.work, number, group=group, timeout_s=timeout_s, hold=hold))
            elif way == "post":
                self.posted.add(number)
                self.broker.post(self.work, number, group=group)
            elif way == "put":
                self.puts.add(number)
                self.callers[number] = asyncio.create_task(self.put(number, group, timeout_s, hold))
            else:
                self.callers[number] = asyncio.create_task(self.slot(number, group, timeout_s))
                await asyncio.sleep(0)
                if self.callers[number].done():
                    await self.callers[number]

        if taken:
            self.run(arriving())
        else:
            with pytest.raises(QueueFull):
                self.run(arriving())
        self.model.expire(self.loop.time())

    @rule(
        way=st.sampled_from(["submit", "post", "put", "slot"]),
        group=st.sampled_from([None, "a", "b", "unhashable"]),
        timeout_s=st.sampled_from([Decimal(5), math.nan, "1", True, 1j]),
        is_late=st.booleans(),
    )
    def misuse(self, way: str, group: Hashable, timeout_s: Any, is_late: bool) -> None:
        """A call that raises changes nothing: the invariant holds, and nothing ever runs for it."""
        bad_group: Any = [] if group == "unhashable" else group
        if bad_group == [] and not is_late:
            timeout_s = None
        if way == "post":
            bad_group = []

        async def arriving() -> None:
            if way == "submit":
                self.broker.submit(self.work, -1, group=bad_group, timeout_s=timeout_s)
            elif way == "post":
                self.broker.post(self.work, -1, group=bad_group)
            elif way == "put":
                await self.broker.put(self.work, -1, group=bad_group, timeout_s=timeout_s)
            else:
                async with self.broker.slot(bad_group, timeout_s=timeout_s):
                    await self.work(-1)

        with pytest.raises((InputError, QueueFull)):
            self.run(arriving())

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """One ends, or several in the same round of the loop."""
        order = st.lists(st.sampled_from(sorted(self.running)), min_size=1, max_size=3, unique=True)
        for number in data.draw(order):
            self.gates[number].set_result(None)
            self.model.end(number)
        self.run(asyncio.sleep(0))

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), drop=st.booleans())
    def free(self, data: st.DataObject, drop: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.model.held)))
        task = self.tasks.pop(number)
        self.callers.pop(number, None)
        self.model.give_up(number)
        if not drop:
            task.ack()
        del task
        self.run(asyncio.sleep(0))

    @precondition(lambda self: {*self.model.waiting, *self.model.active} - self.posted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted({*self.model.waiting, *self.model.active} - self.posted)))
        (self.tasks.get(number) or self.callers[number]).cancel()
        self.model.give_up(number)
        self.run(asyncio.sleep(0))

    @rule(seconds=st.sampled_from([0.5, 1, 3]))
    def pass_time(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))
        self.model.expire(self.loop.time())

    @invariant()
    def agree(self) -> None:
        if self.count:
            assert self.running == self.model.running
            assert self.broker.active == len(self.model.active) <= self.model.max_active
            assert self.broker.queued == self.model.queued <= self.model.max_queued
            assert self.refused == self.model.refused
            in_put = {number for number in self.model.waiting if number in self.puts and number not in self.tasks}
            assert in_put == {number for number in self.model.waiting if self.model.jobs[number].outside}
            assert not self.refused & self.begun, "it was refused and ran"
            assert -1 not in self.begun, "it was refused with an error and ran"

    def teardown(self) -> None:
        if self.count:
            while self.model.active:
                for number in sorted(self.model.running):
                    self.gates[number].set_result(None)
                    self.model.end(number)
                self.run(asyncio.sleep(0))
                for number in sorted(self.model.held):
                    self.tasks[number].ack()
                    self.model.give_up(number)
                self.run(asyncio.sleep(0))
                self.agree()
            self.run(self.broker.drain())
            assert not self.model.waiting
            assert all(task.done() for task in (*self.tasks.values(), *self.callers.values()))
            assert not self.broker._scheduler._busy
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        assert self.loop.complaints == []


TestBroker = pytest.mark.soak(Broker.TestCase)
TestBroker.settings = settings(stateful_step_count=40)
