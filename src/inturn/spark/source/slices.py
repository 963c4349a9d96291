"""A part of a queue's log that one task reads, as Arrow batches: which rows, from which file, on which machine.

Nothing here writes. A task may be tried again, or run twice at a time: it reads the same rows, which the query's reader
holds in the queue until Spark has committed them.
"""

import base64
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from inturn.core import limits
from inturn.core.envelope import Content
from inturn.core.errors import StoreError
from inturn.spark.decisions import group_hash
from inturn.spark.source.options import Division, Place
from inturn.store.sqlite.log import Log, Row

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
"""What is known of each message, by the names and types that Spark has for it."""

_ARROW: Final = {"bigint": pa.int64(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
_SCHEMA: Final = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS.items()])
_CONTENTS: Final = pa.array([each.name.lower() for each in Content])
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_BITS: Final = 64


class Identity(NamedTuple):
    """Which file it is, and on which machine.

    Attributes:
        machine: the machine, since it was started.
        device: the file system.
        file: the file in it.
    """

    machine: str
    device: int
    file: int


def identity_of(path: str) -> Identity:
    """What tells a file from a copy of it elsewhere.

    Raises:
        StoreError: if there is none.
    """
    try:
        found = Path(path).stat()
    except OSError as error:
        msg = f"there is no database {path!r}"
        raise StoreError(msg) from error
    return Identity(machine(), found.st_dev, found.st_ino)


def machine() -> str:
    """What tells this machine from others; the containers of one have it in common."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return platform.node()


@dataclass
class Slice(InputPartition):
    """A part of a log.

    Attributes:
        place: where the queue is.
        seen: which file the driver has seen there.
        after: the sequence number to begin after.
        up_to: the last sequence number.
        bucket: of all groups in that part of the log, only those of this bucket; None: all.
        buckets: how many buckets there are.
    """

    place: Place
    seen: Identity
    after: int
    up_to: int
    bucket: int | None = None
    buckets: int = 1

    def check(self) -> None:
        """See that the file here is the one that the driver has seen.

        Raises:
            StoreError: if it is not.
        """
        try:
            found = identity_of(self.place.path)
        except StoreError:
            found = None
        if found == self.seen:
            return
        if found is None or found.machine != self.seen.machine:
            msg = (
                f"{self.place.path} is a file of the machine that runs Spark's driver, and a task is to read it on "
                f"another, {platform.node()}: an SQLite file is read on its own machine only. Run Spark there, such "
                "as with master local[*], or write the messages to files that all workers see and read those"
            )
        else:
            msg = f"{self.place.path} is not the file any more that Spark's driver has opened; start the query again"
        raise StoreError(msg)


def cut(log: Log, place: Place, division: Division, after: int, up_to: int) -> list[Slice]:
    """Divide a part of a log among tasks.

    Args:
        log: the log.
        place: where it is.
        division: how.
        after: the sequence number to begin after.
        up_to: the last sequence number.
    """
    rows = log.count(after, up_to)
    if not rows:
        return []
    seen = identity_of(place.path)
    cores = os.cpu_count() or 1  # of this machine, since no other can read it
    if division.by_group:
        buckets = division.partitions or cores
        return [Slice(place, seen, after, up_to, bucket, buckets) for bucket in range(buckets)]
    parts = division.partitions or min(cores, -(-rows // limits.SOURCE_TASK_ROWS))
    share = -(-rows // parts)
    slices = []
    while (end := log.place(after, up_to, share)) is not None:
        slices.append(Slice(place, seen, after, end))
        after = end
    if after < up_to and log.place(after, up_to, 1) is not None:
        slices.append(Slice(place, seen, after, up_to))
    return slices


def batches(part: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The messages of a part of a log, in their order.

    Raises:
        StoreError: if the file is not the one that is meant, or cannot be read.
        NoSuchQueue: if the queue is not there any more.
    """
    part.check()
    with closing(Log(*part.place)) as log:
        log.info()
        after = part.after
        while rows := log.rows(after, part.up_to):
            after = rows[-1][0]
            if part.bucket is not None:
                rows = _of_bucket(rows, part.bucket, part.buckets)
            if rows:
                yield _arrow(rows).select(columns)


def _of_bucket(rows: Sequence[Row], bucket: int, buckets: int) -> list[Row]:
    """The rows whose group's hash is in a bucket, an equal part of its range; what has no group is spread."""
    known = {group: _bucket(group, buckets) for group in {row[1] for row in rows} if group is not None}
    return [row for row in rows if (row[0] % buckets if row[1] is None else known[row[1]]) == bucket]


def _bucket(group: str, buckets: int) -> int:
    return (group_hash(group) + (1 << _BITS - 1)) * buckets >> _BITS


def _arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    number, group, revision, dedup_id, body, content, attributes, sent_ms = zip(*rows, strict=True)
    texts: Sequence[Any] = body
    if Content.BYTES in content:
        texts = [base64.b64encode(each).decode() if isinstance(each, bytes) else each for each in body]
    values = (number, group, revision, dedup_id, texts, None, attributes, None)
    arrays = [None if each is None else pa.array(each, kind) for each, kind in zip(values, _SCHEMA.types, strict=True)]
    arrays[5] = _CONTENTS.take(pa.array(content, pa.int8()))
    arrays[7] = pc.cast(pa.array(sent_ms, pa.timestamp("ms", "UTC")), _SCHEMA.types[7])
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
