"""``format("inturn")``: the log of a queue as a Spark source, for a batch or a stream.

A stream's offset is a sequence number. A named reader in the queue holds all messages that Spark may still request. It
is created before the first offset is returned, and advances when Spark requests messages after an offset: by then Spark
has recorded that everything before it is done. ``commit`` does the same, but later, and never for the last micro-batch.
"""

from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from inturn.core.errors import InputError, StoreMismatch
from inturn.core.queue.incarnation import QueuePosition, is_valid
from inturn.core.queue.messages import QueueInfo
from inturn.spark.source.log import COLUMNS, SourceLog, open_log
from inturn.spark.source.options import BatchOptions, StreamOptions, batch_options, queue_location, stream_options
from inturn.spark.source.reader_adapter import LimitedReader, ReadLimit, ReadMaxRows, adapted_reader
from inturn.spark.source.slices import Slice, batches, divide
from inturn.spark.versions import has_read_limits, lacking

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from inturn.spark.source.release import UncommittedMessages

Offset = dict[str, Any]
"""A sequence number, the incarnation in which it was given, and the creation time of its queue."""


class QueueSource(DataSource):
    """The log of a queue as a data source; its options are in :mod:`inturn.spark.source.options`."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which Spark knows the source."""
        return "inturn"

    def schema(self) -> str:
        """Check that the queue exists, and return the columns of its messages."""
        with closing(open_log(queue_location(self.options))) as log:
            log.info()
        return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return a reader for ``spark.read``."""
        return _BatchReader(batch_options(self.options), _requested_columns(schema))

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader for ``spark.readStream``.

        Raises:
            SetupError: if this PySpark cannot honour an option.
        """
        options = stream_options(self.options)
        if "maxRowsPerBatch" in self.options and not has_read_limits():
            raise lacking("maxRowsPerBatch", "4.2", "without this option a micro-batch takes all available messages")
        return adapted_reader(_StreamReader(options, _requested_columns(schema)))


def _requested_columns(schema: "StructType") -> list[str]:
    """Return the requested columns; a schema of the user's may omit some.

    Raises:
        InputError: if it has unknown ones.
    """
    for field in schema.fields:
        if COLUMNS.get(field.name) != field.dataType.simpleString():
            known = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            raise InputError(
                f"a message has no column {field.name} {field.dataType.simpleString()}; existing columns: {known}. "
                "inturn.spark.messages(pipeline, df) turns the fields of the body into columns"
            )
    return list(schema.names)


class _BatchReader(DataSourceReader):
    def __init__(self, options: BatchOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> list[InputPartition]:
        place, division, after, up_to, since_ms, until_ms = self._options
        with closing(open_log(place)) as log:
            last = log.info().last
            after = max(after, log.first() if since_ms is None else log.time(since_ms))
            last = last if until_ms is None else log.time(until_ms)
            return [*divide(log, place, division, after, last if up_to is None else min(up_to, last))]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return batches(partition, self._columns) if isinstance(partition, Slice) else iter(())


class _StreamReader(LimitedReader):
    """A stream reader in a process next to the driver; tasks get copies, which only read."""

    def __init__(self, options: StreamOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns
        self._log: SourceLog | None = None
        self._release: UncommittedMessages | None = None
        self._target: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._open().info().last

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the position of the reader, which holds everything after it; a new one is before the first."""
        position = self._reader().position()
        info = self._open().info()
        return self._offset(info, max(position, self._open().first()))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        log = self._open()
        info = log.info()
        after = self._checked(start, info)
        if has_read_limits():  # without limits the start may be that of a micro-batch to repeat
            self._reader().commit(after)
        last = info.last if self._target is None else min(self._target, info.last)
        if last <= after:
            return start
        if isinstance(limit, ReadMaxRows):
            end = log.place(after, last, limit.max_rows)
            if end is not None:
                return self._offset(info, end)
        return start if log.place(after, last, 1) is None else self._offset(info, last)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the log, from which Spark's progress shows how far behind the query is."""
        info = self._open().info()
        return self._offset(info, info.last)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        log = self._open()
        info = log.info()
        after = self._checked(start, info)
        self._check_history(end, info)
        return [*divide(log, self._options.place, self._options.division, after, end["sequence_number"])]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return batches(partition, self._columns) if isinstance(partition, Slice) else iter(())

    def commit(self, end: Offset) -> None:
        self._reader().commit(end["sequence_number"])

    def stop(self) -> None:
        for opened in (self._log, self._release):
            if opened is not None:
                opened.close()
        self._log = self._release = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without open connections."""
        return {**vars(self), "_log": None, "_release": None}

    def _open(self) -> SourceLog:
        if self._log is None:
            self._log = open_log(self._options.place)
        return self._log

    def _reader(self) -> "UncommittedMessages":
        if self._release is None:
            from inturn.spark.source.release import UncommittedMessages  # not used by tasks

            self._release = UncommittedMessages(self._options)
        return self._release

    def _checked(self, start: Offset, info: QueueInfo) -> int:
        """Return the sequence number of an offset, after checking that everything after it still exists.

        Raises:
            StoreMismatch: if the offset belongs to another queue or another history, or messages after it may be lost.
        """
        place, name = self._options.place, self._options.reader
        after: int = start["sequence_number"]
        self._check_history(start, info)
        position = info.readers.get(name)
        if self._options.fail_on_loss and (position is None or position > after):
            problem = "no longer exists" if position is None else f"was moved to {position} by another process"
            raise StoreMismatch(
                f"the checkpoint has read {place} up to {after}, but its reader {name!r} {problem}, so later "
                "messages may be lost. Use a separate reader for each query; "
                '.option("failOnDataLoss", "false") continues with the existing messages'
            )
        return after

    def _check_history(self, offset: Offset, info: QueueInfo) -> None:
        """Check that an offset belongs to the history of the existing queue.

        Raises:
            StoreMismatch: if it does not.
        """
        number = offset["sequence_number"]
        place = QueuePosition(number, offset["incarnation"])
        if offset["queue_made_ms"] == info.created_ms and is_valid(place, self._open().incarnation(number), info.last):
            return
        raise StoreMismatch(
            f"the checkpoint has read {self._options.place} up to {number}, but the current queue was created "
            "again, or restored from an older copy and used since: it has assigned these sequence numbers to other "
            "messages. Restore the queue that belongs to the checkpoint, or start with a new checkpoint, which reads "
            "the existing messages: those that the store has applied are not applied again"
        )

    def _offset(self, info: QueueInfo, number: int) -> Offset:
        offset = {"queue_made_ms": info.created_ms, "sequence_number": number}
        return {**offset, "incarnation": self._open().incarnation(number)}
