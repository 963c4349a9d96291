"""Locked and parked groups, deferred and scheduled messages: the rules of core/queue/sessions.py, over every store."""

from pathlib import Path

import pytest
from store_harness import STORES, StoreHarness

from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Delivery, GroupAvailability, ReceiveRequest
from inturn.core.queue.sessions import GroupLock, ParkedGroup, SessionAnswer, SessionRequest, SessionVerb, decide

DONE, EXPIRED, HELD, GONE, LATE = (
    SettleResult.DONE,
    SettleResult.EXPIRED,
    SettleResult.HELD,
    SettleResult.GONE,
    SettleResult.LATE,
)


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [str(delivery.message.body) for delivery in deliveries]


def locked(harness: StoreHarness, group: str | None = None, s: float = 10) -> SessionAnswer:
    answer = harness.lock(group, s=s)
    assert answer.verdict is DONE
    return answer


# --- the lock ---


def test_a_session_locks_the_oldest_free_group_against_receivers(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "a2", "b2", "c1")
    lock = locked(harness)
    assert lock.group == "a"
    assert harness.take(10) == ["b1", "b2", "c1"]
    assert harness.take(10, group="a") == []
    assert bodies(harness.within(lock, 10)) == ["a1", "a2"]


def test_a_group_is_locked_by_one_session_at_a_time(harness: StoreHarness) -> None:
    harness.send("a1", "b1")
    assert [locked(harness).group, locked(harness).group] == ["a", "b"]
    assert harness.lock().verdict is HELD
    assert harness.lock("a").verdict is HELD


def test_a_session_can_lock_a_group_without_messages(harness: StoreHarness) -> None:
    lock = locked(harness, "a")
    assert harness.lock().verdict is HELD, "no group has messages"
    harness.send("a1")
    assert harness.take() == []
    assert harness.lock().verdict is HELD, "the only one is locked"
    assert bodies(harness.within(lock)) == ["a1"]


def test_a_session_receives_messages_after_those_it_holds(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "a3", "a4")
    lock = locked(harness)
    first, second = harness.within(lock, 2)
    assert bodies(harness.within(lock)) == ["a3"]
    harness.nack(second)
    assert bodies(harness.within(lock, 10)) == ["a2", "a4"], "what was given back is in its old place"
    harness.ack(first)
    assert harness.within(lock) == []


def test_a_delayed_message_blocks_a_session_too(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "a3")
    lock = locked(harness)
    first, _ = harness.within(lock, 2)
    harness.nack(first, s=3)
    assert harness.within(lock, 5) == []
    harness.wait(3)
    assert bodies(harness.within(lock, 5)) == ["a1", "a3"]


def test_session_messages_have_the_deadline_and_token_of_the_lock(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    lock = locked(harness, s=10)
    harness.wait(4)
    (first,) = harness.within(lock)
    assert (first.until_ms, first.token) == (harness.now + 6_000, lock.group_lock.token)
    assert harness.hold(lock, SessionVerb.RENEW, s=20).group_lock.until_ms == harness.now + 20_000
    harness.wait(19)
    assert harness.ack(first) == [DONE]


def test_extending_a_session_message_renews_the_lock(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    lock = locked(harness, s=10)
    deliveries = harness.within(lock, 2)
    assert harness.extend(deliveries[1], s=30) == [DONE]
    harness.wait(29)
    assert harness.hold(lock, SessionVerb.LOOK).verdict is DONE
    assert harness.ack(*deliveries) == [DONE, DONE]


def test_extending_a_session_message_by_zero_releases_the_lock(harness: StoreHarness) -> None:
    """In one set with others, each of which sees what the one before has done."""
    harness.send("a1", "a2")
    lock = locked(harness)
    first, second = (delivery.message.sequence_number for delivery in harness.within(lock, 2))
    token = lock.group_lock.token
    assert harness.settle(
        Settlement(second, token, SettleAction.EXTEND), Settlement(first, token, SettleAction.ACK)
    ) == [
        DONE,
        EXPIRED,
    ]
    assert harness.take(10) == ["a1", "a2"]


def test_an_expired_lock_releases_its_messages_and_refuses_every_verb(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "a3")
    lock = locked(harness, s=10)
    harness.hold(lock, SessionVerb.SET_STATE, state=b"before")
    deliveries = harness.within(lock, 2)
    harness.wait(10)
    for verb in (
        SessionVerb.LOOK,
        SessionVerb.RENEW,
        SessionVerb.CLOSE,
        SessionVerb.PARK,
        SessionVerb.GET_STATE,
        SessionVerb.SET_STATE,
    ):
        assert harness.hold(lock, verb, s=10, note="late", state=b"late").verdict is EXPIRED
    assert harness.ack(*deliveries) + harness.defer(*deliveries) + harness.nack(*deliveries) == [EXPIRED] * 6
    assert harness.within(lock) == []
    relocked = locked(harness)
    assert relocked.group_lock.token is not None
    assert lock.group_lock.token is not None
    assert relocked.group_lock.token > lock.group_lock.token
    assert harness.hold(relocked, SessionVerb.GET_STATE).state == b"before"
    assert bodies(harness.within(relocked, 5)) == ["a1", "a2", "a3"]
    assert harness.ack(*deliveries) == [EXPIRED, EXPIRED], "somebody else has them"


def test_an_expired_lock_lets_ordinary_receivers_receive_the_group(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    harness.within(locked(harness, s=10), 1)
    assert harness.take() == []
    harness.wait(10)
    deliveries = harness.receive(5)
    assert [(delivery.message.body, delivery.attempts) for delivery in deliveries] == [("a1", 2), ("a2", 1)]


def test_closing_a_session_returns_unsettled_messages(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "a3")
    lock = locked(harness)
    first, *_ = harness.within(lock, 2)
    harness.ack(first)
    assert harness.hold(lock, SessionVerb.CLOSE).verdict is DONE
    assert harness.hold(lock, SessionVerb.CLOSE).verdict is EXPIRED
    assert harness.take(5) == ["a2", "a3"]


def test_session_messages_behind_the_first_use_no_attempt(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    for attempt in (1, 2, 3):
        lock = locked(harness)
        assert [delivery.attempts for delivery in harness.within(lock, 2)] == [attempt, 1]
        harness.hold(lock, SessionVerb.CLOSE)


def test_a_group_with_a_message_in_flight_cannot_be_locked(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "a3")
    first, second = harness.receive(2)
    assert harness.lock("a").verdict is harness.lock().verdict is HELD
    harness.extend(second, s=60)
    harness.nack(first)
    assert harness.groups()[0].availability is GroupAvailability.IN_FLIGHT
    assert harness.lock("a").verdict is harness.lock().verdict is HELD, "a session would not be alone"
    harness.ack(second)
    assert locked(harness).group == "a"


def test_a_session_skips_groups_that_are_not_free(harness: StoreHarness) -> None:
    names = [chr(97 + index) for index in range(20)]
    harness.send(*(f"{name}{number}" for name in names for number in (1, 2)))
    for name in names[:-1]:
        first, second = harness.receive(2, group=name)
        harness.defer(second)
        harness.nack(first)
        assert harness.fetch(second.message.sequence_number), "the group is in the line, but somebody has its second"
    harness.send("single", group=None)
    assert locked(harness).group == names[-1]
    assert harness.lock().verdict is HELD


def test_a_session_gets_no_ungrouped_messages(harness: StoreHarness) -> None:
    harness.send("x", "y", group=None)
    assert harness.lock().verdict is HELD
    harness.send("a1")
    assert locked(harness).group == "a"
    assert harness.take(5) == ["x", "y"]


def test_a_group_with_a_delayed_first_message_is_locked_only_by_name(harness: StoreHarness) -> None:
    harness.send("a1", delay_ms=5_000)
    assert harness.lock().verdict is HELD
    assert harness.info().due_ms == harness.now + 5_000
    lock = locked(harness, "a")
    assert harness.within(lock) == []
    harness.wait(5)
    assert bodies(harness.within(lock)) == ["a1"]


def test_session_state_is_kept_until_set_to_none(harness: StoreHarness) -> None:
    harness.send("a1")
    for before, after in ((None, b"one"), (b"one", b""), (b"", None), (None, b"two")):
        lock = locked(harness, "a")
        assert harness.hold(lock, SessionVerb.GET_STATE).state == before
        harness.hold(lock, SessionVerb.SET_STATE, state=after)
        assert harness.hold(lock, SessionVerb.GET_STATE).state == after
        harness.hold(lock, SessionVerb.CLOSE)
    harness.purge()
    assert harness.hold(locked(harness, "a"), SessionVerb.GET_STATE).state == b"two"


def test_a_message_failing_in_sessions_max_receives_times_becomes_a_dead_letter(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.make("q", dead_letter="dead", max_receives=2)
    harness.send("a1", "a2")
    lock = locked(harness)
    for _ in range(2):
        harness.nack(*harness.within(lock))
    assert bodies(harness.within(lock, 5)) == ["a2"]
    assert harness.bodies(queue="dead") == ["a1"]


def test_a_message_moved_back_to_a_locked_group_goes_to_the_session(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.send("a1", "a2", "a3")
    harness.move("dead", *harness.read(limit=1))
    lock = locked(harness, "a")
    first, _ = harness.within(lock, 2)
    harness.move("q", *harness.read(queue="dead"), queue="dead")
    assert harness.take(5) == []
    assert bodies(harness.within(lock, 5)) == ["a1"]
    assert harness.ack(first) == [DONE]


def test_a_clock_set_back_does_not_shorten_a_lock(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    lock = locked(harness, s=10)
    (first,) = harness.within(lock)
    harness.wait(-100)
    assert harness.take() == []
    harness.wait(9)
    assert harness.hold(lock, SessionVerb.LOOK).verdict is DONE
    assert harness.ack(first) == [DONE], "a message lasts as long as its lock"
    harness.wait(1)
    assert harness.take() == ["a2"]


def test_due_ms_includes_the_end_of_a_lock(harness: StoreHarness) -> None:
    harness.send("a1")
    locked(harness, s=7)
    harness.receive()
    assert harness.info().due_ms == harness.now + 7_000


def test_groups_shows_locked_and_parked_groups(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "c1")
    lock = locked(harness, "a", s=10)
    harness.ask("b", SessionVerb.PARK, note="bad data")
    a, b, c = harness.groups()
    assert (a.availability, a.until_ms, a.token, a.note) == (
        GroupAvailability.LOCKED,
        harness.now + 10_000,
        lock.group_lock.token,
        None,
    )
    assert (b.availability, b.until_ms, b.token, b.note) == (GroupAvailability.PARKED, None, None, "bad data")
    assert (c.availability, c.note) == (GroupAvailability.READY, None)


# --- parked ---


def test_a_parked_group_keeps_its_message_order(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "a3", "b1")
    lock = locked(harness)
    first, *_ = harness.within(lock, 2)
    harness.ack(first)
    assert harness.hold(lock, SessionVerb.PARK, note="cannot be parsed").verdict is DONE
    parked_ms = harness.now
    assert harness.hold(lock, SessionVerb.LOOK).verdict is EXPIRED, "the session is over"
    harness.send("a4")
    assert harness.take(10) == ["b1"]
    harness.wait(1_000_000)
    assert harness.take(10, group="a") == []
    assert harness.lock("a").verdict is HELD
    assert harness.parked() == [ParkedGroup("a", "cannot be parsed", parked_ms)]
    assert harness.ask("a", SessionVerb.RESUME).verdict is DONE
    assert harness.ask("a", SessionVerb.RESUME).verdict is GONE
    assert harness.parked() == []
    harness.wait(1)
    assert harness.take(10, group="a") == ["a2", "a3", "a4"]


def test_park_without_a_session_needs_a_free_group(harness: StoreHarness) -> None:
    harness.send("a1", "b1")
    lock, (b1,) = locked(harness, "a"), harness.receive()
    assert (
        harness.ask("a", SessionVerb.PARK, note="x").verdict
        is harness.ask("b", SessionVerb.PARK, note="x").verdict
        is HELD
    )
    harness.hold(lock, SessionVerb.CLOSE)
    harness.nack(b1)
    harness.ask("b", SessionVerb.PARK, note="first")
    harness.wait(1)
    harness.ask("a", SessionVerb.PARK, note="second")
    harness.ask("empty", SessionVerb.PARK, note="third")
    assert [(group.group, group.note) for group in harness.parked()] == [
        ("b", "first"),
        ("a", "second"),
        ("empty", "third"),
    ]
    assert harness.depth().parked == 3
    harness.send("e1", group="empty")
    assert harness.take(5) == []
    harness.ask("b", SessionVerb.RESUME)
    assert harness.depth().parked == 2


def test_resume_with_a_parking_time_applies_only_to_that_parking(harness: StoreHarness) -> None:
    harness.ask("a", SessionVerb.PARK, note="x")
    parked_s = harness.now / 1000
    harness.wait(1)
    assert harness.ask("a", SessionVerb.RESUME, s=parked_s + 1).verdict is GONE
    harness.ask("a", SessionVerb.PARK, note="again")
    assert harness.ask("a", SessionVerb.RESUME, s=parked_s).verdict is GONE
    assert [group.note for group in harness.parked()] == ["again"]
    assert harness.ask("a", SessionVerb.RESUME, s=parked_s + 1).verdict is DONE
    assert harness.parked() == []


def test_a_parked_group_stays_parked_after_purge_but_not_after_queue_deletion(harness: StoreHarness) -> None:
    harness.send("a1")
    harness.ask("a", SessionVerb.PARK, note="x")
    harness.purge()
    harness.send("a2")
    assert harness.take() == []
    harness.remove()
    harness.make("q")
    harness.send("a3")
    assert harness.take() == ["a3"]
    assert harness.parked() == []


def test_a_parked_group_makes_no_dead_letters_but_retention_applies(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.make("q", dead_letter="dead", max_receives=1, retention_s=100)
    harness.send("a1", "a2")
    harness.nack(*harness.receive())
    harness.ask("a", SessionVerb.PARK, note="x")
    assert harness.take() == []
    assert harness.bodies(queue="dead") == []
    harness.wait(50)
    harness.send("a3")
    harness.wait(50)
    assert harness.take() == []
    assert harness.bodies() == ["a3"]
    harness.ask("a", SessionVerb.RESUME)
    assert harness.take() == ["a3"]


def test_messages_can_be_moved_out_of_a_parked_group(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.send("a1", "a2")
    harness.ask("a", SessionVerb.PARK, note="x")
    assert harness.move("dead", *harness.read(limit=1)) == [DONE]
    assert harness.take() == []
    harness.ask("a", SessionVerb.RESUME)
    assert harness.take(5) == ["a2"]


# --- deferred ---


def test_a_deferred_message_is_skipped_and_fetched_by_number(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    (first,) = harness.receive()
    number = first.message.sequence_number
    assert harness.defer(first) == [DONE]
    assert harness.ack(first) == [EXPIRED], "its lease is over"
    (second,) = harness.receive()
    assert second.message.body == "a2"
    (redelivered,) = harness.fetch(number)
    assert (redelivered.message, redelivered.attempts) == (first.message, 1)
    assert harness.fetch(number) == [], "somebody has it"
    assert harness.ack(second, redelivered) == [DONE, DONE]
    assert harness.fetch(number) == []
    assert harness.depth().messages == 0


def test_a_deferred_message_counts_in_depth_and_peek_but_is_not_ready(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "b1")
    harness.defer(*harness.receive())
    assert harness.depth()[:3] == (3, 0, 0)
    assert harness.depth().deferred == 1
    assert harness.bodies(pending=True) == ["a1", "a2", "b1"]
    assert harness.bodies(pending=True, group="a") == ["a1", "a2"]
    assert harness.bodies(deferred=True) == harness.bodies(deferred=True, group="a") == ["a1"]
    assert harness.bodies(deferred=True, group="b") == []
    assert [(group.group, group.depth) for group in harness.groups()] == [("a", 1), ("b", 1)]
    first, second, _ = harness.read()
    assert harness.bodies(group="a", after=first.sequence_number) == ["a2"]
    assert harness.bodies(group="a", after=second.sequence_number) == []


def test_a_fetched_unsettled_message_is_deferred_again(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    (first,) = harness.receive()
    number = first.message.sequence_number
    harness.defer(first)
    harness.nack(*harness.fetch(number))
    assert harness.bodies(deferred=True) == ["a1"]
    (redelivered,) = harness.fetch(number)
    assert redelivered.attempts == 2
    harness.wait(30)
    assert harness.ack(redelivered) == [EXPIRED]
    assert harness.take(5) == ["a2"], "it is not back in line"
    (redelivered,) = harness.fetch(number)
    harness.nack(redelivered, s=5)
    assert harness.fetch(number) == []
    harness.wait(5)
    (redelivered,) = harness.fetch(number)
    assert harness.extend(redelivered, s=60) == [DONE]
    harness.wait(59)
    assert harness.defer(redelivered) == [DONE]
    assert harness.bodies(deferred=True) == ["a1"]


def test_defer_uses_no_attempt_and_nack_after_fetch_does(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.make("q", dead_letter="dead", max_receives=1)
    harness.send("a1")
    (first,) = harness.receive()
    harness.defer(first)
    (redelivered,) = harness.fetch(first.message.sequence_number)
    harness.nack(redelivered)
    assert harness.fetch(first.message.sequence_number) == []
    assert harness.bodies(queue="dead") == ["a1"]
    assert harness.depth().messages == 0


def test_fetch_returns_only_deferred_messages_of_the_queue(harness: StoreHarness) -> None:
    harness.make("other")
    harness.send("a1")
    elsewhere = harness.send("b1", queue="other")
    (first,) = harness.read()
    assert harness.fetch(first.sequence_number) == harness.fetch(99) == []
    harness.defer(*harness.receive(queue="other"), queue="other")
    assert harness.fetch(elsewhere[0].sequence_number) == [], "it is in another queue"
    assert len(harness.fetch(elsewhere[0].sequence_number, queue="other")) == 1


def test_an_ungrouped_message_can_be_deferred_and_fetched(harness: StoreHarness) -> None:
    harness.send("x", "y", group=None)
    (first,) = harness.receive()
    harness.defer(first)
    assert harness.take(5) == ["y"]
    harness.wait(30)
    assert harness.take(5) == ["y"]
    (redelivered,) = harness.fetch(first.message.sequence_number)
    assert harness.ack(redelivered) == [DONE]


def test_a_session_defers_and_fetches_only_in_its_group(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "b1")
    a = locked(harness, "a")
    (first,) = harness.within(a)
    number = first.message.sequence_number
    harness.defer(first)
    assert harness.fetch(number) == [], "the group is the session's"
    b = locked(harness, "b")
    assert harness.fetch(number, lock=b) == []
    (redelivered,) = harness.fetch(number, lock=a)
    assert (redelivered.token, redelivered.until_ms) == (a.group_lock.token, a.group_lock.until_ms)
    assert bodies(harness.within(a, 5)) == ["a2"]
    harness.hold(a, SessionVerb.RENEW, s=100)
    harness.wait(90)
    assert harness.ack(redelivered) == [DONE], "it was renewed with the rest"


def test_a_message_fetched_by_a_session_is_deferred_again_when_the_session_ends(harness: StoreHarness) -> None:
    harness.send("a1", "a2")
    lock = locked(harness)
    (first,) = harness.within(lock)
    harness.defer(first)
    harness.fetch(first.message.sequence_number, lock=lock)
    assert harness.depth().in_flight == 1
    harness.hold(lock, SessionVerb.CLOSE)
    assert harness.depth().in_flight == 0
    assert harness.take(5) == ["a2"]
    assert len(harness.fetch(first.message.sequence_number)) == 1
    assert harness.lock("a").verdict is HELD, "somebody has a message of it"


def test_fetch_skips_deferred_messages_of_a_parked_group(harness: StoreHarness) -> None:
    harness.send("a1")
    (first,) = harness.receive()
    harness.defer(first)
    harness.ask("a", SessionVerb.PARK, note="x")
    assert harness.fetch(first.message.sequence_number) == []
    harness.ask("a", SessionVerb.RESUME)
    assert len(harness.fetch(first.message.sequence_number)) == 1


def test_move_retention_and_purge_apply_to_deferred_messages(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.make("q", retention_s=100)
    harness.send("a1", "a2", "a3")
    harness.defer(*harness.receive())
    harness.move("dead", *harness.read(limit=1))
    assert harness.take(queue="dead") == ["a1"]
    assert harness.depth().deferred == 0
    harness.wait(40)  # the lease
    harness.defer(*harness.receive())
    harness.wait(60)
    assert harness.take() == []
    assert harness.depth()[::4] == (0, 0)
    harness.send("a4")
    harness.defer(*harness.receive())
    assert harness.depth()[::4] == (1, 1)
    harness.purge()
    assert harness.depth()[::4] == (0, 0)


def test_readers_read_deferred_messages_and_keep_them(harness: StoreHarness) -> None:
    harness.readers(r=0)
    harness.send("a1")
    (first,) = harness.receive()
    harness.defer(first)
    harness.readers(r=first.message.sequence_number)
    assert harness.bodies() == ["a1"], "it is not acknowledged"
    harness.readers(r=0)
    harness.ack(*harness.fetch(first.message.sequence_number))
    assert harness.bodies() == ["a1"], "it is not read"
    assert harness.fetch(first.message.sequence_number) == []
    harness.readers(r=first.message.sequence_number)
    assert harness.bodies() == []


# --- cancelled ---


def test_cancel_removes_a_scheduled_message_before_its_time(harness: StoreHarness) -> None:
    (first,) = harness.send("a1", delay_ms=5_000)
    harness.send("a2")
    assert harness.take() == [], "it is in its group's way"
    assert harness.cancel(first.sequence_number) == [DONE]
    assert harness.cancel(first.sequence_number) == [GONE]
    assert harness.take() == ["a2"]
    assert harness.depth().messages == 1
    (third,) = harness.send("b1", delay_ms=5_000)
    harness.wait(5)
    assert harness.cancel(third.sequence_number) == [LATE]
    assert harness.take() == ["b1"]
    assert harness.cancel(third.sequence_number) == [HELD]


def test_cancel_refuses_messages_that_were_received_or_deferred(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "b2")
    a, b, later = harness.receive(3)
    harness.nack(a, b, later, s=5)
    assert harness.cancel(*(delivery.message.sequence_number for delivery in (a, b, later))) == [LATE] * 3
    (x,) = harness.send("x", group=None)
    assert harness.cancel(x.sequence_number) == [LATE]
    harness.defer(*harness.receive())
    assert harness.cancel(x.sequence_number) == [LATE]


def test_a_cancelled_message_keeps_its_dedup_id_and_is_not_read(harness: StoreHarness) -> None:
    harness.readers(r=0)
    (first,) = harness.send("a1", delay_ms=5_000, dedup_id="1")
    harness.cancel(first.sequence_number)
    assert harness.bodies() == [], "no reader reads it"
    assert harness.send("a1", dedup_id="1") == [(first.sequence_number, True, None)]


# --- the rules alone ---


def test_receive_each_serves_sessions_and_ordinary_receivers_together(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "b2", "c1")
    lock = locked(harness, "b")
    parts = harness.receive_each(
        ReceiveRequest(1),
        ReceiveRequest(1, None, "b", lock.group_lock.token),
        ReceiveRequest(5),
        ReceiveRequest(1, group="b"),
    )
    assert [bodies(deliveries) for deliveries in parts] == [["a1"], ["b1"], ["c1"], []]


@pytest.mark.parametrize("verb", list(SessionVerb))
def test_a_group_lock_is_changed_only_by_its_holder(verb: SessionVerb) -> None:
    group_lock = GroupLock(token=7, until_ms=100, since_ms=0)
    for token, now_ms in ((8, 50), (None, 50), (7, 100)):
        verdict, after = decide(group_lock, SessionRequest(verb, token, 10), now_ms, is_held=False, token=9)
        free = now_ms == 100 and (verb is SessionVerb.LOCK or (verb is SessionVerb.PARK and token is None))
        assert (verdict is DONE) == free
        assert free or after == group_lock


def test_a_session_request_without_a_token_is_refused(harness: StoreHarness) -> None:
    assert harness.hold(SessionAnswer(DONE, "a"), SessionVerb.RENEW, s=5).verdict is EXPIRED


@pytest.mark.thorough
def test_parked_locked_and_deferred_messages_do_not_raise_the_cost_of_receive(tmp_path: Path) -> None:
    """What is counted is not time but the steps of SQLite's machine."""
    harness = StoreHarness(STORES["sqlite"](tmp_path, str))
    connection = harness.store.connection  # type: ignore[attr-defined]
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def cost() -> int:
        nonlocal steps
        connection.set_progress_handler(step, 10)
        steps = 0
        harness.send("z1", "z2")
        assert list(harness.drain()) == ["z1", "z2"]
        connection.set_progress_handler(None, 0)
        return steps

    harness.make("q")
    cost()
    before = cost()
    for name in map(str, range(1_000)):
        harness.send("z", "z", group=name)
        lock = harness.lock(name, s=1_000)
        harness.defer(*harness.within(lock))
        if int(name) % 2:
            harness.hold(lock, SessionVerb.PARK, note="x")
        harness.send("z of which the rest is free")
        harness.defer(*harness.receive())
    assert cost() < before * 1.5 + 20
    harness.close()


def test_a_refused_session_request_does_not_report_an_expired_lock(harness: StoreHarness) -> None:
    lock = harness.lock("a", s=1)
    harness.wait(1)
    assert harness.hold(lock, SessionVerb.PARK) == SessionAnswer(SettleResult.EXPIRED, "a")
    assert harness.ask("a", SessionVerb.RESUME) == SessionAnswer(SettleResult.GONE, "a")
