"""Whoever is cancelled, wherever it awaits: what has run is completed, and what has not run is free.

A wrapped call is cancelled at its n-th step, for each n until it is not reached any more; also twice over, and while
the event loop ends.
"""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import inturn
from inturn.database import Database
from inturn.idempotency import Completed, IdempotencyKeys, InProgress, Locked, idempotent

STEPS = 12
ROUNDS = (0, 1, 2, 5)


@types.coroutine
def cancelled_at(steps: set[int], rounds: int, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a coroutine whose task is cancelled while it is suspended for the n-th time, some rounds later."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def later(rounds: int) -> None:
        if rounds:
            loop.call_soon(later, rounds - 1)
        else:
            task.cancel()

    step, send, value = 0, coroutine.send, None
    while True:
        try:
            future = send(value)
        except StopIteration as stop:
            return stop.value
        if step in steps:
            loop.call_soon(later, rounds)
        step += 1
        try:
            value = yield future
            send = coroutine.send
        except BaseException as error:  # noqa: BLE001 - it is the coroutine's to catch
            send, value = coroutine.throw, error  # type: ignore[assignment]


class Call:
    """One wrapped call of a key of its own, and how far it came."""

    def __init__(self, keys: IdempotencyKeys, key: str) -> None:
        self.keys, self.key = keys, key
        self.begun = self.done = 0
        self.wrapped = idempotent(self.handler, key=lambda: key, store=keys)

    async def handler(self) -> str:
        self.begun += 1
        await asyncio.sleep(0)
        self.done += 1
        return "done"

    async def check(self) -> None:
        """What has run is completed at once; what has not is free, as soon as a thread has given it back."""
        for _ in range(500):
            attempt = await self.keys.try_lock.aio(self.key)
            if not isinstance(attempt, InProgress) or self.done:
                break
            await asyncio.sleep(0.01)
        assert isinstance(attempt, Completed if self.done else Locked)
        if isinstance(attempt, Completed):
            assert attempt.result == "done"


def test_a_call_cancelled_at_any_step_is_completed_or_its_key_released(keys: IdempotencyKeys) -> None:
    async def main() -> None:
        ways = [{n} for n in range(STEPS)] + [{n, n + 1} for n in range(STEPS // 2)] + [set(range(STEPS))]
        for number, steps in enumerate(ways):
            for rounds in ROUNDS:
                call = Call(keys, f"{number} {rounds}")
                task = asyncio.create_task(_awaited(cancelled_at(steps, rounds, call.wrapped())))
                await asyncio.wait([task])
                assert task.cancelled() or task.result() == "done"
                await call.check()

    asyncio.run(main())


async def _awaited(generator: Any) -> Any:
    return await generator


def test_calls_cancelled_by_the_end_of_the_event_loop_are_completed_or_released(keys: IdempotencyKeys) -> None:
    """It cancels every task, those too that somebody else awaits."""
    calls = [Call(keys, f"key {number}") for number in range(30)]

    async def main() -> None:
        calling.extend(asyncio.create_task(call.wrapped()) for call in calls)
        while not any(call.done for call in calls):
            await asyncio.sleep(0)

    calling: list[Any] = []
    asyncio.run(main())
    for call in calls:
        asyncio.run(call.check())


@settings(max_examples=40)
@given(steps=st.sets(st.integers(0, 12), min_size=1), rounds=st.integers(0, 4))
def test_a_cancelled_session_releases_its_group_and_messages(steps: set[int], rounds: int) -> None:
    async def main(db: Database) -> None:
        queue = db.queue("q")
        queue.send("1", group="a")

        async def receive() -> None:
            session = await queue.session.aio()
            assert session is not None
            async with session:
                await session.receive.aio()

        task = asyncio.create_task(_awaited(cancelled_at(steps, rounds, receive())))
        await asyncio.wait([task])
        session = await queue.session.aio(wait_s=20)  # comes at once when it is free; its lock lasts longer
        assert session is not None
        assert [message.body for message in await session.receive.aio()] == ["1"]

    with inturn.open(":memory:", durable=False) as db:
        asyncio.run(main(db))


@settings(max_examples=40)
@given(steps=st.sets(st.integers(0, 6), min_size=1), rounds=st.integers(0, 4))
def test_a_cancelled_receive_releases_its_messages(steps: set[int], rounds: int) -> None:
    async def main(db: Database) -> None:
        queue = db.queue("q")
        queue.send("1", group="a")
        task = asyncio.create_task(_awaited(cancelled_at(steps, rounds, queue.receive.aio())))
        await asyncio.wait([task])
        if task.cancelled():
            assert len(await queue.receive.aio(wait_s=20)) == 1  # at once: the lease lasts longer

    with inturn.open(":memory:", durable=False) as db:
        asyncio.run(main(db))
