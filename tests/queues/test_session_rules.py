"""Locked and parked groups, deferred and scheduled messages: the rules of core/queue/sessions.py, over every store."""

from pathlib import Path

import pytest
from desk import STORES, Desk

from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Delivery, ParkedGroup, ReceiveRequest, Why
from inturn.core.queue.sessions import GroupLock, SessionAnswer, SessionRequest, SessionVerb, decide

DONE, EXPIRED, HELD, GONE, LATE = (
    SettleResult.DONE,
    SettleResult.EXPIRED,
    SettleResult.HELD,
    SettleResult.GONE,
    SettleResult.LATE,
)


def bodies(got: list[Delivery]) -> list[str]:
    return [str(each.entry.body) for each in got]


def locked(desk: Desk, group: str | None = None, s: float = 10) -> SessionAnswer:
    answer = desk.lock(group, s=s)
    assert answer.verdict is DONE
    return answer


# --- the lock ---


def test_a_session_has_the_oldest_free_group_and_nobody_else_is_given_any_of_it(desk: Desk) -> None:
    desk.send("a1", "b1", "a2", "b2", "c1")
    lock = locked(desk)
    assert lock.group == "a"
    assert desk.take(10) == ["b1", "b2", "c1"]
    assert desk.take(10, group="a") == []
    assert bodies(desk.within(lock, 10)) == ["a1", "a2"]


def test_a_group_is_one_sessions_alone(desk: Desk) -> None:
    desk.send("a1", "b1")
    assert [locked(desk).group, locked(desk).group] == ["a", "b"]
    assert desk.lock().verdict is HELD
    assert desk.lock("a").verdict is HELD


def test_a_session_can_have_a_group_without_messages_and_is_given_what_comes(desk: Desk) -> None:
    lock = locked(desk, "a")
    assert desk.lock().verdict is HELD, "no group has messages"
    desk.send("a1")
    assert desk.take() == []
    assert desk.lock().verdict is HELD, "the only one is locked"
    assert bodies(desk.within(lock)) == ["a1"]


def test_a_session_goes_on_behind_what_it_has(desk: Desk) -> None:
    desk.send("a1", "a2", "a3", "a4")
    lock = locked(desk)
    first, second = desk.within(lock, 2)
    assert bodies(desk.within(lock)) == ["a3"]
    desk.nack(second)
    assert bodies(desk.within(lock, 10)) == ["a2", "a4"], "what was given back is in its old place"
    desk.ack(first)
    assert desk.within(lock) == []


def test_what_is_delayed_is_in_the_way_of_a_session_too(desk: Desk) -> None:
    desk.send("a1", "a2", "a3")
    lock = locked(desk)
    first, _ = desk.within(lock, 2)
    desk.nack(first, s=3)
    assert desk.within(lock, 5) == []
    desk.wait(3)
    assert bodies(desk.within(lock, 5)) == ["a1", "a3"]


def test_messages_are_leased_as_long_as_the_lock_and_under_its_token(desk: Desk) -> None:
    desk.send("a1", "a2")
    lock = locked(desk, s=10)
    desk.wait(4)
    (first,) = desk.within(lock)
    assert (first.until_ms, first.token) == (desk.now + 6_000, lock.gate.token)
    assert desk.hold(lock, SessionVerb.RENEW, s=20).gate.until_ms == desk.now + 20_000
    desk.wait(19)
    assert desk.ack(first) == [DONE]


def test_to_extend_a_message_of_a_session_is_to_renew_it(desk: Desk) -> None:
    desk.send("a1", "a2")
    lock = locked(desk, s=10)
    got = desk.within(lock, 2)
    assert desk.extend(got[1], s=30) == [DONE]
    desk.wait(29)
    assert desk.hold(lock, SessionVerb.LOOK).verdict is DONE
    assert desk.ack(*got) == [DONE, DONE]


def test_to_extend_a_message_by_nothing_is_to_let_go_of_all(desk: Desk) -> None:
    """In one set with others, each of which sees what the one before has done."""
    desk.send("a1", "a2")
    lock = locked(desk)
    first, second = (each.entry.sequence_number for each in desk.within(lock, 2))
    token = lock.gate.token
    assert desk.settle(Settlement(second, token, SettleAction.EXTEND), Settlement(first, token, SettleAction.ACK)) == [
        DONE,
        EXPIRED,
    ]
    assert desk.take(10) == ["a1", "a2"]


def test_a_lock_that_is_over_gives_back_everything_and_changes_nothing_any_more(desk: Desk) -> None:
    desk.send("a1", "a2", "a3")
    lock = locked(desk, s=10)
    desk.hold(lock, SessionVerb.SET_STATE, state=b"before")
    got = desk.within(lock, 2)
    desk.wait(10)
    for verb in (
        SessionVerb.LOOK,
        SessionVerb.RENEW,
        SessionVerb.CLOSE,
        SessionVerb.PARK,
        SessionVerb.GET_STATE,
        SessionVerb.SET_STATE,
    ):
        assert desk.hold(lock, verb, s=10, note="late", state=b"late").verdict is EXPIRED
    assert desk.ack(*got) + desk.defer(*got) + desk.nack(*got) == [EXPIRED] * 6
    assert desk.within(lock) == []
    again = locked(desk)
    assert again.gate.token is not None
    assert lock.gate.token is not None
    assert again.gate.token > lock.gate.token
    assert desk.hold(again, SessionVerb.GET_STATE).state == b"before"
    assert bodies(desk.within(again, 5)) == ["a1", "a2", "a3"]
    assert desk.ack(*got) == [EXPIRED, EXPIRED], "somebody else has them"


def test_a_lock_that_is_over_lets_ordinary_receivers_in(desk: Desk) -> None:
    desk.send("a1", "a2")
    desk.within(locked(desk, s=10), 1)
    assert desk.take() == []
    desk.wait(10)
    got = desk.receive(5)
    assert [(each.entry.body, each.attempts) for each in got] == [("a1", 2), ("a2", 1)]


def test_a_session_that_is_closed_gives_back_what_it_has(desk: Desk) -> None:
    desk.send("a1", "a2", "a3")
    lock = locked(desk)
    first, *_ = desk.within(lock, 2)
    desk.ack(first)
    assert desk.hold(lock, SessionVerb.CLOSE).verdict is DONE
    assert desk.hold(lock, SessionVerb.CLOSE).verdict is EXPIRED
    assert desk.take(5) == ["a2", "a3"]


def test_messages_behind_the_head_have_used_up_no_attempt(desk: Desk) -> None:
    desk.send("a1", "a2")
    for attempt in (1, 2, 3):
        lock = locked(desk)
        assert [each.attempts for each in desk.within(lock, 2)] == [attempt, 1]
        desk.hold(lock, SessionVerb.CLOSE)


def test_a_group_of_which_somebody_has_a_message_cannot_be_locked(desk: Desk) -> None:
    desk.send("a1", "a2", "a3")
    first, second = desk.receive(2)
    assert desk.lock("a").verdict is desk.lock().verdict is HELD
    desk.extend(second, s=60)
    desk.nack(first)
    assert desk.groups()[0].why is Why.READY, "what is before an extended lease can be received"
    assert desk.lock("a").verdict is desk.lock().verdict is HELD, "but a session would not be alone"
    desk.ack(second)
    assert locked(desk).group == "a"


def test_the_next_free_group_is_looked_for_behind_those_that_are_not(desk: Desk) -> None:
    names = [chr(97 + at) for at in range(20)]
    desk.send(*(f"{name}{at}" for name in names for at in (1, 2)))
    for name in names[:-1]:
        first, second = desk.receive(2, group=name)
        desk.extend(second, s=60)
        desk.nack(first)
    desk.send("single", group=None)
    assert locked(desk).group == names[-1]
    assert desk.lock().verdict is HELD


def test_a_message_without_a_group_is_no_sessions(desk: Desk) -> None:
    desk.send("x", "y", group=None)
    assert desk.lock().verdict is HELD
    desk.send("a1")
    assert locked(desk).group == "a"
    assert desk.take(5) == ["x", "y"]


def test_a_group_whose_head_is_delayed_is_not_the_next_but_can_be_named(desk: Desk) -> None:
    desk.send("a1", delay_ms=5_000)
    assert desk.lock().verdict is HELD
    assert desk.info().due_ms == desk.now + 5_000
    lock = locked(desk, "a")
    assert desk.within(lock) == []
    desk.wait(5)
    assert bodies(desk.within(lock)) == ["a1"]


def test_the_state_stays_until_it_is_set_to_nothing(desk: Desk) -> None:
    desk.send("a1")
    for before, after in ((None, b"one"), (b"one", b""), (b"", None), (None, b"two")):
        lock = locked(desk, "a")
        assert desk.hold(lock, SessionVerb.GET_STATE).state == before
        desk.hold(lock, SessionVerb.SET_STATE, state=after)
        assert desk.hold(lock, SessionVerb.GET_STATE).state == after
        desk.hold(lock, SessionVerb.CLOSE)
    desk.purge()
    assert desk.hold(locked(desk, "a"), SessionVerb.GET_STATE).state == b"two"


def test_what_fails_in_sessions_too_often_goes_to_the_dead_letter_queue(desk: Desk) -> None:
    desk.make("dead")
    desk.make("q", dead_letter="dead", max_receives=2)
    desk.send("a1", "a2")
    lock = locked(desk)
    for _ in range(2):
        desk.nack(*desk.within(lock))
    assert bodies(desk.within(lock, 5)) == ["a2"]
    assert desk.bodies(queue="dead") == ["a1"]


def test_a_message_that_comes_back_to_a_locked_group_is_the_sessions(desk: Desk) -> None:
    desk.make("dead")
    desk.send("a1", "a2", "a3")
    desk.move("dead", *desk.read(limit=1))
    lock = locked(desk, "a")
    first, _ = desk.within(lock, 2)
    desk.move("q", *desk.read(queue="dead"), queue="dead")
    assert desk.take(5) == []
    assert bodies(desk.within(lock, 5)) == ["a1"]
    assert desk.ack(first) == [DONE]


def test_a_clock_that_is_set_back_shortens_no_lock(desk: Desk) -> None:
    desk.send("a1", "a2")
    lock = locked(desk, s=10)
    (first,) = desk.within(lock)
    desk.wait(-100)
    assert desk.take() == []
    desk.wait(9)
    assert desk.hold(lock, SessionVerb.LOOK).verdict is DONE
    assert desk.ack(first) == [DONE], "a message lasts as long as its lock"
    desk.wait(1)
    assert desk.take() == ["a2"]


def test_an_unanswered_wait_knows_when_a_lock_is_over(desk: Desk) -> None:
    desk.send("a1")
    locked(desk, s=7)
    desk.receive()
    assert desk.info().due_ms == desk.now + 7_000


def test_the_groups_say_who_is_locked_and_who_is_parked(desk: Desk) -> None:
    desk.send("a1", "b1", "c1")
    lock = locked(desk, "a", s=10)
    desk.ask("b", SessionVerb.PARK, note="bad data")
    a, b, c = desk.groups()
    assert (a.why, a.until_ms, a.token, a.note) == (Why.LOCKED, desk.now + 10_000, lock.gate.token, None)
    assert (b.why, b.until_ms, b.token, b.note) == (Why.PARKED, None, None, "bad data")
    assert (c.why, c.note) == (Why.READY, None)


# --- parked ---


def test_a_parked_group_keeps_its_order_and_new_messages_come_behind(desk: Desk) -> None:
    desk.send("a1", "a2", "a3", "b1")
    lock = locked(desk)
    first, *_ = desk.within(lock, 2)
    desk.ack(first)
    assert desk.hold(lock, SessionVerb.PARK, note="cannot be parsed").verdict is DONE
    parked_ms = desk.now
    assert desk.hold(lock, SessionVerb.LOOK).verdict is EXPIRED, "the session is over"
    desk.send("a4")
    assert desk.take(10) == ["b1"]
    desk.wait(1_000_000)
    assert desk.take(10, group="a") == []
    assert desk.lock("a").verdict is HELD
    assert desk.parked() == [ParkedGroup("a", "cannot be parsed", parked_ms)]
    assert desk.ask("a", SessionVerb.RESUME).verdict is DONE
    assert desk.ask("a", SessionVerb.RESUME).verdict is GONE
    assert desk.parked() == []
    desk.wait(1)
    assert desk.take(10, group="a") == ["a2", "a3", "a4"]


def test_a_group_can_be_parked_by_nobodys_session_if_nobody_has_it(desk: Desk) -> None:
    desk.send("a1", "b1")
    lock, (b1,) = locked(desk, "a"), desk.receive()
    assert (
        desk.ask("a", SessionVerb.PARK, note="x").verdict is desk.ask("b", SessionVerb.PARK, note="x").verdict is HELD
    )
    desk.hold(lock, SessionVerb.CLOSE)
    desk.nack(b1)
    desk.ask("b", SessionVerb.PARK, note="first")
    desk.wait(1)
    desk.ask("a", SessionVerb.PARK, note="second")
    desk.ask("empty", SessionVerb.PARK, note="third")
    assert [(each.group, each.note) for each in desk.parked()] == [("b", "first"), ("a", "second"), ("empty", "third")]
    desk.send("e1", group="empty")
    assert desk.take(5) == []


def test_a_park_outlives_a_purge_and_not_its_queue(desk: Desk) -> None:
    desk.send("a1")
    desk.ask("a", SessionVerb.PARK, note="x")
    desk.purge()
    desk.send("a2")
    assert desk.take() == []
    desk.remove()
    desk.make("q")
    desk.send("a3")
    assert desk.take() == ["a3"]
    assert desk.parked() == []


def test_what_is_parked_goes_to_no_dead_letter_queue_but_is_kept_no_longer_than_the_rest(desk: Desk) -> None:
    desk.make("dead")
    desk.make("q", dead_letter="dead", max_receives=1, retention_s=100)
    desk.send("a1", "a2")
    desk.nack(*desk.receive())
    desk.ask("a", SessionVerb.PARK, note="x")
    assert desk.take() == []
    assert desk.bodies(queue="dead") == []
    desk.wait(50)
    desk.send("a3")
    desk.wait(50)
    assert desk.take() == []
    assert desk.bodies() == ["a3"]
    desk.ask("a", SessionVerb.RESUME)
    assert desk.take() == ["a3"]


def test_an_operator_can_move_messages_out_of_a_parked_group(desk: Desk) -> None:
    desk.make("dead")
    desk.send("a1", "a2")
    desk.ask("a", SessionVerb.PARK, note="x")
    assert desk.move("dead", *desk.read(limit=1)) == [DONE]
    assert desk.take() == []
    desk.ask("a", SessionVerb.RESUME)
    assert desk.take(5) == ["a2"]


# --- deferred ---


def test_what_is_deferred_is_out_of_the_way_and_comes_by_its_number(desk: Desk) -> None:
    desk.send("a1", "a2")
    (first,) = desk.receive()
    number = first.entry.sequence_number
    assert desk.defer(first) == [DONE]
    assert desk.ack(first) == [EXPIRED], "its lease is over"
    (second,) = desk.receive()
    assert second.entry.body == "a2"
    (again,) = desk.fetch(number)
    assert (again.entry, again.attempts) == (first.entry, 1)
    assert desk.fetch(number) == [], "somebody has it"
    assert desk.ack(second, again) == [DONE, DONE]
    assert desk.fetch(number) == []
    assert desk.depth().messages == 0


def test_what_is_deferred_counts_and_is_seen_and_is_not_in_line(desk: Desk) -> None:
    desk.send("a1", "a2", "b1")
    desk.defer(*desk.receive())
    assert desk.depth()[:3] == (3, 0, 0)
    assert desk.depth().deferred == 1
    assert desk.bodies(pending=True) == ["a1", "a2", "b1"]
    assert desk.bodies(pending=True, group="a") == ["a1", "a2"]
    assert desk.bodies(deferred=True) == desk.bodies(deferred=True, group="a") == ["a1"]
    assert desk.bodies(deferred=True, group="b") == []
    assert [(each.group, each.depth) for each in desk.groups()] == [("a", 1), ("b", 1)]
    first, second, _ = desk.read()
    assert desk.bodies(group="a", after=first.sequence_number) == ["a2"]
    assert desk.bodies(group="a", after=second.sequence_number) == []


def test_what_is_fetched_and_not_settled_is_deferred_again(desk: Desk) -> None:
    desk.send("a1", "a2")
    (first,) = desk.receive()
    number = first.entry.sequence_number
    desk.defer(first)
    desk.nack(*desk.fetch(number))
    assert desk.bodies(deferred=True) == ["a1"]
    (again,) = desk.fetch(number)
    assert again.attempts == 2
    desk.wait(30)
    assert desk.ack(again) == [EXPIRED]
    assert desk.take(5) == ["a2"], "it is not back in line"
    (again,) = desk.fetch(number)
    desk.nack(again, s=5)
    assert desk.fetch(number) == []
    desk.wait(5)
    (again,) = desk.fetch(number)
    assert desk.extend(again, s=60) == [DONE]
    desk.wait(59)
    assert desk.defer(again) == [DONE]
    assert desk.bodies(deferred=True) == ["a1"]


def test_to_defer_uses_up_no_attempt_and_to_fail_does(desk: Desk) -> None:
    desk.make("dead")
    desk.make("q", dead_letter="dead", max_receives=1)
    desk.send("a1")
    (first,) = desk.receive()
    desk.defer(first)
    (again,) = desk.fetch(first.entry.sequence_number)
    desk.nack(again)
    assert desk.fetch(first.entry.sequence_number) == []
    assert desk.bodies(queue="dead") == ["a1"]
    assert desk.depth().messages == 0


def test_only_what_is_deferred_is_fetched(desk: Desk) -> None:
    desk.make("other")
    desk.send("a1")
    elsewhere = desk.send("b1", queue="other")
    (first,) = desk.read()
    assert desk.fetch(first.sequence_number) == desk.fetch(99) == []
    desk.defer(*desk.receive(queue="other"), queue="other")
    assert desk.fetch(elsewhere[0].sequence_number) == [], "it is in another queue"
    assert len(desk.fetch(elsewhere[0].sequence_number, queue="other")) == 1


def test_a_deferred_message_without_a_group(desk: Desk) -> None:
    desk.send("x", "y", group=None)
    (first,) = desk.receive()
    desk.defer(first)
    assert desk.take(5) == ["y"]
    desk.wait(30)
    assert desk.take(5) == ["y"]
    (again,) = desk.fetch(first.entry.sequence_number)
    assert desk.ack(again) == [DONE]


def test_a_session_defers_and_fetches_in_its_group_only(desk: Desk) -> None:
    desk.send("a1", "a2", "b1")
    a = locked(desk, "a")
    (first,) = desk.within(a)
    number = first.entry.sequence_number
    desk.defer(first)
    assert desk.fetch(number) == [], "the group is the session's"
    b = locked(desk, "b")
    assert desk.fetch(number, lock=b) == []
    (again,) = desk.fetch(number, lock=a)
    assert (again.token, again.until_ms) == (a.gate.token, a.gate.until_ms)
    assert bodies(desk.within(a, 5)) == ["a2"]
    desk.hold(a, SessionVerb.RENEW, s=100)
    desk.wait(90)
    assert desk.ack(again) == [DONE], "it was renewed with the rest"


def test_what_a_session_fetched_is_deferred_again_when_it_ends(desk: Desk) -> None:
    desk.send("a1", "a2")
    lock = locked(desk)
    (first,) = desk.within(lock)
    desk.defer(first)
    desk.fetch(first.entry.sequence_number, lock=lock)
    assert desk.depth().in_flight == 1
    desk.hold(lock, SessionVerb.CLOSE)
    assert desk.depth().in_flight == 0
    assert desk.take(5) == ["a2"]
    assert len(desk.fetch(first.entry.sequence_number)) == 1
    assert desk.lock("a").verdict is HELD, "somebody has a message of it"


def test_what_is_deferred_in_a_parked_group_is_not_fetched(desk: Desk) -> None:
    desk.send("a1")
    (first,) = desk.receive()
    desk.defer(first)
    desk.ask("a", SessionVerb.PARK, note="x")
    assert desk.fetch(first.entry.sequence_number) == []
    desk.ask("a", SessionVerb.RESUME)
    assert len(desk.fetch(first.entry.sequence_number)) == 1


def test_what_is_deferred_is_moved_and_retired_and_purged_as_the_rest_is(desk: Desk) -> None:
    desk.make("dead")
    desk.make("q", retention_s=100)
    desk.send("a1", "a2", "a3")
    desk.defer(*desk.receive())
    desk.move("dead", *desk.read(limit=1))
    assert desk.take(queue="dead") == ["a1"]
    assert desk.depth().deferred == 0
    desk.wait(40)  # the lease
    desk.defer(*desk.receive())
    desk.wait(60)
    assert desk.take() == []
    assert desk.depth()[::4] == (0, 0)
    desk.send("a4")
    desk.defer(*desk.receive())
    assert desk.depth()[::4] == (1, 1)
    desk.purge()
    assert desk.depth()[::4] == (0, 0)


def test_readers_read_what_is_deferred_and_it_is_kept_for_them(desk: Desk) -> None:
    desk.readers(r=0)
    desk.send("a1")
    (first,) = desk.receive()
    desk.defer(first)
    desk.readers(r=first.entry.sequence_number)
    assert desk.bodies() == ["a1"], "it is not acknowledged"
    desk.readers(r=0)
    desk.ack(*desk.fetch(first.entry.sequence_number))
    assert desk.bodies() == ["a1"], "it is not read"
    assert desk.fetch(first.entry.sequence_number) == []
    desk.readers(r=first.entry.sequence_number)
    assert desk.bodies() == []


# --- cancelled ---


def test_what_is_scheduled_is_cancelled_until_its_time_comes(desk: Desk) -> None:
    (first,) = desk.send("a1", delay_ms=5_000)
    desk.send("a2")
    assert desk.take() == [], "it is in its group's way"
    assert desk.cancel(first.sequence_number) == [DONE]
    assert desk.cancel(first.sequence_number) == [GONE]
    assert desk.take() == ["a2"]
    assert desk.depth().messages == 1
    (third,) = desk.send("b1", delay_ms=5_000)
    desk.wait(5)
    assert desk.cancel(third.sequence_number) == [LATE]
    assert desk.take() == ["b1"]
    assert desk.cancel(third.sequence_number) == [HELD]


def test_only_what_nobody_has_had_is_cancelled(desk: Desk) -> None:
    desk.send("a1", "b1", "b2")
    a, b, behind = desk.receive(3)
    desk.nack(a, b, behind, s=5)
    assert desk.cancel(*(each.entry.sequence_number for each in (a, b, behind))) == [LATE] * 3
    (x,) = desk.send("x", group=None)
    assert desk.cancel(x.sequence_number) == [LATE]
    desk.defer(*desk.receive())
    assert desk.cancel(x.sequence_number) == [LATE]


def test_what_is_cancelled_is_known_as_sent(desk: Desk) -> None:
    desk.readers(r=0)
    (first,) = desk.send("a1", delay_ms=5_000, dedup_id="1")
    desk.cancel(first.sequence_number)
    assert desk.bodies() == [], "no reader reads it"
    assert desk.send("a1", dedup_id="1") == [(first.sequence_number, True)]


# --- the rules alone ---


def test_a_set_of_wants_with_sessions_among_them(desk: Desk) -> None:
    desk.send("a1", "b1", "b2", "c1")
    lock = locked(desk, "b")
    found = desk.receive_each(
        ReceiveRequest(1),
        ReceiveRequest(1, None, "b", lock.gate.token),
        ReceiveRequest(5),
        ReceiveRequest(1, group="b"),
    )
    assert [bodies(each) for each in found] == [["a1"], ["b1"], ["c1"], []]


@pytest.mark.parametrize("verb", list(SessionVerb))
def test_a_gate_is_changed_by_its_holder_only(verb: SessionVerb) -> None:
    gate = GroupLock(token=7, until_ms=100, since_ms=0)
    for token, now_ms in ((8, 50), (None, 50), (7, 100)):
        verdict, after = decide(gate, SessionRequest(verb, token, 10), now_ms, is_held=False, token=9)
        free = now_ms == 100 and (verb is SessionVerb.LOCK or (verb is SessionVerb.PARK and token is None))
        assert (verdict is DONE) == free
        assert free or after == gate


def test_an_open_gate_is_nobodys(desk: Desk) -> None:
    assert desk.hold(SessionAnswer(DONE, "a"), SessionVerb.RENEW, s=5).verdict is EXPIRED


@pytest.mark.thorough
def test_what_is_parked_locked_and_deferred_costs_the_next_receive_nothing(tmp_path: Path) -> None:
    """What is counted is not time but the steps of SQLite's machine."""
    desk = Desk(STORES["sqlite"](tmp_path, str))
    connection = desk.store.connection  # type: ignore[attr-defined]
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def cost() -> int:
        nonlocal steps
        connection.set_progress_handler(step, 10)
        steps = 0
        desk.send("z1", "z2")
        assert list(desk.drain()) == ["z1", "z2"]
        connection.set_progress_handler(None, 0)
        return steps

    desk.make("q")
    cost()
    before = cost()
    for name in map(str, range(1_000)):
        desk.send("z", "z", group=name)
        lock = desk.lock(name, s=1_000)
        desk.defer(*desk.within(lock))
        if int(name) % 2:
            desk.hold(lock, SessionVerb.PARK, note="x")
        desk.send("z of which the rest is free")
        desk.defer(*desk.receive())
    assert cost() < before * 1.5 + 20
    desk.close()


def test_what_is_refused_says_nothing_of_a_lock_that_is_over(desk: Desk) -> None:
    lock = desk.lock("a", s=1)
    desk.wait(1)
    assert desk.hold(lock, SessionVerb.PARK) == SessionAnswer(SettleResult.EXPIRED, "a")
    assert desk.ask("a", SessionVerb.RESUME) == SessionAnswer(SettleResult.GONE, "a")
