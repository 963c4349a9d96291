"""Logs, metrics and traces of inturn's work; see docs/telemetry.md.

Logs need nothing but the standard library's ``logging``. Prometheus' client and OpenTelemetry are in the extra
``telemetry``, and imported only by the functions that need them.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InputError, SetupError
from inturn.telemetry import observer
from inturn.telemetry.events import log_payloads

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from inturn.telemetry.collector import MetricsCollector
    from inturn.telemetry.figures import HasFigures

__all__ = ["instrument", "log_payloads", "processing", "prometheus", "uninstrument"]


def instrument(
    *databases: "HasFigures",
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
    sample: float = 1.0,
) -> None:
    """Follow messages with OpenTelemetry from now on, in this process.

    A send puts the trace context into the message's attributes, ``traceparent`` and ``tracestate``. Spans and metrics
    have the names of the semantic conventions for messaging, version 1.44.

    Args:
        databases: what :func:`inturn.open` returned; their figures become observable gauges and counters.
        tracer_provider: makes spans; None: the global one.
        meter_provider: makes metrics; None: the global one.
        sample: the part, from 0 to 1, of the sends and turns that may begin a trace; those within one follow it. The
            SDK's sampler decides about these too, but only once it has made a span, which costs more than the rest.

    Raises:
        InputError: if ``sample`` is not from 0 to 1.
        SetupError: if OpenTelemetry's API is not installed.
    """
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 <= sample <= 1:
        raise InputError(f"sample is {sample!r}; it is a number from 0 to 1, such as 0.01 for one in a hundred")
    try:
        from inturn.telemetry.otel import OpenTelemetryObserver
    except ImportError as error:
        raise _missing("opentelemetry-api", error) from error
    uninstrument()
    observer.active = OpenTelemetryObserver(databases, tracer_provider, meter_provider, sample)


def uninstrument() -> None:
    """End what :func:`instrument` began."""
    if observer.active is not None:
        observer.active.close()
    observer.active = None


def processing(*messages: Any) -> AbstractContextManager[object]:
    """Observe a block that processes received messages of one queue: its span has a link to each one's send.

    A worker does so for its turns. Without :func:`instrument` this does nothing.
    """
    if observer.active is None or not messages:
        return nullcontext()
    groups = {each.group for each in messages}
    group = groups.pop() if len(groups) == 1 else None
    carried = [each.attributes_json for each in messages]
    return observer.active.turn(None, messages[0].queue, group, carried) or nullcontext()


def prometheus(*databases: "HasFigures", registry: "CollectorRegistry | None" = None) -> "MetricsCollector":
    """Collect the metrics of databases, and of the workers, consumers and Spark steps of this process, for Prometheus.

    Workers, consumers and steps are measured from now on. The databases are read when the metrics are asked for, at
    most once a second. They must be open until then; ``registry.unregister(collector)`` ends the collection.

    Args:
        databases: what :func:`inturn.open` returned.
        registry: where the collector is registered; None: prometheus_client's own.

    Raises:
        SetupError: if prometheus_client is not installed.
    """
    try:
        from prometheus_client import REGISTRY

        from inturn.telemetry.collector import MetricsCollector
    except ImportError as error:
        raise _missing("prometheus_client", error) from error
    collector = MetricsCollector(databases)
    (REGISTRY if registry is None else registry).register(collector)
    return collector


def _missing(package: str, error: ImportError) -> SetupError:
    return SetupError(f"for this {package} is needed: pip install 'inturn[telemetry]' ({error})")
