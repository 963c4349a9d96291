"""Records of any length, depth and content are messages or rejected rows, and never an error that stalls a source."""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.scripted import Log, Scripted
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.ingest import (
    DebeziumMapping,
    Ingest,
    IngestCounts,
    KafkaSource,
    MappingError,
    MessageMapping,
    SourceControl,
    SourceRecord,
)
from inturn.ingest import limits as source_limits
from kafka_started import produce, topic
from waiting import DEADLINE_S

MAPPINGS = [
    MessageMapping(group="body.a", revision="body.r", id="body.i", body="body.b"),
    MessageMapping(group="key.a", revision="headers.r", id="headers.i.a"),
    MessageMapping(group="body.a", revision="body.r", ranks={"x": 1}),
    MessageMapping(group="key", format="text"),
    MessageMapping(group="key", revision="time", id="position", format="bytes"),
    DebeziumMapping(),
    DebeziumMapping(group="a", revision="position", id="headers.i"),
]
LONG = b'"' + b"x" * 10_000_000 + b'"'
DEEP = b"[" * 100_000 + b"]" * 100_000


def mapped(mapping: MessageMapping, body: bytes | None, key: bytes | None = None, **headers: bytes) -> None:
    texts: list[str | None] = []
    try:
        draft = mapping.compiled()(SourceRecord("0", 1, body, key, headers, 7))
        texts = [] if draft is None else [draft.group, draft.dedup_id]
    except MappingError as error:
        texts = [str(error)]
    for text in texts:
        assert text is None or "\0" not in text
        assert len((text or "").encode()) <= 4 * source_limits.REASON_LENGTH


@pytest.mark.parametrize("mapping", MAPPINGS, ids=range(len(MAPPINGS)))
def test_a_record_of_any_nesting_depth_is_mapped_or_rejected_without_an_error(mapping: MessageMapping) -> None:
    """The depth at which a value can just be decoded, but not be shown, depends on the caller: all are tried."""
    for depth in (*range(850, 1_000), 100_000):
        for value in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
            body = b'{"op":"c","after":{"a":%b},"source":{"lsn":1},"a":%b,"r":1,"i":1,"b":%b}' % (value, value, value)
            mapped(mapping, body, b'{"a":%b}' % value, r=b"1", i=b'{"a":%b}' % value)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("arib"), inner, max_size=4),
    max_leaves=8,
)
BYTES = st.binary(max_size=40) | JSONS.map(lambda value: __import__("json").dumps(value).encode())


@given(st.sampled_from(MAPPINGS), st.none() | BYTES, st.none() | BYTES, BYTES, BYTES)
def test_a_record_of_any_bytes_is_mapped_or_rejected_without_an_error(
    mapping: MessageMapping, body: Any, key: Any, revision: bytes, id_: bytes
) -> None:
    mapped(mapping, body, key, r=revision, i=id_)


def test_long_deep_and_malformed_records_are_rejected_and_block_nothing(db: Database) -> None:
    odd = [
        b"\0",
        b'"\\u0000"',
        b'{"a": "\\u0000"}',
        b'{"a": "\\ud800"}',
        b"\xff\0",
        b'{"a": [%b]}' % (b"1," * 99_999 + b"1"),
    ]
    log = Log(one=[b'{"a": "first"}', LONG, DEEP, *odd, b'{"a": "last"}'])
    by_a = MessageMapping(group="body.a")
    assert Ingest(Scripted(log), db.queue("q"), by_a, name="s").run(until="caught up") == (2, 2 + len(odd), 0, 0)
    rejected = list(SourceControl(db, "s").rejected())
    assert [record.body for record in rejected] == [LONG, DEEP, *odd]
    assert rejected[0].reason == "the body has 10,000,002 bytes; at most 1,048,576 are allowed"
    assert rejected[1].reason.startswith("the body is not JSON: maximum recursion depth exceeded")
    assert len(rejected[-1].reason) <= source_limits.REASON_LENGTH


def caught_up(ingest: Ingest) -> IngestCounts:
    """Run to the end of the source; a source that stalls is stopped, so that its test fails."""
    stop = threading.Timer(DEADLINE_S, ingest.stop_soon)
    stop.start()
    try:
        return ingest.run(until="caught up")
    finally:
        stop.cancel()


class Odd(Scripted):
    """A source whose records have other keys and headers."""

    parts: Mapping[str, Any] = {}

    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        return [record._replace(**self.parts) for record in super().poll(limit, timeout_s)]


@pytest.mark.parametrize(
    ("mapping", "headers", "reason"),
    [
        (MessageMapping(group="body.none"), {"t": "caf\udce9", "caf\udce9": "x"}, "the record has no group"),
        (MessageMapping(group="body.none"), {"a\0b": b"x\0y", "c": "x\0y"}, "the record has no group"),
        (MessageMapping(group="headers.t"), {"t": "caf\udce9"}, "an unpaired surrogate"),
        (MessageMapping(attributes={"x": "headers.t"}), {"t": "caf\udce9"}, "an unpaired surrogate"),
        (MessageMapping(attributes={"x": "headers.t.a"}), {"t": '{"a": "\udce9"}'}, "an unpaired surrogate"),
        (MessageMapping(body="headers.t"), {"t": "caf\udce9"}, "an unpaired surrogate"),
        (MessageMapping(body="headers"), {"t": "caf\udce9"}, "an unpaired surrogate"),
        (MessageMapping(body="headers"), {"caf\udce9": "x"}, "surrogate"),
    ],
)
def test_a_header_that_is_not_utf8_rejects_the_records_that_map_it_and_is_stored(
    db: Database, mapping: MessageMapping, headers: dict[str, bytes | str], reason: str
) -> None:
    source = Odd(Log(p=[b"{}"]))
    source.parts = {"headers": headers}
    assert caught_up(Ingest(source, db.queue("q"), mapping, name="s")).rejected == 1
    control = SourceControl(db, "s")
    (rejected,) = control.rejected()
    assert reason in rejected.reason
    assert control.resend(Ingest(source, db.queue("q"), mapping, name="s").intake).stayed == 1
    assert reason in next(control.rejected()).reason
    reads_none = Ingest(source, db.queue("q"), MessageMapping(), name="s").intake
    assert control.resend(reads_none).sent == 1


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"key": "text"}, "the key is 'text'; expected bytes or None"),
        ({"body": "text"}, "the body is 'text'; expected bytes or None"),
        ({"position": "caf\udce9"}, "position 'caf"),
        ({"position": object()}, "position <object"),
    ],
)
def test_a_record_part_of_a_wrong_type_ends_the_source_with_an_error_naming_it(
    db: Database, parts: dict[str, Any], text: str
) -> None:
    for mapping in (MessageMapping(group="body.none"), MessageMapping(group="partition")):
        source = Odd(Log(p=[b"{}"]))
        source.parts = parts
        with pytest.raises(InputError, match=text):
            caught_up(Ingest(source, db.queue("q"), mapping, name="s"))
        assert SourceControl(db, "s").partitions()[0].position is None


@pytest.mark.parametrize("name", ["p\0q", "caf\udce9"])
def test_a_partition_name_that_cannot_be_stored_ends_the_source(db: Database, name: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(name))):
        caught_up(Ingest(Scripted(Log(**{name: [b"{}"]})), db.queue("q"), MessageMapping(), name="s"))


def test_a_text_body_may_contain_any_character(db: Database) -> None:
    texts = [b"a\0b", "\U0010ffff".encode(), b""]
    as_text = MessageMapping(group="key", format="text")
    Ingest(Scripted(Log(one=list(texts))), db.queue("q"), as_text, name="s").run(until="caught up")
    assert [str(message.body).encode() for message in db.queue("q").peek()] == texts


@pytest.mark.thorough
def test_long_and_deep_kafka_records_are_rejected_and_block_nothing(db: Database, servers: str) -> None:
    name = topic(servers, f"t{time.time_ns()}", 1)
    produce(servers, name, [b'{"n": 1}', LONG, DEEP, b'{"n": 2}'], key=b"a")
    ingest = Ingest(KafkaSource(servers, name), db.queue("q"), MessageMapping(), name="bank")
    assert ingest.run(until="caught up") == (2, 2, 0, 0)
    assert [record.body for record in SourceControl(db, "bank").rejected()] == [LONG, DEEP]
