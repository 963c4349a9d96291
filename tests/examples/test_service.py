"""The example service under load, killed again and again: each accepted payment is posted or declined once."""

import http.client
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import boto3
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict

from composed import WAIT_S, Composed, compose, page, status
from waiting import DEADLINE_S, until

pytestmark = pytest.mark.slow

ACCOUNTS = [f"acct-{number}" for number in range(5)]
TOO_MUCH = -(10**9)
CUT = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = 'bank' and pid <> pg_backend_pid()
"""


class Client(threading.Thread):
    """A client that repeats each request until it is accepted, and often once more.

    Attributes:
        accepted: account, amount and id of each payment.
    """

    def __init__(self, port: int, number: int, is_over: threading.Event) -> None:
        super().__init__()
        self.accepted: list[tuple[str, int, str]] = []
        self.faults: list[str] = []
        self._port = port
        self._number = number
        self._is_over = is_over

    def run(self) -> None:
        count = 0
        while not self._is_over.is_set():
            count += 1
            account = ACCOUNTS[(self._number + count) % len(ACCOUNTS)]
            amount = TOO_MUCH if count % 10 == 0 else count
            key = uuid.uuid4().hex
            first = self._pay(account, amount, key)
            self.accepted.append((account, amount, first))
            if count % 3 == 0 and self._pay(account, amount, key) != first:
                self.faults.append(f"{key} became two payments")

    def _pay(self, account: str, amount: int, key: str) -> str:
        deadline = time.monotonic() + WAIT_S
        last = ""
        while time.monotonic() < deadline:
            with suppress(OSError, http.client.HTTPException):
                with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT_S)) as connection:
                    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
                    body = json.dumps({"amount": amount})
                    connection.request("POST", f"/accounts/{account}/payments", body, headers)
                    answer = connection.getresponse()
                    last = answer.read().decode()
                if answer.status == 202:
                    return str(json.loads(last)["payment"])
                if answer.status not in {409, 500, 503}:
                    self.faults.append(f"{answer.status}: {last}")
            time.sleep(0.1)
        self.faults.append(f"{key} is not accepted: {last}")
        return ""


@pytest.fixture
def bank(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database of that name; variables say where it is."""
    parameters = conninfo_to_dict(postgres_server)
    monkeypatch.setenv("PGHOST", str(parameters["host"]))
    monkeypatch.setenv("PGUSER", str(parameters["user"]))
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("drop database if exists bank with (force)")
        connection.execute("create database bank")
    yield "postgresql:///bank"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("drop database bank with (force)")


def metric(text: str, name: str, **labels: str) -> float:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())


def test_example_service_applies_each_accepted_payment_once_when_killed(
    bank: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libpq = {name: os.environ[name] for name in ("PGHOST", "PGUSER")}
    web, worker, sqs = (
        Composed(name, tmp_path, INTURN_SQS_SECRET="s1", **libpq)  # noqa: S106 - of this test
        for name in ("web", "worker", "sqs")
    )
    is_over = threading.Event()
    try:
        web.start().up()
        worker.start().up()
        clients = [Client(web.port, number, is_over) for number in range(4)]
        for client in clients:
            client.start()
        for victim in (web, worker, web, worker):
            seen = sum(len(client.accepted) for client in clients)
            until(lambda seen=seen: sum(len(client.accepted) for client in clients) > seen + 40)
            victim.kill()
            with psycopg.connect(bank, autocommit=True) as connection:  # and the others lose their connections
                connection.execute(CUT)
            victim.start().up()
        is_over.set()
        for client in clients:
            client.join(DEADLINE_S)
        assert not any(client.is_alive() for client in clients), "a client is stuck"
        accepted = [payment for client in clients for payment in client.accepted]
        assert [fault for client in clients for fault in client.faults] == []

        with psycopg.connect(bank, autocommit=True) as connection:
            until(lambda: connection.execute("select count(*) from notice").fetchone() == (len(accepted),))
            rows = connection.execute("select id::text, account, amount from payment").fetchall()
            notices = connection.execute("select payment::text, status from notice").fetchall()
        assert sorted(rows) == sorted((name, account, amount) for account, amount, name in accepted)
        assert sorted(notices) == sorted((name, "declined" if amount < 0 else "posted") for _, amount, name in accepted)
        for account in ACCOUNTS:
            amounts = [amount for payer, amount, _ in accepted if payer == account and amount > 0]
            expected = {"balance": sum(amounts), "payments": len(amounts)}
            assert json.loads(page(f"{web.url}/accounts/{account}")) == expected
        assert status(f"{web.url}/accounts/nobody") == 404

        for url in (f"{web.url}/metrics", f"{worker.url}/metrics"):
            text = page(url)
            assert metric(text, "inturn_pipeline_messages_total", pipeline="ledger", verdict="applied") == len(accepted)
            assert metric(text, "inturn_pipeline_messages_total", pipeline="ledger", verdict="rejected") == 0
            assert metric(text, "inturn_queue_messages", queue="payments") == 0
        assert metric(page(f"{worker.url}/metrics"), "inturn_worker_up", pipeline="ledger", queue="payments") == 1

        sqs.start().up()
        client = boto3.client(
            "sqs",
            endpoint_url=sqs.url,
            region_name="us-east-1",
            aws_access_key_id="shop",
            aws_secret_access_key="s1",  # noqa: S106
        )
        assert client.list_queues()["QueueUrls"] == [f"{sqs.url}/000000000000/payments"]
        assert metric(page(f"{sqs.url}/metrics"), "inturn_queue_messages", queue="payments") == 0
        assert [program.stop() for program in (worker, sqs)] == [0, 0]
        assert web.stop() in {0, -signal.SIGTERM}, "uvicorn stops in order, and then by the signal"
    finally:
        is_over.set()
        for program in (web, worker, sqs):
            if hasattr(program, "process"):
                program.kill()


def test_compose_services_mount_existing_files() -> None:
    services = compose()
    root = Path(__file__).parents[2] / "deploy"
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (root / source).exists(), volume
