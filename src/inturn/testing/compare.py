"""Comparison of engines over one history."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from inturn.core.errors import InputError, InturnError, SetupError
from inturn.core.pipeline.definition import Pipeline
from inturn.testing.engine_input import EngineInput
from inturn.testing.outcome import Difference, Different, EngineResult, differences
from inturn.testing.replay_engine import run_replay
from inturn.testing.worker_engine import run_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: Final = ("replay", "worker", "batch", "stream")
ON_SPARK: Final = ("batch", "stream")
Around = Callable[[str], AbstractContextManager[Any]]
"""A factory of the context that is open while an engine runs, given its name, such as a progress display."""


@dataclass
class Comparison:
    """The results of the engines for one history.

    Attributes:
        results: results by engine, the pure timeline first.
        differences: differences from the pure timeline; empty if all engines agree.
        notes: notes for the user, even if there are no differences.
    """

    results: dict[str, EngineResult] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def agrees(self, engine: str) -> bool:
        """Return whether an engine agrees with the pure timeline."""
        return all(difference.other != engine for difference in self.differences)


def same(
    pipeline: Pipeline,
    messages: Iterable[Any],
    *,
    engines: Sequence[str] = ("replay", "worker"),
    seed: int = 0,
    spark: "SparkSession | None" = None,
) -> EngineResult:
    """Run a history through several engines and check that the results are equal.

    The pure timeline gets the messages in the order of arrival: that of the ``arrival=`` field, or, if the pipeline or
    the messages have none, that of the list. Its handler runs twice for every message. Every other engine gets the same
    messages in the same order of arrival, cut into random steps:

    - ``worker``, the pipeline in this process over a queue in memory, stopped and started again in between;
    - ``batch`` on Spark: one step or several, each step's rows shuffled;
    - ``stream`` on Spark: micro-batches, restarts, and one micro-batch repeated as after a crash.

    On Spark, only a column can order rows. So if arrival affects the result (every order but ``Gapless`` in one epoch
    without conflicts) and the pipeline has no ``arrival=``, both Spark engines get a column for it, which the handler
    does not see. Your own batch without ``arrival=`` applies each step in the step's own order instead.

    The results must be equal, group by group: state, outputs with their effect ids, status, place, held messages, and
    reasons of rejected messages. Each engine must receive all messages, and its counts must balance:
    ``received + released = applied + duplicate + stale + held + rejected``. Duplicate and stale messages are counted
    together, since the end of a step decides which of the two an old copy is; likewise a conflict that is older than a
    group remembers.

    Times are equal for all engines: if ``on_gap=`` has a time-out, the history is cut into two or three parts; no wait
    ends within a part, and all waits end after it, whatever the time-out. ``then="fail"`` never applies: a run that
    fails has no result. ``Retryable`` errors are retried without a pause.

    Args:
        pipeline: the definition.
        messages: instances of its message type, or dicts of its fields. Values that JSON lacks, such as a date in a
            dict, are text in a queue, so define a type for such messages. If Spark is among the engines, dicts become
            rows of a table first: each row has all fields, with null for missing ones.
        engines: ``replay``, ``worker``, ``batch`` and ``stream``; the pure timeline always runs.
        seed: random seed of the steps and restarts.
        spark: the session for the batch and the stream, on a machine that can read this machine's temporary files; None
            starts a local session and stops it at the end.

    Returns:
        The result of the pure timeline.

    Raises:
        Different: if an engine differs; the text names the group and the difference.
        NotDeterministic: if the handler is not deterministic; the text names the message.
        InputError: if an engine is unknown, or the messages do not fit the pipeline.
        InturnError: any error of the pure timeline.
        SetupError: if Spark is missing.
    """
    comparison = compare(pipeline, messages, engines=engines, seed=seed, spark=spark)
    for difference in comparison.differences:
        raise Different(str(difference))
    return comparison.results["replay"]


def compare(
    pipeline: Pipeline,
    messages: Iterable[Any],
    *,
    engines: Sequence[str] = ENGINES,
    seed: int = 0,
    spark: "SparkSession | None" = None,
    around: Around = lambda _name: contextlib.nullcontext(),
) -> Comparison:
    """Do the same as :func:`same`, but return all differences instead of raising the first.

    Args:
        pipeline: see :func:`same`.
        messages: see :func:`same`.
        engines: see :func:`same`.
        seed: see :func:`same`.
        spark: see :func:`same`.
        around: factory of the context that is open while an engine runs, given its name.

    Raises:
        NotDeterministic: see :func:`same`.
        InturnError: see :func:`same`.
    """
    unknown = [name for name in engines if name not in ENGINES]
    if unknown or not engines:
        raise InputError(f"engines is {engines!r}; expected one or several of {', '.join(ENGINES)}")
    inputs, on_spark = list(messages), [name for name in ON_SPARK if name in engines]
    if on_spark:
        from inturn.testing.rows import as_rows

        inputs = as_rows(pipeline, inputs)
    history, comparison = EngineInput.of(pipeline, inputs, seed), Comparison()
    _run_engine(comparison, "replay", lambda: run_replay(history), around)
    if "worker" in engines:
        _run_engine(comparison, "worker", lambda: run_worker(history, seed), around)
    if on_spark:
        from inturn.testing.spark_engines import SparkEngines

        with SparkEngines.open(spark, history, comparison.results["replay"], seed) as bench:
            comparison.notes += bench.notes()
            for name in on_spark:
                _run_engine(comparison, name, getattr(bench, name), around)
    return comparison


def _run_engine(comparison: Comparison, name: str, run: Callable[[], EngineResult], around: Around) -> None:
    """Run one engine, and compare it with the pure timeline."""
    began = time.monotonic()
    try:
        with around(name):
            result = run()
    except SetupError:
        raise
    except InturnError as error:
        if name == "replay":
            raise
        comparison.differences.append(Difference("replay", name, None, "end", "", f"{type(error).__name__}: {error}"))
        return
    result.seconds = time.monotonic() - began
    comparison.results[name] = result
    comparison.differences += differences("replay", comparison.results["replay"], name, result)
