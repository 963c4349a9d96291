"""Dry runs of decisions about a store on Spark: the tasks of a step run in this process and write nothing."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from inturn.core.identity import TimelineEntry
from inturn.core.override import override
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.dry_run import DryRun
from inturn.core.pipeline.selection import DecisionDraft
from inturn.spark.columns.hashing import bucket_bounds
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.driver.step import Stepper
from inturn.spark.executor.decisions import Decisions
from inturn.spark.executor.kernel import Kernel
from inturn.spark.executor.plan import Plan, brief
from inturn.spark.tables.group_status import status_of
from inturn.spark.tables.levels import NONE_US, LevelReader
from inturn.spark.tables.manifest import Manifest
from inturn.spark.tables.sorted_files import StoreSlice
from inturn.spark.tables.writer import StepWriter

if TYPE_CHECKING:
    from inturn.core.pipeline.inspection import GroupStatus


def dry_run(
    pipeline: Pipeline, inspector: SparkInspector, draft: DecisionDraft, *, now: dt.datetime | None = None
) -> Iterator[DryRun]:
    """Yield the effect that each decision of a draft would have if a step with this pipeline applied it now.

    Args:
        pipeline: the pipeline, with the corrected handler.
        inspector: the store.
        draft: the decisions; see :meth:`inturn.core.pipeline.decision_service.DecisionService.prepare`.
        now: the time of the step; default: the clock.

    Raises:
        StoreMismatch: if the store belongs to another pipeline.
        StateError: if the state type no longer fits the store, or a state cannot be stored.
        HandlerError: if the handler is not pure, so that a state cannot be computed again.
    """
    yield from (DryRun(group, reason, None, None) for group, reason in draft.void.items())
    by_group = {decision.group: decision for decision in draft.decisions}
    plan = Stepper(pipeline, inspector.store.location, without_spark=True).plan(None, now, final=False)
    decisions = {name: decision for name, decision in plan.decisions.items() if decision.group in by_group}
    names = {decision.group: decision.name for decision in draft.decisions}
    decisions |= {decision.name: brief(decision) for decision in draft.decisions}
    plan = structs.replace(plan, decisions=decisions, merge=0)
    before = inspector.statuses(list(by_group))
    for bucket in range(plan.buckets):
        part = StoreSlice(inspector.store.files, *bucket_bounds(bucket, plan.buckets))
        slice_decisions, writer = _simulate_slice(pipeline, plan, part, inspector.last)
        for group in slice_decisions.groups:
            void = slice_decisions.verdicts.get(names[group], "the group does not exist")
            rejected = dict(writer.rejections.get(group, {}))
            after = writer.statuses.get(group)
            yield DryRun(group, void, before.get(group), after, writer.recorded_outputs.get(group, []), rejected)


def _simulate_slice(
    pipeline: Pipeline, plan: Plan, part: StoreSlice, last: Manifest
) -> tuple[Decisions, "DryRunWriter"]:
    """Run a task without messages, as the executor does, with a writer that only records."""
    states = StateCodec(pipeline, plan.previous_format)
    policy = {"wait_us": pipeline.wait_us, "version": pipeline.version, "shape": pipeline.shape}
    writer = DryRunWriter(part, plan, pipeline, states, structs.replace(last, state=states.signature, **policy))
    decisions = Decisions(plan.decisions, part.low, part.high)
    levels = LevelReader(part, plan.levels, NONE_US, decisions.hashes, pipeline, states)
    Kernel(pipeline, MessageCodec(pipeline, plan.columns), levels, writer, decisions, plan).finish()
    return decisions, writer


class DryRunWriter(StepWriter):
    """A writer that records the rows of a task's groups and writes nothing.

    Attributes:
        statuses: the groups as they would be.
        recorded_outputs: their outputs, as JSON values.
        rejections: the number of rejected messages, by group and reason.
    """

    def __init__(
        self, part: StoreSlice, plan: Plan, pipeline: Pipeline, states: StateCodec, manifest: Manifest
    ) -> None:
        super().__init__(part.store, "", plan.step, pipeline, states)
        self._manifest = manifest
        self.statuses: dict[str, GroupStatus] = {}
        self.recorded_outputs: dict[str, list[Any]] = {}
        self.rejections: dict[str | None, Counter[str]] = {}

    @override
    def flush(self) -> None:
        rows = self.group_rows()
        for row in rows.to_pylist() if rows is not None else ():
            self.statuses[row["group"]] = status_of(row, self._manifest)

    @override
    def outputs(self, emitted: Sequence[tuple[str, TimelineEntry, Sequence[Any]]]) -> None:
        for group, _, outputs in emitted:
            self.recorded_outputs.setdefault(group, []).extend(json.loads(text) for _, text in outputs)

    @override
    def rejected(self, rejected: Sequence[tuple[str | None, TimelineEntry, str, str]]) -> None:
        for group, _, reason, _ in rejected:
            self.rejections.setdefault(group, Counter())[reason] += 1
