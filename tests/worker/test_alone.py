"""What a process may have died of runs alone, but holds nothing up that never ends."""

from collections.abc import Iterator
from typing import Any

import pytest
from shop import Gate, Row, Shop, ledger, post, row

import inturn
from inturn.core import limits
from inturn.core.errors import HandlerError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.queue import draft
from inturn.results.inspection import DatabaseInspector
from inturn.store.commands import StoreCall
from inturn.store.records import GroupUpdate, OutboxClaim
from inturn.worker import Worker
from inturn.worker.group_task import GroupTask
from inturn.worker.inspection import apply_decisions
from inturn.worker.suspects import RecentWork, WorkStarter
from inturn.worker.work_items import Overtaken, WorkRequest, WorkResult
from waiting import DEADLINE_S, until

LONG_S = limits.OUTBOX_LEASE_S + 1


def slow(gate: Gate, *accounts: str) -> Any:
    """A pipeline whose handler waits at the gate for these accounts."""

    def handler(state: Row, message: Row) -> tuple[Row, list[Any]]:
        if message["account"] in accounts:
            gate(message["account"])
        return post(state, message)

    return ledger(handler=handler)


def leave_a_claim(shop: Shop) -> None:
    """Leave behind the claim of a worker that is gone, of which it may have died."""
    gate = Gate()
    shop.send([row(1)])
    with Worker(ledger(), shop.queue, deliver=lambda _output, _effect_id: gate("a"), grace_s=0):
        gate.wait_until(lambda: bool(gate.begun))
    shop.clock.forward(LONG_S)
    gate.let("a")


def test_deliveries_that_may_have_killed_a_process_run_one_at_a_time_beside_group_tasks(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ALONE_S", 1_000)
    accounts = "abc"
    gate = Gate()
    shop.send([row(1, account=account) for account in accounts])
    with Worker(ledger(), shop.queue, deliver=lambda _output, effect_id: gate(effect_id), grace_s=0):
        gate.wait_until(lambda: len(gate.begun) == len(accounts))
    shop.clock.forward(LONG_S)
    begun = [*gate.begun]
    gate.let(*begun)
    gate = Gate()
    with Worker(ledger(), shop.queue, deliver=lambda _output, effect_id: gate(effect_id)) as worker:
        for count in range(1, len(accounts) + 1):
            gate.wait_until(lambda count=count: len(gate.begun) == count)  # type: ignore[misc]
            shop.send([row(1, account=f"later {count}")])
            until(lambda count=count: worker.counts.applied == count)
            assert len(gate.begun) == count
            gate.let(gate.begun[-1])
        gate.wait_until(lambda: len(gate.begun) == 2 * len(accounts))
        assert sorted(gate.begun[: len(accounts)]) == sorted(begun)
        gate.let(*gate.begun)
        worker.drain(DEADLINE_S)


def test_a_task_that_never_ends_delays_neither_an_isolated_delivery_nor_other_groups(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_claim(shop)
    monkeypatch.setattr(limits, "ALONE_S", 0)
    gate = Gate()
    shop.send([row(1, account="b")])
    deliver = lambda output, _effect_id: gate(("delivered", output["balance"]))  # noqa: E731
    with Worker(slow(gate, "b", "c"), shop.queue, deliver=deliver) as worker:
        gate.wait_until(lambda: {*gate.begun} == {"b", ("delivered", 1)})
        shop.send([row(1, account="c")])
        gate.wait_until(lambda: "c" in gate.begun)
        gate.let("b", "c", ("delivered", 1))
        worker.drain(DEADLINE_S)


def test_a_task_that_never_ends_does_not_delay_a_message_that_runs_in_isolation(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ALONE_S", 0)
    gate = Gate()
    shop.send([row(1)])
    shop.queue.receive(visibility_timeout_s=1)
    shop.send([row(1, account="b")])
    with Worker(slow(gate, "a", "b", "c"), shop.queue) as worker:
        gate.wait_until(lambda: gate.begun == ["b"])
        shop.clock.forward(2)
        gate.wait_until(lambda: gate.begun == ["b", "a"])
        shop.send([row(1, account="c")])
        gate.wait_until(lambda: gate.begun == ["b", "a", "c"])
        gate.let("a", "b", "c")
        worker.drain(DEADLINE_S)


def test_a_stop_returns_tasks_waiting_for_isolation_and_keeps_their_attempt_count(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ALONE_S", 1_000)
    pipeline = ledger()
    shop.send([row(1, -1)])
    shop.work(pipeline)
    name = shop.decide(Decision(id="1", action=DecisionAction.RESUME, group="a", by="ann", at_us=1))
    shop.ask(lambda store, number: store.save_begun(number, {"a": 3}, shop.clock()))
    gate = Gate()
    shop.send([row(1, account="b")])
    with Worker(slow(gate, "b"), shop.queue, grace_s=DEADLINE_S) as worker:
        gate.wait_until(lambda: bool(gate.begun))
        until(lambda: worker._starter.waiting)
        shop.clock.forward(limits.TASK_LEASE_S / 2 + 1)
        worker.stop_soon()
        gate.let("b")
    assert shop.ask(lambda store, number: store.verdicts(number, [name])) == {}
    ((begun, until_ms),) = shop.ask(lambda store, number: store.begun_tasks(number, ["a"])).values()
    assert (begun, until_ms <= shop.clock()) == (3, True)


def test_an_isolated_task_that_loses_a_version_conflict_is_repeated_in_isolation(shop: Shop) -> None:
    shop.send([row(1, account=account) for account in "abc"])
    for _ in "abc":
        shop.queue.receive(visibility_timeout_s=1)
    shop.clock.forward(LONG_S)
    gate = Gate()
    with Worker(slow(gate, "a"), shop.queue) as worker:
        gate.wait_until(lambda: bool(gate.begun))
        run, times = worker._unit.run, list[WorkRequest]()

        def overtaken_once(request: WorkRequest) -> WorkResult:
            if request.done and not times:
                times.append(request)
                raise Overtaken([task.group or "" for task in request.done])
            return run(request)

        worker._unit.run = overtaken_once  # type: ignore[method-assign]
        gate.let("a")
        worker.drain(DEADLINE_S)
    assert times
    assert worker.counts.applied == 3


@pytest.mark.parametrize("deaths", [0, 3])
def test_a_message_of_the_group_does_not_reset_the_death_count_of_a_decision(shop: Shop, deaths: int) -> None:
    pipeline = ledger()
    shop.send([row(1, -1)])
    shop.work(pipeline)
    shop.ask(lambda store, number: store.save_begun(number, {"a": deaths + 1}, shop.clock() + 60_000))
    shop.send([row(2)])
    shop.work(pipeline)
    assert [begun for begun, _ in shop.ask(lambda store, number: store.begun_tasks(number, ["a"])).values()] == [
        deaths + 1
    ]


def test_an_applied_decision_has_no_death_count(shop: Shop) -> None:
    pipeline = ledger()
    shop.send([row(1, -1)])
    shop.work(pipeline)
    shop.decide(Decision(id="1", action=DecisionAction.RESUME, group="a", by="ann", at_us=1))
    shop.ask(lambda store, number: store.save_begun(number, {"a": 3}, shop.clock()))
    with Worker(pipeline, shop.queue):
        until(lambda: not shop.ask(lambda store, number: store.decisions(number, 1)))
    assert shop.ask(lambda store, number: store.begun_tasks(number, ["a"])) == {}


def test_deliveries_are_batched_again_after_the_suspect_outputs_are_delivered(shop: Shop) -> None:
    shop.send([row(number) for number in (1, 2, 3)])
    shop.work(ledger())

    def claim(ms: int) -> OutboxClaim:
        with shop.store.transaction():
            pipelines = shop.store.pipelines
            (claim,) = pipelines.claim(pipelines.info("ledger"), 9, 2, shop.clock() + ms, shop.clock())
            return claim

    def deliver(claim: OutboxClaim) -> None:
        with shop.store.transaction():
            assert shop.store.pipelines.delivered(1, claim, len(claim.outputs), shop.clock(), None)

    assert [len(claim(1).outputs), shop.clock.forward(1)] == [2, None]
    first = claim(60_000)
    assert (len(first.outputs), first.lapses, first.is_alone) == (1, 1, True)
    deliver(first)
    second = claim(60_000)
    assert (len(second.outputs), second.lapses, second.is_alone) == (1, 1, False)
    deliver(second)
    third = claim(60_000)
    assert (len(third.outputs), third.lapses, third.is_alone) == (1, 0, False), "the last one"


@pytest.fixture
def decided(address: str) -> Iterator[DatabaseInspector]:
    """A pipeline with three groups that failed, and people who let them go on."""
    with inturn.open(address, durable=False) as db:
        queue = db.queue("q")
        queue.send_many([draft(row(1, -1, account), group=account) for account in "abc"])
        with Worker(ledger(), queue) as worker:
            worker.drain(DEADLINE_S)
        db.pipeline("ledger").resume(all=True, by="ann")
        yield DatabaseInspector(db, "ledger")


@pytest.mark.parametrize("error", [HandlerError, KeyboardInterrupt])
def test_a_settle_command_that_fails_leaves_the_decisions_to_the_next_command(
    decided: DatabaseInspector, error: type[BaseException]
) -> None:
    def wrong(state: Row, message: Row) -> Any:
        if error is KeyboardInterrupt:
            raise KeyboardInterrupt
        return state

    for _ in range(8):
        with pytest.raises(error):
            apply_decisions(ledger(handler=wrong), decided)
    apply_decisions(ledger(handler=lambda state, _message: (state | {"done": True}, [])), decided)
    assert {group.group: (group.status, group.state) for group in decided.groups()} == {
        account: ("open", {"done": True}) for account in "abc"
    }


def test_a_settle_command_retries_decisions_of_groups_that_a_worker_changed_concurrently(
    decided: DatabaseInspector,
) -> None:
    touched = list[str]()

    def handler(state: Row, message: Row) -> tuple[Row, list[Any]]:
        if not touched:
            touched.append(message["account"])
            record, info = decided.read(lambda store, number: store.records(number, touched)[0]), decided.info()
            update = GroupUpdate(record, [], [], [])
            decided.db.writer.run(
                StoreCall("", lambda store, now_ms: store.pipelines.save_updates(info, [update], [], now_ms))
            )  # type: ignore[attr-defined]
        return state | {"done": True}, []

    apply_decisions(ledger(handler=handler), decided)
    assert touched
    assert {group.group: group.status for group in decided.groups()} == dict.fromkeys("abc", "open")


class Passed(list[Any]):
    """What was passed to the threads."""

    def put(self, account: str, *, is_alone: bool = False) -> GroupTask:
        self.threads = getattr(self, "threads", WorkStarter(self.append))
        task = GroupTask(account, is_alone=is_alone)
        self.threads.put(task)
        return task


def test_a_task_waiting_for_isolation_blocks_new_tasks_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Passed()
    running, suspect = passed.put("a"), passed.put("b", is_alone=True)
    passed.threads.begin(RecentWork.of([running, suspect], []))
    assert passed == [running]
    monkeypatch.setattr(limits, "ALONE_S", 0)
    company = RecentWork.of([running, suspect], [])
    assert company == ([suspect], [])
    assert company.is_alone
    passed.threads.begin(company)
    assert passed == [running, suspect]
    assert not RecentWork.of([running, suspect], []).is_alone


def test_an_isolated_task_waits_for_running_tasks_but_not_for_those_in_retry_pause() -> None:
    passed = Passed()
    asleep, running, suspect = passed.put("a"), passed.put("b"), passed.put("c", is_alone=True)
    asleep.is_asleep = True
    passed.threads.begin(RecentWork.of([asleep, running, suspect], []))
    assert suspect not in passed
    passed.threads.begin(RecentWork.of([asleep, suspect], []))
    assert suspect in passed
