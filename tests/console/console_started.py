"""The ``inturn console`` command as a process, and a page of it that listens for changes."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

WAIT_S = 60


class StartedConsole:
    """A console that runs, and its answers.

    Attributes:
        process: its process.
        address: its address.
    """

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process, self.address = process, address

    def get(self, path: str, **fields: str) -> tuple[int, str]:
        """Return the status and the text of a page or a document; there must be one within some seconds."""
        query = f"?{urlencode(fields)}" if fields else ""
        try:
            with urlopen(f"{self.address}{path}{query}", timeout=WAIT_S) as answer:  # noqa: S310 - it is our own
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def api(self, path: str, **fields: str) -> Any:
        """Return a document."""
        status, text = self.get(f"/api{path}", **fields)
        return json.loads(text) | {"status_code": status}

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


@contextmanager
def started(*arguments: str) -> Iterator[StartedConsole]:
    """Start a console at a free port; it is ended with the block."""
    command = [sys.executable, "-m", "inturn", "console", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield StartedConsole(process, process.stdout.readline().split()[-1].rstrip("/"))
        finally:
            process.kill()


class Listener:
    """A page that listens: the names of the events that it has heard."""

    def __init__(self, console: StartedConsole) -> None:
        self.heard: list[str] = []
        self.is_over = threading.Event()
        self._answer = urlopen(f"{console.address}/live", timeout=WAIT_S)  # noqa: S310 - it is our own
        self._answer.readline()  # it listens now
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for line in self._answer:
                name, _, value = line.decode().strip().partition(": ")
                if name == "event":
                    self.heard.append(value)
        except (OSError, ValueError, AttributeError):  # it was closed meanwhile, by another thread
            pass
        self.is_over.set()

    def close(self) -> None:
        """Close the page."""
        connection: socket.socket = self._answer.fp.raw._sock  # closing the answer would wait for its next line
        connection.shutdown(socket.SHUT_RDWR)
