"""The log of a queue as Spark's source, without Spark: what is read, what is held, what is let go, what is refused."""

import base64
import json
import os
import pickle
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

import inturn
from copied_databases import Files, Tables
from inturn.core import limits
from inturn.core.address import is_address
from inturn.core.errors import InputError, InturnError, NoSuchQueue, StoreError, StoreMismatch
from inturn.core.queue.messages import Draft
from inturn.database import Database
from inturn.queue import Queue, draft
from inturn.spark.source import slices
from inturn.spark.source.options import QueueLocation
from inturn.spark.source.source import QueueSource

ALL = ReadAllAvailable()


@pytest.fixture(params=["sqlite", "postgres"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the database is."""
    return str(tmp_path / "shop.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def db(at: str) -> Iterator[Database]:
    with inturn.open(at, durable=False) as db:
        db.queue("other").send("not ours", group="g")
        yield db


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.queue("payments")


def source(address: str, **options: Any) -> QueueSource:
    return QueueSource({"path": f"{address}#payments", **{name: str(value) for name, value in options.items()}})


KINDS = {"bigint": LongType(), "int": IntegerType(), "string": StringType(), "timestamp": TimestampType()}


def struct(ddl: str) -> StructType:
    """What Spark makes of it; without Spark."""
    fields = [field.replace("`", "").split() for field in ddl.split(",")]
    return StructType([StructField(name, KINDS[kind]) for name, kind in fields])


def schema(address: str) -> StructType:
    return struct(source(address).schema())


def batch(address: str, **options: Any) -> Any:
    return source(address, **options).reader(schema(address))


def stream(address: str, **options: Any) -> Any:
    return source(address, **{"reader": "ledger", **options}).streamReader(schema(address))


def parts(reader: Any, *between: Any) -> list[list[dict[str, Any]]]:
    """What the tasks read, each a copy of the reader as Spark sends it."""
    contents = []
    for sent in [pickle.dumps((reader, part)) for part in reader.partitions(*between)]:
        copy, part = pickle.loads(sent)  # noqa: S301 - our own
        contents.append([row for chunk in copy.read(part) for row in chunk.to_pylist()])
    return contents


def rows(reader: Any, *between: Any) -> list[dict[str, Any]]:
    return [row for part in parts(reader, *between) for row in part]


def numbers(reader: Any, *between: Any) -> list[int]:
    return [row["sequence_number"] for row in rows(reader, *between)]


def fill(queue: Queue, count: int, groups: int = 7) -> list[int]:
    sent = queue.send_many([draft({"at": number}, group=f"g{number % groups}") for number in range(count)])
    return [message.sequence_number for message in sent]


def drain(queue: Queue) -> None:
    while received := queue.receive(10):
        queue.ack(received)


# -- what is read ----------------------------------------------------------------------------------------------


def test_a_batch_has_all_columns_of_a_message(queue: Queue, at: str) -> None:
    queue.send({"é": [1, None]}, group="g", revision=-7, dedup_id="ü-1", attributes={"trace": 5})
    queue.send("no\x00 JSON")
    queue.send(b"\xff\x00", group=7)
    queue.send("")
    (part,) = batch(at).partitions()
    (record_batch,) = batch(at).read(part)
    assert isinstance(record_batch, pa.RecordBatch)
    peeked = queue.peek(10)
    read_rows = record_batch.to_pylist()
    assert [row["sequence_number"] for row in read_rows] == [message.sequence_number for message in peeked]
    assert [row["sent_at"] for row in read_rows] == [message.sent_at for message in peeked]
    assert [row["body"] for row in read_rows] == [
        '{"é":[1,null]}',
        "no\x00 JSON",
        base64.b64encode(b"\xff\x00").decode(),
        "",
    ]
    assert [row["content"] for row in read_rows] == ["json", "text", "bytes", "text"]
    assert [row["group"] for row in read_rows] == ["g", None, "7", None]
    assert (read_rows[0]["revision"], read_rows[0]["dedup_id"], read_rows[0]["attributes"]) == (
        -7,
        "ü-1",
        '{"trace":5}',
    )
    assert {read_rows[1][name] for name in ("revision", "dedup_id", "attributes")} == {None}


TEXTS = st.text(st.sampled_from("\x00\x01,aé€😀"), max_size=3)
NAMES = st.text(st.sampled_from("\x01,aé€😀"), min_size=1, max_size=3)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@given(
    drafts=st.lists(
        st.builds(
            draft,
            TEXTS | st.binary(max_size=2) | st.integers(),
            group=st.none() | NAMES,
            revision=st.none() | st.integers(-limits.REVISION, limits.REVISION) | st.just(0),
            attributes=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=1),
        ),
        min_size=1,
        max_size=8,
    ),
    gaps=st.sets(st.integers(0, 7), max_size=3),
)
@example(drafts=[draft("\x01", group="\x01"), draft("", group=None)], gaps=set())
@example(drafts=[draft(number, group="g", revision=number) for number in range(4)], gaps=set())
@example(drafts=[draft({"at": number}, group="g") for number in range(4)], gaps={1})
@example(drafts=[draft("a", revision=1), draft("b"), draft(3, attributes={"a": ""})], gaps=set())
def test_arrow_batches_and_single_rows_have_the_same_values(
    request: pytest.FixtureRequest, kind: str, drafts: list[Draft], gaps: set[int]
) -> None:
    if kind == "sqlite":
        address = str(request.getfixturevalue("tmp_path_factory").mktemp("log") / "shop.db")
    else:
        address = request.getfixturevalue("postgres_url")  # the same for all examples
    with inturn.open(address, durable=False) as db:
        queue = db.queue("payments")
        queue.send_many(drafts)
        for gap in gaps:
            queue.ack([message for message in queue.receive(10) if message.sequence_number % 8 == gap])
        peeked = queue.peek(10)
        read_rows = rows(batch(address, partitions=1))
        queue.delete()
    assert [row["sequence_number"] for row in read_rows] == [message.sequence_number for message in peeked]
    assert [row["group"] for row in read_rows] == [message.group for message in peeked]
    assert [row["revision"] for row in read_rows] == [message.revision for message in peeked]
    assert [json.loads(row["attributes"] or "{}") for row in read_rows] == [message.attributes for message in peeked]
    assert [row["sent_at"] for row in read_rows] == [message.sent_at for message in peeked]
    for row, message in zip(read_rows, peeked, strict=True):
        text = base64.b64encode(message.body).decode() if isinstance(message.body, bytes) else message.body
        assert (json.loads(row["body"]) if row["content"] == "json" else row["body"]) == text


@pytest.mark.parametrize("partitions", [1, 2, 3, 50])
def test_partitions_contain_each_message_once_in_order(queue: Queue, at: str, partitions: int) -> None:
    sent = fill(queue, 40)
    read_parts = parts(batch(at, partitions=partitions))
    assert [row["sequence_number"] for part in read_parts for row in part] == sent
    assert len(read_parts) == min(partitions, 40)
    assert min(map(len, read_parts)) == 40 // min(partitions, 40)
    assert max(map(len, read_parts)) == -(-40 // partitions)


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_partition_by_group_puts_each_group_in_one_partition_in_order(queue: Queue, at: str, partitions: int) -> None:
    sent = fill(queue, 300, groups=40) + [queue.send("x").sequence_number for _ in range(20)]
    read_parts = parts(batch(at, partitionBy="group", partitions=partitions))
    assert len(read_parts) == partitions
    assert all(read_parts)
    for part in read_parts:
        assert [row["sequence_number"] for row in part] == sorted(row["sequence_number"] for row in part)
    assert sorted(row["sequence_number"] for part in read_parts for row in part) == sent
    where = [{row["group"] for row in part} - {None} for part in read_parts]
    assert sum(map(len, where)) == 40


def test_the_number_of_partitions_grows_with_the_number_of_messages(
    queue: Queue, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SOURCE_TASK_ROWS", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    counts = []
    for count in (0, 10, 1, 100):
        fill(queue, count)
        counts.append(len(parts(batch(at))))
    assert counts == [0, 1, 2, 3]


def test_arrow_batches_are_bounded_by_rows_and_by_bytes(queue: Queue, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SOURCE_ARROW_BYTES", 1000)
    monkeypatch.setattr(limits, "SOURCE_FETCH_ROWS", 2)
    monkeypatch.setattr(limits, "SOURCE_ARROW_ROWS", 20)
    queue.send_many([draft("x" * (600 if number < 10 else 1)) for number in range(100)])
    (part,) = batch(at, partitions=1).partitions()
    assert [chunk.num_rows for chunk in batch(at).read(part)] == [2] * 5 + [20] * 4 + [10]


def test_after_and_up_to_limit_a_batch_by_sequence_number(queue: Queue, at: str) -> None:
    sent = fill(queue, 10)
    assert numbers(batch(at, after=sent[2], upTo=sent[5])) == sent[3:6]
    assert numbers(batch(at, after=sent[8])) == sent[9:]
    assert numbers(batch(at, upTo=sent[0])) == sent[:1]
    assert numbers(batch(at, after=sent[9])) == numbers(batch(at, upTo=3)) == []
    assert numbers(batch(at)) == sent, "those of the queue beside it are not ours"


def test_since_and_until_limit_a_batch_by_time(queue: Queue, at: str) -> None:
    """Of a log that is kept: acknowledged messages are read too."""
    queue.configure(keep_for="1 day")
    sent = fill(queue, 10)
    drain(queue)
    before, after = "2020-01-01T00:00:00+00:00", "2999-01-01T00:00:00Z"
    assert numbers(batch(at, since=before)) == numbers(batch(at, until=after)) == sent
    assert numbers(batch(at, since=after)) == numbers(batch(at, until=before)) == []
    assert numbers(batch(at, since=before, after=sent[2], upTo=sent[4])) == sent[3:5]


def test_a_reader_returns_only_the_requested_columns(queue: Queue, at: str) -> None:
    fill(queue, 1)
    columns = struct("body string, sequence_number bigint")
    (row,) = rows(source(at).reader(columns))
    assert list(row) == ["body", "sequence_number"]
    for ddl in ("body string, amount bigint", "revision int"):
        with pytest.raises(InputError, match=r"no column (amount bigint|revision int); existing columns: seq"):
            source(at).reader(struct(ddl))


def test_a_batch_read_writes_nothing_and_needs_no_write_lock(db: Database, queue: Queue, at: str) -> None:
    sent = fill(queue, 5)
    with db.transaction():  # holds the only write lock
        assert numbers(batch(at)) == sent
    assert queue.info().readers == {}


# -- what is held, and what is let go --------------------------------------------------------------------------


def test_a_stream_keeps_acknowledged_messages_until_spark_has_committed(queue: Queue, at: str) -> None:
    reader = stream(at)
    start = reader.initialOffset()
    first = fill(queue, 6)
    drain(queue)
    end = reader.latestOffset(start, ALL)
    assert numbers(reader, start, end) == first
    assert queue.reader("ledger").position() <= start["sequence_number"], "Spark has not committed it"
    assert numbers(reader, start, end) == first, "so it can ask again"
    assert reader.latestOffset(end, ALL) == end, "there is no more"
    assert queue.reader("ledger").position() == end["sequence_number"] == first[-1]
    assert numbers(batch(at)) == []
    reader.stop()


def test_random_micro_batches_and_restarts_give_each_message_once(queue: Queue, at: str) -> None:
    chance = random.Random(5)
    reader, sent, received = stream(at), [], []
    offset = reader.initialOffset()
    while len(sent) < 300 or received != sent:
        if len(sent) < 300:
            sent += fill(queue, chance.randrange(30))
            queue.ack(queue.receive(chance.randint(1, 10)))
        end = reader.latestOffset(offset, ReadMaxRows(chance.randint(1, 25)))
        if chance.random() < 0.3:  # it dies, and the micro-batch that was planned is read by the next process
            reader.stop()
            reader = stream(at)
        read = numbers(reader, offset, end)
        assert len(read) <= 25
        if chance.random() < 0.3:
            assert numbers(reader, offset, end) == read
        received += read
        offset = end
    reader.stop()


def test_max_rows_per_batch_counts_rows_in_a_log_with_sequence_gaps(queue: Queue, at: str) -> None:
    sent = fill(queue, 20, groups=20)
    queue.ack(queue.receive(10))
    reader = stream(at, maxRowsPerBatch=4)
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    offsets = [start]
    while (end := reader.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(end)
    assert [offset["sequence_number"] for offset in offsets[1:]] == [sent[13], sent[17], sent[19]]
    reader.stop()


def test_available_now_ends_at_the_log_end_of_its_start(queue: Queue, at: str) -> None:
    sent = fill(queue, 5)
    reader = stream(at)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    fill(queue, 5)
    end = reader.latestOffset(start, ReadMaxRows(3))
    end = reader.latestOffset(end, ReadMaxRows(3))
    assert end["sequence_number"] == sent[-1]
    assert reader.latestOffset(end, ReadMaxRows(3)) == end
    assert reader.reportLatestOffset()["sequence_number"] == sent[-1] + 5
    reader.stop()


def test_a_new_checkpoint_starts_at_the_position_of_the_reader(queue: Queue, at: str) -> None:
    sent = fill(queue, 5)
    queue.reader("ledger").commit(sent[2])
    reader = stream(at)
    start = reader.initialOffset()
    assert numbers(reader, start, reader.latestOffset(start, ALL)) == sent[3:]
    reader.stop()


def test_purged_messages_give_no_micro_batch(queue: Queue, at: str) -> None:
    reader = stream(at)
    start = reader.initialOffset()
    fill(queue, 5)
    queue.purge()
    assert reader.latestOffset(start, ALL) == reader.latestOffset(start, ReadMaxRows(2)) == start
    assert reader.partitions(start, start) == []
    reader.stop()


def test_acknowledge_acks_the_messages_committed_by_spark(
    queue: Queue, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SOURCE_RELEASE_ROWS", 4)
    sent = fill(queue, 20, groups=20)
    reader = stream(at, acknowledge=True)
    start = reader.initialOffset()
    (held,) = queue.receive(1)
    end = reader.latestOffset(start, ReadMaxRows(15))
    assert queue.depth().messages == 20
    reader.latestOffset(end, ReadMaxRows(15))
    assert [message.sequence_number for message in queue.peek(20)] == [sent[0], *sent[15:]], (
        "somebody is at work on the first"
    )
    held.ack()
    assert queue.depth().messages == 5
    reader.stop()


# -- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["sqlite"], indirect=True)
def test_a_missing_database_file_or_queue_is_refused(queue: Queue, tmp_path: Path) -> None:
    options = {"path": f"{tmp_path}/none.db#payments"}
    with pytest.raises(StoreError, match=r"no database '.*none\.db'"):
        QueueSource(options).schema()
    with pytest.raises(NoSuchQueue, match="no queue 'paymets'; existing queues: other, payments"):
        QueueSource({"path": f"{tmp_path}/shop.db#paymets"}).schema()
    with pytest.raises(InputError, match=r'write load\("shop.db#payments"\)'):
        QueueSource({}).schema()
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "plain.db").touch()
    with pytest.raises(StoreError, match="has no queues; create one first"):
        QueueSource({"path": f"{tmp_path}/plain.db", "queue": "q"}).schema()


@pytest.mark.parametrize("at", ["postgres"], indirect=True)
def test_an_unreachable_server_or_missing_queue_is_refused_without_the_password(
    queue: Queue, at: str, postgres_schemas: Any
) -> None:
    nowhere = {"path": "postgresql://ann:secret@127.0.0.1:1/shop#payments"}
    with pytest.raises(StoreError, match=r"postgresql://ann@127.0.0.1:1/shop: connection") as caught:
        QueueSource(nowhere).schema()
    assert "secret" not in f"{caught.getrepr(style='long', chain=True)}".replace(nowhere["path"], "")
    with pytest.raises(NoSuchQueue, match="no queue 'paymets'; existing queues: other, payments"):
        QueueSource({"path": f"{at}#paymets"}).schema()
    with pytest.raises(InputError, match=r"^'postgresql://ann@h/shop' names no queue: write load\("):
        QueueSource({"path": "postgresql://ann:secret@h/shop"}).schema()
    with pytest.raises(StoreError, match="has no queues; create one first"):
        QueueSource({"path": postgres_schemas.new(), "queue": "q"}).schema()


@pytest.mark.parametrize("at", ["postgres"], indirect=True)
def test_a_partition_is_read_only_from_the_queue_that_the_driver_opened(db: Database, queue: Queue, at: str) -> None:
    """A server that the same address leads to from another machine may be another one."""
    fill(queue, 3)
    (part,) = batch(at).partitions()
    assert "secret" not in repr(QueueLocation("postgresql://ann:secret@h/shop", "q"))
    queue.delete()
    fill(db.queue("payments"), 3)
    with pytest.raises(StoreError, match=r"is not the queue that Spark's driver opened"):
        next(batch(at).read(part))


@pytest.mark.parametrize("at", ["postgres"], indirect=True)
def test_a_stream_continues_after_its_driver_connections_are_terminated(
    queue: Queue, at: str, postgres_server: str
) -> None:
    app_name = at.rpartition("%3D")[2]
    reader = stream(f"{at}&application_name={app_name}")
    start = reader.initialOffset()
    for _ in range(2):
        sent = fill(queue, 5)
        with psycopg.connect(postgres_server) as connection:
            ended = connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", (app_name,)
            ).fetchall()
        assert len(ended) >= 2, "that which reads, and that which moves the reader"
        end = reader.latestOffset(start, ALL)
        assert numbers(reader, start, end) == sent
        start = end
    reader.stop()


@pytest.mark.parametrize("at", ["postgres"], indirect=True)
def test_a_batch_needs_only_the_select_privilege(db: Database, queue: Queue, at: str) -> None:
    sent = fill(queue, 3)
    with db.transaction() as tx:
        tx.execute("create role looker login")
        (schema,) = tx.execute("select current_schema()").fetchone()
        tx.execute(f"grant usage on schema {schema} to looker")
        tx.execute(f"grant select on all tables in schema {schema} to looker")
    try:
        assert numbers(batch(at.replace("//postgres:@", "//looker@"))) == sent
    finally:
        with db.transaction() as tx:
            tx.execute("drop owned by looker")
            tx.execute("drop role looker")


@pytest.mark.parametrize("at", ["sqlite"], indirect=True)
def test_an_sqlite_partition_on_another_machine_is_refused(
    queue: Queue, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(queue, 3)
    (part,) = batch(at).partitions()
    monkeypatch.setattr(slices, "machine", lambda: "elsewhere")
    with pytest.raises(StoreError, match="an SQLite file can be read on its own machine only"):
        next(batch(at).read(part))


@pytest.mark.parametrize("at", ["sqlite"], indirect=True)
def test_a_replaced_or_deleted_sqlite_file_is_refused(db: Database, queue: Queue, at: str, tmp_path: Path) -> None:
    fill(queue, 3)
    reader = batch(at)
    (part,) = reader.partitions()
    with sqlite3.connect(tmp_path / "shop.db") as old, sqlite3.connect(tmp_path / "copy.db") as copy:
        old.backup(copy)
    (tmp_path / "copy.db").replace(tmp_path / "shop.db")
    with pytest.raises(StoreError, match="is no longer the file that Spark's driver opened"):
        next(reader.read(part))
    (tmp_path / "shop.db").unlink()
    with pytest.raises(StoreError, match="an SQLite file can be read on its own machine only"):
        next(reader.read(part))


def test_a_stream_of_a_recreated_queue_is_refused(at: str) -> None:
    now = 1000
    with inturn.open(at, clock=lambda: now) as db:
        fill(db.queue("payments"), 5)
        reader = stream(at)
        end = reader.latestOffset(reader.initialOffset(), ALL)
        db.queue("payments").delete()
        now = 2000
        fill(db.queue("payments"), 9)
        with pytest.raises(StoreMismatch, match="created again, or restored from an older copy"):
            reader.latestOffset(end, ALL)
        reader.stop()


def test_a_stream_of_a_queue_restored_from_an_older_copy_is_refused(queue: Queue, at: str) -> None:
    fill(queue, 5)
    reader = stream(at)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    end["sequence_number"] += 1
    with pytest.raises(StoreMismatch, match="restored from an older copy"):
        reader.latestOffset(end, ALL)
    reader.stop()


def test_a_stream_of_a_restored_queue_used_beyond_the_checkpoint_is_refused(
    request: pytest.FixtureRequest, at: str, tmp_path: Path
) -> None:
    copies: Files | Tables = Files(tmp_path)
    if is_address(at):
        copies = Tables(at, request.getfixturevalue("postgres_schemas")._connection)
    with inturn.open(at) as db:
        fill(db.queue("payments"), 5)
        reader = stream(at)
        start = reader.latestOffset(reader.initialOffset(), ALL)
        reader.stop()
    copies.copy("old")
    with inturn.open(at) as db:
        fill(db.queue("payments"), 5)
        end = reader.latestOffset(start, ALL)
        reader.stop()
    copies.put_back("old")
    with inturn.open(at) as db:
        fill(db.queue("payments"), 20)
        # Spark first repeats the last micro-batch, and then asks for the next one.
        for ask in (lambda: reader.partitions(start, end), lambda: reader.latestOffset(end, ALL)):
            with pytest.raises(StoreMismatch, match="restored from an older copy and used since"):
                ask()
        assert len(numbers(reader, start, reader.latestOffset(start, ALL))) == 20  # what both have in common
        reader.stop()


@pytest.mark.parametrize("lost", ["deleted", "moved"])
def test_a_stream_whose_reader_released_needed_messages_is_refused(queue: Queue, at: str, lost: str) -> None:
    sent = fill(queue, 5)
    reader = stream(at)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2))
    queue.reader("ledger").delete() if lost == "deleted" else queue.reader("ledger").commit(sent[-1])
    for ask in (lambda: reader.latestOffset(end, ALL), lambda: reader.partitions(start, end)):
        with pytest.raises(StoreMismatch, match=r"no longer exists|was moved to .* by another process"):
            ask()
    reader.stop()
    reader = stream(at, failOnDataLoss=False)
    assert numbers(reader, end, reader.latestOffset(end, ALL)) == sent[2:]
    reader.stop()


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (stream, {"reader": ""}, "no reader for .*set one with"),
        (stream, {"reader": "a\n"}, "invalid name"),
        (stream, {"maxRowPerBatch": 5}, "did you mean 'maxRowsPerBatch'"),
        (stream, {"maxRowsPerBatch": 0}, "maxRowsPerBatch is '0'; expected a whole number of at least 1"),
        (stream, {"acknowledge": "yes"}, "acknowledge is 'yes'; expected 'true' or 'false'"),
        (stream, {"after": 5}, r"'after' is not an option of spark.readStream"),
        (batch, {"reader": "x"}, r"'reader' is not an option of spark.read.format"),
        (batch, {"partitionBy": "hash"}, "partitionBy is 'hash'; expected 'range' or 'group'"),
        (batch, {"upTo": "-1"}, "upTo is '-1'"),
        (batch, {"since": "yesterday"}, "since is 'yesterday'; expected a time with its zone"),
        (batch, {"until": "2026-01-01T00:00:00"}, "until is '2026-01-01T00:00:00'; expected a time with its zone"),
    ],
)
def test_an_invalid_source_option_is_refused(queue: Queue, at: str, kind: Any, options: Any, says: str) -> None:
    with pytest.raises(InturnError, match=says):
        kind(at, **options)
