"""A task: it reads the rows of one slice of the groups, writes files, and returns a summary as one row."""

import functools
import gc
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from inturn.core import errors
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.fold import Counts
from inturn.core.texts import storable
from inturn.faults import reach
from inturn.spark import pickling
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.state_codec import Older, StateCodec
from inturn.spark.columns.zones import in_utc
from inturn.spark.executor.chunk import GROUP, HASH, sort_keys
from inturn.spark.executor.decisions import Decisions, group_hash
from inturn.spark.executor.kernel import Kernel
from inturn.spark.executor.placement import placed
from inturn.spark.executor.sort import assert_sorted, sorted_chunks
from inturn.spark.tables.levels import ALL_US, NONE_US, Levels, waits
from inturn.spark.tables.manifest import File, Level
from inturn.spark.tables.merge import merge
from inturn.spark.tables.storage import storage
from inturn.spark.tables.writer import StepWriter

RESULT = "result string"
"""The schema of a task's result: one row with the JSON of a :class:`SliceResult`."""


class Plan(msgspec.Struct, frozen=True):
    """The plan of a step for its tasks; it fixes time and names, so that a second attempt decides the same.

    Attributes:
        location: the store's location.
        step: the step's number.
        now_us: the time of the step, in microseconds since 1970.
        final: whether to release messages that wait only for a later time.
        buckets: the number of slices of the hash space.
        attempt: the id of this attempt at the step, a part of its file names.
        columns: the message's columns.
        levels: the levels that earlier steps left.
        merge: how many of the newest levels to merge into one.
        decisions: the decisions about groups, by name.
        group: the column with the group's text.
        older: the form of the states in the levels, if an older version wrote them; all levels are merged then.
    """

    location: str
    step: int
    now_us: int
    final: bool
    buckets: int
    attempt: str
    columns: list[str]
    levels: list[Level]
    merge: int = 0
    decisions: dict[str, Decision] = {}
    group: str = GROUP
    older: Older | None = None


class SliceResult(msgspec.Struct):
    """The result of one task.

    Attributes:
        counts: the number of messages by outcome.
        files: the files written, by table; ``merged_groups`` and ``merged_held`` replace the levels that were merged.
        verdicts: for each decision about its groups, why it is void; None if it was carried out.
        parked: the change in the number of parked groups.
        oldest_us: the time since which the oldest held message waits, in microseconds since 1970.
        waiting_us: the same for groups that are not parked.
        error: the class name and text of an inturn error; the step then fails with it.
    """

    counts: Counts
    files: dict[str, list[File]]
    verdicts: dict[str, str | None] = {}
    parked: int = 0
    oldest_us: int | None = None
    waiting_us: int | None = None
    error: tuple[str, str] | None = None


def slice_bounds(bucket: int, buckets: int) -> tuple[int, int]:
    """Return the least and the greatest hash of a bucket; the high 32 bits divide the hash range into equal parts."""
    low, end = (-(-(each << 32) // buckets) - (1 << 31) for each in (bucket, bucket + 1))
    return low << 32, (end << 32) - 1


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
            result = run(plan, pickling.loads(self._pipeline), partition, f"{plan.attempt}-{attempt}", named)
        except errors.InturnError as error:
            for _ in batches:  # drain the input, so that Spark's writer does not see a broken pipe
                pass
            result = SliceResult(Counts(), {}, error=(type(error).__name__, storable(str(error))))
        finally:
            gc.set_threshold(*thresholds)
        _spare_modules()
        yield pa.RecordBatch.from_pydict({"result": [msgspec.json.encode(result).decode()]})


@functools.cache
def _spare_modules() -> None:
    """Exclude loaded modules from garbage collection: Spark runs a full collection after every task of a worker.

    A collection of the modules takes longer than a small task and frees nothing. Once per worker is enough.
    """
    gc.collect()
    gc.freeze()


def run(plan: Plan, pipeline: Pipeline, bucket: int, attempt: str, batches: Iterable[pa.RecordBatch]) -> SliceResult:
    """Process the messages of one bucket and write its files."""
    files = storage(plan.location)
    low, high = slice_bounds(bucket, plan.buckets)
    states = StateCodec(pipeline, plan.older)
    name = f"{plan.step:012d}-{bucket:05d}-{attempt}"
    writer = StepWriter(files, name, plan.step, pipeline, states)
    wait_us = pipeline.gap_timeout_us
    since_us = ALL_US if plan.final else NONE_US if wait_us is None else plan.now_us - wait_us
    decisions = Decisions({n: each for n, each in plan.decisions.items() if low <= group_hash(each.group) <= high})
    levels = Levels(files, plan.levels, low, high, since_us, decisions.hashes, pipeline, states)
    codec = MessageCodec(pipeline, plan.columns)
    kernel = Kernel(
        pipeline,
        codec,
        levels,
        writer,
        decisions,
        step=plan.step,
        now_us=plan.now_us,
        final=plan.final,
        group=plan.group,
    )
    keys = sort_keys(pipeline)
    last = None
    rows = (placed(pipeline, in_utc(batch)) for batch in batches)
    for chunk in sorted_chunks(rows, hash=HASH, group=plan.group, keys=keys):
        last = assert_sorted(chunk, last, hash=HASH, group=plan.group, keys=keys)
        _check_slice(chunk, low, high)
        kernel.feed(chunk)
    kernel.finish()
    reach("between files")
    written = writer.close()
    if plan.merge:
        merged = merge(files, plan.levels[-plan.merge :], low, high, states, name)
        written |= dict(zip(("merged_groups", "merged_held"), merged, strict=True))
    waiting = waits(files, plan.levels, low, high, writer.touched, written["groups"])
    return SliceResult(kernel.counts, written, decisions.verdicts, kernel.parked, waiting.oldest_us, waiting.waiting_us)


def _check_slice(chunk: pa.Table, low: int, high: int) -> None:
    """Check that Spark sent the rows to the right task: otherwise a group could be in two tasks."""
    first, last = chunk[HASH][0].as_py(), chunk[HASH][-1].as_py()
    if first < low or last > high:
        msg = "rows came to the wrong task; this engine does not keep to repartitionById: use Apache Spark"
        raise errors.InturnError(msg)
