"""The wait of a sender beside processes that read the same SQLite file in a loop, as a curve over their number.

    python benchmarks/reads.py [--readers 0 1 2 3 5] [--seconds 3] [--rounds 3] [--messages 100000] [--json]

The file has a queue of `--messages` messages in a hundredth as many groups. One process sends, one message at a time
with a pause of a millisecond, and takes the time of each send. The others ask in a loop for what a page shows: the
counts of the queue, its first hundred groups, and the figures of the database. They do so as inturn does, in
transactions for reading alone, and in turn with that in the transactions of their writer, which hold the write lock.

A reader keeps a core busy. So with more readers than cores a sender waits for a core too; the second column has that as
well as the first.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import inturn
from inturn.core.errors import StoreUnavailable
from inturn.queue import draft
from inturn.store.writer.reading import ReadingWriter

AT_ONCE = 1_000
PAUSE_S = 0.001
progress = Console(stderr=True, style="dim")


def fill(path: str, messages: int) -> None:
    """Make the queue."""
    with inturn.open(path, durable=False) as db:
        queue = db.queue("q")
        for first in range(0, messages, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, messages))
            queue.send_many([draft({"n": number}, group=f"g{number % (messages // 100)}") for number in numbers])


def read(path: str, is_over: Any, pages: Any, *, is_locking: bool) -> None:
    """Ask in a loop for what a page shows."""
    with inturn.open(path, durable=False) as db:
        if is_locking:
            assert isinstance(db.writer, ReadingWriter)
            db.writer._reading = None  # type: ignore[misc]  # reads run in the writer's transactions
        queue = db.queue("q", create=False)
        count, began = 0, time.monotonic()
        while not is_over.is_set():
            queue.depth()
            queue.groups(limit=100)
            db.figures()
            count += 1
        pages.put(count / (time.monotonic() - began))


def waits_ms(path: str, readers: int, *, is_locking: bool, seconds: float) -> tuple[list[float], float]:
    """Return the times of sends beside readers, in milliseconds, and the number of pages read in a second."""
    context = multiprocessing.get_context("spawn")
    is_over, pages = context.Event(), context.Queue()
    more = {"is_locking": is_locking}
    processes = [context.Process(target=read, args=(path, is_over, pages), kwargs=more) for _ in range(readers)]
    for process in processes:
        process.start()
    time.sleep(0.5 if readers else 0)
    times = []
    with inturn.open(path, durable=False) as db:
        queue = db.queue("q", create=False)
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            with suppress(StoreUnavailable):  # after waiting for the lock for the longest time
                queue.send("x", group="sent")
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(PAUSE_S)
    is_over.set()
    count = sum(pages.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    return times, count


def shown(times: list[float]) -> dict[str, float]:
    """Return what is told of the times."""
    cuts = statistics.quantiles(times, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "most": max(times), "sends": len(times)}


def cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of one measurement."""
    return [f"{row['p50']:.2f}", f"{row['p99']:.2f}", f"{row['most']:.0f}", f"{row['pages_per_s']:,.0f}"]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, nargs="+", default=[0, 1, 2, 3, 5])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results: dict[tuple[int, bool], tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "shop.db")
        progress.print(f"{args.messages:,} messages are sent …")
        fill(path, args.messages)
        for number in range(args.rounds):
            for readers in args.readers:
                for is_locking in (False, True):
                    progress.print(f"round {number + 1}: {readers} readers{', with the lock' if is_locking else ''} …")
                    times, pages = waits_ms(path, readers, is_locking=is_locking, seconds=args.seconds)
                    every, counts = results.setdefault((readers, is_locking), ([], []))
                    every += times
                    counts.append(pages)
    rows = [
        {"readers": readers, "locking": is_locking, "pages_per_s": statistics.median(counts), **shown(times)}
        for (readers, is_locking), (times, counts) in results.items()
    ]
    if args.json:
        print(json.dumps(rows))
        return
    table = Table(title="a send beside readers, in milliseconds", box=None)
    for name in ("readers", "p50", "p99", "most", "pages/s", "with the lock: p50", "p99", "most", "pages/s"):
        table.add_column(name, justify="right")
    for reading, locking in zip(rows[::2], rows[1::2], strict=True):
        table.add_row(str(reading["readers"]), *cells(reading), *cells(locking))
    Console().print(table)


if __name__ == "__main__":
    main()
