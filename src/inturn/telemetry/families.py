"""Every metric but those of the conventions: its name, its labels, and where its values come from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from inturn.telemetry import measures
from inturn.telemetry.figures import Figures
from inturn.telemetry.measures import SECONDS, SIZES

PAGE_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of a page, https://prometheus.io/docs/instrumenting/exposition_formats/."""

Labels: TypeAlias = tuple[str, ...]


class Family(NamedTuple):
    """A metric and its values.

    Attributes:
        name: name with dots; Prometheus' has underscores, and the unit at its end.
        kind: kind of metric.
        help: description.
        labels: names of the labels.
        values: values by the labels; those of a histogram are the count of each bucket, and the sum.
        unit: ``s`` for seconds; empty for a number.
        bounds: upper bounds of a histogram's buckets.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: Labels
    values: Mapping[Any, Any]
    unit: str = ""
    bounds: Sequence[float] = ()


_VERDICTS: Final = ("received", "released", "applied", "duplicate", "stale", "held")
_STATUSES: Final = ("waiting", "gap", "failed", "given up")
QUEUES: Final = (
    ("messages", "Messages that are not acknowledged.", "messages", ""),
    ("in_flight", "Messages that a receiver has.", "in_flight", ""),
    ("delayed", "Messages that are hidden for a time.", "delayed", ""),
    ("oldest_message_age", "How long ago the oldest message was sent.", "oldest_s", "s"),
    ("groups_blocked", "Groups of which no message can be received now.", "blocked", ""),
    ("groups_parked", "Groups that are parked.", "parked", ""),
)
"""The gauges of a queue: name, description, attribute of its figures, unit."""
_PIPELINES: Final = (
    ("pipeline.held_messages", "Messages that groups hold.", "held", ""),
    ("pipeline.oldest_held_age", "How long the oldest held message is held.", "oldest_held_s", "s"),
    ("outbox.outputs", "Outputs that are not delivered.", "outputs", ""),
    ("outbox.oldest_age", "How long ago the oldest undelivered output was made.", "oldest_output_s", "s"),
    ("outbox.failing_groups", "Groups whose last delivery failed.", "failing", ""),
)
_SOURCES: Final = (
    ("lag", "Records of a partition that are not read.", "lag", ""),
    ("age", "How long ago the last committed record was written.", "age_s", "s"),
    ("idle", "How long ago the position of a partition last changed.", "idle_s", "s"),
    ("moved_messages", "Messages that wait, since their group came from another partition.", "moved", ""),
)
_CONSUMERS: Final = (
    ("messages_done", "Messages that were handled and acknowledged.", "done"),
    ("attempts_failed", "Attempts that failed.", "failed"),
    ("groups_parked", "Groups that were parked since the attempts of a message were used up.", "parked"),
    ("messages_deferred", "Messages without a group that were deferred for that reason.", "deferred"),
    ("messages_dead_lettered", "Messages that were moved to the dead-letter queue for it.", "dead_lettered"),
    ("leases_lost", "Attempts whose lease was over before they were settled.", "lost"),
)


def every(figures: Mapping[str, Figures], workers: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of databases, by their names, of what runs, and of this process' Spark steps."""
    yield from of_queues(figures)
    yield from of_pipelines(figures)
    yield from of_sources(figures)
    yield from of_workers([each for each in workers if each["what"] == "worker"])
    yield from of_consumers([each for each in workers if each["what"] == "consumer"])
    yield from of_ingests([each for each in workers if each["what"] == "ingest"])
    yield from of_steps()


def of_queues(figures: Mapping[str, Figures]) -> Iterator[Family]:
    """Yield the metrics of the queues of databases, by the names of the databases."""
    labels = ("database", "queue")
    for name, text, field, unit in QUEUES:
        values = {(at, each.queue): getattr(each, field) for at, those in figures.items() for each in those.queues}
        yield Family(f"inturn.queue.{name}", "gauge", text, labels, values, unit)


def of_sources(figures: Mapping[str, Figures]) -> Iterator[Family]:
    """Yield the metrics of the sources of databases, by the names of the databases."""
    of = ("database", "source", "partition")
    every = {(at, each.source, each.partition): each for at, those in figures.items() for each in those.sources}
    records = {
        (*at, verdict): getattr(each, verdict) for at, each in every.items() for verdict in ("received", "rejected")
    }
    text = "Records of a source by what became of them."
    yield Family("inturn.source.records", "counter", text, (*of, "verdict"), records)
    dropped = {at: each.dropped for at, each in every.items()}
    text = "Rejected records that were not kept, since the source keeps as many as it may."
    yield Family("inturn.source.dropped_records", "counter", text, of, dropped)
    statuses = {(*at, status): count for at, each in every.items() for status, count in each.partitions.items()}
    yield Family("inturn.source.partitions", "gauge", "Partitions of a source.", (*of, "status"), statuses)
    for name, text, field, unit in _SOURCES:
        values = {at: value for at, each in every.items() if (value := getattr(each, field)) is not None}
        yield Family(f"inturn.source.{name}", "gauge", text, of, values, unit)


def of_pipelines(figures: Mapping[str, Figures]) -> Iterator[Family]:
    """Yield the metrics of the pipelines of databases, by the names of the databases."""
    of = ("database", "pipeline")
    every = {(at, each.pipeline): each for at, those in figures.items() for each in those.pipelines}
    messages = {(*at, verdict): count for at, each in every.items() for verdict, count in verdicts(each.counts)}
    text = "Messages by what became of them."
    yield Family("inturn.pipeline.messages", "counter", text, (*of, "verdict"), messages)
    rejected = {
        (*at, reason): count for at, each in every.items() for reason, count in each.counts.get("rejected", {}).items()
    }
    yield Family("inturn.pipeline.rejected_messages", "counter", "Rejected messages.", (*of, "reason"), rejected)
    groups = {(*at, status): each.groups.get(status, 0) for at, each in every.items() for status in _STATUSES}
    yield Family("inturn.pipeline.groups", "gauge", "Groups that are not open.", (*of, "status"), groups)
    for name, text, field, unit in _PIPELINES:
        yield Family(
            f"inturn.{name}", "gauge", text, of, {at: getattr(each, field) for at, each in every.items()}, unit
        )


def verdicts(counts: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield counts of messages by verdict."""
    yield from ((name, counts.get(name, 0)) for name in _VERDICTS)
    yield "rejected", sum(counts.get("rejected", {}).values())


def of_workers(workers: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of workers, from what they tell; see :func:`inturn.telemetry.measures.workers`."""
    text = "How many workers of the pipeline run over the queue."
    yield Family("inturn.worker.up", "gauge", text, ("pipeline", "queue"), _by(("pipeline", "queue"), workers, "up"))
    of, by_pipeline = ("pipeline",), measures.summed(workers, by=("pipeline",))
    text = "Groups whose turn is running or about to."
    yield Family("inturn.worker.busy", "gauge", text, of, _by(of, by_pipeline, "busy"))
    text = "Turns whose lease was over before they were kept."
    yield Family("inturn.worker.leases_lost", "counter", text, of, _by(of, by_pipeline, "leases_lost"))
    text = "Calls of the handler that were repeated."
    yield Family("inturn.worker.retries", "counter", text, of, _by(of, by_pipeline, "retries"))
    for name, text, bounds, unit in (
        ("turn_seconds", "How long turns took.", SECONDS, "s"),
        ("turn_messages", "How many messages a turn had.", SIZES, ""),
    ):
        values = {(each["pipeline"],): each[name] for each in by_pipeline}
        yield Family(f"inturn.worker.{name.removesuffix('_seconds')}", "histogram", text, of, values, unit, bounds)
    delivered = {(each["pipeline"], to): each[f"deliver_{to}"] for each in by_pipeline for to in ("ok", "error")}
    text, labels = "How long calls of deliver took.", ("pipeline", "outcome")
    yield Family("inturn.worker.deliver", "histogram", text, labels, delivered, "s", SECONDS)


def of_consumers(consumers: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of consumers, from what they tell; see :func:`inturn.telemetry.measures.workers`."""
    of = ("queue",)
    text = "How many consumers of the queue run."
    yield Family("inturn.consumer.up", "gauge", text, of, _by(of, consumers, "up"))
    text = "Messages whose handler is running or about to."
    yield Family("inturn.consumer.busy", "gauge", text, of, _by(of, consumers, "busy"))
    for name, text, field in _CONSUMERS:
        yield Family(f"inturn.consumer.{name}", "counter", text, of, _by(of, consumers, field))
    seconds = {(each["queue"],): each["handler_seconds"] for each in consumers}
    yield Family(
        "inturn.consumer.handler", "histogram", "How long calls of the handler took.", of, seconds, "s", SECONDS
    )


def of_ingests(hosts: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metric of hosts of sources, from what they tell; see :func:`inturn.telemetry.measures.workers`."""
    of = ("source", "queue")
    text = "How many instances in this process read the source, without trouble."
    yield Family("inturn.ingest.up", "gauge", text, of, _by(of, hosts, "up"))


def _by(labels: Labels, those: Iterable[Mapping[str, Any]], name: str) -> dict[Labels, int]:
    """Return a number of workers or consumers by their labels."""
    return {tuple(each[label] for label in labels): each[name][0] for each in those}


def of_steps() -> Iterator[Family]:
    """Yield the metrics of the Spark steps of this process."""
    steps = measures.steps()
    of = ("pipeline",)
    seconds = {(name,): [*each.seconds.counts, each.seconds.sum] for name, each in steps.items()}
    yield Family("inturn.spark.step", "histogram", "How long steps took.", of, seconds, "s", SECONDS)
    numbers = {(name,): sum(each.seconds.counts) for name, each in steps.items()}
    yield Family("inturn.spark.steps", "counter", "Steps that this driver has committed.", of, numbers)
    messages = {(name, verdict): count for name, each in steps.items() for verdict, count in each.messages.items()}
    yield Family("inturn.spark.step_messages", "counter", "Messages of these steps.", (*of, "verdict"), messages)
    last = {(name,): each.last_s for name, each in steps.items()}
    yield Family("inturn.spark.last_step_timestamp", "gauge", "When the last one was committed.", of, last, "s")
