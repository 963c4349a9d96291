"""What a QueueBroker promises, a sentence each.

Mistakes that other brokers have made are among them, marked so: a deadline that strikes running tasks, a refused task
that runs later, a group blocked for ever by a task that never acknowledges, callers left waiting by ``stop``, a
``drain`` that returns while tasks run, and an error that is raised somewhere else too.
"""

import asyncio
import contextlib
import contextvars
import gc
import math
import weakref
from collections.abc import Awaitable, Callable, Hashable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from inturn.broker import QueueBroker, Slot, Task
from inturn.core import limits
from inturn.core.errors import BrokerStopped, InputError, InturnError, QueueFull, SlotTimeout, TaskNotRun
from threads import together
from virtual_time import VirtualLoop, run

Test = Callable[[], Awaitable[None]]


def in_loop(test: Test) -> Callable[[], None]:
    """A test that runs in virtual time, and leaves no complaint behind."""

    def wrapped() -> None:
        run(test)  # type: ignore[arg-type]

    wrapped.__name__ = test.__name__
    return wrapped


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> Iterator[None]:
    """Leave what is there already out of garbage collections, of which there are two in each test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


async def settle() -> None:
    """Let everything go on that can without time passing."""
    for _ in range(10):
        await asyncio.sleep(0)


class Work:
    """Tasks that begin when the broker says so and end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.running: set[Any] = set()
        self.most = 0
        self.gates: dict[Any, asyncio.Future[Any]] = {}

    async def __call__(self, name: Any) -> Any:
        self.begun.append(name)
        self.running.add(name)
        self.most = max(self.most, len(self.running))
        self.gates[name] = asyncio.get_running_loop().create_future()
        try:
            return await self.gates[name]
        finally:
            self.running.discard(name)

    async def end(self, name: Any, result: Any = None) -> None:
        self.gates[name].set_result(result)
        await settle()

    async def end_all(self) -> None:
        while self.running:
            await self.end(min(self.running, key=self.begun.index))


async def nothing(result: Any = None) -> Any:
    return result


async def for_a_second(result: Any = None) -> Any:
    await asyncio.sleep(1)
    return result


def now() -> float:
    return asyncio.get_running_loop().time()


def names(text: str) -> list[str]:
    return text.split()


# ── slots ──


@in_loop
async def test_submit_and_put_return_the_result_of_the_task() -> None:
    async with QueueBroker() as broker:
        assert await broker.submit(nothing, 7) == 7
        assert await broker.submit(for_a_second, 8, group="a") == 8
        assert await (await broker.put(for_a_second, 9)) == 9
        assert await asyncio.gather(*(broker.submit(for_a_second, n, group=n % 3) for n in range(9))) == [*range(9)]


@in_loop
async def test_at_most_max_active_tasks_run_at_once() -> None:
    broker, work = QueueBroker(max_active=3), Work()
    for name in range(10):
        broker.submit(work, name)
        await settle()
        assert (broker.active, broker.queued) == (min(name + 1, 3), max(name - 2, 0))
    await work.end_all()
    assert (work.most, work.begun) == (3, [*range(10)])
    assert (broker.active, broker.queued) == (0, 0)


@in_loop
async def test_at_most_one_task_of_a_group_runs_at_once() -> None:
    broker, work = QueueBroker(), Work()
    for name in names("a1 a2 b1 a3 b2"):
        broker.submit(work, name, group=name[0])
    await settle()
    assert work.running == {"a1", "b1"}
    await work.end("a1")
    assert work.running == {"a2", "b1"}
    await work.end("b1")
    await work.end("a2")
    assert work.running == {"a3", "b2"}
    await work.end_all()


@in_loop
async def test_tasks_run_in_order_of_submission_across_groups() -> None:
    broker, work = QueueBroker(max_active=1), Work()
    everything = names("a1 a2 - b1 a3 + b2")
    for name in everything:
        broker.submit(work, name, group=name[0] if name[0].isalpha() else None)
    await settle()
    await work.end_all()
    assert work.begun == everything


@in_loop
async def test_a_task_passed_over_keeps_its_place_in_the_order() -> None:
    broker, work = QueueBroker(max_active=2), Work()
    for name in names("a1 x1 a2 a3 y1 x2 a4 z1"):
        broker.submit(work, name, group=name[0])
    await settle()
    assert work.begun == names("a1 x1")
    await work.end("x1")  # a2 and a3 may not go; y1 is the oldest that may
    assert work.begun == names("a1 x1 y1")
    await work.end("a1")  # a2 is older than x2
    await work.end("y1")
    assert work.begun == names("a1 x1 y1 a2 x2")
    await work.end_all()
    assert work.begun == names("a1 x1 y1 a2 x2 a3 z1 a4")


@pytest.mark.parametrize("stranger", [None, "stranger"])
def test_a_busy_group_or_ungrouped_tasks_do_not_starve_another_task(stranger: Hashable) -> None:
    async def test() -> None:
        for hot in ("hot", None):
            broker, work = QueueBroker(max_active=2), Work()
            for n in range(100):
                broker.submit(work, n, group=hot)
            broker.submit(work, "stranger", group=stranger)
            await settle()
            for n in range(100):
                if "stranger" in work.running:
                    break
                await work.end(n)
            # Behind a hot group it does not wait at all; behind tasks without a group it waits for older ones only.
            assert work.begun.index("stranger") == (1 if hot else 100)
            await work.end_all()

    run(test)


@in_loop
async def test_a_full_queue_of_a_busy_group_does_not_block_a_task_that_can_begin() -> None:
    broker, work = QueueBroker(max_active=2, max_queued=2), Work()
    for n in range(3):
        broker.submit(work, n, group="hot")
    with pytest.raises(QueueFull):
        broker.submit(work, 3, group="hot")
    broker.submit(work, "stranger", group="other")
    await settle()
    assert work.running == {0, "stranger"}
    await work.end_all()


@in_loop
async def test_any_hashable_value_is_a_group_and_none_is_no_group() -> None:
    broker, work = QueueBroker(max_active=10), Work()
    for n, group in enumerate([0, False, "", (), ("a", 1), None, None]):
        broker.submit(work, n, group=group)
    await settle()
    assert work.running == {0, 2, 3, 4, 5, 6}  # 0 and False are equal
    for max_active in (10, 1):  # refused at once, not when its turn comes
        other = QueueBroker(max_active=max_active)
        task = other.submit(for_a_second)
        with pytest.raises(InputError, match="expected a hashable value"):
            other.submit(nothing, group=[])
        await task
        assert (other.active, other.queued) == (0, 0)
    await work.end_all()


@in_loop
async def test_slots_and_tasks_share_one_queue() -> None:
    broker, order = QueueBroker(max_active=1), []

    async def caller(name: str) -> None:
        async with broker.slot("a"):
            order.append(name)
            await asyncio.sleep(1)

    async def task(name: str) -> None:
        order.append(name)

    callers = []
    for n in range(3):
        callers.append(asyncio.create_task(caller(f"slot {n}")))
        await settle()
        broker.submit(task, f"task {n}", group="a" if n else None)
    await broker.drain()
    assert order == ["slot 0", "task 0", "slot 1", "task 1", "slot 2", "task 2"]
    await asyncio.gather(*callers)


def test_the_cost_per_task_does_not_grow_with_the_backlog() -> None:
    class Group:
        """Counts how often it is looked at."""

        looks = 0

        def __hash__(self) -> int:
            self.looks += 1
            return 1

        def __eq__(self, other: object) -> bool:
            return self is other

    async def looks_per_task(size: int) -> float:
        broker, groups = QueueBroker(max_active=2, max_queued=3 * size), [Group(), Group()]
        hot, other = groups
        running = await broker.slot(hot)
        tasks = [broker.submit(nothing, group=hot) for _ in range(size)]
        tasks += [broker.submit(nothing, group=other, timeout_s=1) for _ in range(size)]
        strangers = [broker.submit(nothing) for _ in range(size)]
        await asyncio.gather(*strangers)  # past all that wait behind the hot group
        for task in tasks[:size:2]:
            task.cancel()
        running.ack()
        await broker.drain()
        return (hot.looks + other.looks) / size

    looks = [run(lambda size=size: looks_per_task(size)) for size in (10, 100, 1000, 10_000)]
    assert max(looks) < 20
    assert looks == sorted(looks, reverse=True)  # the start weighs less and less


# ── bounds ──


@in_loop
async def test_submit_beyond_max_queued_raises_queue_full() -> None:
    broker, work = QueueBroker(max_active=1, max_queued=2), Work()
    for name in range(3):
        broker.submit(work, name)
    with pytest.raises(QueueFull, match="2 tasks are already waiting, and max_queued=2"):
        broker.submit(work, "late")
    with pytest.raises(QueueFull):
        async with broker.slot():
            pytest.fail("entered")
    await settle()
    await work.end(0)
    broker.submit(work, 3)
    await work.end_all()
    assert work.begun == [0, 1, 2, 3]


@in_loop
async def test_put_waits_for_room_in_order() -> None:
    broker, work = QueueBroker(max_active=1, max_queued=1), Work()
    broker.submit(work, 0)
    broker.submit(work, 1)
    puts = [asyncio.create_task(broker.put(work, n)) for n in (2, 3)]
    await settle()
    assert (broker.queued, [put.done() for put in puts]) == (1, [False, False])
    await work.end(0)
    assert (broker.queued, [put.done() for put in puts]) == (1, [True, False])
    with pytest.raises(QueueFull):
        broker.submit(work, "late")
    await work.end_all()
    assert work.begun == [0, 1, 2, 3]
    assert [await (await put) for put in puts] == [None, None]


@in_loop
async def test_put_does_not_wait_for_a_task_that_can_begin() -> None:
    broker, work = QueueBroker(max_active=2, max_queued=1), Work()
    broker.submit(work, "a1", group="a")
    broker.submit(work, "a2", group="a")
    await broker.put(work, "b1", group="b")
    blocked = asyncio.create_task(broker.put(work, "a3", group="a"))
    stranger = asyncio.create_task(broker.put(work, "c1", group="c"))
    await settle()
    assert not blocked.done()
    assert not stranger.done()
    await work.end("b1")  # there is no more room than before, but the slot is c1's
    assert stranger.done()
    assert not blocked.done()
    assert work.running == {"a1", "c1"}
    await work.end_all()
    assert work.begun == names("a1 b1 c1 a2 a3")
    await blocked


@in_loop
async def test_a_cancelled_put_drops_its_task() -> None:
    broker, work = QueueBroker(max_active=1, max_queued=1), Work()
    broker.submit(work, 0)
    queued = broker.submit(work, 1)
    puts = [asyncio.create_task(broker.put(work, n)) for n in (2, 3, 4)]
    await settle()
    puts[0].cancel()
    await settle()
    queued.cancel()  # now there is room for 3, whose caller is cancelled before it has heard of it
    puts[1].cancel()
    await settle()
    assert (broker.queued, puts[2].done()) == (1, True)
    await work.end_all()
    assert work.begun == [0, 4]
    assert (broker.active, broker.queued) == (0, 0)


@in_loop
async def test_the_timeout_of_put_counts_from_the_call() -> None:
    broker = QueueBroker(max_active=1, max_queued=1)
    for _ in range(2):
        broker.submit(asyncio.sleep, 10)
    task = await broker.put(nothing, timeout_s=3)
    with pytest.raises(SlotTimeout):
        await task
    assert (now(), broker.queued) == (3, 1)
    await broker.drain()


@pytest.mark.parametrize("bad", [0, -1, 1.5, 1.0, math.nan, math.inf, True, "1", None, Decimal(1)])
@pytest.mark.parametrize("name", ["max_active", "max_queued"])
def test_max_active_and_max_queued_must_be_whole_numbers_of_at_least_one(name: str, bad: Any) -> None:
    bounds = {name: bad}
    with pytest.raises(InputError, match="expected a whole number of at least 1"):
        QueueBroker(**bounds)


def test_max_active_and_max_queued_have_defaults() -> None:
    async def test() -> None:
        broker = QueueBroker()
        for _ in range(limits.BROKER_ACTIVE + limits.BROKER_QUEUED):
            broker.submit(nothing)
        with pytest.raises(QueueFull):
            broker.submit(nothing)
        await broker.drain()

    run(test)


# ── deadlines ──


@in_loop  # a mistake that others have made
async def test_a_task_waiting_longer_than_timeout_s_never_runs() -> None:
    broker, work = QueueBroker(max_active=1), Work()
    broker.submit(work, "first")
    late = broker.submit(work, "late", timeout_s=5)
    patient = broker.submit(work, "patient", timeout_s=50)
    with pytest.raises(SlotTimeout) as caught:
        await late
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, TaskNotRun)
    assert issubclass(TaskNotRun, InturnError)
    assert (now(), broker.queued) == (5, 1)
    await work.end_all()
    await patient
    assert work.begun == ["first", "patient"]


@in_loop  # a mistake that others have made
async def test_timeout_s_limits_only_the_waiting() -> None:
    broker = QueueBroker(max_active=1)
    first = broker.submit(asyncio.sleep, 3, "first", timeout_s=1)
    second = broker.submit(asyncio.sleep, 100, "second", timeout_s=4)
    assert await asyncio.gather(first, second) == ["first", "second"]
    async with broker.slot(timeout_s=1):
        await asyncio.sleep(10)


@in_loop
async def test_slot_waiting_longer_than_timeout_s_raises_slot_timeout() -> None:
    broker = QueueBroker()
    async with broker.slot("a"):
        with pytest.raises(SlotTimeout):
            async with broker.slot("a", timeout_s=5):
                pytest.fail("entered")
        assert (now(), broker.active, broker.queued) == (5, 1, 0)
        async with broker.slot("b", timeout_s=0):
            pass
    async with broker.slot("a", timeout_s=0):
        pass


@pytest.mark.parametrize("timeout_s", [0, -1, -math.inf])
def test_a_timeout_of_zero_or_less_starts_at_once_or_raises_slot_timeout(timeout_s: float) -> None:
    async def test() -> None:
        broker = QueueBroker()
        assert await broker.submit(nothing, 1, group="a", timeout_s=timeout_s) == 1
        async with broker.slot("a"):
            with pytest.raises(SlotTimeout):
                await broker.submit(nothing, group="a", timeout_s=timeout_s)
            assert now() == 0

    run(test)


@in_loop
async def test_timeout_s_may_be_infinite_but_not_nan() -> None:
    broker = QueueBroker()
    async with broker.slot("a"):
        task = broker.submit(nothing, 1, group="a", timeout_s=math.inf)
        with pytest.raises(InputError, match=r"timeout_s is .*; expected a number of seconds"):
            broker.submit(nothing, group="a", timeout_s=math.nan)
        await asyncio.sleep(1e6)
    assert await task == 1


@pytest.mark.parametrize("bad", [Decimal(5), math.nan, "5", True, [], 5j])
@pytest.mark.parametrize("is_busy", [False, True])
def test_a_call_that_raises_leaves_no_task_in_the_queue(bad: Any, is_busy: bool) -> None:
    async def test() -> None:
        broker, work = QueueBroker(max_active=1), Work()
        first = broker.submit(work, "first", group="a") if is_busy else None

        async def slot() -> None:
            async with broker.slot("a", timeout_s=bad):
                pytest.fail("entered")

        calls: list[Callable[[], Any]] = [
            lambda: broker.submit(work, "never", group="a", timeout_s=bad),
            lambda: broker.put(work, "never", group="a", timeout_s=bad),
            slot,
        ]
        for call in calls:
            with pytest.raises(InputError, match=r"timeout_s is .*; expected a number of seconds"):
                await call()
        unhashable: Any = []
        for add in (broker.submit, broker.post):
            with pytest.raises(InputError, match="expected a hashable value"):
                add(work, "never", group=unhashable)
        assert (broker.active, broker.queued) == (is_busy, 0)
        await settle()
        if first is not None:
            await work.end("first")
        assert work.begun == ["first"] * is_busy
        async with broker.slot("a", timeout_s=0):
            pass

    run(test)


@in_loop
async def test_a_task_past_its_timeout_does_not_run_even_if_the_timer_is_late() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    broker, work = QueueBroker(max_active=1), Work()
    slot = await broker.slot("a")
    late = [broker.submit(work, n, group=group, timeout_s=1) for n, group in enumerate(["a", "a", "b", None])]
    in_time = broker.submit(work, "in time", group="a", timeout_s=3)
    loop.pass_time(2)
    slot.ack()  # before the loop could see to its timers
    await settle()
    assert work.running == {"in time"}
    for task in late:
        with pytest.raises(SlotTimeout):
            await task
    await work.end_all()
    await in_time


@in_loop
async def test_timeouts_in_any_order_fire_exactly_on_time() -> None:
    broker = QueueBroker()
    ended: dict[float, float] = {}

    async def wait(timeout_s: float) -> None:
        try:
            await broker.submit(nothing, group="a", timeout_s=timeout_s)
        except SlotTimeout:
            ended[timeout_s] = now()

    async with broker.slot("a"):
        times = [7, 3, 9, 1, 4, 8, 2, 3.5, 6, 5]
        await asyncio.gather(*(wait(value) for value in times))
    assert ended == {value: value for value in times}


@in_loop
async def test_a_task_that_left_the_queue_is_not_kept_alive_by_its_timeout() -> None:
    broker = QueueBroker(max_active=1)
    references = []
    for n in range(1000):
        slot = await broker.slot()
        task = broker.submit(nothing, n, timeout_s=1e6 + n)
        references.append(weakref.ref(task))
        slot.ack()
        assert await task == n
        del task
    await settle()
    gc.collect()
    assert not any(reference() for reference in references)
    assert len(broker._deadlines._heap) < 100
    await broker.stop()


# ── slots ──


@in_loop
async def test_a_slot_may_be_acknowledged_early_and_repeatedly() -> None:
    broker, work = QueueBroker(), Work()
    async with broker.slot("a") as slot:
        broker.submit(work, 1, group="a")
        slot.ack()
        slot.ack()
        await settle()
        assert work.running == {1}
    assert broker.active == 1
    await work.end_all()
    slot.ack()
    assert broker.active == 0


@in_loop
async def test_an_awaited_slot_is_held_until_acknowledged() -> None:
    broker, work = QueueBroker(), Work()

    async def lock() -> Slot:
        return await broker.slot("a")

    slot = await lock()
    broker.submit(work, 1, group="a")
    await settle()
    assert work.running == set()
    slot.ack()
    await settle()
    assert work.running == {1}
    await work.end_all()


@in_loop
async def test_a_slot_can_be_used_only_once() -> None:
    broker = QueueBroker()
    slot = broker.slot("a")
    for _ in range(2):
        async with slot:
            with pytest.raises(RuntimeError, match="can be used only once"):
                await slot
        slot = broker.slot("a")
    assert broker.active == 0


@in_loop
async def test_a_slot_that_is_never_entered_takes_no_slot() -> None:
    broker = QueueBroker(max_active=1)
    broker.slot("a")
    async with broker.slot("a", timeout_s=0):
        pass


@in_loop
async def test_hold_keeps_the_slot_of_a_task_until_ack() -> None:
    broker, work = QueueBroker(), Work()
    connection = broker.submit(nothing, "connection", group="a", hold=True)
    broker.submit(work, 1, group="a")
    assert await connection == "connection"
    await settle()
    assert (work.running, broker.active) == (set(), 1)
    connection.ack()
    connection.ack()
    await settle()
    assert work.running == {1}
    connection.ack()
    assert broker.active == 1
    await work.end_all()


@in_loop
async def test_a_held_task_acknowledged_early_frees_its_slot_when_it_ends() -> None:
    broker, work = QueueBroker(), Work()
    first = broker.submit(work, 1, group="a", hold=True)
    second = broker.submit(work, 2, group="a", hold=True)
    second.ack()
    await settle()
    first.ack()
    await settle()
    assert work.running == {1}
    await work.end(1)
    assert work.running == {2}
    await work.end(2)
    assert broker.active == 0


@pytest.mark.parametrize("how", ["error", "cancelled", "refused"])
def test_a_held_task_without_a_result_frees_its_slot(how: str) -> None:
    async def test() -> None:
        broker = QueueBroker()

        async def fails() -> None:
            await asyncio.sleep(1)
            raise KeyError

        if how == "refused":
            async with broker.slot("a"):
                task = broker.submit(fails, group="a", hold=True, timeout_s=0.5)
                await asyncio.wait([task])
        else:
            task = broker.submit(fails, group="a", hold=True)
            await asyncio.sleep(0.5)
            if how == "cancelled":
                task.cancel()
        await asyncio.wait([task])
        await settle()
        assert broker.active == 0
        task.ack()
        assert broker.active == 0

    run(test)


@in_loop  # a mistake that others have made
async def test_a_slot_is_freed_when_its_holder_is_garbage_collected() -> None:
    broker = QueueBroker(max_active=1)
    slot = await broker.slot("a")
    del slot
    held = await broker.put(nothing, group="a", hold=True)
    await held
    del held
    broker.submit(nothing, group="a", hold=True)  # dropped at once
    async with broker.slot("a"):
        assert broker.active == 1
    assert broker.active == 0


@in_loop
async def test_a_slot_is_freed_when_its_holder_is_collected_in_a_cycle_or_another_thread() -> None:
    broker = QueueBroker(max_active=1)
    for collect in (gc.collect, lambda: together(gc.collect)):
        cycle: list[Any] = [await broker.slot("a")]
        cycle.append(cycle)
        held = broker.submit(nothing, group="b", hold=True)
        del cycle
        collect()
        await held
        cycle = [held]
        cycle.append(cycle)
        del held, cycle
        collect()
        async with broker.slot("b"):
            assert broker.active == 1


@pytest.mark.parametrize("holder", ["slot", "task", "block"])
def test_the_slot_of_a_collected_holder_is_passed_on_in_the_loop_thread(holder: str) -> None:
    async def test() -> None:
        asyncio.get_running_loop().set_debug(True)  # which tells what is not done in its thread
        broker, work = QueueBroker(), Work()

        async def block() -> None:
            async with broker.slot("a"):
                await asyncio.sleep(1)

        cycle: list[Any] = []
        if holder == "slot":
            cycle.append(await broker.slot("a"))
        elif holder == "task":
            cycle.append(broker.submit(nothing, group="a", hold=True))
            await settle()
        else:
            cycle.append(block())
            cycle[0].send(None)
        cycle.append(cycle)
        broker.submit(work, 1, group="a")
        del cycle
        together(gc.collect)
        assert broker.active == 1
        await settle()
        assert work.running == {1}
        await work.end_all()

    run(test)


@in_loop
async def test_a_slot_is_freed_when_its_coroutine_is_closed() -> None:
    broker = QueueBroker()

    async def abandoned() -> None:
        async with broker.slot("a"):
            await asyncio.sleep(1)

    coroutine = abandoned()
    coroutine.send(None)
    assert broker.active == 1
    coroutine.close()
    await settle()
    assert broker.active == 0


@in_loop
async def test_a_slot_is_freed_when_its_holder_is_cancelled() -> None:
    broker, work = QueueBroker(), Work()

    async def caller() -> None:
        async with broker.slot("a"):
            await asyncio.sleep(1000)

    holder = asyncio.create_task(caller())
    running = broker.submit(work, 1, group="b")
    held = broker.submit(nothing, group="c", hold=True)
    await settle()
    assert broker.active == 3
    for task in (holder, running, held):
        task.cancel()
    await settle()
    assert broker.active == 0


# ── cancellation ──


@in_loop
async def test_a_task_cancelled_in_the_queue_never_runs() -> None:
    broker, work = QueueBroker(max_active=1, max_queued=3), Work()
    tasks = [broker.submit(work, n, group=n % 2) for n in range(4)]
    await settle()
    assert tasks[2].cancel()
    assert not tasks[2].cancel()
    assert tasks[2].cancelled()
    assert broker.queued == 2
    await work.end_all()
    assert work.begun == [0, 1, 3]


@in_loop
async def test_a_task_that_left_the_queue_is_garbage_collected_at_once() -> None:
    broker = QueueBroker(max_active=2)
    slot = await broker.slot("a")
    waiting = broker.submit(nothing, 1, group="a")
    gc.disable()
    try:
        for n in range(1000):
            if n == 500:
                slot_without_group = await broker.slot()  # from here on they stand in line, not behind the group
            task = broker.submit(nothing, n, group="a", timeout_s=1e6 if n % 2 else None)
            reference = weakref.ref(task)
            task.cancel()
            del task
            await asyncio.sleep(0)
            assert reference() is None
            behind = broker._scheduler._busy["a"]
            assert behind is not None
            assert len(behind) + len(broker._scheduler._arrivals) < 100
            assert broker.queued == 1
    finally:
        gc.enable()
    slot.ack()
    slot_without_group.ack()
    assert await waiting == 1
    await broker.stop()


@in_loop
async def test_a_cancelled_running_task_may_clean_up() -> None:
    broker, steps = QueueBroker(), []

    async def careful() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            steps.append("cleaned up")

    task = broker.submit(careful, group="a")
    after = broker.submit(nothing, group="a")
    await settle()
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await after
    assert (steps, now()) == (["cleaned up"], 1)


@in_loop
async def test_a_task_may_suppress_its_cancellation() -> None:
    broker = QueueBroker(max_active=1)

    async def stubborn() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "done"

    task = broker.submit(stubborn)
    others = [broker.submit(for_a_second, n) for n in range(3)]
    await settle()
    task.cancel()
    assert await task == "done"
    assert await asyncio.gather(*others) == [0, 1, 2]


@in_loop
async def test_a_task_cancelling_itself_does_not_cancel_the_next() -> None:
    broker = QueueBroker(max_active=1)

    async def cancels_itself() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    tasks = [broker.submit(cancels_itself), broker.submit(for_a_second, 1), broker.submit(cancels_itself)]
    last = broker.submit(for_a_second, 2)
    assert await asyncio.gather(*tasks, last) == ["done", 1, "done", 2]


async def _cancels_and_takes_it_back() -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    current.uncancel()


async def _times_out() -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.sleep(10)


async def _times_out_twice_over() -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1), asyncio.timeout(1):
            await asyncio.sleep(10)


async def _fails_in_a_group() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.sleep(10)


async def _swallows() -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(10)


@pytest.mark.parametrize("way", ["submit", "post"])
@pytest.mark.parametrize(
    "function", [_cancels_and_takes_it_back, _times_out, _times_out_twice_over, _fails_in_a_group, _swallows]
)
def test_a_suppressed_cancellation_does_not_reach_the_next_task(
    function: Callable[[], Awaitable[None]], way: str
) -> None:
    """Python 3.11 and 3.12 raise a cancellation that was taken back all the same, at the next await."""

    async def test() -> None:
        ended: list[int] = []

        async def innocent(number: int) -> None:
            current = asyncio.current_task()
            assert current is not None
            assert current.cancelling() == 0
            await asyncio.sleep(1)
            ended.append(number)

        broker = QueueBroker(max_active=1)
        for number in range(3):
            if way == "submit":
                broker.submit(function)
                broker.submit(innocent, number)
            else:
                broker.post(function)
                broker.post(innocent, number)
        await broker.drain()
        assert ended == [0, 1, 2]

    run(test)


@in_loop
async def test_cancelling_an_awaiting_caller_cancels_its_task_unless_shielded() -> None:
    broker, work = QueueBroker(max_active=1), Work()

    async def wait_for(task: Awaitable[Any]) -> None:
        await task

    tasks = [broker.submit(work, n) for n in range(4)]
    running, queued = (asyncio.create_task(wait_for(tasks[n])) for n in (0, 1))
    shielded = asyncio.create_task(wait_for(asyncio.shield(tasks[2])))
    await settle()
    for task in (running, queued, shielded):
        task.cancel()
    await settle()
    assert [task.cancelled() for task in tasks] == [True, True, False, False]
    await work.end_all()
    assert work.begun == [0, 2, 3]


@in_loop
async def test_asyncio_timeouts_work_inside_and_outside_of_a_task() -> None:
    broker = QueueBroker(max_active=1)

    async def inside() -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(10)
        except TimeoutError:
            return "timed out"
        return "?"

    assert await broker.submit(inside) == "timed out"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(broker.submit(asyncio.sleep, 10), 1)
    assert (broker.active, now()) == (0, 2)


@pytest.mark.parametrize("ticks", range(12))
@pytest.mark.parametrize("way", ["slot", "submit", "put", "hold", "drain"])
def test_a_cancellation_at_any_moment_loses_no_slot(way: str, ticks: int) -> None:
    async def test() -> None:
        broker = QueueBroker(max_active=1, max_queued=2)

        async def slot() -> None:
            async with broker.slot("a"):
                await asyncio.sleep(0)

        async def submit() -> None:
            await broker.submit(asyncio.sleep, 0, group="a")

        async def put() -> None:
            await (await broker.put(asyncio.sleep, 0, group="a"))

        async def hold() -> None:
            task = broker.submit(asyncio.sleep, 0, group="a", hold=True)
            await task
            await asyncio.sleep(0)
            task.ack()

        ways = {"slot": slot, "submit": submit, "put": put, "hold": hold, "drain": broker.drain}
        for busy in range(4):
            for _ in range(min(busy, 3)):
                broker.submit(asyncio.sleep, 0, group="a")
            if busy == 3 and way not in ("put", "drain"):
                continue
            caller = asyncio.create_task(ways[way]())
            for _ in range(ticks):
                await asyncio.sleep(0)
            caller.cancel()
            await asyncio.wait([caller])
            del caller
            await settle()
            await settle()
            assert (broker.active, broker.queued) == (0, 0)
            async with broker.slot("a", timeout_s=0):
                pass

    run(test)


@in_loop
async def test_a_slot_granted_to_a_caller_being_cancelled_goes_to_the_next() -> None:
    broker, work = QueueBroker(), Work()

    async def caller() -> None:
        async with broker.slot("a"):
            pytest.fail("entered")

    slot = await broker.slot("a")
    waiting = asyncio.create_task(caller())
    await settle()
    broker.submit(work, 1, group="a")
    slot.ack()  # the slot is the caller's now, which has not heard of it
    waiting.cancel()
    await settle()
    assert waiting.cancelled()
    assert work.running == {1}
    await work.end_all()


@in_loop
async def test_a_timeout_simultaneous_with_a_cancellation_frees_no_other_slot() -> None:
    broker = QueueBroker()

    async def caller() -> None:
        async with broker.slot("a", timeout_s=1):
            pytest.fail("entered")

    slot = await broker.slot("a")
    waiting = asyncio.create_task(caller())
    await settle()
    asyncio.get_running_loop().call_at(1, waiting.cancel)
    await asyncio.wait([waiting])
    assert broker.active == 1
    slot.ack()
    assert broker.active == 0


# ── the end ──


@in_loop  # a mistake that others have made
async def test_drain_waits_for_queued_running_and_unacknowledged_tasks() -> None:
    broker = QueueBroker(max_active=5, max_queued=1)
    order: list[str] = []

    async def more(depth: int) -> None:
        await asyncio.sleep(1)
        if depth:
            await broker.put(more, depth - 1, group=depth)
        order.append(f"task {depth}")

    async def producer() -> None:
        for _ in range(5):
            await broker.put(asyncio.sleep, 1, group="a")
        order.append("producer")

    broker.submit(more, 3)
    producing = asyncio.create_task(producer())
    held = broker.submit(nothing, hold=True)
    asyncio.get_running_loop().call_later(20, held.ack)
    await settle()
    await broker.drain()
    assert set(order) == {"task 0", "task 1", "task 2", "task 3", "producer"}
    assert (broker.active, broker.queued, now()) == (0, 0, 20)
    assert producing.done()
    await broker.drain()
    assert now() == 20


@in_loop
async def test_drain_waits_for_a_task_submitted_by_a_done_callback() -> None:
    broker = QueueBroker()
    first = broker.submit(for_a_second)
    first.add_done_callback(lambda _: broker.submit(for_a_second))
    await broker.drain()
    assert now() == 2


@in_loop
async def test_a_broker_can_be_used_after_drain() -> None:
    broker = QueueBroker()
    for _ in range(2):
        broker.submit(for_a_second)
        await broker.drain()
        assert broker.active == 0


@in_loop  # a mistake that others have made
async def test_stop_refuses_waiting_callers_and_lets_running_tasks_end() -> None:
    broker, work = QueueBroker(max_active=2, max_queued=3), Work()

    async def caller() -> None:
        async with broker.slot():
            pytest.fail("entered")

    running = [broker.submit(work, name, group=name) for name in ("a", "b")]
    refused: list[asyncio.Future[Any]] = [broker.submit(work, "a2", group="a"), broker.submit(work, "b2", group="b")]
    refused.append(asyncio.create_task(caller()))
    await settle()
    puts = [asyncio.create_task(broker.put(work, "c")), asyncio.create_task(broker.put(work, "d", group="a"))]
    await settle()
    stopping = asyncio.create_task(broker.stop())
    await settle()
    assert not stopping.done()
    assert broker.queued == 0
    for task in [*refused, *[await put for put in puts]]:
        with pytest.raises(BrokerStopped):
            await task
    await work.end_all()
    await stopping
    assert [await task for task in running] == [None, None]
    assert work.begun == ["a", "b"]


@in_loop
async def test_a_stopped_broker_refuses_every_call() -> None:
    broker = QueueBroker()
    early = broker.slot()
    await broker.stop()
    await broker.stop()
    await broker.drain()
    with pytest.raises(BrokerStopped):
        broker.submit(nothing)
    with pytest.raises(BrokerStopped):
        await broker.put(nothing)
    for slot in (early, broker.slot()):
        with pytest.raises(BrokerStopped):
            await slot


@in_loop
async def test_stop_with_cancel_cancels_running_tasks() -> None:
    broker, work = QueueBroker(max_active=3), Work()
    tasks = [broker.submit(work, 0), broker.submit(asyncio.sleep, 1000)]
    await settle()
    tasks.append(broker.submit(work, "has its slot but has not begun"))
    tasks.append(broker.submit(work, "waits"))
    await broker.stop(cancel=True)
    assert now() == 0
    assert [task.cancelled() for task in tasks] == [True, True, True, False]
    assert isinstance(tasks[3].exception(), BrokerStopped)
    assert (work.begun, broker.active) == ([0], 0)


@in_loop
async def test_stop_with_cancel_ends_tasks_that_never_wait() -> None:
    broker = QueueBroker(max_active=1, max_queued=100_000)
    tasks = [broker.submit(nothing, n) for n in range(50_000)]
    await settle()
    await broker.stop(cancel=True)
    assert all(task.done() for task in tasks)
    assert sum(task.cancelled() for task in tasks) == 1
    assert isinstance(tasks[-1].exception(), BrokerStopped)


@in_loop
async def test_a_stopped_broker_is_garbage_collected_at_once() -> None:
    broker = QueueBroker()
    async with broker.slot("a"):
        task = broker.submit(nothing, group="a", timeout_s=1e6)
        stopping = asyncio.create_task(broker.stop())
        await settle()
    await stopping
    reference = weakref.ref(broker)
    del broker, task, stopping
    await settle()
    gc.collect()
    assert reference() is None


@in_loop
async def test_a_broker_block_drains_at_its_end() -> None:
    async with QueueBroker() as broker:
        task = broker.submit(for_a_second, 1)
    assert (task.result(), now()) == (1, 1)
    with pytest.raises(BrokerStopped):
        broker.submit(nothing)


@pytest.mark.parametrize("how", ["error", "cancelled while draining"])
def test_a_failing_broker_block_stops_and_cancels_its_tasks(how: str) -> None:
    async def test() -> None:
        tasks: list[Task[None]] = []

        async def block() -> None:
            async with QueueBroker(max_active=1) as broker:
                tasks.extend(broker.submit(asyncio.sleep, 1000) for _ in range(2))
                await settle()
                if how == "error":
                    raise KeyError

        blocked = asyncio.create_task(block())
        await asyncio.sleep(1)
        blocked.cancel()
        await asyncio.wait([blocked])
        assert now() == 1
        assert tasks[0].cancelled()
        assert isinstance(tasks[1].exception(), BrokerStopped)

    run(test)


@in_loop
async def test_drain_and_stop_inside_a_task_are_refused_as_a_deadlock() -> None:
    broker = QueueBroker()
    for wait in (broker.drain, broker.stop):
        with pytest.raises(RuntimeError, match="it would deadlock; "):
            await broker.submit(wait)
    assert await broker.submit(nothing, 1) == 1


@in_loop
async def test_drain_and_stop_inside_a_slot_are_refused_as_a_deadlock() -> None:
    broker = QueueBroker()
    async with broker.slot("a"):
        for wait in (broker.drain, broker.stop):
            with pytest.raises(RuntimeError, match="it would deadlock; "):
                await wait()
        other = asyncio.create_task(broker.drain())
        await settle()
        assert not other.done()
    await other
    held = await broker.slot("a")
    asyncio.get_running_loop().call_later(1, held.ack)
    with pytest.raises(RuntimeError, match="it would deadlock; "):
        await broker.drain()
    await asyncio.sleep(1)
    await broker.drain()


@pytest.mark.parametrize("way", ["submit", "gather", "slot", "put"])
@pytest.mark.parametrize("is_stuck", [True, False])
def test_a_broker_whose_slots_all_wait_for_its_queue_logs_that_it_is_stuck(
    way: str, is_stuck: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        broker = QueueBroker(max_active=2)

        async def outer(number: int) -> None:
            if number and not is_stuck:
                await asyncio.sleep(limits.BROKER_STUCK_S + 1)  # something else, after which all goes on
            elif way == "submit":
                await broker.submit(nothing, group=number)
            elif way == "put":
                await (await broker.put(nothing, group=number))
            elif way == "gather":
                await asyncio.gather(broker.submit(nothing, group=number), asyncio.sleep(1))
            else:
                async with broker.slot(number):
                    pass

        async def in_slot(number: int) -> None:
            async with broker.slot(f"slot {number}"):
                await asyncio.sleep(0)
                await outer(number)

        tasks = [broker.submit(outer, n, group=f"outer {n}") for n in (0, 1)] if way != "slot" else []
        callers = [asyncio.create_task(in_slot(n)) for n in (0, 1)] if way == "slot" else []
        await asyncio.sleep(limits.BROKER_STUCK_S + 2)
        assert broker.active == (2 if is_stuck else 0)
        for task in (*tasks, *callers):
            task.cancel()
        await broker.drain()

    run(test)
    assert ["stuck" in record.getMessage() for record in caplog.records] == [True] * is_stuck


def test_a_loop_ending_before_stop_cancels_running_tasks() -> None:
    work = Work()
    broker = QueueBroker(max_active=1)

    async def main() -> list[Task[Any]]:
        tasks = [broker.submit(work, n) for n in range(1)]
        await settle()
        return tasks

    (task,) = run(main)
    assert task.cancelled()
    assert broker.active == 0


def test_slots_left_from_a_closed_loop_raise_no_error() -> None:
    async def main() -> list[Any]:
        broker = QueueBroker(max_active=3)
        return [await broker.slot("a"), broker.submit(nothing, hold=True), await broker.put(nothing, hold=True)]

    slot, *tasks = run(main)
    slot.ack()
    del slot
    tasks[0].ack()
    tasks.clear()
    gc.collect()


def test_a_broker_belongs_to_one_event_loop() -> None:
    broker = QueueBroker()

    async def main() -> int:
        result: int = await broker.submit(nothing, 1)
        return result

    assert run(main) == 1
    with pytest.raises(RuntimeError, match="another event loop"):
        run(main)
    with pytest.raises(RuntimeError, match="no running event loop"):
        broker.submit(nothing)


# ── errors ──


class Odd(BaseException):
    """Not an Exception."""


# A mistake that others have made.
@pytest.mark.parametrize("error", [KeyError, Odd, TimeoutError, StopAsyncIteration, GeneratorExit])
@pytest.mark.parametrize("pause", [False, True])
def test_an_error_of_a_task_is_raised_only_for_its_awaiter(error: type[BaseException], pause: bool) -> None:
    async def test() -> None:
        broker = QueueBroker(max_active=1)

        async def fails() -> None:
            if pause:
                await asyncio.sleep(1)
            raise error

        broker.submit(fails)
        with pytest.raises(error):
            await broker.submit(fails)
        broker.submit(fails)
        assert await broker.submit(nothing, 1) == 1
        assert (broker.active, broker.queued) == (0, 0)

    run(test)


@in_loop
async def test_an_error_raised_by_the_call_itself_is_the_result_of_the_task() -> None:
    broker = QueueBroker(max_active=1)

    def raises() -> Awaitable[None]:
        raise KeyError

    def stops() -> Awaitable[None]:
        raise StopIteration

    for function, error in [(raises, KeyError), (stops, RuntimeError), (int, TypeError), (lambda x: x, TypeError)]:
        with pytest.raises(error):
            await broker.submit(function)  # type: ignore[arg-type]
    assert await broker.submit(nothing, 1) == 1


@pytest.mark.parametrize("way", ["at once", "later", "thrown in"])
def test_an_error_of_a_task_keeps_no_object_alive(way: str) -> None:
    class Fails:
        async def __call__(self, at_fault: asyncio.Future[None]) -> None:
            if way == "later":
                await asyncio.sleep(1)
            elif way == "thrown in":
                await at_fault
            raise KeyError

    async def test() -> None:
        broker, function = QueueBroker(), Fails()
        at_fault = asyncio.get_running_loop().create_future()
        if way == "thrown in":
            asyncio.get_running_loop().call_later(1, at_fault.set_exception, KeyError())
        task = broker.submit(function, at_fault)
        seen_function, seen_task = weakref.ref(function), weakref.ref(task)
        del function, at_fault
        with contextlib.suppress(KeyError):
            await task
        await settle()
        del task
        assert seen_task() is None
        if way != "thrown in":  # there the future knows its error, and the error's frames the future: asyncio's own
            assert seen_function() is None

    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()


@in_loop
async def test_a_kept_error_does_not_keep_the_slot_of_a_later_task() -> None:
    broker = QueueBroker(max_active=1)

    async def fails() -> None:
        raise KeyError

    failing = broker.submit(fails)
    broker.submit(nothing, hold=True)  # run by the same worker, whose frame the error knows
    await settle()
    assert isinstance(failing.exception(), KeyError)
    assert broker.active == 0


@in_loop
async def test_a_result_keeps_no_arguments_or_context_alive() -> None:
    class Thing:
        """Something with a weak reference."""

    variable = contextvars.ContextVar[object]("variable")
    broker, work = QueueBroker(max_active=1), Work()
    thing = Thing()
    reference = weakref.ref(thing)
    variable.set(thing)
    task = broker.submit(lambda _: work(1), thing)
    variable.set(None)
    broker.submit(work, 2)
    del thing
    await settle()
    assert reference() is not None
    await work.end(1, "result")
    assert work.running == {2}  # run by the same worker
    assert reference() is None
    assert await task == "result"
    await work.end_all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_keyboard_interrupt_or_exit_in_a_task_ends_the_loop_and_stops_the_broker(error: type[BaseException]) -> None:
    ended = []

    async def interrupted() -> None:
        await asyncio.sleep(1)
        raise error

    async def main() -> None:
        async with QueueBroker() as broker:
            broker.submit(interrupted)
            other = broker.submit(asyncio.sleep, 1000)
            try:
                await broker.drain()
            finally:
                ended.append(other)

    with pytest.raises(error):
        run(main)
    assert ended[0].cancelled()


# ── context ──


@in_loop
async def test_a_task_runs_in_the_context_of_its_submission() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    broker, seen = QueueBroker(max_active=1), []

    async def changes(pause: bool) -> None:
        seen.append(variable.get())
        variable.set(variable.get() + "!")
        if pause:
            await asyncio.sleep(1)
        seen.append(variable.get())

    for n, pause in enumerate([False, True, False, True]):
        variable.set(f"v{n}")
        broker.submit(changes, pause)
    variable.set("after")
    await broker.drain()
    assert seen == [f"v{n}{mark}" for n in range(4) for mark in ("", "!")]
    assert variable.get() == "after"


@in_loop
async def test_tasks_that_never_wait_do_not_block_the_event_loop() -> None:
    broker = QueueBroker(max_active=1, max_queued=100_000)
    tasks = [broker.submit(nothing, n) for n in range(50_000)]
    await settle()
    assert not tasks[-1].done()  # more than the ten rounds of the loop were needed
    await broker.drain()
    assert tasks[-1].result() == 49_999


@in_loop
async def test_an_idle_broker_keeps_no_asyncio_tasks() -> None:
    broker = QueueBroker()
    for n in range(50):
        broker.submit(for_a_second, group=n % 7)
    await broker.drain()
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not broker._workers
    assert broker._latest_worker is None
    assert not broker._scheduler._busy
    reference = weakref.ref(broker)
    del broker
    gc.collect()
    assert reference() is None


# ── other loops ──


def test_the_broker_works_under_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def test() -> None:
        async with QueueBroker(max_active=3) as broker:
            assert await asyncio.gather(*(broker.submit(nothing, n, group=n % 5) for n in range(100))) == [*range(100)]
            async with broker.slot("a"):
                with pytest.raises(SlotTimeout):
                    await broker.submit(nothing, group="a", timeout_s=0.001)
                endless = broker.submit(nothing, 1, group="a", timeout_s=math.inf)
            assert await endless == 1
            task = broker.submit(asyncio.sleep, 1000)
            await asyncio.sleep(0)
            task.cancel()
            slot = await broker.slot("a")
            del slot
            async with broker.slot("a"):
                pass

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="eager tasks came with Python 3.12")
def test_the_broker_works_with_an_eager_task_factory() -> None:
    async def test() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        broker, work = QueueBroker(max_active=1), Work()
        broker.submit(work, 1)
        assert work.begun == []
        await settle()
        await work.end_all()

    run(test)


# ── posting ──


async def _posted(broker: QueueBroker, *tasks: tuple[Any, Hashable]) -> Work:
    work = Work()
    for name, group in tasks:
        broker.post(work, name, group=group)
    await settle()
    return work


@in_loop
async def test_posted_tasks_follow_groups_and_limits() -> None:
    async with QueueBroker(max_active=2, max_queued=2) as broker:
        work = await _posted(broker, ("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", None))
        assert work.begun == names("a1 b1")
        with pytest.raises(QueueFull):
            broker.post(work, "too many")
        await work.end("a1")
        assert work.begun == names("a1 b1 a2")
        await work.end_all()
    assert work.begun == names("a1 b1 a2 c1")
    with pytest.raises(BrokerStopped):
        broker.post(work, "late")


class Abort(BaseException):
    """No ``Exception``."""


@pytest.mark.parametrize("kind", [ZeroDivisionError, Abort])
def test_an_error_of_a_posted_task_goes_to_the_loop_and_the_next_task_runs(kind: type[BaseException]) -> None:
    begun: list[int] = []

    async def fail(number: int) -> None:
        begun.append(number)
        raise kind

    async def main() -> None:
        async with QueueBroker(max_active=1) as broker:
            for number in range(3):
                broker.post(fail, number)

    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert begun == [0, 1, 2]
    assert [type(context["exception"]) for context in loop.complaints] == [kind] * 3


@in_loop
async def test_stop_lets_posted_tasks_end_or_cancels_them() -> None:
    for cancel in (False, True):
        broker = QueueBroker(max_active=1)
        work = await _posted(broker, ("running", None), ("waiting", None))
        stopping = asyncio.create_task(broker.stop(cancel=cancel))
        await settle()
        assert stopping.done() is cancel
        if not cancel:
            await work.end("running")
        await stopping
        assert (work.begun, work.running, broker.active, broker.queued) == (["running"], set(), 0, 0)


@in_loop
async def test_a_posted_task_cancelling_itself_does_not_affect_others() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def cancels() -> None:  # and ends before it is told
        current = asyncio.current_task()
        assert current is not None
        current.cancel()

    work = Work()
    async with QueueBroker(max_active=1) as broker:
        for function in (cancelled, cancels):
            broker.post(function, group="a")
            assert await broker.submit(nothing, 7, group="a") == 7
            broker.post(function, group="a")
            broker.post(work, function, group="a")
            await settle()
            assert work.running == {function}
            await work.end(function)


@in_loop
async def test_a_posted_task_is_garbage_collected_when_it_has_ended() -> None:
    class Thing:
        """Something with a weak reference."""

    async def take(thing: Thing) -> None:
        pass

    broker, work = QueueBroker(max_active=1), Work()
    things = [Thing() for _ in range(4)]
    references = [weakref.ref(thing) for thing in things]
    broker.post(lambda _: work(0), things.pop())
    broker.post(take, things.pop())
    broker.post(take, things.pop())
    broker.post(work, things.pop())
    broker.post(work, 1)
    await settle()
    assert all(reference() is not None for reference in references)
    await work.end(0)
    assert [reference() is None for reference in references] == [False, True, True, True]
    await broker.stop(cancel=True)


@in_loop
async def test_posted_tasks_that_never_wait_do_not_block_the_event_loop() -> None:
    broker, begun = QueueBroker(max_active=1, max_queued=100_000), []

    async def begin(number: int) -> None:
        begun.append(number)

    for number in range(50_000):
        broker.post(begin, number)
    await settle()
    assert len(begun) < 50_000  # more than the ten rounds of the loop were needed
    await broker.drain()
    assert begun == [*range(50_000)]
