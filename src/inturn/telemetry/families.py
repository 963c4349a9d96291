"""All metrics except those of the semantic conventions: names, labels and the sources of the values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from inturn.telemetry import measures
from inturn.telemetry.figures import Figures, FiguresReader, HasFigures
from inturn.telemetry.measures import SECONDS, SIZES

PAGE_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of a page, https://prometheus.io/docs/instrumenting/exposition_formats/."""

Labels: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["gauge", "counter", "histogram"]


class Family(NamedTuple):
    """A metric and its values.

    Attributes:
        name: name with dots; the Prometheus name has underscores, and the unit at its end.
        kind: kind of metric.
        help: description.
        labels: names of the labels.
        values: values by labels; for a histogram, the count of each bucket and the sum.
        unit: ``s`` for seconds; empty for a number.
        bounds: upper bounds of a histogram's buckets.
    """

    name: str
    kind: Kind
    help: str
    labels: Labels
    values: Mapping[Any, Any]
    unit: str = ""
    bounds: Sequence[float] = ()


_VERDICTS: Final = ("received", "released", "applied", "duplicate", "stale", "held")
_STATUSES: Final = ("waiting", "gap", "failed", "given up")
_QUEUES: Final = (
    ("messages", "Messages not acknowledged yet.", "messages", ""),
    ("in_flight_messages", "Messages leased by a receiver.", "in_flight", ""),
    ("delayed_messages", "Messages hidden until a later time.", "delayed", ""),
    ("oldest_message_age", "Time since the oldest message was sent.", "oldest_s", "s"),
    ("blocked_groups", "Groups whose messages cannot be received now.", "blocked", ""),
    ("parked_groups", "Parked groups.", "parked", ""),
)
_PIPELINES: Final = (
    ("pipeline.held_messages", "Messages held by groups.", "held", ""),
    ("pipeline.oldest_held_message_age", "Time for which the oldest held message has been held.", "oldest_held_s", "s"),
    ("outbox.outputs", "Outputs not delivered yet.", "outputs", ""),
    ("outbox.oldest_output_age", "Time since the oldest undelivered output was produced.", "oldest_output_s", "s"),
    ("outbox.failing_groups", "Groups whose last delivery failed.", "failing", ""),
)
_SOURCES: Final = (
    ("lag", "Records of the partition not read yet.", "lag", ""),
    ("age", "Time since the last committed record was written.", "age_s", "s"),
    ("idle", "Time since the position of the partition last changed.", "idle_s", "s"),
    ("moved_messages", "Messages that wait because their group was read from another partition before.", "moved", ""),
)
_LOOPS: Final[Sequence[tuple[str, str, Kind, str]]] = (
    ("worker", "up", "gauge", "Running workers of the pipeline on the queue."),
    ("worker", "busy", "gauge", "Groups whose task is running or about to start."),
    ("worker", "task.duration", "histogram", "Duration of tasks."),
    ("worker", "task.messages", "histogram", "Messages per task."),
    ("worker", "lost_leases", "counter", "Tasks whose lease expired before they were committed."),
    ("worker", "retries", "counter", "Repeated calls of the handler."),
    ("consumer", "up", "gauge", "Running consumers of the queue."),
    ("consumer", "busy", "gauge", "Messages whose handler is running or about to start."),
    ("consumer", "handler.duration", "histogram", "Duration of calls of the handler."),
    ("consumer", "acknowledged_messages", "counter", "Messages handled and acknowledged."),
    ("consumer", "failed_attempts", "counter", "Failed attempts."),
    ("consumer", "parked_groups", "counter", "Groups parked because the attempts of a message were used up."),
    (
        "consumer",
        "deferred_messages",
        "counter",
        "Messages without a group deferred because their attempts were used up.",
    ),
    (
        "consumer",
        "dead_lettered_messages",
        "counter",
        "Messages moved to the dead-letter queue because their attempts were used up.",
    ),
    ("consumer", "lost_leases", "counter", "Attempts whose lease expired before they were settled."),
    ("ingest", "up", "gauge", "Instances in this process that read the source without errors."),
)
_LOOP_LABELS: Final = {
    "worker": ("database", "pipeline", "queue"),
    "consumer": ("database", "queue"),
    "ingest": ("database", "source", "queue"),
}


def reader(
    databases: Iterable[HasFigures], workers: Callable[[], Sequence[Mapping[str, Any]]] = measures.workers
) -> Callable[[], Iterator[Family]]:
    """Return a function that returns all metrics of databases and of this process, which is measured from now on.

    Args:
        databases: their figures are read with each call, at most every ``limits.FIGURES_S``.
        workers: returns the measurements of the workers of this process, or of several.
    """
    figures = FiguresReader(databases)
    measures.enable()
    return lambda: all_families(figures.read(), workers())


def all_families(figures: Mapping[str, Figures], workers: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of databases by name, of workers, consumers and sources, and of Spark steps of this process."""
    yield from queue_families(figures)
    yield from pipeline_families(figures)
    yield from source_families(figures)
    yield from loop_families(workers)
    yield from step_families()


def queue_families(figures: Mapping[str, Figures]) -> Iterator[Family]:
    """Yield the metrics of the queues of databases, by the names of the databases."""
    labels = ("database", "queue")
    for name, text, field, unit in _QUEUES:
        values = {
            (database, queue.queue): getattr(queue, field)
            for database, read in figures.items()
            for queue in read.queues
        }
        yield Family(f"inturn.queue.{name}", "gauge", text, labels, values, unit)


def source_families(figures: Mapping[str, Figures]) -> Iterator[Family]:
    """Yield the metrics of the sources of databases, by the names of the databases."""
    labels = ("database", "source", "partition")
    every = {
        (database, source.source, source.partition): source
        for database, read in figures.items()
        for source in read.sources
    }
    records = {
        (*key, verdict): getattr(source, verdict)
        for key, source in every.items()
        for verdict in ("received", "rejected")
    }
    text = "Records of a source by verdict: received, rejected."
    yield Family("inturn.source.records", "counter", text, (*labels, "verdict"), records)
    dropped = {key: source.dropped for key, source in every.items()}
    text = "Rejected records not stored because the source reached its limit."
    yield Family("inturn.source.dropped_records", "counter", text, labels, dropped)
    statuses = {(*key, status): count for key, source in every.items() for status, count in source.partitions.items()}
    yield Family(
        "inturn.source.partitions", "gauge", "Partitions of a source by status.", (*labels, "status"), statuses
    )
    for name, text, field, unit in _SOURCES:
        values = {key: value for key, source in every.items() if (value := getattr(source, field)) is not None}
        yield Family(f"inturn.source.{name}", "gauge", text, labels, values, unit)


def pipeline_families(figures: Mapping[str, Figures]) -> Iterator[Family]:
    """Yield the metrics of the pipelines of databases, by the names of the databases."""
    labels = ("database", "pipeline")
    every = {
        (database, pipeline.pipeline): pipeline for database, read in figures.items() for pipeline in read.pipelines
    }
    messages = {
        (*key, verdict): count for key, pipeline in every.items() for verdict, count in verdict_counts(pipeline.counts)
    }
    text = "Messages of a pipeline by verdict."
    yield Family("inturn.pipeline.messages", "counter", text, (*labels, "verdict"), messages)
    rejected = {
        (*key, reason): count
        for key, pipeline in every.items()
        for reason, count in pipeline.counts.get("rejected", {}).items()
    }
    yield Family(
        "inturn.pipeline.rejected_messages", "counter", "Rejected messages by reason.", (*labels, "reason"), rejected
    )
    groups = {(*key, status): pipeline.groups.get(status, 0) for key, pipeline in every.items() for status in _STATUSES}
    yield Family("inturn.pipeline.groups", "gauge", "Groups that are not open, by status.", (*labels, "status"), groups)
    for name, text, field, unit in _PIPELINES:
        yield Family(
            f"inturn.{name}",
            "gauge",
            text,
            labels,
            {key: getattr(pipeline, field) for key, pipeline in every.items()},
            unit,
        )


def verdict_counts(counts: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield counts of messages by verdict."""
    yield from ((name, counts.get(name, 0)) for name in _VERDICTS)
    yield "rejected", sum(counts.get("rejected", {}).values())


def loop_families(loops: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of workers, consumers and hosts of sources; see :func:`inturn.telemetry.measures.workers`."""
    for loop, name, kind, text in _LOOPS:
        labels = _LOOP_LABELS[loop]
        values = {
            tuple(measured[label] for label in labels): measured[name] for measured in loops if measured["what"] == loop
        }
        if kind == "histogram":
            yield histogram(f"inturn.{loop}.{name}", text, labels, values)
        else:
            yield Family(f"inturn.{loop}.{name}", kind, text, labels, {key: value for key, (value,) in values.items()})
    labels, outcomes = _LOOP_LABELS["worker"], ("ok", "error")
    delivered = {
        (*(measured[label] for label in labels), outcome): measured[f"deliver.duration {outcome}"]
        for measured in loops
        for outcome in outcomes
        if measured["what"] == "worker"
    }
    yield histogram("inturn.worker.deliver.duration", "Duration of calls of deliver.", (*labels, "outcome"), delivered)


def histogram(name: str, text: str, labels: Labels, values: Mapping[Any, Any]) -> Family:
    """Return a histogram of durations, or of sizes, by its name."""
    if name.endswith(".duration"):
        return Family(name, "histogram", text, labels, values, "s", SECONDS)
    return Family(name, "histogram", text, labels, values, "", SIZES)


def step_families() -> Iterator[Family]:
    """Yield the metrics of the Spark steps of this process."""
    steps = measures.steps()
    labels = ("pipeline",)
    seconds = {(name,): step.seconds.values for name, step in steps.items()}
    yield histogram("inturn.spark.step.duration", "Duration of Spark steps.", labels, seconds)
    numbers = {(name,): sum(step.seconds.counts) for name, step in steps.items()}
    yield Family("inturn.spark.steps", "counter", "Spark steps committed by this driver.", labels, numbers)
    messages = {(name, verdict): count for name, step in steps.items() for verdict, count in step.messages.items()}
    yield Family(
        "inturn.spark.step_messages",
        "counter",
        "Messages in the committed Spark steps, by verdict.",
        (*labels, "verdict"),
        messages,
    )
    last = {(name,): step.last_s for name, step in steps.items()}
    yield Family(
        "inturn.spark.last_step_timestamp",
        "gauge",
        "Time of the last committed Spark step, in seconds since 1970.",
        labels,
        last,
        "s",
    )
