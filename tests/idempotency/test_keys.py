"""What keys promise, over every store, from threads and from tasks."""

from typing import Any

import pytest
from key_desk import Desk

from inturn.core import limits
from inturn.core.errors import InputError, KeyConflict, LockLost
from inturn.idempotency import Completed, InProgress, Locked

DAY = 86_400


def test_the_first_caller_gets_the_key(desk: Desk) -> None:
    """Not false because it was not there before, whereupon nothing would ever run."""
    lock = desk.try_lock("tx-1")
    assert lock
    assert isinstance(lock, Locked)
    assert lock.key == "tx-1"


def test_a_duplicate_is_told_in_progress_while_the_first_is_at_it(desk: Desk) -> None:
    """Not done: the first may yet fail, and then nobody would have done it."""
    lock = desk.try_lock("tx-1", 30)
    desk.move(10)
    second = desk.try_lock("tx-1", 30)
    assert not second
    assert isinstance(second, InProgress)
    assert 0 < second.retry_after_s <= 20
    desk.release(lock)
    assert desk.try_lock("tx-1")


def test_a_duplicate_of_what_was_done_is_given_the_first_result(desk: Desk) -> None:
    result = {"id": "ch-1", "amounts": [1, 2.5], "note": "naïve ☃", "nothing": None}
    desk.accept(desk.try_lock("tx-1"), result)
    second = desk.try_lock("tx-1")
    assert not second
    assert isinstance(second, Completed)
    assert second.result == result
    desk.accept(desk.try_lock("tx-2"))
    assert desk.try_lock("tx-2") == Completed("tx-2", "null")
    assert desk.try_lock("tx-2").result is None


def test_in_progress_is_short_and_completed_is_long(desk: Desk) -> None:
    desk.try_lock("tx-1")
    desk.move(limits.KEY_LOCK_S + 1)
    lock = desk.try_lock("tx-1")
    assert lock
    desk.accept(lock)
    desk.move(limits.KEY_KEPT_S - 10)
    assert isinstance(desk.try_lock("tx-1"), Completed)
    desk.move(11)
    assert desk.try_lock("tx-1")


def test_a_key_can_be_known_for_ever(desk: Desk) -> None:
    desk.accept(desk.try_lock("tx-1"), 1, keep_s=None)
    desk.move(20 * 365 * DAY)
    assert desk.try_lock("tx-1").result == 1


def test_the_same_key_with_another_payload_is_an_error(desk: Desk) -> None:
    lock = desk.try_lock("tx-1", payload={"to": "ada", "amount": 5})
    for _ in ("in progress", "completed"):
        with pytest.raises(KeyConflict, match="'tx-1' was used for another payload"):
            desk.try_lock("tx-1", payload={"to": "ada", "amount": 6})
        assert not desk.try_lock("tx-1", payload={"amount": 5, "to": "ada"})
        assert not desk.try_lock("tx-1")  # who gives none has nothing to compare
        desk.accept(lock)


def test_a_key_that_is_free_again_takes_any_payload(desk: Desk) -> None:
    desk.release(desk.try_lock("tx-1", payload=1))
    assert desk.try_lock("tx-1", payload=2)


@pytest.mark.parametrize("verb", ["accept", "release", "extend"])
def test_an_owner_whose_time_is_over_changes_nothing(desk: Desk, verb: str) -> None:
    more = [30] if verb == "extend" else []
    late = desk.try_lock("tx-1", 30)
    desk.move(31)
    with pytest.raises(LockLost, match="its time was over"):
        getattr(desk, verb)(late, *more)
    successor = desk.try_lock("tx-1", 30)
    assert successor.fencing_token > late.fencing_token
    with pytest.raises(LockLost, match="somebody else is at it now"):
        getattr(desk, verb)(late, *more)
    assert isinstance(desk.try_lock("tx-1"), InProgress)
    desk.accept(successor, "the successor's")
    with pytest.raises(LockLost, match="somebody else has done it since"):
        getattr(desk, verb)(late, *more)
    assert desk.try_lock("tx-1").result == "the successor's"


def test_tokens_grow_whatever_became_of_the_key_meanwhile(desk: Desk) -> None:
    tokens = []
    for _ in range(3):
        released = desk.try_lock("tx-1")
        desk.release(released)
        with pytest.raises(LockLost):
            desk.accept(released)
        over = desk.try_lock("tx-1", 5)
        desk.move(6)
        done = desk.try_lock("tx-1")
        desk.accept(done, keep_s=5)
        desk.move(6)
        tokens += [lock.fencing_token for lock in (released, over, done)]
    assert tokens == sorted(set(tokens))


def test_an_accept_whose_answer_got_lost_is_said_again(desk: Desk) -> None:
    lock = desk.try_lock("tx-1")
    desk.accept(lock, 1)
    desk.accept(lock, 2)
    assert desk.try_lock("tx-1").result == 1
    for undo in (lambda: desk.release(lock), lambda: desk.extend(lock, 5)):
        with pytest.raises(LockLost, match="it was accepted before"):
            undo()


def test_a_lock_is_extended(desk: Desk) -> None:
    lock = desk.try_lock("tx-1", 30)
    for _ in range(3):
        desk.move(20)
        desk.extend(lock, 30)
    assert isinstance(desk.try_lock("tx-1"), InProgress)
    desk.accept(lock)


def test_a_clock_that_is_set_back_makes_no_lock_longer(desk: Desk) -> None:
    desk.try_lock("tx-1", 30)
    desk.move(-DAY)
    assert desk.try_lock("tx-1").retry_after_s <= 30
    desk.move(31)
    assert desk.try_lock("tx-1")


def test_keys_are_apart(desk: Desk) -> None:
    assert all(desk.try_lock(key) for key in ("a", "A", "a ", "é", "e\u0301", "a:b", "{a}", "%s", "'"))


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("try_lock", {"key": ""}),
        ("try_lock", {"key": "k" * 1_001}),
        ("try_lock", {"key": 7}),
        ("try_lock", {"key": "\ud800"}),
        ("try_lock", {"key": "k", "timeout_s": 0}),
        ("try_lock", {"key": "k", "timeout_s": float("nan")}),
        ("try_lock", {"key": "k", "timeout_s": 60_000}),  # milliseconds, most likely
        ("try_lock", {"key": "k", "payload": object()}),
        ("accept", {"lock": Locked("k", 1), "keep_s": -1}),
        ("accept", {"lock": Locked("k", 1), "result": object()}),
        ("accept", {"lock": Locked("k", 1), "result": "\ud800"}),
        ("accept", {"lock": Locked("k", 1), "result": "x" * limits.BODY_BYTES}),
        ("extend", {"lock": Locked("k", 1), "timeout_s": True}),
    ],
)
def test_what_cannot_be_is_refused(desk: Desk, verb: str, more: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        getattr(desk, verb)(**more)
    assert desk.try_lock("k")


def test_the_shortest_lock_is_a_lock(desk: Desk) -> None:
    assert desk.try_lock("tx-1", 0.000_001)
    desk.move(1)
    assert desk.try_lock("tx-1")
