"""Every store against the pure rules: any requests in any order, at any time, have the same answers."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule, run_state_machine_as_test

import inturn
from inturn.core.errors import KeyConflict, LockLost
from inturn.core.idempotency_keys import (
    AcceptKey,
    ExtendKey,
    KeyAnswer,
    KeyRequest,
    KeyResult,
    KeySlot,
    LockKey,
    ReleaseKey,
    decide,
)
from inturn.core.identity import digest
from inturn.idempotency import Completed, IdempotencyKeys, InProgress, Locked, MemoryKeys, RedisKeys

START_MS = 1_000_000_000_000
KEYS = st.sampled_from(["a", "b", "c"])
TIMES = st.sampled_from([1_000, 5_000])  # thousands of seconds, so that Redis's own expiry does not come between


class Machine(RuleBasedStateMachine):
    """Says everything to the rules over a dict and to a store, and remembers what must never happen."""

    kind = ""
    client: Any = None
    schemas: Any = None
    locks: Bundle[Locked] = Bundle("locks")

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.slots: dict[str, KeySlot] = {}
        self.last: dict[str, int] = {}  # the last token that was seen of each key
        self.tokens: dict[Locked, int] = {}  # what the rules call the store's locks
        self.is_done: set[str] = set()  # completed for ever
        self.cleanup = ExitStack()
        self.keys = self.made()

    def made(self) -> IdempotencyKeys:
        if self.kind == "memory":
            return MemoryKeys(clock=lambda: self.now_ms)
        if self.kind == "sqlite":
            path = Path(self.cleanup.enter_context(tempfile.TemporaryDirectory())) / "shop.db"
            db = self.cleanup.enter_context(inturn.open(path, durable=False, clock=lambda: self.now_ms))
            return db.idempotency_keys("k")
        if self.kind == "postgres":
            db = self.cleanup.enter_context(inturn.open(self.schemas.next(), durable=False, clock=lambda: self.now_ms))
            return db.idempotency_keys("k")
        self.client.flushall()
        keys = RedisKeys(self.client)
        keys.writer._now_us = lambda pipe: self.now_ms * 1000  # type: ignore[attr-defined]
        return keys

    def teardown(self) -> None:
        self.cleanup.close()

    def expected(self, key: str, request: KeyRequest) -> KeyAnswer:
        slot = self.slots.get(key, KeySlot(None, 0))
        self.slots[key], answer = decide(slot, request, self.now_ms)
        return answer

    @rule(target=locks, key=KEYS, timeout_s=TIMES, payload=st.sampled_from([None, 1, 2]))
    def lock(self, key: str, timeout_s: int, payload: int | None) -> Any:
        known = None if payload is None else digest({"payload": payload}).hex()
        verdict, record, wait_ms = self.expected(key, LockKey(timeout_s * 1000, known))
        try:
            attempt = self.keys.try_lock(key, timeout_s, payload=payload)
        except KeyConflict:
            assert verdict is KeyResult.CONFLICT
            return Locked(key, 0)
        match attempt:
            case Locked():
                assert verdict is KeyResult.LOCKED
                assert key not in self.is_done
                assert attempt.fencing_token > self.last.get(key, 0)
                assert record is not None
                self.last[key], self.tokens[attempt] = attempt.fencing_token, record.token
                return attempt
            case InProgress():
                assert (verdict, wait_ms) == (KeyResult.IN_PROGRESS, attempt.retry_after_s * 1000)
            case Completed():
                assert verdict is KeyResult.COMPLETED
                assert record is not None
                assert record.result == attempt.json
        return Locked(key, 0)

    def settle(self, lock: Locked, request: KeyRequest, verb: str, *args: Any, **more: Any) -> None:
        verdict = self.expected(lock.key, request).verdict
        try:
            getattr(self.keys, verb)(lock, *args, **more)
        except LockLost:
            assert verdict is KeyResult.LOST
        else:
            assert verdict is KeyResult.DONE

    @rule(lock=locks, keep_s=st.sampled_from([1_000, 9_000, 9_000, None]))
    def accept(self, lock: Locked, keep_s: int | None) -> None:
        token, result = self.tokens.get(lock, 0), len(self.tokens)
        request = AcceptKey(token, None if keep_s is None else keep_s * 1000, str(result))
        self.settle(lock, request, "accept", result, keep_s=keep_s)
        record = self.slots[lock.key].record
        if record is not None and record.until_ms is None:
            self.is_done.add(lock.key)

    @rule(lock=consumes(locks))
    def release(self, lock: Locked) -> None:
        self.settle(lock, ReleaseKey(self.tokens.get(lock, 0)), "release")

    @rule(lock=locks, timeout_s=TIMES)
    def extend(self, lock: Locked, timeout_s: int) -> None:
        self.settle(lock, ExtendKey(self.tokens.get(lock, 0), timeout_s * 1000), "extend", timeout_s)

    @rule(seconds=st.sampled_from([0.001, 999.999, 1_000, 5_000, 10_000]))
    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class BackAndForth(Machine):
    """The clock is set back too. Memory's never is, and Redis expires by it without asking."""

    @initialize()
    def others(self) -> None:
        """So that clearing away has something to do."""
        for key in "xyz":
            self.keys.try_lock(key, 1_000)

    @rule(seconds=st.sampled_from([-500, -3_000]))
    def back(self, seconds: float) -> None:
        self.now_ms += seconds * 1000


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
@pytest.mark.thorough
def test_every_key_store_answers_as_the_pure_rules(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long a row's lock was waited for counts there; here all the time that goes by is the clock's.
    monkeypatch.setattr("inturn.store.postgres.keys.time", SimpleNamespace(monotonic=lambda: 0.0))
    needed = {"redis": ("client", "redis_client"), "postgres": ("schemas", "postgres_schemas")}
    members: dict[str, Any] = {"kind": kind}
    if kind in needed:
        name, fixture = needed[kind]
        members[name] = request.getfixturevalue(fixture)
    machine = type("Machine", (BackAndForth if kind in ("sqlite", "postgres") else Machine,), members)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=settings().max_examples * 40 // 100, stateful_step_count=40)
    )
