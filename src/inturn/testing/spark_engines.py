"""The batch and the stream on Spark as engines: the same messages, in files, divided at random.

On Spark only a column can order rows, so if arrival affects the result the rows get such a column.
"""

import contextlib
import datetime as dt
import os
import random
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from inturn.core.errors import InputError, InturnError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.values import path
from inturn.spark.driver.step import advance, batch
from inturn.spark.driver.stream import stream
from inturn.spark.local.foreground import stream_error_text
from inturn.spark.local.session import local_session
from inturn.spark.tables.manifest import SparkStore
from inturn.testing.engine_input import TIME_STEP, EngineInput, cuts
from inturn.testing.outcome import EngineResult, plain
from inturn.testing.replay_engine import ARRIVAL, DAWN, in_list_order
from inturn.testing.rows import table
from inturn.testing.store_result import stored_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

_MOST_BUCKETS = 3
_MOST_STEPS = 3
_MICRO_BATCHES = (3, 6)
_SECOND_US = 1_000_000


@dataclass
class SparkEngines:
    """The engines on Spark, for one history.

    Attributes:
        oracle: result of the pure timeline.
        folder: folder for files and stores.
    """

    spark: "SparkSession"
    history: EngineInput
    oracle: EngineResult
    seed: int
    folder: Path

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, spark: "SparkSession | None", history: EngineInput, oracle: EngineResult, seed: int
    ) -> "Iterator[SparkEngines]":
        """Yield the engines on the given session, or on a local one, which is stopped at the end."""
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="inturn-check-"))
            yield cls(spark or stack.enter_context(_session()), history, oracle, seed, Path(folder))

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline for Spark: with a column for the order of arrival if that affects the result."""
        pipeline = self.history.pipeline
        if pipeline.arrival is not None or not self._depends_on_arrival:
            return pipeline
        handler = pipeline.handler if pipeline.message else _HiddenField(ARRIVAL, pipeline.handler)
        return replace(pipeline, arrival=ARRIVAL, handler=handler)

    @property
    def _depends_on_arrival(self) -> bool:
        pipeline = self.history.pipeline
        conflicts = any("conflict" in reasons for reasons in self.oracle.rejected.values())
        return conflicts or not pipeline.order.has_runs

    def notes(self) -> list[str]:
        """Return notes about results that would differ in the user's own batch."""
        pipeline = self.history.pipeline
        if pipeline.arrival is not None or not self._depends_on_arrival or self.history.time_passes:
            return []
        messages = self.history.messages
        own, ordered = (variant.replay(messages) for variant in (pipeline, in_list_order(pipeline)))
        changed = [name for name in ordered.states if plain(own.states[name]) != plain(ordered.states[name])]
        if not changed:
            return []
        subject = "1 group has" if len(changed) == 1 else f"{len(changed)} groups have"
        note = f"without arrival= a batch applies these messages in its own order, and {subject} another state then"
        return [f"{note}, such as {changed[0]!r}; name the column with the order of arrival: Pipeline(arrival=…)"]

    def batch(self) -> EngineResult:
        """Return the result of a batch, in one step or in several."""
        chance, store, now = random.Random(self.seed), self.folder / "batch", DAWN  # noqa: S311 - chance for a test
        parts, buckets = self.history.parts, chance.randint(1, _MOST_BUCKETS)
        number = 0
        for part in self._tables():
            steps = chance.randint(1, _MOST_STEPS if len(parts) == 1 else 2)
            for step in _slices(part, steps, chance):
                number += 1
                self._write(step, file := self.folder / f"batch-{number}.parquet", chance)
                batch(self.pipeline, self._read(file), store=store, buckets=buckets, now=now)
            now += TIME_STEP
            if self.history.time_passes:
                advance(self.pipeline, store=store, now=now)
        return stored_result(self.pipeline, store)

    def stream(self) -> EngineResult:
        """Return the result of a stream: micro-batches, restarts, and one repeated micro-batch."""
        chance, store = random.Random(self.seed), self.folder / "stream"  # noqa: S311 - chance for a test
        source, checkpoint = self.folder / "messages", self.folder / "stream-checkpoint"
        source.mkdir()
        buckets, number = chance.randint(1, _MOST_BUCKETS), 0
        for part in self._tables():
            steps = [rows for rows in _slices(part, chance.randint(*_MICRO_BATCHES), chance) if len(rows)]
            stops = {len(steps) - 1}
            if len(self.history.parts) == 1:  # else it is restarted for each part
                stops.add(chance.randrange(len(steps)) if steps else 0)
            for index, step in enumerate(steps):
                number += 1
                self._write(step, source / f"{number:06d}.parquet", chance)
                os.utime(source / f"{number:06d}.parquet", (number, number))  # Spark takes the oldest first
                if index in stops:
                    self._run(source, store, checkpoint, buckets)
            if steps:
                _forget_last(checkpoint)
            if self.history.time_passes:
                self._let_time_pass(store)
        self._run(source, store, checkpoint, buckets)
        return stored_result(self.pipeline, store)

    def _run(self, source: Path, store: Path, checkpoint: Path, buckets: int) -> None:
        """Run the stream over the existing files, to its end."""
        files = sorted(source.glob("*.parquet"))
        schema = self._read(files[0]).schema if files else self._empty().schema
        df = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        query = stream(self.pipeline, df, store=store, checkpoint=checkpoint, trigger="available now", buckets=buckets)
        try:
            query.awaitTermination()
        except Exception as error:
            raise InturnError(stream_error_text(error)) from error
        finally:
            query.stop()

    def _empty(self) -> "DataFrame":
        self._write(self._tables()[0], file := self.folder / "empty.parquet", random.Random(0))  # noqa: S311
        return self._read(file)

    def _let_time_pass(self, store: Path) -> None:
        """Run a step without messages at a time after all waits; the stream's later steps are not before that time."""
        last = SparkStore(store).latest()
        if last is not None:
            now = dt.datetime.fromtimestamp(last.now_us // _SECOND_US, dt.UTC) + TIME_STEP
            advance(self.pipeline, store=store, now=now)

    def _tables(self) -> list[pa.Table]:
        """Return the parts of the history as tables with the same columns."""
        pipeline, messages = self.history.pipeline, self.history.messages
        rows = table(pipeline, messages)
        name = self.pipeline.arrival
        if name is not None and not self.history.has_arrivals:
            name = path.parts(name)[0]
            rows = rows.drop_columns([name] if name in rows.column_names else [])
            rows = rows.append_column(name, pa.array(range(len(messages)), pa.int64()))
        parts, offset = [], 0
        for part in self.history.parts:
            parts.append(rows.slice(offset, len(part)))
            offset += len(part)
        return parts

    def _write(self, rows: pa.Table, file: Path, chance: random.Random) -> None:
        """Write the rows in random order, since their order has no meaning."""
        order = list(range(len(rows)))
        chance.shuffle(order)
        try:
            pq.write_table(rows.take(pa.array(order, pa.int64())), file)
        except pa.ArrowException as error:
            raise InputError(f"the messages cannot be written as Parquet: {error}") from error

    def _read(self, file: Path) -> "DataFrame":
        return self.spark.read.parquet(str(file))


class _HiddenField:
    """A handler that does not see one field of a dict.

    Args:
        field: hidden field.
        handler: the handler.
    """

    def __init__(self, field: str, handler: Any) -> None:
        self._field, self._handler = field, handler

    def __call__(self, state: Any, message: dict[str, Any]) -> Any:
        return self._handler(state, {name: value for name, value in message.items() if name != self._field})


def _slices(rows: pa.Table, parts: int, chance: random.Random) -> list[pa.Table]:
    return [rows.slice(part[0] if part else 0, len(part)) for part in cuts(range(len(rows)), parts, chance)]


def _forget_last(checkpoint: Path) -> None:
    """Simulate a crash of Spark between the store's commit and its own: the last micro-batch is repeated."""
    done = [int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
    for name in (str(max(done)), f".{max(done)}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _session() -> "Iterator[SparkSession]":
    """Yield a local Spark, and stop it unless it was running before."""
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    spark = local_session("inturn-check")
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()
