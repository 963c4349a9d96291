"""Stream readers as the installed PySpark calls them: with a start and a limit from 4.2 on, with neither before."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from inturn.spark.versions import has_read_limits

__all__ = ["LimitedReader", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "as_called"]

if TYPE_CHECKING or has_read_limits():
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:

    class ReadLimit:
        """How much to read."""

    class ReadAllAvailable(ReadLimit):
        """All there is."""

    class ReadMaxRows(ReadLimit):
        """Never asked for by a Spark that has none."""

    class SupportsTriggerAvailableNow:
        """Never asked for either."""


class LimitedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader as Spark 4.2 calls it; :func:`as_called` makes it fit older ones."""


def as_called(reader: LimitedReader) -> DataSourceStreamReader:
    """The reader as the installed PySpark calls it."""
    return reader if has_read_limits() else _Unlimited(reader)


class _Unlimited(DataSourceStreamReader):
    """For PySpark 4.0 and 4.1: a micro-batch takes all there is, since a limit would end "available now" too early.

    They do not say from where the latest offset is wanted. It follows from their other calls: a restarted query first
    asks for the partitions between the last offset of its checkpoint and itself, then for those of a micro-batch that
    is to be repeated, and for the latest offset only between micro-batches.
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
            self._done = end  # once Spark asks for the next offset
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()
