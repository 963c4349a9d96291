"""What is no record of a key is told, with its name, and left as it is; what JSON would change is refused."""

import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

import inturn
from inturn.core import limits
from inturn.core.errors import InputError, StoreError
from inturn.core.idempotency_keys import KeyRecord
from inturn.core.identity import canonical, digest
from inturn.idempotency import Completed, IdempotencyKeys, Locked, MemoryKeys, RedisKeys, idempotent
from inturn.store.key_records import read_record, written_record

KEY = "tx-1"
COUNTER = f"inturn:{{mine:{zlib.crc32(KEY.encode()) % limits.KEY_TOKEN_SHARDS}}}"
RECORD = f"{COUNTER}:{KEY}"
DAMAGED = [
    "",
    "null",
    "somebody else's",
    "{",
    "[]",
    '{"token":1}',
    '{"token":"1","since_ms":0,"until_ms":1}',
    '{"token":1,"since_ms":0,"until_ms":null}',
    '{"token":1,"since_ms":0,"until_ms":null,"is_done":true,"result":"{"}',
    b"\xff\xfe",
]


@pytest.mark.parametrize("decodes", [False, True])
@pytest.mark.parametrize("verb", ["try_lock", "accept", "release"])
@pytest.mark.parametrize("text", DAMAGED)
def test_an_invalid_redis_record_raises_store_error_and_is_unchanged(
    text: str | bytes, verb: str, decodes: bool, redis_client: redis.Redis, redis_port: int
) -> None:
    redis_client.set(RECORD, text)
    with redis.Redis(host="127.0.0.1", port=redis_port, decode_responses=decodes) as client:
        keys = RedisKeys(client, "mine")
        with pytest.raises(StoreError, match="not a valid record of an idempotency key") as caught:
            getattr(keys, verb)(KEY if verb == "try_lock" else Locked(KEY, 1))
    assert RECORD in str(caught.value)
    assert redis_client.get(RECORD) == (text if isinstance(text, bytes) else text.encode())


def test_a_redis_key_of_another_type_raises_store_error_and_is_unchanged(redis_client: redis.Redis) -> None:
    keys = RedisKeys(redis_client, "mine")
    for name in (RECORD, COUNTER):
        redis_client.flushall()
        redis_client.hset(name, "a", "b")
        with pytest.raises(StoreError, match="holds 'hash'") as caught:
            keys.try_lock(KEY)
        assert name in str(caught.value)
        assert redis_client.hgetall(name) == {b"a": b"b"}
        assert redis_client.type(RECORD) == (b"hash" if name is RECORD else b"none")


@pytest.mark.parametrize("count", ["", "x", "-1", "1.5", "1_0", " 1", "9" * 30, "\u0661", b"\xff"])
def test_an_invalid_redis_counter_raises_store_error_and_is_unchanged(
    count: str | bytes, redis_client: redis.Redis
) -> None:
    redis_client.set(COUNTER, count)
    with pytest.raises(StoreError, match="a counter must be a number") as caught:
        RedisKeys(redis_client, "mine").try_lock(KEY)
    assert COUNTER in str(caught.value)
    assert redis_client.get(COUNTER) == (count if isinstance(count, bytes) else count.encode())


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_invalid_database_record_raises_store_error_and_is_unchanged(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = tmp_path / "shop.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with inturn.open(target, durable=False) as db:
        keys = db.idempotency_keys("mine")
        keys.try_lock(KEY)
        update = {"sqlite": "update inturn_key set record = ?", "postgres": "update inturn_key set record = %s"}[kind]
        for text in DAMAGED[:-1]:
            with db.transaction() as tx:
                tx.execute(update, (text,))
            for verb in ("try_lock", "accept", "release"):
                with pytest.raises(StoreError, match="the key 'tx-1' of 'mine' holds"):
                    getattr(keys, verb)(KEY if verb == "try_lock" else Locked(KEY, 1))
            with db.transaction() as tx:
                assert tx.execute("select record from inturn_key").fetchone() == (text,)


@given(st.binary(max_size=80) | st.text(max_size=80))
def test_an_arbitrary_text_is_a_key_record_or_a_store_error(text: str | bytes) -> None:
    try:
        record = read_record(text, "here")
    except StoreError:
        return
    assert read_record(written_record(record), "here") == record


def test_a_key_record_round_trips() -> None:
    for record in (KeyRecord(1, 0, 5, digest="d", behind_ms=-3), KeyRecord(1, 0, None, is_done=True, result='{"a":1}')):
        assert read_record(written_record(record), "here") == record


@dataclass
class Receipt:
    amount: Any


@pytest.mark.parametrize(
    ("result", "path"),
    [
        (math.nan, "result"),
        ({"a": [1, {"b c": -math.inf}]}, r"result\.a\[1\]\['b c'\]"),
        (Receipt((None, math.inf)), r"result\.amount\[1\]"),
    ],
)
def test_a_result_with_nan_or_infinity_is_refused_by_its_path(result: Any, path: str, keys: IdempotencyKeys) -> None:
    lock = keys.try_lock(KEY)
    assert lock
    with pytest.raises(InputError, match=rf"^{path} is -?(nan|inf) of type float: JSON has no such number"):
        keys.accept(lock, result)
    calls: list[int] = []

    def handler() -> Any:
        calls.append(1)
        return result

    wrapped = idempotent(handler, key=lambda: "tx-2", store=keys)
    with pytest.raises(InputError, match="JSON has no such number"):
        wrapped()
    assert wrapped() is None  # it has run, and its key is accepted without a result
    assert calls == [1]
    keys.accept(lock, {"a": None, "b": 1.5})
    assert isinstance(keys.try_lock(KEY), Completed)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def has_other_numbers(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(has_other_numbers, inner))


@given(JSON)
def test_a_result_round_trips_equal_or_is_refused(result: Any) -> None:
    keys = MemoryKeys()
    lock = keys.try_lock(KEY)
    assert lock
    try:
        keys.accept(lock, result)
    except InputError:
        assert has_other_numbers(result)
        return
    done = keys.try_lock(KEY)
    assert isinstance(done, Completed)
    assert done.result == result


def test_the_size_limit_of_a_result_is_in_bytes() -> None:
    keys = MemoryKeys()
    lock = keys.try_lock(KEY)
    assert lock
    with pytest.raises(InputError, match=r"1,048,578 bytes of JSON; at most "):
        keys.accept(lock, "é" * (limits.BODY_BYTES // 2))
    keys.accept(lock, "é" * (limits.BODY_BYTES // 2 - 1))


def test_a_cyclic_or_too_deep_payload_is_refused() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for payload in (cyclic, {"a": cyclic}, deep):
        with pytest.raises(InputError, match="no canonical form"):
            MemoryKeys().try_lock(KEY, payload=payload)
        with pytest.raises(InputError, match="no canonical form"):
            digest({"payload": payload})
        with pytest.raises(InputError):
            canonical(payload)
        with pytest.raises(InputError):
            idempotent(lambda _: None, key=lambda _: KEY, store=MemoryKeys())(payload)
