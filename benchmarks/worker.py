"""A pipeline in this process beside huey with one worker: messages done in a second, each durably.

    python benchmarks/worker.py [--messages 20000] [--rounds 3] [--json]

The handler is trivial, so what is measured is what lies around it: the message is read, its place in its group is
decided, state and acknowledgement are kept. huey's SqliteHuey, with an fsync for each commit, runs a task that does
nothing in one worker thread; it knows no groups, keeps no state, and what it has taken when it dies is lost. A round
is one run of each, so that a busy machine is unkind to both.
"""

import argparse
import json
import logging
import platform
import sqlite3
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from huey import SqliteHuey
from rich.console import Console
from rich.table import Table

import inturn
from inturn.queue import draft

GROUPS = (1, 100, 10_000)


def count(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    return {"messages": state.get("messages", 0) + 1, "amount": state.get("amount", 0) + message["amount"]}, []


def count_out(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    state, _ = count(state, message)
    return state, [{"amount": state["amount"]}]


def worker(path: Path, messages: int, groups: int, handler: Any, deliver: Any = None) -> dict[str, float]:
    """Messages of so many groups, each in its own order, worked off."""
    line = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=handler)
    with inturn.open(path / "shop.db") as db:
        queue = db.queue("q")
        for begin in range(0, messages, 1_000):
            every = range(begin, min(begin + 1_000, messages))
            queue.send_many([draft({"amount": 1}, group=f"g{n % groups}", revision=n // groups + 1) for n in every])
        began, cpu = time.perf_counter(), time.process_time()
        counts = inturn.work(line, queue, until="empty", deliver=deliver)
        assert counts.applied == messages
        return _told(messages, began, cpu)


def huey(path: Path, messages: int) -> dict[str, float]:
    """Tasks worked off by huey's consumer with one worker."""
    app = SqliteHuey(filename=str(path / "huey.db"), fsync=True, results=False)
    done = threading.Event()
    seen = 0

    @app.task()
    def apply(amount: int) -> None:
        nonlocal seen
        seen += amount
        if seen == messages:
            done.set()

    with app.storage.db(commit=True) as cursor:  # as `apply(1)` does, but in one transaction
        rows = [(app.storage.name, app.serialize_task(apply.s(1)), 0) for _ in range(messages)]
        cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)
    consumer = app.create_consumer(workers=1, periodic=False, check_worker_health=False)
    began, cpu = time.perf_counter(), time.process_time()
    consumer.start()
    assert done.wait(600)
    told = _told(messages, began, cpu)
    consumer.stop(graceful=True)
    return told


def _told(messages: int, began: float, cpu: float) -> dict[str, float]:
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return {"per_s": messages / wall_s, "cpu_us": cpu_s / messages * 1e6}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    logging.getLogger("huey").setLevel(logging.ERROR)
    n = asked.messages
    runs: dict[str, Any] = {
        f"inturn.work, {groups:,} group{'s' if groups > 1 else ''}": lambda path, groups=groups: worker(
            path, n, groups, count
        )
        for groups in GROUPS
    }
    runs["inturn.work, 100 groups, an output each, delivered"] = lambda path: worker(
        path, n, 100, count_out, lambda _output, _effect_id: None
    )
    runs["huey, one worker"] = lambda path: huey(path, max(n // 10, 100))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for _ in range(asked.rounds):
        for name, run in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(run(Path(folder)))
    figures = {
        name: {what: statistics.median(each[what] for each in rounds) for what in ("per_s", "cpu_us")}
        for name, rounds in found.items()
    }
    if asked.json:
        print(json.dumps(figures))
        return
    table = Table("", "messages/s", "CPU µs each", "beside huey", title=_where(asked), title_justify="left")
    for name, each in figures.items():
        times = each["per_s"] / figures["huey, one worker"]["per_s"]
        table.add_row(name, f"{each['per_s']:,.0f}", f"{each['cpu_us']:,.0f}", f"{times:.1f}x")
    Console().print(table)


def _where(asked: argparse.Namespace) -> str:
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"{asked.messages:,} messages, median of {asked.rounds} rounds; {versions}"


if __name__ == "__main__":
    main()
