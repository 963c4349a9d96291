"""Groups and ids at their longest, of characters with four bytes by chance: a pipeline has them over every store."""

import json
import random
from typing import Any

import pytest
from shop import Row, Shop

from inturn import Arrival, Gapless, Monotone, Pipeline, Timestamp
from inturn.core import limits
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.worker.codec import WorkerStateCodec


def longest(seed: int) -> str:
    """A name of so many characters of four bytes each."""
    chance = random.Random(seed)
    return "".join(chr(chance.randrange(0x10000, 0x110000)) for _ in range(limits.ID_LENGTH))


def add(state: Row, message: Row) -> tuple[Row, list[Any]]:
    if message["n"] < 0:
        raise ValueError(message["n"])
    return {"n": state.get("n", 0) + message["n"]}, [message["n"]]


GROUPS = [longest(1), longest(1)[:-1] + "z", longest(2), "\1" * limits.ID_LENGTH]


@pytest.mark.parametrize("order", [Gapless("r"), Monotone("r"), Timestamp("r", "1 second"), Arrival()], ids=repr)
def test_groups_and_ids_of_maximum_length_work_with_every_order(shop: Shop, order: Any) -> None:
    pipeline = Pipeline(name="ledger", group="g", order=order, id="id", handler=add)
    rows = [{"g": group, "r": r, "id": longest(10 + r), "n": r} for r in (3, 2, 1) for group in GROUPS]
    for message in rows:  # each by itself: what comes early is held, and read again
        shop.send([message], "g")
        shop.work(pipeline)
    delivered: list[Any] = []
    shop.work(pipeline, deliver=lambda output, _effect_id: delivered.append(output))
    result = pipeline.replay([])
    for message in rows:
        result = pipeline.replay([message], after=result)
    lines, outputs = shop.ask(
        lambda store, number: (store.list_groups(number, "", 100), store.outputs(number, 0, 1_000))
    )
    codec = WorkerStateCodec(pipeline)
    assert {record.group: codec.decode(record.state) for record in lines} == result.states
    assert set(result.states) == set(GROUPS)
    assert sorted(delivered) == sorted(output.output for output in result.outputs)
    assert not outputs


def test_decisions_about_a_parked_group_with_a_name_of_maximum_length_are_applied(shop: Shop) -> None:
    pipeline = Pipeline(name="ledger", group="g", order=Gapless("r"), id="id", handler=add)
    group = GROUPS[0]
    shop.send([{"g": group, "r": r, "id": longest(r), "n": r - 2} for r in (1, 2, 4)], "g")
    shop.work(pipeline)
    held = shop.ask(lambda store, number: store.held(number, group))
    assert [message.id for message in held] == [longest(1), longest(2), longest(4)]
    assert shop.ask(lambda store, number: store.held(number, group, None, [longest(2)])) == [held[1]]
    assert shop.ask(lambda store, number: store.held_from(number, group, (0, 2, "", longest(2)), 9)) == held[1:]
    longest_held = shop.ask(lambda store, number: store.held_longest(number, group, 9))
    assert {spot for _, spot in longest_held} == {message.spot for message in held}
    name = shop.decide(Decision(id="1", action=DecisionAction.GIVE_UP, group=group, by="ann", at_us=1))
    assert [decision.group for decision in shop.ask(lambda store, number: store.decisions(number, 9))] == [group]
    shop.work(pipeline)
    assert shop.ask(lambda store, number: store.verdicts(number, [name])) == {name: ""}
    assert [rejection.group for _, rejection in shop.ask(lambda store, number: store.rejections(number, 0, 9))] == [
        group
    ] * 3
    (record,) = shop.ask(lambda store, number: store.records(number, [group]))
    assert (record.group, record.status) == (group, "given up")


def test_outputs_of_groups_with_names_of_maximum_length_stay_in_the_outbox(shop: Shop) -> None:
    pipeline = Pipeline(name="ledger", group="g", order=Gapless("r"), handler=add)
    shop.send([{"g": group, "r": 1, "n": index} for index, group in enumerate(GROUPS)], "g")
    shop.work(pipeline)
    outputs = shop.ask(lambda store, number: store.outputs(number, 0, 100))
    assert sorted((output.group, json.loads(output.output)) for output in outputs) == sorted(
        zip(GROUPS, range(4), strict=True)
    )
    outgoing = shop.ask(lambda store, number: store.pending_deliveries(number, GROUPS[1:3], 10))
    assert {delivery.group: delivery.depth for delivery in outgoing} == dict.fromkeys(GROUPS[1:3], 1)
