"""Logs, metrics and traces of inturn's work; see docs/telemetry.md.

Logs need only the standard library's ``logging``. The extra ``telemetry`` installs the Prometheus client and
OpenTelemetry; only the functions that need them import them.
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
    """Trace messages with OpenTelemetry in this process from now on.

    A send adds the trace context to the message's attributes, as ``traceparent`` and ``tracestate``. Spans and metrics
    are named by the semantic conventions for messaging, version 1.44.

    Args:
        databases: databases opened with :func:`inturn.open`; their figures become observable gauges and counters.
        tracer_provider: provider of spans; None: the global one.
        meter_provider: provider of metrics; None: the global one.
        sample: fraction, from 0 to 1, of the sends and tasks that may begin a trace; within a trace, its own decision
            applies. The SDK's sampler decides too, but only after it has created a span, which is the larger cost.

    Raises:
        InputError: if ``sample`` is not a number from 0 to 1.
        SetupError: if OpenTelemetry's API is not installed.
    """
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 <= sample <= 1:
        raise InputError(f"sample is {sample!r}; expected a number from 0 to 1, such as 0.01 for one in a hundred")
    try:
        from inturn.telemetry.otel import OpenTelemetryObserver
    except ImportError as error:
        raise _missing("opentelemetry-api", error) from error
    uninstrument()
    observer.active = OpenTelemetryObserver(databases, tracer_provider, meter_provider, sample)


def uninstrument() -> None:
    """Stop the tracing and the metrics that :func:`instrument` started."""
    if observer.active is not None:
        observer.active.close()
    observer.active = None


def processing(*messages: Any) -> AbstractContextManager[object]:
    """Trace a block that processes received messages of one queue, with a link from its span to each send.

    A worker does this for its tasks. Without :func:`instrument` the call does nothing.
    """
    if observer.active is None or not messages:
        return nullcontext()
    groups = {message.group for message in messages}
    group = groups.pop() if len(groups) == 1 else None
    attributes = [message.attributes_json for message in messages]
    return observer.active.task(None, messages[0].queue, group, attributes) or nullcontext()


def prometheus(*databases: "HasFigures", registry: "CollectorRegistry | None" = None) -> "MetricsCollector":
    """Collect the metrics of databases, and of the workers, consumers and Spark steps of this process, for Prometheus.

    Workers, consumers and steps are measured from now on. The databases are read when the metrics are requested, at
    most once a second. They must stay open; ``registry.unregister(collector)`` ends the collection.

    Args:
        databases: databases opened with :func:`inturn.open`.
        registry: registry of the collector; None: the default registry of prometheus_client.

    Raises:
        SetupError: if prometheus_client is not installed.
    """
    try:
        from prometheus_client import REGISTRY

        from inturn.telemetry.collector import MetricsCollector
        from inturn.telemetry.families import reader
    except ImportError as error:
        raise _missing("prometheus_client", error) from error
    collector = MetricsCollector(reader(databases))
    (REGISTRY if registry is None else registry).register(collector)
    return collector


def _missing(package: str, error: ImportError) -> SetupError:
    return SetupError(f"{package} is not installed; install it with: pip install 'inturn[telemetry]' ({error})")
