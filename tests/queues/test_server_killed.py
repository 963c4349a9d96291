"""PostgreSQL itself is killed, or its disk fails, again and again, while others send and work off: nothing is lost."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lost_commit import lose_commit

import inturn
from inturn.core.errors import LeaseExpired, StoreError, StoreUnavailable
from inturn.queue import QueueSettings
from postgres_started import crash, start
from waiting import DEADLINE_S, is_running, until

pytestmark = pytest.mark.slow

SETTINGS = QueueSettings(visibility_timeout_s=0.3, dedup_window_s=None)


@pytest.fixture
def server() -> Iterator[Any]:
    """A server of its own, as it is set up by itself: it waits for the disk."""
    with tempfile.TemporaryDirectory(prefix="inturn-postgres-", ignore_cleanup_errors=True) as directory:
        server = start(Path(directory) / "data")
        yield server
        server._cleanup()


def fail_disk(server: Any) -> None:
    """No write succeeds any more for the server's processes that work for us, until it has started again by itself."""
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        pids = connection.execute("select pid from pg_stat_activity where application_name = 'inturn'").fetchall()
        with suppress(psycopg.OperationalError):  # the first that fails takes all with it
            for (pid,) in pids:  # by the server, since only who runs a process may limit it, which reads no row
                connection.execute(f"copy (select where false) to program 'prlimit --fsize=0: --pid={pid}'".encode())
    until(lambda: not any(is_running(pid) for (pid,) in pids), "the end of all processes that work for us")


class Work:
    """One who sends and one who works off, as a context: at its end all that was sent is done, or it fails."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: list[int] = []
        self.done: list[int] = []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=act, daemon=True) for act in (self.send, self.receive)]

    def __enter__(self) -> "Work":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in self.threads)

    def send(self) -> None:
        with inturn.open(self.url) as db:
            queue = db.queue("q", SETTINGS)
            while not self.is_over.is_set():
                with suppress(StoreError):  # if so, again with the same id
                    queue.send(len(self.sent), group="a", dedup_id=str(len(self.sent)))
                    self.sent.append(len(self.sent))

    def receive(self) -> None:
        with inturn.open(self.url) as db:
            queue = db.queue("q", SETTINGS)
            while not self.is_over.is_set() or queue.depth().messages:
                with suppress(StoreError, LeaseExpired):
                    for message in queue.receive(5, wait_s=0.1):
                        message.ack()
                        self.done.append(message.body)

    def go_on(self, messages: int) -> None:
        """Let so many more be done."""
        enough = len(self.done) + messages
        until(lambda: len(self.done) >= enough or not all(thread.is_alive() for thread in self.threads))
        assert all(thread.is_alive() for thread in self.threads)


@pytest.mark.parametrize("harm", [crash, fail_disk])
def test_messages_answered_before_a_server_crash_are_kept(server: Any, harm: Callable[[Any], None]) -> None:
    with Work(server.get_uri()) as work:
        for _ in range(3):
            work.go_on(20)
            harm(server)
        work.go_on(20)
    assert work.sent == list(range(len(work.sent)))
    assert work.done == sorted(set(work.done)), "done twice, or out of order"
    assert len(set(work.sent) - set(work.done)) <= 3, "lost: only an acknowledgement may be without its answer"


def test_a_transaction_id_reused_after_a_crash_does_not_prove_a_commit(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what was not on the disk yet, the server does not know the number either, and gives it to another."""
    with psycopg.connect(server.get_uri(), autocommit=True) as other:
        other.execute("alter system set wal_writer_delay = '10s'")  # else it may be on the disk by then
    crash(server)
    statuses: list[str] = []
    with inturn.open(server.get_uri()) as db:
        queue = db.queue("q")

        def crash_and_go_on() -> None:
            (number,) = db.store.wire.noted.rows[0]  # type: ignore[attr-defined]
            crash(server)
            with psycopg.connect(server.get_uri(), autocommit=True) as other:
                current = 0
                while current < int(number):
                    (current,) = other.execute("select pg_current_xact_id()::text::bigint").fetchone() or (0,)
                statuses.extend(other.execute("select pg_xact_status(%s::text::xid8)", (number,)).fetchone() or ())

        while "committed" not in statuses and len(statuses) < 10:
            lose_commit(db, monkeypatch, crash_and_go_on)
            with pytest.raises(StoreUnavailable, match="it is unknown whether the transaction was committed"):
                queue.send("lost")
        assert "committed" in statuses
        assert not queue.peek()
