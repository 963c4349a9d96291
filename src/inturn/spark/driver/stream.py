"""A pipeline as a stream: each micro-batch is one step of the store, as with a batch.

Spark numbers micro-batches, and repeats a number after a crash. The store records the last micro-batch of each stream
that wrote to it. So a repeated micro-batch is skipped, and one that does not match the store is refused.
"""

import contextlib
import datetime as dt
import hashlib
import io
import os
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from inturn.core.arguments import check_type
from inturn.core.errors import InputError, StoreError, StoreMismatch
from inturn.core.pipeline.definition import Pipeline
from inturn.core.values.instant import instant_us
from inturn.spark import pickling
from inturn.spark.columns.dataframe import is_enabled
from inturn.spark.driver.input import StepInput
from inturn.spark.driver.publishing import Publishing
from inturn.spark.driver.step import MicroBatch, Stepper, log
from inturn.spark.tables.manifest import Manifest
from inturn.spark.tables.storage import Storage, storage
from inturn.spark.versions import WRAPS_SOURCES, has_python_sources, has_read_limits, lacking, unwrapped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_NOTE = "inturn.json"
"""The file in a checkpoint that identifies the stream."""
_APPLIED_ONCE = "messages that the store has applied are not applied again"


class _CheckpointNote(msgspec.Struct, frozen=True):
    """The content of inturn's file in a checkpoint.

    Attributes:
        stream_id: the stream's id in stores; a new checkpoint has a new id.
        ticks: whether the query has inturn's tick source; Spark does not let the number of sources change.
    """

    stream_id: str = msgspec.field(name="run")
    pipeline: str
    ticks: bool = True


def stream(  # noqa: PLR0913 - options by name, each with a default
    pipeline: Pipeline,
    df: "DataFrame",
    *,
    store: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    trigger: str | dict[str, Any] | None = None,
    buckets: int | None = None,
    outputs_format: str = "parquet",
    states_format: str | None = None,
    states_to: str | None = None,
    query_name: str | None = None,
) -> "StreamingQuery":
    """Apply a streaming DataFrame of messages step by step, exactly once despite crashes.

    Batches and streams may use the same store: a message that both read is applied once. If the gap policy has a time,
    or ``Timestamp`` an ``idle``, waits end on time and decisions are taken at once, even while no messages arrive.
    Otherwise, and on Spark 3.5, both happen with the next messages. The wait of an idle group starts over with each
    stream, which first has to read the messages that arrived in between. ``"available now"`` releases nothing of an
    idle group: call :func:`advance` once it has ended.

    Args:
        pipeline: the definition.
        df: the messages, from any streaming source; an option of the source limits a micro-batch.
        store: a directory that the driver and all workers can access, or s3:// or gs://; created if absent.
        checkpoint: Spark's checkpoint, used by this query only; a path, or s3:// or gs://.
        trigger: ``"available now"`` applies the available messages and ends; a time such as ``"10 seconds"`` is the
            interval between micro-batches; a dict is passed to ``DataStreamWriter.trigger``; None runs without a pause.
        buckets: the number of slices into which a new store divides its groups; see :func:`inturn.spark.batch`.
        outputs_format: ``delta`` also publishes the outputs as a Delta table, in ``data/outputs`` of the store.
        states_format: ``delta`` publishes the states as a Delta table, in ``states`` of the store.
        states_to: a table of PostgreSQL that has the states too: ``postgresql://…#TABLE``.
        query_name: the query's name in Spark; default: the pipeline's name.

    Returns:
        The running query. If an error ends it, its ``exception()`` returns the error; the errors are those of
        :func:`inturn.spark.batch`.

    Raises:
        InputError: if the DataFrame does not fit the pipeline, or the checkpoint belongs to another query.
        StoreMismatch: if the store belongs to another pipeline, or lacks micro-batches that the checkpoint finished.
        StoreError: if the store or the checkpoint cannot be used.
        StateError: if the state type no longer fits the store.
        SetupError: if the pipeline cannot be sent to the workers, a package is missing, or this Spark is too old for
            the checkpoint or the trigger.
    """
    step_input = StepInput.of(pipeline, df, streaming=True)
    publishing = Publishing(outputs_format, states_format, states_to)
    stepper = Stepper(pipeline, store, buckets=buckets, publishing=publishing)
    place = _storage_of(checkpoint)
    note = _note_of(place, pipeline)
    _check_not_ahead(place, note.stream_id, stepper)
    if isinstance(trigger, str):
        trigger = {"availableNow": True} if trigger == "available now" else {"processingTime": trigger}
    ends = trigger is not None and "availableNow" in trigger
    work = MicroBatches(stepper, step_input, note.stream_id, place.location, publishing, ends=ends)
    if note.ticks and not has_python_sources():
        instead = f"upgrade Spark, or start with a new checkpoint: {_APPLIED_ONCE}"
        raise lacking(f"the checkpoint {place.location}, in which waits end without messages,", "4.0", instead)
    if ends and has_python_sources() and not has_read_limits():
        _check_ends_late(df, note)
    if note.ticks:
        from inturn.spark.driver.tick_source import with_tick_source  # not every PySpark can load it

        ticked_us = 0 if has_read_limits() else _last_tick_us(place)
        df = with_tick_source(
            df, stepper.store.location, pipeline.wait_us, ticked_us, waits_begin_now=pipeline.order.has_times
        )
    writer = step_input.with_numbered_columns(df).writeStream.foreachBatch(work)
    writer = writer.option("checkpointLocation", place.location).queryName(query_name or pipeline.name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.start()


def _check_ends_late(df: "DataFrame", note: _CheckpointNote) -> None:
    """Refuse "available now" where Spark 4.0 and 4.1 would end the query before it has read all available messages."""
    if is_enabled(df.sparkSession, WRAPS_SOURCES):
        return
    with contextlib.redirect_stdout(io.StringIO()) as plan:
        df.explain(mode="extended")  # the only way to list the sources that works through Connect too
    if note.ticks or "inturn" in plan.getvalue():
        raise unwrapped('trigger="available now" with a queue or with a gap policy that has a time')


def _last_tick_us(checkpoint: Storage) -> int:
    """Return the last tick that a checkpoint has planned; each source has a line, and the tick source's is the last."""
    data = checkpoint.read(f"offsets/{_last_number(checkpoint, 'offsets')}")
    return int(msgspec.json.decode(data.splitlines()[-1])["us"]) if data else 0


def _last_number(checkpoint: Storage, folder: str) -> int:
    """Return the greatest number of a micro-batch that is a file's name; -1 if there is none."""
    names = (name.rsplit("/", 1)[-1] for name in checkpoint.names(folder))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _storage_of(checkpoint: str | os.PathLike[str]) -> Storage:
    check_type("checkpoint", checkpoint, (str, os.PathLike), "the path of a directory, or an s3:// or gs:// URL")
    try:
        return storage(checkpoint)
    except StoreError as error:
        msg = f"checkpoint={os.fspath(checkpoint)!r} is on an unsupported filesystem; use a path, s3:// or gs://"
        raise InputError(msg) from error


def _note_of(checkpoint: Storage, pipeline: Pipeline) -> _CheckpointNote:
    """Return inturn's note in a checkpoint; write it if the checkpoint is new."""
    timed = pipeline.wait_us is not None
    data = checkpoint.read(_NOTE)
    ticks = timed and has_python_sources()
    if data is None:
        if checkpoint.names("offsets"):
            raise InputError(f"{checkpoint.location} is the checkpoint of a query of another library; use a new one")
        checkpoint.create(_NOTE, msgspec.json.encode(_CheckpointNote(uuid.uuid4().hex, pipeline.name, ticks)))
        data = checkpoint.read(_NOTE) or b""
    note = msgspec.json.decode(data, type=_CheckpointNote)
    if note.pipeline != pipeline.name:
        msg = f"{checkpoint.location} is the checkpoint of pipeline {note.pipeline!r}, not {pipeline.name!r}"
        raise InputError(msg + "; each pipeline needs its own checkpoint")
    if timed and not note.ticks:
        msg = (
            "%s: waits end only when messages arrive: when the checkpoint %s was created, the gap policy and idle= had "
        )
        log.warning(msg + "no time, or Spark was older than 4.0", pipeline.name, checkpoint.location)
    return note


def _check_not_ahead(checkpoint: Storage, stream_id: str, stepper: Stepper) -> None:
    """Refuse a checkpoint that has finished micro-batches that the store lacks."""
    done, known = _last_number(checkpoint, "commits"), _last_stored(stepper.last, stream_id)
    if done > known:
        steps = f"only those up to {known}" if known >= 0 else "none of its micro-batches"
        raise StoreMismatch(
            f"the checkpoint {checkpoint.location} has finished micro-batch {done}, but the store "
            f"{stepper.store.location} has {steps}; one of the two was replaced. Restore the store that belongs to the "
            f"checkpoint, or start with a new checkpoint: {_APPLIED_ONCE}"
        )


def _last_stored(last: Manifest | None, stream_id: str) -> int:
    return last.batches.get(stream_id, -1) if last else -1


def _plan_of(checkpoint: str, batch_id: int) -> str:
    """Return the digest of Spark's plan for a micro-batch, including the time of planning; empty if there is none."""
    data = storage(checkpoint).read(f"offsets/{batch_id}")
    return hashlib.sha256(data).hexdigest()[:32] if data else ""


class MicroBatches:
    """The function for ``foreachBatch``; it runs on the driver or, through Connect, in a process next to the server.

    The given stepper is used on the driver only: another process creates its own.
    """

    def __init__(
        self,
        stepper: Stepper,
        step_input: StepInput,
        stream_id: str,
        checkpoint: str,
        publishing: Publishing,
        *,
        ends: bool,
    ) -> None:
        self._checkpoint = checkpoint
        self._pipeline, self._store = stepper.pickled, stepper.store.location
        self._step_input, self._stream_id, self._publishing = step_input, stream_id, publishing
        self._stepper: Stepper | None = stepper
        self._since_us = None if ends else instant_us(dt.datetime.now(dt.UTC))
        self._tasks: int | None = None

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        """Apply the micro-batch as the next step, unless the store already has it.

        Raises:
            StoreMismatch: if the store lacks the previous micro-batch, or has other messages under this number.
        """
        if self._stepper is None:
            pipeline = pickling.loads(self._pipeline)
            self._stepper = Stepper(pipeline, self._store, publishing=self._publishing)
        stepper = self._stepper
        last = stepper.refresh()
        known, plan = _last_stored(last, self._stream_id), _plan_of(self._checkpoint, batch_id)
        if batch_id <= known:
            self._check_same(batch_id, plan, last)
            log.info("%s: micro-batch %d is already in the store", stepper.pipeline.name, batch_id)
            return
        if batch_id > known + 1:
            msg = f"received micro-batch {batch_id}, but the store {self._store} has only those up to {known}"
            raise StoreMismatch(msg + "; the store was replaced while the stream ran")
        context = getattr(df.sparkSession, "sparkContext", None)  # None through Connect
        if self._tasks is None and context is not None:
            # More tasks than can run at once only add cost to small micro-batches. And there is nothing to gain from
            # planning a step again after its shuffle. A query has its own session, so other queries are not affected.
            self._tasks = context.defaultParallelism
            df.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        stepper.step(
            df,
            self._step_input,
            micro_batch=MicroBatch(self._stream_id, batch_id, plan, self._since_us),
            tasks=self._tasks,
        )

    def _check_same(self, batch_id: int, plan: str, last: Manifest | None) -> None:
        """Check that a repeated micro-batch is the one that the store has, as after a crash.

        If the checkpoint was restored from an older copy, or has lost its last files, it has planned other messages
        under the same numbers, and these would be skipped.
        """
        known = _last_stored(last, self._stream_id)
        applied = last.plans.get(self._stream_id, "") if last else ""
        if batch_id == known and (plan == applied or not plan or not applied):
            return
        raise StoreMismatch(
            f"the checkpoint {self._checkpoint} is at micro-batch {batch_id}, but the store {self._store} has applied "
            f"those up to {known}, with other messages: the checkpoint was restored from an older copy. Restore the "
            f"checkpoint that belongs to the store, or start with a new one: {_APPLIED_ONCE}"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the stepper: another process creates its own."""
        return {**vars(self), "_stepper": None}
