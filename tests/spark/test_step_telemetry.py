"""What the driver tells of a step: log records, measurements and a span."""

import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

import inturn.spark
from inturn import Gapless, Pipeline, telemetry


def post(state: int, message: dict[str, Any]) -> tuple[int, list[Any]]:
    if message["amount"] < 0:
        raise ValueError("below zero")
    return state + message["amount"], []


def test_a_step_is_logged_measured_and_traced(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "inturn")
    spans, provider, registry = InMemorySpanExporter(), TracerProvider(), CollectorRegistry()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry.prometheus(registry=registry)
    telemetry.instrument(tracer_provider=provider)
    ledger = Pipeline(name="told", group="account", order=Gapless("revision"), state=int, handler=post)
    rows = [("a", 1, 5), ("a", 2, 5), ("a", 2, 9), ("b", 1, -1), ("c", 2, 1)]
    try:
        df = spark.createDataFrame(rows, "account string, revision long, amount long")
        report = inturn.spark.batch(ledger, df, store=tmp_path / "store", buckets=2)
    finally:
        telemetry.uninstrument()
    events = [
        (record.levelname, getattr(record, "event", "")) for record in caplog.records if record.name == "inturn.spark"
    ]
    assert events == [("WARNING", "park"), ("WARNING", "conflict"), ("INFO", "")]
    (span,) = spans.get_finished_spans()
    attributes = dict(span.attributes or {})
    assert (span.name, attributes["inturn.step"], attributes["inturn.messages.received"]) == ("step told", 1, 5)
    assert attributes["inturn.messages.rejected"] == 1
    value = registry.get_sample_value
    assert value("inturn_spark_steps_total", {"pipeline": "told"}) == 1
    assert (
        value("inturn_spark_step_messages_total", {"pipeline": "told", "verdict": "applied"}) == report.counts.applied
    )
    assert value("inturn_spark_step_duration_seconds_count", {"pipeline": "told"}) == 1
    assert (value("inturn_spark_last_step_timestamp_seconds", {"pipeline": "told"}) or 0) > 1_700_000_000
