"""Puts a history through the engines, and says whether the same has come of it."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from inturn.core.errors import InputError, InturnError, SetupError
from inturn.core.pipeline import Pipeline
from inturn.testing.history import History
from inturn.testing.replayed import replayed
from inturn.testing.story import Difference, Different, Story, differences
from inturn.testing.worked import worked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: Final = ("replay", "worker", "batch", "stream")
ON_SPARK: Final = ("batch", "stream")
Around = Callable[[str], AbstractContextManager[Any]]
"""What is opened while an engine works, given its name: to show that it does."""


@dataclass
class Comparison:
    """What the engines made of one history.

    Attributes:
        stories: by engine, the pure timeline first.
        differences: in what they differ from the pure timeline; none, if the same has come of it.
        notes: what a user should know of it, though nothing differs.
    """

    stories: dict[str, Story] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def agrees(self, engine: str) -> bool:
        """Whether an engine has made of it what the pure timeline made."""
        return all(each.other != engine for each in self.differences)


def same(
    pipeline: Pipeline,
    messages: Iterable[Any],
    *,
    engines: Sequence[str] = ("replay", "worker"),
    seed: int = 0,
    spark: "SparkSession | None" = None,
) -> Story:
    """Put a history through several engines and see that the same comes of it.

    The pure timeline is fed in the order of arrival: that of the ``arrival=`` field, or, where the pipeline or the
    messages have none, that of the list. Its handler is run twice with every message. Every other engine gets the same
    messages in the same order of arrival, cut into steps by chance:

    - ``worker``, the pipeline in this process over a queue in memory, stopped and begun again in between;
    - ``batch`` on Spark: one step or several, each step's rows shuffled;
    - ``stream`` on Spark: micro-batches, restarts, and one micro-batch that comes again as after a crash.

    On Spark, rows have no order but what a column says. So where arrival decides anything (every order but ``Gapless``
    in one epoch without conflicts) and the pipeline has no ``arrival=``, the two get it with one, which the handler
    does not see. Your own batch without ``arrival=`` takes each step in the step's own order instead.

    What must be equal, group by group: state, outputs with their effect ids, where it stands, what it holds, and why
    messages were rejected; and each engine's books: ``received + released = applied + duplicate + stale + held +
    rejected``, with everything received. Duplicate and stale count as one, since the cut decides which of the two an
    old copy is; likewise a conflict that lies further back than a group remembers.

    Times are the same for all: if ``on_gap=`` has one, the history is cut into two or three parts, no wait ends within
    a part, and all end after it, whatever the time is. ``then="fail"`` never happens: a run that ends has no answer.
    ``Retryable`` errors are tried again without a pause.

    Args:
        pipeline: the definition.
        messages: instances of its message type, or dicts of its fields. What JSON cannot say, such as a date in a
            dict, is text in a queue, so give such messages a type. If Spark is among the engines, dicts become rows of
            a table first: all have all fields, null where they had none.
        engines: ``replay``, ``worker``, ``batch`` and ``stream``; the pure timeline is always there.
        seed: decides where the engines are cut and stopped.
        spark: the session for the batch and the stream, on a machine that sees this one's temporary files; None starts
            a local one, and stops it.

    Returns:
        What has come of it, by the pure timeline.

    Raises:
        Different: naming the group and what differs.
        NotDeterministic: naming the message with which the handler does not always do the same.
        InputError: if there is no such engine, or the messages do not fit the pipeline.
        InturnError: what the pure timeline raises.
        SetupError: if there is no Spark.
    """
    found = compare(pipeline, messages, engines=engines, seed=seed, spark=spark)
    for difference in found.differences:
        raise Different(str(difference))
    return found.stories["replay"]


def compare(
    pipeline: Pipeline,
    messages: Iterable[Any],
    *,
    engines: Sequence[str] = ENGINES,
    seed: int = 0,
    spark: "SparkSession | None" = None,
    around: Around = lambda _name: contextlib.nullcontext(),
) -> Comparison:
    """The same as :func:`same`, but everything that differs is told, and nothing of it raised.

    Args:
        pipeline: see :func:`same`.
        messages: see :func:`same`.
        engines: see :func:`same`.
        seed: see :func:`same`.
        spark: see :func:`same`.
        around: opened while an engine works, given its name.

    Raises:
        NotDeterministic: see :func:`same`.
        InturnError: see :func:`same`.
    """
    unknown = [name for name in engines if name not in ENGINES]
    if unknown or not engines:
        msg = f"engines={engines!r}; there are {', '.join(ENGINES)}"
        raise InputError(msg)
    given, on_spark = list(messages), [name for name in ON_SPARK if name in engines]
    if on_spark:
        from inturn.testing.rows import as_rows

        given = as_rows(pipeline, given)
    history, found = History.of(pipeline, given, seed), Comparison()
    _take(found, "replay", lambda: replayed(history), around)
    if "worker" in engines:
        _take(found, "worker", lambda: worked(history, seed), around)
    if on_spark:
        from inturn.testing.sparked import OnSpark

        with OnSpark.on(spark, history, found.stories["replay"], seed) as bench:
            found.notes += bench.notes()
            for name in on_spark:
                _take(found, name, getattr(bench, name), around)
    return found


def _take(found: Comparison, name: str, run: Callable[[], Story], around: Around) -> None:
    """Run one engine, and compare it with the pure timeline."""
    began = time.monotonic()
    try:
        with around(name):
            story = run()
    except SetupError:
        raise
    except InturnError as error:
        if name == "replay":
            raise
        found.differences.append(Difference("replay", name, None, "end", "", f"{type(error).__name__}: {error}"))
        return
    story.seconds = time.monotonic() - began
    found.stories[name] = story
    found.differences += differences("replay", found.stories["replay"], name, story)
