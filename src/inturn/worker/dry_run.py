"""Dry runs of decisions about a pipeline in a database: tasks like those of a worker, without any change."""

from collections.abc import Iterator, Sequence

import msgspec

from inturn.core import limits
from inturn.core.errors import StoreMismatch
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.dry_run import DryRun
from inturn.core.pipeline.selection import DecisionDraft
from inturn.results.inspection import DatabaseInspector, status_of
from inturn.store.pipeline_store import PipelineStore
from inturn.store.records import GroupRecord, StoredDecision
from inturn.worker.definition import check_definition
from inturn.worker.group_task import GroupRunner, GroupTask


def dry_run(pipeline: Pipeline, inspector: DatabaseInspector, draft: DecisionDraft) -> Iterator[DryRun]:
    """Yield the effect that each decision of a draft would have, if a worker with this pipeline applied it now.

    The handler is retried without pauses.

    Args:
        pipeline: the pipeline, with the corrected handler.
        inspector: the stored pipeline.
        draft: the decisions; see :meth:`inturn.core.pipeline.decision_service.DecisionService.prepare`.

    Raises:
        StoreMismatch: if the database has another pipeline of this name, or ``inspector`` has another name.
        StateError: if the state type no longer fits, or a state cannot be stored.
        HandlerError: if the handler is not pure, so that a state cannot be rebuilt.
    """
    info = inspector.info()
    if pipeline.name != info.name:
        raise StoreMismatch(f"the pipeline is {pipeline.name!r}; expected the stored pipeline {info.name!r}")
    if info.about:  # it has run
        check_definition(pipeline, info)
    runner = GroupRunner(pipeline, inspector.read, lambda _seconds: None)
    yield from (DryRun(group, reason, None, None) for group, reason in draft.void.items())
    for first in range(0, len(draft.decisions), limits.DECIDED_AT_ONCE):
        part = draft.decisions[first : first + limits.DECIDED_AT_ONCE]
        now_us = inspector.now_ms() * 1000
        records, pending = inspector.read(lambda store, number, part=part: _stored(store, number, part))  # type: ignore[misc]
        for decision in part:
            decided = StoredDecision(decision.name, decision.group, msgspec.json.encode(decision).decode())
            record = records.get(decision.group)
            task = GroupTask(
                decision.group, decisions=[*pending.get(decision.group, ()), decided], record=record, now_us=now_us
            )
            yield _result(runner, task, decision)


def _stored(
    store: PipelineStore, number: int, decisions: Sequence[Decision]
) -> tuple[dict[str, GroupRecord], dict[str, list[StoredDecision]]]:
    """Return the records of groups, and earlier decisions about them that are not applied yet."""
    groups = [decision.group for decision in decisions]
    records = {record.group: record for record in store.records(number, groups)}
    if not store.decisions(number, 1):  # the usual case
        return records, {}
    return records, {group: store.decisions(number, limits.GROUPS_AT_ONCE, group) for group in groups}


def _result(runner: GroupRunner, task: GroupTask, decision: Decision) -> DryRun:
    result = runner.run(task)
    before = None if task.record is None else status_of(task.record)
    after = None if result.update is None else status_of(result.update.record)
    outputs = [msgspec.json.decode(output.output) for output in (result.update.outputs if result.update else ())]
    void = result.verdicts[decision.name] or None
    return DryRun(decision.group, void, before, after, outputs, dict(result.journal.counts.rejected))
