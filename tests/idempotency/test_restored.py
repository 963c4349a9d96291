"""A store that goes on from an older copy of itself gives no token again, and an old owner settles nobody's lock."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

import inturn
from inturn.core.errors import LockLost
from inturn.core.idempotency_keys import least_token
from inturn.database import wall_clock_ms
from inturn.demo.free_ports import free_port
from inturn.idempotency import IdempotencyKeys, Locked, RedisKeys
from waiting import DEADLINE_S, until


class Server:
    """A Redis server of this test, with its files in a folder of its own."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        folder.mkdir()
        self.port = free_port()
        self.client = redis.Redis(host="127.0.0.1", port=self.port)
        self.start()

    def start(self) -> None:
        command = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--repl-diskless-sync-delay", "0"]  # else a replica waits for five seconds
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        for _ in range(300):
            try:
                self.client.ping()
            except redis.RedisError:  # not there yet, or busy loading
                assert self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)


@pytest.fixture
def servers(redis_program: str, tmp_path: Path) -> Iterator[Callable[[], Server]]:
    started: list[Server] = []

    def make() -> Server:
        started.append(Server(redis_program, tmp_path / f"redis-{len(started)}"))
        return started[-1]

    yield make
    for server in started:
        server.client.close()
        server.kill()


def _locked(keys: IdempotencyKeys, key: str = "tx-1") -> Locked:
    lock = keys.try_lock(key)
    assert lock
    return lock


def _check(old: Locked, keys: IdempotencyKeys) -> None:
    """Of two owners the older one is told that it lost its lock, whatever it tries."""
    # Tokens are at least the time: to put a copy back takes a millisecond or more, which a short test does not.
    until(lambda: least_token(wall_clock_ms()) > old.fencing_token)
    new = _locked(keys)
    assert new.fencing_token > old.fencing_token
    for settle, more in ((keys.accept, ()), (keys.release, ()), (keys.extend, (60,))):
        with pytest.raises(LockLost):
            settle(old, *more)  # type: ignore[operator]
    keys.accept(new, result="new")
    assert keys.try_lock("tx-1").result == "new"  # type: ignore[union-attr]


def test_redis_restored_from_an_old_save_repeats_no_token(servers: Callable[[], Server]) -> None:
    server = servers()
    keys = RedisKeys(server.client)
    keys.release(_locked(keys))
    server.client.save()
    for _ in range(3):
        keys.release(_locked(keys))
    old = _locked(keys)
    server.kill()
    server.start()
    _check(old, keys)


def test_a_promoted_lagging_redis_replica_repeats_no_token(servers: Callable[[], Server]) -> None:
    primary, replica = servers(), servers()
    keys = RedisKeys(primary.client)
    keys.release(_locked(keys))
    replica.client.replicaof("127.0.0.1", str(primary.port))
    until(lambda: replica.client.info("replication")["master_link_status"] == "up")
    assert replica.client.keys()
    replica.client.replicaof("NO", "ONE")  # from here on it lags
    for _ in range(3):
        keys.release(_locked(keys))
    old = _locked(keys)
    primary.kill()
    _check(old, RedisKeys(replica.client))


def test_an_sqlite_file_restored_from_an_old_copy_repeats_no_token(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with inturn.open(path) as db:
        keys = db.idempotency_keys("k")
        keys.release(_locked(keys))
    shutil.copy(path, tmp_path / "copy.db")
    with inturn.open(path) as db:
        keys = db.idempotency_keys("k")
        for _ in range(3):
            keys.release(_locked(keys))
        old = _locked(keys)
    shutil.copy(tmp_path / "copy.db", path)
    with inturn.open(path) as db:
        _check(old, db.idempotency_keys("k"))


def test_a_postgresql_sequence_restored_from_an_old_copy_repeats_no_token(postgres_url: str) -> None:
    with inturn.open(postgres_url, durable=False) as db:
        keys = db.idempotency_keys("k")
        with db.transaction() as tx:
            (copy,) = tx.execute("select last_value from inturn_key_token").fetchone()
        for _ in range(3):
            keys.release(_locked(keys))
        old = _locked(keys)
        with db.transaction() as tx:
            tx.execute("select setval('inturn_key_token', %s)", (copy,))
            tx.execute("delete from inturn_key")
        _check(old, keys)


def test_fencing_tokens_are_at_least_the_stores_time(kind: str, keys: IdempotencyKeys) -> None:
    if kind == "memory":
        pytest.skip("its time is not that of a clock, and it has no older copy")
    before = least_token(wall_clock_ms() - 1_000)
    assert before < _locked(keys).fencing_token < 2**53  # which every JSON reader has as a whole number


def test_connections_that_advance_the_sequence_at_once_repeat_no_token(postgres_url: str) -> None:
    """All move it up to the same time, so whoever did it without care would set it back."""
    with inturn.open(postgres_url, durable=False):
        pass

    def tokens(number: int) -> list[int]:
        with inturn.open(postgres_url, durable=False, clock=lambda: 1_000_000_000_000) as db:
            keys = db.idempotency_keys("k")
            return [_locked(keys, f"{number} {index}").fencing_token for index in range(40)]

    with ThreadPoolExecutor(4) as pool:
        issued = [token for part in pool.map(tokens, range(4)) for token in part]
    assert len(set(issued)) == len(issued)
