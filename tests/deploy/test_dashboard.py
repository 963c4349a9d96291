"""Every metric and label of the dashboard and of the alert rules is on a real page of metrics."""

import asyncio
import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import inturn
import inturn.telemetry
from composed import DEPLOY, page
from inturn.core.override import override
from inturn.ingest import FolderSource, Ingest, MessageMapping, SourceRecord
from inturn.sqs.config import Config, ServerConfig
from inturn.sqs.run import Endpoint
from inturn.telemetry import measures
from inturn.worker import Worker
from waiting import PROGRAM_S

DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
OF_PROMETHEUS = {"up": {"job", "instance"}}
FROM_SCRAPES = {"job", "instance", "le"}
WORDS = {"by", "on", "unless", "and", "or", "group_left", "sum", "max", "min", "rate", "increase", "time"}
WORDS |= {"histogram_quantile", "max_over_time"}


def expressions() -> Iterator[str]:
    """Each expression, with something for each of Grafana's variables."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m").replace("$queue", ".*").replace("$pipeline", ".*")
    for group in RULES:
        yield from (rule["expr"] for rule in group["rules"])


def used(expression: str) -> tuple[set[str], set[str]]:
    """The metrics and the labels that an expression names."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    labels = set(re.findall(r"(\w+)\s*[=!]=?~?\s*\"\"", bare))
    for names in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", bare):
        labels |= set(re.findall(r"\w+", names))
    bare = re.sub(r"\b(by|on)\s*\([^)]*\)|\{[^}]*\}|\[[^]]*\]", " ", bare)
    return set(re.findall(r"[a-z_]\w*", bare)) - WORDS, labels


def apply(state: dict[str, int], message: dict[str, object]) -> tuple[dict[str, int], list[str]]:
    if message.get("poison"):
        raise ValueError("poison")
    return state, ["an output"]


class Lagging(FolderSource):
    """A folder whose lag and times are known, as those of a broker are."""

    @override
    def lag(self, partition: str) -> int:
        return 1

    @override
    def poll(self, limit: int, timeout_s: float) -> list[SourceRecord]:
        return [record._replace(time_ms=1) for record in super().poll(limit, timeout_s)]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names of all samples of a page of workers, consumers and sources, and of an endpoint's, with their labels."""
    pipeline = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)
    registry = CollectorRegistry()
    with inturn.open(tmp_path_factory.mktemp("metrics") / "shop.db") as db:
        inturn.telemetry.prometheus(db, registry=registry)
        measures.count_step("ledger", 1.0, {"applied": 1})  # as a step on Spark does
        payments = db.queue("payments")
        for group, content in (("a", {}), ("b", {"poison": True}), ("c", {"account": "d"})):
            payments.send(content, group=group, revision=1)
        with Worker(pipeline, payments, deliver=lambda output, effect_id: None) as worker:
            worker.drain()
            jobs = db.queue("jobs")
            jobs.send("x", group="a")
            inturn.consume(jobs, lambda message: None, until="empty")
            folder = Path(db.name).parent / "drop"
            folder.mkdir()
            (folder / "1.jsonl").write_text('{"account": "a"}\n')
            Ingest(Lagging(folder), jobs, MessageMapping(group="body.account"), name="bank").run(until="caught up")
            text = generate_latest(registry).decode()

        def ask(endpoint: Endpoint) -> str:
            secrets = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
            client = boto3.client("sqs", endpoint_url=endpoint.url, **secrets)
            queue = client.create_queue(QueueName="orders")["QueueUrl"]
            client.send_message(QueueUrl=queue, MessageBody="x")
            (message,) = client.receive_message(QueueUrl=queue)["Messages"]
            client.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            return page(f"{endpoint.url}/metrics")

        async def main() -> str:
            async with Endpoint(db, Config(server=ServerConfig(port=0))) as endpoint:
                return await asyncio.to_thread(ask, endpoint)

        text += asyncio.run(main())
    metric_labels: defaultdict[str, set[str]] = defaultdict(set, OF_PROMETHEUS)
    for family in text_string_to_metric_families(re.sub(r"^# (HELP|TYPE) (?=process_).*\n", "", text, flags=re.M)):
        if not family.samples:
            metric_labels[f"{family.name}_total" if family.type == "counter" else family.name] = set()
        for sample in family.samples:
            metric_labels[sample.name] |= set(sample.labels)
    return metric_labels


@pytest.mark.thorough
@pytest.mark.parametrize("expression", list(expressions()))
def test_every_metric_and_label_in_an_expression_exists(expression: str, metrics: dict[str, set[str]]) -> None:
    names, labels = used(expression)
    assert names
    assert names <= metrics.keys()
    existing = set().union(*(metrics[name] for name in names)) | FROM_SCRAPES
    assert not any(metrics[name] for name in names) or labels <= existing, (labels, existing)


@pytest.mark.thorough
def test_every_source_metric_is_on_the_dashboard(metrics: dict[str, set[str]]) -> None:
    known = {name for name in metrics if name.startswith(("inturn_source_", "inturn_ingest_"))}
    targets = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    shown = set().union(*(used(target["expr"])[0] for target in targets))
    assert known - shown == set()
    assert "inturn_source_dropped_records_total" in known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not there; `make services` installs it")
def test_promtool_accepts_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": "a:b", "expr": expression, "labels": {"at": f"{index}"}}
        for index, expression in enumerate(expressions())
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    subprocess.run(["promtool", "check", "rules", path], check=True, capture_output=True, timeout=PROGRAM_S)  # noqa: S607 - on the PATH


def test_the_dashboard_has_unique_panels_known_variables_and_alerts() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= variables
    alerts = {rule["alert"] for group in RULES for rule in group["rules"]}
    named = set(re.findall(r"Inturn[A-Z]\w+", json.dumps(panels)))
    assert named <= alerts
