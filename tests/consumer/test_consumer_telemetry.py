"""What a consumer tells: log records and measurements, once what they tell is committed."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

import inturn
from inturn import Retry, telemetry
from inturn.consumer import Consumer, report
from inturn.consumer.unit_of_work import MessageUnitOfWork
from inturn.core.errors import StoreUnavailable
from inturn.database import Database
from inturn.queue import Message, QueueSettings, draft
from waiting import until

SOON = Retry(1, "1 millisecond")


@pytest.fixture(autouse=True)
def _no_records_before(caplog: pytest.LogCaptureFixture) -> None:
    """No test has used up what may be logged of an event."""
    report._LOG.forget()
    caplog.set_level(logging.INFO, "inturn")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, Any]]:
    return [
        (record.levelname, record.event, getattr(record, "group", None))  # type: ignore[attr-defined]
        for record in caplog.records
        if record.name == "inturn.consumer"
    ]


def samples(registry: CollectorRegistry, db: Database, queue: str) -> dict[str, float]:
    """The metrics of consumers of a queue."""
    return {
        sample.name.removeprefix("inturn_consumer_"): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith("inturn_consumer_") and sample.labels == {"database": db.name, "queue": queue}
    }


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """The counters that have grown, and by how much: those of a process go on with the next consumer of a queue."""
    names = [name for name in after if name.endswith(("_total", "_count"))]
    return {name: grew for name in names if (grew := after[name] - before.get(name, 0))}


def fail(message: Message) -> None:
    if "bad" in message.body:
        raise ValueError(f"no {message.body}")


def test_failed_attempts_and_parked_groups_are_logged_without_error_texts(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue("q")
    queue.send_many([draft(body, group=body) for body in ("a", "bad b")])
    inturn.consume(queue, fail, retry=SOON, until="empty")
    assert told(caplog) == [("INFO", "retry", "bad b"), ("WARNING", "park", "bad b")]
    retry, park = (record.__dict__ for record in caplog.records if record.name == "inturn.consumer")
    assert [(record["queue"], record["sequence_number"], record["attempts"]) for record in (retry, park)] == [
        ("q", queue.peek()[0].sequence_number, attempts) for attempts in (1, 2)
    ]
    assert 0 <= retry["pause_s"] <= 0.001
    assert {record["error"] for record in (retry, park)} == {"ValueError"}
    assert "no bad" not in caplog.text, "the text of an error may quote a message"


def test_log_payloads_logs_error_texts(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    queue = db.queue("q")
    queue.send("bad", group="a")
    telemetry.log_payloads()
    try:
        inturn.consume(queue, fail, retry=SOON, until="empty")
    finally:
        telemetry.log_payloads(False)
    assert [
        "ValueError: no bad" in record.getMessage() for record in caplog.records if record.name == "inturn.consumer"
    ] == [
        True,
        True,
    ]


def test_deferred_and_dead_lettered_messages_are_logged(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    db.queue("dead")
    queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=100))
    queue.send("bad")
    inturn.consume(queue, fail, retry=Retry(0), until="empty")
    queue.send("bad", group="a")
    inturn.consume(queue, fail, retry=Retry(0), then="dead-letter", until="empty")
    assert told(caplog) == [("WARNING", "exhausted", None), ("WARNING", "exhausted", "a")]
    assert [record.outcome for record in caplog.records if record.name == "inturn.consumer"] == [  # type: ignore[attr-defined]
        "deferred",
        "dead-lettered",
    ]


def test_a_lost_lease_is_logged(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    queue = db.queue("q")
    queue.send("one", group="a")

    def handle(_message: Message) -> None:
        queue.purge()

    with Consumer(queue, handle) as consumer:
        until(lambda: consumer.counts.lost)
    assert told(caplog) == [("WARNING", "lost_lease", "a")]


def test_a_group_that_cannot_be_parked_yet_is_logged_as_tried_again(
    db: Database, fetched: Message, caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(db.queue("q"), fail, retry=Retry(0)) as consumer:
        until(lambda: told(caplog)[:1] == [("WARNING", "exhausted", "a")])
        fetched.ack()
        until(lambda: consumer.counts.parked)
    assert caplog.records[0].outcome == "tried again"  # type: ignore[attr-defined]
    assert told(caplog)[-1] == ("WARNING", "park", "a")


def test_a_rolled_back_settlement_is_not_logged_or_counted(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    telemetry.prometheus(db, registry=registry)
    queue = db.queue("rolled back")
    before = samples(registry, db, "rolled back")
    queue.send("bad", group="a")
    settle, up = MessageUnitOfWork._settle, []

    def settle_and_fail_once(self: MessageUnitOfWork, store: Any, info: Any, request: Any, result: Any) -> None:
        settle(self, store, info, request, result)
        if request.ended:
            up.append(samples(registry, db, "rolled back")["up"])
            assert [event for event in told(caplog) if event[1] == "park"] == []
            if len(up) == 1:
                raise StoreUnavailable("gone before the commit")

    monkeypatch.setattr(MessageUnitOfWork, "_settle", settle_and_fail_once)
    counts = inturn.consume(queue, fail, retry=Retry(0), until="empty")
    assert up == [1, 0], "while its database is unavailable it is not up"
    assert [event for event in told(caplog) if event[1] == "park"] == [("WARNING", "park", "a")]
    assert (counts.failed, counts.parked) == (1, 1)
    assert grown(before, samples(registry, db, "rolled back")) == {
        "failed_attempts_total": 1,
        "parked_groups_total": 1,
        "handler_duration_seconds_count": 1,
    }


def test_consumer_metrics_count_messages_failures_and_durations(db: Database) -> None:
    registry = CollectorRegistry()
    telemetry.prometheus(db, registry=registry)
    queue = db.queue("measured")
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.body == "waits":
            begun.set()
            assert go_on.wait(60)
        fail(message)

    before = samples(registry, db, "measured")
    queue.send_many([draft(body, group=body) for body in ("a", "b", "bad")])
    queue.send("bad")
    with Consumer(queue, handle, retry=SOON) as consumer:
        consumer.drain(60)
        assert (samples(registry, db, "measured")["up"], samples(registry, db, "measured")["busy"]) == (1, 0)
        queue.send("waits", group="c")
        assert begun.wait(60)
        assert samples(registry, db, "measured")["busy"] == 1
        go_on.set()
        consumer.drain(60)
    measured = samples(registry, db, "measured")
    assert (measured["up"], measured["busy"]) == (0, 0)
    assert grown(before, measured) == {
        "acknowledged_messages_total": 3,
        "failed_attempts_total": 4,
        "parked_groups_total": 1,
        "deferred_messages_total": 1,
        "handler_duration_seconds_count": 7,
    }


def test_queues_of_one_name_in_two_databases_have_separate_counters(db: Database, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    telemetry.prometheus(db, registry=registry)
    with inturn.open(tmp_path / "other.db") as other:
        for database, number in ((db, 1), (other, 2)):
            queue = database.queue("of one name")
            queue.send_many([draft(index) for index in range(number)])
            inturn.consume(queue, lambda message: None, until="empty")
        counts = [samples(registry, tested, "of one name")["acknowledged_messages_total"] for tested in (db, other)]
    assert counts == [1, 2]


def test_send_receive_and_process_spans_are_recorded_per_message(db: Database) -> None:
    reader, spans, provider = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry.instrument(tracer_provider=provider, meter_provider=MeterProvider([reader]))
    queue = db.queue("q")
    try:
        with Consumer(queue, lambda message: None) as consumer:
            for body in "abc":
                queue.send(body, group=body)
                consumer.drain(60)
    finally:
        telemetry.uninstrument()
    data: Any = reader.get_metrics_data()
    metrics = {
        metric.name: list(metric.data.data_points) for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    (consumed,) = metrics["messaging.client.consumed.messages"]
    assert (consumed.value, consumed.attributes["messaging.operation.name"]) == (3, "receive")
    operations = {
        point.attributes["messaging.operation.name"] for point in metrics["messaging.client.operation.duration"]
    }
    assert operations == {"send", "receive"}
    traces = {
        name: [span.context.trace_id for span in spans.get_finished_spans() if span.name == name]
        for name in ("send q", "receive q", "process q")
    }
    assert len(traces["send q"]) == 3
    assert sorted(traces["send q"]) == sorted(traces["receive q"]) == sorted(traces["process q"])


def test_dead_lettered_messages_and_lost_leases_are_counted(db: Database) -> None:
    registry = CollectorRegistry()
    telemetry.prometheus(db, registry=registry)
    db.queue("dead")
    queue = db.queue("leaving", QueueSettings(dead_letter="dead", max_receives=100))
    before = samples(registry, db, "leaving")
    queue.send_many([draft(body, group=body) for body in ("bad", "purged")])

    def handle(message: Message) -> None:
        fail(message)
        queue.purge()

    with Consumer(queue, handle, concurrency=1, retry=Retry(0), then="dead-letter") as consumer:
        until(lambda: consumer.counts.lost)
    assert grown(before, samples(registry, db, "leaving")) == {
        "failed_attempts_total": 1,
        "dead_lettered_messages_total": 1,
        "lost_leases_total": 1,
        "handler_duration_seconds_count": 2,
    }
