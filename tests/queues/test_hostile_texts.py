"""Hostile texts at the door of every store: what is taken comes back equal, what is not is refused, alike in all."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_harness import STORES

import inturn
from hostile import HOSTILE, TEXTS, is_name, is_utf8
from inturn.core.errors import InputError, NoSuchQueue
from inturn.core.queue.messages import QueueInfo, QueueSettings
from inturn.core.texts import storable
from inturn.database import Database
from inturn.idempotency import MemoryKeys
from inturn.queue import Queue
from inturn.store.commands import StoreCall
from inturn.store.postgres import PostgresStore
from inturn.store.sqlite import SqliteStore
from inturn.store.writer.group_commit import Writer
from memory_store.store import MemoryStore

KINDS = ["memory", "sqlite", "postgres"]


@pytest.fixture
def queues(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Queue]]:
    """The queue named q, over every kind of store, and one named dead beside it."""
    with ExitStack() as stack:
        by_kind = {}
        for kind in KINDS:
            store = STORES[kind](tmp_path, lambda: request.getfixturevalue("postgres_url"))
            clock = count(1_000_000).__next__
            writer = Writer(store, clock)
            stack.callback(store.close if isinstance(store, SqliteStore | PostgresStore) else lambda: None)
            stack.callback(writer.close)
            for name in ("q", "dead"):
                writer.run(
                    StoreCall(
                        "", lambda store, now, name=name: store.save(name, QueueInfo(0, name, QueueSettings(), now))
                    )
                )
            by_kind[kind] = Queue(writer, "q")
        yield by_kind


def outcome(function: Callable[[], Any]) -> Any:
    """What a function returns, or how it is refused."""
    try:
        return ("returned", function())
    except InputError as error:
        return ("refused", str(error))


def alike(queues: dict[str, Queue], function: Callable[[Queue], Any]) -> Any:
    """What comes of it, which must be the same over every store."""
    outcomes = {kind: outcome(lambda queue=queue: function(queue)) for kind, queue in queues.items()}
    assert outcomes["memory"] == outcomes["sqlite"] == outcomes["postgres"]
    return outcomes["memory"]


def through(queue: Queue, body: Any = "x", **more: Any) -> tuple[Any, ...]:
    """What comes out of a queue when this was sent."""
    queue.send(body, **more)
    (message,) = queue.receive()
    message.ack()
    return message.body, message.group, message.dedup_id, message.attributes


@given(text=TEXTS)
@settings(max_examples=60)
def _messages(queues: dict[str, Queue], unique: Iterator[int], text: str) -> None:
    expected = ("returned", (text, None, None, {}))
    assert (alike(queues, lambda queue: through(queue, text)) == expected) is is_utf8(text)
    assert (alike(queues, lambda queue: through(queue, {"a": [text]}))[0] == "returned") is is_utf8(text)
    assert (alike(queues, lambda queue: through(queue, attributes={text: text}))[0] == "returned") is is_utf8(text)
    result = alike(queues, lambda queue: through(queue, group=text))
    assert result == ("returned", ("x", text, None, {})) if is_name(text) else result[0] == "refused"
    known = f"{text}{next(unique)}"
    result = alike(queues, lambda queue: through(queue, dedup_id=known))
    assert result == ("returned", ("x", None, known, {})) if is_name(known) else result[0] == "refused"


def test_a_hostile_message_is_stored_unchanged_or_refused_alike_in_all_stores(queues: dict[str, Queue]) -> None:
    _messages(queues, count())
    long = HOSTILE["a megabyte"]
    assert alike(queues, lambda queue: through(queue, long))[1][0] == long
    for more in ({"group": long}, {"dedup_id": long}):
        verdict, reason = alike(queues, lambda queue, more=more: through(queue, **more))
        assert (verdict, len(reason) < 1_000) == ("refused", True)


def about_a_group(queue: Queue, group: str, reason: str) -> tuple[Any, ...]:
    """Everything that is said of a group by its name."""
    queue.send("x", group=group)
    peeked, deferred = queue.peek(group=group), queue.deferred(group=group)
    queue.park(group, reason)
    (parked,), (seen,) = queue.parked(), queue.groups(group)
    (every,) = queue.groups()
    assert queue.receive(group=group) == []
    queue.resume(group)
    session = queue.session(group)
    assert session is not None
    with session:
        (message,) = session.receive()
        session.park(reason)
    parked_note = queue.parked()[0].note
    queue.resume(group)
    (message,) = queue.receive(group=group)
    message.reject(reason, to="dead")
    dead = Queue(queue.writer, "dead")
    (moved,) = dead.receive()
    moved.ack()
    return (
        len(peeked),
        len(deferred),
        parked[:2],
        seen[:2],
        seen.note,
        every.group,
        parked_note,
        moved.group,
        moved.note,
    )


@given(group=TEXTS, reason=TEXTS)
@settings(max_examples=40)
def _groups(queues: dict[str, Queue], group: str, reason: str) -> None:
    result = alike(queues, lambda queue: about_a_group(queue, group, reason))
    note = storable(reason[:20_000])[:20_000]
    if is_name(group):
        assert result == ("returned", (1, 0, (group, note), (group, 1), note, group, note, group, note))
        return
    verbs: list[Callable[[Queue], Any]] = [
        lambda queue: queue.receive(group=group),
        lambda queue: queue.peek(group=group),
        lambda queue: queue.deferred(group=group),
        lambda queue: queue.groups(group),
        lambda queue: queue.session(group),
        lambda queue: queue.park(group, "x"),
        lambda queue: queue.resume(group),
    ]
    assert {alike(queues, verb)[0] for verb in verbs} == {"refused"}


def test_hostile_group_names_are_treated_alike_by_every_verb(queues: dict[str, Queue]) -> None:
    _groups(queues)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_queue_and_reader_names_are_treated_alike_in_all_stores(queues: dict[str, Queue], text: str) -> None:
    for queue in queues.values():
        with pytest.raises((InputError, NoSuchQueue)):
            queue.redrive(to=text)
    if text.isprintable() and 0 < len(text) <= 200:
        assert alike(queues, lambda queue: queue.reader(text).read(1)) == ("returned", [])
        assert alike(queues, lambda queue: queue.reader(text).position()) == ("returned", 0)
    else:
        assert alike(queues, lambda queue: queue.reader(text).read(1))[0] == "refused"


@pytest.mark.parametrize("text", [7, None, b"x"])
def test_a_reject_note_must_be_a_text(queues: dict[str, Queue], text: Any) -> None:
    for queue in queues.values():
        queue.send("x")
        (message,) = queue.receive()
        with pytest.raises(InputError, match=r"the note is .*; expected a text"):
            message.reject(text, to="dead")
        message.ack()


@given(key=TEXTS, payload=TEXTS)
@settings(max_examples=40)
def _keys(dbs: list[Database], unique: Iterator[int], key: str, payload: str) -> None:
    key = f"{key}{next(unique)}" if key else key
    stores: list[Any] = [MemoryKeys(), *(db.idempotency_keys("p") for db in dbs)]

    def told(keys: Any) -> Any:
        lock = keys.try_lock(key, payload=payload)
        assert lock
        keys.accept(lock, payload)
        return keys.try_lock(key, payload=payload).result

    first, *rest = [outcome(lambda keys=keys: told(keys)) for keys in stores]
    assert all(result == first for result in rest)
    assert (first == ("returned", payload)) is (is_name(key) and is_utf8(payload))


def test_hostile_idempotency_keys_are_refused_alike(address: str) -> None:
    with inturn.open(address, durable=False) as db:
        _keys([db], count())


@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
@settings(max_examples=25)
def _in_transactions(queue: Queue, db: Database, texts: list[str]) -> None:
    """A send in a transaction of the caller's: the same door."""
    with db.transaction() as tx:
        for text in texts:
            assert (outcome(lambda text=text: queue.send("x", group=text, tx=tx))[0] == "returned") is is_name(text)
    messages = queue.receive(100)
    assert [message.group for message in messages] == [text for text in texts if is_name(text)] or len(
        set(texts)
    ) < len(texts)
    queue.purge()


def test_hostile_texts_are_treated_alike_within_a_transaction(address: str) -> None:
    with inturn.open(address, durable=False) as db:
        _in_transactions(db.queue("q"), db)


def test_the_queues_fixture_covers_all_three_stores(queues: dict[str, Queue]) -> None:
    assert {type(queue.writer.store) for queue in queues.values()} == {MemoryStore, SqliteStore, PostgresStore}  # type: ignore[attr-defined]
