"""Application of pending decisions, over both kinds of store: for the command line and pages."""

import contextlib
from collections.abc import Callable

from inturn.core import limits
from inturn.core.errors import StoreConflict
from inturn.core.pipeline.deciding import Decider
from inturn.core.pipeline.definition import Pipeline
from inturn.worker.inspection import settle as settle_in_database


def settle(look: Decider, pipeline: Pipeline, store: str, advance: Callable[[int], None] = lambda _count: None) -> None:
    """Apply the decisions about a store's groups that no process has applied yet; Spark is not needed.

    Args:
        look: the store.
        pipeline: the definition, whose handler runs.
        store: the address of the store.
        advance: called from time to time with the number of decisions that were applied.

    Raises:
        StoreMismatch: if the store belongs to another pipeline.
    """
    if look.unit == "turn":
        settle_in_database(pipeline, look, advance)
        return
    from inturn.spark.driver.step import advance as step
    from inturn.spark.tables.manifest import SparkStore

    at = SparkStore(store)
    while left := at.pending_decisions(at.latest(), limits.DECISIONS_AT_ONCE):
        with contextlib.suppress(StoreConflict):  # a stream was faster and has applied them
            step(pipeline, store=store)
        advance(len(left))
