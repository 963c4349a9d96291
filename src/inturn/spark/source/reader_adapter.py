"""Adaptation of stream readers to the installed PySpark: 4.2 and newer pass a start and a limit, older ones neither."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from inturn.spark.versions import has_read_limits

__all__ = ["LimitedReader", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "adapted_reader"]

if TYPE_CHECKING or has_read_limits():
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:

    class ReadLimit:
        """The amount to read."""

    class ReadAllAvailable(ReadLimit):
        """All available messages."""

    class ReadMaxRows(ReadLimit):
        """A limit of rows; Spark versions without it never pass one."""

    class SupportsTriggerAvailableNow:
        """A base class that Spark versions without it never look for."""


class LimitedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader with the interface of Spark 4.2; :func:`adapted_reader` adapts it to older versions."""


def adapted_reader(reader: LimitedReader) -> DataSourceStreamReader:
    """Return the reader with the interface that the installed PySpark calls."""
    return reader if has_read_limits() else _Unlimited(reader)


class _Unlimited(DataSourceStreamReader):
    """A reader for PySpark 4.0 and 4.1, whose micro-batches take everything.

    A limit would end "available now" too early.

    These versions do not pass the start of the latest offset. It follows from their other calls. A restarted query asks
    first for the partitions between the last offset of its checkpoint and itself, then for those of a micro-batch to
    repeat. It asks for the latest offset only between micro-batches.
    """

    def __init__(self, reader: LimitedReader) -> None:
        self._reader = reader
        self._at: dict[str, Any] | None = None
        self._done: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802 - as 4.0 and 4.1 call it
        if self._done is not None:
            self._reader.commit(self._done)
        start = self._reader.initialOffset() if self._at is None else self._at
        return self._reader.latestOffset(start, ReadAllAvailable())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._at = end
        if start != end:
            self._done = end  # done once Spark asks for the next offset
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()
