"""The PostgreSQL server: what is wrong with it is told in words, nothing is lost, no query looks through a table."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest
from lost_commit import lose_commit
from psycopg import sql

import inturn
from inturn.core import limits
from inturn.core.errors import InputError, StoreError, StoreMismatch, StoreUnavailable
from inturn.database import Database, wall_clock_ms
from inturn.queue import QueueSettings, draft
from inturn.store import limits as store_limits
from threads import Running, together
from waiting import DEADLINE_S, until


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    with inturn.open(postgres_url) as db:
        yield db


@pytest.fixture
def beside(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def cut(db: Database, connection: psycopg.Connection[Any]) -> None:
    """The server ends the connection, as one does that is started again."""
    pid = db.store._connection.pgconn.backend_pid  # type: ignore[attr-defined]
    connection.execute("select pg_terminate_backend(%s, 10000)", (pid,))


# --- connecting ---


def test_an_unreachable_server_is_reported_without_the_password(tmp_path: Any) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        inturn.open(f"postgresql://user:secret@/shop?host={tmp_path}")
    with pytest.raises(StoreError) as raised:
        inturn.open(f"postgresql://user:secret@localhost/shop?host={tmp_path}&password=secret")
    assert "secret" not in str(raised.value)


def test_open_with_create_false_creates_no_tables(empty_postgres_url: str) -> None:
    with pytest.raises(StoreError, match="the database has no queues; create one first"):
        inturn.open(empty_postgres_url, create=False)
    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.execute("select to_regclass('inturn_meta')").fetchone() == (None,)
    inturn.open(empty_postgres_url).close()
    with inturn.open(empty_postgres_url, create=False) as db:
        assert db.queues() == []


def test_concurrent_opens_of_an_empty_schema_wait_for_each_other(empty_postgres_url: str) -> None:
    barrier = threading.Barrier(4, timeout=DEADLINE_S)

    def make() -> int:
        barrier.wait()
        with inturn.open(empty_postgres_url) as db:
            return db.queue("q").depth().messages

    assert together(*[make] * 4) == [0] * 4


def test_tables_of_a_newer_format_are_used_unless_readable_from_forbids(
    postgres_url: str, beside: psycopg.Connection[Any]
) -> None:
    inturn.open(postgres_url).close()
    beside.execute("update inturn_meta set value = 99 where name = 'version'")
    inturn.open(postgres_url).close()
    beside.execute("insert into inturn_meta (name, value) values ('readable_from', 98)")
    with pytest.raises(StoreMismatch, match="its format is 99, which needs a version that knows format 98"):
        inturn.open(postgres_url)
    assert beside.execute("select value from inturn_meta where name = 'version'").fetchone() == (99,)


def test_a_missing_schema_is_reported(postgres_url: str) -> None:
    with pytest.raises(StoreError, match="search_path of the connection names no existing schema"):
        inturn.open(re.sub("search_path%3D.*", "search_path%3Dnowhere", postgres_url))


def test_queues_of_two_postgres_schemas_are_separate(postgres_schemas: Any) -> None:
    with inturn.open(postgres_schemas.new()) as one, inturn.open(postgres_schemas.new()) as other:
        one.queue("q").send("x")
        assert other.queues() == []


# --- connections that are lost ---


def test_an_idle_lost_connection_is_reopened(db: Database, beside: psycopg.Connection[Any]) -> None:
    queue = db.queue("q")
    queue.send("a")
    cut(db, beside)
    queue.send("b")
    assert [message.body for message in queue.receive(10)] == ["a", "b"]


def test_a_transaction_whose_connection_is_lost_is_rolled_back_and_reported(
    db: Database, beside: psycopg.Connection[Any]
) -> None:
    queue = db.queue("q")
    with pytest.raises(StoreError), db.transaction() as tx:  # noqa: PT012 - the block is what is tested
        queue.send("never", tx=tx)
        tx.execute("select 1")
        cut(db, beside)
    assert queue.depth().messages == 0
    queue.send("a")
    assert [message.body for message in queue.receive(10)] == ["a"]


def test_a_command_whose_connection_is_lost_is_retried(db: Database, beside: psycopg.Connection[Any]) -> None:
    queue, tries = db.queue("q"), [0]

    def send(store: Any, now_ms: int) -> None:
        store.send(store.queues["q"], [draft("a")], now_ms)
        tries[0] += 1
        if tries == [1]:
            cut(db, beside)

    db.writer.run(inturn.store.commands.StoreCall("", send))
    assert tries == [2]
    assert queue.depth().messages == 1


def test_a_commit_with_a_lost_connection_is_checked_on_the_server(
    db: Database, beside: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue("q")
    queue.send("there", group="a")
    lose_commit(db, monkeypatch)
    sent = queue.send("a")
    lose_commit(db, monkeypatch, partial(cut, db, beside))
    queue.send("b")
    assert [message.body for message in queue.peek()] == ["there", "a", "b"]
    assert queue.peek()[1].sequence_number == sent.sequence_number
    (message,) = queue.receive(1)
    lose_commit(db, monkeypatch)
    message.ack()
    assert [message.body for message in queue.peek()] == ["a", "b"]


def test_a_caller_transaction_commit_with_a_lost_connection_is_checked_on_the_server(
    db: Database, beside: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue("q")
    with db.transaction() as tx:
        queue.send("a", tx=tx)
        lose_commit(db, monkeypatch)
    with pytest.raises(StoreUnavailable, match="the transaction was rolled back"), db.transaction() as tx:  # noqa: PT012
        queue.send("b", tx=tx)
        lose_commit(db, monkeypatch, partial(cut, db, beside))
    assert [message.body for message in queue.peek()] == ["a"]


@pytest.mark.parametrize("changed", [{"timeline": ""}, {"timeline": "of another"}, {"processes": {"1@before"}}])
def test_a_lost_commit_is_reported_as_unknown_after_a_change_of_server(
    db: Database, monkeypatch: pytest.MonkeyPatch, changed: Any
) -> None:
    """It numbers its transactions by itself, as one does that was promoted before it had all of the log, or crashed."""
    queue = db.queue("q")
    monkeypatch.setattr(db.store, "_run", db.store._run._replace(**changed))  # type: ignore[attr-defined]
    lose_commit(db, monkeypatch)
    with pytest.raises(StoreUnavailable, match="it is unknown whether the transaction was committed"):
        queue.send("a", dedup_id="1")
    monkeypatch.undo()
    assert queue.send("a", dedup_id="1").duplicate
    assert queue.depth().messages == 1


def test_a_hanging_transaction_is_ended_by_the_server_and_others_continue(
    db: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(inturn.store.postgres.connection._SETTINGS, "idle_in_transaction_session_timeout", "300ms")
    queue = db.queue("q")
    with inturn.open(postgres_url) as hanging:
        own_queue = hanging.queue("q")
        with pytest.raises(StoreError), hanging.transaction() as tx:  # noqa: PT012 - the block is what is tested
            own_queue.send("never", tx=tx)
            queue.send("a")  # waits until the server has ended the other
            time.sleep(0.01)
        own_queue.send("b")
    assert [message.body for message in queue.receive(10)] == ["a", "b"]


def test_deadlocked_transactions_are_retried(postgres_url: str) -> None:
    """One sends into two queues in one order, the other in the other, each waiting for the other's lock."""
    barrier = threading.Barrier(2, timeout=DEADLINE_S)
    with inturn.open(postgres_url) as one, inturn.open(postgres_url) as other:
        one.queue("a")
        one.queue("b")
        tries: list[str] = []

        def send(db: Database, *names: str) -> None:
            def both(store: Any, now_ms: int) -> None:
                tries.append(names[0])
                is_first_time = len(tries) <= 2
                store.send(store.queues[names[0]], [draft("x")], now_ms)
                if is_first_time:
                    barrier.wait(30)
                store.send(store.queues[names[1]], [draft("x")], now_ms)

            db.writer.run(inturn.store.commands.StoreCall("", both))

        together(partial(send, one, "a", "b"), partial(send, other, "b", "a"))
        assert len(tries) >= 3
        assert [one.queue(name).depth().messages for name in "ab"] == [2, 2]


def test_a_failed_statement_does_not_break_later_statements(db: Database) -> None:
    """What the server passes over behind it, in one journey, it has not prepared either."""
    queue = db.queue("q", QueueSettings(visibility_timeout_s=0))
    with db.transaction() as tx:
        tx.execute("alter table inturn_receiver add constraint few check (last_token < 3)")
    for body in "abc":
        queue.send(body, group=body)
    queue.receive()
    queue.receive()
    with pytest.raises(psycopg.errors.CheckViolation):
        queue.receive()
    with db.transaction() as tx:
        tx.execute("alter table inturn_receiver drop constraint few")
    for number in range(3):
        queue.send(number)
    assert len(queue.receive(10)) == 6


def test_a_locked_dead_letter_queue_blocks_no_receiver(db: Database, postgres_url: str) -> None:
    dead = db.queue("dead")
    queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=1, visibility_timeout_s=60))
    queue.send_many([draft(body, group=body[0]) for body in ("a1", "a2", "b1")])
    (tried,) = queue.receive()
    tried.nack()
    with psycopg.connect(postgres_url) as connection:
        dead.send("x", tx=connection)
        assert [message.body for message in queue.receive(10)] == ["b1"]
        assert queue.receive(10, group="a") == []
        connection.commit()
    assert [message.body for message in queue.receive(10)] == ["a2"]
    assert [message.body for message in dead.receive(10)] == ["x", "a1"]


def test_waiting_for_a_lock_uses_no_processor_time(db: Database, postgres_url: str) -> None:
    queue = db.queue("q")
    with psycopg.connect(postgres_url) as connection:
        queue.send("first", tx=connection)

        def wait() -> float:
            before = time.thread_time()
            queue.send("second")
            return time.thread_time() - before

        waiting = Running(wait)
        time.sleep(0.6)
        connection.commit()
    assert waiting.end() < 0.3


@pytest.mark.parametrize("group", [None, "a"])
def test_a_waiting_receive_is_notified_of_sends_by_another_process(
    db: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    """It does not ask by itself before its wait is over; neither when it is told, nor when a lease is given back."""
    monkeypatch.setattr(limits, "POLL_S", 1000)
    monkeypatch.setattr(store_limits, "LISTEN_POLL_S", 1000)
    queue = db.queue("q")
    with inturn.open(postgres_url) as other, ThreadPoolExecutor(1) as threads:
        theirs = other.queue("q")
        for number in range(5):
            waiting = threads.submit(queue.receive, wait_s=30, group=group)
            time.sleep(0.02 * number)
            theirs.send(number, group="a")
            (message,) = waiting.result()
            assert message.body == number
            waiting = threads.submit(queue.receive, wait_s=30, group=group)
            theirs.nack([message])
            (message,) = waiting.result()
            message.ack()


def test_a_waiting_receive_survives_the_loss_of_its_listen_connection(
    db: Database, postgres_url: str, beside: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_limits, "LISTEN_POLL_S", 1000)
    queue = db.queue("q")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, wait_s=30)
        listening = f'listen "{db.store._channel}"'  # type: ignore[attr-defined]
        find = "select pid from pg_stat_activity where query = %s"
        pids = until(lambda: beside.execute(find, (listening,)).fetchall())
        beside.execute("select pg_terminate_backend(%s, 10000)", pids[0])
        with inturn.open(postgres_url) as other:
            other.queue("q").send("x")
        assert [message.body for message in waiting.result()] == ["x"]


def test_waiting_for_a_slow_transaction_blocks_no_other_group(db: Database, postgres_url: str) -> None:
    """In one process, with one connection for all that it does."""
    queue, other = db.queue("q"), db.queue("other")
    queue.send("there", group="b")
    with psycopg.connect(postgres_url) as connection, ThreadPoolExecutor(4) as threads:
        queue.send("slow", group="a", tx=connection)
        waiting = [threads.submit(queue.send, number, group="a") for number in range(3)]
        time.sleep(0.05)
        assert [message.body for message in queue.receive()] == ["there"]
        assert other.send("x").duplicate is False
        with db.transaction() as tx:
            assert [message.body for message in other.receive(tx=tx)] == ["x"]
        assert not any(future.done() for future in waiting)
        connection.commit()
        assert len({future.result(30).sequence_number for future in waiting}) == 3
    assert queue.peek()[1].body == "slow"


def test_sends_that_waited_for_a_slow_transaction_keep_their_order(db: Database, postgres_url: str) -> None:
    queue = db.queue("q")

    async def send() -> list[int]:
        sends = []
        with psycopg.connect(postgres_url) as connection:
            queue.send("slow", tx=connection)
            for number in range(4):
                sends.append(asyncio.create_task(queue.send.aio(number)))
                await asyncio.sleep(store_limits.LOCK_S * 1.5)
        return [sent.sequence_number for sent in await asyncio.gather(*sends)]

    numbers = asyncio.run(send())
    assert numbers == sorted(numbers)


def test_waiting_longer_than_busy_s_for_a_lock_is_reported(postgres_url: str) -> None:
    with inturn.open(postgres_url, busy_s=0.3) as db:
        queue = db.queue("q")
        with psycopg.connect(postgres_url) as connection:
            queue.send("slow", tx=connection)
            with pytest.raises(StoreError, match="another transaction has held a lock for too long"):
                queue.send("x")
            connection.rollback()
        assert queue.send("y")


# --- what it keeps ---


def test_the_clock_of_the_server_is_used_unless_a_clock_is_given(db: Database, beside: psycopg.Connection[Any]) -> None:
    ((server_s,),) = beside.execute("select extract(epoch from clock_timestamp())").fetchall()
    assert abs(db.writer.clock() / 1000 - float(server_s)) < 5
    with inturn.open(db.store._url, clock=lambda: wall_clock_ms() + 86_400_000) as tomorrow:  # type: ignore[attr-defined]
        assert tomorrow.writer.clock() / 1000 > float(server_s) + 80_000


def test_a_nul_in_names_is_refused_and_in_bodies_stored(db: Database) -> None:
    queue = db.queue("q", QueueSettings(content_dedup=True))
    for words, values in (("group", {"group": "a\0"}), ("dedup_id", {"dedup_id": "\0"})):
        with pytest.raises(InputError, match=f"{words} is .*, with a NUL"):
            queue.send("x", **values)  # type: ignore[arg-type]
    queue.send("a\0b", attributes={"a": "\0"})
    (message,) = queue.receive()
    assert (message.body, message.attributes) == ("a\0b", {"a": "\0"})
    db.queue("dead")
    message.reject("why\0", to="dead")
    assert [message.note for message in db.queue("dead").peek()] == ["why\\x00"]


@pytest.mark.parametrize(("durable", "expected"), [(True, "on"), (False, "off")])
def test_durable_sets_synchronous_commit(
    postgres_url: str, beside: psycopg.Connection[Any], durable: bool, expected: str
) -> None:
    usual = beside.execute("show synchronous_commit").fetchone()
    with inturn.open(postgres_url, durable=durable) as db, db.transaction() as tx:
        assert tx.execute("show synchronous_commit").fetchone() == (usual if durable else ("off",))


def test_user_statements_run_with_default_planner_settings(db: Database) -> None:
    with db.transaction() as tx:
        assert tx.execute("show enable_seqscan").fetchone() == ("on",)
        assert tx.execute("show plan_cache_mode").fetchone() == ("auto",)
    assert db.store._connection.execute("show enable_seqscan").fetchone() == ("off",)  # type: ignore[attr-defined]


# --- what is left ---


def test_a_deleted_queue_leaves_no_row_behind(db: Database, beside: psycopg.Connection[Any]) -> None:
    queue = db.queue("q")
    queue.send("in flight", group="a")
    queue.receive()
    queue.send_many([draft("more", group="b") for _ in range(3)])
    number = db.store.queues["q"].number
    beside.execute("insert into inturn_recheck (queue, due_ms) values (%s, 0)", (number,))  # another process's note
    queue.delete()
    tables = beside.execute(
        "select table_name::text from information_schema.columns"
        " where table_schema = current_schema() and column_name = 'queue'"
    ).fetchall()
    assert ("inturn_recheck",) in tables
    for (name,) in tables:
        rows = beside.execute(sql.SQL("select * from {} where queue = %s").format(sql.Identifier(name)), (number,))
        assert rows.fetchall() == [], name
