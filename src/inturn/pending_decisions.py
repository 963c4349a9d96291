"""Application of pending decisions, over both kinds of store: for the command line and pages."""

import contextlib
from collections.abc import Callable

from inturn.core import limits
from inturn.core.errors import StoreConflict
from inturn.core.pipeline.decision_service import DecisionService
from inturn.core.pipeline.definition import Pipeline
from inturn.worker.inspection import apply_decisions as apply_in_database


def apply_decisions(
    service: DecisionService, pipeline: Pipeline, store: str, on_progress: Callable[[int], None] = lambda _count: None
) -> None:
    """Apply the decisions about a store's groups that no process has applied yet; Spark is not needed.

    Args:
        service: the store.
        pipeline: the definition, whose handler runs.
        store: the address of the store.
        on_progress: called from time to time with the number of decisions that were applied.

    Raises:
        StoreMismatch: if the store belongs to another pipeline.
    """
    if service.unit == "task":
        apply_in_database(pipeline, service, on_progress)
        return
    from inturn.spark.driver.step import advance
    from inturn.spark.tables.manifest import SparkStore

    steps = SparkStore(store)
    while pending := steps.pending_decisions(steps.latest(), limits.DECISIONS_AT_ONCE):
        with contextlib.suppress(StoreConflict):  # a stream was faster and has applied them
            advance(pipeline, store=store)
        on_progress(len(pending))
