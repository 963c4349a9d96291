"""What is counted and shown: read back with Prometheus' own parser, over real queues."""

import asyncio
import resource
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import inturn
from clocks import Clock
from inturn.core.errors import StoreError
from inturn.core.queue.delivery import SettleAction, Settlement
from inturn.database import Database
from inturn.queue import QueueSettings, draft
from inturn.sqs import limits
from inturn.sqs.metrics import Metrics, RequestCounts, _TimedCache
from inturn.store.commands import Command, Outcome, Send, Settle, StoreCall
from inturn.store.execution import execute
from inturn.telemetry.collector import buckets
from inturn.telemetry.figures import QueueFigures


@pytest.fixture
def db(address: str, clock: Clock) -> Iterator[Database]:
    with inturn.open(address, clock=clock) as db:
        yield db


def figures(db: Database) -> dict[str, QueueFigures]:
    return {figure.queue: figure for figure in db.figures().queues}


@pytest.fixture
def file(tmp_path: Path, clock: Clock) -> Iterator[Database]:
    with inturn.open(tmp_path / "shop.db", clock=clock) as db:
        yield db


def samples(page: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_queue_figures_count_messages_hidden_delayed_and_blocked_groups(db: Database, clock: Clock) -> None:
    db.queue("empty")
    orders = db.queue("orders.fifo")
    assert figures(db) == {name: QueueFigures(name, 0, 0, 0, 0.0, 0, 0) for name in ("empty", "orders.fifo")}
    for group in "aaabbc":
        orders.send("x", group=group)
    orders.send("x")
    clock.forward(5)
    orders.send("x", group="d", delay_s=60)
    assert figures(db)["orders.fifo"] == QueueFigures("orders.fifo", 8, 0, 1, 5.0, 1, 0)
    messages = orders.receive(2)
    assert figures(db)["orders.fifo"] == QueueFigures("orders.fifo", 8, 2, 1, 5.0, 2, 0)
    messages[0].ack()
    assert figures(db)["orders.fifo"].blocked == 2, "part of a batch still blocks its group"
    messages[1].ack()
    assert figures(db)["orders.fifo"] == QueueFigures("orders.fifo", 6, 0, 1, 5.0, 1, 0)
    clock.forward(60)
    assert figures(db)["orders.fifo"] == QueueFigures("orders.fifo", 6, 0, 0, 65.0, 0, 0)
    assert figures(db)["empty"].blocked == 0


def test_a_delayed_message_does_not_block_messages_before_it(db: Database) -> None:
    queue = db.queue("q")
    queue.send("now", group="g")
    queue.send("later", group="g", delay_s=60)
    queue.send("single", delay_s=60)
    assert figures(db)["q"] == QueueFigures("q", 3, 0, 2, 0.0, 0, 0)


def test_parked_groups_are_counted(db: Database) -> None:
    queue, other = db.queue("q"), db.queue("other")
    queue.send("x", group="a")
    for group in "abc":
        queue.park(group, "a reason")
    other.park("a", "a reason")
    with other.session("b"):  # it is locked, not parked
        assert (figures(db)["q"].parked, figures(db)["other"].parked) == (3, 1)
    queue.resume("b")
    assert figures(db)["q"].parked == 2
    values = samples(asyncio.run(metrics_of(db).page()))
    assert values["inturn_queue_parked_groups", (db.name, "q")] == 2


def metrics_of(db: Database, *requests: tuple[str, str, float]) -> Metrics:
    counts = RequestCounts()
    for action, code, took_s in requests:
        counts.add(action, code, took_s)
    return Metrics(db, counts)


def test_the_metrics_page_has_the_pipelines_of_the_database(db: Database) -> None:
    queue = db.queue("q")
    queue.send({"account": "a", "revision": 2}, group="a")
    order = inturn.Gapless("revision")
    pipeline = inturn.Pipeline(name="ledger", group="account", order=order, state=int, handler=lambda s, m: (s, []))
    inturn.work(pipeline, queue, until="empty")
    values = samples(asyncio.run(metrics_of(db).page()))
    assert values["inturn_pipeline_messages_total", (db.name, "ledger", "held")] == 1
    assert values["inturn_pipeline_groups", (db.name, "ledger", "waiting")] == 1


def test_the_metrics_page_has_queues_and_request_durations(db: Database) -> None:
    queue = db.queue('odd "name"\\ of a queue', QueueSettings(delay_s=1))
    queue.send("x")
    requests = [("SendMessage", "", 0.0004), ("SendMessage", "", 400.0), ("SendMessage", "AccessDenied", 0.4)]
    values = samples(asyncio.run(metrics_of(db, *requests, ("", "InvalidAction", 0)).page()))
    name = (db.name, queue.name)
    assert values["inturn_queue_messages", name] == values["inturn_queue_delayed_messages", name] == 1
    assert values["inturn_queue_in_flight_messages", name] == values["inturn_queue_blocked_groups", name] == 0
    assert values["inturn_queue_oldest_message_age_seconds", name] == 0
    durations, ok = "inturn_server_request_duration_seconds", ("SendMessage", db.name, "")
    assert values[f"{durations}_count", ok] == 2
    assert values[f"{durations}_count", ("SendMessage", db.name, "AccessDenied")] == 1
    assert values[f"{durations}_count", ("unknown", db.name, "InvalidAction")] == 1
    buckets = [values[f"{durations}_bucket", (*ok, bound)] for bound in ("0.001", "300", "+Inf")]
    assert buckets == [1, 1, 2]
    assert values[f"{durations}_sum", ok] == 400.0004
    assert values["inturn_server_commit_commands_count", (db.name,)] == 0
    assert ("inturn_server_open_connections", (db.name,)) not in values
    assert values["process_cpu_seconds_total", ()] > 0


def test_the_metrics_page_has_the_consumers_of_the_process(db: Database) -> None:
    queue = db.queue("handled")
    metrics = metrics_of(db)
    queue.send("x", group="a")
    inturn.consume(queue, lambda message: None, until="empty")
    values = samples(asyncio.run(metrics.page()))
    assert values["inturn_consumer_acknowledged_messages_total", (db.name, "handled")] == 1


def test_metrics_count_sent_duplicate_and_acknowledged_messages(db: Database) -> None:
    metrics = metrics_of(db)

    def do(*commands: Command[Any]) -> list[Outcome]:
        outcomes = execute(db.store, commands, db.writer.clock)
        metrics.watch(commands, outcomes)
        return outcomes

    for name in ("a", "b"):
        db.queue(name)
    drafts = [draft("x", dedup_id=text) for text in ("1", "2", "1")]
    do(Send("a", list, drafts[:2]), Send("b", list, drafts), Send("nowhere", list, drafts))
    do(Send("a", list, drafts))
    leases = [(message.sequence_number, 1) for message in db.queue("a").peek()]
    assert len(db.queue("a").receive()) == 1
    acks = [Settlement(number, token, SettleAction.ACK) for number, token in leases]
    (outcome,) = do(Settle("a", list, [*acks, Settlement(1, 1, SettleAction.ACK)]))
    assert [verdict.name for verdict in outcome[0]] == ["DONE", "EXPIRED", "GONE"]
    do(Settle("a", list, [Settlement(leases[1][0], None, SettleAction.NACK)]))
    nothing = StoreCall("", lambda _store, _now_ms: None)
    do(*[nothing] * 5)
    values = samples(asyncio.run(metrics.page()))
    sent, duplicates = "inturn_queue_sent_messages_total", "inturn_queue_duplicate_messages_total"
    a, b = (db.name, "a"), (db.name, "b")
    assert (values[sent, a], values[duplicates, a]) == (2, 3)
    assert (values[sent, b], values[duplicates, b]) == (2, 1)
    assert values["inturn_queue_acknowledged_messages_total", a] == 1
    assert (sent, (db.name, "nowhere")) not in values
    assert values["inturn_server_commit_commands_count", (db.name,)] == 5
    assert values["inturn_server_commit_commands_sum", (db.name,)] == 2 + 1 + 1 + 1 + 5
    assert values["inturn_server_commit_commands_bucket", (db.name, "2")] == 4
    db.queue("a").delete()
    assert (sent, a) in samples(asyncio.run(metrics.page())), "for a second"
    metrics._figures = _TimedCache(metrics._read_figures, 0)
    assert (sent, a) not in samples(asyncio.run(metrics.page()))


def test_metrics_count_a_message_each_time_it_is_received(db: Database) -> None:
    metrics = metrics_of(db)
    queue = db.queue("q")
    queue.send_many([draft("x")] * 3)
    for _ in range(2):  # the second finds nothing
        command: Command[Any] = queue.receive._command(5)
        metrics.watch([command], execute(db.store, [command], db.writer.clock))
    metrics.watch([command], [(None, StoreError("x"))])
    values = samples(asyncio.run(metrics.page()))
    assert values["inturn_queue_received_messages_total", (db.name, "q")] == 3
    assert values["inturn_server_commit_commands_sum", (db.name,)] == 1


def test_the_metrics_page_has_the_counts_of_the_http_server(db: Database) -> None:
    class Front:
        def __init__(self) -> None:
            self.requests = 7
            self.refused = Counter({431: 2})
            self.open_connections = 3
            self.pending_bytes = 4096

    metrics = metrics_of(db)
    front: Any = Front()
    metrics.front = front
    values = samples(asyncio.run(metrics.page()))
    assert values["inturn_server_open_connections", (db.name,)] == 3
    assert values["inturn_server_pending_bytes", (db.name,)] == 4096
    assert values["inturn_server_received_requests_total", (db.name,)] == 7
    assert values["inturn_server_refused_requests_total", (db.name, "431")] == 2


def test_concurrent_metrics_requests_share_one_query(db: Database) -> None:
    looks = 0

    async def ask() -> list[bytes]:
        metrics = metrics_of(db)
        ask = metrics._figures._read

        def counted() -> object:
            nonlocal looks
            looks += 1
            return ask()

        metrics._figures._read = counted
        return await asyncio.gather(*(metrics.page() for _ in range(20)))

    pages = asyncio.run(ask())
    assert len(pages) == 20
    assert looks == 1


def test_histogram_buckets_are_cumulative() -> None:
    assert buckets((0.001, 1, 30.0), [1, 0, 2, 3]) == [("0.001", 1), ("1", 1), ("30", 3), ("+Inf", 6)]


# --- health ---


def test_health_of_an_open_store_is_ok(db: Database) -> None:
    db.queue("q").send("x")
    assert asyncio.run(metrics_of(db).health()) == (True, {"status": "ok", "queues": 1, "messages": 1})


UNWELL = (False, {"status": "unavailable", "error": "the store cannot be written; see the log"})


def test_health_of_a_closed_store_is_an_error(tmp_path: Path) -> None:
    db = inturn.open(tmp_path / "shop.db")
    metrics = metrics_of(db)
    db.close()
    assert asyncio.run(metrics.health()) == UNWELL
    with pytest.raises(StoreError):
        asyncio.run(metrics.page())


def test_health_of_a_store_on_a_full_disk_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with inturn.open(path) as db:
        db.queue("q")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{path}-wal").stat().st_size, before[1]))
        try:
            assert asyncio.run(metrics_of(db).health()) == UNWELL
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert asyncio.run(metrics_of(db).health())[0]


def test_health_of_a_store_locked_by_another_process_is_an_error(
    file: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEALTH_S", 0.1)
    file.queue("q")
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        assert asyncio.run(metrics_of(file).health()) == UNWELL
        other.execute("rollback")
    monkeypatch.setattr(limits, "HEALTH_S", 60)
    assert asyncio.run(metrics_of(file).health())[0]
