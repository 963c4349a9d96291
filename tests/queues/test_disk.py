"""The files of an SQLite database: whose they are, that they are there, how large they get, and a full disk."""

import asyncio
import logging
import os
import shutil
import sqlite3
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import inturn
from inturn.core.errors import InputError, StoreError
from inturn.queue import draft
from inturn.sqs.config import Config, ServerConfig
from inturn.sqs.run import Endpoint
from inturn.store import limits
from inturn.store.sqlite.log import SqliteLog
from inturn.store.writer.event_loop import EventLoopWriter
from threads import together
from waiting import DEADLINE_S, PROGRAM_S

# --- whose they are ---


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir() if file.name.startswith(path.name)}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("options", "mode"), [({}, 0o600), ({"mode": 0o640}, 0o640), ({"mode": 0o666}, 0o666)])
def test_new_database_files_have_the_requested_mode(tmp_path: Path, options: dict[str, Any], mode: int) -> None:
    with inturn.open(tmp_path / "shop.db", **options) as db:
        db.queue("q").send("x")
        actual = modes(tmp_path / "shop.db")
    assert actual == {f"shop.db{suffix}": mode for suffix in ("", "-wal", "-shm", "-reserve")}


def test_an_existing_database_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shop.db").touch()
    (tmp_path / "shop.db").chmod(0o664)
    with inturn.open(tmp_path / "shop.db", mode=0o600) as db:
        db.queue("q").send("x")
        assert set(modes(tmp_path / "shop.db").values()) == {0o664}


@pytest.mark.parametrize("mode", [0o400, 0o1777, -1, True, "600", 0])
def test_an_invalid_file_mode_is_refused(tmp_path: Path, mode: Any) -> None:
    with pytest.raises(InputError, match="lets the owner read and write, such as 0o600"):
        inturn.open(tmp_path / "shop.db", mode=mode)
    assert not list(tmp_path.iterdir())


def test_a_file_mode_is_refused_for_postgres() -> None:
    with pytest.raises(InputError, match="GRANT"):
        inturn.open("postgresql:///shop", mode=0o600)


def test_threads_creating_one_database_file_share_it(tmp_path: Path) -> None:
    """Whoever makes it closes it once: that must not let go of the locks of another thread."""
    for number in range(10):
        barrier = threading.Barrier(4, timeout=DEADLINE_S)

        def use(number: int = number, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            with inturn.open(tmp_path / f"{number}.db", durable=False) as db:
                db.queue("q").send("x")

        together(*[use] * 4)
        with inturn.open(tmp_path / f"{number}.db") as db:
            assert db.queue("q").depth().messages == 4


# --- that they are there ---


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def delete_all(path: Path) -> None:
    for file in path.parent.glob("shop.db*"):
        file.unlink()


LOSSES = [
    (delete, ""),
    (replace, ""),
    (move, ""),
    (delete, "-wal"),
    (replace, "-wal"),
    (delete, "-shm"),
    (replace, "-shm"),
    (delete_all, ""),
]


@pytest.fixture(params=LOSSES, ids=lambda loss: f"{loss[0].__name__}{loss[1]}")
def lose(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], None]:
    """Lose one of the files, or all."""
    act, suffix = request.param
    return lambda: act(tmp_path / f"shop.db{suffix}")


LOST = "was deleted or replaced while it was open: further changes are not stored"


def test_every_verb_fails_after_the_database_file_was_deleted_or_replaced(
    tmp_path: Path, lose: Callable[[], None]
) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        queue.send("x", group="a")
        (message,) = queue.receive()
        lose()
        acts: list[Callable[[], Any]] = [
            lambda: queue.send("y"),
            queue.receive,
            message.ack,
            queue.depth,
            queue.peek,
            lambda: db.queue("new"),
            lambda: db.idempotency_keys("k").try_lock("a"),
        ]
        for act in acts:
            with pytest.raises(StoreError, match=LOST):
                act()
        with pytest.raises(StoreError, match=LOST), db.transaction() as tx:
            queue.send("y", tx=tx)


def test_a_lost_database_file_is_noticed_after_a_long_unchanged_period(
    tmp_path: Path, lose: Callable[[], None]
) -> None:
    """As long as the directory is the same, no more is looked at than that."""
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        queue.send("x")
        os.utime(tmp_path, (1, 1))
        for _ in range(3):
            queue.send("x")
        assert db.store._files._unchanged  # type: ignore[attr-defined]
        lose()
        with pytest.raises(StoreError, match=LOST):
            queue.send("y")


def test_a_renamed_database_directory_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with inturn.open(tmp_path / "here" / "shop.db") as db:
        queue = db.queue("q")
        os.utime(tmp_path / "here", (1, 1))
        queue.send("x")
        (tmp_path / "here").rename(tmp_path / "there")
        with pytest.raises(StoreError, match=LOST):
            queue.send("y")


def test_a_changed_symbolic_link_to_the_database_is_noticed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        inturn.open(tmp_path / name / "shop.db").close()
    link = tmp_path / "shop.db"
    link.symlink_to(tmp_path / "a" / "shop.db")
    with inturn.open(link) as db:
        queue = db.queue("q")
        for directory in (tmp_path / "a", tmp_path):
            os.utime(directory, (1, 1))
        queue.send("x")
        link.unlink()
        link.symlink_to(tmp_path / "b" / "shop.db")
        with pytest.raises(StoreError, match=LOST):
            queue.send("y")


def test_other_files_in_the_database_directory_cause_no_error(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        for number in range(20):
            (tmp_path / f"other{number}").touch()
            queue.send("x")
            (tmp_path / f"other{number}").unlink()
            inturn.open(tmp_path / "shop.db").close()  # of two who have it open one leaves
        assert queue.depth().messages == 20


def test_a_log_reader_notices_a_replaced_database_file(tmp_path: Path) -> None:
    """As Spark does."""
    with inturn.open(tmp_path / "shop.db") as db:
        db.queue("q").send("x")
        log = SqliteLog(str(tmp_path / "shop.db"), "q")
        assert log.info().last
        replace(tmp_path / "shop.db")
        with pytest.raises(StoreError, match=LOST):
            log.info()
        log.close()


def test_an_http_endpoint_reports_a_lost_database_file_and_logs_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def use(url: str) -> tuple[str, int]:
        for _ in range(3):
            ask(url)
        return ask(url)

    def ask(url: str) -> tuple[str, int]:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(  # noqa: S310 - of this test
                urllib.request.Request(  # noqa: S310
                    url, b"{}", {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
                ),
                timeout=DEADLINE_S,
            )
        with pytest.raises(urllib.error.HTTPError) as unwell:
            urllib.request.urlopen(f"{url}/ready", timeout=DEADLINE_S)  # noqa: S310
        answer = refused.value.read().decode(), unwell.value.code
        refused.value.close()
        unwell.value.close()
        return answer

    async def main() -> tuple[str, int]:
        with inturn.open(tmp_path / "shop.db") as db:
            async with (
                EventLoopWriter(db.writer, db.store),
                Endpoint(db, Config(server=ServerConfig(port=0))) as endpoint,
            ):  # type: ignore[arg-type]
                delete_all(tmp_path / "shop.db")
                return await asyncio.to_thread(use, endpoint.url)

    body, status = asyncio.run(main())
    assert "ServiceUnavailable" in body
    assert status == 503
    failures = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not any(record.exc_info for record in failures), "what is known needs no traceback"
    first, *later = [record.getMessage().partition(": ")[2] for record in failures]
    assert LOST in first
    assert all(record.not_shown for record in failures[1:]), f"each kind once, the rest counted: {later}"


def test_a_lost_database_file_is_noticed_within_a_transaction(tmp_path: Path, lose: Callable[[], None]) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        with pytest.raises(StoreError, match=LOST), db.transaction() as tx:  # noqa: PT012 - the end of the block raises
            queue.send("x", tx=tx)
            lose()


def test_a_waiting_receive_fails_when_the_database_file_is_lost(tmp_path: Path, lose: Callable[[], None]) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        threading.Timer(0.2, lose).start()
        with pytest.raises(StoreError, match=LOST):
            queue.receive(wait_s=20)


def test_a_worker_stops_with_an_error_when_the_database_file_is_lost(tmp_path: Path, lose: Callable[[], None]) -> None:
    pipeline = inturn.Pipeline(
        name="p",
        group="id",
        order=inturn.Arrival(),
        id="n",
        message=None,
        state=dict,
        handler=lambda state, _: (state, []),
    )
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        threading.Timer(0.3, lose).start()
        with pytest.raises(StoreError, match=LOST):
            inturn.work(pipeline, queue)


def test_closing_the_old_database_leaves_a_new_file_of_the_same_name_intact(tmp_path: Path) -> None:
    """SQLite would remove the log of the new database at the end of the old one."""
    path = tmp_path / "shop.db"
    with suppress(StoreError), inturn.open(path) as old:
        old.queue("q").send("lost")
        delete_all(path)
        with inturn.open(path) as new:
            new.queue("q").send("kept")
            with pytest.raises(StoreError, match=LOST):
                old.queue("q").send("nowhere")
            old.close()
            assert path.with_name("shop.db-wal").exists()
            new.queue("q").send("kept too")
    with inturn.open(path) as reopened:
        assert [message.body for message in reopened.queue("q").peek(10)] == ["kept", "kept too"]


# --- how large they get ---


def test_the_wal_shrinks_after_a_long_read_ends(tmp_path: Path) -> None:
    log = tmp_path / "shop.db-wal"
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        queue = db.queue("q")
        queue.send("x")
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from inturn_message").fetchone()
            while log.stat().st_size < 2 * limits.WAL_BYTES:
                queue.ack(queue.receive(10)) if log.stat().st_size % 2 else None
                queue.send_many([draft("x" * 500_000) for _ in range(4)])
            reader.execute("commit")
        for _ in range(3):
            queue.send("y")
        assert log.stat().st_size <= limits.WAL_BYTES


# --- a full disk ---


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not Path("/bin/mount").exists() or os.getuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk],
        capture_output=True,
        check=False,
        timeout=PROGRAM_S,
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["/bin/umount", "-l", disk], check=True, timeout=PROGRAM_S)


def fill(path: Path) -> None:
    """Leave no room at all."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def drained(queue: Any) -> list[Any]:
    bodies = []
    while messages := queue.receive(50):
        bodies += [message.body[:8] for message in messages]
        queue.ack(messages)
    return bodies


@pytest.mark.parametrize("size", [300, 3_000, 200_000])
def test_a_disk_filled_by_sends_can_be_drained(small: Path, size: int) -> None:
    with inturn.open(small / "shop.db") as db:
        queue, sent = db.queue("q"), []
        with pytest.raises(StoreError, match="the disk is full"):  # noqa: PT012 - one of them
            while True:
                these = [f"{len(sent) + n:08}" + "x" * size for n in range(1 + 20_000 // size)]
                queue.send_many([draft(body, group=body[7]) for body in these])
                sent += [body[:8] for body in these]
        assert sorted(drained(queue)) == sent
        assert queue.depth().messages == 0
        queue.send("there is room again")
        assert drained(queue) == ["there is"]


@pytest.mark.parametrize("size", [300, 3_000, 200_000])
def test_a_disk_filled_by_other_files_can_be_drained(small: Path, size: int) -> None:
    with inturn.open(small / "shop.db") as db:
        queue = db.queue("q")
        sent = [f"{n:08}" + "x" * size for n in range(1_500_000 // (size + 300))]
        for start in range(0, len(sent), 100):
            queue.send_many([draft(body, group=body[7]) for body in sent[start : start + 100]])
        fill(small / "other")
        with pytest.raises(StoreError, match="the disk is full"):  # noqa: PT012 - one of them
            for _ in range(1_000):
                queue.send("x" * 10_000)
        depth = queue.depth().messages
        assert len(drained(queue)) == depth >= len(sent)
        (small / "other").unlink()
        queue.send("there is room again")
        assert drained(queue) == ["there is"]


def test_a_database_reopened_on_a_full_disk_can_be_drained(small: Path) -> None:
    with inturn.open(small / "shop.db") as db:
        db.queue("q").send_many([draft(f"{n:08}") for n in range(100)])
    fill(small / "other")
    with inturn.open(small / "shop.db") as db:
        assert len(drained(db.queue("q"))) == 100


def test_acknowledgements_succeed_on_a_full_disk_beside_failing_sends(small: Path) -> None:
    with inturn.open(small / "shop.db") as db:
        queue = db.queue("q")
        queue.send_many([draft(f"{n:08}" + "x" * 1_000) for n in range(100)])
        messages = queue.receive(100)
        fill(small / "other")
        failed: list[Exception] = []

        def send() -> None:
            try:
                queue.send("x" * 500_000)
            except StoreError as error:
                failed.append(error)

        together(*[send] * 4, *(message.ack for message in messages))
        assert queue.depth().messages == 4 - len(failed)
