"""How much healthy groups are held up by groups that always fail: received, and given back at once.

    python benchmarks/failing.py [--rounds 5] [--groups 1000] [--messages 10] [--target postgresql://…] [--json]

There are a thousand healthy groups with ten messages each, and before them in the queue 0, 1, 10 or 100 groups whose
message fails each time. One consumer receives two messages at a time and acknowledges the healthy ones, so each group
comes five times, until these are done or it has received three times as often as they need. Each number of failing
groups is measured in turn, in every round; the ratios are to the run without any, by the
median.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cells import Cell
from rich.console import Console
from rich.table import Table

import inturn
from inturn.queue import QueueSettings, draft

FAILING = (0, 1, 10, 100)
BATCH = 2
BODY = {"type": "deposit", "account": "acct-1", "amount": 5}
RETRY: dict[str, Any] = {"retry_delay_s": 0.1, "retry_growth": 2, "retry_max_s": 10}
progress = Console(stderr=True, style="dim")


@dataclass
class Row(Cell):
    """What was measured beside so many failing groups.

    Attributes:
        done: the part of the healthy messages that were done.
        failed: how often a failing message was received for each healthy one that was done.
    """

    done: list[float] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)


def measure(queue: Any, failing: int, groups: int, messages: int, row: Row) -> None:
    """Fill the queue and work on it."""
    if failing:
        queue.send_many([draft("fails", group=f"f{n}") for n in range(failing)])
    for _ in range(messages):
        queue.send_many([draft(BODY, group=f"g{n}") for n in range(groups)])
    healthy, done, failed = groups * messages, 0, 0
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(3 * healthy // BATCH):
        received = queue.receive(BATCH)
        handled = [message for message in received if message.body != "fails"]
        bad = [message for message in received if message.body == "fails"]
        if handled:
            queue.ack(handled)
        if bad:
            queue.nack(bad)
        done, failed = done + len(handled), failed + len(bad)
        if done == healthy:
            break
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    row.per_s.append(done / wall)
    row.cpu_us.append(cpu / max(done, 1) * 1e6)
    row.done.append(done / healthy)
    row.failed.append(failed / max(done, 1))
    queue.purge()


def run(args: argparse.Namespace) -> dict[str, dict[int, Row]]:
    """Every row: by the kind of retry, and the number of failing groups."""
    kinds: dict[str, Any] = {"at once": {}}
    if "retry_delay_s" in QueueSettings.__dataclass_fields__:
        kinds["after a delay"] = RETRY
    rows = {kind: {failing: Row() for failing in FAILING} for kind in kinds}
    with (
        tempfile.TemporaryDirectory(dir=".") as directory,
        inturn.open(args.target or Path(directory) / "q.db", durable=False) as db,  # the disk would hide the rest
    ):
        for number in range(args.rounds):
            for kind, settings in kinds.items():
                queue = db.queue(f"failing, {kind}", QueueSettings(**settings))
                for failing in FAILING:
                    progress.print(f"round {number + 1}: retried {kind}, {failing} failing groups")
                    measure(queue, failing, args.groups, args.messages, rows[kind][failing])
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=10)
    parser.add_argument("--target")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = run(args)
    table = Table(
        "retried", "failing groups", "healthy/s", "ratio", "CPU µs each", "ratio", "done", "failures each", box=None
    )
    report = []
    for kind, rows in results.items():
        for failing, row in rows.items():
            ratio = row.rate / rows[0].rate
            report.append({
                "retried": kind, "failing": failing, "per_s": row.rate, "ratio": ratio, "cpu_us": row.cpu,
                "cpu_ratio": row.cpu / rows[0].cpu, "done": min(row.done), "failures": max(row.failed),
            })  # fmt: skip
            table.add_row(
                kind, str(failing), f"{row.rate:,.0f}", f"{ratio:.2f}", f"{row.cpu:.0f}",
                f"{row.cpu / rows[0].cpu:.2f}",
                f"{min(row.done):.0%}", f"{max(row.failed):.2f}",
            )  # fmt: skip
    if args.json:
        print(json.dumps(report))
    else:
        Console().print(table)


if __name__ == "__main__":
    main()
