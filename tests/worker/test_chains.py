"""Outputs of a pipeline become messages of a queue, in the commit that makes them; the queue may be full, or gone."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shop import Row, Shop, ledger, row

import inturn
from inturn import Arrival, Pipeline, ToQueue
from inturn.core.errors import InputError, NoSuchQueue
from inturn.core.queue.messages import QueueInfo
from inturn.queue import Queue, QueueSettings
from inturn.store.commands import StoreCall
from inturn.worker import Worker
from inturn.worker.codec import WorkerStateCodec
from inturn.worker.service import Job, Service
from waiting import until

UNTIL_S = 60


def transfer(state: Row, message: Row) -> tuple[Row, list[Row]]:
    """Take an amount from the account, and give it to the others that the message names."""
    paid = state.get("paid", 0) + message["amount"]
    return {"paid": paid}, [{"to": to, "amount": message["amount"]} for to in message.get("to", ["z"])]


def credit(state: Row, message: Row) -> tuple[Row, list[Row]]:
    got = state.get("got", 0) + message["amount"]
    return {"got": got}, [{"balance": got}]


DEBITS = ledger(handler=transfer)
CREDITS = Pipeline(name="credits", group="to", order=Arrival(), id="id", handler=credit)


def queue(shop: Shop, name: str = "credits", **settings: Any) -> Queue:
    def make(store: Any, now_ms: int) -> None:
        store.save(name, QueueInfo(0, name, QueueSettings(visibility_timeout_s=5, **settings), now_ms))

    shop.writer.run(StoreCall("", make))
    return Queue(shop.writer, name)


def bound(to: Queue, most: int) -> None:
    """Give a queue room for so many messages; for 0, one that is full."""
    to.configure(max_depth=max(most, 1))
    if not most:
        to.send("it is full")


def bodies(to: Queue) -> list[tuple[str | None, Any]]:
    return [(message.group, message.body) for message in to.peek(1_000)]


def replayed(messages: list[Row], pipeline: Pipeline = DEBITS) -> list[tuple[Any, str]]:
    return [(output.output, output.effect_id) for output in pipeline.replay(messages).outputs]


MESSAGES = [row(n, n, account, to=list("xyz"[: n % 3])) for n in range(1, 6) for account in "abc"]


def test_a_chained_output_has_the_effect_id_as_deduplication_id_and_keeps_group_order(shop: Shop) -> None:
    to = queue(shop)
    shop.send(MESSAGES)
    shop.work(DEBITS, deliver=to)
    messages = to.peek(1_000)
    assert sorted((message.dedup_id, message.body) for message in messages) == sorted(
        (effect, output) for output, effect in replayed(MESSAGES)
    )
    for account in "abc":
        own = replayed([message for message in MESSAGES if message["account"] == account])
        assert [(message.body, message.dedup_id) for message in messages if message.group == account] == own, "in order"
    assert shop.seen(DEBITS)["outputs"] == []


def test_to_takes_the_group_and_the_revision_from_output_fields(shop: Shop) -> None:
    to = queue(shop)
    pipeline = ledger(handler=lambda state, m: (state, [{"to": {"no": 7}, "n": m["revision"]}]))
    shop.send([row(1), row(2)])
    shop.work(pipeline, deliver=ToQueue(to, group="to.no", revision="n"))
    assert [(message.group, message.revision) for message in to.peek()] == [("7", 1), ("7", 2)]


@pytest.mark.parametrize("output", ["text", 5, None, [1, 2], {"nul": "\0", "é": 1.5}], ids=str)
def test_any_json_output_is_a_valid_message_body(shop: Shop, output: Any) -> None:
    to = queue(shop)
    shop.send([row(1)])
    shop.work(ledger(handler=lambda state, m: (state, [output])), deliver=to)
    assert bodies(to) == [("a", output)]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({"n": 1}, "has no field 'to', which is the group of its message in the queue 'credits'"),
        ({"to": 1.5}, "invalid group"),
        ({"to": ""}, "group"),
        ({"to": "a\0b"}, "group"),
        ("text", "has no field 'to'"),
        ({"to": "x", "blob": "b" * 2_000_000}, "at most 1,048,576 are allowed"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_output_that_is_not_a_valid_message_parks_only_its_group(shop: Shop, output: Any, why: str) -> None:
    to = queue(shop)

    def emit(state: Row, message: Row) -> tuple[Row, list[Any]]:
        bad = message["account"] == "bad" and message["revision"] == 2
        return {"n": message["revision"]}, [{"to": "x", "n": message["revision"]}, *([output] if bad else [])]

    pipeline = ledger(handler=emit)
    shop.send([row(n, 1, account) for n in (1, 2, 3) for account in ("bad", "good")])
    shop.work(pipeline, deliver=ToQueue("credits", group="to"))
    seen = shop.seen(pipeline)
    assert seen["status"] == {"bad": "failed", "good": "open"}
    assert seen["states"] == {"bad": {"n": 1}, "good": {"n": 3}}
    assert why in seen["errors"]["bad"][0]
    assert len(bodies(to)) == 4, "nothing of the message that failed"


def test_outbox_entries_of_an_earlier_worker_are_sent_before_new_outputs(shop: Shop) -> None:
    to = queue(shop)
    first, later = [row(n, n) for n in range(1, 251)], [row(n, n) for n in range(251, 260)]
    shop.send(first)
    shop.work(DEBITS)
    shop.send(later)
    shop.work(DEBITS, deliver=to)
    assert [(message.body, message.dedup_id) for message in to.peek(1_000)] == replayed([*first, *later])
    assert shop.seen(DEBITS)["outputs"] == []


def test_an_invalid_outbox_entry_is_kept_with_its_error_and_blocks_only_its_group(shop: Shop) -> None:
    to = queue(shop)
    """What was left before it is sent."""
    pipeline = ledger(handler=lambda state, m: (state, [{"to": m["account"]} if m["amount"] else {}]))
    shop.send([row(1, 1, "bad"), row(2, 0, "bad"), row(1, 1, "good"), row(2, 1, "good")])
    shop.work(pipeline)
    with Worker(pipeline, shop.queue, deliver=ToQueue(to, group="to")):
        until(
            lambda: (
                len(bodies(to)) == 3
                and bool(shop.ask(lambda store, number: store.pending_deliveries(number, None, 10)))
            )
        )
    (post,) = shop.ask(lambda store, number: store.pending_deliveries(number, None, 10))
    assert (post.group, post.depth) == ("bad", 1)
    assert "has no field 'to'" in post.error


def test_a_pipeline_that_sends_to_its_own_queue_ends_when_the_queue_is_empty(shop: Shop) -> None:
    def count(state: Row, message: Row) -> tuple[Row, list[Row]]:
        return {"n": state.get("n", 0) + 1}, [{"left": message["left"] - 1}] if message["left"] else []

    pipeline = Pipeline(name="ledger", group="account", order=Arrival(), id="id", handler=count)
    shop.queue.send({"left": 5}, group="a", dedup_id="first")
    shop.work(pipeline, deliver=shop.queue)
    assert shop.seen(pipeline)["states"] == {"a": {"n": 6}}
    assert shop.counts().duplicate == 0


def test_a_chain_of_two_pipelines_equals_the_replay_of_the_second_over_the_first_outputs(shop: Shop) -> None:
    to = queue(shop)
    shop.send([*MESSAGES, *MESSAGES])
    chain = ToQueue(to, group="to")
    Service([Job(DEBITS, shop.queue, chain, database="x"), Job(CREDITS, to, database="x")]).run(until_empty=True)
    _assert_chained(shop, MESSAGES)


def _assert_chained(shop: Shop, messages: list[Row]) -> None:
    """The states of the second are those of its replay; amounts commute, so the order between groups is no matter."""
    result = CREDITS.replay([{**output, "id": effect} for output, effect in replayed(messages)])
    lines = shop.ask(lambda store, number: store.list_groups(number, "", 1_000), "credits")
    states = {record.group: WorkerStateCodec(CREDITS).read(record) for record in lines}
    assert states == result.states
    outputs = shop.ask(lambda store, number: store.outputs(number, 0, 10_000), "credits")
    assert sorted(output.effect_id for output in outputs) == sorted(output.effect_id for output in result.outputs)
    assert shop.counts("credits").applied == result.counts.applied
    assert shop.counts("credits").duplicate == 0


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from("xyz"), max_size=3)), max_size=12)


@pytest.mark.thorough
@settings(max_examples=25)
@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_chain_equals_its_replay_for_any_message_order_and_batch_split(
    rows: list[tuple[str, list[str]]], chance: Any, parts: int
) -> None:
    messages, seen = [], dict[str, int]()
    for account, to in rows:
        seen[account] = seen.get(account, 0) + 1
        messages.append(row(seen[account], 1, account, to=to))
    sent = [*messages, *(message for message in messages if chance.random() < 0.3)]
    chance.shuffle(sent)
    with Shop("memory") as shop:
        to = queue(shop)
        for part in range(parts):
            shop.send(sent[part::parts])
            shop.work(DEBITS, deliver=None if chance.random() < 0.3 else ToQueue(to, group="to"))
        shop.work(DEBITS, deliver=ToQueue(to, group="to"))
        with Worker(CREDITS, to) as worker:
            worker.drain(UNTIL_S)
        _assert_chained(shop, messages)


@pytest.mark.parametrize("most", [1, 3])
def test_a_full_destination_queue_delays_tasks_without_losing_or_parking_messages(shop: Shop, most: int) -> None:
    """Also if one turn makes more than ever fit."""
    to = queue(shop)
    bound(to, most)
    shop.send(MESSAGES)
    received: dict[str | None, Any] = {}
    handled = threading.Event()

    def handler(state: Row, message: Row) -> tuple[Row, list[Row]]:
        if message["account"] == "late":
            handled.set()
        return transfer(state, message)

    messages = [*MESSAGES, row(1, 1, "late")]
    with Worker(ledger(handler=handler), shop.queue, deliver=ToQueue(to, group="to")) as worker:
        until(lambda: to.depth().messages == most)
        shop.send(messages[-1:])
        assert handled.wait(UNTIL_S)
        assert shop.queue.depth().messages > 0, "its turn is held"
        ends = time.monotonic() + UNTIL_S
        while len(received) < len(replayed(messages)):
            assert time.monotonic() < ends
            assert to.depth().messages <= most
            for message in to.receive(wait_s=1):
                received[message.dedup_id] = message.body
                message.ack()
            worker.check()
        worker.drain(UNTIL_S)
    assert received == {effect: output for output, effect in replayed(messages)}
    assert set(shop.seen(DEBITS)["status"].values()) == {"open"}
    assert shop.counts().balanced
    assert shop.counts().applied == len(messages)


def test_a_full_destination_queue_does_not_delay_groups_without_outputs(shop: Shop) -> None:
    to = queue(shop)
    bound(to, 0)
    shop.send([row(1, 1, "a"), row(1, 1, "b", to=[])])
    with Worker(DEBITS, shop.queue, deliver=ToQueue(to, group="to")):
        until(lambda: "b" in shop.seen(DEBITS)["states"])
    assert list(shop.seen(DEBITS)["states"]) == ["b"]


def test_a_stop_returns_the_messages_that_wait_for_a_full_destination_queue(shop: Shop) -> None:
    to, handled = queue(shop), threading.Event()

    def handler(state: Row, message: Row) -> tuple[Row, list[Row]]:
        handled.set()
        return transfer(state, message)

    bound(to, 0)
    shop.send(MESSAGES)
    with Worker(ledger(handler=handler), shop.queue, deliver=ToQueue(to, group="to")) as worker:
        assert handled.wait(UNTIL_S)
    assert worker.counts.received == 0
    assert shop.queue.depth().in_flight == 0
    to.purge()
    to.configure(max_depth=None)
    shop.work(DEBITS, deliver=ToQueue(to, group="to"))
    assert len(bodies(to)) == len(replayed(MESSAGES))


def test_a_deleted_destination_queue_ends_the_worker_without_loss(shop: Shop) -> None:
    to = queue(shop)
    worker = Worker(DEBITS, shop.queue, deliver=to)
    to.delete()
    shop.send(MESSAGES)
    with pytest.raises(NoSuchQueue, match="credits"):
        worker.run(until_empty=True)
    assert shop.queue.depth().in_flight == 0
    assert worker.counts.received == 0
    to = queue(shop)
    shop.work(DEBITS, deliver=to)
    assert len(bodies(to)) == len(replayed(MESSAGES))


def test_a_destination_queue_must_be_in_the_same_database_which_may_be_opened_twice(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "a.db") as db, inturn.open(tmp_path / "b.db") as other:
        payments, elsewhere = db.queue("payments"), other.queue("credits")
        with pytest.raises(InputError, match=r"another database than 'payments'.*pass a function"):
            inturn.work(DEBITS, payments, deliver=elsewhere, until="empty")
        with pytest.raises(NoSuchQueue, match="existing queues: payments"):
            inturn.work(DEBITS, payments, deliver=ToQueue("credits"), until="empty")
        with pytest.raises(InputError, match="deliver is 'credits'; expected a function, a queue, or"):
            inturn.work(DEBITS, payments, deliver="credits", until="empty")  # type: ignore[arg-type]
        payments.send(row(1), group="a")
        with inturn.open(tmp_path / "a.db") as reopened:
            inturn.work(DEBITS, payments, deliver=reopened.queue("credits"), until="empty")
        assert [json.dumps(message.body) for message in db.queue("credits").peek()] == ['{"amount": 1, "to": "z"}']
