"""Queues of a real RabbitMQ become messages: once, in order, whatever is redelivered or dies."""

import asyncio
import datetime as dt
import importlib.util
import random
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

aio_pika = pytest.importorskip("aio_pika")

from ingest.rabbitmq_clients import declared, deleted, depth, in_channel, message, polled, published, sent  # noqa: E402 - needs aio-pika
from ingest.source_history import check_came_once, numbered  # noqa: E402
from inturn.cli import app  # noqa: E402
from inturn.core import limits  # noqa: E402
from inturn.core.errors import SourceError  # noqa: E402
from inturn.database import Database  # noqa: E402
from inturn.faults import OF_A_TRANSACTION  # noqa: E402
from inturn.ingest import Ingest, MessageMapping, RabbitSource, SourceControl  # noqa: E402
from inturn.ingest import limits as source_limits  # noqa: E402
from inturn.ingest.sources import rabbitmq as rabbitmq_source  # noqa: E402
from inturn.testing import source  # noqa: E402
from lives import killed_at_every_point  # noqa: E402
from rabbitmq_started import missing, rabbitmq  # noqa: E402
from waiting import until  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

PROGRAM = Path(__file__).parent / "programs" / "rabbitmq_host.py"
POINTS = (*OF_A_TRANSACTION, "polled", "ingested")
LIVES = 6
KINDS = ("classic", "quorum")
MAPPING = MessageMapping(group="headers.account", revision="headers.n", id="headers.message-id")
WAIT_S = 60


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as url:
        yield url


@pytest.fixture(params=KINDS)
def queue(request: pytest.FixtureRequest, url: str) -> str:
    name = request.node.name.replace("[", ".").rstrip("]")
    declared(url, name, request.param)
    return name


def ingest(db: Database, url: str, queue: str, mapping: MessageMapping = MAPPING, **more: Any) -> Ingest:
    prefetch, name = more.pop("prefetch", 500), more.pop("name", queue)
    return Ingest(RabbitSource(url, queue, prefetch=prefetch), db.queue("payments"), mapping, name=name, **more)


def test_rabbitmq_messages_are_read_in_order_with_headers_and_properties(db: Database, url: str, queue: str) -> None:
    sent_at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    headers = {"account": "a", "n": 2, "list": [1], "deep": {"x": 1.5}, "none": None, "message-id": "a header's"}
    first_message = message(1, timestamp=sent_at, type="paid", app_id="shop", correlation_id="c", priority=3)
    published(url, queue, [first_message, message(2, headers=headers), message(3)])
    source = RabbitSource(url, queue)
    source.open(queue, None)
    records = polled(source, 3)
    assert source.lag(queue) == 0
    source.shutdown()
    first, second, third = records
    assert (first.body, first.key, first.time_ms) == (b"1", queue.encode(), round(sent_at.timestamp() * 1000))
    assert first.headers == {
        "account": "a",
        "n": "1",
        "message-id": "a-1",
        "type": "paid",
        "app-id": "shop",
        "correlation-id": "c",
        "priority": "3",
    }
    assert (second.headers["list"], second.headers["deep"]) == ("[1]", '{"x":1.5}')
    assert (second.headers["message-id"], third.body) == ("a-2", b"3")
    assert "none" not in second.headers
    assert ingest(db, url, queue).run(until="caught up").received == 3, "what was not confirmed comes again"
    assert depth(url, queue) == 0


GUARDS = {
    "classic": ({}, None),
    "classic with others": ({"x-max-length": 10}, "which cannot be determined"),
    "quorum": ({"x-queue-type": "quorum"}, "is a quorum queue without x-single-active-consumer"),
    "quorum with others": ({"x-queue-type": "quorum", "x-max-length": 10}, "which cannot be determined"),
    "single": ({"x-queue-type": "quorum", "x-single-active-consumer": True}, None),
}


@pytest.mark.parametrize("kind", GUARDS)
def test_a_queue_without_single_active_consumer_is_warned_about_once(
    url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    arguments, warning = GUARDS[kind]
    queue = f"guard of {kind}"
    in_channel(url, lambda channel: channel.declare_queue(queue, durable=True, arguments=arguments))
    published(url, queue, [message(1)])
    caplog.set_level("INFO", "inturn.ingest")
    source = RabbitSource(url, queue)
    for _ in range(2):
        source.open(queue, None)
        polled(source, 1)
        source.close(queue)
    source.shutdown()
    texts = [record.getMessage() for record in caplog.records if "x-single-active-consumer" in record.getMessage()]
    assert len(texts) == (warning is not None)
    assert warning is None or (
        warning in texts[0] and "Declare the queue again with x-single-active-consumer" in texts[0]
    )


def test_large_prefetched_messages_are_warned_about_once(
    url: str, queue: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "RABBITMQ_HELD_BYTES", 50_000)
    published(url, queue, [message(n, body=b"x" * 10_000) for n in range(1, 21)])
    source = RabbitSource(url, queue, prefetch=10)
    source.batch_bytes = 10_000
    source.open(queue, None)
    until(lambda: source.poll(1, 1) and "lower the source's prefetch" in caplog.text)
    count = 1
    while count < 10:
        count += len(source.poll(1, 1))
    source.shutdown()
    assert caplog.text.count("lower the source's prefetch") == 1
    assert "prefetch, now 10 messages" in caplog.text


def test_many_messages_keep_their_order_and_are_acknowledged(db: Database, url: str, queue: str) -> None:
    published(url, queue, [message(n) for n in range(1, 501)])
    assert ingest(db, url, queue, prefetch=7, batch=50).run(until="caught up").received == 500
    assert sent(db) == [("a", n) for n in range(1, 501)]
    assert depth(url, queue) == 0


def test_a_rabbitmq_poll_is_limited_in_bytes_and_keeps_the_order(url: str, queue: str) -> None:
    published(url, queue, [message(n, body=b"%03d" % n + b"x" * 900) for n in range(1, 31)])
    source = RabbitSource(url, queue)
    source.batch_bytes = 5_000
    source.open(queue, None)
    bodies: list[bytes] = []

    def poll() -> bool:
        records = source.poll(100, 1)
        assert sum(record.size for record in records) <= 5_000
        bodies.extend((record.body or b"")[:3] for record in records)
        return len(bodies) >= 30

    until(poll, "30 messages")
    source.shutdown()
    assert bodies == [b"%03d" % n for n in range(1, 31)]


def test_r1_r2_r3_requeued_messages_are_ordered_by_their_revision(db: Database, url: str, queue: str) -> None:
    """Whatever place the broker gives to what other consumers returned, nothing is lost, and the order is known."""
    published(url, queue, [message(n) for n in range(1, 9)])

    async def return_some(channel: Any) -> None:
        await channel.set_qos(prefetch_count=5)
        amqp_queue = await channel.declare_queue(queue, passive=True)
        for _ in range(3):
            delivered = await amqp_queue.get()
            await delivered.nack(requeue=True)

    in_channel(url, return_some)
    assert ingest(db, url, queue, prefetch=5).run(until="caught up").received == 8
    assert sorted(sent(db), key=lambda pair: pair[1] or 0) == [("a", n) for n in range(1, 9)]


def test_r3_a_repeatedly_stopped_reader_returns_its_messages_in_order(url: str) -> None:
    declared(url, "again")
    published(url, "again", [message(n) for n in range(1, 9)])
    for _ in range(3):
        source = RabbitSource(url, "again", prefetch=5)
        source.open("again", None)
        records = polled(source, 5)
        source.shutdown()
        assert [record.body for record in records] == [b"1", b"2", b"3", b"4", b"5"]


def test_r4_an_unmappable_message_is_rejected_once(db: Database, url: str, queue: str) -> None:
    bad = message(2, body=b"\xff\xfe")
    large = message(3, body=b'"' + b"x" * 10_000_000 + b'"')
    published(url, queue, [message(1), bad, large, message(4, headers={"n": 4}), message(5)])
    host = ingest(db, url, queue)
    assert host.run(until="caught up") == (2, 3, 0, 0)
    assert depth(url, queue) == 0
    rejected = list(SourceControl(db, queue).rejected())
    assert [record.reason.split(":")[0] for record in rejected] == [
        "the body is not JSON",
        f"the body has 10,000,002 bytes; at most {limits.BODY_BYTES:,} are allowed",
        "the record has no group",
    ]
    assert [record.body for record in rejected] == [b"\xff\xfe", large.body, b"4"]


def test_r5_a_redelivered_flag_does_not_make_a_message_a_duplicate(db: Database, url: str, queue: str) -> None:
    published(url, queue, [message(1)])

    async def inspect_queue(channel: Any) -> None:
        amqp_queue = await channel.declare_queue(queue, passive=True)
        await amqp_queue.get()  # its channel closes: the next delivery says redelivered, though nobody did anything

    in_channel(url, inspect_queue)
    assert ingest(db, url, queue).run(until="caught up") == (1, 0, 0, 0)


def test_a_message_published_again_is_recognized_by_its_message_id(db: Database, url: str, queue: str) -> None:
    published(url, queue, [message(1), message(2), message(1)])
    published(url, queue, [message(2), message(3)])
    assert ingest(db, url, queue).run(until="caught up") == (3, 0, 2, 0)
    assert sent(db) == [("a", 1), ("a", 2), ("a", 3)]


def test_a_message_with_a_lost_acknowledgement_is_sent_once(
    db: Database, url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(url, queue, [message(n) for n in range(1, 11)])
    confirm, failures = RabbitSource.confirm, 3

    def failing(self: RabbitSource, partition: str, position: Any) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            assert self._link is not None
            self._call(self._link.connection.close())  # between the commit and the acknowledgement
        confirm(self, partition, position)

    monkeypatch.setattr(RabbitSource, "confirm", failing)
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_S", 0.01)
    assert ingest(db, url, queue, batch=4).run(until="caught up").received <= 10
    assert sent(db) == [("a", n) for n in range(1, 11)]
    assert depth(url, queue) == 0


def test_a_connection_that_breaks_while_idle_is_reopened(db: Database, url: str, queue: str) -> None:
    host = ingest(db, url, queue)
    with host:
        published(url, queue, [message(1)])
        until(lambda: sent(db) == [("a", 1)])
        link = host._source._link  # type: ignore[attr-defined]
        host._source._call(link.connection.close())  # type: ignore[attr-defined]
        published(url, queue, [message(2)])
        until(lambda: sent(db) == [("a", 1), ("a", 2)])


def test_a_recreated_rabbitmq_queue_is_read_again(
    db: Database, url: str, queue: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_MAX_S", 0.2)
    kind = "quorum" if "quorum" in queue else "classic"
    with ingest(db, url, queue, lease_s=600) as host:  # so long nothing else asks about the queue
        published(url, queue, [message(1)])
        until(lambda: sent(db) == [("a", 1)])
        deleted(url, queue)
        until(lambda: f"{queue!r} cannot be read: NOT_FOUND" in host.problem)
        declared(url, queue, kind)
        published(url, queue, [message(2)])
        until(lambda: sent(db) == [("a", 1), ("a", 2)])
    assert f"cancelled the consumer of the queue {queue!r}" in caplog.text


def test_messages_delivered_before_the_deletion_of_their_queue_are_read(url: str, queue: str) -> None:
    published(url, queue, [message(n) for n in range(1, 4)])
    source = RabbitSource(url, queue)
    source.open(queue, None)
    assert [record.body for record in source.poll(1, WAIT_S)] == [b"1"]
    link = source._link
    assert link is not None
    until(lambda: link.messages.qsize() == 2)
    deleted(url, queue)
    rest = polled(source, 2)
    source.confirm(queue, rest[-1].position)
    assert [record.body for record in rest] == [b"2", b"3"]
    with pytest.raises(SourceError, match="cancelled the consumer"):
        until(lambda: source.poll(1, 0.1))
    source.shutdown()


def test_a_queue_read_by_another_consumer_is_retried_until_it_is_free(db: Database, url: str, queue: str) -> None:
    """Such as that of a paused process; else messages behind those that it has would come before them."""
    published(url, queue, [message(n) for n in range(1, 4)])
    other = RabbitSource(url, queue, prefetch=2)
    other.open(queue, None)
    other.poll(1, 1)
    source = RabbitSource(url, queue)
    source.open(queue, None)
    with pytest.raises(SourceError, match="cannot be read exclusively"):
        source.poll(1, 1)
    source.shutdown()
    with ingest(db, url, queue) as waiting:
        until(lambda: "cannot be read exclusively" in waiting.problem)
        other.shutdown()
        until(lambda: sent(db) == [("a", 1), ("a", 2), ("a", 3)])


def test_a_reader_paused_before_consuming_takes_no_message_of_its_successor(
    db: Database, url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(url, queue, [message(n) for n in range(1, 501)])
    looked, goes_on = threading.Event(), threading.Event()
    check = rabbitmq_source._Link._check_consumers

    async def paused(self: Any, own_consumers: int) -> None:
        await check(self, own_consumers)
        if not looked.is_set():
            looked.set()
            await asyncio.to_thread(goes_on.wait, WAIT_S)

    monkeypatch.setattr(rabbitmq_source._Link, "_check_consumers", paused)
    monkeypatch.setattr(source_limits, "INGEST_CALL_S", 0.0)  # a paused process renews no lease
    settings = {"prefetch": 10, "batch": 5, "lease_s": 0.2}
    with ingest(db, url, queue, **settings):
        assert looked.wait(WAIT_S)
        with ingest(db, url, queue, **settings) as second:
            until(lambda: second.problem or sent(db))
            goes_on.set()
            until(lambda: len(sent(db)) == 500)
    assert sent(db) == [("a", n) for n in range(1, 501)]


def test_a_queue_is_read_with_a_warning_if_its_lock_may_not_be_declared(
    url: str, queue: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq_source, "_lock_name", lambda _: "amq.refused")  # as without 'configure'
    published(url, queue, [message(1)])
    source = RabbitSource(url, queue)
    source.open(queue, None)
    assert [record.body for record in polled(source, 1)] == [b"1"]
    source.shutdown()
    assert "x-single-active-consumer" in caplog.text


def test_a_queue_name_of_maximum_length_has_a_lock(url: str) -> None:
    name = "q" * 255
    declared(url, name, "quorum")
    first, second = RabbitSource(url, name), RabbitSource(url, name)
    first.open(name, None)
    assert first.poll(1, 0) == []
    second.open(name, None)
    with pytest.raises(SourceError, match="another source reads it"):
        second.poll(1, 0)
    first.shutdown()
    second.shutdown()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_rabbitmq_queue_passes_the_source_check(url: str, queue: str, seed: int) -> None:
    def make(numbers: Sequence[int]) -> None:
        published(url, queue, [message(n, body=b'{"n": %d}' % n) for n in numbers])

    source(lambda: RabbitSource(url, queue), make, seed=seed, steps=40, redelivers=True)


def test_rabbitmq_login_queue_and_connection_errors_are_reported_without_secrets(db: Database, url: str) -> None:
    declared(url, "there")
    with pytest.raises(SourceError, match="refuses the login") as refused:
        ingest(db, url.replace("guest:guest", "guest:secret-7"), "there", name="1").run(until="caught up")
    assert "secret-7" not in str(refused.value)
    with pytest.raises(SourceError, match="'nowhere' cannot be read: NOT_FOUND"):
        ingest(db, url, "nowhere").run(until="caught up")
    with pytest.raises(SourceError, match="no such virtual host"):
        ingest(db, f"{url}none", "there", name="2").run(until="caught up")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(SourceError, match="cannot be reached"):
            ingest(db, f"amqp://127.0.0.1:{closed.getsockname()[1]}/", "there", name="3").run(until="caught up")


def test_ingest_commands_report_an_unreadable_rabbitmq_source(url: str, tmp_path: Path) -> None:
    declared(url, "readable", "quorum", **{"x-delivery-limit": 2})
    published(url, "readable", [message(1)])
    config = tmp_path / "ingest.toml"

    def run_command(command: str, url: str, queue: str) -> tuple[int, str]:
        config.write_text(f"""
            [[sources]]
            name = "bank"
            kind = "rabbitmq"
            queue = "shop.db#payments"
            url = "{url}"
            from_queue = "{queue}"
            mapping = {{ id = "headers.message-id" }}
        """)
        more = ["--until-caught-up"] if command == "run" else []
        done = CliRunner().invoke(app, ["ingest", command, str(config), *more])
        return done.exit_code, " ".join(done.output.split())

    for place, queue, words in (
        (url.replace("guest:guest", "guest:secret-7"), "readable", "refuses the login; check the user and password"),
        (url, "nowhere", "the queue 'nowhere' cannot be read: NOT_FOUND"),
        (f"{url}none", "readable", "RabbitMQ has no such virtual host, or this user may not use it; check the URL"),
    ):
        for command in ("check", "run"):
            code, text = run_command(command, place, queue)
            assert code == 1
            assert words in text
            assert "secret-7" not in text
    for _ in range(4):
        assert run_command("check", url, "readable") == (
            0,
            "bank readable: 1 message, not read, since the broker counts deliveries",
        )
    code, text = run_command("run", url, "readable")
    assert (code, text.endswith("bank: 1 received, 0 rejected, 0 ignored")) == (0, True), "no lease is left behind"


def test_long_and_deep_rabbitmq_messages_are_rejected_and_block_nothing(db: Database, url: str, queue: str) -> None:
    bad = [b'"' + b"x" * 10_000_000 + b'"', b"[" * 100_000 + b"]" * 100_000]
    published(url, queue, [message(n, body=body) for n, body in enumerate([b"1", *bad, b"4"], 1)])
    assert ingest(db, url, queue).run(until="caught up") == (2, 2, 0, 0)
    assert [record.body for record in SourceControl(db, queue).rejected()] == bad
    assert depth(url, queue) == 0


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_rabbitmq_source_killed_at_every_point_sends_each_message_once(
    kind: str, db: Database, address: str, url: str, soak_seed: int, soak_times: int
) -> None:
    if kind == "quorum" and address.startswith("postgres"):
        pytest.skip("each kind over a database of its own")
    if kind == "classic" and not address.startswith("postgres"):
        pytest.skip("each kind over a database of its own")
    chance, queue = random.Random(soak_seed), f"lives-{kind}-{soak_seed}"
    declared(url, queue, kind)
    names = numbered(chance, soak_times * 280, 10)
    published(url, queue, [message(n, account) for account, n in names])
    command = [sys.executable, str(PROGRAM), address, url, queue]
    killed_at_every_point(command, POINTS, soak_times * LIVES, chance, most=6)
    assert depth(url, queue) == 0
    check_came_once(db.queue("payments"), names)


def test_competing_consumers_apply_messages_out_of_order_and_inturn_does_not(url: str) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "naive_consumer.py"
    spec = importlib.util.spec_from_file_location("naive_consumer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    results = module.measured(url, 500, 10)
    assert [result["applied"] for result in results.values()] == [500, 500]
    assert results["usual consumers"]["out of turn"] > 0
    assert results["inturn"]["out of turn"] == 0
