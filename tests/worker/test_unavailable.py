"""A worker and a consumer wait while their database is unavailable, and an error that ends one is told."""

import logging
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg import sql
from shop import ledger, post, row

import inturn
from inturn.consumer import Consumer
from inturn.core.errors import HandlerError, StoreUnavailable
from inturn.database import Database
from inturn.queue import Queue, QueueSettings, draft
from inturn.worker import Worker
from inturn.worker.service import Job, Service
from postgres_started import crash, start
from waiting import DEADLINE_S, until

Outage: TypeAlias = Callable[[], Any]
"""Makes the database unavailable, for a block."""


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Another program holds the write lock for longer than anybody waits."""
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("begin immediate")
        try:
            yield
        finally:
            connection.execute("rollback")
    connection.close()


@contextmanager
def _away(server: str, url: str) -> Iterator[None]:
    """The server ends all connections and takes no new ones, as while it is started again."""
    name = str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
    allow = sql.SQL("alter database {} allow_connections {}")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(allow.format(sql.Identifier(name), False))
        try:
            connection.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", (name,)
            )
            yield
        finally:
            connection.execute(allow.format(sql.Identifier(name), True))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Outage]:
    """The address of a database, and what makes it unavailable."""
    monkeypatch.setattr("inturn.store.limits.RECONNECT_S", 0.1)
    if request.param == "sqlite":
        path = str(tmp_path / "shop.db")
        return path, lambda: _locked(path)
    server, url = request.getfixturevalue("postgres_server"), request.getfixturevalue("own_postgres_url")
    return url, lambda: _away(server, url)


@pytest.fixture
def db(place: tuple[str, Outage]) -> Iterator[Database]:
    with inturn.open(place[0], busy_s=0.1) as db:
        yield db


@pytest.fixture
def unavailable(place: tuple[str, Outage]) -> Outage:
    return place[1]


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.queue("q", QueueSettings(visibility_timeout_s=600))  # no lease ends beside an outage


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[logging.LogRecord]]:
    """Return the records of an event."""
    caplog.set_level(logging.INFO, "inturn")
    return lambda event: [record for record in caplog.records if getattr(record, "event", "") == event]


def test_a_worker_continues_after_a_database_outage(queue: Queue, unavailable: Outage, log: Any) -> None:
    pipeline = ledger()
    with Worker(pipeline, queue) as worker:
        queue.send_many([draft(row(1, account=name), group=name) for name in "abc"])
        worker.drain(DEADLINE_S)
        with unavailable():
            until(lambda: not worker.is_available)
            worker.check()
        queue.send_many([draft(row(2, account=name), group=name) for name in "abc"])
        worker.drain(DEADLINE_S)
        assert worker.is_available
    assert (worker.counts.received, worker.counts.applied) == (6, 6)
    (waited,) = log("unavailable")
    assert (waited.levelname, waited.name, waited.queue) == ("WARNING", "inturn.worker", "q")
    assert waited.why
    assert len(log("available")) == 1
    assert not log("ended")


def test_a_handler_result_from_a_database_outage_is_committed_afterwards(queue: Queue, unavailable: Outage) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handler(state: Any, message: Any) -> Any:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return post(state, message)

    queue.send(row(1), group="a")
    with Worker(ledger(handler=handler), queue) as worker:
        assert begun.wait(DEADLINE_S)
        with unavailable():
            go_on.set()
            until(lambda: not worker.is_available)
        worker.drain(DEADLINE_S)
    assert (worker.counts.received, worker.counts.applied) == (1, 1)
    assert queue.depth().messages == 0


def test_a_consumer_continues_after_a_database_outage(queue: Queue, unavailable: Outage, log: Any) -> None:
    handled: list[Any] = []
    with Consumer(queue, lambda message: handled.append(message.body)) as consumer:
        queue.send("a", group="a")
        consumer.drain(DEADLINE_S)
        with unavailable():
            until(lambda: not consumer.is_available)
            assert not consumer.is_receiving
        queue.send("b", group="a")
        consumer.drain(DEADLINE_S)
        assert consumer.is_receiving
    assert handled == ["a", "b"]
    assert consumer.counts.done == 2
    assert [record.name for record in log("unavailable")] == ["inturn.consumer"]
    assert len(log("available")) == 1


def test_a_stop_waits_for_an_unavailable_database_at_most_its_grace_period(
    queue: Queue, unavailable: Outage, log: Any
) -> None:
    worker = Worker(ledger(), queue, grace_s=0.1)
    with unavailable():
        worker.__enter__()
        until(lambda: not worker.is_available)
        with pytest.raises(StoreUnavailable):
            worker.__exit__(None, None, None)
    (ended,) = log("ended")
    assert ended.levelname == "ERROR"


def test_a_service_is_not_ready_during_a_database_outage(queue: Queue, unavailable: Outage) -> None:
    service = Service([Job(ledger(), queue)])
    running = threading.Thread(target=service.run, daemon=True)
    running.start()
    until(lambda: service.status()["ready"])
    with unavailable():
        until(lambda: not service.status()["ready"])
    until(lambda: service.status()["ready"])
    service.stop_soon()
    running.join(DEADLINE_S)
    assert not running.is_alive()


@pytest.mark.parametrize("kind", ["worker", "consumer"])
def test_an_error_that_ends_a_worker_or_consumer_is_logged_and_passed_to_on_error(
    queue: Queue, log: Any, kind: str
) -> None:
    def wrong(*_: Any) -> int:
        return 7

    errors: list[BaseException] = []
    queue.send(row(1), group="a")
    loop = (
        Worker(ledger(handler=wrong), queue, on_error=errors.append)
        if kind == "worker"
        else Consumer(queue, wrong, on_error=errors.append)
    )
    with pytest.raises(HandlerError) as raised, loop:  # noqa: PT012 - the block is what is tested
        until(lambda: errors)
        with pytest.raises(HandlerError):
            loop.check()
    assert errors == [raised.value]
    (ended,) = log("ended")
    assert (ended.levelname, ended.name, ended.queue, ended.error) == ("ERROR", f"inturn.{kind}", "q", "HandlerError")


@pytest.mark.slow
def test_a_killed_postgres_server_loses_no_message_of_workers_and_consumers(log: Any) -> None:
    """Nobody knows of the commits that were under way. So what was received comes again when its lease is over."""
    with tempfile.TemporaryDirectory(prefix="inturn-postgres-", ignore_cleanup_errors=True) as directory:
        server = start(Path(directory) / "data")
        try:
            _kill_and_count(server)
        finally:
            server._cleanup()
    assert log("unavailable") or log("reconnect")
    assert not log("ended")


def _kill_and_count(server: Any) -> None:
    handled: list[Any] = []
    with inturn.open(server.get_uri()) as db:
        ledgers = db.queue("ledgers", QueueSettings(visibility_timeout_s=5))
        orders = db.queue("orders", QueueSettings(visibility_timeout_s=5))
        with (
            Worker(ledger(), ledgers) as worker,
            Consumer(orders, lambda message: handled.append(message.body)) as consumer,
        ):
            for revision in range(1, 4):
                for account in range(200):
                    ledgers.send(row(revision, account=str(account)), group=str(account))
                    orders.send([account, revision], group=str(account))
                crash(server)
            worker.drain(DEADLINE_S)
            consumer.drain(DEADLINE_S)
        counts = db.pipeline("ledger").counts()
        assert counts is not None
        assert counts.applied == 600
        first = [item for number, item in enumerate(handled) if item not in handled[:number]]
        for account in range(200):
            assert [item for item in first if item[0] == account] == [[account, revision] for revision in (1, 2, 3)]
