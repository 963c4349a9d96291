"""A stream for the command line: runs until it ends or is interrupted, and tells of each step as it is committed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InturnError
from inturn.core.fold import Counts
from inturn.core.pipeline import Pipeline
from inturn.spark.step import Report
from inturn.spark.stream import stream
from inturn.spark.tables.manifest import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOOK_EVERY_S = 1


def follow(
    pipeline: Pipeline, df: "DataFrame", store: str, checkpoint: str, tell: Callable[[Report], None], **options: Any
) -> None:
    """Run a stream in the foreground.

    Args:
        pipeline: the definition.
        df: the messages.
        store: where the store is.
        checkpoint: where Spark's checkpoint is.
        tell: is called with the report of each step.
        options: of :func:`inturn.spark.stream`.

    Raises:
        InturnError: what the stream ended with.
    """
    target = Store(store)
    last = target.latest()
    told = last.step if last else 0
    query = stream(pipeline, df, store=store, checkpoint=checkpoint, **options)
    try:
        while query.isActive:
            query.awaitTermination(_LOOK_EVERY_S)
            told = _tell(pipeline, target, told, tell)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        raise InturnError(said(error)) from error
    finally:
        query.stop()
        _tell(pipeline, target, told, tell)


def _tell(pipeline: Pipeline, store: Store, told: int, tell: Callable[[Report], None]) -> int:
    """Tell of the steps after the one that was told last; returns which is that now."""
    for each in store.after(told):
        tell(Report(pipeline.name, store.location, each.step, Counts(**each.counts), each.seconds))
        told = each.step
    return told


def said(error: Exception) -> str:
    """What our own error in a stream said; Spark wraps it in a text of many lines."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith("inturn.core.errors.")]
    return ours[-1].partition(": ")[2] if ours else lines[0]
