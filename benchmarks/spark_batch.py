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
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyspark
from contenders import CONTENDERS, Contender, Outcome, by_inturn, outcome_of_inturn
from cpu import Meter, WorkerMemory
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table
from workload import Workload

from inturn.spark.local.session import local_session

CORES = 2
SIZES = (1_000, 100_000)
MOST_FOR_SLOW = 20_000  # with more groups than this, a slow contender is given a tenth of them
MEMORY_MESSAGES = (1_000_000, 3_000_000, 10_000_000)
MEMORY_BUCKETS = 2
SCALE_MESSAGES = (250_000, 500_000, 1_000_000, 2_000_000)

Json = dict[str, Any]
_progress = Console(stderr=True, style="dim")


@dataclass
class Cell:
    """The measurements of one contender on one workload.

    Attributes:
        contender: its key.
        workload: what was asked for.
        share: 10 where a tenth of the groups and messages is run; the medians are then times ten.
        cpu_s: CPU seconds of each round, as measured.
        wall_s: wall seconds of each round, as measured.
    """

    contender: str
    workload: Workload
    share: int = 1
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        """Median CPU seconds."""
        return statistics.median(self.cpu_s) * self.share

    @property
    def wall(self) -> float:
        """Median wall seconds."""
        return statistics.median(self.wall_s) * self.share

    @property
    def spread(self) -> str:
        """The least and the most CPU seconds."""
        return f"{min(self.cpu_s) * self.share:.1f}-{max(self.cpu_s) * self.share:.1f}"

    @property
    def input(self) -> Workload:
        """What is run."""
        work = self.workload
        return replace(work, messages=work.messages // self.share, groups=work.groups // self.share)


class Bench:
    """Runs contenders in one Spark, with the same number of partitions for all."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._spark = start_spark(buckets)
        self._expected: dict[Workload, Outcome] = {}

    def measure(self, cells: Sequence[Cell], rounds: int) -> None:
        """Warm up and check, then measure each cell ``rounds`` times: in turns, each round in another order."""
        for number in range(rounds + 1):
            first = number % len(cells)
            for cell in (*cells[first:], *cells[:first]):
                work = cell.input
                _progress.print(
                    f"{number}/{rounds} {cell.contender}: {work.messages:,} messages, {work.groups:,} groups"
                )
                meter = self._run(CONTENDERS[cell.contender], work, check=number == 0)
                if number:
                    cell.cpu_s.append(round(meter.cpu_s, 3))
                    cell.wall_s.append(round(meter.wall_s, 3))

    def _run(self, contender: Contender, work: Workload, *, check: bool) -> Meter:
        events = self._spark.read.parquet(work.files())
        with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as folder:
            out = str(Path(folder) / "out")
            collect_garbage(self._spark)
            with Meter() as meter:
                contender.run(events, out, self._buckets)
            if check and contender.outcome is not None:
                found, expected = contender.outcome(self._spark, out), self._outcome(work)
                assert len(found.states) == work.groups, f"{contender.name} lost a group"
                for table in ("states", "outputs", "held"):
                    same = getattr(found, table).equals(getattr(expected, table))
                    assert same, f"{contender.name} has other {table} than inturn"
        return meter

    def _outcome(self, work: Workload) -> Outcome:
        if work not in self._expected:
            with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as folder:
                out = str(Path(folder) / "out")
                by_inturn(self._spark.read.parquet(work.files()), out, self._buckets)
                self._expected[work] = outcome_of_inturn(self._spark, out)
        return self._expected[work]


def start_spark(buckets: int) -> SparkSession:
    """A Spark whose workers can import the workload."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    spark = local_session("inturn-benchmarks", cores=CORES, memory="4g")
    spark.conf.set("spark.sql.shuffle.partitions", buckets)
    return spark


def collect_garbage(spark: SparkSession) -> None:
    """Let the JVM clean up now, so that no contender pays for the one before it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.System.gc()


# -- the table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """A bound that a ratio of CPU seconds should keep."""

    text: str
    ratio: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        """Whether it does."""
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound

    def __str__(self) -> str:
        mark = "[green]✓[/]" if self.met else "[red]✗[/]"
        return f"{mark} {self.text}: {self.ratio:.2f}, goal at {'least' if self.at_least else 'most'} {self.bound}"


def goals(cells: Iterable[Cell]) -> list[Goal]:
    """The goals for which there are measurements; they are meant for the workload as it is by default."""
    cpu = {
        (cell.contender, cell.workload.groups): cell.cpu
        for cell in cells
        if cell.workload == Workload(groups=cell.workload.groups)
    }
    found = []
    for groups, most, least in ((1_000, 3.0, 1.4), (100_000, 2.5, 4.0)):
        own, limit, arrow = (cpu.get((key, groups)) for key in ("inturn", "limit", "arrow"))
        if own and limit:
            found.append(Goal(f"{groups:,} groups, inturn / limit", own / limit, most, at_least=False))
        if own and arrow:
            found.append(Goal(f"{groups:,} groups, applyInArrow / inturn", arrow / own, least, at_least=True))
    return found


def compare(options: argparse.Namespace, console: Console) -> Json:
    """CPU seconds of all contenders, side by side."""
    works = [Workload(messages=options.messages, groups=groups) for groups in options.groups]
    cells = [
        Cell(key, work, share=10 if CONTENDERS[key].slow and work.groups > MOST_FOR_SLOW and not options.full else 1)
        for work in works
        for key in options.only
    ]
    Bench(options.buckets).measure(cells, options.rounds)
    for work in works:
        console.print(table_of(work, [cell for cell in cells if cell.workload == work], options.rounds))
    found = goals(cells)
    for goal in found:
        console.print(str(goal))
    return {"cells": [_shown(cell) for cell in cells], "goals": [asdict(goal) | {"met": goal.met} for goal in found]}


def table_of(work: Workload, cells: Sequence[Cell], rounds: int) -> Table:
    """A row for each contender: CPU seconds, ratios, wall seconds."""
    title = f"{work.messages:,} messages, {work.groups:,} groups: medians of {rounds} rounds"
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("")
    for name in ("CPU s", "least-most", "/ limit", "/ inturn", "wall s"):
        table.add_column(name, justify="right")
    cpu = {cell.contender: cell.cpu for cell in cells}
    for cell in cells:
        mark = "≈ " if cell.share > 1 else ""
        ratios = [f"{mark}{cell.cpu / cpu[key]:.2f}" if key in cpu else "" for key in ("limit", "inturn")]
        name = CONTENDERS[cell.contender].name
        table.add_row(name, f"{mark}{cell.cpu:.1f}", mark + cell.spread, *ratios, f"{mark}{cell.wall:.1f}")
    if any(cell.share > 1 for cell in cells):
        table.caption = "≈ extrapolated: measured on a tenth of the groups and messages, times ten (--full runs all)"
    return table


def _shown(cell: Cell) -> Json:
    return asdict(cell) | {"cpu_median_s": cell.cpu, "wall_median_s": cell.wall, "extrapolated": cell.share > 1}


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
    return {"cells": [_shown(cell) for cell in cells.values()]}


def memory(options: argparse.Namespace, console: Console) -> Json:
    """Peak memory of a Python worker against messages, in the same number of buckets."""
    peaks = {}
    groups = options.groups[0]
    for messages in MEMORY_MESSAGES:
        files = steady(messages, groups).files()
        _progress.print(f"{messages:,} messages")
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
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, nargs="+", default=SIZES)
    parser.add_argument("--buckets", type=int, default=4, help="partitions of every contender")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after one to warm up")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--full", action="store_true", help="run applyInPandas on all groups, however long it takes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    run: Callable[[argparse.Namespace, Console], Json]
    run = memory if options.memory else scale if options.scale else compare
    result = run(options, Console(quiet=options.json))
    if options.json:
        machine = {"python": platform.python_version(), "pyspark": pyspark.__version__, "cores": CORES}
        print(json.dumps({"machine": machine, **result}, indent=2))


if __name__ == "__main__":
    main()
