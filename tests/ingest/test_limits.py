"""Records of any length, depth and content are messages or rejected rows, and never an error that stalls a source."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.scripted import Log, Scripted
from inturn.database import Database
from inturn.ingest import DebeziumMapping, Ingest, KafkaSource, MessageMapping, SourceControl, SourceRecord, Unmappable
from inturn.ingest import limits as source_limits
from kafka_started import produce, topic

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
    except Unmappable as error:
        texts = [str(error)]
    for text in texts:
        assert text is None or "\0" not in text
        assert len((text or "").encode()) <= 4 * source_limits.REASON_LENGTH


@pytest.mark.parametrize("mapping", MAPPINGS, ids=range(len(MAPPINGS)))
def test_no_depth_is_an_error(mapping: MessageMapping) -> None:
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
def test_no_bytes_are_an_error(mapping: MessageMapping, body: Any, key: Any, revision: bytes, id_: bytes) -> None:
    mapped(mapping, body, key, r=revision, i=id_)


def test_a_long_a_deep_and_an_odd_record_stall_nothing(db: Database) -> None:
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
    assert [each.body for each in rejected] == [LONG, DEEP, *odd]
    assert rejected[0].reason == "the body has 10,000,002 bytes; 1,048,576 fit"
    assert rejected[1].reason.startswith("the body is not JSON: maximum recursion depth exceeded")
    assert len(rejected[-1].reason) <= source_limits.REASON_LENGTH


def test_a_text_may_have_any_character(db: Database) -> None:
    texts = [b"a\0b", "\U0010ffff".encode(), b""]
    as_text = MessageMapping(group="key", format="text")
    Ingest(Scripted(Log(one=list(texts))), db.queue("q"), as_text, name="s").run(until="caught up")
    assert [str(each.body).encode() for each in db.queue("q").peek()] == texts


@pytest.mark.thorough
def test_a_long_and_a_deep_record_of_a_broker_stall_nothing(db: Database, servers: str) -> None:
    name = topic(servers, f"t{time.time_ns()}", 1)
    produce(servers, name, [b'{"n": 1}', LONG, DEEP, b'{"n": 2}'], key=b"a")
    ingest = Ingest(KafkaSource(servers, name), db.queue("q"), MessageMapping(), name="bank")
    assert ingest.run(until="caught up") == (2, 2, 0, 0)
    assert [each.body for each in SourceControl(db, "bank").rejected()] == [LONG, DEEP]
