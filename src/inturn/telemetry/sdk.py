"""The OpenTelemetry SDK for ``inturn work --telemetry``, configured by its standard variables ``OTEL_…``."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from inturn.core.errors import SetupError
from inturn.telemetry import instrument, uninstrument
from inturn.telemetry.figures import HasFigures


@contextmanager
def instrumented(databases: Iterable[HasFigures]) -> Iterator[None]:
    """Instrument this process and, at the end, export the remaining data; providers that are already set are used.

    Raises:
        SetupError: if a configured exporter is not installed.
    """
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        tracer_provider = TracerProvider()
        for exporter in _exporters("traces"):
            tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(tracer_provider)
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        readers = [PeriodicExportingMetricReader(exporter) for exporter in _exporters("metrics")]
        metrics.set_meter_provider(MeterProvider(readers))
    instrument(*databases)
    try:
        yield
    finally:
        uninstrument()
        for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
            if isinstance(provider, TracerProvider | MeterProvider):
                provider.force_flush()


def _exporters(signal: str) -> Iterator[Any]:
    """Yield the exporters of ``OTEL_TRACES_EXPORTER`` or ``OTEL_METRICS_EXPORTER``, by default ``otlp``."""
    variable, group = f"OTEL_{signal.upper()}_EXPORTER", f"opentelemetry_{signal}_exporter"
    for name in os.environ.get(variable, "otlp").split(","):
        if name.strip() in ("", "none"):
            continue
        matching = entry_points(group=group, name=name.strip())
        if not matching:
            names = ", ".join(sorted({point.name for point in entry_points(group=group)}))
            raise SetupError(
                f"{variable} is {name.strip()!r}, which is not installed; available: {names}, none; to install "
                "otlp: pip install opentelemetry-exporter-otlp"
            )
        yield next(iter(matching)).load()()
