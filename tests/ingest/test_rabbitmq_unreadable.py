"""Messages of RabbitMQ that the client library cannot decode cost neither themselves nor those beside them."""

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

import pytest

aio_pika = pytest.importorskip("aio_pika")

from aiormq.exceptions import AMQPError  # noqa: E402 - needs aio-pika

from ingest.rabbitmq_clients import declared, depth, in_channel  # noqa: E402
from ingest.raw_messages import (  # noqa: E402
    RawMessage,
    RawText,
    instant,
    number,
    published_raw,
    short,
    table,
    text,
)
from inturn.database import Database  # noqa: E402
from inturn.ingest import Ingest, MessageMapping, RabbitSource, SourceControl, UnreadableHeader  # noqa: E402
from inturn.ingest import limits as source_limits  # noqa: E402
from rabbitmq_started import missing, rabbitmq  # noqa: E402
from waiting import until  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

MAPPING = MessageMapping(group="headers.account", revision="headers.n", id="headers.message-id")
MICROSECONDS, NANOSECONDS, LARGEST = 1_700_000_000_000_000, 1_700_000_000_000_000_000, 2**64 - 1
DEEP = 20_000
LATIN = b"caf\xe9"
NOT_UTF8 = "'utf-8' codec can't decode byte 0xe9 in position 3"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as url:
        yield url


@pytest.fixture(params=["classic", "quorum"])
def queue(request: pytest.FixtureRequest, url: str) -> str:
    name = request.node.name.replace("[", ".").rstrip("]")
    more = {"x-delivery-limit": 3} if request.param == "quorum" else {}
    declared(url, name, request.param, **more)
    return name


def message(n: int, *more: tuple[bytes, bytes], **properties: bytes) -> RawMessage:
    properties.setdefault("message_id", short(b"m%d" % n))
    properties.setdefault("headers", table((b"account", text("a")), (b"n", number(n)), *more))
    return RawMessage(b"%d" % n, delivery_mode=b"\2", **properties)


def nested(depth: int) -> bytes:
    """A field's value: lists within lists."""
    data = b""
    for _ in range(depth):
        data = b"A" + struct.pack(">I", len(data)) + data
    return data


def taken(
    db: Database, url: str, queue: str, count: int, mapping: MessageMapping = MAPPING
) -> tuple[list[int | None], list[Any]]:
    """Ingest the messages of a queue; return the revisions of those that were sent, and what was rejected."""
    with Ingest(RabbitSource(url, queue), db.queue("payments"), mapping, name=queue) as host:
        until(lambda: host.counts.received + host.counts.rejected == count, f"{count} messages")
    assert depth(url, queue) == 0
    return [queued.revision for queued in db.queue("payments").peek(100)], list(SourceControl(db, queue).rejected())


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_MAX_S", 0.2)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(
            {"message_id": short(LATIN)}, f"the header 'message-id' cannot be read: {NOT_UTF8}", id="message-id"
        ),
        pytest.param(
            {"headers": table((b"account", text("a")), (b"n", b"T" + instant(MICROSECONDS)))},
            "the header 'n' cannot be read: year",
            id="header-us",
        ),
        pytest.param(
            {"headers": table((b"account", text("a")), (b"n", b"T" + instant(NANOSECONDS)))},
            "the header 'n' cannot be read: year",
            id="header-ns",
        ),
        pytest.param(
            {"headers": table((b"account", text("a")), (b"n", b"T" + instant(LARGEST)))},
            "the header 'n' cannot be read: ",
            id="header-largest",
        ),
        pytest.param(
            {"headers": table((b"account", text("a")), (b"n", b"F" + table((b"at", b"T" + instant(MICROSECONDS)))))},
            "the header 'n' cannot be read: year",
            id="header-within",
        ),
        pytest.param(
            {"headers": table((b"account", nested(DEEP)), (b"n", number(16)))},
            "the header 'account' cannot be read: ",
            id="header-deep",
        ),
        pytest.param(
            {"headers": table((b"account" + LATIN, text("a")), (b"n", number(16)))},
            "the record has no group",
            id="header-name",
        ),
    ],
)
def test_a_message_with_an_unreadable_mapped_header_is_the_only_rejected_message(
    db: Database, url: str, queue: str, bad: dict[str, bytes], reason: str
) -> None:
    published_raw(url, queue, [message(n, **(bad if n == 16 else {})) for n in range(1, 32)])
    revisions, rejected = taken(db, url, queue, 31)
    assert revisions == [n for n in range(1, 32) if n != 16]
    assert [(record.reason.startswith(reason), record.body) for record in rejected] == [(True, b"16")], rejected


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"timestamp": instant(MICROSECONDS)}, id="timestamp-us"),
        pytest.param({"timestamp": instant(NANOSECONDS)}, id="timestamp-ns"),
        pytest.param({"timestamp": instant(LARGEST)}, id="timestamp-largest"),
        pytest.param({"message_type": short(LATIN)}, id="type"),
        pytest.param({"correlation_id": short(LATIN), "app_id": short(LATIN)}, id="two"),
        pytest.param({"more": (b"caf\xe9", text("x"))}, id="header-name"),
        pytest.param({"more": (b"at", b"T" + instant(MICROSECONDS))}, id="header"),
        pytest.param({"more": (b"deep", nested(DEEP))}, id="header-deep"),
    ],
)
def test_an_unreadable_unmapped_property_rejects_no_message(
    db: Database, url: str, queue: str, bad: dict[str, Any]
) -> None:
    properties = {name: value for name, value in bad.items() if name != "more"}
    more = [bad["more"]] if "more" in bad else []
    published_raw(url, queue, [message(n, *more, **properties) if n == 16 else message(n) for n in range(1, 32)])
    assert taken(db, url, queue, 31) == (list(range(1, 32)), [])


def test_a_time_in_microseconds_is_rejected_by_a_mapping_of_the_time(db: Database, url: str, queue: str) -> None:
    mapping = MessageMapping(group="headers.account", revision="time", id="headers.message-id")
    times = {1: 1_700_000_000, 2: MICROSECONDS, 3: 1_700_000_001}
    published_raw(url, queue, [message(n, timestamp=instant(seconds)) for n, seconds in times.items()])
    revisions, rejected = taken(db, url, queue, 3, mapping)
    assert revisions == [1_700_000_000_000, 1_700_000_001_000]
    assert [record.body for record in rejected] == [b"2"]
    assert rejected[0].reason.startswith("the header 'timestamp' cannot be read: year")


def test_a_routing_key_that_is_not_utf8_is_rejected_by_a_mapping_of_the_key(db: Database, url: str, queue: str) -> None:
    async def bind(channel: Any) -> None:
        exchange = await channel.declare_exchange(f"{queue}-all", "fanout")
        await (await channel.get_queue(queue)).bind(exchange)

    in_channel(url, bind)
    for n, key in enumerate(("a", RawText(LATIN), "a"), 1):
        published_raw(url, key, [message(n)], exchange=f"{queue}-all")
    revisions, rejected = taken(db, url, queue, 3, MessageMapping(group="key", revision="headers.n"))
    assert revisions == [1, 3]
    assert [(record.reason, record.key) for record in rejected] == [
        (f"the key is not UTF-8: {NOT_UTF8}: unexpected end of data", LATIN)
    ]


def test_the_bytes_of_unreadable_headers_are_kept(url: str, queue: str) -> None:
    names = table((b"n", number(1)), (LATIN, text("x")), (b"at", b"T" + instant(NANOSECONDS)))
    published_raw(url, queue, [message(1, headers=names, message_type=short(LATIN))])
    source = RabbitSource(url, queue)
    source.open(queue, None)
    (record,) = source.poll(1, source_limits.BROKER_CALL_S)
    source.shutdown()
    unreadable = {name: bytes(value) for name, value in record.headers.items() if isinstance(value, UnreadableHeader)}
    assert unreadable == {"type": LATIN, "caf\\xe9": LATIN, "at": instant(NANOSECONDS)}
    assert record.headers["n"] == "1"


def test_the_lenient_decoder_does_not_affect_other_connections_of_the_process(url: str, queue: str) -> None:
    published_raw(url, queue, [message(1, message_id=short(LATIN))])
    source = RabbitSource(url, queue)
    source.open(queue, None)
    assert source.poll(1, source_limits.BROKER_CALL_S)
    source.shutdown()

    async def get(channel: Any) -> None:
        await (await channel.get_queue(queue)).get(timeout=source_limits.BROKER_CALL_S)

    with pytest.raises((AMQPError, asyncio.CancelledError)):
        in_channel(url, get)
