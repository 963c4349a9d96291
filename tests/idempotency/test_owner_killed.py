"""An owner that is killed between lock and accept leaves its key to the short lifetime, and nothing half done."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

import inturn
from inturn.core import limits
from inturn.core.errors import LockLost
from inturn.database import wall_clock_ms
from inturn.idempotency import Completed, InProgress, Locked, RedisKeys
from waiting import DEADLINE_S

pytestmark = pytest.mark.slow

OWNER = Path(__file__).parent / "programs" / "owner.py"


def killed(kind: str, target: Any, point: str | None = None) -> Locked:
    """Let it lock and be killed, at a point: its first transaction is the lock's, the second its own."""
    environment = {**os.environ, **({"INTURN_KILL_AT": point} if point else {})}
    command = [sys.executable, str(OWNER), kind, str(target)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        lock = Locked("tx-1", int(process.stdout.readline()))
        if point is None:
            process.kill()
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
    return lock


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("point", ["in transaction@2", "before commit@2", "after commit@2"])
def test_a_killed_owner_leaves_work_and_accept_both_committed_or_neither(
    tmp_path: Path, point: str, kind: str, request: pytest.FixtureRequest
) -> None:
    target = tmp_path / "shop.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    begun = 0 if kind == "sqlite" else 1  # a connection to PostgreSQL begins with a transaction
    step, _, number = point.partition("@")
    point, offset_ms = f"{step}@{int(number) + begun}", 0
    with inturn.open(target, clock=lambda: wall_clock_ms() + offset_ms) as db:
        with db.transaction() as tx:
            tx.execute("create table paid (key text)")
        dead = killed(kind, target, point)
        with db.transaction() as tx:
            paid = tx.execute("select * from paid").fetchall()
        keys = db.idempotency_keys("payments")
        if point.startswith("after"):
            assert paid == [("tx-1",)]
            assert keys.try_lock("tx-1") == Completed("tx-1", '"paid"')
            return
        assert paid == []
        assert isinstance(keys.try_lock("tx-1"), InProgress)
        offset_ms = limits.KEY_LOCK_S * 1000
        successor = keys.try_lock("tx-1")
        assert isinstance(successor, Locked)
        assert successor.fencing_token > dead.fencing_token
        with pytest.raises(LockLost):
            keys.accept(dead)


def test_a_killed_owner_leaves_its_redis_key_locked_until_expiry(redis_client: redis.Redis) -> None:
    dead = killed("redis", redis_client.connection_pool.connection_kwargs["port"])
    keys, offset_ms = RedisKeys(redis_client, "payments"), 0
    server: Any = keys.writer
    its_own = server._now_us
    server._now_us = lambda pipe: its_own(pipe) + offset_ms * 1000
    assert isinstance(keys.try_lock("tx-1"), InProgress)
    offset_ms = limits.KEY_LOCK_S * 1000
    successor = keys.try_lock("tx-1")
    assert isinstance(successor, Locked)
    assert successor.fencing_token > dead.fencing_token
    with pytest.raises(LockLost):
        keys.accept(dead)
