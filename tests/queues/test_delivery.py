"""The delivery rules, for every store."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from store_harness import StoreHarness

from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Draft, GroupAvailability, ReceiveRequest

DONE, EXPIRED, GONE = SettleResult.DONE, SettleResult.EXPIRED, SettleResult.GONE


def test_receive_takes_the_oldest_free_group_first_and_its_messages_together(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "a2", "c1", "b2", "a3")
    assert harness.take(2) == ["a1", "a2"]
    assert harness.take(10) == ["b1", "b2", "c1"]
    assert harness.take(10) == []


def test_receive_fills_a_batch_from_the_next_group(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "a2", "b2", "b3")
    assert harness.take(4) == ["a1", "a2", "b1", "b2"]


def test_a_group_in_flight_is_blocked_until_all_its_messages_are_acknowledged(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "a3", "b1")
    one, two = harness.receive(2)
    assert harness.take(10) == ["b1"]
    assert harness.ack(one) == [DONE]
    assert harness.take(10) == []
    assert harness.ack(two) == [DONE]
    assert harness.take(10) == ["a3"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_nack_of_a_batch_in_any_order_keeps_message_order(harness: StoreHarness, order: tuple[int, ...]) -> None:
    harness.send("a1", "a2", "a3", "b1")
    deliveries = harness.receive(3)
    for index in order:
        assert harness.nack(deliveries[index]) == [DONE]
    assert harness.take(10) == ["b1", "a1", "a2", "a3"]


def test_an_expired_lease_returns_messages_to_their_positions(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "b1")
    first = harness.receive(2, visibility_s=5)
    harness.send("a3")
    harness.wait(4.999)
    assert harness.take(10) == ["b1"]
    harness.wait(0.001)
    assert harness.ack(*first) == [EXPIRED, EXPIRED]
    assert harness.take(10) == ["a1", "a2", "a3"]


def test_an_expired_receipt_is_refused_after_redelivery(harness: StoreHarness) -> None:
    harness.send("a1")
    (old,) = harness.receive(visibility_s=5)
    harness.wait(5)
    (new,) = harness.receive(visibility_s=5)
    assert new.token > old.token
    assert harness.ack(old) == harness.nack(old) == harness.extend(old, s=60) == [EXPIRED]
    assert harness.ack(new) == [DONE]
    assert harness.ack(new) == harness.ack(old) == [GONE]


@pytest.mark.parametrize("is_nacked", [True, False])
def test_an_extended_lease_blocks_the_whole_group(harness: StoreHarness, *, is_nacked: bool) -> None:
    harness.send("a1", "a2", "a3", "b1")
    one, two, three, b1 = harness.receive(4, visibility_s=5)
    harness.ack(b1)
    assert harness.extend(two, s=60) == [DONE]
    if is_nacked:
        assert harness.nack(one, three) == [DONE, DONE]
    else:
        harness.wait(5)
        assert harness.ack(one, three) == [EXPIRED, EXPIRED]
    assert harness.take(10) == [], "its holder may be at work on a2"
    harness.send("b2")
    assert harness.take(10) == ["b2"]
    assert harness.ack(two) == [DONE]
    assert harness.take(10) == ["a1", "a3"]


def test_a_group_is_ready_again_when_the_extended_lease_expires(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    one, two = harness.receive(2, visibility_s=5)
    harness.extend(two, s=60)
    harness.nack(one)
    assert harness.take(10) == []
    harness.wait(60)
    assert harness.take(10) == ["a1", "a2"]


def test_a_lease_can_be_extended_repeatedly(harness: StoreHarness) -> None:
    harness.send("a1")
    (delivery,) = harness.receive(visibility_s=5)
    for _ in range(5):
        harness.wait(4)
        assert harness.extend(delivery, s=5) == [DONE]
    assert harness.take() == []
    assert harness.ack(delivery) == [DONE]


def test_a_delayed_message_blocks_its_group_but_no_other_group(harness: StoreHarness) -> None:
    harness.send("a1", delay_ms=5_000)
    harness.send("a2", "b1")
    assert harness.take(10) == ["b1"]
    harness.wait(5)
    assert harness.take(10) == ["a1", "a2"]


def test_queue_delay_s_delays_every_message(harness: StoreHarness) -> None:
    harness.make("q", delay_s=5)
    harness.send("a1")
    harness.send("b1", delay_ms=0)
    assert harness.take(10) == ["b1"]
    harness.wait(5)
    assert harness.take(10) == ["a1"]


def test_nack_with_a_delay_blocks_the_group_until_it_ends(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "b1")
    assert harness.nack(*harness.receive(), s=5) == [DONE]
    assert harness.take(10) == ["b1"]
    harness.wait(5)
    assert harness.take(10) == ["a1", "a2"]


def test_messages_without_a_group_do_not_block_each_other(harness: StoreHarness) -> None:
    harness.send("x", "y", "z", group=None)
    one, two = harness.receive(2)
    assert harness.take(10) == ["z"]
    assert harness.nack(two) == harness.nack(one) == [DONE]
    assert harness.take(10) == ["y", "x"]


def test_receive_with_group_returns_only_that_group(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "b2")
    assert harness.take(10, group="b") == ["b1", "b2"]
    assert harness.take(10, group="b") == harness.take(10, group="nobody") == []
    assert harness.take(10) == ["a1"]


def test_fencing_tokens_increase_and_a_batch_shares_one(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "b1")
    first, second = harness.receive(2)
    (third,) = harness.receive()
    assert first.token == second.token < third.token


def test_attempts_are_counted_only_for_the_first_message_of_a_group(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "a3")
    for attempt in (1, 2, 3):
        deliveries = harness.receive(3)
        assert [delivery.attempts for delivery in deliveries] == [attempt, 1, 1]
        harness.nack(*deliveries) if attempt % 2 else harness.wait(30)
    first, second, third = harness.receive(3)
    assert harness.ack(first) == [DONE]
    assert harness.nack(third, second) == [DONE, DONE]
    assert [delivery.attempts for delivery in harness.receive(3)] == [2, 1]


def test_a_message_received_max_receives_times_moves_to_the_dead_letter_queue(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.make("q", dead_letter="dead", max_receives=2)
    sent = harness.send("a1", "a2", "b1")
    for _ in range(2):
        harness.nack(*harness.receive(2, group="a"))
    assert [(str(delivery.message.body), delivery.attempts) for delivery in harness.receive(2)] == [
        ("b1", 1),
        ("a2", 1),
    ]
    (dead,) = harness.read(queue="dead")
    assert (dead.body, dead.group, dead.came_from) == ("a1", "a", "q")
    assert dead.origin == sent[0].sequence_number
    assert dead.note == "received 2 times and never acknowledged"
    assert harness.take(queue="dead") == ["a1"]
    assert (harness.info().depth, harness.info("dead").depth) == (2, 1)


def test_a_message_stays_if_the_dead_letter_queue_does_not_exist(harness: StoreHarness) -> None:
    harness.make("q", dead_letter="nowhere", max_receives=1)
    harness.send("a1")
    for _ in range(3):
        harness.nack(*harness.receive())
    assert harness.take() == ["a1"]


def test_a_message_moved_back_returns_to_its_old_position(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.send("a1", "a2", "b1", "a3")
    entries = harness.read()
    assert harness.move("dead", entries[1], entries[0]) == [DONE, DONE]
    assert harness.bodies(queue="dead") == ["a2", "a1"]
    assert harness.move("q", *harness.read(queue="dead"), queue="dead") == [DONE, DONE]
    assert harness.bodies() == ["a1", "a2", "b1", "a3"]
    assert [(message.origin, message.came_from) for message in harness.read()[:2]] == [(None, "dead")] * 2
    assert harness.take(10) == ["a1", "a2", "a3", "b1"]


def test_move_refuses_a_message_leased_by_another_receiver(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.send("a1", "a2")
    (held,) = harness.receive()
    assert harness.move("dead", *harness.read()) == [SettleResult.HELD, DONE]
    assert harness.change(SettleAction.MOVE, held, to="dead") == [DONE]
    assert harness.bodies(queue="dead") == ["a2", "a1"]


def test_a_message_moved_back_waits_for_its_group_in_flight(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.send("a1", "a2")
    harness.move("dead", harness.read()[0])
    (two,) = harness.receive()
    harness.move("q", *harness.read(queue="dead"), queue="dead")
    assert harness.take() == []
    harness.ack(two)
    assert harness.take() == ["a1"]


def _cancelled(harness: StoreHarness) -> None:
    harness.purge()
    (sent,) = harness.send("a1", delay_ms=1_000)
    harness.cancel(sent.sequence_number)


def _removed(harness: StoreHarness) -> None:
    harness.remove()
    harness.make("q")


def _moved_by_a_receive(harness: StoreHarness) -> None:
    harness.make("q", dead_letter="dead", max_receives=1)
    harness.purge()
    harness.send("a1")
    harness.receive(visibility_s=1)
    harness.wait(1)
    assert harness.take() == []


def _retired(harness: StoreHarness) -> None:
    harness.make("q", retention_s=60)
    harness.purge()
    harness.send("a1")
    harness.wait(60)
    assert harness.take() == []


def _rolled_back(harness: StoreHarness) -> None:
    harness.ack(*harness.receive())
    with suppress(ZeroDivisionError), harness.store.transaction():
        harness.store.send(harness.store.queues["q"], [Draft("a", group="a")], harness.now)
        _ = 1 / 0


@pytest.mark.parametrize(
    "empty",
    [
        lambda harness: harness.ack(*harness.receive()),
        lambda harness: harness.move("dead", *harness.read()),
        lambda harness: harness.defer(*harness.receive()),
        lambda harness: harness.purge(),
        _cancelled,
        _moved_by_a_receive,
        _retired,
        _removed,
        _rolled_back,
    ],
)
def test_a_group_emptied_by_any_verb_accepts_new_messages(
    harness: StoreHarness, empty: Callable[[StoreHarness], object]
) -> None:
    harness.make("dead")
    harness.send("a1")
    empty(harness)
    harness.send("a2", "a3")
    assert harness.take(10) == ["a2", "a3"]


def test_purge_removes_all_messages_and_reuses_no_sequence_number(harness: StoreHarness) -> None:
    before = harness.send("a1", "b1", dedup_id="same")[0]
    (held,) = harness.receive()
    with harness.store.transaction():
        harness.store.save("q", harness.store.queues["q"], purge=True)
    assert harness.info().depth == 0
    assert harness.take(10) == harness.bodies() == []
    assert harness.ack(held) == [GONE]
    (after,) = harness.send("a1", dedup_id="same")
    assert not after.duplicate
    assert after.sequence_number > before.sequence_number


def test_a_recreated_queue_is_empty_and_continues_sequence_numbers(harness: StoreHarness) -> None:
    (before,) = harness.send("a1")
    with harness.store.transaction():
        harness.store.save("q", None)
        assert "q" not in harness.store.queues
    harness.make("q")
    assert harness.take() == []
    (after,) = harness.send("a1")
    assert after.sequence_number > before.sequence_number


def test_retention_removes_expired_messages(harness: StoreHarness) -> None:
    harness.make("q", retention_s=60)
    harness.send("a1", "b1")
    (held,) = harness.receive()
    harness.wait(30)
    harness.send("a2")
    harness.wait(30)
    assert harness.take(10) == ["a2"]
    assert harness.bodies() == ["a2"]
    assert harness.ack(held) == [GONE]
    assert harness.info().depth == 1


@pytest.mark.parametrize("jump_s", [-86_400 * 365, 86_400 * 365])
def test_a_clock_jump_loses_no_message_and_keeps_the_order(harness: StoreHarness, jump_s: float) -> None:
    harness.send("a1", "a2", "b1")
    (held,) = harness.receive(visibility_s=30)
    harness.send("c1", delay_ms=20_000)
    harness.wait(jump_s)
    harness.wait(1)
    expected = ["b1"] if jump_s < 0 else ["b1", "c1", "a1", "a2"]  # what was given back comes last
    assert harness.take(10, visibility_s=30) == expected  # back: nobody waits longer than the lease was to last
    if jump_s < 0:
        harness.wait(20)
        assert harness.take(10, visibility_s=60) == ["c1"]
        harness.wait(10)
        assert harness.take(10) == ["a1", "a2", "b1"]
    assert harness.ack(held) == [EXPIRED]


def test_groups_shows_depth_availability_and_attempts(harness: StoreHarness) -> None:
    first = harness.send("a1", "b1", "a2", "c1")
    harness.wait(1)
    harness.send("d1", delay_ms=5_000)
    (held,) = harness.receive(visibility_s=30)
    views = harness.groups()
    assert [(view.group, view.depth, view.availability, view.attempts) for view in views] == [
        ("a", 2, GroupAvailability.IN_FLIGHT, 1),
        ("b", 1, GroupAvailability.READY, 0),
        ("c", 1, GroupAvailability.READY, 0),
        ("d", 1, GroupAvailability.DELAYED, 0),
    ]
    assert (views[0].head, views[0].head_sent_ms, views[0].token) == (first[0].sequence_number, 1_000_000, held.token)
    assert (views[0].until_ms, views[3].until_ms) == (held.until_ms, harness.now + 5_000)
    assert [view.group for view in harness.groups("c", "nobody", "a")] == ["a", "c"]


def test_due_ms_is_the_time_of_the_next_change_without_a_command(harness: StoreHarness) -> None:
    harness.send("a1", "b1")
    harness.receive(visibility_s=30)
    harness.receive(visibility_s=20)
    assert harness.receive() == []
    assert harness.info().due_ms == harness.now + 20_000


def test_depth_counts_messages_in_flight_and_delayed(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "b2", "c1")
    harness.send("d1", delay_ms=5_000)
    harness.receive(3, visibility_s=30)
    harness.nack(*harness.receive(1), s=10)
    assert harness.depth() == (5, 3, 2, harness.info().last, 0, 0)
    harness.wait(30)
    assert harness.depth()[:3] == (5, 0, 0)
    harness.ack(*harness.receive())
    assert harness.depth()[:3] == (4, 0, 0)


def test_a_message_keeps_the_time_of_its_first_receive(harness: StoreHarness) -> None:
    harness.send("a1")
    (first,) = harness.receive(visibility_s=5)
    assert first.first_ms == harness.now
    harness.wait(5)
    (redelivered,) = harness.receive()
    harness.nack(redelivered, s=3)
    harness.wait(3)
    (third,) = harness.receive()
    assert [delivery.first_ms for delivery in (redelivered, third)] == [first.first_ms] * 2


def test_a_failed_store_transaction_changes_nothing(harness: StoreHarness) -> None:
    harness.send("a1", "b1")
    (held,) = harness.receive()
    number = held.message.sequence_number
    with pytest.raises(ZeroDivisionError), harness.store.transaction():  # noqa: PT012 - it is the block that must not be kept
        queue = harness.store.queues["q"]
        harness.store.send(queue, [], harness.now)
        harness.store.receive(queue, [ReceiveRequest(10)], harness.now)
        harness.store.settle(queue, [Settlement(number, held.token, SettleAction.ACK)], harness.now)
        1 / 0  # noqa: B018 - raises
    assert harness.info().depth == 2
    assert harness.take(10) == ["b1"]
    assert harness.ack(held) == [DONE]


def test_retention_removes_messages_in_flight(harness: StoreHarness) -> None:
    harness.make("q", retention_s=60)
    harness.send("a1", "a2")
    harness.wait(30)
    harness.send("a3")
    deliveries = harness.receive(3, visibility_s=40)
    harness.wait(31)
    assert harness.take(10, group="b") == []
    assert harness.ack(*deliveries[:2]) == [GONE, GONE]
    assert [(group.depth, group.availability) for group in harness.groups()] == [(1, GroupAvailability.IN_FLIGHT)]
    harness.wait(10)
    assert harness.take(10) == ["a3"]


def test_concurrent_receive_requests_each_fill_up_from_one_group(harness: StoreHarness) -> None:
    harness.send(*"a" * 12, *"b" * 12)
    answers = harness.receive_each(ReceiveRequest(10), ReceiveRequest(10))
    assert ["".join(str(delivery.message.body) for delivery in deliveries) for deliveries in answers] == [
        "a" * 10,
        "b" * 10,
    ]


@pytest.mark.parametrize("settle", ["ack", "defer"])
def test_a_lease_valid_again_after_the_clock_was_set_back_is_settled_once(harness: StoreHarness, settle: str) -> None:
    """Meanwhile its group was ready again; a second place in the line would give out the next message twice."""
    harness.send("a1", "a2")
    harness.send("x", group=None)
    (first,) = harness.receive(visibility_s=5)
    (other,) = harness.receive(visibility_s=100)
    harness.wait(6)
    assert harness.nack(other) == [DONE]
    harness.wait(-3)
    assert getattr(harness, settle)(first) == [DONE]
    deliveries = harness.receive(10, visibility_s=5)
    assert sorted(str(delivery.message.body) for delivery in deliveries) == ["a2", "x"]
    assert harness.nack(*deliveries) == [DONE, DONE]
    harness.wait(200)
    assert sorted(harness.take(10)) == ["a2", "x"]


@pytest.mark.parametrize("delay_ms", [0, 3_000])
@pytest.mark.parametrize("attempts", [0, 1, 7])
def test_nack_can_set_the_number_of_used_attempts(harness: StoreHarness, attempts: int, delay_ms: int) -> None:
    harness.send("a1", "a2", "b1")
    harness.send("x", group=None)
    for _ in range(2):
        deliveries = [delivery for delivery in harness.receive(10) if delivery.message.body != "a2"]
        changes = [
            Settlement(delivery.message.sequence_number, delivery.token, SettleAction.NACK, delay_ms, attempts=attempts)
            for delivery in deliveries
        ]
        with harness.store.transaction():
            assert harness.store.settle(harness.store.queues["q"], changes, harness.now) == [DONE] * 3
        harness.wait(100)
    redelivered = {str(delivery.message.body): delivery for delivery in harness.receive(10)}
    assert {name: delivery.attempts for name, delivery in redelivered.items()} == {
        "a1": attempts + 1, "a2": 1, "b1": attempts + 1, "x": attempts + 1
    }  # fmt: skip
