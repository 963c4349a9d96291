"""How much a worker takes at a time: threads need not wait for messages, and what it has taken is soon done."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shop import Shop, ledger, row

from inturn.core import limits
from inturn.worker import worker
from inturn.worker.group_task import GroupRunner
from inturn.worker.thread_pool import Throughput, receives
from inturn.worker.unit_of_work import UnitOfWork

CONCURRENCY = st.integers(1, 64)
AHEAD = st.integers(0, limits.RECEIVE_MESSAGES)


@given(AHEAD, CONCURRENCY, st.data())
def test_a_worker_receives_at_most_twice_the_messages_of_its_time_ahead(
    ahead: int, concurrency: int, data: st.DataObject
) -> None:
    busy, free = data.draw(st.integers(0, 2 * concurrency)), data.draw(st.integers(0, concurrency))
    most = receives(ahead, concurrency, busy, free)
    assert all(limit > 0 for limit in most)
    assert len(most) <= concurrency
    assert sum(most) <= max(2 * ahead, 1) + free


@given(AHEAD, CONCURRENCY, st.integers(1, 64))
def test_each_busy_group_gets_an_equal_share_of_the_time_ahead_in_one_receive(
    ahead: int, concurrency: int, groups: int
) -> None:
    at_work = min(groups, concurrency)
    most = receives(ahead, concurrency, groups, concurrency)
    assert len(most) == concurrency
    assert most[:at_work] == [max(ahead // at_work, 1)] * at_work


def test_the_pace_rises_immediately_and_falls_gradually() -> None:
    now = [0.0]
    pace = Throughput(lambda: now[0])
    amounts = []
    for messages in (100, 10, 10, 10_000_000):
        now[0] += limits.WORKER_AHEAD_S
        pace.done(messages)
        amounts.append(pace.ahead)
    assert amounts == [100, 55, 32, limits.RECEIVE_MESSAGES]


@pytest.mark.parametrize("concurrency", [1, 16])
def test_one_hot_group_needs_few_tasks_and_transactions_with_many_threads(
    concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn costs a transaction, and the next messages of its group can only be had after it."""
    seen: Counter[str] = Counter()
    for kind in (GroupRunner, UnitOfWork):
        monkeypatch.setattr(kind, "run", _counted(kind, seen))

    ms = [0]
    monkeypatch.setattr(worker, "Throughput", lambda: Throughput(lambda: ms[0] / 1000))

    def slow(state: Any, _message: Any) -> Any:
        ms[0] += 1
        return state, []

    with Shop("memory") as shop:
        shop.send([row(revision) for revision in range(1, 401)])
        shop.work(ledger(handler=slow), concurrency=concurrency)
    assert seen["GroupRunner"] <= 100, f"{seen['GroupRunner']} turns for 400 messages of one group"
    assert seen["UnitOfWork"] <= 200, f"{seen['UnitOfWork']} transactions for 400 messages of one group"


def _counted(kind: type, seen: Counter[str]) -> Any:
    run = kind.run  # type: ignore[attr-defined]

    def counted(self: Any, request: Any) -> Any:
        seen[kind.__name__] += 1
        return run(self, request)

    return counted
