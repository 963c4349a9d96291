"""What a process may have died of runs alone, but holds nothing up that never ends."""

from typing import Any

import pytest
from shop import Gate, Row, Shop, ledger, post, row

from inturn.core import limits
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.worker import Worker
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


def test_a_delivery_of_which_a_process_may_have_died_waits_for_what_has_begun(shop: Shop) -> None:
    leave_a_claim(shop)
    gate, delivered = Gate(), list[str]()
    shop.send([row(1, account="b")])
    with Worker(slow(gate, "b"), shop.queue, deliver=lambda _output, effect_id: delivered.append(effect_id)) as worker:
        gate.wait_until(lambda: bool(gate.begun))
        until(lambda: worker._suspect is not None)
        assert delivered == []
        gate.let("b")
        worker.drain(DEADLINE_S)
    assert len(delivered) == 2


def test_what_never_ends_holds_up_neither_that_delivery_nor_others(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_never_ends_does_not_hold_up_a_message_of_which_a_process_may_have_died(
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


def test_a_stop_gives_back_what_waits_to_run_alone_with_its_count(shop: Shop) -> None:
    line = ledger()
    shop.send([row(1, -1)])
    shop.work(line)
    name = shop.decide(Decision(id="1", action=DecisionAction.RESUME, group="a", by="ann", at_us=1))
    shop.ask(lambda kept, number: kept.begin(number, {"a": 3}, shop.clock()))
    gate = Gate()
    shop.send([row(1, account="b")])
    with Worker(slow(gate, "b"), shop.queue, grace_s=DEADLINE_S) as worker:
        gate.wait_until(lambda: bool(gate.begun))
        until(lambda: worker._suspect is not None)
        worker.stop_soon()
        gate.let("b")
    assert shop.ask(lambda kept, number: kept.verdicts(number, [name])) == {}
    ((begun, until_ms),) = shop.ask(lambda kept, number: kept.begun(number, ["a"])).values()
    assert (begun, until_ms <= shop.clock()) == (3, True)
