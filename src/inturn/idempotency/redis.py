"""Keys in Redis, for processes of many machines. The rules run here; Redis sees to it that nothing came between.

Read, decide and write are one step by ``WATCH`` and ``EXEC``: if somebody else changed the key or its counter
meanwhile, nothing is written and it is all done again. The time is Redis's own, so no machine's clock matters but its.
"""

import asyncio
import contextlib
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from inturn.core import limits
from inturn.core.errors import InputError, SetupError, StoreError
from inturn.core.idempotency import Answer, Request, Slot, decide
from inturn.idempotency.keys import IdempotencyKeys
from inturn.store.commands import Command
from inturn.store.key_records import no_record, read_record, written_record

if TYPE_CHECKING:
    import redis

T = TypeVar("T")
_DIGITS = 18  # of the longest counter: a time in microseconds has 16


class RedisKeys(IdempotencyKeys):
    """Keys in Redis 6 or newer, with the extra ``inturn[redis]``.

    Every key is one string ``inturn:{name:n}:key`` that expires by itself; its counter is ``inturn:{name:n}``, the same
    for about a thousandth of the keys, and stays.

    Args:
        client: a ``redis.Redis`` for threads; tasks use it too, in a thread, so that the event loop waits for nothing.
        name: keys of another name are others.

    Raises:
        SetupError: redis-py is not installed.
        InputError: The name is none, or the client is one of ``redis.asyncio``.
    """

    def __init__(self, client: "redis.Redis", name: str = "keys") -> None:
        super().__init__(_Server(client), name)


class _Server:
    """Runs commands at a Redis server."""

    def __init__(self, client: "redis.Redis") -> None:
        try:
            from redis import RedisError, WatchError
        except ImportError as error:
            msg = "RedisKeys needs redis-py: pip install 'inturn[redis]'"
            raise SetupError(msg) from error
        if hasattr(client, "aclose"):
            msg = "RedisKeys takes a redis.Redis, for threads and for tasks, not one of redis.asyncio"
            raise InputError(msg)
        self._client = client
        self._changed = WatchError
        self._error = RedisError

    def run(self, command: Command[T]) -> T:
        """Do a command for a thread."""
        store: Any = self  # of keys, which is all that their commands ask
        return command.answer(command.run(store, 0))

    async def arun(self, command: Command[T]) -> T:
        """Do a command for a task."""
        call = _Call(self, command)
        try:
            # No task, which the end of the event loop would cancel while its thread goes on.
            answer = await asyncio.get_running_loop().run_in_executor(None, call)
        except asyncio.CancelledError:
            undo = call.abandon()
            if undo is not None:
                asyncio.get_running_loop().run_in_executor(None, undo)
            raise
        return command.answer(answer)

    def decide(self, space: str, key: str, request: Request, _now_ms: int) -> Answer:
        """Read, decide and write, again and again until nobody came between."""
        counter = f"inturn:{{{space}:{zlib.crc32(key.encode()) % limits.KEY_TOKEN_SHARDS}}}"
        try:
            for _ in range(limits.KEY_TRIES):
                try:
                    return self._decide(f"{counter}:{key}", counter, request)
                except self._changed:
                    continue
        except UnicodeDecodeError as error:  # of a client that decodes
            raise no_record(f"Redis's {counter + ':' + key!r}", error.object, str(error)) from error
        except self._error as error:
            msg = f"Redis cannot be used: {error}"
            raise StoreError(msg) from error
        msg = f"others came between {limits.KEY_TRIES} times while the key {key!r} was looked at; nothing was changed"
        raise StoreError(msg)

    def _decide(self, key: str, counter: str, request: Request) -> Answer:
        pipe: Any  # redis-py's types say little of it
        with self._client.pipeline() as pipe:
            pipe.watch(key, counter)
            text, token = pipe.mget(key, counter)
            now_us = self._now_us(pipe)
            record = None if text is None else read_record(text, f"Redis's {key!r}")
            last_token = _count(token, counter)
            # MGET does not tell what is no string from what is not there.
            if token is None and (kind := _text(pipe.type(counter))) not in ("none", "string"):
                raise no_record(f"Redis's {counter!r}", kind, "a counter is a number")
            # Not before its time: after a restart from an older copy no token of before comes again.
            last_token = max(last_token, now_us, 0 if record is None else record.token)
            slot, answer = decide(Slot(record, last_token), request, now_us // 1000)
            if slot.record == record:
                return answer
            pipe.multi()
            if slot.record is None:
                pipe.delete(key)
            else:
                until_ms = slot.record.until_ms
                lifetime_ms = None if until_ms is None else until_ms - now_us // 1000
                # NX: nor is it told here what is no string.
                pipe.set(key, written_record(slot.record), px=lifetime_ms, nx=text is None)
            if slot.last_token != last_token:
                pipe.set(counter, slot.last_token)
            if not pipe.execute()[0]:
                raise no_record(f"Redis's {key!r}", _text(self._client.type(key)), "a record is a string")
            return answer

    def _now_us(self, pipe: Any) -> int:
        """Redis's time in microseconds since 1970."""
        seconds, microseconds = pipe.time()
        return int(seconds) * 1_000_000 + int(microseconds)


class _Call:
    """A command in a thread, for a task that may be cancelled before it has the answer: what it took is given back."""

    def __init__(self, server: _Server, command: Command[Any]) -> None:
        self._server: Any = server  # of keys, which is all that their commands ask
        self._command = command
        self._mutex = threading.Lock()
        self._is_gone = False
        self._found: Answer | None = None

    def __call__(self) -> Answer:
        """Do it."""
        found: Answer = self._command.run(self._server, 0)
        with self._mutex:
            self._found, is_gone = found, self._is_gone
        if is_gone:
            self._undo()
        return found

    def abandon(self) -> Callable[[], None] | None:
        """Nobody waits for the answer any more; what is to be called if it has come already."""
        with self._mutex:
            self._is_gone = True
            return None if self._found is None else self._undo

    def _undo(self) -> None:
        undoing = None if self._found is None else self._command.undoing(self._found)
        if undoing is not None:
            with contextlib.suppress(StoreError):  # its lock ends by itself
                undoing.run(self._server, 0)


def _text(answer: Any) -> str:
    """An answer of a client that decodes, or that does not."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)


def _count(token: Any, counter: str) -> int:
    """The last token that a counter has given; 0: there is no counter.

    Raises:
        StoreError: It is no counter: somebody else has written it, or it is damaged.
    """
    if token is None:
        return 0
    text = _text(token)
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise no_record(f"Redis's {counter!r}", text, "a counter is a number")
    return int(text)
