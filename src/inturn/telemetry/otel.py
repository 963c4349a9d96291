"""OpenTelemetry: spans that follow a message from its send to its effects, and metrics of clients and workers.

Names follow the semantic conventions for messaging 1.44: https://opentelemetry.io/docs/specs/semconv/messaging/. A
message carries its trace context as W3C ``traceparent`` and ``tracestate`` in its attributes. A span about messages has
a link to the context of each; if all contexts are of one trace, the span belongs to that trace. The sender decides
whether a message is recorded: if all messages were sent unrecorded, their processing is not recorded either. No span is
created then: the SDK takes longer for a span that it drops than a worker for a small message.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    StatusCode,
    TracerProvider,
)

from inturn.core.texts import text_of, traceback_of
from inturn.telemetry import families, measures
from inturn.telemetry.figures import HasFigures
from inturn.telemetry.trace_context import (
    DROPPED,
    ROOT,
    SAMPLED,
    child_context,
    context_of,
    flags_of,
    parse_traceparent,
    traceparent,
    with_context,
)

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
_OPERATION_TYPES: Final = {
    **dict.fromkeys(("send", "send_many", "schedule"), "send"),
    **dict.fromkeys(("receive", "fetch"), "receive"),
    **dict.fromkeys(("ack", "nack", "extend", "defer", "reject"), "settle"),
}
"""The type of operation of each operation, ``messaging.operation.type``."""


class OpenTelemetryObserver:
    """The observer that creates spans and metrics; see :class:`inturn.telemetry.observer.Observer`."""

    def __init__(
        self,
        databases: Iterable[HasFigures],
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        sample: float,
    ) -> None:
        self._sample = sample
        self.tracer = trace.get_tracer("inturn", tracer_provider=tracer_provider, schema_url=_SCHEMA)
        meter_provider = meter_provider or metrics.get_meter_provider()
        meter = metrics.get_meter("inturn", meter_provider=meter_provider, schema_url=_SCHEMA)
        self._is_metered = not type(meter_provider).__module__.startswith(
            "opentelemetry.metrics"
        )  # the API's own providers measure nothing
        self.sent, self.consumed = _MessageCounter(), _MessageCounter()
        for name, counter, text in (
            ("messaging.client.sent.messages", self.sent, "Number of messages sent."),
            ("messaging.client.consumed.messages", self.consumed, "Number of messages received."),
        ):
            meter.create_observable_counter(name, [counter.observe], "{message}", text)
        self.operation_duration = _durations(meter, "messaging.client.operation.duration", "Duration of operations.")
        self.process_duration = _durations(meter, "messaging.process.duration", "Duration of processing.")
        self.deliver_duration = _durations(meter, "inturn.worker.deliver.duration", "Duration of deliveries.")
        self.step_duration = _durations(meter, "inturn.spark.step.duration", "Duration of Spark steps.")
        self.task_messages = meter.create_histogram("inturn.worker.task.messages", "{message}", "Messages per task.")
        self._attributes: dict[tuple[str, str], dict[str, Any]] = {}
        self._read = families.reader(databases)
        self._is_closed = False
        for family in families.all_families({}, []):
            if family.kind != "histogram":
                is_gauge = family.kind == "gauge"
                create = meter.create_observable_gauge if is_gauge else meter.create_observable_counter
                create(family.name, [self._observed(family.name)], family.unit, family.help)

    def _observed(self, name: str) -> Callable[[CallbackOptions], list[Observation]]:
        """Return the callback of a metric."""

        def observe(_options: CallbackOptions) -> list[Observation]:
            every = () if self._is_closed else self._read()
            return [
                Observation(value, dict(zip(family.labels, label_values, strict=True)))
                for family in every
                if family.name == name
                for label_values, value in family.values.items()
            ]

        return observe

    def close(self) -> None:
        """Stop observing; the API cannot remove the metrics."""
        self._is_closed = True

    def attributes(self, operation: str, kind: str, queue: str) -> dict[str, Any]:
        """Return the attributes of spans and metrics of an operation on a queue."""
        known = self._attributes.get((operation, queue))
        if known is None:
            known = self._attributes[operation, queue] = {
                "messaging.system": "inturn",
                "messaging.operation.name": operation,
                "messaging.operation.type": kind,
                "messaging.destination.name": queue,
            }
        return known

    # --- the methods of Observer, see there ---

    def operation(self, method: Callable[..., Any]) -> "_ObservedOperation | None":
        """Observe one call of an operation."""
        kind = _OPERATION_TYPES.get(method.__name__)
        if kind is None:
            return None
        is_recorded = kind == "send" and self.is_recorded()
        if kind != "receive" and not is_recorded and not self._is_metered:
            return None
        target: Any = method.__self__  # type: ignore[attr-defined]
        queue = getattr(target, "queue", None)
        return _ObservedOperation(
            self, method.__name__, kind, queue if isinstance(queue, str) else target.name, is_recorded=is_recorded
        )

    def with_trace(self, attributes: str | None, max_bytes: int) -> str | None:
        """Return attributes with the current trace context."""
        span = trace.get_current_span()
        return (
            attributes if span is trace.INVALID_SPAN else with_context(attributes, span.get_span_context(), max_bytes)
        )

    def received(self, queue: str, attributes: Sequence[str | None], began_ns: int) -> None:
        """Create the span of a receive."""
        about = self.attributes("receive", "receive", queue)
        self.consumed.add(len(attributes), about)
        if self._is_metered:
            self.operation_duration.record((time.time_ns() - began_ns) / 1e9, about)
        if self.is_recorded(attributes):
            self.start_span(f"receive {queue}", SpanKind.CLIENT, attributes, about, began_ns).end()

    def forwarded(self, queue: str, number: int) -> None:
        """Count the messages that a chain has sent; they continue the traces of the tasks."""
        self.sent.add(number, self.attributes("send", "send", queue))

    def task(
        self, pipeline: str | None, queue: str, group: str | None, attributes: Sequence[str | None]
    ) -> "_ObservedTask | None":
        """Observe a task that has messages."""
        is_recorded = bool(attributes) and self.is_recorded(attributes)
        if not attributes or not (is_recorded or self._is_metered):
            return None
        return _ObservedTask(self, pipeline, queue, group, attributes, is_recorded=is_recorded)

    def delivery(self, pipeline: str, effect_id: str, trace: str | None) -> "_TimedSpan | None":
        """Observe a delivery."""
        context = None if trace is None else parse_traceparent(trace)
        if context is None and not self._is_metered:
            return None
        about = {"inturn.pipeline": pipeline}
        span = None
        if context is not None:
            more = {**about, "inturn.effect_id": effect_id}
            span = self.tracer.start_span(f"deliver {pipeline}", child_context(context), attributes=more)
        return _TimedSpan(span, self.deliver_duration, about)

    def step(self, pipeline: str) -> "_TimedSpan":
        """Observe a step on Spark."""
        about = {"inturn.pipeline": pipeline}
        return _TimedSpan(self.tracer.start_span(f"step {pipeline}", attributes=about), self.step_duration, about)

    # --- spans about messages ---

    def is_recorded(self, attributes: Sequence[str | None] = ()) -> bool:
        """Return whether an operation on messages, given by their attributes, may have a span."""
        span = trace.get_current_span()
        if span is not trace.INVALID_SPAN and (current := span.get_span_context()).is_valid:
            return current.trace_flags.sampled
        if attributes:
            flags = [*map(flags_of, attributes)]
            if not SAMPLED.isdisjoint(flags):
                return True
            if DROPPED.issuperset(flags):
                return False
        return self._sample >= 1 or random.random() < self._sample  # noqa: S311 - no secret

    def start_span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Sequence[str | None],
        about: Mapping[str, Any],
        start_ns: int | None = None,
    ) -> Span:
        """Start a span about messages, given by their attributes."""
        parents = [span_context for span_context in map(context_of, attributes) if span_context is not None]
        parent = None
        if trace.get_current_span() is trace.INVALID_SPAN:
            is_one = len({span_context.trace_id for span_context in parents}) == 1
            parent = child_context(parents[0]) if is_one else ROOT
        more = {**about, "messaging.batch.message_count": len(attributes)} if len(attributes) > 1 else about
        links = [
            Link(span_context)
            for span_context in {span_context.span_id: span_context for span_context in parents}.values()
        ]
        return self.tracer.start_span(name, parent, kind, more, links, start_ns)


class _MessageCounter:
    """The number of messages as plain numbers: a counter of the SDK costs a tenth of a send."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counts: dict[int, tuple[int, Mapping[str, Any]]] = {}

    def add(self, number: int, about: Mapping[str, Any]) -> None:
        """Count messages of an operation on a queue, by its attributes, which are always the same object."""
        with self._mutex:
            self._counts[id(about)] = self._counts.get(id(about), (0, about))[0] + number, about

    def observe(self, _options: CallbackOptions) -> list[Observation]:
        """Return the counts."""
        with self._mutex:
            return [Observation(count, about) for count, about in self._counts.values()]


class _ObservedOperation:
    """A call of an operation: a send has a span while it lasts; a receive that found messages gets one afterwards."""

    __slots__ = ("_about", "_answer", "_began_ns", "_is_recorded", "_kind", "_observer", "_queue", "_span", "_token")

    def __init__(self, observer: OpenTelemetryObserver, name: str, kind: str, queue: str, *, is_recorded: bool) -> None:
        self._observer, self._kind, self._queue, self._is_recorded = observer, kind, queue, is_recorded
        self._about = observer.attributes(name, kind, queue)
        self._span: Span | None = None
        self._token: Any = None
        self._answer: Any = None
        self._began_ns = 0

    def __enter__(self) -> Self:
        self._began_ns = time.time_ns()
        if self._is_recorded:
            span = self._observer.tracer.start_span(f"send {self._queue}", None, SpanKind.PRODUCER, self._about)
            self._token = contexts.attach(trace.set_span_in_context(span))
            self._span = span
        return self

    def answered(self, answer: Any) -> None:
        """Record the answer."""
        self._answer = answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        observer, about, span = self._observer, self._about, self._span
        answer = self._answer if isinstance(self._answer, list) else [] if self._answer is None else [self._answer]
        if self._kind == "receive" and answer:
            observer.consumed.add(len(answer), about)
            attributes = [message.attributes_json for message in answer]
            if observer.is_recorded(attributes):
                span = observer.start_span(f"receive {self._queue}", SpanKind.CLIENT, attributes, about, self._began_ns)
        elif self._kind == "send" and answer:
            observer.sent.add(len(answer), about)
        if error is not None:
            about = {**about, "error.type": type(error).__qualname__}
        observer.operation_duration.record((time.time_ns() - self._began_ns) / 1e9, about)
        if self._token is not None:
            contexts.detach(self._token)
        if span is None:
            return
        if span.is_recording():
            if len(answer) == 1:
                span.set_attribute("messaging.message.id", str(answer[0].sequence_number))
            elif self._kind == "send" and answer:
                span.set_attribute("messaging.batch.message_count", len(answer))
            _fail(span, error)
        span.end()


class _ObservedTask:
    """A task of a group, with a span if it has messages."""

    __slots__ = (
        "_about",
        "_attributes",
        "_began_ns",
        "_error",
        "_group",
        "_is_recorded",
        "_observer",
        "_span",
        "_token",
        "pipeline",
        "trace",
    )

    def __init__(
        self,
        observer: OpenTelemetryObserver,
        pipeline: str | None,
        queue: str,
        group: str | None,
        attributes: Sequence[str | None],
        *,
        is_recorded: bool,
    ) -> None:
        self._is_recorded = is_recorded
        self._observer, self.pipeline, self._group, self._attributes = observer, pipeline, group, attributes
        self._about = observer.attributes("process", "process", queue)
        self._span: Span | None = None
        self._token: Any = None
        self._error: BaseException | None = None
        self._began_ns = 0
        self.trace: str | None = None

    def __enter__(self) -> Self:
        self._began_ns = time.time_ns()
        if self._is_recorded:
            name = f"process {self._about['messaging.destination.name']}"
            span = self._observer.start_span(name, SpanKind.CONSUMER, self._attributes, self._about, self._began_ns)
            if self.pipeline is not None:
                span.set_attribute("messaging.consumer.group.name", self.pipeline)
            if self._group is not None:
                span.set_attribute("inturn.group", self._group)
            if span.is_recording():
                self.trace = traceparent(span.get_span_context())
            self._token = contexts.attach(trace.set_span_in_context(span))
            self._span = span
        return self

    def failed(self, error: BaseException | None) -> None:
        """Record the error that parked the group."""
        self._error = error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        error = error or self._error
        about = self._about if error is None else {**self._about, "error.type": type(error).__qualname__}
        self._observer.process_duration.record((time.time_ns() - self._began_ns) / 1e9, about)
        self._observer.task_messages.record(len(self._attributes), self._about)
        if self._span is not None:
            contexts.detach(self._token)
            _fail(self._span, error)
            self._span.end()


class _TimedSpan:
    """A delivery or a step: its duration, and its span, if any, which is the current span while it lasts."""

    __slots__ = ("_about", "_began_ns", "_durations", "_span", "_token")

    def __init__(self, span: Span | None, durations: Histogram, about: dict[str, Any]) -> None:
        self._span, self._durations, self._about = span, durations, about
        self._token = None if span is None else contexts.attach(trace.set_span_in_context(span))
        self._began_ns = time.time_ns()

    def __enter__(self) -> Self:
        return self

    def answered(self, answer: Any) -> None:
        """Record the report of a step."""
        if self._span is not None:
            self._span.set_attribute("inturn.step", answer.step)
            for verdict, count in families.verdict_counts(answer.to_dict()["counts"]):
                self._span.set_attribute(f"inturn.messages.{verdict}", count)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        about = self._about if error is None else {**self._about, "error.type": type(error).__qualname__}
        self._durations.record((time.time_ns() - self._began_ns) / 1e9, about)
        if self._span is not None and self._token is not None:
            contexts.detach(self._token)
            _fail(self._span, error)
            self._span.end()


def _durations(meter: metrics.Meter, name: str, text: str) -> Histogram:
    return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=measures.SECONDS)


def _fail(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", type(error).__qualname__)
        # As record_exception does, but its own `str` of the error may raise.
        about = {"type": type(error).__qualname__, "message": text_of(error), "stacktrace": traceback_of(error)}
        span.add_event("exception", {f"exception.{name}": text for name, text in about.items()})
        span.set_status(StatusCode.ERROR)
