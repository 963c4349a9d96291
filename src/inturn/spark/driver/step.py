"""A step on Spark: it reads the tables of the last step and new messages, and writes the tables of this step.

The stages of a step, and what a crash after each leaves::

    plan      number, time, decisions and attempt of the step, from the last manifest    nothing
    tasks     each writes the files of its slice and returns their names and counts      files that no manifest names
    commit    creates the manifest, with all names and counts, unless the step exists    the committed step
    archive   moves taken decisions to decisions/taken                                   decisions in new/, not pending
    publish   updates the Delta tables and the table of PostgreSQL                       tables behind the store

The manifest is all that a step commits: states, held messages, outputs, rejected messages, applied decisions, the
stream's position, the time and the counts. The next step repeats what a crash left out of the last two stages. What
never happens:

- A step from states other than those of the step before it: its number is the last one plus one, and of two writers
  that began from the same step one gets StoreConflict.
- A file of a failed or repeated task in a manifest: a name has the task's attempt, and only results that reached the
  driver are in the manifest.
- A time that goes back, so that a wait becomes longer.
"""

import datetime as dt
import logging
import os
import time
import uuid
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from inturn.core import limits
from inturn.core.errors import HandlerError
from inturn.core.pipeline import versions
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.handler import check_result, fingerprint
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.replay import check_final
from inturn.core.values.instant import instant_us
from inturn.faults import reach
from inturn.spark import pickling
from inturn.spark.columns.names import GROUP
from inturn.spark.columns.state_codec import PreviousFormat, StateCodec
from inturn.spark.driver.input import StepInput
from inturn.spark.driver.job import run_tasks
from inturn.spark.driver.publishing import Publishing
from inturn.spark.executor.plan import Plan, SliceResult, brief, files_of, total_counts
from inturn.spark.executor.task import run_task
from inturn.spark.tables.manifest import LEVEL_TABLES, AppliedDecisions, Manifest, SparkStore, StoreLevel, new_identity
from inturn.spark.tables.merge import levels_to_merge
from inturn.telemetry import measures, observer
from inturn.telemetry.events import EventLogger
from inturn.telemetry.families import verdict_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("inturn.spark")
_EVENTS = EventLogger("spark")


class MicroBatch(NamedTuple):
    """A micro-batch: the stream's id, the number in Spark, and the digest of the checkpoint's plan, if known.

    ``since_us`` is the start of the stream: older messages may be in later micro-batches. None: it ends with them.
    """

    stream_id: str
    number: int
    plan: str
    since_us: int | None = 0


@dataclass(frozen=True)
class Report:
    """The result of a step.

    Attributes:
        pipeline: the pipeline's name.
        store: the store's location.
        step: the step's number in the store.
        counts: the number of messages by outcome.
        seconds: the duration, in seconds of wall time.
    """

    pipeline: str
    store: str
    step: int
    counts: Counts
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        counts = self.counts
        rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.rejected.items()))
        return (
            f"{self.pipeline}, step {self.step}: received {counts.received} + released {counts.released} = "
            f"applied {counts.applied} + duplicate {counts.duplicate} + stale {counts.stale} + held {counts.held} + "
            f"rejected {sum(counts.rejected.values())}" + (f" ({rejected})" if rejected else "")
        )


def batch(  # noqa: PLR0913 - options by name, each with a default
    pipeline: Pipeline,
    df: "DataFrame",
    *,
    store: str | os.PathLike[str],
    buckets: int | None = None,
    outputs_format: str = "parquet",
    states_format: str | None = None,
    states_to: str | None = None,
    now: dt.datetime | None = None,
    final: bool = False,
) -> Report:
    """Apply a DataFrame of messages as one step; messages that earlier steps applied are not applied again.

    Args:
        pipeline: the definition.
        df: the messages; its session runs the step and is not changed.
        store: a directory that the driver and all workers can access; created if absent.
        buckets: the number of slices into which a new store divides its groups, and so the maximum number
            of parallel tasks; about twice the cores is good. An existing store keeps its number.
        outputs_format: ``delta`` also publishes the outputs as a Delta table, in ``data/outputs`` of the store.
        states_format: ``delta`` publishes the states as a Delta table, in ``states`` of the store.
        states_to: a table of PostgreSQL that has the states too: ``postgresql://…#TABLE``.
        now: the time of the step, from which waits are measured; default: the clock.
        final: for ``Timestamp``: no more messages will come, so those that wait for a later time are released.

    Returns:
        The report, with the number of messages by outcome.

    Raises:
        InputError: if the DataFrame does not fit the pipeline.
        StateError: if the state type no longer fits the store, or a state cannot be stored.
        HandlerError: if the handler returned something that is not (state, outputs), and has not applied a
            message yet. Later on such a result parks the group.
        GapError: if a gap outlived its wait under ``then="fail"``.
        StoreConflict: if another writer committed the step first.
        StoreMismatch: if the store belongs to another pipeline or has a newer format.
        StoreError: if the store cannot be read or written.
        SetupError: if the workers lack a package or run another Python version, or the pipeline cannot be sent.

    After any of these, the step is discarded, except for a StoreError that names a table to publish to: then the step
    is committed, and the next one publishes it.
    """
    check_final(pipeline, final=final)
    step_input = StepInput.of(pipeline, df)
    publishing = Publishing(outputs_format, states_format, states_to)
    stepper = Stepper(pipeline, store, buckets=buckets, publishing=publishing)
    return stepper.step(step_input.with_numbered_columns(df), step_input, now=now, final=final)


def advance(
    pipeline: Pipeline, *, store: str | os.PathLike[str], now: dt.datetime | None = None, final: bool = False
) -> Report:
    """Run a step without messages, in this process and without Spark: apply decisions, and end expired waits.

    Args:
        pipeline: the definition.
        store: an existing store.
        now: the time of the step; default: the clock.
        final: see :func:`batch`; for the end of a stream. Idle groups are released without it too.

    Raises:
        StoreError: if there is no store.
        InturnError: as for :func:`batch`.
    """
    check_final(pipeline, final=final)
    SparkStore(store).require_identity()
    return Stepper(pipeline, store, without_spark=True).step(now=now, final=final)


class Stepper:
    """A writer of one store's steps; arguments and errors are those of :func:`batch`.

    Args:
        publishing: the tables that follow the store; None: no tables.
        without_spark: whether Spark is not used, so that the pipeline need not be pickled.

    Attributes:
        pickled: the pickled pipeline; empty if ``without_spark``.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        store: str | os.PathLike[str],
        *,
        buckets: int | None = None,
        publishing: Publishing | None = None,
        without_spark: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self._states = StateCodec(pipeline)
        self._states.pack([pipeline.first_state()])
        self.pickled = b"" if without_spark else pickling.dumps(pipeline)
        self._fingerprint = fingerprint(pipeline.handler)
        self.store = SparkStore(store)
        self._buckets = self.store.open(new_identity(pipeline, buckets), buckets=buckets).buckets
        self.last = self.store.latest()
        self._lost_logged = self._lost_checked = False
        self._check()
        self._publishing = publishing or Publishing()
        self._publish()

    def refresh(self) -> Manifest | None:
        """Return the last committed step, by any writer."""
        known, self.last = self.last, self.store.latest(self.last)
        if known is not self.last:
            self._check()
        return self.last

    def _check(self) -> None:
        """Check that the pipeline can continue from the states of the last step."""
        last = self.last
        if last is not None:
            if last.shape is None and last.version == self.pipeline.version:
                self._states.check(last.state)
            versions.check(self.pipeline, last.version, last.shape)

    def _warn_of_lost_steps(self) -> None:
        """Log once that manifests of earlier steps are lost; the next step does not need them.

        The first step lists all. The others check for the oldest, which a rule that deletes old files removes first: a
        listing in each step would cost more with every step.
        """
        last = self.last
        if last is None or self._lost_logged or (self._lost_checked and self.store.has_step(1)):
            return
        self._lost_checked = True
        self._lost_logged = len(self.store.found_steps()) < last.step

    def _publish(self) -> None:
        """Publish committed steps; the next step publishes those that a crash left unpublished."""
        self._publishing.publish(self.store, self.pipeline.name)

    def step(
        self,
        df: "DataFrame | None" = None,
        step_input: StepInput | None = None,
        *,
        now: dt.datetime | None = None,
        final: bool = False,
        micro_batch: MicroBatch | None = None,
        tasks: int | None = None,
    ) -> Report:
        """Apply the messages of a DataFrame, or none, as the next step.

        Args:
            df: the messages, with numbered columns; without them the step runs in this process.
            step_input: the mapping of the messages to the tasks.
            now: the time of the step; default: the clock, but not before the time of the last step.
            final: see :func:`batch`.
            micro_batch: the micro-batch of the messages, if they are from a stream.
            tasks: the maximum number of tasks, if fewer than the buckets; each task has a cost.
        """

        def run_step() -> Report:
            return self._step(df, step_input, now, final, micro_batch, tasks)

        if observer.active is None:
            report = run_step()
        else:
            with observer.active.step(self.pipeline.name) as observed:
                report = run_step()
                observed.answered(report)
        if measures.is_on:
            measures.count_step(report.pipeline, report.seconds, dict(verdict_counts(asdict(report.counts))))
        log.info("%s", report)
        return report

    def _step(
        self,
        df: "DataFrame | None",
        step_input: StepInput | None,
        now: dt.datetime | None,
        final: bool,  # noqa: FBT001 - private
        micro_batch: MicroBatch | None,
        tasks: int | None,
    ) -> Report:
        began = time.monotonic()
        last = self.refresh()
        self._warn_of_lost_steps()
        plan = self.plan(step_input, now, final=final, since_us=micro_batch.since_us if micro_batch else 0)
        plan = msgspec.structs.replace(plan, buckets=min(tasks or plan.buckets, plan.buckets))
        reach("before files")
        results = (
            [] if df is None or step_input is None else run_tasks(self.pipeline, df, step_input, plan, self.pickled)
        )
        if not results:
            results = [run_task(plan, self.pipeline, bucket, plan.attempt, []) for bucket in range(plan.buckets)]
        counts = total_counts(results)
        manifest = self._manifest(plan, results, counts, micro_batch, time.monotonic() - began)
        reach("before commit")
        self.store.commit(manifest)
        reach("after commit")
        self.store.archive(manifest)
        self.last = manifest
        self._publish()
        self._log_changes(manifest, last.parked if last else 0)
        if last is not None and last.handler != manifest.handler:
            log.warning("%s: the handler's code has changed since step %d", self.pipeline.name, last.step)
        return Report(self.pipeline.name, self.store.location, plan.step, counts, time.monotonic() - began)

    def _log_changes(self, manifest: Manifest, parked: int) -> None:
        """Log the parked and resumed groups and the rejected messages of a committed step."""
        name = self.pipeline.name
        about: dict[str, Any] = {"pipeline": name, "step": manifest.step}
        if manifest.parked > parked:
            text = "step %(step)s of %(pipeline)r: parked groups rose from %(before)s to %(parked)s"
            _EVENTS.warning("park", name, text, parked=manifest.parked, before=parked, **about)
        elif manifest.parked < parked:
            text = "step %(step)s of %(pipeline)r: groups were resumed; %(parked)s are still parked"
            _EVENTS.info("resume", name, text, parked=manifest.parked, **about)
        for reason, count in manifest.counts["rejected"].items():
            event = "conflict" if reason == "conflict" else "reject"
            text = "step %(step)s of %(pipeline)r: %(count)s messages were rejected: %(reason)s"
            _EVENTS.warning(event, name, text, count=count, reason=reason, **about)

    def plan(
        self, step_input: StepInput | None, now: dt.datetime | None, *, final: bool, since_us: int | None = 0
    ) -> Plan:
        """Return the plan of the next step: its time, its names and its decisions; ``since_us``: see MicroBatch."""
        last = self.last
        now_us = instant_us(now or dt.datetime.now(dt.UTC))
        if now is None and last is not None:
            now_us = max(now_us, last.now_us)  # a clock that goes backwards must not make waits longer
        older, levels = self._previous_format(), last.levels if last else []
        pending = self.store.pending_decisions(last, limits.DECISIONS_AT_ONCE)
        merge = len(levels) if older is not None else levels_to_merge(levels) if step_input else 0
        return Plan(
            location=self.store.location,
            step=last.step + 1 if last else 1,
            now_us=now_us,
            final=final,
            is_quiet=since_us is not None and now_us - since_us >= (self.pipeline.wait_us or 0),
            buckets=self._buckets,
            attempt=uuid.uuid4().hex[:12],
            columns=step_input.columns if step_input else list(self.pipeline.fields or self.pipeline.key_fields),
            levels=levels,
            merge=merge,
            decisions={name: brief(decision) for name, decision in pending.items()},
            group=step_input.group if step_input else GROUP,
            previous_format=older,
            has_places=step_input is not None and step_input.has_places,
        )

    def _previous_format(self) -> PreviousFormat | None:
        """Return the form of the last step's states, if an older version wrote them: all levels are merged then."""
        last = self.last
        if last is None or last.version == self.pipeline.version:
            return None
        return PreviousFormat(last.version, last.state, last.is_record)

    def _has_applied(self) -> bool:
        """Return whether the handler has applied a message in one of the last steps, all of which it made."""
        for number in reversed(self.store.found_steps()):
            step = self.store.manifest(number)
            if step.handler != self._fingerprint or step.counts["applied"]:
                return step.handler == self._fingerprint
        return False

    def _manifest(
        self,
        plan: Plan,
        results: list[SliceResult],
        counts: Counts,
        micro_batch: MicroBatch | None,
        seconds: float,
    ) -> Manifest:
        def least(name: str) -> int | None:
            return min((value for result in results if (value := getattr(result, name)) is not None), default=None)

        last, levels, files = self.last, plan.levels, partial(files_of, results)
        wrong = next((HandlerError(result.wrong) for result in results if result.wrong), None)
        check_result(wrong, counts.applied, self._has_applied)
        batches, plans = (dict(last.batches), dict(last.plans)) if last else ({}, {})
        if micro_batch:
            batches[micro_batch.stream_id], plans[micro_batch.stream_id] = micro_batch.number, micro_batch.plan
        if plan.merge:
            merged = StoreLevel(levels[-1].step, *(files(f"merged_{table}") for table in LEVEL_TABLES))
            levels = [*levels[: -plan.merge], merged]
        level = StoreLevel(plan.step, *map(files, LEVEL_TABLES))
        reported = {name: void for result in results for name, void in result.verdicts.items()}
        verdicts = {name: reported.get(name, "the group does not exist") for name in plan.decisions}
        return Manifest(
            step=plan.step,
            now_us=plan.now_us,
            committed=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            seconds=round(seconds, 3),
            writer=plan.attempt,
            counts=asdict(counts),
            handler=self._fingerprint,
            state=self._states.signature,
            levels=[*levels, level] if level.groups else levels,
            outputs=files("outputs"),
            rejected=files("rejected"),
            held=(last.held if last else 0) + counts.held - counts.released,
            parked=(last.parked if last else 0) + sum(result.parked for result in results),
            oldest_us=least("oldest_us"),
            waiting_us=least("waiting_us"),
            batches=batches,
            plans=plans,
            decisions=AppliedDecisions.from_verdicts(verdicts),
            policy=self.pipeline.gap_policy.then if self.pipeline.wait_us is not None else "",
            wait_us=self.pipeline.wait_us,
            version=self.pipeline.version,
            shape=self.pipeline.shape,
        )
