"""What keys promise, over every store, from threads and from tasks."""

from typing import Any

import pytest
from key_harness import KeyHarness

from inturn.core import limits
from inturn.core.errors import InputError, KeyConflict, LockLost
from inturn.idempotency import Completed, InProgress, Locked

DAY = 86_400


def test_try_lock_gives_the_first_caller_the_key(harness: KeyHarness) -> None:
    """Not false because it was not there before, whereupon nothing would ever run."""
    lock = harness.try_lock("tx-1")
    assert lock
    assert isinstance(lock, Locked)
    assert lock.key == "tx-1"


def test_try_lock_returns_in_progress_while_the_key_is_locked(harness: KeyHarness) -> None:
    """Not done: the first may yet fail, and then nobody would have done it."""
    lock = harness.try_lock("tx-1", 30)
    harness.move(10)
    second = harness.try_lock("tx-1", 30)
    assert not second
    assert isinstance(second, InProgress)
    assert 0 < second.retry_after_s <= 20
    harness.release(lock)
    assert harness.try_lock("tx-1")


def test_try_lock_of_a_completed_key_returns_the_first_result(harness: KeyHarness) -> None:
    result = {"id": "ch-1", "amounts": [1, 2.5], "note": "naïve ☃", "nothing": None}
    harness.accept(harness.try_lock("tx-1"), result)
    second = harness.try_lock("tx-1")
    assert not second
    assert isinstance(second, Completed)
    assert second.result == result
    harness.accept(harness.try_lock("tx-2"))
    assert harness.try_lock("tx-2") == Completed("tx-2", "null")
    assert harness.try_lock("tx-2").result is None


def test_default_lifetimes_of_locked_and_completed_keys(harness: KeyHarness) -> None:
    harness.try_lock("tx-1")
    harness.move(limits.KEY_LOCK_S + 1)
    lock = harness.try_lock("tx-1")
    assert lock
    harness.accept(lock)
    harness.move(limits.KEY_KEPT_S - 10)
    assert isinstance(harness.try_lock("tx-1"), Completed)
    harness.move(11)
    assert harness.try_lock("tx-1")


def test_a_completed_key_can_be_kept_forever(harness: KeyHarness) -> None:
    harness.accept(harness.try_lock("tx-1"), 1, keep_s=None)
    harness.move(20 * 365 * DAY)
    assert harness.try_lock("tx-1").result == 1


def test_try_lock_with_another_payload_raises_key_conflict(harness: KeyHarness) -> None:
    lock = harness.try_lock("tx-1", payload={"to": "ada", "amount": 5})
    for _ in ("in progress", "completed"):
        with pytest.raises(KeyConflict, match="key 'tx-1' was already used for another payload"):
            harness.try_lock("tx-1", payload={"to": "ada", "amount": 6})
        assert not harness.try_lock("tx-1", payload={"amount": 5, "to": "ada"})
        assert not harness.try_lock("tx-1")  # who gives none has nothing to compare
        harness.accept(lock)


def test_a_released_key_accepts_another_payload(harness: KeyHarness) -> None:
    harness.release(harness.try_lock("tx-1", payload=1))
    assert harness.try_lock("tx-1", payload=2)


@pytest.mark.parametrize("verb", ["accept", "release", "extend"])
def test_an_expired_owner_gets_lock_lost(harness: KeyHarness, verb: str) -> None:
    more = [30] if verb == "extend" else []
    late = harness.try_lock("tx-1", 30)
    harness.move(31)
    with pytest.raises(LockLost, match="it has expired"):
        getattr(harness, verb)(late, *more)
    successor = harness.try_lock("tx-1", 30)
    assert successor.fencing_token > late.fencing_token
    with pytest.raises(LockLost, match="another caller holds it now"):
        getattr(harness, verb)(late, *more)
    assert isinstance(harness.try_lock("tx-1"), InProgress)
    harness.accept(successor, "the successor's")
    with pytest.raises(LockLost, match="another caller has completed the work"):
        getattr(harness, verb)(late, *more)
    assert harness.try_lock("tx-1").result == "the successor's"


def test_fencing_tokens_increase_after_release_expiry_and_accept(harness: KeyHarness) -> None:
    tokens = []
    for _ in range(3):
        released = harness.try_lock("tx-1")
        harness.release(released)
        with pytest.raises(LockLost):
            harness.accept(released)
        expired = harness.try_lock("tx-1", 5)
        harness.move(6)
        done = harness.try_lock("tx-1")
        harness.accept(done, keep_s=5)
        harness.move(6)
        tokens += [lock.fencing_token for lock in (released, expired, done)]
    assert tokens == sorted(set(tokens))


def test_a_repeated_accept_succeeds_and_keeps_the_first_result(harness: KeyHarness) -> None:
    lock = harness.try_lock("tx-1")
    harness.accept(lock, 1)
    harness.accept(lock, 2)
    assert harness.try_lock("tx-1").result == 1
    for undo in (lambda: harness.release(lock), lambda: harness.extend(lock, 5)):
        with pytest.raises(LockLost, match="it was already accepted"):
            undo()


def test_extend_prolongs_a_lock(harness: KeyHarness) -> None:
    lock = harness.try_lock("tx-1", 30)
    for _ in range(3):
        harness.move(20)
        harness.extend(lock, 30)
    assert isinstance(harness.try_lock("tx-1"), InProgress)
    harness.accept(lock)


def test_a_clock_set_back_does_not_prolong_a_lock(harness: KeyHarness) -> None:
    harness.try_lock("tx-1", 30)
    harness.move(-DAY)
    assert harness.try_lock("tx-1").retry_after_s <= 30
    harness.move(31)
    assert harness.try_lock("tx-1")


def test_similar_keys_are_distinct(harness: KeyHarness) -> None:
    assert all(harness.try_lock(key) for key in ("a", "A", "a ", "é", "e\u0301", "a:b", "{a}", "%s", "'"))


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
def test_invalid_key_arguments_are_refused(harness: KeyHarness, verb: str, more: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        getattr(harness, verb)(**more)
    assert harness.try_lock("k")


def test_a_lock_of_a_microsecond_is_accepted(harness: KeyHarness) -> None:
    assert harness.try_lock("tx-1", 0.000_001)
    harness.move(1)
    assert harness.try_lock("tx-1")
