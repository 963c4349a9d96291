"""An attack on the SQS endpoint with keys: many requests of 4 MiB that never end, and what they cost everybody else.

    python benchmarks/front_door.py [--connections 500] [--attack forged|unsigned|verified] [--seconds 20] [--json]

Each attacker sends the head of a request and all of its body but the last byte, and is silent then. ``forged`` names a
key that exists and has a wrong signature, so only the whole body tells; ``unsigned`` has no signature; ``verified``
has a right signature over its head, as somebody would who has the key, or has seen a request. Meanwhile two clients
(boto3 with its usual retries) send messages of 1 KB and of 256 KB, and a probe asks ``/health`` over a new connection
each time. Told are the memory of the server's process (RSS) before and at its peak, and the clients' latencies.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import psutil
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

BODY_BYTES = 4 * 1024 * 1024
KEY, SECRET = "AKIDBENCHMARK0000001", "benchmark/secret"
TOML = f'[[keys]]\nid = "{KEY}"\nsecret = "{SECRET}"\n[[queues]]\nname = "plain"\n'
SIZES = (1_000, 256_000)


def head(url: str, attack: str) -> bytes:
    """The head of a request whose body is 4 MiB long."""
    payload = "0" * 64
    request = AWSRequest("POST", f"{url}/", {"X-Amz-Target": "AmazonSQS.SendMessage"})
    request.headers["X-Amz-Content-SHA256"] = payload
    if attack != "unsigned":
        if attack == "forged":
            del request.headers["X-Amz-Content-SHA256"]
        SigV4Auth(Credentials(KEY, SECRET if attack == "verified" else "another"), "sqs", "us-east-1").add_auth(request)
    host = url.removeprefix("http://")
    lines = [f"{name}: {value}" for name, value in request.headers.items()]
    return "\r\n".join(["POST / HTTP/1.1", f"Host: {host}", f"Content-Length: {BODY_BYTES}", *lines, "\r\n"]).encode()


def honest(url: str, size: int, until: float) -> list[tuple[float, float, bool]]:
    """Send messages until then: of each when it began, how long it took and whether it was accepted."""
    session = boto3.Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1")
    sqs = session.client("sqs", endpoint_url=url, config=Config(read_timeout=90))
    queue, body, timings = f"{url}/000000000000/plain", "x" * size, []
    while (began := time.time()) < until:
        is_well = True
        try:
            sqs.send_message(QueueUrl=queue, MessageBody=body)
        except (BotoCoreError, ClientError):
            is_well = False
        timings.append((began, time.time() - began, is_well))
        time.sleep(0.02)
    return timings


def probe(port: int, until: float) -> list[tuple[float, float, bool]]:
    """Ask for the health, each time over a new connection."""
    timings = []
    while (began := time.time()) < until:
        is_well = False
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 30) as asking:
            asking.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            is_well = asking.recv(100).startswith(b"HTTP/1.1 200")
        timings.append((began, time.time() - began, is_well))
        time.sleep(0.05)
    return timings


class Attack:
    """Connections with unfinished requests, which stay open until it ends."""

    def __init__(self, port: int, data: bytes) -> None:
        self._port = port
        self._data = data
        self.held: list[socket.socket] = []
        self.cut = 0
        self._lock = threading.Lock()

    def one(self, _: int) -> None:
        attacker = None
        try:
            attacker = socket.create_connection(("127.0.0.1", self._port), 30)
            attacker.sendall(self._data)
        except OSError:
            with self._lock:
                self.cut += 1
        if attacker is not None:
            with self._lock:
                self.held.append(attacker)

    def open(self) -> int:
        """How many connections the server has not closed."""
        count = 0
        for connection in self.held:
            connection.settimeout(0)
            try:
                count += bool(connection.recv(1))
            except BlockingIOError:
                count += 1
            except OSError:
                pass
        return count


def summary(timings: list[tuple[float, float, bool]], since: float, until: float) -> dict[str, Any]:
    within = [(s, is_well) for began, s, is_well in timings if since <= began < until]
    times = sorted(s for s, _ in within) or [0.0]
    return {
        "count": len(within),
        "failed": sum(not is_well for _, is_well in within),
        "median_ms": round(1000 * statistics.median(times), 1),
        "p99_ms": round(1000 * times[min(len(times) - 1, int(len(times) * 0.99))], 1),
        "max_ms": round(1000 * times[-1], 1),
    }


def run(connections: int, attack: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "inturn.toml").write_text(TOML)
        command = [
            sys.executable,
            "-m",
            "inturn.cli",
            "serve",
            "--port",
            "0",
            "--db",
            "q.db",
            "--config",
            "inturn.toml",
        ]
        log = (directory / "log").open("wb")
        server = subprocess.Popen(command, cwd=directory, stderr=log, env=dict(os.environ))
        try:
            return measured(server, directory, connections, attack, seconds)
        finally:
            server.terminate()
            server.wait(60)
            log.close()


def measured(server: Any, directory: Path, connections: int, attack: str, seconds: float) -> dict[str, Any]:
    while b"http://127.0.0.1:" not in (log := (directory / "log").read_bytes()):
        time.sleep(0.05)
    port = int(log.partition(b"http://127.0.0.1:")[2].split()[0].decode().split("\x1b")[0])
    url, process = f"http://127.0.0.1:{port}", psutil.Process(server.pid)
    began = time.time()
    attacked, until = began + 4, began + 4 + seconds
    rss: list[int] = []
    with ProcessPoolExecutor(3) as processes, ThreadPoolExecutor(16) as attackers:
        clients = [processes.submit(honest, url, size, until) for size in SIZES]
        probing = processes.submit(probe, port, until)
        time.sleep(attacked - time.time())
        before = process.memory_info().rss
        attacking = Attack(port, head(url, attack) + b"a" * (BODY_BYTES - 1))
        sent = [attackers.submit(attacking.one, index) for index in range(connections)]
        all_sent_s = 0.0
        while time.time() < until:
            rss.append(process.memory_info().rss)
            if not all_sent_s and all(future.done() for future in sent):
                all_sent_s = time.time() - attacked
            time.sleep(0.05)
        figures = {
            "attack": attack,
            "connections": connections,
            "rss_before_mb": round(before / 1e6),
            "rss_peak_mb": round(max(rss) / 1e6),
            "rss_end_mb": round(rss[-1] / 1e6),
            "all_sent_s": round(all_sent_s, 1),
            "open_at_the_end": attacking.open(),
        }
        for name, client in zip(("1 KB", "256 KB", "/health"), (*clients, probing), strict=True):
            timings = client.result()
            figures[f"{name} before"] = summary(timings, began + 1, attacked)
            figures[f"{name} during"] = summary(timings, attacked, until)
        for connection in attacking.held:
            connection.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else "")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--attack", choices=("forged", "unsigned", "verified"), nargs="*", default=["forged"])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for attack in options.attack:
        figures = run(options.connections, attack, options.seconds)
        if options.json:
            print(json.dumps(figures))
        else:
            for name, value in figures.items():
                print(f"{name:>16}: {value}")


if __name__ == "__main__":
    main()
