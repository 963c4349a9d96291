"""One step on Spark: the tables after the last step and new messages in, the tables of this step out."""

import contextlib
import datetime as dt
import hashlib
import inspect
import logging
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from inturn.core import errors, versions
from inturn.core.errors import InputError, InturnError, SetupError
from inturn.core.fold import Counts
from inturn.core.instant import instant_us
from inturn.core.order import Timestamp
from inturn.core.pipeline import Pipeline
from inturn.faults import reach
from inturn.spark import ship
from inturn.spark.chunk import GROUP
from inturn.spark.columns.codec import StateCodec
from inturn.spark.columns.shape import Older
from inturn.spark.intake import Intake
from inturn.spark.tables.manifest import File, Level, Manifest, Store, Taken, about
from inturn.spark.tables.merge import levels_to_merge
from inturn.spark.task import RESULT, Plan, Result, Task, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("inturn")

_MISSING = r"No module named '(inturn|msgspec|numpy|pandas|pyarrow|pyspark|xxhash)\b|inturn\.spark needs (\w+);"
"""What a worker says whose Python lacks inturn, or what it needs."""


class MicroBatch(NamedTuple):
    """A micro-batch of a stream.

    Attributes:
        run: the stream's id.
        number: as Spark counts them.
        plan: the digest of what the checkpoint says that it takes; empty if that is not known.
    """

    run: str
    number: int
    plan: str


@dataclass(frozen=True)
class Report:
    """What a step did.

    Attributes:
        pipeline: the pipeline's name.
        store: where the tables are.
        step: the step's number in the store.
        counts: where every message went.
        seconds: how long it took, in seconds of wall time.
    """

    pipeline: str
    store: str
    step: int
    counts: Counts
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        counts = self.counts
        rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.rejected.items()))
        return (
            f"{self.pipeline}, step {self.step}: received {counts.received} + released {counts.released} = "
            f"applied {counts.applied} + duplicate {counts.duplicate} + stale {counts.stale} + held {counts.held} + "
            f"rejected {sum(counts.rejected.values())}" + (f" ({rejected})" if rejected else "")
        )


def batch(
    pipeline: Pipeline,
    df: "DataFrame",
    *,
    store: str | os.PathLike[str],
    buckets: int | None = None,
    outputs_format: str = "parquet",
    now: dt.datetime | None = None,
    final: bool = False,
) -> Report:
    """Take a DataFrame of messages as one step: what was applied before stays applied, and once.

    Args:
        pipeline: the definition.
        df: the messages; its session does the work and is left as it is.
        store: a directory that the driver and all workers see; made if it is not there.
        buckets: into how many slices a new store divides its groups, the most tasks that can work at once;
            about twice the cores is good. An existing store keeps its number.
        outputs_format: ``delta`` also publishes the outputs as a Delta table, in ``data/outputs`` of the store.
        now: the time of the step, by which waits are measured; default is the clock.
        final: for ``Timestamp``: nothing more will come, so what waits for a later time is released.

    Returns:
        Where every message went.

    Raises:
        InputError: if the DataFrame does not fit the pipeline.
        StateError: if the state type no longer fits the store, or a state cannot be stored.
        HandlerError: if the handler returned something that is not (state, outputs).
        GapError: if a gap outlived its wait under ``then="fail"``.
        StoreConflict: if another writer committed the step first.
        StoreMismatch: if the store is another pipeline's, or of a newer format.
        StoreError: if the store cannot be read or written.
        SetupError: if the workers lack something.
        In each case nothing of the step is kept.
    """
    if final and not isinstance(pipeline.order, Timestamp):
        msg = f"final=True releases what waits for a later time; {type(pipeline.order).__name__} has no times"
        raise InputError(msg)
    intake = Intake.of(pipeline, df)
    stepper = Stepper(pipeline, store, buckets=buckets, outputs_format=outputs_format)
    return stepper.step(intake.numbered(df), intake, now=now, final=final)


def settle(pipeline: Pipeline, *, store: str | os.PathLike[str], now: dt.datetime | None = None) -> Report:
    """One step without messages, in this process and without Spark: take decisions, end the waits that are over.

    Args:
        pipeline: the definition.
        store: an existing store.
        now: the time of the step; default is the clock.

    Raises:
        StoreError: if there is no store.
        InturnError: as for :func:`batch`.
    """
    Store(store).known()
    return Stepper(pipeline, store, alone=True).step(now=now)


class Stepper:
    """Takes one store forward, step by step; for one writer.

    Args:
        pipeline: the definition.
        store: where the store is; made if it is not there.
        buckets: of a new store.
        outputs_format: ``delta`` also publishes the outputs as a Delta table.
        alone: no Spark will be used, so the pipeline need not travel.

    Attributes:
        shipped: the pipeline as it travels; empty if it need not.

    Raises:
        InturnError: see :func:`batch`.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        store: str | os.PathLike[str],
        *,
        buckets: int | None = None,
        outputs_format: str = "parquet",
        alone: bool = False,
    ) -> None:
        if outputs_format not in ("parquet", "delta"):
            msg = f"outputs_format={outputs_format!r}; expected 'parquet' or 'delta'"
            raise InputError(msg)
        self.pipeline = pipeline
        self._states = StateCodec(pipeline)
        self._states.pack([pipeline.first_state()])
        self.shipped = b"" if alone else ship.dumps(pipeline)
        self.store = Store(store)
        self._buckets = self.store.open(about(pipeline, buckets), buckets=buckets).buckets
        self.last = self.store.latest()
        self._check()
        self._delta = outputs_format == "delta"
        self._publish()

    def refresh(self) -> Manifest | None:
        """The last step that anybody committed."""
        known, self.last = self.last, self.store.latest(self.last)
        if known is not self.last:
            self._check()
        return self.last

    def _check(self) -> None:
        """See that the states of the last step can be gone on with."""
        last = self.last
        if last is not None:
            if last.shape is None and last.version == self.pipeline.version:
                self._states.check(last.state)
            versions.check(self.pipeline, last.version, last.shape)

    def _publish(self) -> None:
        """Bring the Delta table up to the committed steps; what a crash left out is published by the next step."""
        if self._delta:
            from inturn.spark.tables.delta import publish

            publish(self.store, self.pipeline.name)

    def step(
        self,
        df: "DataFrame | None" = None,
        intake: Intake | None = None,
        *,
        now: dt.datetime | None = None,
        final: bool = False,
        micro_batch: MicroBatch | None = None,
        tasks: int | None = None,
    ) -> Report:
        """Take the messages of a DataFrame, or none, as the next step.

        Args:
            df: the messages, with numbered columns; without them the step works in this process.
            intake: how they come to the tasks.
            now: the time of the step; default is the clock, but not before the step before.
            final: see :func:`batch`.
            micro_batch: that this is.
            tasks: work with fewer tasks than there are buckets; every task costs something.
        """
        began = time.monotonic()
        last = self.refresh()
        plan = self._plan(intake, now, final)
        if tasks is not None:
            plan = msgspec.structs.replace(plan, buckets=min(tasks, plan.buckets))
        reach("before files")
        results = [] if df is None or intake is None else _run(self.pipeline, df, intake, plan, self.shipped)
        if not results:
            results = self._alone(plan)
        counts = _total(results)
        manifest = self._manifest(plan, results, counts, micro_batch, time.monotonic() - began)
        reach("before commit")
        self.store.commit(manifest)
        reach("after commit")
        self.store.file_away(manifest)
        self.last = manifest
        self._publish()
        if last is not None and last.handler != manifest.handler:
            log.warning("%s: the handler is not the one of step %d", self.pipeline.name, last.step)
        return Report(self.pipeline.name, self.store.location, plan.step, counts, time.monotonic() - began)

    def _plan(self, intake: Intake | None, now: dt.datetime | None, final: bool) -> Plan:  # noqa: FBT001 - private
        last = self.last
        now_us = instant_us(now or dt.datetime.now(dt.UTC))
        if now is None and last is not None:
            now_us = max(now_us, last.now_us)  # a clock that goes backwards must not make waits longer
        older = self._older()
        return Plan(
            location=self.store.location,
            step=last.step + 1 if last else 1,
            now_us=now_us,
            final=final,
            buckets=self._buckets,
            attempt=uuid.uuid4().hex[:12],
            columns=intake.columns if intake else list(self.pipeline.fields or self.pipeline.key_fields),
            levels=last.levels if last else [],
            merge=self._levels_to_merge(older, intake),
            decisions=self.store.undecided(last),
            group=intake.group if intake else GROUP,
            older=older,
        )

    def _older(self) -> Older | None:
        """What is known of the states of the last step, if an older version of the pipeline wrote them."""
        last = self.last
        if last is None or last.version == self.pipeline.version:
            return None
        known = isinstance(last.shape, dict)
        return Older(last.version, last.state, "record" in last.shape if known else list(last.state) != ["state"])

    def _levels_to_merge(self, older: Older | None, intake: Intake | None) -> int:
        """How many levels the step merges: all, if their states are of an older version, so that none is left."""
        levels = self.last.levels if self.last else []
        if older is not None:
            return len(levels)
        return levels_to_merge(levels) if intake else 0

    def _alone(self, plan: Plan) -> list[Result]:
        return [run(plan, self.pipeline, each, plan.attempt, []) for each in range(plan.buckets)]

    def _manifest(
        self,
        plan: Plan,
        results: list[Result],
        counts: Counts,
        micro_batch: MicroBatch | None,
        seconds: float,
    ) -> Manifest:
        def files(table: str) -> list[File]:
            return [file for result in results for file in result.files.get(table, [])]

        last = self.last
        levels = plan.levels
        if plan.merge:
            merged = Level(levels[-1].step, files("merged_groups"), files("merged_held"))
            levels = [*levels[: -plan.merge], merged]
        level = Level(plan.step, files("groups"), files("held"))
        verdicts = {name: void for result in results for name, void in result.verdicts.items()}
        return Manifest(
            step=plan.step,
            now_us=plan.now_us,
            committed=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            seconds=round(seconds, 3),
            writer=plan.attempt,
            counts=asdict(counts),
            handler=fingerprint(self.pipeline),
            state=self._states.signature,
            levels=[*levels, level] if level.groups else levels,
            outputs=files("outputs"),
            rejected=files("rejected"),
            held=(last.held if last else 0) + counts.held - counts.released,
            parked=(last.parked if last else 0) + sum(result.parked for result in results),
            oldest_us=min((each.oldest_us for each in results if each.oldest_us is not None), default=None),
            waiting_us=min((each.waiting_us for each in results if each.waiting_us is not None), default=None),
            batches={
                **(last.batches if last else {}),
                **({micro_batch.run: micro_batch.number} if micro_batch else {}),
            },
            plans={**(last.plans if last else {}), **({micro_batch.run: micro_batch.plan} if micro_batch else {})},
            decisions=[Taken(name, verdicts.get(name, "there is no such group")) for name in plan.decisions],
            policy=self.pipeline.gap_policy.then if self.pipeline.gap_timeout_us is not None else "",
            wait_us=self.pipeline.gap_timeout_us,
            version=self.pipeline.version,
            shape=self.pipeline.shape,
        )


@contextlib.contextmanager
def _described(spark: "SparkSession", text: str) -> Iterator[None]:
    """What Spark's own pages say of the jobs; through Connect they cannot be told."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)


def _run(pipeline: Pipeline, df: "DataFrame", intake: Intake, plan: Plan, shipped: bytes) -> list[Result]:
    """The results of the tasks; none if there are no rows and Spark, as before 4.1, makes no task of that."""
    rows = intake.divided(df, plan.buckets).mapInArrow(Task(plan, shipped, list(intake.read)), RESULT)
    try:
        with _described(df.sparkSession, f"inturn {pipeline.name}: step {plan.step}"):
            results = [msgspec.json.decode(row.result, type=Result) for row in rows.collect()]
    except Exception as error:
        missing = re.search(_MISSING, str(error))
        if missing or "PYTHON_VERSION_MISMATCH" in str(error):
            context = getattr(df.sparkSession, "sparkContext", None)
            python = f"the workers' Python, {context.pythonExec}," if context else "the workers' Python"
            what = f"cannot import {missing[1] or missing[2]}" if missing else "is of another version than the driver's"
            msg = (
                f"{python} {what}; set PYSPARK_PYTHON to a Python that has inturn[spark] before the session starts, "
                f"here PYSPARK_PYTHON={sys.executable}; on a cluster install inturn[spark] for its workers, or send it "
                "with spark.addArtifacts or --py-files"
            )
            raise SetupError(msg) from error
        raise
    for result in results:
        if result.error is not None:
            name, text = result.error
            kind = getattr(errors, name, InturnError)
            raise kind(text)
    if len(results) != plan.buckets and (results or not df.isEmpty()):
        msg = f"{len(results)} tasks answered for {plan.buckets} buckets; this engine does not keep to repartitionById"
        raise InturnError(msg)
    return results


def _total(results: list[Result]) -> Counts:
    counts = Counts()
    for result in results:
        counts.add(result.counts)
    if not counts.balanced:
        msg = f"the counts do not balance, so nothing was committed; please report this: {counts}"
        raise InturnError(msg)
    return counts


def fingerprint(pipeline: Pipeline) -> str:
    """A short name of the handler's code, so that the steps table shows when it changed."""
    try:
        text = inspect.getsource(pipeline.handler)
    except (OSError, TypeError):
        code = getattr(pipeline.handler, "__code__", None)
        text = repr((code.co_code, code.co_consts, code.co_names)) if code else repr(type(pipeline.handler))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
