"""``format("inturn")``: the log of a queue as Spark reads it, once or as a stream.

A stream's offset is a sequence number. What Spark may still ask for is held in the queue by a named reader, which is
made before the first offset is given and moved on when Spark asks for what comes after an offset: by then it has
written down that everything before it is done. ``commit`` says the same, but later, and never of the last micro-batch.
"""

from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from inturn.core.envelope import QueueInfo
from inturn.core.errors import InputError, StoreMismatch
from inturn.core.incarnation import Place, is_valid
from inturn.spark.source.arrow import COLUMNS
from inturn.spark.source.calling import LimitedReader, ReadLimit, ReadMaxRows, as_called
from inturn.spark.source.log import Log, open_log
from inturn.spark.source.options import BatchOptions, StreamOptions, batch_options, place_of, stream_options
from inturn.spark.source.slices import Slice, batches, cut
from inturn.spark.versions import has_read_limits, lacking

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from inturn.spark.source.release import Release

Offset = dict[str, Any]
"""A sequence number, the incarnation in which it was given, and when its queue was made."""


class QueueSource(DataSource):
    """The log of a queue; its options are in :mod:`inturn.spark.source.options`."""

    @classmethod
    def name(cls) -> str:
        """As Spark knows it."""
        return "inturn"

    def schema(self) -> str:
        """What is known of each message, once it is clear that the queue is there."""
        with closing(open_log(place_of(self.options))) as log:
            log.info()
        return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: "StructType") -> DataSourceReader:
        """For ``spark.read``."""
        return _BatchReader(batch_options(self.options), _chosen(schema))

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For ``spark.readStream``.

        Raises:
            SetupError: if this PySpark cannot keep to an option.
        """
        options = stream_options(self.options)
        if "maxRowsPerBatch" in self.options and not has_read_limits():
            raise lacking("maxRowsPerBatch", "4.2", "without it a micro-batch takes all that is there")
        return as_called(_StreamReader(options, _chosen(schema)))


def _chosen(schema: "StructType") -> list[str]:
    """The columns that are asked for; a schema of the user's may leave some out.

    Raises:
        InputError: if it has others.
    """
    for field in schema.fields:
        if COLUMNS.get(field.name) != field.dataType.simpleString():
            known = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            msg = (
                f"a message has no {field.name} {field.dataType.simpleString()}; there are {known}. "
                "Of the fields of its body, inturn.spark.messages(pipeline, df) makes columns"
            )
            raise InputError(msg)
    return list(schema.names)


class _BatchReader(DataSourceReader):
    def __init__(self, options: BatchOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> list[InputPartition]:
        place, division, after, up_to = self._options
        with closing(open_log(place)) as log:
            last = log.info().last
            after = max(after, log.first())
            return [*cut(log, place, division, after, last if up_to is None else min(up_to, last))]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return batches(partition, self._columns) if isinstance(partition, Slice) else iter(())


class _StreamReader(LimitedReader):
    """Lives in a process beside the driver; tasks get copies, which only read."""

    def __init__(self, options: StreamOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns
        self._log: Log | None = None
        self._release: Release | None = None
        self._target: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._open().info().last

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where the reader is, which holds all that comes after it from now on; a new one is before the first."""
        position = self._reader().position()
        info = self._open().info()
        return self._offset(info, max(position, self._open().first()))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        log = self._open()
        info = log.info()
        after = self._checked(start, info)
        if has_read_limits():  # else the start may be that of a micro-batch that is to be repeated
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
        """How far the log is, so that Spark's progress shows how far behind the query is."""
        info = self._open().info()
        return self._offset(info, info.last)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        log = self._open()
        info = log.info()
        after = self._checked(start, info)
        self._check_history(end, info)
        return [*cut(log, self._options.place, self._options.division, after, end["sequence_number"])]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return batches(partition, self._columns) if isinstance(partition, Slice) else iter(())

    def commit(self, end: Offset) -> None:
        self._reader().commit(end["sequence_number"])

    def stop(self) -> None:
        for each in (self._log, self._release):
            if each is not None:
                each.close()
        self._log = self._release = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is open."""
        return {**vars(self), "_log": None, "_release": None}

    def _open(self) -> Log:
        if self._log is None:
            self._log = open_log(self._options.place)
        return self._log

    def _reader(self) -> "Release":
        if self._release is None:
            from inturn.spark.source.release import Release  # tasks have no use for it

            self._release = Release(self._options)
        return self._release

    def _checked(self, start: Offset, info: QueueInfo) -> int:
        """The sequence number of an offset, if everything after it is there still.

        Raises:
            StoreMismatch: if the offset is another queue's, or of another history, or what comes after it may be gone.
        """
        place, name = self._options.place, self._options.reader
        after: int = start["sequence_number"]
        self._check_history(start, info)
        position = info.readers.get(name)
        if self._options.fail_on_loss and (position is None or position > after):
            found = "is not there any more" if position is None else f"was moved on to {position} by somebody else"
            msg = (
                f"the checkpoint has read {place} up to {after}, but its reader {name!r} {found}, so messages after "
                "that may be gone. Name a reader of its own for each query; "
                '.option("failOnDataLoss", "false") goes on with what is there'
            )
            raise StoreMismatch(msg)
        return after

    def _check_history(self, offset: Offset, info: QueueInfo) -> None:
        """See that an offset is one of the history of the queue that is there.

        Raises:
            StoreMismatch: if not.
        """
        number = offset["sequence_number"]
        place = Place(number, offset.get("incarnation"))  # older versions did not write it
        if offset["queue_made_ms"] == info.created_ms and is_valid(place, self._open().incarnation(number), info.last):
            return
        msg = (
            f"the checkpoint has read {self._options.place} up to {number}, but the queue that is there now was made "
            "anew, or put back from an older copy and has gone on from there: it has given these numbers to other "
            "messages. Put back the one that belongs to the checkpoint, or start with a new checkpoint, which takes "
            "what is there: what the store has applied is not applied twice"
        )
        raise StoreMismatch(msg)

    def _offset(self, info: QueueInfo, number: int) -> Offset:
        made = {"queue_made_ms": info.created_ms, "sequence_number": number}
        return {**made, "incarnation": self._open().incarnation(number)}
