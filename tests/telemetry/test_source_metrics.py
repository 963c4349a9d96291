"""The metrics of sources, for Prometheus and OpenTelemetry: of each partition, or of all where there are many."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from ingest.scripted import Log, Scripted
from inturn import telemetry
from inturn.core import limits
from inturn.database import Database
from inturn.ingest import FolderSource, Ingest, MessageMapping, SourceControl
from waiting import until

MAPPING = MessageMapping(group="body.account")
RECORD = b'{"account": "a"}'


def ingest(db: Database, log: Log, lease_s: float = 10.0) -> Ingest:
    return Ingest(Scripted(log), db.queue("payments"), MAPPING, name="bank", lease_s=lease_s)


def samples(collector: Collector, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by its labels without the database."""
    return {
        tuple(
            sample.labels[label] for label in sorted(sample.labels) if label not in {"database", "source"}
        ): sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.name == name
    }


@pytest.fixture
def log() -> Log:
    return Log(read=[RECORD] * 5, paused=[RECORD] * 5, refused=[RECORD], unread=[RECORD] * 5)


@pytest.fixture
def running(db: Database, log: Log) -> Iterator[Ingest]:
    """A source of which one partition is read, one paused, one refused, and one is gone, so that nobody reads it."""
    ingest(db, log).run(until="caught up")
    SourceControl(db, "bank").pause("paused")
    log.gone_before = 3
    del log.partitions["unread"]
    log.partitions["read"] += [b"{}", b"", RECORD]
    with ingest(db, log, lease_s=0.3) as running:
        until(lambda: running.counts.received)
        until(lambda: SourceControl(db, "bank").partitions()[1].lag == 0)
        yield running


@pytest.mark.usefixtures("running")
def test_source_metrics_show_status_and_counts_per_partition(db: Database) -> None:
    collector = telemetry.prometheus(db, registry=CollectorRegistry())
    statuses = samples(collector, "inturn_source_partitions")
    assert {status for status, value in statuses.items() if value} == {
        (name, name) for name in ("read", "paused", "refused", "unread")
    }
    assert len(statuses) == 20, "those that do not hold are 0, so an alert ends"
    assert samples(collector, "inturn_source_records_total")["read", "received"] == 6
    assert samples(collector, "inturn_source_records_total")["read", "rejected"] == 2
    assert samples(collector, "inturn_source_lag")[("read",)] == 0
    assert samples(collector, "inturn_source_age_seconds")[("read",)] == 0
    idle = samples(collector, "inturn_source_idle_seconds")
    assert idle.keys() == {("read",), ("paused",), ("refused",), ("unread",)}
    assert max(idle.values()) < 600


def test_an_unread_partition_has_no_time_metrics(db: Database) -> None:
    db.queue("payments")
    host = ingest(db, Log(new=[]))
    host.run(until="caught up")
    collector = telemetry.prometheus(db, registry=CollectorRegistry())
    assert samples(collector, "inturn_source_idle_seconds") == {}
    assert samples(collector, "inturn_source_records_total")["new", "received"] == 0


def test_a_file_read_to_its_end_counts_as_finished(db: Database, tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(b'{"n": 1}')
    mapping = MessageMapping(group="partition")
    Ingest(FolderSource(tmp_path), db.queue("payments"), mapping, name="bank").run(until="caught up")
    (source,) = db.figures().sources
    assert {status for status, count in source.partitions.items() if count} == {"finished"}
    assert (source.lag, source.age_s) == (0, 0)


def test_many_partitions_are_summed_into_one_series(db: Database) -> None:
    few: dict[str, list[bytes | None]] = {f"{number:03}": [RECORD] for number in range(limits.FIGURES_PARTITIONS)}
    log = Log(**few)
    ingest(db, log).run(until="caught up")
    assert len(db.figures().sources) == limits.FIGURES_PARTITIONS
    log.partitions["more"] = [RECORD, b"{}"]
    ingest(db, log).run(until="caught up")
    SourceControl(db, "bank").pause("more")
    (source,) = db.figures().sources
    assert source.partition == "*"
    assert source.partitions == {
        "read": 0,
        "unread": limits.FIGURES_PARTITIONS,
        "finished": 0,
        "paused": 1,
        "refused": 0,
    }
    assert (source.received, source.rejected, source.moved, source.lag) == (limits.FIGURES_PARTITIONS + 1, 1, 0, 0)
    assert source.age_s == 0
    assert source.idle_s is not None


@pytest.mark.usefixtures("running")
def test_opentelemetry_has_the_same_source_metrics(db: Database) -> None:
    reader = InMemoryMetricReader()
    telemetry.instrument(db, meter_provider=MeterProvider([reader]))
    try:
        data = reader.get_metrics_data()
    finally:
        telemetry.uninstrument()
    assert data is not None
    metrics = {
        metric.name: {
            tuple((point.attributes or {}).values())[2:]: point.value
            for point in metric.data.data_points
            if isinstance(point, NumberDataPoint)
        }
        for of_resource in data.resource_metrics
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith("inturn.source.")
    }
    assert metrics["inturn.source.partitions"]["refused", "refused"] == 1
    assert metrics["inturn.source.records"]["read", "rejected"] == 2
    assert metrics["inturn.source.lag"][("read",)] == 0
    assert {"inturn.source.age", "inturn.source.idle", "inturn.source.moved_messages"} <= metrics.keys()


def test_rejected_records_dropped_over_the_limit_are_counted(db: Database) -> None:
    log = Log(p=[b"{}"] * 5 + [RECORD], q=[b"{}"] * 2)
    Ingest(Scripted(log), db.queue("payments"), MAPPING, name="bank", max_rejected=2).run(until="caught up")
    collector = telemetry.prometheus(db, registry=CollectorRegistry())
    assert sum(samples(collector, "inturn_source_dropped_records_total").values()) == 5
    assert samples(collector, "inturn_source_dropped_records_total") == {
        (partition.name,): partition.dropped for partition in SourceControl(db, "bank").partitions()
    }
    assert samples(collector, "inturn_source_records_total")["p", "rejected"] == 5
