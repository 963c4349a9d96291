"""``inturn console`` says where it is, serves loopback addresses alone, and stops in order."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from console_shop import Shop
from typer.testing import CliRunner

from inturn.cli.main import app
from inturn.demo.free_ports import free_port

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_console_command_serves_until_a_signal(shop: Shop, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "inturn", "console", shop.path, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        address = console.stdout.readline().split()[-1]
        try:
            with urlopen(address, timeout=60) as page:  # noqa: S310 - it is the console's own
                assert b"amount -5 is below zero" in page.read()
            console.send_signal(number)
            assert console.wait(60) == 0
        finally:
            console.kill()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org"])  # noqa: S104 - refused
def test_without_login_only_loopback_addresses_are_allowed(shop: Shop, host: str) -> None:
    done = CliRunner().invoke(app, ["console", shop.path, "--host", host])
    assert done.exit_code == 1
    assert "has no log-in" in " ".join(done.stderr.split())


def test_the_console_command_has_a_health_address_and_log_options(shop: Shop, tmp_path: Path) -> None:
    health = f"127.0.0.1:{free_port()}"
    (tmp_path / "console.toml").write_text(f'health = "{health}"\nlog_level = "error"\nlog_json = true')
    command = [sys.executable, "-m", "inturn", "console", shop.path, str(tmp_path), "--port", "0"]
    command += ["--config", str(tmp_path / "console.toml"), "--log-level", "debug"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as console:  # type: ignore[call-overload]
        try:
            address = console.stdout.readline().split()[-1]
            for path in ("health", "ready"):
                with urlopen(f"http://{health}/{path}", timeout=60) as page:
                    assert json.load(page) == {"ready": True, "stores": [shop.path, str(tmp_path)]}
            with urlopen(f"http://{health}/metrics", timeout=60) as page:
                text = page.read().decode()
            assert f'inturn_pipeline_groups{{database="{shop.path}"' in text
            with urlopen(address, timeout=60):  # noqa: S310 - it is the console's own
                pass
            console.send_signal(signal.SIGTERM)
            _, log = console.communicate(timeout=60)
            assert console.returncode == 0
        finally:
            console.kill()
    records = [json.loads(line) for line in log.splitlines()]
    assert records, "the option selects debug"
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in records)
