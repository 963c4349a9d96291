"""Effects outside are delivered after the commit, at least once, in order within a group, from an outbox that stays."""

import asyncio
import threading
import time
from typing import Any

import pytest
from shop import Gate, Row, Shop, ledger, row

from awaited import AWAITED, waiting
from inturn import Retry
from inturn.core import limits
from inturn.core.errors import DeliveryRefused, InputError
from inturn.store.records import OutboxClaim, OutputRecord
from inturn.worker import Worker
from inturn.worker.outbox import Outbox
from inturn.worker.work_items import DeliveryAttempt
from waiting import DEADLINE_S, until

Told = list[tuple[Any, str]]
QUICK = Retry(1, "10 milliseconds")


def effects(pipeline: Any, messages: list[Row]) -> Told:
    return [(output.output, output.effect_id) for output in pipeline.replay(messages).outputs]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_each_output_is_delivered_with_its_effect_id_and_removed_from_the_outbox(shop: Shop, kind: str) -> None:
    delivered: Told = []

    async def later(output: Any, effect_id: str) -> None:
        await asyncio.sleep(0)
        delivered.append((output, effect_id))

    def at_once(output: Any, effect_id: str) -> None:
        delivered.append((output, effect_id))

    pipeline = ledger()
    messages = [row(revision, revision, account) for revision in range(1, 6) for account in "abc"]
    shop.send(messages)
    shop.work(pipeline, deliver=later if kind == "async" else at_once)
    wanted = effects(pipeline, messages)
    assert sorted(delivered, key=lambda output: output[1]) == sorted(wanted, key=lambda output: output[1])
    for account in "abc":
        own = effects(pipeline, [message for message in messages if message["account"] == account])
        assert [output for output in delivered if output in own] == own, "in order"
    assert shop.seen(pipeline)["outputs"] == []


@pytest.mark.parametrize("kind", AWAITED)
def test_an_awaitable_returned_by_a_plain_deliver_function_is_awaited(shop: Shop, kind: str) -> None:
    delivered: list[str] = []
    shop.send([row(revision, account=account) for revision in (1, 2) for account in "ab"])
    with waiting(kind) as later:
        shop.work(ledger(), deliver=lambda _output, effect_id: later(lambda: delivered.append(effect_id)))
        assert sorted(delivered) == sorted(
            effect for _, effect in effects(ledger(), [row(1), row(2), row(1, account="b"), row(2, account="b")])
        )


@pytest.mark.parametrize("kind", AWAITED)
@pytest.mark.parametrize("raised", [OSError("the bank is closed"), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_an_error_of_a_returned_awaitable_counts_as_a_failed_attempt(
    shop: Shop, kind: str, raised: BaseException
) -> None:
    delivered, failures = list[str](), [raised]

    def act() -> None:
        if failures:
            raise failures.pop()
        delivered.append("delivered")

    shop.send([row(1)])
    with waiting(kind) as later:
        shop.work(ledger(), deliver=lambda _output, _effect_id: later(act), retry=QUICK)
    assert delivered == ["delivered"]


def test_other_return_values_of_deliver_are_ignored(shop: Shop) -> None:
    shop.send([row(1)])
    shop.work(ledger(), deliver=lambda output, _effect_id: output)
    assert shop.seen(ledger())["outputs"] == []


def test_a_generator_as_deliver_is_refused_and_its_outputs_stay_in_the_outbox(shop: Shop) -> None:
    def deliver(output: Any, effect_id: str) -> Any:
        yield output

    with pytest.raises(InputError, match=r"deliver is .*deliver, a generator"):
        Worker(ledger(), shop.queue, deliver=deliver)
    shop.send([row(1)])
    with Worker(
        ledger(), shop.queue, deliver=lambda output, _effect_id: (item for item in [output]), retry=Retry(1, "1 hour")
    ):
        until(
            lambda: (
                shop.ask(
                    lambda store, number: [delivery.attempts for delivery in store.pending_deliveries(number, None, 10)]
                )
                == [1]
            )
        )
    (post,) = shop.ask(lambda store, number: store.pending_deliveries(number, None, 10))
    assert "is a generator" in post.error


def test_deliver_is_called_after_the_commit_and_outside_any_transaction(shop: Shop) -> None:
    seen: list[Any] = []

    def look(output: Any, effect_id: str) -> None:
        seen.append((shop.counts().applied, len(shop.seen(ledger())["outputs"])))

    shop.send([row(1)])
    shop.work(ledger(), deliver=look)
    assert seen == [(1, 1)]


def test_outputs_without_deliver_stay_in_the_outbox_for_a_later_worker(shop: Shop) -> None:
    pipeline, delivered = ledger(), Told()
    messages = [row(1), row(2), row(1, account="b")]
    shop.send(messages)
    shop.work(pipeline)
    assert len(shop.seen(pipeline)["outputs"]) == 3
    shop.work(pipeline, deliver=lambda *output: delivered.append(output))
    assert sorted(delivered, key=lambda output: output[1]) == sorted(
        effects(pipeline, messages), key=lambda output: output[1]
    )


def test_a_failed_delivery_is_retried_and_delays_only_its_group(shop: Shop) -> None:
    delivered: list[str] = []
    failures = {"a": 4}

    def flaky(output: Any, effect_id: str) -> None:
        group = output["group"]
        if failures.get(group):
            failures[group] -= 1
            delivered.append("failed")
            msg = "the bank is closed"
            raise OSError(msg)
        delivered.append(f"{group}{output['n']}")

    pipeline = ledger(handler=lambda state, m: (state, [{"group": m["account"], "n": m["revision"]}]))
    shop.send([row(revision, 1, account) for account in "abcd" for revision in (1, 2)])
    shop.work(pipeline, deliver=flaky, retry=Retry(2, "60 milliseconds"), concurrency=1)
    assert delivered.count("failed") == 4
    assert [effect for effect in delivered if effect[0] == "a"] == ["a1", "a2"]
    assert delivered.index("d2") < delivered.index("a1"), "the others did not wait"


def test_the_error_of_a_failed_delivery_is_stored_with_its_attempts(shop: Shop) -> None:
    pipeline, gate = ledger(), threading.Event()

    def refuse(output: Any, effect_id: str) -> None:
        if output["posted"] == 2:
            gate.set()
            msg = "the bank is closed"
            raise OSError(msg)

    shop.send([row(1, 1), row(2, 2), row(3, 3)])
    with Worker(pipeline, shop.queue, deliver=refuse, retry=Retry(1, "1 hour")):
        assert gate.wait(DEADLINE_S)
        time.sleep(0.05)
    (post,) = shop.ask(lambda store, number: store.pending_deliveries(number, None, 10))
    assert (post.group, post.attempts, post.depth) == ("a", 1, 2), "what was delivered is forgotten"
    assert "OSError: the bank is closed" in post.error
    assert post.until_ms > shop.clock() + 30_000


def test_a_refused_delivery_waits_for_a_decision_and_delays_no_other_group_nor_the_stop(shop: Shop) -> None:
    pipeline, delivered, refusals = ledger(), [], [1]

    def refuse(output: Any, effect_id: str) -> None:
        delivered.append(output["posted"])
        if output["posted"] == 2 and refusals:
            raise DeliveryRefused("no account of this name")

    shop.send([row(1, 1), row(2, 2), row(3, 3), row(1, 7, "b")])
    shop.work(pipeline, deliver=refuse, retry=QUICK)
    shop.send([row(4, 4), row(2, 8, "b")])
    shop.work(pipeline, deliver=refuse, retry=QUICK)
    assert sorted(delivered) == [1, 2, 7, 8], "tried once; what is behind it waits, and the other group goes on"
    (post,) = shop.ask(lambda store, number: store.pending_deliveries(number, None, 10))
    assert (post.group, post.until_ms, post.depth) == ("a", limits.DELIVERY_REFUSED_MS, 3)
    assert "DeliveryRefused: no account of this name" in post.error
    assert shop.ask(lambda store, number: (store.has_unsent(number), store.redeliver(number, ["b"]))) == (False, 0)
    assert shop.ask(lambda store, number: store.redeliver(number, ["b", "a"])) == 1
    shop.work(pipeline, deliver=refuse, retry=QUICK)
    assert shop.ask(lambda store, number: store.redeliver(number, None)) == 1
    refusals.clear()
    shop.work(pipeline, deliver=refuse, retry=QUICK)
    assert delivered[4:] == [2, 2, 3, 4]
    assert shop.ask(lambda store, number: store.pending_deliveries(number, None, 10)) == []


def test_outputs_claimed_by_a_dead_worker_are_delivered_after_the_claim_expires(shop: Shop) -> None:
    pipeline, gate = ledger(), Gate()
    delivered: list[str] = []

    def hang(output: Any, effect_id: str) -> None:
        gate(effect_id)

    shop.send([row(1), row(2)])
    worker = Worker(pipeline, shop.queue, deliver=hang, grace_s=0)
    with worker:
        gate.wait_until(lambda: bool(gate.begun))
    shop.work(pipeline)
    assert delivered == []
    shop.clock.forward(limits.OUTBOX_LEASE_S + 1)
    shop.work(pipeline, deliver=lambda _output, effect_id: delivered.append(effect_id))
    assert delivered == [effect for _, effect in effects(pipeline, [row(1), row(2)])]
    gate.let(*gate.begun)


def test_a_stop_finishes_running_deliveries_and_leaves_the_others_in_the_outbox(shop: Shop) -> None:
    pipeline, gate = ledger(), Gate()
    delivered: list[str] = []

    def slow(output: Any, effect_id: str) -> None:
        gate("first")
        delivered.append(effect_id)

    shop.send([row(1), row(2)])
    worker = Worker(pipeline, shop.queue, deliver=slow)
    with worker:
        gate.wait_until(lambda: bool(gate.begun))
        worker.stop_soon()
        gate.let("first")
    shop.work(pipeline, deliver=lambda _output, effect_id: delivered.append(effect_id))
    assert delivered == [effect for _, effect in effects(pipeline, [row(1), row(2)])], "each once, and at once"


@pytest.mark.parametrize("attempts", [0, 1, 5, 1_000])
def test_a_failed_delivery_is_retried_only_after_a_minimum_pause(attempts: int) -> None:
    finished = threading.Event()
    sender = Outbox(lambda output, effect_id: 1 / 0, Retry(3, "0 seconds"), 1, lambda sending: finished.set())
    record = OutputRecord(1, "a", None, 1, "1", 0, "effect", "{}")
    sending = DeliveryAttempt(OutboxClaim("a", 1, attempts, [record]), 0)
    sender.put(sending)
    assert finished.wait(DEADLINE_S)
    sender.stop()
    assert sending.error is not None
    assert sending.pause_s >= limits.DELIVER_PAUSE_S
