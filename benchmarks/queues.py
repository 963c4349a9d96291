"""The durable queue beside the SQLite queues that people install, and what verbs cost whatever lies in the queue.

    python benchmarks/queues.py [--only peers flat filled] [--rounds 5] [--json]

(Not queue.py: a script's own directory comes first, so that name would hide the standard library's module.)
"""

import argparse
import asyncio
import json
import platform
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import persistqueue
import uvloop
from cells import Cell
from huey import SqliteHuey
from litequeue import LiteQueue
from rich.console import Console
from rich.table import Table

import inturn
from inturn.queue import QueueSettings, draft

BODY = {"type": "deposit", "account": "acct-1", "amount": 5}
TEXT = json.dumps(BODY)
GROUPS = 1_000
CALLERS = (1, 64)
PARTS = ["peers", "flat", "filled"]
progress = Console(stderr=True, style="dim")


# --- contenders: a send is durable when it returns; a take receives at most ten messages and acknowledges each ---


class Inturn:
    """inturn, called from threads."""

    name = "inturn"

    def __init__(self, path: Path) -> None:
        self.db = inturn.open(path / "q.db")
        self.queue = self.db.queue("q")
        self._number = count()

    def send(self) -> None:
        self.queue.send(BODY, group=f"g{next(self._number) % GROUPS}")

    def fill(self, messages: int) -> None:
        every = range(messages)
        for begin in range(0, messages, 1_000):
            self.queue.send_many([draft(BODY, group=f"g{n % GROUPS}") for n in every[begin : begin + 1_000]])

    def take(self) -> int:
        messages = self.queue.receive(10)
        self.queue.ack(messages)
        return len(messages)

    def close(self) -> None:
        self.db.close()


class InturnTasks(Inturn):
    """inturn, called from asyncio tasks."""

    name = "inturn, asyncio"

    async def asend(self) -> None:
        await self.queue.send.aio(BODY, group=f"g{next(self._number) % GROUPS}")

    async def atake(self) -> int:
        messages = await self.queue.receive.aio(10)
        await self.queue.ack.aio(messages)
        return len(messages)


class InturnUvloop(InturnTasks):
    """The same over uvloop."""

    name = "inturn, uvloop"


class Lite:
    """litequeue, with an fsync for each commit; one connection, so a lock around it."""

    name = "litequeue"

    def __init__(self, path: Path) -> None:
        self.queue = LiteQueue(path / "q.db")
        self.queue.conn.execute("pragma synchronous = full")
        self._lock = threading.Lock()

    def send(self) -> None:
        with self._lock:
            self.queue.put(TEXT)

    def fill(self, messages: int) -> None:
        with self.queue.transaction():
            for _ in range(messages):
                self.queue.put(TEXT)

    def take(self) -> int:
        for _ in range(10):
            with self._lock:
                message = self.queue.pop()
                self.queue.done(message.message_id)
        return 10

    def close(self) -> None:
        self.queue.close()


class Persist:
    """persist-queue's SQLiteAckQueue; SQLite's own default is an fsync for each commit."""

    name = "persist-queue"

    def __init__(self, path: Path) -> None:
        self.queue = persistqueue.SQLiteAckQueue(str(path), multithreading=True)

    def send(self) -> None:
        self.queue.put(BODY)

    def fill(self, messages: int) -> None:
        for _ in range(messages):
            self.queue.put(BODY)

    def take(self) -> int:
        for _ in range(10):
            self.queue.ack(self.queue.get())
        return 10

    def close(self) -> None:
        self.queue.close()


class Huey:
    """The storage of huey's SqliteHuey; it has no acknowledgement: what is taken is gone."""

    name = "huey"

    def __init__(self, path: Path) -> None:
        self.queue = SqliteHuey(filename=str(path / "q.db"), fsync=True).storage
        self._data = TEXT.encode()

    def send(self) -> None:
        self.queue.enqueue(self._data)

    def fill(self, messages: int) -> None:
        with self.queue.db(commit=True) as cursor:
            rows = [(self.queue.name, self._data, 0)] * messages
            cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)

    def take(self) -> int:
        for _ in range(10):
            self.queue.dequeue()
        return 10

    def close(self) -> None:
        self.queue.close()


class Bare:
    """The limit: the rows that inturn writes, as many in a transaction as there are callers, one fsync each."""

    name = "bare SQLite"

    def __init__(self, path: Path) -> None:
        Inturn(path).close()
        self.connection = sqlite3.connect(path / "q.db", isolation_level=None)
        self.connection.execute("pragma synchronous = full")
        self._last = 1 << 44

    def send_together(self, messages: int) -> None:
        numbers = range(self._last + 1, self._last + 1 + messages)
        self._last += messages
        rows = [(n, 1, TEXT, 1, f"g{n % GROUPS}", 1_700_000_000_000) for n in numbers]
        run = self.connection
        run.execute("begin immediate")
        run.executemany(
            "insert into inturn_message (sequence_number, queue, body, content, grp, sent_ms)"
            " values (?, ?, ?, ?, ?, ?)",
            rows,
        )
        run.executemany(
            "insert into inturn_ready values (?, ?)", [(n, f"g{n % GROUPS}") for n in numbers if n % 20 == 0]
        )
        run.execute("commit")

    def close(self) -> None:
        self.connection.close()


# --- measuring ---


def measured(cell: Cell, work: Callable[[], int]) -> None:
    """Run ``work``, which says how many messages it dealt with."""
    cpu, wall = time.process_time(), time.perf_counter()
    messages = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    cell.per_s.append(messages / wall)
    cell.cpu_us.append(cpu / messages * 1e6)


def by_threads(callers: int, per_caller: int, act: Callable[[], Any]) -> int:
    """``callers`` threads, each of which acts ``per_caller`` times; the sum of what the acts return."""
    done: list[int] = []

    def run() -> None:
        done.append(sum(act() or 1 for _ in range(per_caller)))

    threads = [threading.Thread(target=run) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == callers, "a caller failed"
    return sum(done)


def by_tasks(
    callers: int, per_caller: int, act: Callable[[], Any], run_loop: Callable[[Any], Any] = asyncio.run
) -> int:
    """The same with tasks."""

    async def run() -> int:
        return sum([(await act()) or 1 for _ in range(per_caller)])

    async def together() -> int:
        return sum(await asyncio.gather(*(run() for _ in range(callers))))

    return int(run_loop(together()))


THREADED: tuple[Any, ...] = (Inturn, Lite, Persist, Huey)


def peers(rounds: int, quick: int) -> dict[tuple[str, int], dict[str, Cell]]:
    """Every row of the comparison; the contenders take turns."""
    rows: dict[tuple[str, int], dict[str, Cell]] = {}
    for number in range(rounds):
        for callers in CALLERS:
            per_caller = max(1, (400 if callers == 1 else 60) // quick)
            for kind in (*THREADED, InturnTasks, InturnUvloop, Bare):
                progress.print(f"round {number + 1}: {callers} callers, {kind.name}")
                with tempfile.TemporaryDirectory(dir=".") as directory:
                    _one(kind, Path(directory), callers, per_caller, rows)
    return rows


def _one(kind: Any, path: Path, callers: int, per_caller: int, rows: dict[tuple[str, int], dict[str, Cell]]) -> None:
    contender = kind(path)
    sends = rows.setdefault(("send", callers), {}).setdefault(kind.name, Cell())
    if kind is Bare:
        measured(sends, lambda: sum(contender.send_together(callers) or callers for _ in range(per_caller * 4)))
        contender.close()
        return
    takes = rows.setdefault(("receive(10) + ack", callers), {}).setdefault(kind.name, Cell())
    runs: Any = {InturnTasks: by_tasks, InturnUvloop: partial(by_tasks, run_loop=uvloop.run)}.get(kind, by_threads)
    is_async = isinstance(contender, InturnTasks)
    send, take = (contender.asend, contender.atake) if is_async else (contender.send, contender.take)
    more = per_caller * (4 if isinstance(contender, Inturn) and callers > 1 else 1)
    measured(sends, lambda: runs(callers, more, send))
    batches = max(1, more // 10)
    contender.fill(callers * batches * 10)
    measured(takes, lambda: runs(callers, batches, take))
    contender.close()


@dataclass(frozen=True)
class Shape:
    """What lies in a queue: messages, spread over groups; or one group in flight with all behind it."""

    messages: int
    groups: int
    hot: bool = False


SIZES = (1_000, 10_000, 100_000, 1_000_000)
SHAPES = [
    *(Shape(messages, groups) for groups in (1, 1_000, 100_000) for messages in SIZES),
    *(Shape(messages, 1_000, hot=True) for messages in SIZES),
]


def flat(rounds: int, quick: int) -> dict[Shape, Cell]:
    """What a receive of one message and its acknowledgement cost, by the shape of the queue."""
    cells: dict[Shape, Cell] = {}
    with tempfile.TemporaryDirectory(dir=".") as directory:
        queues: dict[Shape, tuple[inturn.database.Database, Any]] = {}
        for shape in SHAPES:
            if shape.messages > SIZES[-1] // quick:
                continue
            progress.print(f"filling {shape}")
            db = inturn.open(Path(directory) / f"{len(queues)}.db", durable=False)
            queue = db.queue("q", QueueSettings(visibility_timeout_s=43_000))
            _fill(queue, shape)
            queues[shape] = (db, queue)
        for number in range(rounds + 1):
            for shape, (db, queue) in queues.items():
                cell = cells.setdefault(shape, Cell()) if number else Cell()
                measured(cell, partial(_receives, db, queue, 500))
        for db, _ in queues.values():
            db.close()
    return cells


def _fill(queue: Any, shape: Shape) -> None:
    if shape.hot:
        for part in _parts(shape.messages * 9 // 10):
            queue.send_many([draft(BODY, group="hot") for _ in part])
        assert queue.receive(10)
        for part in _parts(shape.messages // 10):
            queue.send_many([draft(BODY, group=f"g{n % shape.groups}") for n in part])
    else:
        for part in _parts(shape.messages):
            queue.send_many([draft(BODY, group=f"g{n % shape.groups}") for n in part])


def _parts(messages: int) -> Iterator[range]:
    for begin in range(0, messages, 10_000):
        yield range(begin, min(messages, begin + 10_000))


def _receives(db: Any, queue: Any, number: int) -> int:
    """Receive, acknowledge, and send as much again, so that the queue stays as it is.

    All in one transaction, as the writer does what many callers ask for: a commit for each would cost more than all
    the rest, and hide what is looked for.
    """
    with db.transaction() as tx:
        for _ in range(number):
            (message,) = queue.receive(tx=tx)
            message.ack(tx)
            queue.send(BODY, group=message.group, tx=tx)
    return number


def filled(rounds: int, quick: int) -> dict[Shape, Cell]:
    """What a send costs, 64 in a transaction, once so many messages lie in the queue: the last tenth of each size."""
    cells: dict[Shape, Cell] = {}
    for number in range(rounds):
        for groups in (1, 1_000, 100_000):
            progress.print(f"round {number + 1}: filling a queue, {groups:,} groups")
            with tempfile.TemporaryDirectory(dir=".") as directory:
                db = inturn.open(Path(directory) / "q.db", durable=False)
                send = partial(_sends, db.queue("q"), count(), groups)
                for size in [size for size in SIZES if size <= SIZES[-1] // quick]:
                    send(size - size // 10)
                    measured(cells.setdefault(Shape(size, groups), Cell()), partial(send, size))
                db.close()
    return cells


def _sends(queue: Any, numbers: Iterator[int], groups: int, until: int) -> int:
    """Send until so many messages were sent in all."""
    first = last = next(numbers)
    while last < until:
        part = [last, *(next(numbers) for _ in range(63))]
        queue.send_many([draft(BODY, group=f"g{n % groups}") for n in part])
        last = next(numbers)
    return last - first


# --- showing ---


def show_peers(rows: dict[tuple[str, int], dict[str, Cell]], console: Console) -> list[dict[str, Any]]:
    shown, goals = [], []
    for (verb, callers), cells in rows.items():
        title = f"{verb}, durable, {callers} caller{'s' * (callers > 1)}"
        table = Table(title=title, title_justify="left")
        for name in ("", "messages/s", "inturn is … times as fast", "CPU µs per message"):
            table.add_column(name, justify="left" if not name else "right")
        own = max(*(cells[kind.name].rate for kind in (Inturn, InturnTasks, InturnUvloop)))
        for name, cell in cells.items():
            table.add_row(name, f"{cell.rate:,.0f}", f"{own / cell.rate:.2f}", f"{cell.cpu:.1f}")
            shown.append({"verb": verb, "callers": callers, "contender": name, **cell.__dict__})
        console.print(table)
        best = max(cells[kind.name].rate for kind in (Lite, Persist, Huey))
        goals.append((f"{title}: times the best peer", own / best, 20.0 if callers > 1 else 1.0))
        if Bare.name in cells and callers > 1:
            goals.append((f"{title}: share of the limit", own / cells[Bare.name].rate, 0.5))
    for text, ratio, least in goals:
        console.print(f"{'[green]✓[/]' if ratio >= least else '[red]✗[/]'} {text}: {ratio:.2f}, goal at least {least}")
    return shown


def show_flat(title: str, goal: float | None, cells: dict[Shape, Cell], console: Console) -> list[dict[str, Any]]:
    table = Table(title=f"{title}: CPU µs, by what lies in the queue", title_justify="left")
    sizes = sorted({shape.messages for shape in cells})
    for name in ("", *(f"{size:,}" for size in sizes), "10^4 … greatest"):
        table.add_column(name, justify="right" if name else "left")
    for groups, hot in dict.fromkeys((shape.groups, shape.hot) for shape in cells):
        cpu = {size: cells[Shape(size, groups, hot)].cpu for size in sizes if Shape(size, groups, hot) in cells}
        name = "one hot group in flight, nine in ten messages behind it" if hot else f"{groups:,} groups"
        ratio = max(cpu.values()) / cpu.get(10_000, max(cpu.values()))
        mark = "" if goal is None else "[green]✓[/] " if ratio <= goal else "[red]✗[/] "
        table.add_row(name, *(f"{cpu[size]:.1f}" if size in cpu else "" for size in sizes), f"{mark}{ratio:.2f}")
    console.print(table)
    return [{**shape.__dict__, **cell.__dict__} for shape, cell in cells.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", type=int, default=1, metavar="N", help="the N-th part of the work")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    console = Console(quiet=options.json)
    result: dict[str, Any] = {"machine": {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}}
    if "peers" in options.only:
        result["peers"] = show_peers(peers(options.rounds, options.quick), console)
    if "flat" in options.only:
        result["flat"] = show_flat("receive + ack + send", 1.3, flat(options.rounds, options.quick), console)
    if "filled" in options.only:
        result["filled"] = show_flat("send, 64 together", None, filled(options.rounds, options.quick), console)
    if options.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
