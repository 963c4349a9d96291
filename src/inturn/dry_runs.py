"""Dry runs of decisions, over both kinds of store: for users, the command line and pages."""

from collections.abc import Iterable, Iterator
from typing import Any

from inturn.core.arguments import check_type
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.decision_service import DecisionService, GroupDecisions
from inturn.core.pipeline.definition import Pipeline, check_pipeline
from inturn.core.pipeline.dry_run import DryRun
from inturn.core.pipeline.selection import DecisionDraft
from inturn.results.inspection import DatabaseInspector


def dry_run(
    pipeline: Pipeline,
    stored: GroupDecisions,
    action: str,
    *names: str,
    group: str | Iterable[str] | None = None,
    error: str | None = None,
    all: bool = False,  # noqa: A002 - as of the decisions, and as the option of the commands
    content: dict[str, Any] | None = None,
) -> Iterator[DryRun]:
    """Yield the effect that a decision would have on each group with this pipeline's handler; nothing is written.

    Args:
        pipeline: the definition, with the corrected handler.
        stored: ``db.pipeline("ledger")`` or ``inturn.spark.store("out/ledger")``.
        action: ``resume``, ``drop``, ``skip``, ``give-up`` or ``replace``.
        names: the groups; without any, the other arguments select them, as for the decision itself.
        group: shell pattern of groups, or several of which one must match.
        error: shell pattern of the last line of the group's error.
        all: whether to select all groups to which the action applies.
        content: for ``replace``, the new content.

    Raises:
        InputError: if the action does not exist, or no argument selects a group.
        StoreMismatch: if another pipeline is stored.
        StateError: if the state type no longer fits, or a state cannot be stored.
        HandlerError: if the handler is not pure, so that a state cannot be reproduced.
    """
    check_pipeline(pipeline)
    check_type("stored", stored, GroupDecisions, "db.pipeline(…) or inturn.spark.store(…)")
    service = stored.inspector
    chosen = DecisionAction.of(action)
    draft = service.prepare(chosen, *names, content=content, by="dry run", group=group, error=error, all=all)
    return run(pipeline, service, draft)


def run(pipeline: Pipeline, service: DecisionService, draft: DecisionDraft) -> Iterator[DryRun]:
    """Yield the effect that each decision of a draft would have; see :func:`dry_run`."""
    if isinstance(service, DatabaseInspector):
        from inturn.worker.dry_run import dry_run as in_worker

        return in_worker(pipeline, service, draft)
    from inturn.spark.driver.dry_run import dry_run as on_spark
    from inturn.spark.driver.inspection import SparkInspector

    assert isinstance(service, SparkInspector)  # noqa: S101 - there are two kinds of store
    return on_spark(pipeline, service, draft)
