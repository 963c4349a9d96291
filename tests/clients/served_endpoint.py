"""`inturn serve` as a process of its own, and what its clients must know of it."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

ACCOUNT = "000000000000"
REGION = "us-east-1"
ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT}:"
DEADLINE_S = 60

CONFIG = """
[[keys]]
id = "AKIDCLIENTS000000001"
secret = "a/secret+with=all/that+secrets=have"

[[keys]]
id = "AKIDREADER0000000001"
secret = "another"
queues = ["read-*"]
actions = ["ReceiveMessage", "DeleteMessage", "Get*"]
"""


@dataclass(frozen=True)
class Key:
    """An access key."""

    id: str
    secret: str


EVERYTHING = Key("AKIDCLIENTS000000001", "a/secret+with=all/that+secrets=have")
READER = Key("AKIDREADER0000000001", "another")
ANY = Key("any", "thing")

_numbers = count(1)


def unique(name: str) -> str:
    """A name that no other test has; the server is theirs too."""
    stem, dot, fifo = name.partition(".")
    return f"{stem}-{next(_numbers)}{dot}{fifo}"


class Serving:
    """An endpoint that runs.

    Attributes:
        key: with which everything may be done.
        is_signed: whether it has keys; if not, any will do.
        url: where it listens.
        local_url: the same by another name than the one it gives its queues.
    """

    def __init__(self, folder: Path, *, with_keys: bool) -> None:
        self.is_signed = with_keys
        self.key = EVERYTHING if with_keys else ANY
        self._log = folder / "log"
        command = [sys.executable, "-m", "inturn.cli", "serve", "--db", str(folder / "shop.db"), "--port", "0"]
        if with_keys:
            (folder / "inturn.toml").write_text(CONFIG)
            command += ["--config", str(folder / "inturn.toml")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, "--log-json"], stderr=log)
        try:
            self._wait_for_start()
        except BaseException:
            self._process.kill()
            self._process.wait(DEADLINE_S)
            raise

    def _wait_for_start(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self._log.read_bytes().count(b"\n"):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, "inturn serve does not start"
            time.sleep(0.02)
        self.url: str = self._events()[0]["message"].removeprefix("inturn serves ")
        assert self.url.startswith("http://127.0.0.1:")
        self.port = int(self.url.rpartition(":")[2])
        self.local_url = f"http://localhost:{self.port}"

    def _events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def environment(self, folder: Path) -> dict[str, str]:
        """What a client's process finds around it: the key and the region, and no settings of whoever runs this."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return inherited | {
            "AWS_ACCESS_KEY_ID": self.key.id,
            "AWS_SECRET_ACCESS_KEY": self.key.secret,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CONFIG_FILE": str(folder / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def requests(self) -> int:
        """How many requests have come, with the one that asks."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=DEADLINE_S) as answer:  # noqa: S310 - this machine's
            (count,) = re.findall(rb"^inturn_server_received_requests_total\{.*\} (\S+)$", answer.read(), re.MULTILINE)
            return int(float(count))

    def wait_for_a_request(self, since: int) -> None:
        """Wait until a client's request has come, since so many had."""
        deadline = time.monotonic() + DEADLINE_S
        own_requests = 1
        while self.requests() <= since + own_requests:
            assert time.monotonic() < deadline, "no request comes"
            own_requests += 1
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it as an operator does; no client must have brought it into trouble."""
        self._process.terminate()
        try:
            code = self._process.wait(30)
        finally:
            with suppress(ProcessLookupError):
                self._process.kill()
        events = self._events()
        assert code == 0, events
        assert [event for event in events if event["level"] in {"error", "critical"}] == []
        messages = [event["message"] for event in events if event.get("event") != "refused"]
        assert messages[-2:] == ["stopping", "stopped"]
