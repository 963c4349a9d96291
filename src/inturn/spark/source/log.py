"""The log of a queue as Arrow batches: from columns packed by SQLite in a local file, or from the rows of a server."""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inturn.core.errors import SetupError
from inturn.core.queue.messages import Content
from inturn.spark.source.options import QueueLocation
from inturn.store.sqlite.log import PackedMessages, PackedTexts, SqliteLog

if TYPE_CHECKING:
    from inturn.store.postgres.log import PostgresLog

SourceLog: TypeAlias = "SqliteLog | PostgresLog"

COLUMNS: Final = {
    "sequence_number": "bigint",
    "group": "string",
    "revision": "bigint",
    "dedup_id": "string",
    "body": "string",
    "content": "string",
    "attributes": "string",
    "sent_at": "timestamp",
}
"""The columns of a message, with Spark's names and types."""

_KINDS: Final = {"bigint": pa.int64(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
_SCHEMA: Final = pa.schema([(name, _KINDS[kind]) for name, kind in COLUMNS.items()])
_CONTENTS: Final = [content.name.lower() for content in Content]
_SIZES: Final = np.array([len(name) for name in _CONTENTS])
_NULL: Final = 1
_NO_REVISION: Final = 4

Ints = npt.NDArray[np.int64]


def open_log(place: QueueLocation) -> SourceLog:
    """Return the log of a queue.

    Raises:
        StoreError: if the database does not exist, has no queues or cannot be read.
        StoreMismatch: if another version of inturn wrote it.
        SetupError: if psycopg is not installed here, for PostgreSQL.
    """
    if not place.is_on_server:
        return SqliteLog(*place)
    try:
        from inturn.store.postgres.log import PostgresLog
    except ImportError as error:
        need = "PostgreSQL needs psycopg on each machine that runs Spark"
        msg = f"{need}; install it with: pip install 'inturn[postgres]' ({error})"
        raise SetupError(msg) from error
    return PostgresLog(*place)


def read_batch(log: SourceLog, after: int, up_to: int) -> pa.RecordBatch:
    """Return messages after a sequence number and up to another, as many as fit; at least one must exist."""
    packed = log.packed(after, up_to) if isinstance(log, SqliteLog) else None
    batch = None if packed is None else _batch_of_packed(packed)
    return _batch_of_rows(log.rows(after, up_to)) if batch is None else batch


def _batch_of_packed(packed: PackedMessages) -> pa.RecordBatch | None:
    """Return None if a text contains a character that is used as separator, or as null."""
    count = packed.rows
    numbers = _numbers(packed.sequence_number)
    texts = [_texts(column, count) for column in (packed.group, packed.dedup_id, packed.body, packed.attributes)]
    if any(column is None for column in texts) or (numbers[1:] <= numbers[:-1]).any():
        return None
    group, dedup_id, body, attributes = texts
    digits = np.frombuffer(packed.content, np.uint8) - ord("0")
    revision = _ints(_numbers(packed.revision), pa.int64(), digits < _NO_REVISION)
    sent_at = _ints(_numbers(packed.sent_ms) * 1000, _KINDS["timestamp"])
    arrays = [_ints(numbers, pa.int64()), group, revision, dedup_id, body, _contents(digits), attributes, sent_at]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _ints(values: Ints, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Wrap numbers without a copy: ``pa.array`` would import pandas, which costs each Spark worker a quarter second."""
    present = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(values)])


def _contents(digits: npt.NDArray[np.uint8]) -> pa.Array:
    """Return the kinds of the bodies from their digits; usually they are all equal."""
    kinds = digits % _NO_REVISION
    is_one = (kinds == kinds[0]).all()
    names = [_CONTENTS[kind].encode() for kind in (kinds[:1] if is_one else kinds).tolist()]
    offsets = np.zeros(len(kinds) + 1, np.int32)
    np.cumsum(_SIZES[kinds], out=offsets[1:])
    data = names[0] * len(kinds) if is_one else b"".join(names)
    return pa.Array.from_buffers(pa.string(), len(kinds), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _numbers(packed: bytes | range) -> Ints:
    if isinstance(packed, range):
        return np.arange(packed.start, packed.stop)
    return np.fromstring(packed, np.int64, sep=",")


def _texts(texts: PackedTexts, count: int) -> pa.Array | None:
    """Return an Arrow array: texts without separators, and the offsets at which they begin."""
    if not texts.known:
        return pa.nulls(count, pa.string())
    packed = texts.packed
    between = np.flatnonzero(np.frombuffer(packed, np.uint8) == 0)
    if len(between) != count - 1:
        return None
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:-1] = between - np.arange(count - 1)
    offsets[-1] = len(packed) - len(between)
    data = packed.replace(b"\0", b"")
    valid, nulls = None, count - texts.known
    if nulls:
        is_null = np.zeros(count, np.bool_)
        short = np.flatnonzero(np.diff(offsets) == 1)
        is_null[short] = np.frombuffer(data, np.uint8)[offsets[short]] == _NULL
        if is_null.sum() != nulls:
            return None
        valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)


def _batch_of_rows(rows: Sequence[Any]) -> pa.RecordBatch:
    number, group, revision, dedup_id, body, content, attributes, sent_ms = zip(*rows, strict=True)
    texts: Sequence[Any] = body
    if Content.BYTES in content:
        pairs = zip(body, content, strict=True)
        texts = [base64.b64encode(value) if kind == Content.BYTES else value for value, kind in pairs]
    contents = [_CONTENTS[number] for number in content]
    sent_us = np.array(sent_ms, np.int64) * 1000
    columns = (number, group, revision, dedup_id, texts, contents, attributes, sent_us)
    return pa.RecordBatch.from_arrays([*map(pa.array, columns, _SCHEMA.types)], schema=_SCHEMA)
