"""Who only looks shortens nothing, whatever its clock says: of what is completed, and of what is in progress."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clocks import SkewedClocks
from inturn.core.errors import LockLost
from inturn.core.idempotency_keys import (
    AcceptKey,
    ExtendKey,
    KeyRecord,
    KeyResult,
    KeySlot,
    LockKey,
    ReleaseKey,
    current,
    decide,
)
from inturn.idempotency import Completed, InProgress, Locked
from inturn.idempotency.keys import DatabaseKeys

DAY = 86_400
TIMES = st.integers(-10_000, 10_000)
OTHERS = st.one_of(
    st.builds(LockKey, st.integers(1, 50), st.sampled_from([None, "d"])),
    st.builds(AcceptKey, st.just(6), st.integers(1, 50)),
    st.builds(ExtendKey, st.just(6), st.integers(1, 50)),
    st.builds(ReleaseKey, st.just(6)),
)


@given(
    is_done=st.booleans(),
    length=st.integers(1, 5_000),
    offset=st.integers(-10_000, 0),
    looks=st.lists(st.tuples(st.integers(0, 6_000), st.booleans(), OTHERS), max_size=12),
)
def test_a_clock_that_is_behind_ends_no_lifetime_early(
    is_done: bool, length: int, offset: int, looks: list[tuple[int, bool, LockKey | AcceptKey | ExtendKey | ReleaseKey]]
) -> None:
    """Of two clocks one is right and one is behind; what is not over by the right one is over by neither."""
    record = KeyRecord(7, 0, length, is_done=is_done, digest="d")
    slot = KeySlot(record, 7)
    for time, is_behind, request in sorted(looks, key=lambda item: item[0]):
        if time >= length:
            break
        slot, answer = decide(slot, request, time + offset * is_behind)
        assert answer.verdict not in (KeyResult.LOCKED, KeyResult.DONE)
        assert 0 <= answer.wait_ms <= length
        assert slot.record is not None
        assert slot.record.until_ms == length
        assert current(slot.record, time) is not None


@given(now=st.lists(TIMES, min_size=1), owns=st.sampled_from([AcceptKey(7, 1_000), ExtendKey(7, 1_000)]))
def test_the_times_of_a_key_record_never_decrease(now: list[int], owns: AcceptKey | ExtendKey) -> None:
    slot = KeySlot(KeyRecord(7, 0, 500), 7)
    for request in now:
        before = slot.record
        slot, _ = decide(slot, owns, request)
        if slot.record is None or before is None:
            break
        assert slot.record.since_ms >= before.since_ms
        assert (slot.record.until_ms or 0) >= slot.record.since_ms


def _locked(keys: DatabaseKeys, key: str = "tx-1", timeout_s: float = 30) -> Locked:
    lock = keys.try_lock(key, timeout_s)
    assert lock
    return lock


def test_a_key_kept_for_a_year_lasts_a_year_for_every_clock(clocks: SkewedClocks) -> None:
    keys, behind = clocks.keys(), clocks.keys(-800 * DAY)
    keys.accept(_locked(keys), "first", keep_s=365 * DAY)
    assert isinstance(behind.try_lock("tx-1"), Completed)
    _locked(behind, "another")  # which clears away what is over
    clocks.now += 364 * DAY
    assert isinstance(behind.try_lock("tx-1"), Completed)
    assert isinstance(keys.try_lock("tx-1"), Completed)
    clocks.now += 2 * DAY
    _locked(keys)


def test_a_lock_keeps_its_lifetime_for_every_clock(clocks: SkewedClocks) -> None:
    keys, behind = clocks.keys(), clocks.keys(-DAY)
    lock = _locked(keys)
    assert isinstance(behind.try_lock("tx-1"), InProgress)
    clocks.now += 29
    for store in (keys, behind):
        assert isinstance(store.try_lock("tx-1"), InProgress)
    keys.extend(lock, 30)
    clocks.now += 29
    for store in (behind, keys):
        assert isinstance(store.try_lock("tx-1"), InProgress)
    keys.accept(lock, "done", keep_s=DAY)
    assert isinstance(behind.try_lock("tx-1"), Completed)


@pytest.mark.parametrize("ahead", [DAY, 20 * 365 * DAY])
def test_a_key_locked_by_a_clock_far_ahead_expires_for_others(clocks: SkewedClocks, ahead: int) -> None:
    """The owner is dead, and nobody else's clock comes there for years."""
    keys = clocks.keys()
    lost = _locked(clocks.keys(ahead))
    first = keys.try_lock("tx-1")
    assert isinstance(first, InProgress)
    clocks.now += 29
    last = keys.try_lock("tx-1")
    assert isinstance(last, InProgress)
    assert last.retry_after_s == 1
    clocks.now += 1
    lock = _locked(keys)
    assert lock.fencing_token > lost.fencing_token
    with pytest.raises(LockLost):
        keys.accept(lost)


def test_a_clock_far_ahead_does_not_expire_keys_of_others(tmp_path: Path) -> None:
    """It takes keys of its own, and clears away; on PostgreSQL the server's clock does, which is everybody's."""
    with ExitStack() as stack:
        clocks = SkewedClocks(tmp_path / "shop.db", stack)
        keys, ahead = clocks.keys(), clocks.keys(20 * 365 * DAY)
        keys.accept(_locked(keys, "kept"), keep_s=365 * DAY)
        lock = _locked(keys)
        _locked(ahead, "of its own")
        with pytest.raises(LockLost):
            ahead.release(lock)
        assert isinstance(keys.try_lock("tx-1"), InProgress)
        for number in range(100):  # and though it be at work alone for long
            _locked(ahead, f"of its own {number}")
        assert isinstance(keys.try_lock("kept"), Completed)


def test_a_key_accepted_by_a_clock_that_is_behind_is_kept_its_full_time(clocks: SkewedClocks) -> None:
    keys, behind = clocks.keys(), clocks.keys(-2 * DAY)
    behind.accept(_locked(keys), "first", keep_s=DAY)
    clocks.now += DAY - 1
    assert isinstance(keys.try_lock("tx-1"), Completed)
