"""Each alert fires in a real Prometheus over real workers and servers, and the runbook's commands end it."""

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import boto3
import pytest
import yaml
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from monitored_site import Site, section
from typer.testing import CliRunner

import inturn
from composed import DEPLOY
from inturn.cli import app
from inturn.queue import draft
from postgres_schemas import Schemas
from threads import Running
from waiting import PROGRAM_S, until

RULES = DEPLOY / "prometheus" / "alerts.yml"
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
PROMTOOL = shutil.which("promtool") or ""
needs_prometheus = pytest.mark.skipif(not PROMTOOL, reason="Prometheus is not there; `make services` installs it")
POISONED, GAPPY, WRONG = "poisoned", "gappy", "wrong"


@pytest.mark.parametrize("alert", ALERTS)
def test_the_runbook_has_commands_for_each_alert(alert: str) -> None:
    assert section(alert).count("```shell") == 1
    assert f"docs/operations.md#{alert.lower()}" in RULES.read_text()


@needs_prometheus
def test_promtool_accepts_the_alert_rules(tmp_path: Path) -> None:
    subprocess.run(
        [PROMTOOL, "check", "rules", "--lint=all", "--lint-fatal", RULES],
        check=True,
        capture_output=True,
        timeout=PROGRAM_S,
    )
    config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(config.replace("alerts.yml", str(RULES)))
    subprocess.run(
        [PROMTOOL, "check", "config", tmp_path / "prometheus.yml"], check=True, capture_output=True, timeout=PROGRAM_S
    )


@pytest.fixture(scope="module")
def site(postgres_schemas: Schemas, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site, at which nothing is wrong."""
    db = postgres_schemas.take()
    site = Site(tmp_path_factory.mktemp("site"), db)
    try:
        site.systemctl("start", "inturn-worker@ledger")
        site.systemctl("start", "inturn-ingest@bank")
        site.systemctl("start", "inturn-serve")
        site.begin()
        yield site
    finally:
        site.close()
    postgres_schemas.give_back(db)


def fired(site: Site, alert: str, **labels: str) -> None:
    until(lambda: site.is_firing(alert, **labels), f"{alert} does not fire: {site.ask('alerts')}")


def cleared(site: Site, alert: str, **labels: str) -> None:
    until(lambda: site.is_well(alert, **labels), f"{alert} does not end: {site.ask('alerts')}")


@needs_prometheus
@pytest.mark.slow
class TestAlertsFireAndTheRunbookEndsThem:
    """Each test makes its own trouble and ends it, so that one that fails takes no other along."""

    def test_undeliverable_outputs_fire_delivery_failing(self, site: Site) -> None:
        (site.folder / "bank-down").touch()
        site.send("payments", {"out": "bank"}, group="a", revision=1)
        fired(site, "InturnDeliveryFailing", pipeline="ledger")
        site.run("InturnDeliveryFailing", PIPELINE="ledger")
        (site.folder / "bank-down").unlink()
        cleared(site, "InturnDeliveryFailing", pipeline="ledger")

    def test_a_backlog_fires_queue_old(self, site: Site) -> None:
        with inturn.open(site.db) as db:
            queue = db.queue("backlog")
            queue.send_many([draft({"sleep": 0.5}, group=f"{number}", revision=1) for number in range(150)])
        fired(site, "InturnQueueOld", queue="backlog")
        site.run("InturnQueueOld", QUEUE="backlog", APP="app.py:backlog")
        cleared(site, "InturnQueueOld", queue="backlog")

    def test_a_failed_group_fires_groups_parked(self, site: Site) -> None:
        site.send("payments", {"poison": True}, group=POISONED, revision=1)
        fired(site, "InturnGroupsParked", pipeline="ledger", status="failed")
        site.run("InturnGroupsParked", PIPELINE="ledger", GROUP=POISONED)
        cleared(site, "InturnGroupsParked")

    def test_a_parked_queue_group_fires_queue_groups_parked(self, site: Site) -> None:
        with inturn.open(site.db) as db:
            db.queue("effects").park("a", "the handler of a consumer failed")
        fired(site, "InturnQueueGroupsParked", queue="effects")
        site.run("InturnQueueGroupsParked", QUEUE="effects", GROUP="a")
        cleared(site, "InturnQueueGroupsParked")

    def test_a_revision_gap_fires_messages_held(self, site: Site) -> None:
        site.send("mails", {}, group=GAPPY, revision=2)
        fired(site, "InturnMessagesHeld", pipeline="mails")
        site.run("InturnMessagesHeld", PIPELINE="mails", GROUP=GAPPY)
        cleared(site, "InturnMessagesHeld")

    def test_outputs_without_a_delivering_worker_fire_outbox_old(self, site: Site) -> None:
        site.send("mails", {"out": "a mail"}, group="a", revision=1)
        fired(site, "InturnOutboxOld", pipeline="mails")
        site.run("InturnOutboxOld", QUEUE="mails", APP="app.py:mails")
        cleared(site, "InturnOutboxOld", pipeline="mails")

    def test_a_rejected_message_fires_messages_rejected(self, site: Site) -> None:
        site.send("payments", {"account": "another"}, group=WRONG, revision=2)
        fired(site, "InturnMessagesRejected", pipeline="ledger")
        site.run("InturnMessagesRejected", PIPELINE="ledger", GROUP=WRONG)
        cleared(site, "InturnMessagesRejected")

    def test_a_suspended_worker_fires_leases_lost(self, site: Site) -> None:
        with inturn.open(site.db) as db:
            payments = db.queue("payments")
            payments.send({"sleep": 1}, group="slow", revision=1)
            until(lambda: payments.depth().in_flight)
        process = site.process("inturn-worker@ledger")
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)  # longer than the visibility timeout
        process.send_signal(signal.SIGCONT)
        fired(site, "InturnLeasesLost", pipeline="ledger")
        site.run("InturnLeasesLost", QUEUE="payments")
        cleared(site, "InturnLeasesLost")
        with inturn.open(site.db) as db:
            assert db.queue("payments").info().settings.visibility_timeout_s == 120

    def test_a_killed_worker_fires_worker_down(self, site: Site) -> None:
        site.process("inturn-worker@ledger").kill()
        fired(site, "InturnWorkerDown")
        (_, restart) = site.run("InturnWorkerDown")
        site.systemctl(*restart.split()[1:])
        cleared(site, "InturnWorkerDown")

    def test_a_queue_without_a_consumer_fires_queue_not_drained(self, site: Site) -> None:
        site.systemctl("stop", "inturn-worker@ledger")
        site.send("payments", {}, group="b", revision=1)
        fired(site, "InturnQueueNotDrained", queue="payments")
        (start,) = site.run("InturnQueueNotDrained", QUEUE="payments")
        site.systemctl(*start.split()[1:])
        cleared(site, "InturnQueueNotDrained", queue="payments")

    def test_a_key_with_a_wrong_secret_fires_requests_refused(self, site: Site) -> None:
        (site.folder / "shop.secret").write_text("new")
        assert CliRunner().invoke(app, ["keys", "add", site.db, "shop", "--json"]).exit_code == 0
        with _asking(site, "new"):
            fired(site, "InturnRequestsRefused", error_type="SignatureDoesNotMatch")
            site.run("InturnRequestsRefused")
            cleared(site, "InturnRequestsRefused")

    def test_a_killed_server_fires_server_down(self, site: Site) -> None:
        site.process("inturn-serve").kill()
        fired(site, "InturnServerDown")
        (_, restart) = site.run("InturnServerDown")
        site.systemctl(*restart.split()[1:])
        cleared(site, "InturnServerDown")

    def test_rejected_records_fire_source_rejects(self, site: Site) -> None:
        site.insert(None)
        fired(site, "InturnSourceRejects", source="bank")
        site.run("InturnSourceRejects", SOURCE="bank")
        cleared(site, "InturnSourceRejects")

    def test_a_full_queue_fires_source_stalled(self, site: Site) -> None:
        with inturn.open(site.db) as db:
            db.queue("intake").configure(max_depth=300)
        site.insert(*(f"{number}" for number in range(600)))
        fired(site, "InturnSourceStalled", source="bank", partition="outbox")
        site.run("InturnSourceStalled", SOURCE="bank", QUEUE="intake", APP="app.py:intake")
        cleared(site, "InturnSourceStalled")
        with inturn.open(site.db) as db:
            db.queue("intake").purge()

    def test_a_recreated_partition_fires_source_refused(self, site: Site) -> None:
        site.make_outbox()
        site.systemctl("restart", "inturn-ingest@bank")
        fired(site, "InturnSourceRefused", source="bank", partition="outbox")
        site.run("InturnSourceRefused", SOURCE="bank", PARTITION="outbox")
        cleared(site, "InturnSourceRefused")

    def test_a_stopped_ingest_fires_source_unread_and_ingest_down(self, site: Site) -> None:
        site.systemctl("stop", "inturn-ingest@bank")
        fired(site, "InturnSourceUnread", source="bank")
        fired(site, "InturnIngestDown", job="inturn-ingest")
        (start,) = site.run("InturnSourceUnread", SOURCE="bank")
        site.systemctl(*start.split()[1:])
        cleared(site, "InturnSourceUnread")
        cleared(site, "InturnIngestDown")

    def test_a_killed_ingest_fires_ingest_down(self, site: Site) -> None:
        site.process("inturn-ingest@bank").kill()
        fired(site, "InturnIngestDown")
        (_, restart) = site.run("InturnIngestDown")
        site.systemctl(*restart.split()[1:])
        cleared(site, "InturnIngestDown")

    def test_no_alert_remains_at_the_end(self, site: Site) -> None:
        until(lambda: not site.ask("alerts")["alerts"], "an alert has not ended, or another has come of it")


@contextmanager
def _asking(site: Site, secret: str) -> Iterator[None]:
    """Ask the endpoint as a client does, all the time."""
    client = boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{site.jobs['inturn-serve']}",
        region_name="us-east-1",
        aws_access_key_id="shop",
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(0.1):
            with suppress(ClientError, BotoCoreError):
                client.list_queues()

    asking = Running(ask)
    try:
        yield
    finally:
        is_over.set()
        asking.end()
