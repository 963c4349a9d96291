"""The records of Kafka, as Spark's own connector reads them, as the log of a queue.

The rows are those that :class:`inturn.ingest.Ingest` would have sent to a queue with the same mapping. Spark keeps the
offsets in its checkpoint, and a step of the store is committed once for each micro-batch.
"""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from inturn.core.arguments import check_type
from inturn.core.errors import InputError
from inturn.core.queue.messages import Content
from inturn.ingest.mapping import MappingError, MessageMapping, with_decoder
from inturn.ingest.source import Decoder, SourceRecord
from inturn.spark.columns.dataframe import check_dataframe, quoted
from inturn.spark.columns.names import ARRIVED, CORRUPT
from inturn.spark.source.log import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDED: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
_ROWS: Final = COLUMNS | {"topic": "string", "partition": "int", ARRIVED: "bigint", CORRUPT: "string"}
_OFFSET_BITS: Final = 48
_PARTITION_BITS: Final = 63 - _OFFSET_BITS
_DDL: Final = ", ".join(f"{quoted(name)} {kind}" for name, kind in _ROWS.items())
_KINDS: Final = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_SCHEMA: Final = pa.schema([(name, _KINDS[kind]) for name, kind in _ROWS.items()])


def from_kafka(df: "DataFrame", mapping: MessageMapping, *, decode: Decoder | None = None) -> "DataFrame":
    """Return the records of Kafka as the log of a queue, for :func:`inturn.spark.messages`.

    The columns are those of ``format("inturn")``, with ``topic`` and ``partition``. ``sequence_number`` is the record's
    offset and ``sent_at`` its time. A record that the mapping refuses is a row without a group, which the pipeline
    rejects as invalid; its reason, place, key and value are in the column ``__inturn_corrupt_record``, as JSON. Records
    that the mapping skips, such as tombstones, are left out.

    The arrival of a record, in ``__inturn_arrived``, is ``partition << 48 | offset``, whenever it is read. A step takes
    the records of a group by partition, and those of a partition by offset; records of two topics at equal places have
    a fixed order. If a group is in several partitions, as after partitions were added, this need not be the order in
    which its records were sent: ``Arrival`` may apply them in another order, and ``Monotone`` by the offset may drop
    them as stale. Order such a group by a revision or a time in the message.

    Args:
        df: a DataFrame of ``format("kafka")``, streaming or not; with ``includeHeaders`` if the mapping reads headers.
        mapping: how a record becomes a message, such as :class:`inturn.ingest.DebeziumMapping`.
        decode: the step before the mapping, such as :class:`inturn.ingest.SchemaRegistry`; it is pickled for Spark's
            workers. A record that it cannot decode is rejected like one that the mapping refuses. If the registry is
            unavailable, the task fails; Spark retries it, and nothing of the step is committed before it succeeds.

    Raises:
        InputError: if the DataFrame lacks columns of Kafka's connector. A task raises it for a partition of 2**15 or
            more, or an offset of 2**48 or more.
    """
    check_dataframe(df)
    check_type("mapping", mapping, MessageMapping, "a mapping of records, such as DebeziumMapping(…)")
    check_type("decode", decode, Decoder | None, "a decoder of records, such as SchemaRegistry(…)")
    absent = [name for name in _NEEDED if name not in df.columns]
    if absent:
        msg = f"the DataFrame has no column {absent[0]!r}; from_kafka() expects a DataFrame of spark.read(Stream)"
        raise InputError(f"{msg}.format('kafka')")
    if mapping.needs_headers and "headers" not in df.columns:
        raise InputError("the mapping reads headers: read Kafka with option('includeHeaders', 'true')")
    reads_headers = mapping.needs_headers or (decode is not None and "headers" in df.columns)  # of a schema's id
    columns = [*_NEEDED, "headers"] if reads_headers else _NEEDED
    return df.select(*columns).mapInArrow(_MappedRecords(mapping, decode), _DDL)


@dataclass(frozen=True)
class _MappedRecords:
    """A ``mapInArrow`` function from records of Kafka to messages."""

    mapping: MessageMapping
    decode: Decoder | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        draft_of = with_decoder(self.decode, self.mapping.compiled())
        for batch in batches:
            rows = []
            for record in _records(batch):
                try:
                    draft = draft_of(record.source)
                except MappingError as error:
                    rows.append(_refused(record, str(error)))
                    continue
                if draft is not None:
                    text = base64.b64encode(draft.body).decode() if isinstance(draft.body, bytes) else draft.body
                    content = draft.content.name.lower()
                    rows.append(_row(record, draft.group, draft.revision, draft.dedup_id, text, content, None))
            columns = zip(*rows, strict=True) if rows else ([] for _ in _ROWS)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


@dataclass(slots=True)
class _KafkaRecord:
    """A record, with the columns of its row that are not part of the message."""

    source: SourceRecord
    topic: str
    partition: int
    offset: int
    time_us: int | None


def _records(batch: pa.RecordBatch) -> Iterator[_KafkaRecord]:
    times = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "value")]
    headers = batch.column("headers").to_pylist() if "headers" in batch.schema.names else [None] * len(batch)
    for topic, partition, offset, key, value, time_us, pairs in zip(*columns, times, headers, strict=True):
        # As in inturn.ingest: the position is the offset after the record, and headers without a value are dropped.
        header_values = {pair["key"]: pair["value"] for pair in pairs or () if pair["value"] is not None}
        time_ms = None if time_us is None else time_us // 1000
        record = SourceRecord(str(partition), offset + 1, value, key, header_values, time_ms)
        yield _KafkaRecord(record, topic, partition, offset, time_us)


def _refused(record: _KafkaRecord, reason: str) -> tuple[Any, ...]:
    document: dict[str, Any] = {
        "error": reason,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }
    for name, data in (("key", record.source.key), ("value", record.source.body)):
        try:
            document[name] = data if data is None or isinstance(data, str) else data.decode()
        except UnicodeDecodeError:
            document[f"{name}_base64"] = data
    body = base64.b64encode(record.source.body).decode() if record.source.body is not None else None
    text = msgspec.json.encode(document).decode()
    return _row(record, None, None, None, body, Content.BYTES.name.lower(), text)


def _row(
    record: _KafkaRecord,
    group: str | None,
    revision: int | None,
    dedup_id: str | None,
    body: str | None,
    content: str,
    corrupt: str | None,
) -> tuple[Any, ...]:
    place = (record.topic, record.partition, _arrival(record))
    return (record.offset, group, revision, dedup_id, body, content, None, record.time_us, *place, corrupt)


def _arrival(record: _KafkaRecord) -> int:
    """Return a number that orders records by partition and offset."""
    for name, value, bits in (
        ("partition", record.partition, _PARTITION_BITS),
        ("offset", record.offset, _OFFSET_BITS),
    ):
        if not 0 <= value < 1 << bits:
            msg = f"the {name} of a record of topic {record.topic!r} is {value}; expected 0 to {(1 << bits) - 1}"
            raise InputError(f"{msg}; copy the records to a topic within these limits")
    return record.partition << _OFFSET_BITS | record.offset
