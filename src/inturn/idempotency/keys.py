"""Idempotency keys: lock one, then accept or release it. The same interface over every store.

```
match keys.try_lock("tx-77"):
    case Locked() as lock:                     # the caller has the key
        keys.accept(lock, result=charge())
    case InProgress(retry_after_s=seconds):    # another caller has it
        …
    case Completed(result=result):             # the work was done before
        …
```
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError, InturnError, KeyConflict, LockLost
from inturn.core.idempotency_keys import AcceptKey, ExtendKey, KeyAnswer, KeyRequest, KeyResult, LockKey, ReleaseKey
from inturn.core.identity import digest
from inturn.core.queue.messages import checked_name
from inturn.core.texts import checked
from inturn.core.values.models import dumped
from inturn.core.values.plain import check_json
from inturn.queue.operation import Runner, operation
from inturn.store.commands import Command, Transaction, UpdateKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Locked:
    """The caller's lock of a key; true in an ``if``. Its two fields identify the lock, in another process too.

    Attributes:
        key: the key.
        fencing_token: greater for each later lock of the key; side effects that carry it expose a stale holder.
    """

    key: str
    fencing_token: int

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True, slots=True)
class InProgress:
    """The key is locked by another caller, whose outcome is unknown; false in an ``if``.

    Attributes:
        key: the key.
        retry_after_s: the seconds until the other lock ends, unless it is extended.
    """

    key: str
    retry_after_s: float

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, slots=True)
class Completed:
    """The work was done before; false in an ``if``.

    Attributes:
        key: the key.
        result: the result that ``accept`` was first given, after conversion to JSON and back.
        json: the result as JSON text, for decoding to another type.
    """

    key: str
    json: str

    @property
    def result(self) -> Any:
        """The result that ``accept`` was first given, after conversion to JSON and back."""
        return msgspec.json.decode(self.json)

    def __bool__(self) -> Literal[False]:
        return False


Attempt: TypeAlias = Locked | InProgress | Completed
"""The outcome of a ``try_lock``."""


class IdempotencyKeys:
    """The keys of one name, in one store; every verb has an ``aio`` for tasks.

    Args:
        writer: runs the commands.
        name: the name; each name has its own keys.

    Raises:
        InputError: if the name is not valid.
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
        """Lock the key if it is free, without waiting.

        Args:
            key: the name of the work to be run once, 1 to 1,000 characters without NUL.
            timeout_s: the length of the lock in seconds; then the key is free again, unless it was settled.
            payload: the content of the request; only its digest is stored and compared. None: not compared.
            tx: the caller's transaction.

        Returns:
            ``Locked``, ``InProgress`` or ``Completed``; only the first is true in an ``if``.

        Raises:
            KeyConflict: if the key was used for another payload.
            InputError: if the key, the time or the payload is invalid.
        """
        known = None if payload is None else digest({"payload": payload}).hex()
        request = LockKey(_milliseconds("timeout_s", timeout_s, limits.KEY_LOCK_MAX_S), known)
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
        """Mark the work as done: duplicates get the result. A second call with the same lock changes nothing.

        Args:
            lock: from ``try_lock``.
            result: any JSON value.
            keep_s: the seconds for which the result is kept; None: for ever.
            tx: the caller's transaction in the same database: its changes are applied exactly once.

        Raises:
            LockLost: if the lock has ended; nothing is changed then.
            InputError: if the result or the time is invalid.
        """
        keep_ms = None if keep_s is None else _milliseconds("keep_s", keep_s, limits.KEPT_S)
        return self._lock_command(
            lock, AcceptKey(_token(lock), keep_ms, None if result is None else encoded(result)), tx
        )

    @operation
    def release(self, lock: Locked, *, tx: Transaction | None = None) -> Command[None]:
        """Free the key at once, since the work was not done.

        Raises:
            LockLost: if the lock has ended; nothing is changed then.
        """
        return self._lock_command(lock, ReleaseKey(_token(lock)), tx)

    @operation
    def extend(self, lock: Locked, timeout_s: float, *, tx: Transaction | None = None) -> Command[None]:
        """Extend the lock to ``timeout_s`` seconds from now.

        Raises:
            LockLost: if the lock has ended; nothing is changed then.
            InputError: if the time is invalid.
        """
        timeout_ms = _milliseconds("timeout_s", timeout_s, limits.KEY_LOCK_MAX_S)
        return self._lock_command(lock, ExtendKey(_token(lock), timeout_ms), tx)

    def _lock_command(self, lock: Locked, request: KeyRequest, tx: Transaction | None) -> Command[None]:
        return self._command(lock.key, request, lambda answer: _check_not_lost(lock, answer), tx)

    def _command(
        self, key: str, request: KeyRequest, answer: Callable[[KeyAnswer], T], tx: Transaction | None
    ) -> Command[T]:
        checked("the key", key)
        if tx is not None and not self.joins_transactions:
            msg = f"{type(self).__name__} cannot join a transaction; tx= needs keys from db.idempotency_keys"
            raise InputError(msg)
        return UpdateKey(self.name, key, request, answer).within(tx)


class DatabaseKeys(IdempotencyKeys):
    """Keys in a database of queues, from ``Database.idempotency_keys``; with ``tx=`` they join a transaction."""

    joins_transactions = True


def encoded(result: Any) -> str:
    """Return a result as JSON.

    Raises:
        InputError: if it cannot be encoded, or is too long.
    """
    if not isinstance(result, msgspec.Raw):  # already encoded
        check_json(result, "result")
    try:
        data = msgspec.json.encode(result, enc_hook=dumped)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:  # invalid Unicode, large numbers
        msg = f"a result of type {type(result).__name__} cannot be stored, since JSON cannot represent it: {error}"
        raise InputError(msg) from error
    if len(data) > limits.BODY_BYTES:
        raise InputError(f"a result has {len(data):,} bytes of JSON; at most {limits.BODY_BYTES:,} can be stored")
    return data.decode()


@contextlib.contextmanager
def noting_release_errors(error: BaseException) -> Iterator[None]:
    """Add an error of the release to the error that is being raised, as a note."""
    try:
        yield
    except InturnError as other:
        error.add_note(f"the idempotency key was not released: {other}")


def _milliseconds(name: str, seconds: float, most_s: int) -> int:
    """Return a lifetime in milliseconds, rounded up so that it is never 0.

    Raises:
        InputError: if it is not a number, or out of bounds.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= most_s:
        raise InputError(f"{name} is {seconds!r}; expected a number of seconds greater than 0, at most {most_s}")
    return math.ceil(seconds * 1000)


def _token(lock: Locked) -> int:
    """Return the fencing token of a lock, after checking that it is one."""
    check_type("lock", lock, Locked, "the Locked that try_lock() returned")
    return lock.fencing_token


def _attempt(key: str, answer: KeyAnswer) -> Attempt:
    verdict, record, wait_ms = answer
    if verdict is KeyResult.LOCKED and record is not None:
        return Locked(key, record.token)
    if verdict is KeyResult.IN_PROGRESS:
        return InProgress(key, wait_ms / 1000)
    if verdict is KeyResult.COMPLETED and record is not None:
        return Completed(key, record.result or "null")
    raise KeyConflict(f"key {key!r} was already used for another payload; use a new key for each request")


def _check_not_lost(lock: Locked, answer: KeyAnswer) -> None:
    if answer.verdict is not KeyResult.LOST:
        return
    record = answer.record
    if record is None:
        reason = "it has expired, or was released"
    elif record.token == lock.fencing_token:
        reason = "it was already accepted"
    else:
        reason = "it has expired, and another caller " + (
            "has completed the work" if record.is_done else "holds it now"
        )
    raise LockLost(f"the lock of key {lock.key!r} was lost: {reason}; nothing was changed")
