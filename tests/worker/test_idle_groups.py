"""Groups of `Timestamp` in the worker, whose next message does not come: `idle=`, and the end of the messages."""

import datetime as dt
from typing import Any

import pytest
from shop import Row, Shop, ledger, row

from inturn import Pipeline, Timestamp, ToQueue, Wait
from inturn.core import limits
from inturn.core.errors import InputError
from inturn.queue import Queue, draft
from inturn.store.records import GroupRecord
from inturn.worker import Worker, work
from inturn.worker.service import Job, Service
from waiting import DEADLINE_S, until

LATENESS = dt.timedelta(seconds=300)


def collect(state: Row, message: Row) -> tuple[Row, list[Any]]:
    return {"seen": [*state.get("seen", []), message["revision"]]}, [{"applied": message["revision"]}]


def fails_for_f(state: Row, message: Row) -> tuple[Row, list[Any]]:
    if message["account"] == "f":
        msg = "an f"
        raise ValueError(msg)
    return collect(state, message)


def again(state: Row, message: Row) -> tuple[Row, list[Any]]:
    return state, [{name: value for name, value in message.items() if name != "id"}]


def timed(idle: Any = "lateness", **more: Any) -> Pipeline:
    order = Timestamp("revision", lateness=LATENESS, unit="s", idle=idle)
    return ledger(order, more.pop("handler", collect), id="id", **more)


def at(second: int, account: str = "a") -> Row:
    return row(1000 + second, account=account, id=f"t{second}")


def seen(shop: Shop, pipeline: Pipeline) -> dict[str, list[int]]:
    return {
        name: [value - 1000 for value in state.get("seen", [])]
        for name, (state, _) in shop.seen_lines(pipeline).items()
    }


def test_an_idle_group_is_released_and_earlier_messages_are_rejected_as_late(shop: Shop) -> None:
    pipeline = timed()
    shop.send([at(3), at(1), at(7, "b")])
    with Worker(pipeline, shop.queue) as worker:
        worker.drain(DEADLINE_S)
        shop.clock.forward(200)
        shop.send([at(2)])
        worker.drain(DEADLINE_S)
        shop.clock.forward(200)
        until(lambda: seen(shop, pipeline)["b"] == [7])
        assert seen(shop, pipeline)["a"] == [], "its newest message came 200 seconds ago"
        shop.clock.forward(101)
        until(lambda: seen(shop, pipeline)["a"] == [1, 2, 3])
        shop.send([at(0), at(4)])
        worker.drain(DEADLINE_S)
        shop.clock.forward(301)
        until(lambda: seen(shop, pipeline)["a"] == [1, 2, 3, 4])
    assert (shop.counts().rejected, shop.counts().balanced) == ({"late": 1}, True)


@pytest.mark.parametrize("group", ["account", None], ids=["grouped", "group in the body"])
def test_messages_sent_while_no_worker_ran_are_applied_before_an_idle_release(shop: Shop, group: str | None) -> None:
    pipeline = timed()
    shop.send([at(3)], group)
    shop.work(pipeline)
    shop.send([at(1)], group)
    (received,) = shop.queue.receive(visibility_timeout_s=4000)
    shop.clock.forward(3000)
    with Worker(pipeline, shop.queue) as worker:
        until(lambda: (shop.ask(lambda store, number: store.records(number, ["a"]))[0]).due_us > shop.clock() * 1000)
        assert seen(shop, pipeline) == {"a": []}, "a message of the group may be on its way"
        received.nack()
        worker.drain(DEADLINE_S)
        shop.clock.forward(301)
        until(lambda: seen(shop, pipeline) == {"a": [1, 3]})
    assert shop.counts().rejected == {}


def test_an_ungrouped_message_sent_after_the_wait_does_not_delay_an_idle_release(shop: Shop) -> None:
    pipeline = timed()
    shop.send([at(3)], None)
    shop.work(pipeline)
    shop.clock.forward(100)
    shop.send([at(4, "b")], None)
    (before,) = shop.queue.receive(visibility_timeout_s=4000)
    shop.clock.forward(300)

    def record() -> GroupRecord:
        return shop.ask(lambda store, number: store.records(number, ["a"]))[0]

    version = record().version
    with Worker(pipeline, shop.queue) as worker:
        until(lambda: record().due_us > shop.clock() * 1000)
        shop.queue.send(at(5, "c"), delay_s=3000)  # in the queue since 400 s; the wait was over after 300 s
        assert (seen(shop, pipeline), record().version) == ({"a": []}, version), "it is put off without a turn"
        before.nack()
        until(lambda: "b" in seen(shop, pipeline))
        for _ in range(3):
            shop.clock.forward(1)
        until(lambda: seen(shop, pipeline)["a"] == [3])
        worker.stop_soon()


def test_an_idle_time_set_later_ends_waits_that_have_begun(shop: Shop) -> None:
    shop.send([at(3), at(1)])
    shop.work(timed(None))
    shop.clock.forward(3000)
    shop.work(timed(None))
    assert seen(shop, timed()) == {"a": []}
    with Worker(timed(), shop.queue):
        until(lambda: seen(shop, timed()) == {"a": [1, 3]})


def test_a_gap_wait_set_later_ends_waits_that_have_begun(shop: Shop) -> None:
    shop.send([row(2)])
    shop.work(ledger())
    shop.clock.forward(3000)
    with Worker(ledger(on_gap=Wait("10 minutes", then="skip")), shop.queue):
        until(lambda: shop.seen(ledger())["status"] == {"a": "open"})


def test_groups_with_messages_leased_elsewhere_do_not_delay_the_release_of_other_groups(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUPS_AT_ONCE", 2)
    pipeline = timed()
    shop.send([at(3, name) for name in "abc"])
    shop.work(pipeline)
    shop.send([at(1, name) for name in "abc"])
    assert len(shop.queue.receive(10, visibility_timeout_s=40_000)) == 3
    shop.clock.forward(200)
    with Worker(pipeline, shop.queue):
        shop.send([at(3, "d")])
        until(lambda: "d" in seen(shop, pipeline))
        shop.clock.forward(301)
        until(lambda: seen(shop, pipeline) == {"a": [], "b": [], "c": [], "d": [3]})


def test_an_idle_group_larger_than_one_read_is_released_completely(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HELD_AT_ONCE", 3)
    pipeline = timed()
    shop.send([at(second) for second in (9, 8, 7, 6, 5, 4)])
    shop.work(pipeline)
    shop.clock.forward(200)
    shop.send([at(3), at(3)])
    shop.work(pipeline)
    with Worker(pipeline, shop.queue) as worker:
        shop.clock.forward(200)
        shop.send([at(3)])  # a duplicate keeps nobody waiting
        worker.drain(DEADLINE_S)
        assert seen(shop, pipeline) == {"a": []}
        shop.clock.forward(101)
        until(lambda: seen(shop, pipeline) == {"a": [3, 4, 5, 6, 7, 8, 9]})


# -- the end of the messages -----------------------------------------------------------------------------------


def test_a_final_run_releases_all_messages_within_the_lateness(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUPS_AT_ONCE", 2)
    pipeline = timed(None, handler=fails_for_f)
    shop.send([at(second, name) for name in "abcdefg" for second in (3, 1)])
    assert work(pipeline, shop.queue, until="empty").applied == 0
    counts = work(pipeline, shop.queue, until="empty", final=True)
    assert (counts.received, counts.released, counts.applied) == (0, 12, 12)
    assert seen(shop, pipeline) == {name: [1, 3] for name in "abcdeg"} | {"f": []}
    assert shop.seen(pipeline)["status"] == dict.fromkeys("abcdeg", "open") | {"f": "failed"}


def test_outputs_of_a_final_release_are_processed_by_a_group_that_was_already_visited(shop: Shop) -> None:
    def pass_on(state: Row, message: Row) -> tuple[Row, list[Any]]:
        to = [{"account": "a", "revision": message["revision"]}] if message["account"] == "b" else []
        return collect(state, message)[0], to

    pipeline = timed(None, handler=pass_on)
    shop.send([at(5, "b")])
    counts = work(pipeline, shop.queue, deliver=ToQueue(shop.queue, group="account"), until="empty", final=True)
    assert (seen(shop, pipeline), counts.applied) == ({"a": [5], "b": [5]}, 2)


def test_a_final_chain_releases_the_last_pipeline_after_the_outputs_of_the_first(shop: Shop) -> None:
    first = Pipeline(name="first", group="account", order=timed(None).order, id="id", handler=again)
    second = timed(None)
    shop.send([at(9)])
    late = Queue(shop.writer, "late")
    shop.make("late")
    late.send_many([draft(at(1), group="a")])
    service = Service([Job(second, shop.queue), Job(first, late, deliver=shop.queue)], is_final=True)
    service.run(until_empty=True)
    assert seen(shop, second) == {"a": [1, 9]}
    assert (service.is_done, shop.counts().rejected) == (True, {})


@pytest.mark.parametrize(
    ("line", "more", "text"),
    [
        (timed(), {}, "until='empty'"),
        (ledger(), {"until": "empty"}, "Gapless has no times"),
    ],
    ids=["for ever", "no times"],
)
def test_final_without_a_pipeline_or_mode_that_supports_it_is_refused(line: Pipeline, more: Any, text: str) -> None:
    with Shop("memory") as shop, pytest.raises(InputError, match=text):
        work(line, shop.queue, final=True, **more)
