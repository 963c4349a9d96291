"""The parts of the PostgreSQL store that need no server: the bookkeeping of a receiver lock, and its statements."""

from typing import Any

import pytest

from inturn.store.postgres import statements
from inturn.store.postgres.receiver_lock import ReceiverLock, Touch


def lock(**fields: Any) -> ReceiverLock:
    """Return the lock of a queue whose log is listed up to number 10."""
    row: dict[str, Any] = {
        "tokens": 0,
        "gone": 0,
        "listed": 10,
        "floor": 1,
        "ready_from": None,
        "ran_out": False,
        "due_ms": None,
        "oldest_ms": None,
        "drawn": (0, []),
        "version": 1,
        "kept": (),
        "ready_kept": 1,
        "has_back": False,
        "is_at_end": False,
    }
    return ReceiverLock(**row | fields)


def test_receiver_lock_keeps_the_earliest_deadline() -> None:
    one = lock()
    for until_ms in (30, 10, 20):
        one.is_due(until_ms)
    assert one.due_ms == 10


@pytest.mark.parametrize(("skipped", "ready_from"), [((), 8), ((7,), 7), ((5, 7), 5)])
def test_receiver_lock_returns_to_a_skipped_group(skipped: tuple[int, ...], ready_from: int) -> None:
    one = lock()
    for head in (5, 6, 7):
        one.passed((head, 0, head), is_left=head in skipped)
    assert one.ready_from == ready_from


def test_receiver_lock_at_the_end_starts_behind_all_listed_groups() -> None:
    one, other = lock(), lock()
    one.see_end()
    other.passed((5, 0, 5), is_left=True)
    other.see_end()
    assert (one.ready_from, other.ready_from) == (11, 5)


def test_receiver_lock_orders_expired_leases_before_later_nacks() -> None:
    touched = [Touch("settled", None), Touch("nacked", None, 9, at_ms=20)]
    over = [Touch("early", None, at_ms=20), Touch("late", None, at_ms=21)]
    one, other = lock(touched=touched), lock(touched=touched)
    one.touch_over(over, before_nacks=True)
    other.touch_over(over, before_nacks=False)
    assert [each.group for each in one.touched] == ["settled", "early", "nacked", "late"]
    assert one.touched[1].place == 9, "it joins the line where the one that was given back joins"
    assert [each.group for each in other.touched] == ["settled", "nacked", "early", "late"]


def test_every_statement_template_is_filled_in() -> None:
    assert not [name for name, sql in statements._SQL.items() if "{" in sql]
