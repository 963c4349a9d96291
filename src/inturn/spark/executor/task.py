"""A task: it reads the rows of one slice of the groups, writes files, and returns a summary as one row."""

import functools
import gc
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from inturn.core import errors
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.journal import Counts
from inturn.core.texts import storable
from inturn.faults import reach
from inturn.spark import pickling
from inturn.spark.columns.hashing import bucket_bounds
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.names import HASH
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.executor.decisions import Decisions
from inturn.spark.executor.kernel import Kernel
from inturn.spark.executor.placement import in_utc, sort_keys, with_placement
from inturn.spark.executor.plan import Plan, SliceResult
from inturn.spark.executor.sort import sorted_chunks
from inturn.spark.executor.sort_key import assert_sorted
from inturn.spark.tables.levels import ALL_US, NONE_US, LevelReader, longest_waits
from inturn.spark.tables.merge import merge
from inturn.spark.tables.sorted_files import StoreSlice
from inturn.spark.tables.storage import storage
from inturn.spark.tables.writer import StepWriter

RESULT = "result string"
"""The schema of a task's result: one row with the JSON of a :class:`SliceResult`."""


class SliceTask:
    """The function that Spark calls once per partition.

    Args:
        plan: the step.
        pipeline: the pipeline as pickled by :func:`inturn.spark.pickling.dumps`.
        names: the names of the columns; in Spark they are only numbered.
    """

    def __init__(self, plan: Plan, pipeline: bytes, names: list[str]) -> None:
        self._plan, self._pipeline, self._names = msgspec.json.encode(plan), pipeline, names

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process a partition's rows; inturn's errors are results too, so that Spark does not retry the task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        plan = msgspec.json.decode(self._plan, type=Plan)
        thresholds = gc.get_threshold()
        gc.set_threshold(200_000, 50, 100)  # collect rarely: many small objects live as long as their chunk
        named = (batch.rename_columns(self._names) for batch in batches)
        try:
            result = run_task(plan, pickling.loads(self._pipeline), partition, f"{plan.attempt}-{attempt}", named)
        except errors.InturnError as error:
            for _ in batches:  # drain the input, so that Spark's writer does not see a broken pipe
                pass
            result = SliceResult(Counts(), {}, error=(type(error).__name__, storable(str(error))))
        finally:
            gc.set_threshold(*thresholds)
        _freeze_modules()
        yield pa.RecordBatch.from_pydict({"result": [msgspec.json.encode(result).decode()]})


@functools.cache
def _freeze_modules() -> None:
    """Exclude loaded modules from garbage collection: Spark runs a full collection after every task of a worker.

    A collection of the modules takes longer than a small task and frees nothing. Once per worker is enough.
    """
    gc.collect()
    gc.freeze()


def run_task(
    plan: Plan, pipeline: Pipeline, bucket: int, attempt: str, batches: Iterable[pa.RecordBatch]
) -> SliceResult:
    """Process the messages of one bucket and write its files."""
    part = StoreSlice(storage(plan.location), *bucket_bounds(bucket, plan.buckets))
    states = StateCodec(pipeline, plan.previous_format)
    name = f"{plan.step:012d}-{bucket:05d}-{attempt}"
    writer = StepWriter(part.store, name, plan.step, pipeline, states)
    wait_us = pipeline.wait_us
    since_us = ALL_US if plan.final else NONE_US if wait_us is None else plan.now_us - wait_us
    decisions = Decisions(plan.decisions, part.low, part.high)
    levels = LevelReader(part, plan.levels, since_us, decisions.hashes, pipeline, states)
    kernel = Kernel(pipeline, MessageCodec(pipeline, plan.columns), levels, writer, decisions, plan)
    keys = sort_keys(pipeline, has_places=plan.has_places)
    last = None
    rows = (with_placement(pipeline, in_utc(batch)) for batch in batches)
    for chunk in sorted_chunks(rows, hash=HASH, group=plan.group, keys=keys):
        last = assert_sorted(chunk, last, hash=HASH, group=plan.group, keys=keys)
        _check_slice(chunk, part)
        kernel.feed(chunk)
    kernel.finish()
    reach("between files")
    written = writer.close()
    if plan.merge:
        merged = merge(part, plan.levels[-plan.merge :], states, name)
        written |= {f"merged_{table}": files for table, files in merged.items()}
    waiting = longest_waits(part, plan.levels, writer.touched, written["groups"])
    wrong = "" if kernel.journal.wrong is None else storable(str(kernel.journal.wrong))
    return SliceResult(kernel.counts, written, decisions.verdicts, kernel.parked, *waiting, wrong=wrong)


def _check_slice(chunk: pa.Table, part: StoreSlice) -> None:
    """Check that Spark sent the rows to the right task: otherwise a group could be in two tasks."""
    if chunk[HASH][0].as_py() < part.low or chunk[HASH][-1].as_py() > part.high:
        msg = "rows were sent to the wrong task; this engine does not honour repartitionById: use Apache Spark"
        raise errors.InturnError(msg)
