"""The parts of the PostgreSQL store that need no server: the bookkeeping of a receiver lock, and its statements."""

from typing import Any

import pytest

from inturn.store.postgres import statements
from inturn.store.postgres.receiver_lock import ReadyCandidate, ReceiverLock


def lock(**fields: Any) -> ReceiverLock:
    """Return the lock of a queue whose log is listed up to number 10."""
    row: dict[str, Any] = {
        "last_token": 0,
        "removed_count": 0,
        "listed_to": 10,
        "messages_from": 1,
        "ready_from": None,
        "is_list_complete": False,
        "due_ms": None,
        "oldest_ms": None,
        "seen": (0, []),
        "version": 1,
        "stored": (),
        "stored_ready_from": 1,
        "has_requeues": False,
        "is_at_end": False,
    }
    return ReceiverLock(**row | fields)


def test_receiver_lock_keeps_the_earliest_deadline() -> None:
    receiver = lock()
    for until_ms in (30, 10, 20):
        receiver.is_due(until_ms)
    assert receiver.due_ms == 10


@pytest.mark.parametrize(("skipped", "ready_from"), [((), 8), ((7,), 7), ((5, 7), 5)])
def test_receiver_lock_returns_to_a_skipped_group(skipped: tuple[int, ...], ready_from: int) -> None:
    receiver = lock()
    for head in (5, 6, 7):
        receiver.passed((head, 0, head), is_left=head in skipped)
    assert receiver.ready_from == ready_from


def test_receiver_lock_at_the_end_starts_behind_all_listed_groups() -> None:
    receiver, other = lock(), lock()
    receiver.see_end()
    other.passed((5, 0, 5), is_left=True)
    other.see_end()
    assert (receiver.ready_from, other.ready_from) == (11, 5)


def test_receiver_lock_orders_expired_leases_before_later_nacks() -> None:
    candidates = [ReadyCandidate("settled", None), ReadyCandidate("nacked", None, 9, at_ms=20)]
    expired = [ReadyCandidate("early", None, at_ms=20), ReadyCandidate("late", None, at_ms=21)]
    receiver, other = lock(candidates=candidates), lock(candidates=candidates)
    receiver.add_expired(expired, before_nacks=True)
    other.add_expired(expired, before_nacks=False)
    assert [candidate.group for candidate in receiver.candidates] == ["settled", "early", "nacked", "late"]
    assert receiver.candidates[1].place == 9, "it joins the line where the one that was given back joins"
    assert [candidate.group for candidate in other.candidates] == ["settled", "nacked", "early", "late"]


def test_every_statement_template_is_filled_in() -> None:
    assert not [name for name, sql in statements._SQL.items() if "{" in sql]
