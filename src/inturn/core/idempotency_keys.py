"""The rules of idempotency keys: locks, tokens and results.

A key is free, in progress or completed. In progress is a lock with a short lifetime, so that a crash of its owner does
not block the key forever. Completed has a long lifetime, so that a late duplicate is recognised. Every lock has a
token greater than all before it: a request with another token than the record's is refused and changes nothing. A token
is the greater of the next number and the store's time in microseconds, so tokens keep growing after the store was
restored from an older copy.

A read-only request never shortens a record's lifetime, whatever its clock says: the time of a clock that is behind the
record's own is stored in addition to the lifetime.

The rules are one pure function from a slot and a request to the new slot and an answer. A store only reads the slot,
calls the function and writes the new slot, atomically for one key and by its own clock.

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
class KeyRecord:
    """The record of a key that is not free.

    Attributes:
        token: token of the lock, current or completed.
        since_ms: when it was locked, extended or completed, in milliseconds since 1970 by the store's clock.
        until_ms: end of its lifetime, by the same clock; None: never.
        behind_ms: first time read by a clock that was before ``since_ms``; None: there was no such read.
        is_done: completed; else in progress.
        digest: digest of the payload that it was locked for, in hexadecimal; None: locked without one.
        result: the first result, as JSON; None: ``null``.
    """

    token: int
    since_ms: int
    until_ms: int | None
    is_done: bool = False
    digest: str | None = None
    result: str | None = None
    behind_ms: int | None = None


class KeySlot(NamedTuple):
    """A store's data for one key.

    Attributes:
        record: None: the key is free.
        last_token: the last token given out here. It outlives the record, since the owner of an old lock may send a
            request at any time; several keys may share it.
    """

    record: KeyRecord | None
    last_token: int


@dataclass(frozen=True, slots=True)
class LockKey:
    """A request to lock a key in order to run its operation.

    Attributes:
        timeout_ms: the short lifetime.
        digest: digest of the payload; None: it is not compared.
    """

    timeout_ms: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class AcceptKey:
    """A request to complete a key.

    Attributes:
        token: token of the lock.
        keep_ms: the long lifetime; None: forever.
        result: as JSON; None: ``null``.
    """

    token: int
    keep_ms: int | None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseKey:
    """A request to free a key whose operation was not done, so that another caller may run it."""

    token: int


@dataclass(frozen=True, slots=True)
class ExtendKey:
    """A request to extend a lock, to a lifetime of ``timeout_ms`` from now on."""

    token: int
    timeout_ms: int


KeyRequest: TypeAlias = LockKey | AcceptKey | ReleaseKey | ExtendKey


class KeyResult(Enum):
    """The result of a request."""

    LOCKED = "the caller holds the lock"
    IN_PROGRESS = "another caller holds the lock"
    COMPLETED = "the operation was completed before"
    CONFLICT = "the key was used for another payload"
    DONE = "the request of the lock's owner was carried out"
    LOST = "the lock has ended; nothing was changed"


class KeyAnswer(NamedTuple):
    """A verdict, and the key's record after the request.

    Attributes:
        verdict: result of the request.
        record: record of the key; None: it is free.
        wait_ms: rest of the lifetime of a key in progress, in milliseconds.
    """

    verdict: KeyResult
    record: KeyRecord | None
    wait_ms: int = 0


def decide(slot: KeySlot, request: KeyRequest, now_ms: int) -> tuple[KeySlot, KeyAnswer]:
    """Return the new slot and the answer to a request.

    Args:
        slot: the store's data for the key.
        request: the caller's request.
        now_ms: the store's time, in milliseconds since 1970.

    Returns:
        The slot to be stored, and the answer. If the slot is unchanged there is nothing to write.
    """
    before, record = slot, current(slot.record, now_ms)
    slot = slot._replace(record=record)
    if isinstance(request, LockKey):
        return _lock(slot, request, now_ms)
    if record is None:  # only a lock removes an expired record: by other clocks it may not have expired yet
        return before, KeyAnswer(KeyResult.LOST, None)
    if record.token != request.token:
        return slot, KeyAnswer(KeyResult.LOST, record)
    if record.is_done:  # an accept may be repeated if its answer was lost
        return slot, KeyAnswer(KeyResult.DONE if isinstance(request, AcceptKey) else KeyResult.LOST, record)
    after = _settled(record, request, now_ms)
    return slot._replace(record=after), KeyAnswer(KeyResult.DONE, after)


def current(record: KeyRecord | None, now_ms: int) -> KeyRecord | None:
    """Return a record, or None if its lifetime has ended.

    For a clock that is behind the record's, a lock would last longer by the difference. So for such a clock the
    lifetime also counts from its first read, which is after the lock: the lock then ends by any clock that runs
    steadily. For all other clocks the lifetime does not change; that of a completed record never changes.
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
    """Return the least token at a time, in microseconds: no store gives out tokens faster than that."""
    return now_ms * 1000


def _end_behind(record: KeyRecord, behind_ms: int, until_ms: int) -> int:
    return behind_ms + until_ms - record.since_ms


def _left_ms(record: KeyRecord, now_ms: int) -> int:
    """Return the rest of the lifetime of a record in progress."""
    until_ms = now_ms if record.until_ms is None else record.until_ms
    if now_ms < record.since_ms and record.behind_ms is not None:
        until_ms = min(until_ms, _end_behind(record, record.behind_ms, until_ms))
    return until_ms - now_ms


def _lock(slot: KeySlot, request: LockKey, now_ms: int) -> tuple[KeySlot, KeyAnswer]:
    record = slot.record
    if record is None:
        token = max(slot.last_token + 1, least_token(now_ms))
        locked = KeyRecord(token, now_ms, now_ms + request.timeout_ms, digest=request.digest)
        return KeySlot(locked, token), KeyAnswer(KeyResult.LOCKED, locked)
    if None not in {record.digest, request.digest} and record.digest != request.digest:
        return slot, KeyAnswer(KeyResult.CONFLICT, record)
    if record.is_done:
        return slot, KeyAnswer(KeyResult.COMPLETED, record)
    return slot, KeyAnswer(KeyResult.IN_PROGRESS, record, _left_ms(record, now_ms))


def _settled(record: KeyRecord, request: AcceptKey | ReleaseKey | ExtendKey, now_ms: int) -> KeyRecord | None:
    """Return a record in progress after its owner's request; None: the key is free. Its times never go back."""
    since_ms = max(now_ms, record.since_ms)
    match request:
        case ReleaseKey():
            return None
        case ExtendKey():
            return replace(record, since_ms=since_ms, until_ms=since_ms + request.timeout_ms, behind_ms=None)
        case AcceptKey():
            return KeyRecord(
                record.token,
                since_ms,
                None if request.keep_ms is None else since_ms + request.keep_ms,
                is_done=True,
                digest=record.digest,
                result=request.result,
            )
