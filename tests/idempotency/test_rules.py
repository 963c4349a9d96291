"""The rules by themselves, as the table at the top of core/idempotency_keys.py has them."""

import pytest

from inturn.core.idempotency_keys import Accept, Extend, Lock, Record, Release, Request, Slot, Verdict, current, decide

NOW = 1_000
FREE = Slot(None, 7)
OVER = Slot(Record(7, 0, NOW), 7)
IN_PROGRESS = Slot(Record(7, 900, 1_500, digest="d"), 7)
COMPLETED = Slot(Record(7, 900, 1_500, is_done=True, digest="d", result="1"), 7)
OWN, OTHER = 7, 6


@pytest.mark.parametrize(
    ("request_", "free", "in_progress", "completed"),
    [
        (Lock(50, "d"), Verdict.LOCKED, Verdict.IN_PROGRESS, Verdict.COMPLETED),
        (Lock(50), Verdict.LOCKED, Verdict.IN_PROGRESS, Verdict.COMPLETED),
        (Lock(50, "e"), Verdict.LOCKED, Verdict.CONFLICT, Verdict.CONFLICT),
        (Accept(OWN, 50), Verdict.LOST, Verdict.DONE, Verdict.DONE),
        (Accept(OTHER, 50), Verdict.LOST, Verdict.LOST, Verdict.LOST),
        (Release(OWN), Verdict.LOST, Verdict.DONE, Verdict.LOST),
        (Release(OTHER), Verdict.LOST, Verdict.LOST, Verdict.LOST),
        (Extend(OWN, 50), Verdict.LOST, Verdict.DONE, Verdict.LOST),
        (Extend(OTHER, 50), Verdict.LOST, Verdict.LOST, Verdict.LOST),
    ],
)
def test_the_table(request_: Request, free: Verdict, in_progress: Verdict, completed: Verdict) -> None:
    slots = {FREE: free, OVER: free, IN_PROGRESS: in_progress, COMPLETED: completed}
    for slot, verdict in slots.items():
        after, answer = decide(slot, request_, NOW)
        assert answer.verdict is verdict
        assert answer.record == current(after.record, NOW)
        changes = verdict is Verdict.LOCKED or (verdict is Verdict.DONE and slot is IN_PROGRESS)
        assert changes or after in {slot, FREE}
        assert after.last_token == (NOW * 1000 if verdict is Verdict.LOCKED else slot.last_token)


def test_what_is_kept() -> None:
    assert decide(FREE, Lock(50, "d"), NOW)[0] == Slot(Record(NOW * 1000, NOW, 1_050, digest="d"), NOW * 1000)
    assert decide(IN_PROGRESS, Lock(50), NOW)[1].wait_ms == 500
    assert decide(IN_PROGRESS, Accept(7, 50, "1"), NOW)[0].record == Record(7, NOW, 1_050, True, "d", "1")
    assert decide(IN_PROGRESS, Accept(7, None), NOW)[0].record == Record(7, NOW, None, True, "d", None)
    assert decide(IN_PROGRESS, Extend(7, 50), NOW)[0].record == Record(7, NOW, 1_050, False, "d")
    assert decide(IN_PROGRESS, Release(7), NOW)[0] == FREE


def test_a_lifetime_ends_when_it_ends() -> None:
    record = Record(1, 100, 200)
    assert current(record, 199) == record
    assert current(record, 200) is None
    for_ever = Record(1, 100, None, is_done=True)
    assert current(for_ever, 40) == for_ever
