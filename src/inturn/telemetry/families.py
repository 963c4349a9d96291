"""All metrics except those of the semantic conventions: names, labels and the sources of the values."""

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
        name: name with dots; the Prometheus name has underscores, and the unit at its end.
        kind: kind of metric.
        help: description.
        labels: names of the labels.
        values: values by labels; for a histogram, the count of each bucket and the sum.
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
    ("messages", "Messages not acknowledged yet.", "messages", ""),
    ("in_flight", "Messages leased by a receiver.", "in_flight", ""),
    ("delayed", "Messages hidden until a later time.", "delayed", ""),
    ("oldest_message_age", "Time since the oldest message was sent.", "oldest_s", "s"),
    ("groups_blocked", "Groups whose messages cannot be received now.", "blocked", ""),
    ("groups_parked", "Parked groups.", "parked", ""),
)
"""The gauges of a queue: name, description, attribute of its figures, unit."""
_PIPELINES: Final = (
    ("pipeline.held_messages", "Messages held by groups.", "held", ""),
    ("pipeline.oldest_held_age", "Time for which the oldest held message has been held.", "oldest_held_s", "s"),
    ("outbox.outputs", "Outputs not delivered yet.", "outputs", ""),
    ("outbox.oldest_age", "Time since the oldest undelivered output was produced.", "oldest_output_s", "s"),
    ("outbox.failing_groups", "Groups whose last delivery failed.", "failing", ""),
)
_SOURCES: Final = (
    ("lag", "Records of the partition not read yet.", "lag", ""),
    ("age", "Time since the last committed record was written.", "age_s", "s"),
    ("idle", "Time since the position of the partition last changed.", "idle_s", "s"),
    ("moved_messages", "Messages that wait because their group was read from another partition before.", "moved", ""),
)
_CONSUMERS: Final = (
    ("messages_done", "Messages handled and acknowledged.", "done"),
    ("attempts_failed", "Failed attempts.", "failed"),
    ("groups_parked", "Groups parked because the attempts of a message were used up.", "parked"),
    ("messages_deferred", "Messages without a group deferred because their attempts were used up.", "deferred"),
    (
        "messages_dead_lettered",
        "Messages moved to the dead-letter queue because their attempts were used up.",
        "dead_lettered",
    ),
    ("leases_lost", "Attempts whose lease expired before they were settled.", "lost"),
)


def every(figures: Mapping[str, Figures], workers: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of databases by name, of workers, consumers and sources, and of Spark steps of this process."""
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
    text = "Records of a source by verdict: received, rejected."
    yield Family("inturn.source.records", "counter", text, (*of, "verdict"), records)
    dropped = {at: each.dropped for at, each in every.items()}
    text = "Rejected records not stored because the source reached its limit."
    yield Family("inturn.source.dropped_records", "counter", text, of, dropped)
    statuses = {(*at, status): count for at, each in every.items() for status, count in each.partitions.items()}
    yield Family("inturn.source.partitions", "gauge", "Partitions of a source by status.", (*of, "status"), statuses)
    for name, text, field, unit in _SOURCES:
        values = {at: value for at, each in every.items() if (value := getattr(each, field)) is not None}
        yield Family(f"inturn.source.{name}", "gauge", text, of, values, unit)


def of_pipelines(figures: Mapping[str, Figures]) -> Iterator[Family]:
    """Yield the metrics of the pipelines of databases, by the names of the databases."""
    of = ("database", "pipeline")
    every = {(at, each.pipeline): each for at, those in figures.items() for each in those.pipelines}
    messages = {(*at, verdict): count for at, each in every.items() for verdict, count in verdicts(each.counts)}
    text = "Messages of a pipeline by verdict."
    yield Family("inturn.pipeline.messages", "counter", text, (*of, "verdict"), messages)
    rejected = {
        (*at, reason): count for at, each in every.items() for reason, count in each.counts.get("rejected", {}).items()
    }
    yield Family(
        "inturn.pipeline.rejected_messages", "counter", "Rejected messages by reason.", (*of, "reason"), rejected
    )
    groups = {(*at, status): each.groups.get(status, 0) for at, each in every.items() for status in _STATUSES}
    yield Family("inturn.pipeline.groups", "gauge", "Groups that are not open, by status.", (*of, "status"), groups)
    for name, text, field, unit in _PIPELINES:
        yield Family(
            f"inturn.{name}", "gauge", text, of, {at: getattr(each, field) for at, each in every.items()}, unit
        )


def verdicts(counts: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield counts of messages by verdict."""
    yield from ((name, counts.get(name, 0)) for name in _VERDICTS)
    yield "rejected", sum(counts.get("rejected", {}).values())


def of_workers(workers: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of workers from their measurements; see :func:`inturn.telemetry.measures.workers`."""
    text = "Running workers of the pipeline on the queue."
    yield Family("inturn.worker.up", "gauge", text, ("pipeline", "queue"), _by(("pipeline", "queue"), workers, "up"))
    of, by_pipeline = ("pipeline",), measures.summed(workers, by=("pipeline",))
    text = "Groups whose turn is running or about to start."
    yield Family("inturn.worker.busy", "gauge", text, of, _by(of, by_pipeline, "busy"))
    text = "Turns whose lease expired before they were committed."
    yield Family("inturn.worker.leases_lost", "counter", text, of, _by(of, by_pipeline, "leases_lost"))
    text = "Repeated calls of the handler."
    yield Family("inturn.worker.retries", "counter", text, of, _by(of, by_pipeline, "retries"))
    for name, text, bounds, unit in (
        ("turn_seconds", "Duration of turns.", SECONDS, "s"),
        ("turn_messages", "Messages per turn.", SIZES, ""),
    ):
        values = {(each["pipeline"],): each[name] for each in by_pipeline}
        yield Family(f"inturn.worker.{name.removesuffix('_seconds')}", "histogram", text, of, values, unit, bounds)
    delivered = {(each["pipeline"], to): each[f"deliver_{to}"] for each in by_pipeline for to in ("ok", "error")}
    text, labels = "Duration of calls of deliver.", ("pipeline", "outcome")
    yield Family("inturn.worker.deliver", "histogram", text, labels, delivered, "s", SECONDS)


def of_consumers(consumers: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metrics of consumers from their measurements; see :func:`inturn.telemetry.measures.workers`."""
    of = ("queue",)
    text = "Running consumers of the queue."
    yield Family("inturn.consumer.up", "gauge", text, of, _by(of, consumers, "up"))
    text = "Messages whose handler is running or about to start."
    yield Family("inturn.consumer.busy", "gauge", text, of, _by(of, consumers, "busy"))
    for name, text, field in _CONSUMERS:
        yield Family(f"inturn.consumer.{name}", "counter", text, of, _by(of, consumers, field))
    seconds = {(each["queue"],): each["handler_seconds"] for each in consumers}
    yield Family("inturn.consumer.handler", "histogram", "Duration of calls of the handler.", of, seconds, "s", SECONDS)


def of_ingests(hosts: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
    """Yield the metric of hosts of sources from their measurements; see :func:`inturn.telemetry.measures.workers`."""
    of = ("source", "queue")
    text = "Instances in this process that read the source without errors."
    yield Family("inturn.ingest.up", "gauge", text, of, _by(of, hosts, "up"))


def _by(labels: Labels, those: Iterable[Mapping[str, Any]], name: str) -> dict[Labels, int]:
    """Return a number of workers or consumers by their labels."""
    return {tuple(each[label] for label in labels): each[name][0] for each in those}


def of_steps() -> Iterator[Family]:
    """Yield the metrics of the Spark steps of this process."""
    steps = measures.steps()
    of = ("pipeline",)
    seconds = {(name,): [*each.seconds.counts, each.seconds.sum] for name, each in steps.items()}
    yield Family("inturn.spark.step", "histogram", "Duration of Spark steps.", of, seconds, "s", SECONDS)
    numbers = {(name,): sum(each.seconds.counts) for name, each in steps.items()}
    yield Family("inturn.spark.steps", "counter", "Spark steps committed by this driver.", of, numbers)
    messages = {(name, verdict): count for name, each in steps.items() for verdict, count in each.messages.items()}
    yield Family(
        "inturn.spark.step_messages",
        "counter",
        "Messages in the committed Spark steps, by verdict.",
        (*of, "verdict"),
        messages,
    )
    last = {(name,): each.last_s for name, each in steps.items()}
    yield Family(
        "inturn.spark.last_step_timestamp",
        "gauge",
        "Time of the last committed Spark step, in seconds since 1970.",
        of,
        last,
        "s",
    )
