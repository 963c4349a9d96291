"""Many for one key, from threads, tasks and processes: exactly one runs."""

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import inturn
from inturn.core.errors import LockLost
from inturn.idempotency import IdempotencyKeys, Locked
from threads import together
from waiting import DEADLINE_S

RACER = Path(__file__).parent / "programs" / "racer.py"


def test_one_of_many_threads_locks_each_key(keys: IdempotencyKeys) -> None:
    start = threading.Barrier(12, timeout=DEADLINE_S)
    locks: list[Locked] = []

    def race() -> None:
        start.wait()
        locks.extend(lock for number in range(20) if (lock := keys.try_lock(f"tx-{number}")))

    together(*[race] * 12)
    assert sorted(lock.key for lock in locks) == sorted(f"tx-{number}" for number in range(20))


def test_one_of_many_tasks_locks_the_key(keys: IdempotencyKeys) -> None:
    async def race() -> int:
        return sum(map(bool, await asyncio.gather(*(keys.try_lock.aio("tx-1") for _ in range(50)))))

    assert asyncio.run(race()) == 1


def test_a_released_key_is_locked_by_one_holder_at_a_time(keys: IdempotencyKeys) -> None:
    """Nobody is ever beside another, and no token comes twice, when locks go from hand to hand."""
    tokens: list[int] = []
    holders = lost = 0

    def work() -> None:
        nonlocal holders, lost
        for _ in range(100):
            if lock := keys.try_lock("tx-1"):
                holders += 1
                assert holders == 1
                tokens.append(lock.fencing_token)
                holders -= 1
                try:
                    keys.release(lock)
                except LockLost:
                    lost += 1

    together(*[work] * 6)
    assert tokens == sorted(set(tokens))
    assert not holders
    assert not lost


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
@pytest.mark.thorough
def test_one_of_many_processes_locks_each_key(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "sqlite":
        target = str(tmp_path / "shop.db")
        inturn.open(target).close()
    elif kind == "postgres":
        target = request.getfixturevalue("postgres_url")
    else:
        target = str(request.getfixturevalue("redis_client").connection_pool.connection_kwargs["port"])
    command = [sys.executable, str(RACER), kind, target, "100"]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = [json.loads(racer.communicate(timeout=DEADLINE_S)[0]) for racer in racers]
    assert Counter(key for keys in answers for key in keys) == Counter(f"tx-{number}" for number in range(100))
