"""What a worker tells: log records, measurements, and one linked trace from the send to the delivery."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry
from shop import Shop, ledger, row

import inturn
from clocks import Clock
from inturn import Retry, Retryable, Wait, telemetry
from inturn.core import limits
from inturn.core.errors import StoreUnavailable
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.queue.messages import QueueInfo
from inturn.queue import Queue, QueueSettings, draft, session
from inturn.store.commands import StoreCall
from inturn.store.sql import dead_letters
from inturn.telemetry import families, measures, observer
from inturn.worker import Worker, report
from inturn.worker.unit_of_work import UnitOfWork
from waiting import until

Told = list[tuple[str, str, str]]


@pytest.fixture(autouse=True)
def _no_records_before() -> None:
    """No test has used up what may be logged of an event."""
    for logger in (report._LOG, report._OUTBOX, session._LOG, dead_letters._LOG):
        logger.forget()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.instrument(tracer_provider=provider)
    yield exporter
    telemetry.uninstrument()


def told(caplog: pytest.LogCaptureFixture) -> Told:
    return [
        (record.name, record.levelname, record.event)  # type: ignore[attr-defined]
        for record in caplog.records
        if hasattr(record, "event")
    ]


# --- logs ---


def test_parking_and_resuming_a_group_is_logged_without_content(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "inturn")
    pipeline = ledger()
    shop.send([row(1), row(2, amount=-7), row(3)])
    shop.work(pipeline)
    assert told(caplog) == [("inturn.worker", "WARNING", "park")]
    assert "ValueError" in caplog.text
    assert "below zero" not in caplog.text, "the text of an error may quote a message"
    caplog.clear()
    digest = shop.ask(lambda store, number: store.held(number, "a", [2])[0].digest.hex())
    shop.decide(Decision(id="1", action=DecisionAction.DROP, group="a", by="ann", at_us=1, position=2, digest=digest))
    shop.work(pipeline)
    assert told(caplog) == [("inturn.worker", "INFO", "resume"), ("inturn.worker", "WARNING", "reject")]


def test_conflicts_and_rejected_messages_are_logged_with_their_group(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send([row(1), row(1, amount=9), {"account": "a", "amount": 1}])
    shop.work(ledger())
    assert sorted(event for *_, event in told(caplog)) == ["conflict", "reject"]
    assert {record.group for record in caplog.records} == {"a"}  # type: ignore[attr-defined]


def test_retries_of_the_handler_and_of_deliveries_are_logged_and_counted(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "inturn")
    telemetry.prometheus(registry=CollectorRegistry())
    calls: list[int] = []

    def fails_twice(state: Any, message: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            raise Retryable("the amount of bob is locked")
        return state, [1]

    def refuses(_output: Any, _effect_id: str) -> None:
        calls.append(2)
        if len(calls) < 7:
            raise OSError("no route to bob")

    shop.send([row(1)])
    shop.work(
        ledger(handler=fails_twice, retry=Retry(3, "1 millisecond")), deliver=refuses, retry=Retry(2, "1 millisecond")
    )
    # Attempts 1 and 2 have pauses of their own; from the third on the last pause repeats.
    assert told(caplog) == [
        ("inturn.worker", "INFO", "retry"),
        ("inturn.worker", "INFO", "retry"),
        ("inturn.outbox", "INFO", "retry"),
        ("inturn.outbox", "WARNING", "exhausted"),
        ("inturn.outbox", "WARNING", "exhausted"),
    ]
    assert "bob" not in caplog.text
    workers = [worker for worker in measures.workers() if (worker["pipeline"], worker["queue"]) == ("ledger", "q")]
    assert sum(worker["retries"][0] for worker in workers) >= 2  # each test has a database of its own


def test_a_lost_lease_is_logged_as_a_warning(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    began, may_end = threading.Event(), threading.Event()

    def waits(state: Any, message: Any) -> Any:
        began.set()
        assert may_end.wait(60)
        return state, []

    shop.send([row(1)])
    with Worker(ledger(handler=waits), shop.queue) as worker:
        assert began.wait(60)
        shop.queue.purge()
        may_end.set()
        worker.drain(60)
    assert ("inturn.worker", "WARNING", "lost_lease") in told(caplog)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_dead_letters_and_parked_queue_groups_are_logged_without_content(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "inturn")
    address = tmp_path / "shop.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with inturn.open(address, durable=False) as db:
        db.queue("dead")
        queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=1))
        queue.send("what is in it", group="a")
        queue.receive()[0].nack()
        assert queue.receive() == []
        assert told(caplog) == [("inturn.queue", "WARNING", "exhausted")]
        queue.park("b", "a reason")
        assert queue.resume("b")
        assert not queue.resume("b")
    assert [event for *_, event in told(caplog)] == ["exhausted", "park", "resume"]
    assert "what is in it" not in caplog.text
    assert "a reason" not in caplog.text


def test_a_reconnect_after_a_lost_connection_is_logged(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with inturn.open(postgres_url, durable=False) as db, inturn.open(postgres_url, durable=False) as other:
        queue = db.queue("q")
        pid = db.store._connection.pgconn.backend_pid  # type: ignore[attr-defined]
        with other.transaction() as tx:
            tx.execute("select pg_terminate_backend(%s)", (pid,))
        queue.send("x")
        assert ("inturn.store", "WARNING", "reconnect") in told(caplog)


# --- metrics ---


def samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_prometheus_exports_the_metrics_of_databases_and_workers(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(limits, "FIGURES_S", 0.0)
    address = tmp_path / "shop.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    registry = CollectorRegistry()
    with inturn.open(address, durable=False, clock=clock) as db:
        telemetry.prometheus(db, registry=registry)
        queue = db.queue("payments")
        pipeline = ledger(on_gap=Wait("1 hour", then="park"))
        rows = [row(1), row(1), row(3), row(4), row(1, account="b"), row(2, amount=-1, account="b"), row(1, amount=8)]
        queue.send_many([draft(message, group=message["account"]) for message in rows])
        queue.send(row(9), group="z", delay_s=60)
        worker = (db.name, "ledger", "payments")
        with Worker(pipeline, queue) as running:
            received = ("inturn_pipeline_messages_total", (db.name, "ledger", "received"))
            until(lambda: samples(registry).get(received) == 7)
            running.check()
            metrics = samples(registry)
            assert metrics["inturn_worker_up", worker] == 1
        clock.forward(5)
        metrics = samples(registry)
        labels = (db.name, "ledger")
        counts = {key[-1]: n for (name, key), n in metrics.items() if name == "inturn_pipeline_messages_total"}
        assert counts == dict.fromkeys(("released", "stale"), 0) | {
            "received": 7,
            "applied": 2,
            "duplicate": 1,
            "held": 3,
            "rejected": 1,
        }
        assert metrics["inturn_pipeline_rejected_messages_total", (*labels, "conflict")] == 1
        groups = {key[-1]: n for (name, key), n in metrics.items() if name == "inturn_pipeline_groups"}
        assert groups == {"waiting": 1, "gap": 0, "failed": 1, "given up": 0}
        assert metrics["inturn_pipeline_held_messages", labels] == 3
        assert metrics["inturn_pipeline_oldest_held_message_age_seconds", labels] == 5
        assert metrics["inturn_outbox_outputs", labels] == 2
        assert metrics["inturn_outbox_oldest_output_age_seconds", labels] == 5
        assert metrics["inturn_outbox_failing_groups", labels] == 0
        assert metrics["inturn_queue_messages", (db.name, "payments")] == 1
        assert metrics["inturn_queue_delayed_messages", (db.name, "payments")] == 1
        assert metrics["inturn_worker_up", worker] == 0
        assert metrics["inturn_worker_task_messages_sum", worker] >= 7
        assert metrics["inturn_worker_task_duration_seconds_bucket", (*worker, "+Inf")] >= 2


# --- traces ---


def by_name(spans: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    grouped: dict[str, list[ReadableSpan]] = {}
    for span in spans.get_finished_spans():
        grouped.setdefault(span.name, []).append(span)
    return grouped


def test_a_message_is_one_trace_from_its_send_to_the_delivery(shop: Shop, spans: InMemorySpanExporter) -> None:
    inside: list[int] = []

    def apply(state: Any, message: Any) -> Any:
        inside.append(trace.get_current_span().get_span_context().span_id)
        return state, [message["amount"]]

    async def deliver(_output: Any, _effect_id: str) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    shop.queue.send(row(1), group="a")
    shop.work(ledger(handler=apply), deliver=deliver)
    grouped = by_name(spans)
    ((send,), (receive,), (process,), (delivery,)) = (
        grouped[f"{action} {target}"]
        for action, target in (("send", "q"), ("receive", "q"), ("process", "q"), ("deliver", "ledger"))
    )
    assert [span.kind for span in (send, receive, process)] == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER]
    assert {span.context.trace_id for span in (send, receive, process, delivery)} == {send.context.trace_id}
    for span in (receive, process):
        assert span.parent is not None
        assert span.parent.span_id == send.context.span_id
        assert [link.context.span_id for link in span.links] == [send.context.span_id]
    assert delivery.parent is not None
    assert delivery.parent.span_id == process.context.span_id
    assert inside == [process.context.span_id, delivery.context.span_id]
    assert dict(process.attributes or {}) == {
        "messaging.system": "inturn",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "q",
        "messaging.consumer.group.name": "ledger",
        "inturn.group": "a",
    }


def test_a_batch_has_a_link_to_each_send(shop: Shop, spans: InMemorySpanExporter) -> None:
    for revision in range(1, 6):
        shop.queue.send(row(revision), group="a")
    shop.work(ledger(), deliver=lambda _output, _effect_id: None)
    grouped = by_name(spans)
    sent = {span.context.span_id for span in grouped["send q"]}
    for name in ("receive q", "process q"):
        linked = [link.context.span_id for span in grouped[name] for link in span.links]
        assert sorted(linked) == sorted(sent)
    of_turns = {span.context.trace_id for span in grouped["process q"]}
    assert len(grouped["deliver ledger"]) == 5
    assert {span.context.trace_id for span in grouped["deliver ledger"]} <= of_turns


def test_messages_sent_together_in_a_span_are_one_trace(shop: Shop, spans: InMemorySpanExporter) -> None:
    drafts = [draft(row(revision), group="a") for revision in (1, 2, 3)]
    shop.queue.send_many(drafts)
    shop.work(ledger())
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 1


def test_an_error_of_the_handler_is_recorded_in_the_process_span(shop: Shop, spans: InMemorySpanExporter) -> None:
    shop.queue.send(row(1, amount=-1), group="a")
    shop.work(ledger())
    (process,) = by_name(spans)["process q"]
    assert process.status.status_code is StatusCode.ERROR
    assert (process.attributes or {})["error.type"] == "ValueError"
    assert [event.name for event in process.events] == ["exception"]


def test_an_error_of_deliver_is_recorded_in_the_deliver_span(shop: Shop, spans: InMemorySpanExporter) -> None:
    calls: list[int] = []

    def deliver(_output: Any, _effect_id: str) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("no route")

    shop.queue.send(row(1), group="a")
    shop.work(ledger(), deliver=deliver, retry=Retry(1, "1 millisecond"))
    first, second = by_name(spans)["deliver ledger"]
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert first.context.trace_id == second.context.trace_id


def test_a_message_sent_unsampled_is_not_recorded_downstream(shop: Shop, spans: InMemorySpanExporter) -> None:
    """The sender decides: the attributes say that nothing is recorded, so nothing is, whatever this sampler says."""
    recording = observer.active
    telemetry.instrument(tracer_provider=TracerProvider(sampler=ALWAYS_OFF))
    shop.queue.send(row(1), group="a")
    assert shop.queue.peek()[0].attributes["traceparent"].endswith(("-00", "-02"))
    observer.active = recording
    shop.work(ledger(), deliver=lambda _output, _effect_id: None)
    assert spans.get_finished_spans() == ()


def test_a_trace_state_is_propagated_to_the_process_span(shop: Shop, spans: InMemorySpanExporter) -> None:
    parent = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "vendor=x"}
    shop.queue.send(row(1), group="a", attributes={"mine": '"traceparent":"', **parent})
    assert shop.queue.peek()[0].attributes == {"mine": '"traceparent":"', **parent}, "what the caller gives stays"
    shop.work(ledger())
    (process,) = by_name(spans)["process q"]
    assert process.context.trace_id == int("1" * 32, 16)
    assert process.context.trace_state.get("vendor") == "x"


@pytest.mark.parametrize("broken", ["", "00", f"00-{'0' * 32}-{'2' * 16}-01", "x" * 55, f"00-{'1' * 32}-{'g' * 16}-01"])
def test_a_malformed_trace_context_is_ignored(shop: Shop, spans: InMemorySpanExporter, broken: str) -> None:
    shop.queue.send(row(1), group="a", attributes={"traceparent": broken})
    shop.work(ledger())
    (process,) = by_name(spans)["process q"]
    assert process.links == ()


async def sends(queue: Queue) -> None:
    await queue.send.aio({"n": 1})
    (message,) = await queue.receive.aio()
    await message.ack.aio()


def test_telemetry_processing_links_a_manual_consumer_to_its_sends(shop: Shop, spans: InMemorySpanExporter) -> None:
    asyncio.run(sends(shop.queue))
    shop.queue.send("x", group="a")
    messages = shop.queue.receive(2)
    with telemetry.processing(*messages):
        pass
    grouped = by_name(spans)
    assert len(grouped["send q"]) == len(grouped["receive q"]) == 2
    assert grouped["process q"][0].links[0].context.span_id == grouped["send q"][1].context.span_id
    telemetry.uninstrument()
    with telemetry.processing(*messages):
        pass


def test_a_chain_is_one_trace(shop: Shop, spans: InMemorySpanExporter) -> None:
    to = chained_to(shop, "credits")
    shop.queue.send(row(1), group="a")
    shop.work(ledger(), deliver=to)
    (message,) = to.receive()
    with telemetry.processing(message):
        message.ack()
    grouped = by_name(spans)
    ((debit,), (credit,)) = (grouped[f"process {queue}"] for queue in ("q", "credits"))
    assert [link.context.span_id for link in credit.links] == [debit.context.span_id]
    assert credit.context.trace_id == debit.context.trace_id


@pytest.mark.parametrize("is_async", [False, True])
def test_consume_records_a_process_span_linked_to_the_send(is_async: bool, spans: InMemorySpanExporter) -> None:
    def handle(message: Any) -> None:
        trace.get_current_span().set_attribute("seen", message.body)

    async def ahandle(message: Any) -> None:
        handle(message)

    with inturn.open(":memory:") as db:
        queue = db.queue("q")
        queue.send("one", group="a")
        inturn.consume(queue, ahandle if is_async else handle, until="empty")
    ((send,), (process,)) = (by_name(spans)[f"{action} q"] for action in ("send", "process"))
    assert (process.attributes or {})["seen"] == "one"
    assert [link.context.span_id for link in process.links] == [send.context.span_id]


def test_a_trace_context_beyond_the_message_size_is_left_out(shop: Shop, spans: InMemorySpanExporter) -> None:
    shop.queue.send("x" * (limits.BODY_BYTES - 40))
    assert shop.queue.peek()[0].attributes == {}
    assert draft("x" * limits.BODY_BYTES).attributes is None


def test_a_failed_send_is_recorded_with_its_error_type(shop: Shop, spans: InMemorySpanExporter) -> None:
    with pytest.raises(inturn.InturnError):
        Queue(shop.writer, "nowhere").send("x")
    (span,) = spans.get_finished_spans()
    assert (span.attributes or {})["error.type"] == "NoSuchQueue"


@pytest.fixture
def meter() -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    telemetry.instrument(meter_provider=MeterProvider([reader]))
    yield reader
    telemetry.uninstrument()


def measured(meter: InMemoryMetricReader) -> dict[str, list[Any]]:
    data: Any = meter.get_metrics_data()
    return {metric.name: list(metric.data.data_points) for metric in data.resource_metrics[0].scope_metrics[0].metrics}


def messages(meter: InMemoryMetricReader, action: str) -> dict[tuple[str, str], int]:
    """How many messages were sent or consumed, by operation and queue."""
    return {
        (point.attributes["messaging.operation.name"], point.attributes["messaging.destination.name"]): point.value
        for point in measured(meter).get(f"messaging.client.{action}.messages", ())
    }


def test_metrics_follow_the_messaging_conventions_and_the_prometheus_names(
    shop: Shop, meter: InMemoryMetricReader
) -> None:
    shop.send([row(1), row(2)])
    shop.work(ledger(), deliver=lambda _output, _effect_id: None)
    metrics = measured(meter)
    assert metrics["messaging.client.sent.messages"][0].value == 2
    assert sum(point.value for point in metrics["messaging.client.consumed.messages"]) == 2
    assert metrics["inturn.worker.task.messages"][0].sum == 2
    assert metrics["inturn.worker.deliver.duration"][0].count == 2
    assert {"messaging.client.operation.duration", "messaging.process.duration"} <= metrics.keys()
    own = {name for name in metrics if name.startswith("inturn.")}
    assert own <= {family.name for family in families.all_families({}, [])}, "one name for Prometheus and OpenTelemetry"


def test_messages_are_counted_by_operation(shop: Shop, meter: InMemoryMetricReader) -> None:
    shop.queue.send(row(1), group="a")
    shop.queue.send_many([draft(row(revision), group="a") for revision in (2, 3)])
    shop.queue.send(row(4), group="a")
    assert messages(meter, "sent") == {("send", "q"): 2, ("send_many", "q"): 2}


def chained_to(shop: Shop, name: str, **settings: Any) -> Queue:
    def make(store: Any, now_ms: int) -> None:
        store.save(name, QueueInfo(0, name, QueueSettings(**settings), now_ms))

    shop.writer.run(StoreCall("", make))
    return Queue(shop.writer, name)


def test_messages_of_a_chain_are_counted_as_sent(shop: Shop, meter: InMemoryMetricReader) -> None:
    to = chained_to(shop, "credits", max_depth=2)
    shop.send([row(revision) for revision in (1, 2)])
    shop.work(ledger())  # into the outbox, from which a chain takes them first
    shop.send([row(revision) for revision in (3, 4, 5)])
    with Worker(ledger(), shop.queue, deliver=to) as worker:
        until(lambda: ("send", "credits") in messages(meter, "sent"))
        worker.check()
        assert messages(meter, "sent")["send", "credits"] == 2, "what had no room is not sent"
        to.configure(max_depth=None)
        worker.drain(60)
    assert to.depth().messages == 5
    assert messages(meter, "sent")["send", "credits"] == 5


def test_messages_of_a_chain_that_are_not_committed_are_not_counted(
    shop: Shop, meter: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = chained_to(shop, "credits")
    shop.send([row(1)])
    keep, seen = UnitOfWork._save, []

    def keep_and_fail_once(self: UnitOfWork, *arguments: Any) -> None:
        keep(self, *arguments)
        seen.append(messages(meter, "sent").get(("send", "credits"), 0))
        if len(seen) == 1:
            raise StoreUnavailable("gone before the commit")

    monkeypatch.setattr(UnitOfWork, "_save", keep_and_fail_once)
    shop.work(ledger(), deliver=to)
    assert seen == [0, 0]
    assert messages(meter, "sent")["send", "credits"] == to.depth().messages == 1
