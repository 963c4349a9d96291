"""One hot group: what a message costs when ten thousand, a hundred thousand or a million came before it.

    python benchmarks/hot.py scale [--sizes 10000 100000 1000000] [--engines replay kernel worker batch]
    python benchmarks/hot.py threads

`scale` prints the CPU microseconds per message of one group, under each grade of order. Where its first message comes
last, everything waits for it and is released at once. `replay` is the pure timeline, `kernel` what a Spark task does
with the messages in one step, `worker` inturn.work over SQLite, `batch` a whole batch on Spark, Java's share included.
The goal: the last column at most twice the first.

`threads` compares the wall time of inturn.work with the time that was spent in its handler, measured in the same run,
divided by the number of groups or threads that can be at work. Where the handler takes no time, the time of one thread
is added to both: the engine's own. The goal: at most 1.10 times. On a machine with other work the best of the rounds
says most. The last lines are the CPU of a worker with 16 threads while nothing happens, and while one group is slow.
"""

import argparse
import datetime as dt
import gc
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cpu import Meter
from rich.console import Console
from rich.table import Table

import inturn
from inturn.core.limits import RECEIVE_MESSAGES
from inturn.core.pipeline.order import Order
from inturn.queue import draft
from inturn.worker import Worker

SIZES = (10_000, 100_000, 1_000_000)
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
GRADES: dict[str, Order] = {
    "Gapless, in order": inturn.Gapless("revision"),
    "Gapless, the first comes last": inturn.Gapless("revision"),
    "Gapless with epochs": inturn.Gapless("revision", epoch="epoch"),
    "Monotone": inturn.Monotone("revision"),
    "Timestamp, one time": inturn.Timestamp("time"),
    "Timestamp, each its own": inturn.Timestamp("time"),
    "Arrival": inturn.Arrival(),
}
GOAL, THREADS_GOAL = 2.0, 1.10
Message = dict[str, Any]


def count(state: dict[str, int], _message: Message) -> tuple[dict[str, int], list[Any]]:
    return {"messages": state.get("messages", 0) + 1}, []


def pipeline(grade: str, handler: Callable[..., Any] = count) -> inturn.Pipeline:
    order = GRADES[grade]
    ids = {} if isinstance(order, inturn.Gapless | inturn.Monotone) else {"id": "id"}
    return inturn.Pipeline(name="hot", group="account", order=order, handler=handler, **ids)


def messages(grade: str, size: int) -> list[Message]:
    """So many of one group; all of one time but the last, if so named."""
    time_of: Callable[[int], dt.datetime] = lambda n: NOON + dt.timedelta(seconds=n)  # noqa: E731
    if "one time" in grade:
        time_of = lambda n: NOON + dt.timedelta(seconds=n == size)  # noqa: E731
    every = [{"account": "a", "revision": n, "epoch": 0, "id": str(n), "time": time_of(n)} for n in range(1, size + 1)]
    return [*every[1:], every[0]] if "last" in grade else every


def parts(every: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(every), RECEIVE_MESSAGES):
        yield every[begin : begin + RECEIVE_MESSAGES]


def replay(grade: str, size: int, _folder: Path) -> float:
    every, pipe = messages(grade, size), pipeline(grade)
    began = time.process_time()
    result = pipe.replay(every)
    spent = time.process_time() - began
    assert result.counts.received == size
    return spent


def kernel(grade: str, size: int, folder: Path) -> float:
    """A Spark task over messages that are sorted already, as Spark hands them to it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from inturn.spark.columns.hashing import group_hash
    from inturn.spark.columns.names import GROUP, HASH
    from inturn.spark.executor.placement import sort_keys, with_placement
    from inturn.spark.executor.plan import Plan
    from inturn.spark.executor.task import run_task

    pipe, table = pipeline(grade), pa.Table.from_pylist(messages(grade, size))
    (folder / "store").mkdir()
    plan = Plan(str(folder / "store"), 0, 0, final=False, buckets=1, attempt="a", columns=table.column_names, levels=[])
    table = table.append_column(HASH, pa.repeat(group_hash("a"), size)).append_column(GROUP, table["account"])
    keys = pa.Table.from_batches(
        [with_placement(pipe, record_batch) for record_batch in table.combine_chunks().to_batches()]
    )
    table = table.take(pc.sort_indices(keys, [(key, "ascending") for key in sort_keys(pipe)]))
    began = time.process_time()
    result = run_task(plan, pipe, 0, "a", iter(table.to_batches(max_chunksize=10_000)))
    spent = time.process_time() - began
    assert result.counts.received == size
    return spent


def worker(grade: str, size: int, folder: Path) -> float:
    pipe = pipeline(grade)
    with inturn.open(folder / "hot.db", durable=False) as db:
        queue = db.queue("q")
        for part in parts(messages(grade, size)):
            queue.send_many([draft(message, group="a") for message in part])
        began = time.process_time()
        counts = inturn.work(pipe, queue, until="empty")
        spent = time.process_time() - began
    assert counts.received == size
    return spent


def batch(grade: str, size: int, folder: Path) -> float:
    """`inturn.spark.batch` over Parquet, with what Spark's start of a step costs; the processes run already."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import inturn.spark
    from inturn.spark.local.session import local_session

    spark = local_session(cores=2, memory="4g")
    spark.range(10).mapInArrow(lambda batches: batches, "id long").collect()
    pq.write_table(pa.Table.from_pylist(messages(grade, size)), folder / "in.parquet")
    events = spark.read.parquet(str(folder / "in.parquet"))
    with Meter() as meter:
        report = inturn.spark.batch(pipeline(grade), events, store=str(folder / "store"))
    assert report.counts.received == size
    return meter.cpu_s


ENGINES = {"replay": replay, "kernel": kernel, "worker": worker, "batch": batch}


def scale(engines: list[str], grades: list[str], sizes: list[int]) -> Table:
    """CPU per message of one group, by engine and grade."""
    heads = [f"{size:,}" for size in sizes]
    table = Table("", "", *heads, f"last beside first, goal {GOAL}", title="CPU µs per message of one group")
    for engine, grade in itertools.product(engines, grades):
        if (engine, grade) == ("worker", "Timestamp, one time"):
            continue  # its turns write all ids of that time: see docs/worker.md
        costs = []
        for size in sizes:
            gc.collect()
            with tempfile.TemporaryDirectory() as folder:
                costs.append(ENGINES[engine](grade, size, Path(folder)) / size * 1e6)
        ratio = costs[-1] / costs[0]
        verdict = f"{ratio:.2f}: {'met' if ratio <= GOAL else 'not met'}"
        table.add_row(engine, grade, *(f"{cost:.1f}" for cost in costs), verdict)
        print(engine, grade, *(f"{cost:.1f}" for cost in costs), verdict, flush=True)
    return table


class Slow:
    """A handler that waits, and adds up how long it took."""

    def __init__(self, ms: int) -> None:
        self.ms, self.spent_s, self._mutex = ms, 0.0, threading.Lock()

    def __call__(self, state: dict[str, int], message: Message) -> tuple[dict[str, int], list[Any]]:
        began = time.perf_counter()
        if self.ms:
            time.sleep(self.ms / 1000)
        with self._mutex:
            self.spent_s += time.perf_counter() - began
        return count(state, message)


def paced(keys: int, ms: int, concurrency: int, size: int) -> tuple[float, float, float]:
    """Wall time, the handler's time divided by what can be at work, CPU time: of one run."""
    handler = Slow(ms)
    pipe = inturn.Pipeline(name="hot", group="account", order=inturn.Gapless("revision"), handler=handler)
    with tempfile.TemporaryDirectory() as folder, inturn.open(Path(folder) / "hot.db") as db:
        queue = db.queue("q")
        for part in parts(range(size)):
            queue.send_many([draft({}, group=f"g{n % keys}", revision=n // keys + 1) for n in part])
        began, cpu = time.perf_counter(), time.process_time()
        counts = inturn.work(pipe, queue, concurrency=concurrency, until="empty")
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    assert counts.applied == size
    return wall_s, handler.spent_s / min(keys, concurrency), cpu_s


def threads(rounds: int) -> Table:
    """Wall time beside the handler's, by groups, handler and threads."""
    heads = ("groups", "handler", "threads", "messages", "wall s", "handler s / at work", "beside", "CPU µs each")
    table = Table(*heads, title=f"inturn.work, best of {rounds}; goal {THREADS_GOAL} times")
    for keys, ms, concurrency in itertools.product((1, 10, 100, 10_000), (0, 1, 5), (1, 16)):
        at_work = min(keys, concurrency)
        size = 20_000 if not ms else min(max(1_500 * at_work // ms, 400), 20_000)
        runs = [paced(keys, ms, concurrency, size) for _ in range(rounds)]
        # Where the handler takes no time there is only the engine's own, which threads cannot share.
        own = 0.0 if ms else min(paced(keys, 0, 1, size)[0] for _ in range(rounds))
        wall_s, handler_s, cpu_s = min(runs, key=lambda run: run[0] / (run[1] + own))
        ratio = wall_s / (handler_s + own)
        verdict = f"{ratio:.2f}{'' if ms else ' (with the engine)'}: {'met' if ratio <= THREADS_GOAL else 'not met'}"
        shown = (f"{keys:,}", f"{ms} ms", f"{concurrency}", f"{size:,}", f"{wall_s:.2f}", f"{handler_s + own:.2f}")
        table.add_row(*shown, verdict, f"{cpu_s / size * 1e6:,.0f}")
        print(*shown, verdict, f"{cpu_s / size * 1e6:,.0f}", flush=True)
    return table


def idle(seconds: float = 3.0) -> list[str]:
    """The CPU of a worker with 16 threads that has nothing to do, and of one whose only group is in a long turn."""
    lines = []
    for name, is_busy in (("nothing to do", False), ("one group in a long turn", True)):
        begun, go_on = threading.Event(), threading.Event()

        def wait(state: Any, _message: Any, begun: Any = begun, go_on: Any = go_on) -> tuple[Any, list[Any]]:
            begun.set()
            go_on.wait()
            return state, []

        with tempfile.TemporaryDirectory() as folder, inturn.open(Path(folder) / "hot.db") as db:
            pipe = pipeline("Gapless, in order", wait)
            with Worker(pipe, db.queue("q"), concurrency=16) as worker:
                if is_busy:
                    db.queue("q").send({"revision": 1}, group="a")
                    begun.wait()
                time.sleep(0.3)
                before = time.process_time()
                time.sleep(seconds)
                spent = time.process_time() - before
                go_on.set()
                worker.drain(10)
        lines.append(f"a worker with 16 threads, {name}: {spent / seconds * 1000:.1f} ms of CPU in a second")
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("scale", "threads"))
    options.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    options.add_argument("--grades", nargs="+", choices=list(GRADES), default=list(GRADES))
    options.add_argument("--rounds", type=int, default=2)
    args = options.parse_args()
    if args.what == "scale":
        Console(width=150).print(scale(args.engines, args.grades, args.sizes))
    else:
        Console(width=150).print(threads(args.rounds), *idle(), sep="\n")


if __name__ == "__main__":
    main()
