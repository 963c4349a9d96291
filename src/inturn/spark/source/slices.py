"""Slices of a queue's log that one task reads as Arrow batches.

Nothing here writes. A task may be retried, or run twice at the same time: it reads the same rows, which the query's
reader holds in the queue until Spark has committed them.
"""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from inturn.core import limits
from inturn.core.errors import NoSuchDatabase, StoreError
from inturn.spark.columns.hashing import group_hash
from inturn.spark.source.log import SourceLog, open_log, read_batch
from inturn.spark.source.options import Division, QueueLocation
from inturn.store.sqlite.log import SqliteLog

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_BITS: Final = 64


class DatabaseFileIdentity(NamedTuple):
    """The identity of a file: the machine since its last boot, the file system, and the file in it."""

    machine: str
    device: int
    file: int


def file_identity(path: str) -> DatabaseFileIdentity:
    """Return an identity that distinguishes a file from a copy of it elsewhere.

    Raises:
        NoSuchDatabase: if the file does not exist.
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise NoSuchDatabase(f"no database {path!r}") from error
    return DatabaseFileIdentity(machine(), status.st_dev, status.st_ino)


def machine() -> str:
    """Return an identity of this machine; its containers share it."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return platform.node()


@dataclass
class Slice(InputPartition):
    """A slice of a log: the messages after a sequence number and up to another, of the groups in a bucket or of all.

    Attributes:
        expected: the file that the driver saw, or the queue on a server.
    """

    place: QueueLocation
    expected: DatabaseFileIdentity | str
    after: int
    up_to: int
    bucket: int | None = None
    buckets: int = 1

    @contextmanager
    def open_checked(self) -> Iterator[SourceLog]:
        """Open the log, if it is the one that the driver saw.

        Raises:
            StoreError: if it is another one.
        """
        if isinstance(self.expected, DatabaseFileIdentity):
            self._check_file(self.expected)
        with closing(open_log(self.place)) as log:
            if not isinstance(self.expected, DatabaseFileIdentity) and _log_identity(log, self.place) != self.expected:
                raise StoreError(
                    f"{self.place} on {platform.node()} is not the queue that Spark's driver opened: the address must "
                    "lead to the same database from every machine, and the queue must not be created again meanwhile"
                )
            yield log

    def _check_file(self, seen: DatabaseFileIdentity) -> None:
        try:
            identity = file_identity(self.place.path)
        except StoreError:
            identity = None
        if identity == seen:
            return
        if identity is None or identity.machine != seen.machine:
            msg = (
                f"{self.place.path} is a file on the machine of Spark's driver, but a task runs on another machine, "
                f"{platform.node()}: an SQLite file can be read on its own machine only. Run Spark there, for example "
                "with master local[*], or write the messages to files that all workers can read"
            )
        else:
            msg = f"{self.place.path} is no longer the file that Spark's driver opened; start the query again"
        raise StoreError(msg)


def _log_identity(log: SourceLog, place: QueueLocation) -> DatabaseFileIdentity | str:
    """Return the identity of this log."""
    return file_identity(place.path) if isinstance(log, SqliteLog) else log.identity()


def divide(log: SourceLog, place: QueueLocation, division: Division, after: int, up_to: int) -> list[Slice]:
    """Divide among tasks the messages of a log after a sequence number and up to another."""
    first = log.place(after, up_to, 1)
    if first is None:
        return []
    after, seen = first - 1, _log_identity(log, place)
    cores = os.cpu_count() or 1  # of this machine: only it reads a file, and the cluster's cores are unknown
    if division.by_group:
        buckets = division.partitions or cores
        return [Slice(place, seen, after, up_to, bucket, buckets) for bucket in range(buckets)]
    rows = up_to - after  # numbers are nearly always without holes, since a reader holds them all
    parts = min(division.partitions or min(cores, -(-rows // limits.SOURCE_TASK_ROWS)), rows)
    ends = [after + rows * part // parts for part in range(parts + 1)]
    return [Slice(place, seen, begin, end) for begin, end in pairwise(ends)]


def batches(part: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a slice of a log, in order.

    Raises:
        StoreError: if the database is not the expected one, or cannot be read.
        NoSuchQueue: if the queue no longer exists.
    """
    with part.open_checked() as log:
        log.info()
        after = part.after
        while (first := log.place(after, part.up_to, 1)) is not None:
            end = min(first - 1 + limits.SOURCE_ARROW_ROWS, part.up_to)
            batch = read_batch(log, first - 1, end)
            after = batch["sequence_number"][-1].as_py()
            if part.bucket is not None:
                batch = batch.filter(_in_bucket(batch, part.bucket, part.buckets))
            if batch.num_rows:
                yield batch.select(columns)


def _in_bucket(batch: pa.RecordBatch, bucket: int, buckets: int) -> pa.Array:
    """Return whether each group's hash is in a bucket, an equal part of the range; spread rows without a group."""
    groups = batch["group"].dictionary_encode()
    in_bucket = pa.array([_bucket(group, buckets) == bucket for group in groups.dictionary.to_pylist()], pa.bool_())
    spread = pa.array(batch["sequence_number"].to_numpy() % buckets == bucket)
    return pc.coalesce(in_bucket.take(groups.indices), spread)


def _bucket(group: str, buckets: int) -> int:
    return (group_hash(group) + (1 << _BITS - 1)) * buckets >> _BITS
