"""The services of deploy/compose.yaml as processes of this machine: their own commands, with free ports."""

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from inturn.demo.free_ports import free_port
from waiting import DEADLINE_S, until

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
SERVICE = ROOT / "examples" / "service"
WAIT_S = 60
"""How long anything may take before it is taken for stuck."""


def status(url: str) -> int:
    """The status that is answered; 0 if nobody does."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:  # noqa: S310 - of a test
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:  # noqa: S310 - of a test
        return str(answer.read().decode())


def compose() -> dict[str, Any]:
    """The services, whose anchors are resolved."""
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return services


class Composed:
    """A service of the image, as a process: one life after the other.

    Args:
        name: of the service.
        folder: where its log goes, and copies of its files.
        environment: variables that are other ones here.
    """

    def __init__(self, name: str, folder: Path, **environment: str) -> None:
        service = compose()[name]
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ready = self.url + service["environment"].get("READY", "/ready").rpartition(":")[2].lstrip("0123456789")
        named = {key: value for key, value in service["environment"].items() if "${" not in value}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # the commands of this Python
        self._environment = os.environ | {"PATH": path} | named | environment
        self._command = [*service.get("entrypoint", ["inturn"]), *map(self._here, service["command"])]
        if name == "worker":
            self._command += ["--health", f"127.0.0.1:{self.port}"]
        elif name == "sqs":
            self._command += ["--host", "127.0.0.1", "--port", str(self.port)]
        self._log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes]

    def _here(self, word: str) -> str:
        return {"0.0.0.0": "127.0.0.1", "8000": str(self.port)}.get(word, word).replace("/etc/inturn", str(DEPLOY))  # noqa: S104

    def start(self) -> "Composed":
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    shutil.which(self._command[0], path=self._environment["PATH"]) or self._command[0],
                    *self._command[1:],
                ],
                cwd=SERVICE,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def up(self) -> "Composed":
        def is_ready() -> bool:
            assert self.process.poll() is None, self._log.read_text()
            return status(self.ready) == 200

        until(is_ready, f"{self._command} does not start")
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(WAIT_S)
