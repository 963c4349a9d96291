"""The delivery rules, for every store."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from desk import Desk

from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Draft, ReceiveRequest, Why

DONE, EXPIRED, GONE = SettleResult.DONE, SettleResult.EXPIRED, SettleResult.GONE


def test_the_oldest_free_group_comes_first_then_more_of_the_same_then_the_next(desk: Desk) -> None:
    desk.send("a1", "b1", "a2", "c1", "b2", "a3")
    assert desk.take(2) == ["a1", "a2"]
    assert desk.take(10) == ["b1", "b2", "c1"]
    assert desk.take(10) == []


def test_a_batch_goes_on_with_the_next_group(desk: Desk) -> None:
    desk.send("a1", "b1", "a2", "b2", "b3")
    assert desk.take(4) == ["a1", "a2", "b1", "b2"]


def test_a_group_in_flight_is_blocked_until_all_of_it_is_acknowledged(desk: Desk) -> None:
    desk.send("a1", "a2", "a3", "b1")
    one, two = desk.receive(2)
    assert desk.take(10) == ["b1"]
    assert desk.ack(one) == [DONE]
    assert desk.take(10) == []
    assert desk.ack(two) == [DONE]
    assert desk.take(10) == ["a3"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_a_batch_given_back_in_any_order_is_in_order(desk: Desk, order: tuple[int, ...]) -> None:
    desk.send("a1", "a2", "a3", "b1")
    got = desk.receive(3)
    for at in order:
        assert desk.nack(got[at]) == [DONE]
    assert desk.take(10) == ["b1", "a1", "a2", "a3"]


def test_a_lease_that_is_over_gives_the_messages_back_in_their_places(desk: Desk) -> None:
    desk.send("a1", "a2", "b1")
    first = desk.receive(2, visibility_s=5)
    desk.send("a3")
    desk.wait(4.999)
    assert desk.take(10) == ["b1"]
    desk.wait(0.001)
    assert desk.ack(*first) == [EXPIRED, EXPIRED]
    assert desk.take(10) == ["a1", "a2", "a3"]


def test_an_old_holder_can_do_nothing_even_when_the_message_is_received_again(desk: Desk) -> None:
    desk.send("a1")
    (old,) = desk.receive(visibility_s=5)
    desk.wait(5)
    (new,) = desk.receive(visibility_s=5)
    assert new.token > old.token
    assert desk.ack(old) == desk.nack(old) == desk.extend(old, s=60) == [EXPIRED]
    assert desk.ack(new) == [DONE]
    assert desk.ack(new) == desk.ack(old) == [GONE]


def test_an_extended_message_blocks_itself_and_what_follows_not_what_was_before(desk: Desk) -> None:
    desk.send("a1", "a2", "a3")
    one, two, three = desk.receive(3, visibility_s=5)
    assert desk.extend(two, s=60) == [DONE]
    assert desk.take(10) == []  # who holds the batch may be at work on a1
    desk.wait(5)
    assert desk.take(10) == ["a1"]
    assert desk.ack(one, three) == [EXPIRED, EXPIRED]
    assert desk.ack(two) == [DONE]


def test_a_lease_can_be_extended_again_and_again(desk: Desk) -> None:
    desk.send("a1")
    (got,) = desk.receive(visibility_s=5)
    for _ in range(5):
        desk.wait(4)
        assert desk.extend(got, s=5) == [DONE]
    assert desk.take() == []
    assert desk.ack(got) == [DONE]


def test_a_delayed_message_waits_and_so_does_its_group_but_no_other(desk: Desk) -> None:
    desk.send("a1", delay_ms=5_000)
    desk.send("a2", "b1")
    assert desk.take(10) == ["b1"]
    desk.wait(5)
    assert desk.take(10) == ["a1", "a2"]


def test_a_queue_can_delay_all_its_messages(desk: Desk) -> None:
    desk.make("q", delay_s=5)
    desk.send("a1")
    desk.send("b1", delay_ms=0)
    assert desk.take(10) == ["b1"]
    desk.wait(5)
    assert desk.take(10) == ["a1"]


def test_given_back_with_a_delay(desk: Desk) -> None:
    desk.send("a1", "a2", "b1")
    assert desk.nack(*desk.receive(), s=5) == [DONE]
    assert desk.take(10) == ["b1"]
    desk.wait(5)
    assert desk.take(10) == ["a1", "a2"]


def test_messages_without_a_group_wait_for_no_other(desk: Desk) -> None:
    desk.send("x", "y", "z", group=None)
    one, two = desk.receive(2)
    assert desk.take(10) == ["z"]
    assert desk.nack(two) == desk.nack(one) == [DONE]
    assert desk.take(10) == ["y", "x"]


def test_one_group_can_be_asked_for(desk: Desk) -> None:
    desk.send("a1", "b1", "b2")
    assert desk.take(10, group="b") == ["b1", "b2"]
    assert desk.take(10, group="b") == desk.take(10, group="nobody") == []
    assert desk.take(10) == ["a1"]


def test_fencing_tokens_grow_and_a_batch_has_one(desk: Desk) -> None:
    desk.send("a1", "a2", "b1")
    first, second = desk.receive(2)
    (third,) = desk.receive()
    assert first.token == second.token < third.token


def test_attempts_are_counted_only_for_the_message_whose_turn_it_was(desk: Desk) -> None:
    desk.send("a1", "a2", "a3")
    for attempt in (1, 2, 3):
        got = desk.receive(3)
        assert [each.attempts for each in got] == [attempt, 1, 1]
        desk.nack(*got) if attempt % 2 else desk.wait(30)
    first, second, third = desk.receive(3)
    assert desk.ack(first) == [DONE]
    assert desk.nack(third, second) == [DONE, DONE]
    assert [each.attempts for each in desk.receive(3)] == [2, 1]


def test_a_message_that_was_tried_too_often_goes_to_the_dead_letter_queue(desk: Desk) -> None:
    desk.make("dead")
    desk.make("q", dead_letter="dead", max_receives=2)
    sent = desk.send("a1", "a2", "b1")
    for _ in range(2):
        desk.nack(*desk.receive(2, group="a"))
    assert [(str(each.entry.body), each.attempts) for each in desk.receive(2)] == [("b1", 1), ("a2", 1)]
    (dead,) = desk.read(queue="dead")
    assert (dead.body, dead.group, dead.came_from) == ("a1", "a", "q")
    assert dead.origin == sent[0].sequence_number
    assert dead.note == "received 2 times and never acknowledged"
    assert desk.take(queue="dead") == ["a1"]
    assert (desk.info().depth, desk.info("dead").depth) == (2, 1)


def test_without_its_dead_letter_queue_a_message_stays(desk: Desk) -> None:
    desk.make("q", dead_letter="nowhere", max_receives=1)
    desk.send("a1")
    for _ in range(3):
        desk.nack(*desk.receive())
    assert desk.take() == ["a1"]


def test_a_message_moved_back_is_in_its_old_place(desk: Desk) -> None:
    desk.make("dead")
    desk.send("a1", "a2", "b1", "a3")
    entries = desk.read()
    assert desk.move("dead", entries[1], entries[0]) == [DONE, DONE]
    assert desk.bodies(queue="dead") == ["a2", "a1"]
    assert desk.move("q", *desk.read(queue="dead"), queue="dead") == [DONE, DONE]
    assert desk.bodies() == ["a1", "a2", "b1", "a3"]
    assert [(each.origin, each.came_from) for each in desk.read()[:2]] == [(None, "dead")] * 2
    assert desk.take(10) == ["a1", "a2", "a3", "b1"]


def test_a_message_that_somebody_has_is_not_moved_by_another(desk: Desk) -> None:
    desk.make("dead")
    desk.send("a1", "a2")
    (held,) = desk.receive()
    assert desk.move("dead", *desk.read()) == [SettleResult.HELD, DONE]
    assert desk.change(SettleAction.MOVE, held, to="dead") == [DONE]
    assert desk.bodies(queue="dead") == ["a2", "a1"]


def test_a_message_moved_back_waits_for_what_is_in_flight(desk: Desk) -> None:
    desk.make("dead")
    desk.send("a1", "a2")
    desk.move("dead", desk.read()[0])
    (two,) = desk.receive()
    desk.move("q", *desk.read(queue="dead"), queue="dead")
    assert desk.take() == []
    desk.ack(two)
    assert desk.take() == ["a1"]


def _cancelled(desk: Desk) -> None:
    desk.purge()
    (sent,) = desk.send("a1", delay_ms=1_000)
    desk.cancel(sent.sequence_number)


def _removed(desk: Desk) -> None:
    desk.remove()
    desk.make("q")


def _moved_by_a_receive(desk: Desk) -> None:
    desk.make("q", dead_letter="dead", max_receives=1)
    desk.purge()
    desk.send("a1")
    desk.receive(visibility_s=1)
    desk.wait(1)
    assert desk.take() == []


def _retired(desk: Desk) -> None:
    desk.make("q", retention_s=60)
    desk.purge()
    desk.send("a1")
    desk.wait(60)
    assert desk.take() == []


def _rolled_back(desk: Desk) -> None:
    desk.ack(*desk.receive())
    with suppress(ZeroDivisionError), desk.store.transaction():
        desk.store.send(desk.store.queues["q"], [Draft("a", group="a")], desk.now)
        _ = 1 / 0


@pytest.mark.parametrize(
    "empty",
    [
        lambda desk: desk.ack(*desk.receive()),
        lambda desk: desk.move("dead", *desk.read()),
        lambda desk: desk.defer(*desk.receive()),
        lambda desk: desk.purge(),
        _cancelled,
        _moved_by_a_receive,
        _retired,
        _removed,
        _rolled_back,
    ],
)
def test_a_group_that_was_emptied_in_any_way_goes_on(desk: Desk, empty: Callable[[Desk], object]) -> None:
    desk.make("dead")
    desk.send("a1")
    empty(desk)
    desk.send("a2", "a3")
    assert desk.take(10) == ["a2", "a3"]


def test_a_purge_takes_everything_and_gives_no_number_twice(desk: Desk) -> None:
    before = desk.send("a1", "b1", dedup_id="same")[0]
    (held,) = desk.receive()
    with desk.store.transaction():
        desk.store.save("q", desk.store.queues["q"], purge=True)
    assert desk.info().depth == 0
    assert desk.take(10) == desk.bodies() == []
    assert desk.ack(held) == [GONE]
    (after,) = desk.send("a1", dedup_id="same")
    assert not after.duplicate
    assert after.sequence_number > before.sequence_number


def test_a_queue_that_is_removed_and_made_anew_is_empty_and_counts_on(desk: Desk) -> None:
    (before,) = desk.send("a1")
    with desk.store.transaction():
        desk.store.save("q", None)
        assert "q" not in desk.store.queues
    desk.make("q")
    assert desk.take() == []
    (after,) = desk.send("a1")
    assert after.sequence_number > before.sequence_number


def test_what_is_past_its_retention_goes(desk: Desk) -> None:
    desk.make("q", retention_s=60)
    desk.send("a1", "b1")
    (held,) = desk.receive()
    desk.wait(30)
    desk.send("a2")
    desk.wait(30)
    assert desk.take(10) == ["a2"]
    assert desk.bodies() == ["a2"]
    assert desk.ack(held) == [GONE]
    assert desk.info().depth == 1


@pytest.mark.parametrize("jump_s", [-86_400 * 365, 86_400 * 365])
def test_a_clock_that_jumps_loses_nothing_and_breaks_no_order(desk: Desk, jump_s: float) -> None:
    desk.send("a1", "a2", "b1")
    (held,) = desk.receive(visibility_s=30)
    desk.send("c1", delay_ms=20_000)
    desk.wait(jump_s)
    desk.wait(1)
    expected = ["b1"] if jump_s < 0 else ["b1", "c1", "a1", "a2"]  # what was given back comes last
    assert desk.take(10, visibility_s=30) == expected  # back: nobody waits longer than the lease was to last
    if jump_s < 0:
        desk.wait(20)
        assert desk.take(10, visibility_s=60) == ["c1"]
        desk.wait(10)
        assert desk.take(10) == ["a1", "a2", "b1"]
    assert desk.ack(held) == [EXPIRED]


def test_groups_can_be_seen(desk: Desk) -> None:
    first = desk.send("a1", "b1", "a2", "c1")
    desk.wait(1)
    desk.send("d1", delay_ms=5_000)
    (held,) = desk.receive(visibility_s=30)
    views = desk.groups()
    assert [(view.group, view.depth, view.why, view.attempts) for view in views] == [
        ("a", 2, Why.IN_FLIGHT, 1),
        ("b", 1, Why.READY, 0),
        ("c", 1, Why.READY, 0),
        ("d", 1, Why.DELAYED, 0),
    ]
    assert (views[0].head, views[0].head_sent_ms, views[0].token) == (first[0].sequence_number, 1_000_000, held.token)
    assert (views[0].until_ms, views[3].until_ms) == (held.until_ms, desk.now + 5_000)
    assert [view.group for view in desk.groups("c", "nobody", "a")] == ["a", "c"]


def test_due_is_when_something_changes_by_itself(desk: Desk) -> None:
    desk.send("a1", "b1")
    desk.receive(visibility_s=30)
    desk.receive(visibility_s=20)
    assert desk.receive() == []
    assert desk.info().due_ms == desk.now + 20_000


def test_depth_tells_what_is_in_flight_and_what_is_delayed(desk: Desk) -> None:
    desk.send("a1", "b1", "b2", "c1")
    desk.send("d1", delay_ms=5_000)
    desk.receive(3, visibility_s=30)
    desk.nack(*desk.receive(1), s=10)
    assert desk.depth() == (5, 3, 2, desk.info().last, 0)
    desk.wait(30)
    assert desk.depth()[:3] == (5, 0, 0)
    desk.ack(*desk.receive())
    assert desk.depth()[:3] == (4, 0, 0)


def test_a_message_tells_when_it_was_received_first(desk: Desk) -> None:
    desk.send("a1")
    (first,) = desk.receive(visibility_s=5)
    assert first.first_ms == desk.now
    desk.wait(5)
    (again,) = desk.receive()
    desk.nack(again, s=3)
    desk.wait(3)
    (third,) = desk.receive()
    assert [each.first_ms for each in (again, third)] == [first.first_ms] * 2


def test_nothing_of_a_transaction_that_fails_is_kept(desk: Desk) -> None:
    desk.send("a1", "b1")
    (held,) = desk.receive()
    number = held.entry.sequence_number
    with pytest.raises(ZeroDivisionError), desk.store.transaction():  # noqa: PT012 - it is the block that must not be kept
        queue = desk.store.queues["q"]
        desk.store.send(queue, [], desk.now)
        desk.store.receive(queue, [ReceiveRequest(10)], desk.now)
        desk.store.settle(queue, [Settlement(number, held.token, SettleAction.ACK)], desk.now)
        1 / 0  # noqa: B018 - raises
    assert desk.info().depth == 2
    assert desk.take(10) == ["b1"]
    assert desk.ack(held) == [DONE]


def test_what_is_past_its_retention_goes_though_somebody_has_it(desk: Desk) -> None:
    desk.make("q", retention_s=60)
    desk.send("a1", "a2")
    desk.wait(30)
    desk.send("a3")
    got = desk.receive(3, visibility_s=40)
    desk.wait(31)
    assert desk.take(10, group="b") == []
    assert desk.ack(*got[:2]) == [GONE, GONE]
    assert [(group.depth, group.why) for group in desk.groups()] == [(1, Why.IN_FLIGHT)]
    desk.wait(10)
    assert desk.take(10) == ["a3"]


def test_each_of_several_receivers_has_all_it_wants_of_a_group(desk: Desk) -> None:
    desk.send(*"a" * 12, *"b" * 12)
    answers = desk.receive_each(ReceiveRequest(10), ReceiveRequest(10))
    assert ["".join(str(each.entry.body) for each in given) for given in answers] == ["a" * 10, "b" * 10]
