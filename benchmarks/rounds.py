"""What the benchmarks on Spark share: one session, contenders in turns, medians, ratios, goals.

What a contender does and what it is given is each benchmark's own; how it is measured and shown is the same in all.
"""

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyspark
from contenders import Outcome
from cpu import Meter
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table
from workload import Workload

from inturn.spark.local.session import local_session

CORES = 2
SIZES = (1_000, 100_000)
MOST_FOR_SLOW = 20_000  # with more groups than this, a slow contender is given a share of the work
SHARE = 10  # … this part of it

Json = dict[str, Any]
T = TypeVar("T")
progress = Console(stderr=True, style="dim")


@dataclass
class Cell:
    """The measurements of one contender on one workload.

    Attributes:
        contender: its key.
        workload: what was asked for.
        share: n where the n-th part of the work is run; the medians are then times n.
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

    def add(self, meter: Meter) -> None:
        """Note a round."""
        self.cpu_s.append(round(meter.cpu_s, 3))
        self.wall_s.append(round(meter.wall_s, 3))

    def shown(self) -> Json:
        """Everything, as JSON values."""
        return asdict(self) | {
            "cpu_median_s": self.cpu,
            "wall_median_s": self.wall,
            "extrapolated": self.share > 1,
        }


def in_turns(items: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """All items in round 0, to warm up, and in each of ``rounds`` more; each round begins with another one."""
    for number in range(rounds + 1):
        first = number % len(items)
        for item in (*items[first:], *items[:first]):
            yield number, item


def assert_same(name: str, actual: Outcome, expected: Outcome, groups: int) -> None:
    """Stop if a contender does not come to what inturn comes to."""
    assert len(actual.states) == groups, f"{name} lost a group"
    for table in ("states", "outputs", "held"):
        same = getattr(actual, table).equals(getattr(expected, table))
        assert same, f"{name} has other {table} than inturn"


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

    def shown(self) -> Json:
        """Everything, as JSON values."""
        return asdict(self) | {"met": self.met}


def medians(cells: Iterable[Cell], workloads: Iterable[Workload]) -> dict[tuple[str, int], float]:
    """CPU seconds by contender and number of groups, of these workloads only."""
    selected = set(workloads)
    return {(cell.contender, cell.workload.groups): cell.cpu for cell in cells if cell.workload in selected}


def table_of(
    work: Workload, cells: Sequence[Cell], rounds: int, names: Mapping[str, str], against: Sequence[str], share: str
) -> Table:
    """A row for each contender: CPU seconds, ratios to those of ``against``, wall seconds; ``share`` explains the ≈."""
    title = f"{work.messages:,} messages, {work.groups:,} groups: medians of {rounds} rounds"
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("", overflow="fold")
    for name in ("CPU s", "least-most", *(f"/ {key}" for key in against), "wall s"):
        table.add_column(name, justify="right")
    cpu = {cell.contender: cell.cpu for cell in cells}
    for cell in cells:
        mark = "≈ " if cell.share > 1 else ""
        ratios = [f"{mark}{cell.cpu / cpu[key]:.2f}" if key in cpu else "" for key in against]
        row = (f"{mark}{cell.cpu:.1f}", mark + cell.spread, *ratios, f"{mark}{cell.wall:.1f}")
        table.add_row(names[cell.contender], *row)
    if any(cell.share > 1 for cell in cells):
        table.caption = share
    return table


def add_options(parser: argparse.ArgumentParser, contenders: Iterable[str], *, slow: bool = True) -> None:
    """The options that all have; ``slow`` says whether there are contenders that are not run on everything."""
    parser.add_argument("--messages", type=int)
    parser.add_argument("--groups", type=int, nargs="+")
    parser.add_argument("--buckets", type=int, default=4, help="partitions of every contender")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after one to warm up")
    parser.add_argument("--only", nargs="+", choices=contenders, default=list(contenders))
    if slow:
        everything = "run slow contenders on everything, however long it takes"
        parser.add_argument("--full", action="store_true", help=everything)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def show(run: Callable[[argparse.Namespace, Console], Json], options: argparse.Namespace) -> None:
    """Run it, and print its tables or its JSON."""
    result = run(options, Console(quiet=options.json))
    if options.json:
        machine = {"python": platform.python_version(), "pyspark": pyspark.__version__, "cores": CORES}
        print(json.dumps({"machine": machine, **result}, indent=2))
