"""A stream in the foreground of the command line, with a report of each committed step."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InturnError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.journal import Counts
from inturn.spark.driver.step import Report, advance
from inturn.spark.driver.stream import stream
from inturn.spark.tables.manifest import SparkStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POLL_S = 1


def follow(
    pipeline: Pipeline,
    df: "DataFrame",
    store: str,
    checkpoint: str,
    on_step: Callable[[Report], None],
    final: bool = False,  # noqa: FBT001, FBT002 - beside the options of the stream
    **options: Any,
) -> None:
    """Run a stream in the foreground until it ends or is interrupted.

    Args:
        pipeline: the definition.
        df: the messages.
        store: location of the store.
        checkpoint: location of Spark's checkpoint.
        on_step: callback for the report of each step.
        final: whether a last step releases messages that wait for a later time, after the stream has ended normally.
        options: options of :func:`inturn.spark.stream`.

    Raises:
        InturnError: if the stream failed.
    """
    target = SparkStore(store)
    last = target.latest()
    reported = last.step if last else 0
    query = stream(pipeline, df, store=store, checkpoint=checkpoint, **options)
    try:
        while query.isActive:
            query.awaitTermination(_POLL_S)
            reported = _report_steps(pipeline, target, reported, on_step)
        query.awaitTermination()
        last = target.latest()
        # All available messages have been read, so an idle group is really idle.
        waits = last is not None and last.waiting_us is not None and pipeline.order.idle_us is not None
        if waits or (final and last is not None):
            advance(pipeline, store=store, final=final)
    except KeyboardInterrupt:
        pass
    except InturnError:
        raise
    except Exception as error:
        raise InturnError(stream_error_text(error)) from error
    finally:
        query.stop()
        _report_steps(pipeline, target, reported, on_step)


def _report_steps(pipeline: Pipeline, store: SparkStore, reported: int, on_step: Callable[[Report], None]) -> int:
    """Report the steps after the last reported one, and return the new last one."""
    for manifest in store.manifests_after(reported):
        on_step(Report(pipeline.name, store.location, manifest.step, Counts(**manifest.counts), manifest.seconds))
        reported = manifest.step
    return reported


def stream_error_text(error: Exception) -> str:
    """Return the message of an inturn error in a stream; Spark wraps it in many lines."""
    lines = [line.strip() for line in str(error).splitlines()]
    own_lines = [line for line in lines if line.startswith("inturn.core.errors.")]
    return own_lines[-1].partition(": ")[2] if own_lines else lines[0]
