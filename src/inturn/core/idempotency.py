"""The rules of idempotency keys: who may run, who is told what, and whose lock it is.

A key is free, in progress or completed. In progress is a lock with a short lifetime, so that the crash of its owner is
not for ever; completed lasts long, so that a late duplicate is known. Every lock has a token greater than all before
it: whoever comes with another token than the record has is told so and changes nothing. A token is the greater of the
next number and the store's time in microseconds, so tokens grow on after the store was put back from an older copy.

A record's lifetime is never made shorter by who only looks, whatever its clock says: what a clock that is behind the
record's own has seen is kept beside it.

The rules are one pure function from what is known and a request to what is known then and an answer. A store does no
more than to read, decide and write, atomically for one key, with its own clock.

| request | free | in progress, its own lock | in progress, another's | completed |
|---|---|---|---|---|
| lock | locked | (a lock has no owner before it) | in progress | completed |
| accept | lost | done | lost | done if by this lock, else lost |
| release, extend | lost | done | lost | lost |

A lock with another payload than the record's is a conflict, whichever state the key is in.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of a key that is not free.

    Attributes:
        token: of the lock that is, or was completed.
        since_ms: when it was locked, extended or completed, in milliseconds since 1970 by the store's clock.
        until_ms: when its lifetime ends, the same way; None: never.
        behind_ms: what the clock said when somebody first looked whose clock was before ``since_ms``; None: nobody has.
        is_done: completed; else in progress.
        digest: of the payload that it was locked for, in hexadecimal; None: it was locked without.
        result: the first result, as JSON; None: ``null``.
    """

    token: int
    since_ms: int
    until_ms: int | None
    is_done: bool = False
    digest: str | None = None
    result: str | None = None
    behind_ms: int | None = None


class Slot(NamedTuple):
    """What a store has at a key.

    Attributes:
        record: None: the key is free.
        last_token: the last token that was given here. It outlives the record, since the owner of an old lock may come
            at any time; several keys may share it.
    """

    record: Record | None
    last_token: int


@dataclass(frozen=True, slots=True)
class Lock:
    """The wish to run what the key stands for.

    Attributes:
        timeout_ms: for how long, the short lifetime.
        digest: of the payload; None: it is not compared.
    """

    timeout_ms: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Accept:
    """It was done.

    Attributes:
        token: of the lock.
        keep_ms: the long lifetime; None: for ever.
        result: as JSON; None: ``null``.
    """

    token: int
    keep_ms: int | None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """It was not done, and somebody else may do it."""

    token: int


@dataclass(frozen=True, slots=True)
class Extend:
    """It takes longer: a lifetime of so much from now on."""

    token: int
    timeout_ms: int


Request: TypeAlias = Lock | Accept | Release | Extend


class Verdict(Enum):
    """What became of a request."""

    LOCKED = "the key is the caller's"
    IN_PROGRESS = "somebody else has it"
    COMPLETED = "it was done before"
    CONFLICT = "it was used for another payload"
    DONE = "what the lock's owner wanted is done"
    LOST = "the lock is over, and nothing was changed"


class Answer(NamedTuple):
    """A verdict, and what there is at the key now.

    Attributes:
        verdict: what became of the request.
        record: what is at the key now; None: it is free.
        wait_ms: how much is left of the lifetime of a key in progress, in milliseconds.
    """

    verdict: Verdict
    record: Record | None
    wait_ms: int = 0


def decide(slot: Slot, request: Request, now_ms: int) -> tuple[Slot, Answer]:
    """What becomes of a request.

    Args:
        slot: what the store has at the key.
        request: what somebody wants.
        now_ms: the store's time, in milliseconds since 1970.

    Returns:
        What the store is to have then, and the answer. Where the slot is the same there is nothing to write.
    """
    before, record = slot, current(slot.record, now_ms)
    slot = slot._replace(record=record)
    if isinstance(request, Lock):
        return _lock(slot, request, now_ms)
    if record is None:  # what is over is not taken away by who has no lock of it: others' clocks may say otherwise
        return before, Answer(Verdict.LOST, None)
    if record.token != request.token:
        return slot, Answer(Verdict.LOST, record)
    if record.is_done:  # an accept whose answer got lost may be said again
        return slot, Answer(Verdict.DONE if isinstance(request, Accept) else Verdict.LOST, record)
    after = _settled(record, request, now_ms)
    return slot._replace(record=after), Answer(Verdict.DONE, after)


def current(record: Record | None, now_ms: int) -> Record | None:
    """What is left of a record: nothing once its lifetime is over.

    A clock behind the record's would make a lock last for as much longer as it is behind. So for such a clock its
    lifetime also counts from the first look, which comes after the lock: it is over then by any clock that goes
    steadily. The lifetime itself stays what it is for everybody else; of what is completed it stays in any case.
    """
    if record is None or record.until_ms is None:
        return record
    if record.until_ms <= now_ms:
        return None
    if record.is_done or now_ms >= record.since_ms:
        return record
    if record.behind_ms is None:
        return replace(record, behind_ms=now_ms)
    return record if now_ms < _end_behind(record, record.behind_ms, record.until_ms) else None


def least_token(now_ms: int) -> int:
    """The least token at a time: in microseconds, so that no store gives more tokens than time goes by."""
    return now_ms * 1000


def _end_behind(record: Record, behind_ms: int, until_ms: int) -> int:
    return behind_ms + until_ms - record.since_ms


def _left_ms(record: Record, now_ms: int) -> int:
    """How much is left of the lifetime of a record in progress."""
    until_ms = now_ms if record.until_ms is None else record.until_ms
    if now_ms < record.since_ms and record.behind_ms is not None:
        until_ms = min(until_ms, _end_behind(record, record.behind_ms, until_ms))
    return until_ms - now_ms


def _lock(slot: Slot, request: Lock, now_ms: int) -> tuple[Slot, Answer]:
    record = slot.record
    if record is None:
        token = max(slot.last_token + 1, least_token(now_ms))
        locked = Record(token, now_ms, now_ms + request.timeout_ms, digest=request.digest)
        return Slot(locked, token), Answer(Verdict.LOCKED, locked)
    if None not in {record.digest, request.digest} and record.digest != request.digest:
        return slot, Answer(Verdict.CONFLICT, record)
    if record.is_done:
        return slot, Answer(Verdict.COMPLETED, record)
    return slot, Answer(Verdict.IN_PROGRESS, record, _left_ms(record, now_ms))


def _settled(record: Record, request: Accept | Release | Extend, now_ms: int) -> Record | None:
    """A record in progress after its owner's request; None: the key is free. Its times never go back."""
    since_ms = max(now_ms, record.since_ms)
    match request:
        case Release():
            return None
        case Extend():
            return replace(record, since_ms=since_ms, until_ms=since_ms + request.timeout_ms, behind_ms=None)
        case Accept():
            return Record(
                record.token,
                since_ms,
                None if request.keep_ms is None else since_ms + request.keep_ms,
                is_done=True,
                digest=record.digest,
                result=request.result,
            )
