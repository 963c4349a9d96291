"""Wrong arguments of the public functions: an InputError names the parameter, the value and what was expected."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import inturn
from inturn.broker import QueueBroker
from inturn.consumer import Consumer
from inturn.core.errors import InputError, NoSuchGroup, StoreError
from inturn.idempotency import idempotent
from inturn.ingest import FolderSource, Ingest, MessageMapping, SourceControl, SqsSource
from inturn.lab import messages_of, run

LEDGER = inturn.Pipeline(
    name="ledger", group="account", order=inturn.Gapless("revision"), handler=lambda state, _message: (state, [])
)


def handler(_message: Any) -> None:
    """Handle nothing."""


@pytest.fixture
def shop() -> Any:
    db = inturn.open(":memory:")
    queue = db.queue("payments")
    queue.send("a", group="g")
    queue.send("b", group="h")
    message = queue.receive()[0]
    keys = db.idempotency_keys("charges")
    with db:
        yield SimpleNamespace(db=db, queue=queue, message=message, keys=keys, lock=keys.try_lock("k"))


WRONG: dict[str, Callable[[Any], object]] = {
    "pipeline is 3; expected a Pipeline": lambda s: inturn.work(3, s.queue, until="empty"),
    "pipeline is None; expected a Pipeline": lambda s: inturn.work(None, s.queue, until="empty", final=True),
    "queue is 'x'; expected a queue, such as db.queue": lambda _: inturn.work(LEDGER, "x", until="empty"),
    "retry is 3; expected a Retry": lambda s: inturn.work(LEDGER, s.queue, until="empty", retry=3),
    "queue is 3; expected a queue": lambda _: inturn.consume(3, handler, until="empty"),
    "queue is <function": lambda s: inturn.consume(handler, s.queue, until="empty"),
    "handler is 'x'; expected a function": lambda s: inturn.consume(s.queue, "x", until="empty"),
    "rate_limit is 3; expected a Rate": lambda s: Consumer(s.queue, handler, rate_limit=3),
    "group_rate_limit is '1/s'; expected": lambda s: Consumer(s.queue, handler, group_rate_limit="1/s"),
    "transaction is 3; expected a function": lambda s: Consumer(s.queue, handler, transaction=3),
    "messages is 'x'; expected a list": lambda s: s.queue.ack("x"),
    r"messages is Message\(.*; expected a list .* such as \[message\]": lambda s: s.queue.ack(s.message),
    r"messages is \[.* 3\]; expected a list": lambda s: s.queue.ack([s.message, 3]),
    "messages is None; expected a list": lambda s: s.queue.nack(None),
    "messages is 4; expected a list": lambda s: s.queue.extend(4, 3),
    "timeout_s is None; expected a number": lambda s: s.message.extend(None),
    "wait_s is 'x'; expected a number of seconds": lambda s: s.queue.receive(wait_s="x"),
    r"wait_s is \[1\]; expected a number": lambda s: s.queue.send("c", wait_s=[1]),
    "wait_s is 'y'; expected a number": lambda s: s.queue.send_many([], wait_s="y"),
    "wait_s is 'z'; expected a number": lambda s: s.queue.session(wait_s="z"),
    "max_messages is '3'; expected a whole number": lambda s: s.queue.receive("3"),
    "delay_s is 'x'; expected a number": lambda s: s.queue.send("c", delay_s="x"),
    "drafts is None; expected a list": lambda s: s.queue.send_many(None),
    "a message to send is 'c'; expected a message made by draft": lambda s: s.queue.send_many(["c"]),
    "sequence_number is 'x'; expected": lambda s: s.queue.cancel("x"),
    "sequence_number is None; expected": lambda s: s.queue.fetch(None),
    "after is 'x'; expected the sequence number": lambda s: s.queue.peek(after="x"),
    "after is 'y'; expected the sequence number": lambda s: s.queue.log(after="y"),
    "after is 'z'; expected a group that parked": lambda s: s.queue.parked(after="z"),
    "up_to is 'x'; expected the sequence number": lambda s: s.queue.log(up_to="x"),
    "sequence_number is 'y'; expected": lambda s: s.queue.reader("r").commit("y"),
    "sequence_number is 'z'; expected": lambda s: s.queue.reader("r").seek("z"),
    "a group to resume is 'g'; expected a group that parked": lambda s: s.queue.resume_many(["g"]),
    r"to is \[\]; expected the name of a queue": lambda s: s.queue.redrive(to=[]),
    "target is 3; expected an SQLite file": lambda _: inturn.open(3),  # type: ignore[arg-type]
    "busy_s is 'x'; expected a number": lambda _: inturn.open(":memory:", busy_s="x"),  # type: ignore[arg-type]
    "clock is 3; expected a function": lambda _: inturn.open(":memory:", clock=3),  # type: ignore[arg-type]
    "invalid name 3: 1 to 200": lambda s: s.db.queue(3),
    "invalid name 4: 1 to 200": lambda s: s.db.idempotency_keys(4),
    r"settings is \{\}; expected a QueueSettings": lambda s: s.db.queue("payments", {}),
    "messages is None; expected a list of messages": lambda _: LEDGER.replay(None),  # type: ignore[arg-type]
    "now is 3; expected a datetime": lambda _: LEDGER.replay([], now=3),  # type: ignore[arg-type]
    "after is 3; expected the Replay": lambda _: LEDGER.replay([], after=3),  # type: ignore[arg-type]
    "decisions is 3; expected a list": lambda _: LEDGER.replay([], decisions=3),  # type: ignore[arg-type]
    "a decision is 4; expected a Decision": lambda _: LEDGER.replay([], decisions=[4]),  # type: ignore[list-item]
    "stored is 'x'; expected db.pipeline": lambda _: inturn.dry_run(LEDGER, "x", "resume"),  # type: ignore[arg-type]
    "the key is 3; expected a text": lambda s: s.keys.try_lock(3),
    "lock is 'x'; expected the Locked": lambda s: s.keys.accept("x"),
    "lock is None; expected the Locked": lambda s: s.keys.release(None),
    "lock is 3; expected the Locked": lambda s: s.keys.extend(3, 5),
    "handler is 3; expected a plain or": lambda s: idempotent(3, key=str, store=s.keys),  # type: ignore[call-overload]
    "source is 'x'; expected a source": lambda s: Ingest("x", s.queue, MessageMapping(), name="n"),  # type: ignore[arg-type]
    "path is 3; expected the path of a folder": lambda _: FolderSource(3),  # type: ignore[arg-type]
    "queue_url is 3; expected a URL": lambda _: SqsSource(3),  # type: ignore[arg-type]
    "no source 'x'; existing sources: none": lambda s: SourceControl(s.db, "x").pause(),
    "no source 'y'; existing sources: none": lambda s: SourceControl(s.db, "y").rejected_places(partitions=["0"]),
    "messages is None; expected a list of messages, such": lambda _: run(None),  # type: ignore[arg-type]
    "acount is None; .* existing fields: account, revision": lambda _: messages_of(
        [{"account": "a", "revision": 1}], group="acount", order="revision"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_an_invalid_argument_is_named_with_its_value(shop: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        WRONG[text](shop)
    assert (shop.queue.depth().messages, shop.queue.depth().in_flight) == (2, 1)  # nothing was done
    shop.queue.ack([shop.message])


BROKER: dict[str, Callable[[QueueBroker], object]] = {
    r"group is \[\]; expected a hashable value": lambda broker: broker.submit(asyncio.sleep, 0, group=[]),
    r"group is \{\}; expected a hashable value": lambda broker: broker.post(asyncio.sleep, 0, group={}),
    r"group is \[1\]; expected a hashable value": lambda broker: broker.slot([1]).__aenter__(),
    r"dedup_id is \[\]; expected a hashable value": lambda broker: broker.submit(asyncio.sleep, 0, dedup_id=[]),
    r"dedup_id is \{\}; expected a hashable value": lambda broker: broker.post(asyncio.sleep, 0, dedup_id={}),
    "function is None; expected an async function": lambda broker: broker.submit(None),  # type: ignore[arg-type]
    "function is 3; expected an async function": lambda broker: broker.put(3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("text", BROKER)
def test_an_invalid_broker_argument_takes_no_slot(text: str) -> None:
    async def scenario() -> None:
        async with QueueBroker() as broker:
            with pytest.raises(InputError, match=text):
                await awaited(BROKER[text](broker))
            assert (broker.active, broker.queued) == (0, 0)

    asyncio.run(scenario())


async def awaited(result: Any) -> None:
    if hasattr(result, "__await__"):
        await asyncio.wait_for(result, 60)


def test_ack_accepts_a_generator(shop: Any) -> None:
    shop.queue.ack(message for message in [shop.message])
    assert shop.queue.depth().messages == 1


def test_open_refuses_a_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="a directory; expected a file in it"):
        inturn.open(tmp_path)


def test_no_such_group_lists_the_existing_pipelines(shop: Any) -> None:
    inturn.work(LEDGER, shop.db.queue("other"), until="empty")
    with pytest.raises(NoSuchGroup, match="no group 'a': no pipeline 'nope'; existing pipelines: ledger"):
        shop.db.pipeline("nope").state("a")
    with pytest.raises(NoSuchGroup, match="pipeline 'ledger' has no group 'a'"):
        shop.db.pipeline("ledger").state("a")
