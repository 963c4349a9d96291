"""What a QueueBroker knows by its id runs once; and who is first among those without a group and those with one."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from inturn.broker import QueueBroker
from inturn.core import limits
from inturn.core.errors import BrokerStopped, InputError, QueueFull, SlotTimeout
from virtual_time import run


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A test that runs in virtual time."""

    def wrapped() -> None:
        run(test)  # type: ignore[arg-type]

    wrapped.__name__ = test.__name__
    return wrapped


class Count:
    """A task that counts how often it runs."""

    def __init__(self, takes_s: float = 1) -> None:
        self.runs = 0
        self.takes_s = takes_s

    async def __call__(self) -> int:
        self.runs += 1
        run = self.runs
        await asyncio.sleep(self.takes_s)
        return run


@in_loop
async def test_a_known_dedup_id_returns_the_first_task() -> None:
    count = Count()
    async with QueueBroker(max_active=1) as broker:
        first = broker.submit(count, dedup_id="a")
        assert broker.submit(count, dedup_id="a") is first, "while it runs"
        assert await broker.put(count, dedup_id="a", group="other") is first
        broker.post(count, dedup_id="a")
        assert broker.submit(count, dedup_id="b") is not first
        await first
        assert await broker.submit(count, dedup_id="a") == 1, "when it has ended"
    assert count.runs == 2


@in_loop
async def test_tasks_without_a_dedup_id_all_run() -> None:
    count = Count()
    async with QueueBroker() as broker:
        for _ in range(3):
            broker.submit(count)
            broker.post(count)
    assert count.runs == 6


@in_loop
async def test_a_dedup_id_is_known_for_the_window_from_the_first_task() -> None:
    count = Count()
    async with QueueBroker(dedup_window_s=10) as broker:
        broker.post(count, dedup_id="a")
        await asyncio.sleep(9.5)
        broker.post(count, dedup_id="a")
        assert count.runs == 1
        await asyncio.sleep(0.5)
        broker.post(count, dedup_id="a")
        await asyncio.sleep(9.5)
        broker.post(count, dedup_id="a")
    assert count.runs == 2


@in_loop
async def test_dedup_window_none_never_ends_and_zero_disables() -> None:
    for window_s, runs in ((None, 1), (0, 2)):
        count = Count()
        async with QueueBroker(dedup_window_s=window_s) as broker:
            await broker.submit(count, dedup_id="a")
            await asyncio.sleep(86_400)
            await broker.submit(count, dedup_id="a")
        assert count.runs == runs


@in_loop
async def test_a_duplicate_of_a_failed_task_raises_the_same_error() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async with QueueBroker() as broker:
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                await broker.submit(fail, dedup_id="a")


@in_loop
async def test_a_dedup_id_whose_task_was_refused_may_be_submitted_again() -> None:
    count = Count(takes_s=5)
    async with QueueBroker(max_active=1, max_queued=1) as broker:
        busy = broker.submit(count)
        late = broker.submit(count, timeout_s=1, dedup_id="a")
        with pytest.raises(QueueFull):
            broker.submit(count, dedup_id="b")
        with pytest.raises(SlotTimeout):
            await late
        repeated = broker.submit(count, dedup_id="a")
        assert repeated is not late
        repeated.cancel()
        assert broker.submit(count, dedup_id="a") is not repeated
        await busy
        await broker.put(count, dedup_id="b")
    assert count.runs == 3


@in_loop
async def test_a_dedup_id_whose_task_was_cancelled_may_be_submitted_again() -> None:
    count = Count(takes_s=5)
    async with QueueBroker() as broker:
        first = broker.submit(count, dedup_id="a")
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.wait([first])
        assert await broker.submit(count, dedup_id="a") == 2


@in_loop
async def test_a_dedup_id_is_known_while_put_waits_for_room() -> None:
    count = Count()
    async with QueueBroker(max_active=1, max_queued=1) as broker:
        broker.submit(count)
        broker.submit(count)
        outside = asyncio.ensure_future(broker.put(count, dedup_id="a"))
        await asyncio.sleep(0)
        same = await broker.put(count, dedup_id="a")
        assert await outside is same
        assert await same == 3
    assert count.runs == 3


@in_loop
async def test_submit_with_the_dedup_id_of_a_posted_task_is_refused() -> None:
    count = Count()
    async with QueueBroker() as broker:
        broker.post(count, dedup_id="a")
        with pytest.raises(InputError, match="the first task with dedup_id 'a' was posted, so it has no result"):
            broker.submit(count, dedup_id="a")
        with pytest.raises(InputError, match="hold=True and dedup_id exclude each other"):
            broker.submit(count, dedup_id="b", hold=True)
        with pytest.raises(InputError, match="expected a hashable value"):
            broker.submit(count, dedup_id=[])
        with pytest.raises(InputError, match="expected a hashable value"):
            broker.submit(count, group=[], dedup_id="c")
        assert await broker.submit(count, dedup_id="c") == 2, "a call that raised is not remembered"


@in_loop
async def test_a_stopped_broker_refuses_duplicates_and_keeps_no_results() -> None:
    class Result:
        pass

    async def make() -> Result:
        return Result()

    broker = QueueBroker()
    result: Any = await broker.submit(make, dedup_id="a")
    reference = weakref.ref(result)
    del result
    await asyncio.sleep(0)  # the loop lets go of what it has just told
    gc.collect()
    assert reference() is not None
    await broker.stop()
    gc.collect()
    assert reference() is None
    for call in (broker.submit, broker.post):
        with pytest.raises(BrokerStopped):
            call(make, dedup_id="a")


@in_loop
async def test_the_number_of_remembered_dedup_ids_is_bounded() -> None:
    count = Count(takes_s=0)
    async with QueueBroker() as broker:
        for number in range(limits.BROKER_REMEMBERED + 1):
            broker._first_tasks.remember(number, "somebody")
        assert broker._first_tasks.find(1) == "somebody"
        broker.post(count, dedup_id=0)
        assert broker._first_tasks.find(1) is None
        assert len(broker._first_tasks._first) == limits.BROKER_REMEMBERED
    assert count.runs == 1


@in_loop
async def test_expired_dedup_ids_are_removed_as_others_arrive() -> None:
    async with QueueBroker(dedup_window_s=1) as broker:
        for number in range(1_000):
            broker._first_tasks.remember(number, "somebody")
        await asyncio.sleep(2)
        for number in range(1_000):
            broker._first_tasks.remember(-1 - number, "somebody")
        assert len(broker._first_tasks._first) <= 1_001


@pytest.mark.parametrize("wrong", [-1, "1", True, float("nan")])
def test_dedup_window_s_must_be_a_number_of_seconds_or_none(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"dedup_window_s is .*; expected a number of seconds, or None for ever"):
        QueueBroker(dedup_window_s=wrong)


# --- fairness ---


def test_fairness_must_be_oldest_or_ungrouped_first() -> None:
    with pytest.raises(InputError, match="fairness is 'lifo'; expected 'oldest' or 'ungrouped-first'"):
        QueueBroker(fairness="lifo")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fairness", "expected"),
    [("oldest", ["a1", "b1", "-1", "a2", "-2"]), ("ungrouped-first", ["-1", "-2", "a1", "b1", "a2"])],
)
def test_fairness_ungrouped_first_runs_ungrouped_tasks_first(fairness: Any, expected: list[str]) -> None:
    order: list[str] = []

    async def work(name: str) -> None:
        order.append(name)
        await asyncio.sleep(1)

    async def main() -> None:
        async with QueueBroker(max_active=1, fairness=fairness) as broker:
            broker.post(work, "first")
            for name in ("a1", "b1", "-1", "a2", "-2"):
                broker.post(work, name, group=None if name[0] == "-" else name[0])

    run(main)
    assert order[1:] == expected


@in_loop
async def test_a_grouped_task_runs_after_a_bounded_number_of_ungrouped_tasks() -> None:
    order: list[str] = []

    async def work(name: str) -> None:
        order.append(name)

    async with QueueBroker(max_active=1, fairness="ungrouped-first") as broker, broker.slot():
        broker.post(work, "g", group="g")
        for _ in range(3 * limits.BROKER_OVERTAKINGS):
            broker.post(work, "-")
    assert order.index("g") == limits.BROKER_OVERTAKINGS
