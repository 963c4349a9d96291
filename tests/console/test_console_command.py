"""``inturn console`` says where it is, serves loopback addresses alone, and stops in order."""

import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest
from console_shop import Shop
from typer.testing import CliRunner

from inturn.cli.main import app

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal(shop: Shop, number: signal.Signals) -> None:
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
def test_another_address_is_refused(shop: Shop, host: str) -> None:
    done = CliRunner().invoke(app, ["console", shop.path, "--host", host])
    assert done.exit_code == 1
    assert "has no log-in" in " ".join(done.stderr.split())
