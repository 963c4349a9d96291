"""What a batch costs: inturn beside what a user would otherwise write, and beside the least that Spark can do.

```
python benchmarks/spark_batch.py              # CPU seconds, ratios, goals
python benchmarks/spark_batch.py --memory     # peak memory of the Python workers against messages
python benchmarks/spark_batch.py --scale      # CPU seconds against messages
```

All contenders run in one Spark, in turns, after a warm-up, over the same files with the same handler; that they come
to the same result is asserted, outside of the timing.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from contenders import CONTENDERS, Contender, Outcome, by_inturn, outcome_of_inturn
from cpu import Meter, WorkerMemory
from rich.console import Console
from rich.table import Table
from rounds import (
    MOST_FOR_SLOW,
    SHARE,
    SIZES,
    Cell,
    Goal,
    Json,
    add_options,
    assert_same,
    collect_garbage,
    in_turns,
    medians,
    progress,
    show,
    start_spark,
    table_of,
)
from workload import Workload

SHARE_TEXT = "≈ extrapolated: measured on a tenth of the groups and messages, times ten (--full runs all)"
MEMORY_MESSAGES = (1_000_000, 3_000_000, 10_000_000)
MEMORY_BUCKETS = 2
SCALE_MESSAGES = (250_000, 500_000, 1_000_000, 2_000_000)


class Bench:
    """Runs contenders in one Spark, with the same number of partitions for all."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._spark = start_spark(buckets)
        self._expected: dict[Workload, Outcome] = {}

    def measure(self, cells: Sequence[Cell], rounds: int) -> None:
        """Warm up and check, then measure each cell ``rounds`` times: in turns, each round in another order."""
        for number, cell in in_turns(cells, rounds):
            work = part(cell)
            progress.print(f"{number}/{rounds} {cell.contender}: {work.messages:,} messages, {work.groups:,} groups")
            meter = self._run(CONTENDERS[cell.contender], work, check=number == 0)
            if number:
                cell.add(meter)

    def _run(self, contender: Contender, work: Workload, *, check: bool) -> Meter:
        events = self._spark.read.parquet(work.files())
        with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as folder:
            out = str(Path(folder) / "out")
            collect_garbage(self._spark)
            with Meter() as meter:
                contender.run(events, out, self._buckets)
            if check and contender.outcome is not None:
                assert_same(contender.name, contender.outcome(self._spark, out), self._outcome(work), work.groups)
        return meter

    def _outcome(self, work: Workload) -> Outcome:
        if work not in self._expected:
            with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as folder:
                out = str(Path(folder) / "out")
                by_inturn(self._spark.read.parquet(work.files()), out, self._buckets)
                self._expected[work] = outcome_of_inturn(self._spark, out)
        return self._expected[work]


def part(cell: Cell) -> Workload:
    """What is run of what was asked for: all, or a share of the groups and of the messages."""
    work = cell.workload
    return replace(work, messages=work.messages // cell.share, groups=work.groups // cell.share)


# -- the table -------------------------------------------------------------------------------------------------


def goals(cells: Iterable[Cell]) -> list[Goal]:
    """The goals for which there are measurements; they are meant for the workload as it is by default."""
    cpu = medians(cells, [Workload(groups=groups) for groups in SIZES])
    results = []
    for groups, most, least in ((1_000, 3.0, 1.4), (100_000, 2.5, 4.0)):
        own, limit, arrow = (cpu.get((key, groups)) for key in ("inturn", "limit", "arrow"))
        if own and limit:
            results.append(Goal(f"{groups:,} groups, inturn / limit", own / limit, most, at_least=False))
        if own and arrow:
            results.append(Goal(f"{groups:,} groups, applyInArrow / inturn", arrow / own, least, at_least=True))
    return results


def compare(options: argparse.Namespace, console: Console) -> Json:
    """CPU seconds of all contenders, side by side."""
    works = [Workload(messages=options.messages, groups=groups) for groups in options.groups]
    cells = [
        Cell(key, work, SHARE if CONTENDERS[key].slow and work.groups > MOST_FOR_SLOW and not options.full else 1)
        for work in works
        for key in options.only
    ]
    Bench(options.buckets).measure(cells, options.rounds)
    names = {key: CONTENDERS[key].name for key in options.only}
    for work in works:
        own = [cell for cell in cells if cell.workload == work]
        console.print(table_of(work, own, options.rounds, names, ("limit", "inturn"), SHARE_TEXT))
    results = goals(cells)
    for goal in results:
        console.print(str(goal))
    return {"cells": [cell.shown() for cell in cells], "goals": [goal.shown() for goal in results]}


# -- the curves ------------------------------------------------------------------------------------------------


def steady(messages: int, groups: int) -> Workload:
    """A gap for every ten groups, however long the log: at a constant rate a longer one would be held nearly whole."""
    return Workload(messages=messages, groups=groups, gaps=groups / messages / 10)


def scale(options: argparse.Namespace, console: Console) -> Json:
    """CPU seconds against messages."""
    works = [steady(messages, groups) for groups in options.groups for messages in SCALE_MESSAGES]
    cells = {(key, work): Cell(key, work) for work in works for key in ("limit", "inturn")}
    Bench(options.buckets).measure(list(cells.values()), options.rounds)
    top = max(cell.cpu for cell in cells.values())
    for groups in options.groups:
        table = Table(title=f"{groups:,} groups: CPU against messages", title_justify="left")
        for name in ("messages", "limit s", "inturn s", "/ limit", "µs each"):
            table.add_column(name, justify="right")
        table.add_column("")
        for work in (work for work in works if work.groups == groups):
            limit, own = cells["limit", work].cpu, cells["inturn", work].cpu
            numbers = (f"{limit:.1f}", f"{own:.1f}", f"{own / limit:.2f}", f"{own / work.messages * 1e6:.1f}")
            table.add_row(f"{work.messages:,}", *numbers, bar(own / top))
        console.print(table)
    return {"cells": [cell.shown() for cell in cells.values()]}


def memory(options: argparse.Namespace, console: Console) -> Json:
    """Peak memory of a Python worker against messages, in the same number of buckets."""
    peaks = {}
    groups = options.groups[0]
    for messages in MEMORY_MESSAGES:
        files = steady(messages, groups).files()
        progress.print(f"{messages:,} messages")
        spark = start_spark(MEMORY_BUCKETS)
        with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as folder, WorkerMemory() as sampled:
            by_inturn(spark.read.parquet(files), str(Path(folder) / "out"), MEMORY_BUCKETS)
        spark.stop()  # the next size gets new workers: an old one keeps what it once took
        peaks[messages] = sampled.peak_mb
    title = f"{groups:,} groups, {MEMORY_BUCKETS} buckets: peak memory of a Python worker against messages"
    table = Table(title=title, title_justify="left")
    for name in ("messages", "messages per task", "peak MB", "/ first"):
        table.add_column(name, justify="right")
    table.add_column("")
    first, top = peaks[MEMORY_MESSAGES[0]], max(peaks.values())
    for messages, peak in peaks.items():
        per_task = messages // MEMORY_BUCKETS
        table.add_row(f"{messages:,}", f"{per_task:,}", f"{peak:.0f}", f"{peak / first:.2f}", bar(peak / top))
    console.print(table)
    return {"groups": groups, "buckets": MEMORY_BUCKETS, "peak_mb": peaks}


def bar(share: float) -> str:
    """A bar of up to 20 characters."""
    return "█" * max(1, round(20 * share))


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU seconds of a batch: inturn and its alternatives.")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--memory", action="store_true", help="peak memory of the Python workers against messages")
    kind.add_argument("--scale", action="store_true", help="CPU seconds against messages")
    add_options(parser, CONTENDERS)
    parser.set_defaults(messages=1_000_000, groups=SIZES)
    options = parser.parse_args()
    run: Callable[[argparse.Namespace, Console], Json]
    run = memory if options.memory else scale if options.scale else compare
    show(run, options)


if __name__ == "__main__":
    main()
