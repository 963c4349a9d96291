"""What each store promises beyond the suite: transactions, clearing away, units, and what is wrong in words."""

import asyncio
import builtins
import sqlite3
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from key_harness import KeyHarness, made

import inturn
from inturn.core import limits
from inturn.core.errors import InputError, LockLost, SetupError, StoreError
from inturn.core.idempotency_keys import decide
from inturn.database import Database
from inturn.idempotency import Completed, InProgress, MemoryKeys, RedisKeys, memory


@pytest.fixture
def db() -> Any:
    with inturn.open(":memory:") as db:
        yield db


def test_work_in_the_transaction_of_the_accept_is_done_exactly_once(db: Database) -> None:
    keys = db.idempotency_keys("payments")
    with db.transaction() as tx:
        tx.execute("create table paid (key text)")

    def pay(*, fails: bool) -> bool:
        with db.transaction() as tx:
            lock = keys.try_lock("tx-1", tx=tx)
            if lock:
                tx.execute("insert into paid values ('tx-1')")
                keys.accept(lock, tx=tx)
            if fails:
                raise RuntimeError
        return bool(lock)

    with pytest.raises(RuntimeError):
        pay(fails=True)
    assert [pay(fails=False) for _ in range(3)] == [True, False, False]
    with db.transaction() as tx:
        assert tx.execute("select count(*) from paid").fetchone() == (1,)


def test_a_rolled_back_accept_leaves_the_key_locked(db: Database) -> None:
    keys = db.idempotency_keys("payments")
    lock = keys.try_lock("tx-1")
    assert lock

    def fail() -> None:
        with db.transaction() as tx:
            keys.accept(lock, tx=tx)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert isinstance(keys.try_lock("tx-1"), InProgress)

    async def again() -> None:
        async with db.transaction() as tx:
            await keys.accept.aio(lock, tx=tx)

    asyncio.run(again())
    assert isinstance(keys.try_lock("tx-1"), Completed)


def test_a_lost_lock_rolls_back_the_transaction() -> None:
    now = 0
    with inturn.open(":memory:", clock=lambda: now) as db:
        keys = db.idempotency_keys("payments")
        with db.transaction() as tx:
            tx.execute("create table paid (key text)")
        lock = keys.try_lock("tx-1", 30)
        assert lock
        now = 30_000

        def pay() -> None:
            with db.transaction() as tx:
                tx.execute("insert into paid values ('tx-1')")
                keys.accept(lock, tx=tx)

        with pytest.raises(LockLost):
            pay()
        with db.transaction() as tx:
            assert tx.execute("select count(*) from paid").fetchone() == (0,)


def test_keys_are_scoped_by_name_and_survive_reopening(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        first = db.idempotency_keys("payments").try_lock("tx-1")
        assert first
        db.idempotency_keys("payments").release(first)
    with inturn.open(tmp_path / "shop.db") as db:
        second = db.idempotency_keys("payments").try_lock("tx-1")
        assert second
        assert second.fencing_token > first.fencing_token
        assert db.idempotency_keys("refunds").try_lock("tx-1")
        assert isinstance(db.idempotency_keys("payments").try_lock("tx-1"), InProgress)
        with pytest.raises(InputError, match="invalid name"):
            db.idempotency_keys("")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_expired_keys_are_deleted_gradually(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A few with every change, once there were as many changes as hours have gone by."""
    harness = KeyHarness(*made(kind, tmp_path, request))
    writer: Any = harness.keys.writer

    def kept() -> int:
        if kind == "memory":
            return len(writer._records)
        with writer.store.transaction():
            return int(writer.store.execute("select count(*) from inturn_key").fetchone()[0])

    for number in range(40):
        lock = harness.try_lock(f"tx-{number}")
        if number % 2:
            harness.accept(lock)
    assert kept() == 40
    harness.move(3 * 86_400)
    for number in range(90):
        harness.try_lock(f"new-{number}")
    assert kept() == 90


def test_redis_key_lifetimes_are_set_in_milliseconds(redis_client: redis.Redis) -> None:
    """Not seconds given to what takes milliseconds, or the other way round."""
    keys = RedisKeys(redis_client, "p")

    def lifetime_ms() -> int:
        (name,) = redis_client.keys("inturn:{p:*}:*")  # type: ignore[misc] # of an awaitable or not, say its types
        return int(redis_client.pttl(name))  # type: ignore[arg-type] # as above

    lock = keys.try_lock("tx-1", 30)
    assert lock
    assert 25_000 < lifetime_ms() <= 30_000
    keys.extend(lock, 90)
    assert 85_000 < lifetime_ms() <= 90_000
    keys.accept(lock, keep_s=3_600)
    assert 3_500_000 < lifetime_ms() <= 3_600_000
    lock = RedisKeys(redis_client, "q").try_lock("tx-1")
    assert lock
    RedisKeys(redis_client, "q").accept(lock, keep_s=None)
    (name,) = redis_client.keys("inturn:{q:*}:*")  # type: ignore[misc] # as above
    assert redis_client.pttl(name) == -1


def test_an_expired_redis_key_can_be_locked_again(redis_client: redis.Redis) -> None:
    keys = RedisKeys(redis_client)
    lock = keys.try_lock("tx-1", 0.001)
    assert lock
    while not (successor := keys.try_lock("tx-1")):
        pass
    assert successor.fencing_token > lock.fencing_token


def test_a_flushed_redis_never_repeats_a_fencing_token(redis_client: redis.Redis) -> None:
    keys = RedisKeys(redis_client)
    before = keys.try_lock("tx-1")
    assert before
    redis_client.flushall()
    after = keys.try_lock("tx-1")
    assert after
    assert after.fencing_token > before.fencing_token
    with pytest.raises(LockLost):
        keys.accept(before)


def test_a_redis_client_with_decode_responses_works(redis_port: int, redis_client: redis.Redis) -> None:
    with redis.Redis(host="127.0.0.1", port=redis_port, decode_responses=True) as client:
        keys = RedisKeys(client)
        lock = keys.try_lock("tx-1")
        assert lock
        keys.accept(lock, "☃")
        assert keys.try_lock("tx-1") == Completed("tx-1", '"☃"')
        assert RedisKeys(redis_client).try_lock("tx-1") == Completed("tx-1", '"☃"')


def between(keys: RedisKeys, act: Callable[[], object]) -> None:
    """Do it once, after the next request has read and before it writes."""
    server: Any = keys.writer
    its_own, acts = server._now_us, [act]

    def now_us(pipe: Any) -> int:
        if acts:
            acts.pop()()
        return int(its_own(pipe))

    server._now_us = now_us


def test_a_concurrent_redis_lock_is_detected(redis_client: redis.Redis) -> None:
    keys, others = RedisKeys(redis_client), RedisKeys(redis_client)
    between(keys, lambda: others.try_lock("tx-1"))
    assert isinstance(keys.try_lock("tx-1"), InProgress)


def test_a_redis_release_after_a_concurrent_accept_raises_lock_lost(redis_client: redis.Redis) -> None:
    """Both by who has the lock: it cannot be done and not done."""
    keys, others = RedisKeys(redis_client), RedisKeys(redis_client)
    lock = keys.try_lock("tx-1")
    assert lock
    between(keys, lambda: others.accept(lock))
    with pytest.raises(LockLost, match="already accepted"):
        keys.release(lock)
    assert isinstance(keys.try_lock("tx-1"), Completed)


def test_a_token_counter_shared_by_two_keys_never_decreases(redis_client: redis.Redis) -> None:
    keys, others = RedisKeys(redis_client), RedisKeys(redis_client)
    shard = zlib.crc32(b"tx-1") % limits.KEY_TOKEN_SHARDS
    second = next(name for name in map(str, count()) if zlib.crc32(name.encode()) % limits.KEY_TOKEN_SHARDS == shard)
    tokens = []

    def lock_and_release(times: int) -> None:
        for _ in range(times):
            lock = others.try_lock(second)
            assert lock
            tokens.append(lock.fencing_token)
            others.release(lock)

    lock_and_release(1)
    between(keys, lambda: lock_and_release(3))
    assert keys.try_lock("tx-1")
    lock_and_release(1)
    assert tokens == sorted(set(tokens))


def test_a_redis_lock_gives_up_after_repeated_concurrent_changes(redis_client: redis.Redis) -> None:
    keys = RedisKeys(redis_client)
    server: Any = keys.writer
    its_own = server._now_us

    def now_us(pipe: Any) -> int:
        lock = RedisKeys(redis_client).try_lock("tx-1")
        assert lock
        RedisKeys(redis_client).release(lock)
        return int(its_own(pipe))

    server._now_us = now_us
    with pytest.raises(StoreError, match="gave up after 100 concurrent changes of key"):
        keys.try_lock("tx-1")


def test_an_unreachable_redis_raises_store_error() -> None:
    nowhere = redis.Redis(host="127.0.0.1", port=1, retry=None)
    with pytest.raises(StoreError, match="Redis cannot be used: "):
        RedisKeys(nowhere).try_lock("tx-1")


def test_an_asyncio_redis_client_is_refused() -> None:
    with pytest.raises(InputError, match=r"needs a redis\.Redis"):
        RedisKeys(redis.asyncio.Redis())  # type: ignore[arg-type] # it is what is refused


def test_a_missing_redis_extra_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    client, its_own = redis.Redis(), builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name == "redis":
            raise ImportError
        return its_own(name, *args)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SetupError, match=r"pip install 'inturn\[redis\]'"):
        RedisKeys(client)


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_memory_and_redis_keys_refuse_tx(kind: str, db: Database) -> None:
    keys = MemoryKeys() if kind == "memory" else RedisKeys(redis.Redis())
    with db.transaction() as tx, pytest.raises(InputError, match="Keys cannot join a transaction"):
        keys.try_lock("tx-1", tx=tx)


def test_a_database_error_leaves_the_key_unchanged(db: Database) -> None:
    keys = db.idempotency_keys("payments")
    lock = keys.try_lock("tx-1")
    assert lock
    with db.transaction() as tx:
        tx.execute("create trigger no before update on inturn_key begin select raise(abort, 'no'); end")
    with pytest.raises(sqlite3.IntegrityError):
        keys.accept(lock)
    with db.transaction() as tx:
        tx.execute("drop trigger no")
    keys.accept(lock)


def test_memory_keys_are_locked_atomically(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*args: Any) -> Any:
        time.sleep(0.001)
        return decide(*args)

    monkeypatch.setattr(memory, "decide", slow)
    keys = MemoryKeys()
    with ThreadPoolExecutor(8) as threads:
        assert sum(map(bool, threads.map(keys.try_lock, ["tx-1"] * 8))) == 1
