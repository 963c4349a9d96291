"""A pipeline as a stream: every micro-batch is one step of the store, the same step that a batch takes.

Spark names a micro-batch by its number, and gives it again after a crash. The store knows the last one of every
stream that wrote into it, so what comes again is passed over, and what does not fit together is refused.
"""

import contextlib
import hashlib
import io
import os
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from inturn.core.errors import InputError, StoreError, StoreMismatch
from inturn.core.pipeline import Pipeline
from inturn.spark import ship
from inturn.spark.dataframe import is_set
from inturn.spark.intake import Intake
from inturn.spark.step import MicroBatch, Stepper, log
from inturn.spark.tables.manifest import Manifest
from inturn.spark.tables.storage import Storage, storage
from inturn.spark.versions import WRAPS_SOURCES, has_python_sources, has_read_limits, lacking, unwrapped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_NOTE = "inturn.json"
"""The file in a checkpoint that names the stream."""


class _Note(msgspec.Struct, frozen=True):
    """What we write into a checkpoint.

    Attributes:
        run: the stream's id, by which stores know it; a checkpoint that is made anew has a new one.
        pipeline: whose it is.
        ticks: whether our source of ticks is one of the query's sources, whose number Spark does not let change.
    """

    run: str
    pipeline: str
    ticks: bool = True


def stream(
    pipeline: Pipeline,
    df: "DataFrame",
    *,
    store: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    trigger: str | dict[str, Any] | None = None,
    buckets: int | None = None,
    outputs_format: str = "parquet",
    query_name: str | None = None,
) -> "StreamingQuery":
    """Take a streaming DataFrame of messages step by step; exactly once, whatever crashes.

    The store may be one that a batch has filled, and both may go on with it: what both see is applied once. If the gap
    policy has a time, waits end on time also while no messages come, and decisions are taken at once; else, and on
    Spark 3.5, both come with the next messages.

    Args:
        pipeline: the definition.
        df: the messages, from any streaming source; how many a micro-batch takes is the source's option.
        store: a directory that the driver and all workers see, or s3:// or gs://; made if it is not there.
        checkpoint: Spark's checkpoint of this query, of its own; a path, or s3:// or gs://.
        trigger: ``"available now"`` takes what is there and ends; a time such as ``"10 seconds"`` is the pause between
            micro-batches; a dict is given to ``DataStreamWriter.trigger``; None goes on without a pause.
        buckets: into how many slices a new store divides its groups; see :func:`inturn.spark.batch`.
        outputs_format: ``delta`` also publishes the outputs as a Delta table, in ``data/outputs`` of the store.
        query_name: as Spark shows it; default is the pipeline's name.

    Returns:
        The query, running. What ends it with an error is in its ``exception()``; the errors are those of
        :func:`inturn.spark.batch`.

    Raises:
        InputError: if the DataFrame does not fit the pipeline, or the checkpoint is another query's.
        StoreMismatch: if the store is another pipeline's, or lacks what the checkpoint says it has.
        StoreError: if the store or the checkpoint cannot be used.
        StateError: if the state type no longer fits the store.
        SetupError: if the pipeline cannot be sent to the workers, a package is missing, or this Spark is too old for
            the checkpoint or the trigger.
    """
    intake = Intake.of(pipeline, df, streaming=True)
    stepper = Stepper(pipeline, store, buckets=buckets, outputs_format=outputs_format)
    place = _storage_of(checkpoint)
    note = _note_of(place, pipeline)
    _check_not_ahead(place, note.run, stepper)
    work = MicroBatches(stepper, intake, note.run, place.location, outputs_format)
    if note.ticks and not has_python_sources():
        instead = "use one, or start with a new checkpoint: what the store has applied is not applied twice"
        raise lacking(f"the checkpoint {place.location}, in which waits end without messages,", "4.0", instead)
    if has_python_sources() and not has_read_limits():
        _check_ends_late(df, note, trigger)
    if note.ticks:
        from inturn.spark.tick import ticking  # not every PySpark can load it

        ticked_us = 0 if has_read_limits() else _ticked_us(place)
        df = ticking(df, stepper.store.location, pipeline.gap_timeout_us, ticked_us)
    writer = intake.numbered(df).writeStream.foreachBatch(work)
    writer = writer.option("checkpointLocation", place.location).queryName(query_name or pipeline.name)
    if trigger is not None:
        writer = writer.trigger(**_trigger(trigger))
    return writer.start()


def _trigger(given: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    return {"availableNow": True} if given == "available now" else {"processingTime": given}


def _check_ends_late(df: "DataFrame", note: _Note, trigger: str | dict[str, Any] | None) -> None:
    """Refuse "available now" where Spark 4.0 and 4.1 would end the query before it has taken what is there."""
    if trigger is None or "availableNow" not in _trigger(trigger):
        return
    if is_set(df.sparkSession, WRAPS_SOURCES):
        return
    with contextlib.redirect_stdout(io.StringIO()) as plan:
        df.explain(mode="extended")  # the one way to ask for the sources, through Connect too
    if note.ticks or "inturn" in plan.getvalue():
        raise unwrapped('trigger="available now" with a queue or with a gap policy that has a time')


def _ticked_us(checkpoint: Storage) -> int:
    """The last tick that a checkpoint has planned: our source is the last one, each has a line of its own."""
    names = [name.rsplit("/", 1)[-1] for name in checkpoint.names("offsets")]
    last = max((int(name) for name in names if name.isdigit()), default=None)
    data = checkpoint.read(f"offsets/{last}") if last is not None else None
    return int(msgspec.json.decode(data.splitlines()[-1])["us"]) if data else 0


def _storage_of(checkpoint: str | os.PathLike[str]) -> Storage:
    try:
        return storage(checkpoint)
    except StoreError as error:
        msg = f"checkpoint={os.fspath(checkpoint)!r} is on a filesystem that is not known here; use a path, s3:// or gs://"
        raise InputError(msg) from error


def _note_of(checkpoint: Storage, pipeline: Pipeline) -> _Note:
    """What we know of the stream that a checkpoint belongs to; made with the checkpoint."""
    timed = pipeline.gap_timeout_us is not None
    data = checkpoint.read(_NOTE)
    ticks = timed and has_python_sources()
    if data is None:
        if checkpoint.names("offsets"):
            msg = f"{checkpoint.location} is the checkpoint of a query that is not inturn's; name a new one"
            raise InputError(msg)
        checkpoint.create(_NOTE, msgspec.json.encode(_Note(uuid.uuid4().hex, pipeline.name, ticks)))
        data = checkpoint.read(_NOTE) or b""
    note = msgspec.json.decode(data, type=_Note)
    if note.pipeline != pipeline.name:
        msg = f"{checkpoint.location} is the checkpoint of pipeline {note.pipeline!r}, not {pipeline.name!r}"
        raise InputError(msg + "; name one of its own")
    if timed and not note.ticks:
        msg = "%s: the gap policy had no time when the checkpoint %s was made, or Spark was older than 4.0: "
        log.warning(msg + "waits end when messages come, not before", pipeline.name, checkpoint.location)
    return note


def _check_not_ahead(checkpoint: Storage, run: str, stepper: Stepper) -> None:
    """Refuse a checkpoint that says "done" of micro-batches that the store does not have."""
    names = (name.rsplit("/", 1)[-1] for name in checkpoint.names("commits"))
    done = max((int(name) for name in names if name.isdigit()), default=-1)
    known = _known(stepper.last, run)
    if done > known:
        there = f"only those up to {known}" if known >= 0 else "none of its micro-batches"
        msg = (
            f"the checkpoint {checkpoint.location} has finished micro-batch {done}, but the store "
            f"{stepper.store.location} has {there}; one of them was replaced. Put back the store that belongs to it, "
            "or start with a new checkpoint: what the store has applied is not applied twice"
        )
        raise StoreMismatch(msg)


def _cores(df: "DataFrame") -> int | None:
    """How many tasks can run at once: more only cost more, as micro-batches are small. Connect does not tell."""
    context = getattr(df.sparkSession, "sparkContext", None)
    return context.defaultParallelism if context else None


def _plan_once(df: "DataFrame") -> None:
    """Spare Spark to plan a step again when its shuffle is done: nothing about it is left open.

    A query has a session of its own, so nobody else is touched. Through Connect it cannot be told.
    """
    spark = df.sparkSession
    if hasattr(spark, "sparkContext"):
        spark.conf.set("spark.sql.adaptive.enabled", "false")


def _known(last: Manifest | None, run: str) -> int:
    return last.batches.get(run, -1) if last else -1


def _plan_of(checkpoint: str, batch_id: int) -> str:
    """The digest of what Spark has planned for a micro-batch, with the time when it did; empty if it is not written."""
    data = storage(checkpoint).read(f"offsets/{batch_id}")
    return hashlib.sha256(data).hexdigest()[:32] if data else ""


class MicroBatches:
    """What Spark calls with each micro-batch, on the driver, or, through Connect, in a process beside the server.

    Args:
        stepper: what takes the store forward; made anew where this has travelled to another process.
        intake: how the messages come to the tasks.
        run: the stream's id.
        checkpoint: where Spark writes what it has planned.
        outputs_format: see :func:`stream`.
    """

    def __init__(self, stepper: Stepper, intake: Intake, run: str, checkpoint: str, outputs_format: str) -> None:
        self._checkpoint = checkpoint
        self._pipeline, self._store = stepper.shipped, stepper.store.location
        self._intake, self._run, self._outputs_format = intake, run, outputs_format
        self._stepper: Stepper | None = stepper
        self._tasks: int | None = None

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        """Take the micro-batch as the next step, unless the store has it already.

        Raises:
            StoreMismatch: if the store lacks the micro-batch before, or has taken other messages under this number.
            InturnError: see :func:`inturn.spark.batch`.
        """
        if self._stepper is None:
            pipeline = ship.loads(self._pipeline)
            self._stepper = Stepper(pipeline, self._store, outputs_format=self._outputs_format)
        stepper = self._stepper
        last = stepper.refresh()
        known, plan = _known(last, self._run), _plan_of(self._checkpoint, batch_id)
        if batch_id <= known:
            self._check_same(batch_id, plan, last)
            log.info("%s: micro-batch %d is in the store already", stepper.pipeline.name, batch_id)
            return
        if batch_id > known + 1:
            msg = f"micro-batch {batch_id} comes, but the store {self._store} knows only those up to {known}"
            raise StoreMismatch(msg + "; it was replaced while the stream ran")
        if self._tasks is None:
            _plan_once(df)
            self._tasks = _cores(df)
        report = stepper.step(df, self._intake, micro_batch=MicroBatch(self._run, batch_id, plan), tasks=self._tasks)
        log.info("%s", report)

    def _check_same(self, batch_id: int, plan: str, last: Manifest | None) -> None:
        """See that a micro-batch that the store has is the one that comes again, as after a crash.

        Raises:
            StoreMismatch: if the checkpoint was put back from an older copy, or has lost its last files: it has planned
                other messages under the numbers of those, and they would be passed over.
        """
        known = _known(last, self._run)
        applied = last.plans.get(self._run, "") if last else ""
        if batch_id == known and (plan == applied or not plan or not applied):
            return
        msg = (
            f"the checkpoint {self._checkpoint} is at micro-batch {batch_id}, but the store {self._store} has taken "
            f"those up to {known}, with other messages: the checkpoint was put back from an older copy. Put back the "
            "one that belongs to the store, or start with a new one: what the store has applied is not applied twice"
        )
        raise StoreMismatch(msg)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made anew where it runs."""
        return {**vars(self), "_stepper": None}
