"""``inturn serve`` killed again and again under 32 clients, and what the clients' histories say about it.

    python crash.py DIRECTORY KILLS SEED

Each life of the server is killed with SIGKILL after a random time, or kills itself at a named point of a transaction:
at each point once, and then as chance has it.
At last the clients who send come to an end, the queue is emptied, and the histories are checked. Prints a line of JSON.
"""

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from inturn.demo.free_ports import free_port
from inturn.faults import OF_A_TRANSACTION
from inturn.testing.history import check, figures, read

HERE = Path(__file__).parent
PROCESSES, THREADS = 2, 8
"""Of clients who send, and as many of those who take."""
VISIBILITY_S = 2
WAIT_S = 60
"""How long anything may take before it is taken for stuck."""
KINDS = ("at a random time", "while it starts", *OF_A_TRANSACTION, *OF_A_TRANSACTION)
"""Of deaths; those at a point are drawn more often."""


class Shop:
    """The server, one life after the other."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.directory = directory
        self.chance = random.Random(seed)
        self.points = self.chance.sample(OF_A_TRANSACTION, len(OF_A_TRANSACTION))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.deaths: Counter[str] = Counter()
        self._log = (directory / "serve.log").open("ab")
        options = Config(retries={"total_max_attempts": 1})
        self.sqs: Any = boto3.client(
            "sqs",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",  # noqa: S106
            config=options,
        )

    def start(self, **environment: str) -> None:
        command = [sys.executable, "-m", "inturn.cli", "serve", "--log-json"]
        command += ["--db", str(self.directory / "shop.db"), "--port", str(self.port)]
        self.process = subprocess.Popen(command, stderr=self._log, env=os.environ | environment)

    def is_up(self) -> bool:
        """Whether it is there; waits until it is there or dead."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not start"
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return True
            time.sleep(0.01)
        return False

    def live_and_die(self) -> None:
        """One life, which begins with the death of the one before."""
        kind = self.points.pop() if self.points else self.chance.choice(KINDS)
        if kind in OF_A_TRANSACTION:
            # Some in its first transactions, while it starts and while all clients come back; most under load.
            self.start(INTURN_KILL_AT=f"{kind}@{round(3 ** self.chance.uniform(0, 5))}")
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                kind = "at a point that did not come"
        elif kind == "while it starts":
            self.start()
            time.sleep(self.chance.uniform(0, 1))
        else:
            self.start()
            self.is_up()
            time.sleep(self.chance.expovariate(2))
        self.process.kill()
        status = self.process.wait(60)
        self.deaths[kind if status == -signal.SIGKILL else f"otherwise, {status}"] += 1

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(WAIT_S)


def start_clients(verb: str, shop: Shop, queue: str, histories: Path, seed: str) -> list[subprocess.Popen[bytes]]:
    command = [sys.executable, str(HERE / "clients.py"), verb, shop.url, queue, str(histories)]
    return [subprocess.Popen([*command, str(number * THREADS), str(THREADS), seed]) for number in range(PROCESSES)]


def end(clients: list[subprocess.Popen[bytes]]) -> None:
    for client in clients:
        client.terminate()
    for client in clients:
        assert client.wait(WAIT_S) == 0, "a client failed"


def wait_until_empty(shop: Shop, queue: str) -> int:
    """How many messages are left, after all the time that there is."""
    deadline = time.monotonic() + WAIT_S
    remaining = 1
    while remaining and time.monotonic() < deadline:
        try:
            attributes = shop.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        except (BotoCoreError, ClientError):
            continue
        remaining = sum(int(value) for name, value in attributes.items() if name.startswith("ApproximateNumber"))
        time.sleep(0.05)
    return remaining


def main(directory: Path, kills: int, seed: str) -> None:
    histories = directory / "histories"
    histories.mkdir(parents=True)
    shop = Shop(directory, seed)
    clients: list[subprocess.Popen[bytes]] = []
    began = time.monotonic()
    try:
        shop.start()
        assert shop.is_up()
        attributes = {"FifoQueue": "true", "VisibilityTimeout": str(VISIBILITY_S)}
        queue = shop.sqs.create_queue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"]
        senders = start_clients("send", shop, queue, histories, seed)
        clients += senders
        takers = start_clients("take", shop, queue, histories, seed)
        clients += takers
        deadline = time.monotonic() + WAIT_S
        while len([*histories.glob("*.jsonl")]) < 2 * PROCESSES * THREADS:
            assert time.monotonic() < deadline, "not all clients have begun"
            time.sleep(0.05)
        shop.process.kill()
        shop.process.wait(60)
        shop.deaths["at a random time"] += 1
        while shop.deaths.total() < kills:
            shop.live_and_die()
        shop.start()
        end(senders)
        remaining = wait_until_empty(shop, queue)
        end(takers)
        status = shop.stop()
    finally:
        for process in [*clients, shop.process]:
            process.kill()
            process.wait(60)
    took_s = time.monotonic() - began
    with sqlite3.connect(directory / "shop.db") as db:
        sound = db.execute("pragma integrity_check").fetchall()
    events = read(histories)
    log = (directory / "serve.log").read_text().splitlines()
    report = {
        "deaths": shop.deaths,
        "figures": figures(events),
        "faults": [str(fault) for fault in check(events, visibility_s=VISIBILITY_S)[:20]],
        "left": remaining,
        "last_status": status,
        "sound": sound,
        "logged": [line for line in log if json.loads(line)["level"] not in {"info"}][:5],
        "took_s": round(took_s, 1),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
