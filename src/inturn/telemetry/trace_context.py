"""Trace contexts in the attributes of messages: W3C ``traceparent`` and ``tracestate``, as JSON."""

from typing import Final

import msgspec
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

_MARK: Final = '"traceparent":"'
_LENGTH: Final = 55  # of a traceparent
SAMPLED: Final = frozenset("13579bdf")
"""The possible last digits of the flags of a recorded trace."""
DROPPED: Final = frozenset("02468ace")
"""The possible last digits of the flags of a trace that is not recorded."""
ROOT: Final = contexts.Context()


def child_context(context: SpanContext) -> contexts.Context:
    """Return the context of spans that belong to a remote one."""
    return trace.set_span_in_context(NonRecordingSpan(context), ROOT)


def traceparent(context: SpanContext) -> str:
    """Return the W3C traceparent of a context."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def flags_of(attributes: str | None) -> str:
    """Return the last digit of a message's trace flags, without reading all of its context; empty without a context."""
    start = -1 if attributes is None else attributes.find(_MARK)
    if attributes is None or start < 0:
        return ""
    end = start + len(_MARK) + _LENGTH
    return attributes[end - 1] if attributes[end : end + 1] == '"' else ""


def context_of(attributes: str | None) -> SpanContext | None:
    """Return the trace context in a message's attributes, which are JSON."""
    start = -1 if attributes is None else attributes.find(_MARK)
    if attributes is None or start < 0:
        return None
    start += len(_MARK)
    context = parse_traceparent(attributes[start : start + _LENGTH])
    if context is None or '"tracestate":"' not in attributes:
        return context
    state = TraceState.from_header([str(msgspec.json.decode(attributes).get("tracestate", ""))])
    return SpanContext(context.trace_id, context.span_id, True, context.trace_flags, state)  # noqa: FBT003 - the API's form


def parse_traceparent(text: str) -> SpanContext | None:
    """Return the context of a W3C traceparent; None if it is malformed."""
    parts = text.split("-")
    if len(text) != _LENGTH or [*map(len, parts)] != [2, 32, 16, 2]:
        return None
    try:
        _, trace_id, span_id, flags = (int(part, 16) for part in parts)
    except ValueError:
        return None
    context = SpanContext(trace_id, span_id, True, TraceFlags(flags))  # noqa: FBT003 - the API's form
    return context if context.is_valid else None


def with_context(attributes: str | None, context: SpanContext, max_bytes: int) -> str | None:
    """Return a message's attributes with a trace context, unless they have one or it exceeds ``max_bytes``."""
    if not context.is_valid or (attributes is not None and _MARK in attributes):
        return attributes
    text = f'{_MARK}{traceparent(context)}"'
    if context.trace_state:
        text += f',"tracestate":{msgspec.json.encode(context.trace_state.to_header()).decode()}'
    if len(text) + 2 > max_bytes:
        return attributes
    return f"{{{text}}}" if attributes in (None, "{}") else f"{attributes[:-1]},{text}}}"
