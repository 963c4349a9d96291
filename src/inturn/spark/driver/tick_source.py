"""A streaming source without rows: it starts a micro-batch when a wait has expired or a decision was made.

Spark runs a micro-batch only when a source has new data. So this source is added to the user's stream with a union.
Its offset is the time, and advances only when the store has something to do.
"""

import datetime as dt
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from inturn.core.values.instant import instant_us
from inturn.spark.source.reader_adapter import LimitedReader, ReadAllAvailable, ReadLimit, adapted_reader
from inturn.spark.tables.manifest import Manifest, SparkStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CHECK_EVERY_S = 1.0


def with_tick_source(
    df: "DataFrame", store: str, wait_us: int | None, start_us: int = 0, *, waits_begin_now: bool = False
) -> "DataFrame":
    """Add the tick source to a stream, so that it has a micro-batch whenever the store has something to do.

    ``start_us`` is the last tick in the checkpoint, which Spark 4.0 and 4.1 pass only after they ask for the next.
    With ``anew``, waits begin with this stream at the earliest.
    """
    spark = df.sparkSession
    spark.dataSource.register(TickSource)
    ticks = (
        spark.readStream.format(TickSource.name())
        .schema(df.schema)
        .option("store", store)
        .option("wait_us", str(wait_us or ""))
        .option("start_us", str(start_us))
        .option("since_us", str(instant_us(dt.datetime.now(dt.UTC)) if waits_begin_now else 0))
        .load()
    )
    return df.union(ticks)


class TickSource(DataSource):
    """The tick source; its options are the store, the wait, the first offset, and when waits begin at the earliest."""

    @classmethod
    def name(cls) -> str:
        """Return the source's name in Spark."""
        return "inturn-ticks"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        """Return the reader."""
        wait_us, start_us, since_us = (int(self.options[name] or 0) for name in ("wait_us", "start_us", "since_us"))
        return adapted_reader(_Reader(self.options["store"], wait_us or None, start_us, since_us))


class _Reader(LimitedReader):
    def __init__(self, store: str, wait_us: int | None, start_us: int, since_us: int = 0) -> None:
        self._store, self._wait_us, self._start_us, self._since_us = SparkStore(store), wait_us, start_us, since_us
        self._last: Manifest | None = None
        self._checked_s = float("-inf")
        self._once = self._ticked = False

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._once = True

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"us": self._start_us}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """Return the time if the store has something to do, else ``start``; "available now" gets one tick."""
        if (self._once and self._ticked) or not self._has_work():
            return start
        self._ticked = True
        return {"us": max(start["us"] + 1, instant_us(dt.datetime.now(dt.UTC)))}

    def _has_work(self) -> bool:
        if time.monotonic() - self._checked_s < _CHECK_EVERY_S:
            return False
        self._checked_s = time.monotonic()
        self._last = last = self._store.latest(self._last)
        if last is None:
            return False
        if self._wait_us is not None and last.waiting_us is not None:
            over_us = max(last.waiting_us, self._since_us) + self._wait_us
            if over_us <= instant_us(dt.datetime.now(dt.UTC)):
                return True
        return bool(self._store.pending_decisions(last, most=1))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - there are none
        return iter(())

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: no data is kept."""
