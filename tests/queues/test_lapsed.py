"""A receiver died: only the message it died of becomes a dead letter, and no other waits for ever."""

import pytest
from store_harness import StoreHarness

from inturn.core.queue.delivery import SettleAction, Settlement
from inturn.core.queue.lapsed import LAPSED_RETRIES, LapsedRule, why_spent
from inturn.core.queue.messages import Delivery, ReceiveRequest

ALONE, NONE = LapsedRule.ALONE, LapsedRule.NONE


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [str(delivery.message.body) for delivery in deliveries]


def lapse(harness: StoreHarness, *texts: str, limit: int = 10) -> None:
    """Send messages, and let the receiver of all of them die."""
    harness.send(*texts)
    assert bodies(harness.receive(limit)) == list(texts)
    harness.wait(31)


@pytest.mark.parametrize("poison", ["a1", "b1", "c1", "d1", "e1"])
def test_of_a_crashed_receivers_batch_only_the_poison_message_becomes_a_dead_letter(
    poison: str, harness: StoreHarness
) -> None:
    harness.make("dead")
    harness.make("q", dead_letter="dead", max_receives=3)
    harness.send("a1", "b1", "c1", "d1", "e1")
    done: list[str] = []
    for _ in range(20):
        deliveries = harness.receive(5)
        if poison in bodies(deliveries):
            harness.wait(31)
            continue
        done += bodies(deliveries)
        harness.ack(*deliveries)
    assert sorted([*done, poison]) == ["a1", "b1", "c1", "d1", "e1"]
    assert harness.take(queue="dead") == [poison]


def test_within_a_group_only_the_poison_message_becomes_a_dead_letter(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.make("q", dead_letter="dead", max_receives=3)
    harness.send(*(f"a{n}" for n in range(6)))
    done: list[str] = []
    for _ in range(40):
        deliveries = harness.receive(5)
        if "a3" in bodies(deliveries):
            harness.wait(31)
            continue
        done += bodies(deliveries)
        harness.ack(*deliveries)
    assert done == ["a0", "a1", "a2", "a4", "a5"]
    assert harness.take(queue="dead") == ["a3"]


def test_a_message_with_an_expired_lease_is_received_alone(harness: StoreHarness) -> None:
    lapse(harness, "a1", "b1", "b2")
    harness.send("c1")
    parts = [harness.receive(10, lapsed=ALONE) for _ in range(5)]
    assert [bodies(part) for part in parts] == [["c1"], ["a1"], ["b1"], [], []]
    assert [(part[0].lapsed, part[0].attempts) for part in parts[:3]] == [(False, 1), (True, 2), (True, 2)]
    harness.ack(*parts[2])
    assert bodies(harness.receive(10, lapsed=ALONE)) == ["b2"]


def test_concurrent_requests_of_one_receiver_get_a_lapsed_message_alone(harness: StoreHarness) -> None:
    lapse(harness, "a1", "b1")
    harness.send("c1")
    requests = [ReceiveRequest(1, lapsed=ALONE)] * 3
    assert [bodies(deliveries) for deliveries in harness.receive_each(*requests)] == [["c1"], [], []]
    assert [bodies(deliveries) for deliveries in harness.receive_each(*requests)] == [["a1"], [], []]
    assert [bodies(deliveries) for deliveries in harness.receive_each(*requests)] == [["b1"], [], []]


def test_a_busy_receiver_gets_messages_before_a_lapsed_message_but_none_after_it(
    harness: StoreHarness,
) -> None:
    lapse(harness, "b1")
    harness.send("c1")
    busy = ReceiveRequest(1, lapsed=NONE)
    assert [bodies(deliveries) for deliveries in harness.receive_each(busy, busy)] == [["c1"], []]
    harness.send("d1")
    assert harness.receive(10, lapsed=NONE) == []
    assert bodies(harness.receive(10, lapsed=ALONE)) == ["b1"]
    assert bodies(harness.receive(10, lapsed=NONE)) == ["d1"]


def test_receive_with_group_returns_a_lapsed_message_only_alone(harness: StoreHarness) -> None:
    lapse(harness, "a1", "a2")
    assert harness.receive(10, group="a", lapsed=NONE) == []
    assert bodies(harness.receive(10, group="a", lapsed=ALONE)) == ["a1"]


def test_without_a_dead_letter_queue_lapsed_messages_are_received_in_a_batch(harness: StoreHarness) -> None:
    lapse(harness, "a1", "a2", "b1")
    assert sorted(harness.take(10)) == ["a1", "a2", "b1"]


def test_a_message_stays_lapsed_until_an_attempt_ends_with_nack(harness: StoreHarness) -> None:
    lapse(harness, "a1")
    for attempts in (1, 1):
        (delivery,) = harness.receive(lapsed=ALONE)
        assert (delivery.lapsed, delivery.attempts) == (True, 2)
        back = Settlement(delivery.message.sequence_number, delivery.token, SettleAction.NACK, attempts=attempts)
        harness.settle(back)
    (delivery,) = harness.receive(lapsed=ALONE)
    harness.nack(delivery)
    (delivery,) = harness.receive(lapsed=NONE)
    assert (delivery.lapsed, delivery.attempts) == (False, 3)


def test_a_lapsed_message_is_retried_up_to_the_retry_limit_or_three_times() -> None:
    assert [why_spent(n, 0) != "" for n in range(4, 8)] == [False, False, True, True]
    assert LAPSED_RETRIES == 3
    assert [why_spent(n, 10) != "" for n in (12, 13)] == [False, True]
