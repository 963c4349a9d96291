"""The rules by themselves, as the table at the top of core/idempotency_keys.py has them."""

import pytest

from inturn.core.idempotency_keys import (
    AcceptKey,
    ExtendKey,
    KeyRecord,
    KeyRequest,
    KeyResult,
    KeySlot,
    LockKey,
    ReleaseKey,
    current,
    decide,
)

NOW = 1_000
FREE = KeySlot(None, 7)
OVER = KeySlot(KeyRecord(7, 0, NOW), 7)
IN_PROGRESS = KeySlot(KeyRecord(7, 900, 1_500, digest="d"), 7)
COMPLETED = KeySlot(KeyRecord(7, 900, 1_500, is_done=True, digest="d", result="1"), 7)
OWN, OTHER = 7, 6


@pytest.mark.parametrize(
    ("request_", "free", "in_progress", "completed"),
    [
        (LockKey(50, "d"), KeyResult.LOCKED, KeyResult.IN_PROGRESS, KeyResult.COMPLETED),
        (LockKey(50), KeyResult.LOCKED, KeyResult.IN_PROGRESS, KeyResult.COMPLETED),
        (LockKey(50, "e"), KeyResult.LOCKED, KeyResult.CONFLICT, KeyResult.CONFLICT),
        (AcceptKey(OWN, 50), KeyResult.LOST, KeyResult.DONE, KeyResult.DONE),
        (AcceptKey(OTHER, 50), KeyResult.LOST, KeyResult.LOST, KeyResult.LOST),
        (ReleaseKey(OWN), KeyResult.LOST, KeyResult.DONE, KeyResult.LOST),
        (ReleaseKey(OTHER), KeyResult.LOST, KeyResult.LOST, KeyResult.LOST),
        (ExtendKey(OWN, 50), KeyResult.LOST, KeyResult.DONE, KeyResult.LOST),
        (ExtendKey(OTHER, 50), KeyResult.LOST, KeyResult.LOST, KeyResult.LOST),
    ],
)
def test_each_request_has_the_result_of_the_rules_table(
    request_: KeyRequest, free: KeyResult, in_progress: KeyResult, completed: KeyResult
) -> None:
    slots = {FREE: free, OVER: free, IN_PROGRESS: in_progress, COMPLETED: completed}
    for slot, verdict in slots.items():
        after, answer = decide(slot, request_, NOW)
        assert answer.verdict is verdict
        assert answer.record == current(after.record, NOW)
        changes = verdict is KeyResult.LOCKED or (verdict is KeyResult.DONE and slot is IN_PROGRESS)
        assert changes or after in {slot, FREE}
        assert after.last_token == (NOW * 1000 if verdict is KeyResult.LOCKED else slot.last_token)


def test_each_request_leaves_the_expected_key_record() -> None:
    assert decide(FREE, LockKey(50, "d"), NOW)[0] == KeySlot(KeyRecord(NOW * 1000, NOW, 1_050, digest="d"), NOW * 1000)
    assert decide(IN_PROGRESS, LockKey(50), NOW)[1].wait_ms == 500
    assert decide(IN_PROGRESS, AcceptKey(7, 50, "1"), NOW)[0].record == KeyRecord(7, NOW, 1_050, True, "d", "1")
    assert decide(IN_PROGRESS, AcceptKey(7, None), NOW)[0].record == KeyRecord(7, NOW, None, True, "d", None)
    assert decide(IN_PROGRESS, ExtendKey(7, 50), NOW)[0].record == KeyRecord(7, NOW, 1_050, False, "d")
    assert decide(IN_PROGRESS, ReleaseKey(7), NOW)[0] == FREE


def test_a_key_record_is_current_until_its_lifetime_ends() -> None:
    record = KeyRecord(1, 100, 200)
    assert current(record, 199) == record
    assert current(record, 200) is None
    for_ever = KeyRecord(1, 100, None, is_done=True)
    assert current(for_ever, 40) == for_ever
