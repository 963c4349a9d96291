"""The health of a source: it is ready while it is read, and not while it waits out an error or nothing goes on."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry

from ingest.scripted import Log, Scripted
from inturn import telemetry
from inturn.core.errors import RejectedFull, SourceError
from inturn.database import Database
from inturn.ingest import Ingest, MessageMapping, SourceControl
from inturn.ingest import limits as source_limits
from inturn.ingest.report import IngestReport
from waiting import DEADLINE_S, until

RECORD = b'{"account": "a"}'


class Held:
    """A fault of a source that lasts until it is released."""

    def __init__(self, source: Scripted, fault: SourceError | None) -> None:
        self.source, self.fault, self.is_released = source, fault, threading.Event()
        source.faults.append(self)

    def __call__(self) -> None:
        if self.fault is None:
            assert self.is_released.wait(DEADLINE_S)
        elif not self.is_released.is_set():
            self.source.faults.append(self)
            raise self.fault


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_S", 0.01)
    return Scripted(Log(p=[RECORD]))


def ingest(db: Database, source: Scripted, lease_s: float = source_limits.INGEST_LEASE_S) -> Ingest:
    return Ingest(source, db.queue("payments"), MessageMapping(group="body.account"), name="bank", lease_s=lease_s)


def up(db: Database) -> float | None:
    """The metric of the host of the source."""
    registry = CollectorRegistry()
    telemetry.prometheus(db, registry=registry)
    return registry.get_sample_value("inturn_ingest_up", {"database": db.name, "source": "bank", "queue": "payments"})


def test_a_source_in_a_retry_pause_is_not_ready(db: Database, source: Scripted) -> None:
    host = ingest(db, source)
    assert not host.report.is_ready
    with host:
        until(lambda: host.counts.received and host.report.is_ready)
        assert up(db) == 1
        fault = Held(source, SourceError("the broker is away"))
        until(lambda: host.problem == "the broker is away")
        assert (host.report.is_ready, up(db)) == (False, 0)
        fault.is_released.set()
        until(lambda: host.report.is_ready)
        assert (host.problem, up(db)) == ("", 1)
    assert (host.report.is_ready, host.problem, up(db)) == (False, "", 0)


def test_a_source_without_progress_is_not_ready(
    db: Database, source: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ingest(db, source) as host:
        until(lambda: host.counts.received and host.report.is_ready)
        call = Held(source, None)
        until(lambda: not source.faults)
        assert host.report.is_ready
        monkeypatch.setattr(source_limits, "INGEST_STALL_S", 0.01)
        until(lambda: host.problem.startswith("no progress for "))
        assert (host.report.is_ready, up(db)) == (False, 0)
        monkeypatch.setattr(source_limits, "INGEST_STALL_S", DEADLINE_S)
        call.is_released.set()
        until(lambda: host.report.is_ready)


def test_a_full_queue_is_logged_at_once_and_reported_as_a_problem_after_a_minute(
    db: Database, source: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    payments = db.queue("payments")
    payments.configure(max_depth=2)
    source.log.partitions["p"] = [RECORD] * 4
    host = ingest(db, source, lease_s=0.3)
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        stack.callback(host.stop_soon)
        running = pool.submit(host.run, until="caught up")
        until(lambda: "queue 'payments' is full (max_depth=2)" in host.problem)
        assert "inturn queue configure" in host.problem, "how to mend it"
        assert (host.report.is_ready, up(db)) == (True, 1), "as the queue of a slow worker is all the time"
        until(lambda: "is full (max_depth=2)" in "".join(SourceControl(db, "bank").problems().values()))
        monkeypatch.setattr(source_limits, "INGEST_STALL_S", 0.01)
        until(lambda: not host.report.is_ready)
        monkeypatch.setattr(source_limits, "INGEST_STALL_S", DEADLINE_S)
        for _ in range(2):
            (message,) = payments.receive(wait_s=DEADLINE_S)
            message.ack()
        assert running.result(DEADLINE_S).received == 4, "it waited, and caught up once there was room"
    assert host.problem == ""
    assert caplog.text.count("queue 'payments' is full") == 1


def test_a_queue_full_from_the_start_makes_the_source_not_ready(db: Database, source: Scripted) -> None:
    payments = db.queue("payments")
    payments.send(b"{}", group="b")
    payments.configure(max_depth=1)
    source.log.partitions["p"] = [RECORD]
    with ingest(db, source, lease_s=0.3) as host:
        until(lambda: "queue 'payments' is full (max_depth=1)" in host.problem)
        until(lambda: "is full (max_depth=1)" in "".join(SourceControl(db, "bank").problems().values()))
        assert not host.report.is_ready, "nothing was committed yet"
        payments.configure(max_depth=2)
        until(lambda: host.report.is_ready)
    assert host.problem == ""


def test_the_report_shows_the_current_problem_instead_of_an_earlier_one() -> None:
    report = IngestReport("bank", "payments", "shop.db")
    report.note_started()
    report.note_retry(SourceError("it is down"), 1)
    report.note_queue_full(2)
    assert "is full (max_depth=2)" in report.problem
    report.note_retry(SourceError("it is down"), 1)
    assert report.problem == "it is down"
    report.note_queue_full(2)
    report.note_rejected_full(RejectedFull("no room"))
    assert (report.problem, report.is_queue_full) == ("no room", False)
    report.note_queue_full(2)
    report.note_stopped()
    assert report.problem == ""


def test_health_is_measured_per_instance_in_one_process(db: Database, source: Scripted) -> None:
    with ingest(db, source) as first, ingest(db, Scripted(source.log)) as second:
        until(lambda: first.report.is_ready and second.report.is_ready)
        assert up(db) == 2
        fault = Held(source, SourceError("the broker is away"))
        until(lambda: first.problem)
        assert up(db) == 1
        with ingest(db, Scripted(source.log)):
            until(lambda: up(db) == 2 + first.report.is_ready, "a third has measurements of its own")
        fault.is_released.set()
