"""Groups side by side, in order within each; what fails or takes long stops its own group and nobody else's."""

import datetime as dt
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shop import Gate, Row, Shop, expected, ledger, post, row

from inturn import Arrival, Gapless, Monotone, Retry, Retryable, Wait
from inturn.core.errors import GapError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.replay import Replay
from inturn.worker import Worker
from waiting import DEADLINE_S, until


def test_groups_are_processed_in_parallel_with_one_task_per_group_at_a_time(shop: Shop) -> None:
    gate = Gate()

    def wait(state: Row, message: Row) -> tuple[Row, list[Any]]:
        gate((message["account"], message["revision"]))
        return post(state, message)

    pipeline = ledger(handler=wait)
    messages = [row(revision, 1, account) for account in "abc" for revision in (1, 2)]
    shop.send(messages)
    with Worker(pipeline, shop.queue, concurrency=2) as worker:
        gate.wait_until(lambda: len(gate.begun) == 2)
        assert sorted(gate.begun) == [("a", 1), ("b", 1)], "no more than two"
        shop.send([row(3, 1, "a")])  # the handlers hold no lock
        gate.let(("b", 1), ("b", 2), ("c", 1), ("c", 2))
        gate.wait_until(lambda: ("c", 2) in gate.begun)
        assert ("a", 2) not in gate.begun
        gate.let(("a", 1), ("a", 2), ("a", 3))
        worker.drain(DEADLINE_S)
    assert shop.seen(pipeline) == expected(pipeline.replay([*messages, row(3, 1, "a")]))


def test_a_slow_handler_delays_no_other_group(shop: Shop) -> None:
    gate = Gate()

    def wait(state: Row, message: Row) -> tuple[Row, list[Any]]:
        if message["account"] == "slow":
            gate("slow")
        return post(state, message)

    pipeline = ledger(handler=wait)
    shop.send([row(revision, 1, "slow") for revision in range(1, 200)])
    shop.send([row(revision, 1, f"g{n}") for revision in (1, 2) for n in range(50)])
    with Worker(pipeline, shop.queue, concurrency=2) as worker:
        gate.wait_until(lambda: bool(gate.begun))
        until(lambda: shop.counts().applied >= 100, "the other groups")
        gate.let("slow")
        worker.drain(DEADLINE_S)
    assert shop.counts().applied == 299


def test_a_lease_is_extended_while_a_handler_runs(shop: Shop) -> None:
    shop.queue.configure(visibility_timeout_s=60)
    gate = Gate()

    def wait(state: Row, message: Row) -> tuple[Row, list[Any]]:
        gate(message["account"])
        return post(state, message)

    pipeline = ledger(handler=wait)
    shop.send([row(1), row(2)])
    with Worker(pipeline, shop.queue) as one, Worker(pipeline, shop.queue) as other:
        gate.wait_until(lambda: bool(gate.begun))
        (task,) = one._tasks.except_for() | other._tasks.except_for()
        for _ in range(3):  # two leases; what has less than half of one left is prolonged
            shop.clock.forward(40)
            until(lambda: (task.until_ms or 0) > shop.clock() + 30_000, "the lease is prolonged")
        assert gate.begun == ["a"]
        gate.let("a")
        one.drain(DEADLINE_S)
        other.drain(DEADLINE_S)
    assert len(gate.begun) == 2
    assert shop.counts().received == 2


def test_a_worker_with_an_expired_lease_commits_nothing(shop: Shop) -> None:
    gate, first = Gate(), threading.get_ident()
    slow: set[int] = {first}

    def wait(state: Row, message: Row) -> tuple[Row, list[Any]]:
        if not slow:
            return post(state, message)
        slow.clear()
        gate("slow")
        return post(state, message)

    pipeline = ledger(handler=wait)
    shop.send([row(1), row(2)])
    one = Worker(pipeline, shop.queue)
    one._unit.run, run = (lambda request: run(_without_prolonging(request))), one._unit.run  # type: ignore[method-assign]
    with one:
        gate.wait_until(lambda: bool(gate.begun))
        shop.clock.forward(60)
        other = shop.work(pipeline)
        assert other.counts.applied == 2
        gate.let("slow")
        one.drain(DEADLINE_S)
    assert one.counts.applied == 0
    assert shop.counts().applied == 2
    assert shop.seen(pipeline) == expected(pipeline.replay([row(1), row(2)]))


def _without_prolonging(request: Any) -> Any:
    request.extended = []
    request.receives = [] if request.busy else request.receives  # or it would itself receive its message again
    return request


def test_messages_with_the_group_only_in_the_body_are_applied_in_order(shop: Shop) -> None:
    """Here the queue leases them to several workers at once, and the group's version decides who keeps what."""
    pipeline = ledger()
    messages = [row(revision, revision, account) for revision in range(1, 31) for account in "ab"]
    shop.send(messages, group=None)
    with Worker(pipeline, shop.queue) as one, Worker(pipeline, shop.queue) as other:
        one.drain(DEADLINE_S)
        other.drain(DEADLINE_S)
    assert shop.seen(pipeline) == expected(pipeline.replay(messages))
    assert shop.counts().received == 60
    assert shop.counts().balanced


# -- failing ---------------------------------------------------------------------------------------------------


def test_a_handler_error_parks_only_its_group_and_stores_the_traceback(shop: Shop) -> None:
    pipeline = ledger()
    first = [row(1), row(2, -5), row(1, account="b")]
    later = [row(4), row(3), row(2, account="b"), row(3)]
    for part in (first, later):
        shop.send(part)
        shop.work(pipeline)
    assert shop.seen(pipeline) == expected(pipeline.replay([*first, *later]))
    assert shop.queue.depth().messages == 0, "acknowledged, and held by the group"
    (parked,) = shop.ask(lambda store, number: store.list_groups(number, "", 10, parked=True))
    assert (parked.group, parked.status, parked.held) == ("a", "failed", 3)
    assert (shop.counts().held, shop.counts().duplicate, shop.counts().balanced) == (3, 1, True)


def test_held_messages_of_a_parked_group_are_not_reread_with_every_new_message(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = ledger()
    shop.send([row(1, -1), *(row(revision) for revision in range(2, 200))])
    shop.work(pipeline)
    read: list[int] = []
    worker = Worker(pipeline, shop.queue)
    pipelines = shop.store.pipelines
    held = pipelines.held
    monkeypatch.setattr(pipelines, "held", lambda *a: read.append(len(messages := held(*a))) or messages)
    shop.send([row(200), row(7), row(8, 5), row(201)])
    with worker:
        worker.drain(DEADLINE_S)
    assert sum(read) == 2, "of what is held only what has come again"
    assert shop.counts().rejected == {"conflict": 1}
    assert (shop.counts().held, shop.counts().duplicate) == (201, 1)
    (parked,) = shop.ask(lambda store, number: store.list_groups(number, "", 10, parked=True))
    assert parked.held == 201


def test_a_retryable_error_is_retried_and_delays_only_its_group(shop: Shop) -> None:
    tries: list[str] = []

    def flaky(state: Row, message: Row) -> tuple[Row, list[Any]]:
        tries.append(message["account"])
        if message["account"] == "a" and tries.count("a") < 3:
            msg = "not yet"
            raise Retryable(msg)
        return post(state, message)

    shop.send([row(revision, 1, account) for account in "abcd" for revision in (1, 2)])
    with Worker(ledger(handler=flaky, retry=Retry(3, backoff="1 minute")), shop.queue, concurrency=1):
        until(lambda: shop.counts().applied == 6, "the other groups")
        assert tries.count("a") == 1
    pipeline = ledger(handler=flaky, retry=Retry(3, backoff="10 milliseconds"))
    shop.work(pipeline)
    assert tries.count("a") == 4
    assert shop.seen(pipeline)["status"] == dict.fromkeys("abcd", "open")
    assert shop.counts().applied == 8


def test_a_persistent_retryable_error_parks_the_group_after_its_retries(shop: Shop) -> None:
    tries: list[int] = []

    def never(state: Row, message: Row) -> tuple[Row, list[Any]]:
        tries.append(message["revision"])
        msg = "not yet"
        raise Retryable(msg)

    pipeline = ledger(handler=never, retry=Retry(2, backoff="10 milliseconds"))
    shop.send([row(1), row(2)])
    shop.work(pipeline)
    assert tries == [1, 1, 1]
    assert shop.seen(pipeline)["held"] == [("a", "failed", 1), ("a", "failed", 1)]


# -- gaps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["park", "skip"])
def test_an_expired_gap_wait_parks_or_skips_the_gap(shop: Shop, then: Any) -> None:
    pipeline = ledger(on_gap=Wait("10 minutes", then=then))
    shop.send([row(1), row(3, 3), row(4, 4), row(2, account="b")])
    with Worker(pipeline, shop.queue) as worker:
        worker.drain(DEADLINE_S)
        assert shop.seen(pipeline)["status"] == {"a": "waiting", "b": "waiting"}
        shop.clock.forward(300)
        worker.drain(DEADLINE_S)
        assert shop.seen(pipeline)["status"] == {"a": "waiting", "b": "waiting"}
        shop.clock.forward(301)
        until(lambda: "waiting" not in shop.seen(pipeline)["status"].values())
        shop.send([row(2, 2), row(5, 5)])
        worker.drain(DEADLINE_S)
    seen = shop.seen(pipeline)
    if then == "park":
        assert seen["status"] == {"a": "open", "b": "gap"}, "one goes on by itself"
        assert seen["states"]["a"]["seen"] == [1, 2, 3, 4, 5]
    else:
        assert seen["states"]["a"]["seen"] == [1, 3, 4, 5]
        assert seen["rejected"] == [("a", "skipped")]
    assert shop.counts().balanced


def test_an_expired_gap_wait_with_fail_ends_the_worker(shop: Shop) -> None:
    pipeline = ledger(on_gap=Wait("10 minutes", then="fail"))
    shop.send([row(2)])
    shop.work(pipeline)
    shop.clock.forward(601)
    with pytest.raises(GapError, match="revision 1 is missing"), Worker(pipeline, shop.queue) as worker:
        until(lambda: not worker._thread.is_alive())  # type: ignore[union-attr]


# -- decisions -------------------------------------------------------------------------------------------------

HISTORY = st.lists(
    st.tuples(
        st.lists(st.builds(row, st.integers(1, 5), st.sampled_from([1, 1, 2, -1]), st.sampled_from("ab")), max_size=5),
        st.lists(
            st.tuples(st.sampled_from(DecisionAction), st.sampled_from("ab")),
            max_size=2,
            unique_by=lambda item: item[1],
        ),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("order", [Gapless("revision"), Monotone("revision")], ids=["gapless", "monotone"])
@given(history=HISTORY)
@settings(max_examples=40)
@pytest.mark.slow
def test_decisions_and_waits_are_applied_like_in_the_pure_timeline(order: Order, history: Any) -> None:
    gaps = {"on_gap": Wait("10 minutes")} if isinstance(order, Gapless) else {}
    pipeline = ledger(order, **gaps)
    with Shop("memory") as shop:
        whole, count = Replay(), 0
        start = dt.datetime.now(dt.UTC)
        shop.work(pipeline)
        for messages, wanted, minutes in history:
            shop.clock.forward(minutes * 60)
            now = start + dt.timedelta(milliseconds=shop.clock.ahead_ms)
            whole = pipeline.replay([], now=now, after=whole)
            shop.work(pipeline, gaps=True)
            decisions = [_decision(whole, action, group, count := count + 1) for action, group in wanted]
            names = {shop.decide(decision): decision.id for decision in decisions}
            whole = pipeline.replay([], now=now, after=whole, decisions=decisions)
            shop.work(pipeline)
            verdicts = shop.ask(lambda store, number, names=names: store.verdicts(number, [*names]))
            assert {names[name]: void or None for name, void in verdicts.items()} == whole.verdicts
            for message in messages:
                whole = pipeline.replay([message], now=now, after=whole)
            shop.send(messages)
            shop.work(pipeline)
            assert shop.seen(pipeline) == expected(whole)
        assert shop.counts().balanced


def _decision(before: Replay, action: DecisionAction, group: str, number: int) -> Decision:
    """About the group as it stands, or about nothing that there is."""
    timeline = before.timelines.get(group)
    seen: dict[str, Any] = {}
    if (
        timeline is not None
        and timeline.held
        and action in (DecisionAction.REPLACE, DecisionAction.DROP, DecisionAction.RESUME)
    ):
        head = timeline.head()
        seen = {"position": head.position, "epoch": head.epoch, "digest": head.digest.hex(), "old": head.message}
    if action is DecisionAction.REPLACE:
        seen["new"] = {"amount": 7}
    if action is DecisionAction.SKIP:
        gaps = timeline.gaps() if timeline is not None and hasattr(timeline, "gaps") else []
        seen = {"position": gaps[0][0], "last": gaps[0][1]} if gaps else {"position": 1, "last": 1}
    return Decision(id=str(number), action=action, group=group, by="ann", at_us=number, **seen)


def test_a_conflict_names_the_fields_in_which_it_differs_from_a_held_message(shop: Shop) -> None:
    pipeline = ledger()
    shop.send([row(3)])
    shop.work(pipeline)
    shop.send([row(3, 5)])
    shop.work(pipeline)
    ((_, rejected),) = shop.ask(lambda store, number: store.rejections(number, 0, 10))
    assert "(in 'amount'); " in rejected.detail


@pytest.mark.parametrize("order", [Gapless("revision"), Monotone("revision"), Arrival()], ids=str)
def test_a_redelivered_conflict_is_stored_once(shop: Shop, order: Order) -> None:
    pipeline = ledger(order, id="id", arrival="came")
    changes = [(1, 1), (2, 1), (1, 5), (2, 5), (4, 1), (4, 5)]
    history = [row(revision, amount, id=str(revision), came=index) for index, (revision, amount) in enumerate(changes)]
    for _ in range(3):
        shop.send(history)
        shop.work(pipeline)
    assert (shop.counts().duplicate, shop.counts().rejected) == (2 * len(history), {"conflict": 3})
    assert shop.seen(pipeline) == expected(pipeline.replay(3 * history))
