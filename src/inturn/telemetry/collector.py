"""Families as Prometheus metrics: for a registry of an application, or as a page of their own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from inturn.core.override import override
from inturn.telemetry.families import Family


class MetricsCollector(Collector):
    """The families that a function returns, as metrics.

    Args:
        read: returns the families; called when the metrics are requested.
    """

    def __init__(self, read: Callable[[], Iterable[Family]]) -> None:
        self._read = read

    def describe(self) -> Iterator[Metric]:
        """Return nothing, so that registering the collector reads no database."""
        return iter(())

    @override
    def collect(self) -> Iterator[Metric]:
        return map(metric, self._read())


def metric(family: Family) -> Metric:
    """Return a family as a metric of prometheus_client."""
    name = family.name.replace(".", "_") + ("_seconds" if family.unit == "s" else "")
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
        for labels, (*counts, total) in family.values.items():
            histogram.add_metric(labels, buckets(family.bounds, counts), total)
        return histogram
    converted = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily)(
        name, family.help, labels=family.labels
    )
    for labels, value in family.values.items():
        converted.add_metric(labels, value)
    return converted


def buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return the cumulative counts of a histogram by upper bound, in the form of Prometheus.

    The last count is of the values above all bounds.
    """
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return [(name, float(count)) for name, count in zip(names, accumulate(counts), strict=True)]


def page(families: Iterable[Family]) -> bytes:
    """Return families, and the metrics of the process, in the Prometheus format ``families.PAGE_TYPE``."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(lambda: families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
