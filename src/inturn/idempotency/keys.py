"""Keys as their users see them: lock one, then accept or release it. The same over every store.

```
match keys.try_lock("tx-77"):
    case Locked() as lock:                     # it is yours
        keys.accept(lock, result=charge())
    case InProgress(retry_after_s=seconds):    # somebody else is at it
        …
    case Completed(result=result):             # it was done before
        …
```
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from inturn.core import limits
from inturn.core.envelope import checked_name
from inturn.core.errors import InputError, KeyConflict, LockLost
from inturn.core.idempotency import Accept, Answer, Extend, Lock, Release, Request, Verdict
from inturn.core.message import digest
from inturn.core.texts import checked
from inturn.core.values import check_json
from inturn.queue.operation import Runner, operation
from inturn.store.commands import Command, Decide, Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Locked:
    """The key is the caller's: it is true in an ``if``. Who has its two fields has the lock, in another process too.

    Attributes:
        key: which key.
        fencing_token: of all locks of the key, the later one's is greater: a side effect that carries it can be told
            from one of an older lock.
    """

    key: str
    fencing_token: int

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True, slots=True)
class InProgress:
    """Somebody else has the key, and whether it will be done nobody knows: it is false in an ``if``.

    Attributes:
        key: which key.
        retry_after_s: in how many seconds the other's lock is over, if it is not extended.
    """

    key: str
    retry_after_s: float

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, slots=True)
class Completed:
    """It was done before: it is false in an ``if``.

    Attributes:
        key: which key.
        result: what the first one's ``accept`` was given, after its way through JSON.
        json: the same as text, for who makes something else of it.
    """

    key: str
    json: str

    @property
    def result(self) -> Any:
        """What the first one's ``accept`` was given, after its way through JSON."""
        return msgspec.json.decode(self.json)

    def __bool__(self) -> Literal[False]:
        return False


Attempt: TypeAlias = Locked | InProgress | Completed
"""What a ``try_lock`` came to."""


class IdempotencyKeys:
    """Keys of one name, over one store; every verb has an ``aio`` that does the same in a task.

    Args:
        writer: who reads, decides and writes.
        name: keys of another name are others.

    Raises:
        InputError: The name is none.
    """

    joins_transactions = False

    def __init__(self, writer: Runner, name: str) -> None:
        self.writer: Final = writer
        self.name: Final = checked_name(name)

    @operation
    def try_lock(
        self,
        key: str,
        timeout_s: float = limits.KEY_LOCK_S,
        *,
        payload: Any = None,
        tx: Transaction | None = None,
    ) -> Command[Attempt]:
        """Take the key, if it is free. Nothing is waited for.

        Args:
            key: what is to be run once, 1 to 1,000 characters without NUL.
            timeout_s: how many seconds it is in progress, unless it is settled before; then it is free again.
            payload: what the request consists of; None: it is not compared. Its digest is kept, not the payload.
            tx: a transaction of the caller's.

        Returns:
            ``Locked``, ``InProgress`` or ``Completed``; only the first is true in an ``if``.

        Raises:
            KeyConflict: the key was used for another payload.
            InputError: if the key, the time or the payload cannot be one.
        """
        known = None if payload is None else digest({"payload": payload}).hex()
        request = Lock(_milliseconds("timeout_s", timeout_s, limits.KEY_LOCK_MAX_S), known)
        return self._command(key, request, lambda answer: _attempt(key, answer), tx)

    @operation
    def accept(
        self,
        lock: Locked,
        result: Any = None,
        *,
        keep_s: float | None = limits.KEY_KEPT_S,
        tx: Transaction | None = None,
    ) -> Command[None]:
        """It was done: duplicates are told so, and given the result. Said twice with one lock, it is said once.

        Args:
            lock: from ``try_lock``.
            result: what JSON can hold.
            keep_s: for how many seconds it is known; None: for ever.
            tx: a transaction of the caller's, for the same database: what is done in it is done exactly once.

        Raises:
            LockLost: if the lock is over; nothing is changed then.
            InputError: if the result or the time cannot be one.
        """
        keep_ms = None if keep_s is None else _milliseconds("keep_s", keep_s, limits.KEPT_S)
        return self._settle(lock, Accept(lock.fencing_token, keep_ms, None if result is None else encoded(result)), tx)

    @operation
    def release(self, lock: Locked, *, tx: Transaction | None = None) -> Command[None]:
        """It was not done: the key is free at once.

        Raises:
            LockLost: if the lock is over; nothing is changed then.
        """
        return self._settle(lock, Release(lock.fencing_token), tx)

    @operation
    def extend(self, lock: Locked, timeout_s: float, *, tx: Transaction | None = None) -> Command[None]:
        """It takes longer: the key is in progress for ``timeout_s`` seconds from now on.

        Raises:
            LockLost: if the lock is over; nothing is changed then.
            InputError: if the time cannot be one.
        """
        timeout_ms = _milliseconds("timeout_s", timeout_s, limits.KEY_LOCK_MAX_S)
        return self._settle(lock, Extend(lock.fencing_token, timeout_ms), tx)

    def _settle(self, lock: Locked, request: Request, tx: Transaction | None) -> Command[None]:
        return self._command(lock.key, request, lambda answer: _check_not_lost(lock, answer), tx)

    def _command(self, key: str, request: Request, answer: Callable[[Answer], T], tx: Transaction | None) -> Command[T]:
        checked("the key", key)
        if tx is not None and not self.joins_transactions:
            msg = f"tx= is for keys of a database, from db.idempotency_keys; {type(self).__name__} join no transaction"
            raise InputError(msg)
        return Decide(self.name, key, request, answer).within(tx)


class DatabaseKeys(IdempotencyKeys):
    """Keys in a database of queues: with ``tx=`` they join a transaction; from ``Database.idempotency_keys``."""

    joins_transactions = True


def encoded(result: Any) -> str:
    """A result as JSON.

    Raises:
        InputError: if it cannot be, or is too long.
    """
    if not isinstance(result, msgspec.Raw):  # which was encoded before
        check_json(result, "result")
    try:
        data = msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:  # text that is no Unicode, large numbers
        msg = f"a result of type {type(result).__name__} cannot be kept, since JSON cannot hold it: {error}"
        raise InputError(msg) from error
    if len(data) > limits.BODY_BYTES:
        msg = f"a result of {len(data):,} bytes of JSON cannot be kept: {limits.BODY_BYTES:,} is the most"
        raise InputError(msg)
    return data.decode()


def _milliseconds(what: str, seconds: float, most_s: int) -> int:
    """A lifetime, rounded up: it is never none at all.

    Raises:
        InputError: if it is no number, or out of bounds.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= most_s:
        msg = f"{what} is {seconds!r}; it is a number of seconds above 0 and up to {most_s}"
        raise InputError(msg)
    return math.ceil(seconds * 1000)


def _attempt(key: str, answer: Answer) -> Attempt:
    verdict, record, wait_ms = answer
    if verdict is Verdict.LOCKED and record is not None:
        return Locked(key, record.token)
    if verdict is Verdict.IN_PROGRESS:
        return InProgress(key, wait_ms / 1000)
    if verdict is Verdict.COMPLETED and record is not None:
        return Completed(key, record.result or "null")
    msg = f"the key {key!r} was used for another payload before: give another request another key"
    raise KeyConflict(msg)


def _check_not_lost(lock: Locked, answer: Answer) -> None:
    if answer.verdict is not Verdict.LOST:
        return
    record = answer.record
    if record is None:
        why = "its time was over, or it was released"
    elif record.token == lock.fencing_token:
        why = "it was accepted before"
    else:
        why = "its time was over, and somebody else " + ("has done it since" if record.is_done else "is at it now")
    msg = f"the lock of {lock.key!r} was lost: {why}; nothing was changed"
    raise LockLost(msg)
