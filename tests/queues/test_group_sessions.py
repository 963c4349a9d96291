"""Sessions as their users see them: verbs, words, errors, transactions, threads and tasks."""

import asyncio
import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import inturn
from clocks import Clock
from inturn.core import limits
from inturn.core.errors import InputError, LeaseExpired, NoSuchQueue, QueueError
from inturn.core.queue.messages import QueueSettings
from inturn.database import Database
from inturn.queue import Queue, Session
from inturn.store.sqlite import SqliteStore
from memory_store.store import MemoryStore
from threads import Running, together
from waiting import DEADLINE_S


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Database]:
    if request.param == "memory":
        memory: Any = MemoryStore()
        db = Database(memory, clock)
        yield db
        db.writer.close()
        return
    address = tmp_path / "shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with inturn.open(address, clock=clock) as db:
        yield db


@pytest.fixture
def queue(db: Database) -> Queue:
    queue = db.queue("payments")
    for text in ("a1", "a2", "b1", "a3"):
        queue.send(text, group=text[0])
    return queue


def begun(queue: Queue, group: object = None, **more: Any) -> Session:
    session = queue.session(group, **more)
    assert session is not None
    return session


def texts(messages: Any) -> list[str]:
    return [message.body for message in messages]


def test_a_session_receives_acknowledges_and_closes(queue: Queue, clock: Clock) -> None:
    with begun(queue) as session:
        assert (session.group, session.queue) == ("a", "payments")
        assert session.locked_until == clock.time + dt.timedelta(seconds=30)
        assert repr(session) == f"Session('a', fencing_token={session.fencing_token})"
        assert session.state() is None
        first, second = session.receive(2)
        assert first.fencing_token == session.fencing_token
        assert first.leased_until == session.locked_until
        first.ack()
        session.set_state(b"after a1")
        assert texts(queue.receive(10)) == ["b1"]
        assert queue.session("a") is None
        assert texts(session.receive(10)) == ["a3"]
        assert texts(session.peek()) == ["a2", "a3"]
        assert texts(session.peek(1, after=second.sequence_number)) == ["a3"]
    with pytest.raises(LeaseExpired, match="its lease has expired"):
        second.ack()
    with begun(queue, "a") as session:
        assert session.state() == b"after a1"
        assert texts(session.receive(10)) == ["a2", "a3"]


def test_a_session_block_that_raises_releases_the_group(queue: Queue) -> None:
    with pytest.raises(ZeroDivisionError), begun(queue) as session:
        print(len(session.receive(2)) / 0)
    assert texts(queue.receive(10, group="a")) == ["a1", "a2", "a3"]


def test_renew_extends_the_session_lock(queue: Queue, clock: Clock) -> None:
    session = begun(queue, lock_s=10)
    (message,) = session.receive()
    clock.forward(9)
    assert session.renew() == session.locked_until == clock.time + dt.timedelta(seconds=10)
    clock.forward(9)
    assert session.renew(60) == clock.time + dt.timedelta(seconds=60)
    clock.forward(59)
    message.ack()
    clock.forward(1)
    with pytest.raises(LeaseExpired):
        session.renew()


def test_a_lost_session_changes_nothing(queue: Queue, clock: Clock) -> None:
    session = begun(queue, lock_s=10)
    session.set_state(b"mine")
    first, second = session.receive(2)
    second.defer()
    clock.forward(10)
    for verb in (
        session.renew,
        session.receive,
        session.state,
        lambda: session.fetch(second.sequence_number),
        lambda: session.set_state(b"late"),
        lambda: session.park("late"),
    ):
        with pytest.raises(LeaseExpired, match="session of group 'a' has ended, and nothing was changed"):
            verb()
    for verb in (first.ack, first.nack, first.defer, lambda: first.extend(10)):
        with pytest.raises(LeaseExpired):
            verb()
    other = begun(queue, "a")
    session.close()  # nothing, and so at the end of a block
    assert other.fencing_token > session.fencing_token
    assert other.state() == b"mine"
    assert texts(other.receive(10)) == ["a1", "a3"]
    assert texts(other.deferred()) == texts(queue.deferred()) == ["a2"]


def test_session_verbs_with_tx_roll_back_with_the_transaction(db: Database, queue: Queue, clock: Clock) -> None:
    session = begun(queue, lock_s=10)

    def fail() -> None:
        with db.transaction() as tx:
            (message,) = session.receive(tx=tx)
            session.set_state(b"1", tx=tx)
            message.ack(tx=tx)
            session.renew(100, tx=tx)
            assert session.state(tx=tx) == b"1"
            session.park("no", tx=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (session.state(), session.locked_until) == (None, clock.time + dt.timedelta(seconds=10))
    assert queue.parked() == []
    with db.transaction() as tx:
        (message,) = session.receive(tx=tx)
        session.set_state(b"1", tx=tx)
        message.ack(tx=tx)
        session.close(tx=tx)
        reopened = queue.session("a", tx=tx)
        assert reopened is not None
    assert reopened.state() == b"1"
    assert texts(reopened.receive(10)) == ["a2", "a3"]
    with db.transaction() as tx:
        sent = queue.schedule("later", at=clock.time + dt.timedelta(hours=1), tx=tx)
        assert queue.cancel(sent.sequence_number, tx=tx) is True
        reopened.park("x", tx=tx)
        assert [group.group for group in queue.parked(tx=tx)] == ["a"]
        assert queue.resume("a", tx=tx) is True
        queue.park("a", "y", tx=tx)
    assert [(group.group, group.note) for group in queue.parked()] == [("a", "y")]


def test_a_group_without_state_or_parking_leaves_no_row(db: Database, queue: Queue) -> None:
    if isinstance(db.store, MemoryStore):
        return
    for number in range(20):
        with begun(queue, number) as session:
            session.set_state(b"x")
            session.set_state(None)
        queue.park(number, "x")
        queue.resume(number)
    with begun(queue, "kept") as session:
        session.set_state(b"")
    with db.transaction() as tx:
        is_sqlite = isinstance(db.store, SqliteStore)
        source = "session_state from inturn_group_lock" if is_sqlite else "state from inturn_session_state"
        assert tx.execute(f"select grp, {source}").fetchall() == [("kept", b"")]
        assert tx.execute("select count(*) from inturn_group_lock").fetchall() == [(is_sqlite,)]


def test_parked_groups_are_listed_in_pages(queue: Queue, clock: Clock) -> None:
    names = [f"g{number}" for number in range(5)] + ["long" * 40 + letter for letter in "ab"]
    for number, name in enumerate(names):
        clock.ms += number % 2  # two of them at a time
        queue.park(name, "x")
    groups, after = [], None
    while page := queue.parked(2, after=after):
        groups += page
        after = page[-1]
    assert groups == queue.parked()
    assert sorted(group.group for group in groups) == sorted(names)


def test_resume_many_resumes_only_groups_unchanged_since_listing(db: Database, queue: Queue, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        queue.park(name, "x")
    listed = queue.parked()
    clock.ms += 1
    queue.resume("b")
    queue.resume("c")
    queue.park("c", "another reason")
    assert queue.resume_many(listed) == ["a"]
    assert [(group.group, group.note) for group in queue.parked()] == [("c", "another reason")]
    assert texts(queue.receive(10)) == ["a1", "a2", "a3", "b1"]
    with db.transaction() as tx:
        assert queue.resume_many(queue.parked(tx=tx), tx=tx) == ["c"]
    assert queue.resume_many([]) == queue.parked() == []


def test_park_blocks_a_group_until_resume(queue: Queue, clock: Clock) -> None:
    with begun(queue) as session:
        first, _ = session.receive(2)
        first.ack()
        session.park("no such account")
        with pytest.raises(LeaseExpired):
            session.receive()
    queue.send("a4", group="a")
    assert texts(queue.receive(10)) == ["b1"]
    assert queue.parked() == [("a", "no such account", clock.ms)]
    assert (queue.session("a"), queue.session()) == (None, None)
    assert [queue.resume("a"), queue.resume("a")] == [True, False]
    assert texts(queue.receive(10)) == ["a2", "a3", "a4"]
    with pytest.raises(QueueError, match="group 'b' was not parked: it is locked or"):
        queue.park("b", "x")
    queue.park("c", "x" * (limits.ERROR_LENGTH + 1))
    assert [len(group.note) for group in queue.parked()] == [limits.ERROR_LENGTH]


def test_a_fetched_ungrouped_message_is_not_listed_as_a_group(queue: Queue) -> None:
    before = [group.group for group in queue.groups()]
    sent = queue.send("alone")
    (message,) = [received for received in queue.receive(10) if received.sequence_number == sent.sequence_number]
    message.defer()
    assert queue.fetch(message.sequence_number) is not None
    assert [group.group for group in queue.groups()] == before


def test_a_deferred_message_is_skipped_until_fetched(queue: Queue) -> None:
    with begun(queue) as session:
        (first,) = session.receive()
        first.defer()
        assert texts(session.deferred()) == ["a1"]
        assert texts(session.receive(10)) == ["a2", "a3"]
        assert queue.fetch(first.sequence_number) is None
        redelivered = session.fetch(first.sequence_number)
        assert redelivered is not None
        assert session.fetch(first.sequence_number) is None
        redelivered.nack()
        redelivered = session.fetch(first.sequence_number)
        assert redelivered is not None
        redelivered.defer()
    (b1,) = queue.receive(group="b")
    b1.defer()
    assert texts(queue.deferred()) == ["a1", "b1"]
    assert texts(queue.deferred(group="b")) == ["b1"]
    assert texts(queue.peek(group="a")) == ["a1", "a2", "a3"]
    assert queue.depth().deferred == 2
    fetched = queue.fetch(b1.sequence_number, visibility_timeout_s=5)
    assert fetched is not None
    fetched.ack()
    assert queue.depth().deferred == 1


def test_a_fetched_message_can_be_rejected(db: Database, queue: Queue) -> None:
    db.queue("dead")
    queue.configure(dead_letter="dead", max_receives=5)
    (first,) = queue.receive(group="a")
    first.defer()
    fetched = queue.fetch(first.sequence_number)
    assert fetched is not None
    fetched.reject("late")
    assert [(message.body, message.note) for message in db.queue("dead").peek()] == [("a1", "late")]


def test_a_scheduled_message_is_delivered_at_its_time_or_cancelled(db: Database, clock: Clock) -> None:
    queue = db.queue("mails")
    start = clock.time + dt.timedelta(minutes=5)
    early, late = queue.schedule("early", at=start), queue.schedule("late", at=start + dt.timedelta(minutes=5))
    past = queue.schedule("past", at=clock.time - dt.timedelta(days=1))
    (message,) = queue.receive(10)
    assert queue.cancel(past.sequence_number) is False
    message.ack()
    clock.forward(299)
    assert queue.receive() == []
    clock.forward(1)
    assert queue.cancel(early.sequence_number) is False
    assert texts(queue.receive(10)) == ["early"]
    assert queue.cancel(late.sequence_number) is True
    assert queue.cancel(late.sequence_number) is False
    clock.forward(300)
    assert texts(queue.receive(10)) == ["early"], "whose lease is over"
    scheduled = queue.schedule(
        "x", at=dt.datetime.fromtimestamp(clock.ms / 1000 + 60, dt.timezone(dt.timedelta(hours=5)))
    )
    clock.forward(59)
    assert queue.cancel(scheduled.sequence_number) is True


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (lambda queue: queue.session(lock_s=0), "lock_s is 0; expected a number greater than 0"),
        (lambda queue: queue.session(lock_s=43_201), "from 0 to 43200"),
        (lambda queue: queue.session(""), "group is ''; expected a text of 1 to"),
        (lambda queue: queue.session(1.5), "invalid group"),
        (lambda queue: queue.park("a", None), "the reason is None; expected a text"),
        (lambda queue: queue.park("x" * 1_001, "y"), "of 1 to 1000 characters"),
        (lambda queue: begun(queue).set_state("text"), "the state is 'text'; expected None or at most"),
        (lambda queue: begun(queue).set_state(b"x" * 1_048_577), "the state is 1,048,577 bytes"),
        (lambda queue: begun(queue).receive(0), "max_messages is 0"),
        (lambda queue: queue.schedule("x", at=dt.datetime(2026, 1, 1)), "with a time zone"),  # noqa: DTZ001
        (lambda queue: queue.schedule("x", at=60), "at is 60; expected a datetime"),
        (
            lambda queue: queue.schedule("x", at=dt.datetime(2999, 1, 1, tzinfo=dt.UTC)),
            "at is 2999-01-01 .*; expected a time at most 365 days from now",
        ),
        (lambda queue: queue.deferred(0), "limit is 0"),
    ],
)
def test_session_verbs_refuse_invalid_arguments(queue: Queue, verb: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        verb(queue)
    assert queue.depth().messages == 4


def test_session_park_and_resume_accept_a_group_of_any_type(queue: Queue) -> None:
    queue.send("x", group=7)
    with begun(queue, 7) as session:
        assert texts(session.receive()) == ["x"]
        session.park("y")
    assert queue.resume(7) is True


def test_session_verbs_of_a_deleted_queue_raise_no_such_queue(db: Database) -> None:
    queue = db.queue("gone")
    session = begun(queue, "a")
    queue.delete()
    for verb in (queue.session, queue.parked, session.receive, session.renew, lambda: queue.cancel(1)):
        with pytest.raises(NoSuchQueue):
            verb()


# --- by the real clock ---


@pytest.fixture
def real(address: str) -> Iterator[Database]:
    with inturn.open(address, durable=False) as db:
        yield db


def test_a_waiting_session_call_returns_when_a_group_is_free(real: Database) -> None:
    queue = real.queue("q")
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(queue.session, wait_s=30)
        queue.send("a1", group="a")
        session = waiting.result()
        assert session is not None
        waiting = threads.submit(queue.session, wait_s=30)
        more = threads.submit(session.receive, 10, wait_s=30)
        assert texts(more.result()) == ["a1"]
        more = threads.submit(session.receive, 10, wait_s=30)
        queue.send("a2", group="a")
        assert texts(more.result()) == ["a2"]
        session.close()
        following = waiting.result()
        assert following is not None
        assert texts(following.receive(10)) == ["a1", "a2"]


def test_a_waiting_session_receive_fails_when_the_lock_expires(real: Database) -> None:
    queue = real.queue("q")
    session = begun(queue, "a", lock_s=0.2)
    with pytest.raises(LeaseExpired):
        session.receive(wait_s=30)
    assert queue.session("a", wait_s=30) is not None


def test_concurrent_session_calls_give_each_group_to_one_session(address: str) -> None:
    """Two connections to one database, as two processes have them, with two threads each."""
    groups, per_group = 20, 5
    with inturn.open(address, durable=False) as one, inturn.open(address, durable=False) as other:
        queue = one.queue("q")
        for number in range(per_group):
            queue.send_many([inturn.queue.draft(number, group=str(group)) for group in range(groups)])
        inside: Counter[str] = Counter()
        done: dict[str, list[int]] = {str(group): [] for group in range(groups)}
        crowded: list[str] = []
        barrier = threading.Barrier(4, timeout=DEADLINE_S)

        def work(db: Database) -> None:
            own_queue = db.queue("q")
            barrier.wait()
            while (session := own_queue.session(wait_s=0.3)) is not None:
                with session:
                    inside[session.group] += 1
                    if inside[session.group] > 1:
                        crowded.append(session.group)
                    before = int(session.state() or b"0")
                    for message in session.receive(2):
                        done[session.group].append(message.body)
                        before += 1
                        message.ack()
                    session.set_state(str(before).encode())
                    inside[session.group] -= 1

        together(*(partial(work, db) for db in (one, one, other, other)))
        assert crowded == []
        assert done == {str(group): list(range(per_group)) for group in range(groups)}
        assert queue.depth().messages == 0
        for group in done:
            assert begun(queue, group).state() == str(per_group).encode()


def test_concurrent_cancel_and_receive_give_each_message_to_one(real: Database) -> None:
    queue = real.queue("q", QueueSettings(visibility_timeout_s=60))
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.1)
    numbers = [queue.schedule(number, at=soon).sequence_number for number in range(100)]
    received: list[int] = []

    def receive() -> None:
        while messages := queue.receive(7, wait_s=0.5):
            received.extend(message.sequence_number for message in messages)

    receiving = Running(receive)
    cancelled = [number for number in numbers if queue.cancel(number)]
    receiving.end()
    assert sorted(received + cancelled) == numbers


def test_async_session_verbs(real: Database) -> None:
    queue = real.queue("q")

    async def work() -> list[str]:
        await queue.send.aio("a1", group="a")
        session = await queue.session.aio(wait_s=5)
        assert session is not None
        async with session:
            (message,) = await session.receive.aio(wait_s=5)
            async with real.transaction() as tx:
                await session.set_state.aio(b"x", tx=tx)
                message.ack(tx)
        return [message.body for message in await queue.peek.aio()]

    assert asyncio.run(work()) == []
    assert begun(queue, "a").state() == b"x"


def test_a_cancelled_async_session_call_releases_the_group(real: Database) -> None:
    queue = real.queue("q")

    async def work() -> None:
        for _ in range(30):
            waiting = asyncio.create_task(queue.session.aio("a", wait_s=10))
            await asyncio.sleep(0)
            await queue.depth.aio()  # it is under way
            waiting.cancel()
            try:
                session = await waiting
            except asyncio.CancelledError:
                continue
            assert session is not None
            await session.close.aio()

    asyncio.run(work())
    session = queue.session("a", wait_s=10)
    assert session is not None
