"""Keys in Redis, for processes on many machines. The rules run here; Redis makes each decision atomic.

Read, decide and write are one step by ``WATCH`` and ``EXEC``: if another client changes the key or its counter
meanwhile, nothing is written and the step is repeated. The time is that of Redis, so the clients' clocks do not matter.
"""

import asyncio
import contextlib
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from inturn.core import limits
from inturn.core.errors import InputError, SetupError, StoreError
from inturn.core.idempotency_keys import KeyAnswer, KeyRequest, KeySlot, decide
from inturn.idempotency.keys import IdempotencyKeys
from inturn.store.commands import Command
from inturn.store.key_records import no_record, read_record, written_record

if TYPE_CHECKING:
    import redis

T = TypeVar("T")
_DIGITS = 18  # of the longest counter; a time in microseconds has 16


class RedisKeys(IdempotencyKeys):
    """Keys in Redis 6 or newer, with the extra ``inturn[redis]``.

    Each key is one string ``inturn:{name:n}:key`` that expires automatically. Its counter ``inturn:{name:n}`` is shared
    by about a thousandth of the keys, and never expires.

    Args:
        client: a ``redis.Redis``. Tasks use it in a thread, so that the event loop is not blocked.
        name: the name; each name has its own keys.

    Raises:
        SetupError: if redis-py is not installed.
        InputError: if the name is not valid, or the client is from ``redis.asyncio``.
    """

    def __init__(self, client: "redis.Redis", name: str = "keys") -> None:
        super().__init__(_Server(client), name)


class _Server:
    """Runner of commands on a Redis server."""

    def __init__(self, client: "redis.Redis") -> None:
        try:
            from redis import RedisError, WatchError
        except ImportError as error:
            raise SetupError("RedisKeys needs redis-py: pip install 'inturn[redis]'") from error
        if hasattr(client, "aclose"):
            raise InputError("RedisKeys needs a redis.Redis, for threads and for tasks, not a client of redis.asyncio")
        self._client = client
        self._changed = WatchError
        self._error = RedisError

    def run(self, command: Command[T]) -> T:
        """Run a command from a thread."""
        store: Any = self  # commands about keys use nothing else of a store
        return command.answer(command.run(store, 0))

    async def arun(self, command: Command[T]) -> T:
        """Run a command from a task."""
        call = _Call(self, command)
        try:
            # Not a task: the end of the event loop would cancel it while its thread continues.
            answer = await asyncio.get_running_loop().run_in_executor(None, call)
        except asyncio.CancelledError:
            undo = call.abandon()
            if undo is not None:
                asyncio.get_running_loop().run_in_executor(None, undo)
            raise
        return command.answer(answer)

    def update_key(self, space: str, key: str, request: KeyRequest, _now_ms: int) -> KeyAnswer:
        """Read, decide and write, repeated until no other client interferes."""
        counter = f"inturn:{{{space}:{zlib.crc32(key.encode()) % limits.KEY_TOKEN_SHARDS}}}"
        try:
            for _ in range(limits.KEY_TRIES):
                try:
                    return self._decide(f"{counter}:{key}", counter, request)
                except self._changed:
                    continue
        except UnicodeDecodeError as error:  # from a client that decodes
            raise no_record(f"Redis's {counter + ':' + key!r}", error.object, str(error)) from error
        except self._error as error:
            raise StoreError(f"Redis cannot be used: {error}") from error
        msg = f"gave up after {limits.KEY_TRIES} concurrent changes of key {key!r}; nothing was changed"
        raise StoreError(msg)

    def _decide(self, key: str, counter: str, request: KeyRequest) -> KeyAnswer:
        pipe: Any  # redis-py's types are too vague
        with self._client.pipeline() as pipe:
            pipe.watch(key, counter)
            text, token = pipe.mget(key, counter)
            now_us = self._now_us(pipe)
            record = None if text is None else read_record(text, f"Redis's {key!r}")
            last_token = _count(token, counter)
            # MGET returns None both for a missing key and for one that is not a string.
            if token is None and (kind := _text(pipe.type(counter))) not in ("none", "string"):
                raise no_record(f"Redis's {counter!r}", kind, "a counter must be a number")
            # At least the time, so that no token recurs after a restart from an older copy.
            last_token = max(last_token, now_us, 0 if record is None else record.token)
            slot, answer = decide(KeySlot(record, last_token), request, now_us // 1000)
            if slot.record == record:
                return answer
            pipe.multi()
            if slot.record is None:
                pipe.delete(key)
            else:
                until_ms = slot.record.until_ms
                lifetime_ms = None if until_ms is None else until_ms - now_us // 1000
                # NX: a key that MGET saw as missing may be one that is not a string.
                pipe.set(key, written_record(slot.record), px=lifetime_ms, nx=text is None)
            if slot.last_token != last_token:
                pipe.set(counter, slot.last_token)
            if not pipe.execute()[0]:
                raise no_record(f"Redis's {key!r}", _text(self._client.type(key)), "a record must be a string")
            return answer

    def _now_us(self, pipe: Any) -> int:
        """Return Redis's time in microseconds since 1970."""
        seconds, microseconds = pipe.time()
        return int(seconds) * 1_000_000 + int(microseconds)


class _Call:
    """A command in a thread, for a task: if the task is cancelled before the answer, an acquired lock is released."""

    def __init__(self, server: _Server, command: Command[Any]) -> None:
        self._server: Any = server  # commands about keys use nothing else of a store
        self._command = command
        self._mutex = threading.Lock()
        self._is_gone = False
        self._found: KeyAnswer | None = None

    def __call__(self) -> KeyAnswer:
        """Run the command."""
        answer: KeyAnswer = self._command.run(self._server, 0)
        with self._mutex:
            self._found, is_gone = answer, self._is_gone
        if is_gone:
            self._undo()
        return answer

    def abandon(self) -> Callable[[], None] | None:
        """Note that no caller waits for the answer; return the function that undoes it, if it has already arrived."""
        with self._mutex:
            self._is_gone = True
            return None if self._found is None else self._undo

    def _undo(self) -> None:
        undoing = None if self._found is None else self._command.compensation(self._found)
        if undoing is not None:
            with contextlib.suppress(StoreError):  # the lock expires automatically
                undoing.run(self._server, 0)


def _text(answer: Any) -> str:
    """Return an answer as text, whether or not the client decodes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)


def _count(token: Any, counter: str) -> int:
    """Return the last token of a counter; 0 if there is no counter.

    Raises:
        StoreError: if the value is not a counter, because it is damaged or another program wrote it.
    """
    if token is None:
        return 0
    text = _text(token)
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise no_record(f"Redis's {counter!r}", text, "a counter must be a number")
    return int(text)
