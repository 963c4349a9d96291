"""``inturn serve --health``: the pages of health at an address besides the API."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.demo.free_ports import free_port
from waiting import DEADLINE_S, until


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of the pages of an endpoint with keys, whose own metrics are off."""
    monkeypatch.chdir(tmp_path)
    port = free_port()
    server = f'health = "127.0.0.1:{port}"\nlog_json = true\nport = 0\nmetrics = "off"'
    Path("serve.toml").write_text(f'[server]\n{server}\n[[keys]]\nid = "me"\nsecret = "s"\n[[queues]]\nname = "orders"')
    command = [sys.executable, "-m", "inturn", "serve", "--db", "shop.db", "--config", "serve.toml", "--telemetry"]
    exporters = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | exporters) as process:
        try:
            assert process.stderr is not None
            assert json.loads(process.stderr.readline())["event"] == "started"
            yield port
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, log
            assert [json.loads(line)["event"] for line in log.splitlines() if '"failed"' not in line] == [
                *("stopping", "stopped")
            ]
        finally:
            process.kill()


def got(port: int, path: str) -> tuple[int, bytes]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


@pytest.mark.thorough
def test_the_health_address_serves_health_ready_and_metrics(port: int) -> None:
    assert got(port, "/health") == (200, b'{"status":"ok"}')
    status, body = got(port, "/ready")
    assert (status, json.loads(body)) == (200, {"status": "ok", "queues": 1, "messages": 0})
    status, page = got(port, "/metrics")
    assert status == 200
    assert b'inturn_queue_messages{database="shop.db",queue="orders"} 0.0' in page
    assert b'inturn_server_received_requests_total{database="shop.db"}' in page
    assert got(port, "/")[0] == 404


@pytest.mark.thorough
def test_a_missing_database_file_makes_ready_503(port: int) -> None:
    Path("shop.db").rename("away.db")
    until(lambda: got(port, "/ready")[0] == 503)
    assert json.loads(got(port, "/ready")[1])["status"] == "unavailable"
    assert got(port, "/health")[0] == 200
    assert got(port, "/metrics")[0] == 503


def test_an_invalid_health_address_is_refused(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db"):
        pass
    done = CliRunner().invoke(app, ["serve", "--db", str(tmp_path / "shop.db"), "--port", "0", "--health", "here"])
    assert done.exit_code == 1
    assert "--health is 'here'; expected HOST:PORT" in " ".join(done.stderr.split())
