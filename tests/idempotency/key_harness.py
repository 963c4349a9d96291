"""What the tests of keys share: keys of each kind, with a clock that can be moved."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import inturn
from inturn.database import wall_clock_ms
from inturn.idempotency import IdempotencyKeys, MemoryKeys, RedisKeys

KINDS = ["memory", "sqlite", "postgres", "redis"]
_names = count()


class KeyHarness:
    """Keys and their clock, which goes as it does and can be moved; verbs are called from a thread or from a task."""

    def __init__(self, keys: IdempotencyKeys, move: Callable[[float], None], *, in_tasks: bool = False) -> None:
        self.keys = keys
        self.move = move
        self._in_tasks = in_tasks

    def __getattr__(self, verb: str) -> Any:
        bound = getattr(self.keys, verb)
        return (lambda *args, **more: asyncio.run(bound.aio(*args, **more))) if self._in_tasks else bound


def made(kind: str, path: Path, request: pytest.FixtureRequest) -> tuple[IdempotencyKeys, Callable[[float], None]]:
    """New keys, and what moves their clock by seconds."""
    offset_ms = 0

    def move(seconds: float) -> None:
        nonlocal offset_ms
        offset_ms += round(seconds * 1000)

    def clock() -> int:
        return wall_clock_ms() + offset_ms

    if kind == "memory":
        return MemoryKeys(clock=clock), move
    if kind in ("sqlite", "postgres"):
        target = path / "shop.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
        db = inturn.open(target, durable=False, clock=clock)
        request.addfinalizer(db.close)
        return db.idempotency_keys("payments"), move
    keys = RedisKeys(request.getfixturevalue("redis_client"), f"payments-{next(_names)}")
    server: Any = keys.writer
    its_own = server._now_us
    server._now_us = lambda pipe: its_own(pipe) + offset_ms * 1000
    return keys, move
