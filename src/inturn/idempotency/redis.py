"""Keys in Redis, for processes of many machines. The rules run here; Redis sees to it that nothing came between.

Read, decide and write are one step by ``WATCH`` and ``EXEC``: if somebody else changed the key or its counter
meanwhile, nothing is written and it is all done again. The time is Redis's own, so no machine's clock matters but its.
"""

import asyncio
import zlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from inturn.core import limits
from inturn.core.errors import InputError, SetupError, StoreError
from inturn.core.idempotency import Answer, Record, Request, Slot, decide
from inturn.idempotency.keys import IdempotencyKeys
from inturn.store.commands import Command

if TYPE_CHECKING:
    import redis

T = TypeVar("T")


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
        return await asyncio.to_thread(self.run, command)

    def decide(self, space: str, key: str, request: Request, _now_ms: int) -> Answer:
        """Read, decide and write, again and again until nobody came between."""
        counter = f"inturn:{{{space}:{zlib.crc32(key.encode()) % limits.KEY_TOKEN_SHARDS}}}"
        try:
            for _ in range(limits.KEY_TRIES):
                try:
                    return self._decide(f"{counter}:{key}", counter, request)
                except self._changed:
                    continue
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
            record = msgspec.json.decode(text, type=Record) if text else None
            # A server that has lost its counters begins at its time, so that no token of before comes again.
            last_token = int(token) if token else now_us
            slot, answer = decide(Slot(record, last_token), request, now_us // 1000)
            if slot.record == record:
                return answer
            pipe.multi()
            if slot.record is None:
                pipe.delete(key)
            else:
                until_ms = slot.record.until_ms
                lifetime_ms = None if until_ms is None else until_ms - now_us // 1000
                pipe.set(key, msgspec.json.encode(slot.record), px=lifetime_ms)
            if slot.last_token != last_token:
                pipe.set(counter, slot.last_token)
            pipe.execute()
            return answer

    def _now_us(self, pipe: Any) -> int:
        """Redis's time in microseconds since 1970."""
        seconds, microseconds = pipe.time()
        return int(seconds) * 1_000_000 + int(microseconds)
