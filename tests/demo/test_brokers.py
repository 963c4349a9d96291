"""The demo's flights through real brokers: the same answers; and what is said where a broker cannot be had."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("jinja2", reason="the demo's page is filled in with jinja2, from the extra [demo]")

from caches import CACHE
from inturn.cli import app
from inturn.core.errors import SetupError
from inturn.demo import kafka_server, rabbitmq_server, run
from inturn.demo.brokers import DemoBroker, DemoKafka, DemoRabbitMQ
from inturn.demo.result import DISTINCT, NAIVE, PROCESS, SPARK
from kafka_started import missing as kafka_missing


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", [DemoKafka, DemoRabbitMQ])
def test_the_demo_gives_the_same_results_through_a_broker(
    kind: type[DemoBroker],
    spark: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if reason := kafka_missing() if kind is DemoKafka else rabbitmq_server.missing():
        pytest.skip(reason)
    monkeypatch.setattr(kafka_server, "CACHE", CACHE)
    run.main(tmp_path / "demo", json=True, broker=kind(), spark=spark)  # type: ignore[arg-type]
    shown = json.loads(capsys.readouterr().out)
    assert shown["good"]
    assert shown["intake"] == {"broker": kind.name, "received": 25_509, "rejected": 24}
    wrong = {name: counts["aircraft"] for name, counts in shown["wrong"].items()}
    assert wrong == {NAIVE: 949, DISTINCT: 487, SPARK: 0, PROCESS: 0}, "as without a broker"
    assert shown["outputs"] == shown["landings"] == 12_118
    assert shown["process"]["rejected"] == {"conflict": 1}
    assert sum(shown["producers"].values()) == 25_509
    assert not list(tmp_path.glob("inturn-demo-broker-*"))


def test_the_kafka_demo_without_maven_names_the_missing_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    result = CliRunner().invoke(app, ["demo", "--kafka", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 1
    assert "java and mvn on the PATH; or use a running broker with --at HOST:PORT" in " ".join(result.stderr.split())
    assert not (tmp_path / "demo").exists(), "nothing was begun"


def test_the_rabbitmq_demo_without_a_server_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_server, "SERVER", Path("/nowhere"))
    with pytest.raises(SetupError, match="apt-get install rabbitmq-server; or use a running one with --at amqp://"):
        DemoRabbitMQ().check()


@pytest.mark.parametrize("broker", [DemoKafka("127.0.0.1:1"), DemoRabbitMQ("amqp://guest@127.0.0.1:1/")])
def test_an_unreachable_broker_is_reported(broker: DemoBroker) -> None:
    broker.check()
    with pytest.raises(SetupError, match=r"cannot create a (topic|queue)"), broker.target():
        pass


@pytest.mark.parametrize("options", [["--kafka", "--rabbitmq"], ["--at", "127.0.0.1:9092"]])
def test_incompatible_broker_options_are_refused(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["demo", *options])
    assert result.exit_code == 1
    assert "pass exactly one" in result.stderr
