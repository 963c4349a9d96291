"""Prometheus metrics of databases, workers, consumers and Spark steps, read when they are requested."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from inturn.core.override import override
from inturn.telemetry import families, measures
from inturn.telemetry.families import Family
from inturn.telemetry.figures import FiguresReader, HasFigures


class MetricsCollector(Collector):
    """The metrics of databases, and of the workers and Spark steps of this process.

    Args:
        databases: their figures are read when the metrics are collected, each at most every ``limits.FIGURES_S``.
        workers: returns the measurements of the workers of this process, or of several.
    """

    def __init__(
        self,
        databases: Iterable[HasFigures],
        workers: Callable[[], Sequence[Mapping[str, Any]]] = measures.workers,
    ) -> None:
        self._figures = FiguresReader(databases)
        self._workers = workers
        measures.begin()

    def describe(self) -> Iterator[Metric]:
        """Return nothing, so that registering the collector does not read the databases."""
        return iter(())

    @override
    def collect(self) -> Iterator[Metric]:
        return map(metric, families.every(self._figures.read(), self._workers()))


def metric(family: Family) -> Metric:
    """Return a family as a metric of prometheus_client."""
    name = family.name.replace(".", "_") + ("_seconds" if family.unit == "s" else "")
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
        for at, (*counts, total) in family.values.items():
            histogram.add_metric(at, buckets(family.bounds, counts), total)
        return histogram
    made = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily)(
        name, family.help, labels=family.labels
    )
    for at, value in family.values.items():
        made.add_metric(at, value)
    return made


def buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return the cumulative counts of a histogram by upper bound, in the form of Prometheus.

    The last count is of the values above all bounds.
    """
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return [(name, float(count)) for name, count in zip(names, accumulate(counts), strict=True)]


def page(collector: MetricsCollector) -> bytes:
    """Return the metrics of a collector, and those of the process, in the Prometheus format ``families.PAGE_TYPE``."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return generate_latest(registry)
