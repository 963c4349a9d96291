"""What a stream costs: inturn beside Spark's own dropDuplicates, and beside what a user would otherwise write.

```
python benchmarks/spark_stream.py                      # CPU seconds, ratios, goals
python benchmarks/spark_stream.py --groups-in-store    # one step on a small store and on a large one
```

All contenders run in one Spark, in turns, after a warm-up, over the same files in the same order, one file a
micro-batch, with the same handler; that they come to the same result is asserted, outside of the timing.
"""

import argparse
import contextlib
import importlib.util
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from contenders import Outcome, outcome_of_inturn
from cpu import Meter
from pyspark.sql import DataFrame, SparkSession
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
from stream_contenders import CONTENDERS, StreamContender, checkpoint
from workload import LEDGER, Workload

import inturn.spark

MICRO_BATCHES = 20
CHECKED = 50  # a slow contender is checked on this part of the groups and messages
SHARE_TEXT = f"≈ extrapolated: the first of every {SHARE} micro-batches, times {SHARE} (--full runs all)"

STORE_SIZES = (30_000, 3_000_000)
STORE_MESSAGES = 100_000
STORE_TOUCHED = 30_000
SMALL_STEP = 1_000
SMALL_STEPS = 2


class Bench:
    """Runs contenders in one Spark, with the same number of partitions for all."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._spark = start_spark(buckets)
        self._spark.sparkContext.setLogLevel("ERROR")  # transformWithState warns of every group that is new to it
        self._expected: dict[Workload, Outcome] = {}

    def measure(self, cells: Sequence[Cell], rounds: int) -> None:
        """Warm up and check, then measure each cell ``rounds`` times: in turns, each round in another order."""
        for number, cell in in_turns(cells, rounds):
            contender, work = CONTENDERS[cell.contender], cell.workload
            text = f"{number}/{rounds} {cell.contender}: {work.messages:,} messages, {work.groups:,} groups"
            if number:
                progress.print(text)
                cell.add(self._run(contender, work, work.parts // cell.share, check=False))
            else:
                small = replace(work, messages=work.messages // CHECKED, groups=work.groups // CHECKED)
                progress.print(f"{text}: warm-up and check")
                self._run(contender, small if cell.share > 1 else work, work.parts, check=True)

    def _run(self, contender: StreamContender, work: Workload, micro_batches: int, *, check: bool) -> Meter:
        with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as out, settings(self._spark, contender.settings):
            events = log(self._spark, work, micro_batches)
            collect_garbage(self._spark)
            with Meter() as meter:
                contender.run(events, out, self._buckets)
            if check:
                assert_in_order(out, micro_batches)
                if contender.outcome is not None:
                    assert_same(contender.name, contender.outcome(self._spark, out), self._outcome(work), work.groups)
            release_states(self._spark)
        return meter

    def _outcome(self, work: Workload) -> Outcome:
        """What inturn makes of it as a batch."""
        if work not in self._expected:
            with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as out:
                inturn.spark.batch(LEDGER, self._spark.read.parquet(work.files()), store=out, buckets=self._buckets)
                self._expected[work] = outcome_of_inturn(self._spark, out)
        return self._expected[work]


def log(spark: SparkSession, work: Workload, micro_batches: int) -> DataFrame:
    """A stream of the first files, one a micro-batch."""
    files = sorted(Path(work.files()).iterdir())
    for second, file in enumerate(files):  # Spark takes files in the order in which they were last changed
        os.utime(file, (1_700_000_000 + second,) * 2)
    reader = spark.readStream.schema(spark.read.parquet(str(files[0])).schema).option("maxFilesPerTrigger", 1)
    first = ",".join(file.name for file in files[:micro_batches])
    return reader.option("pathGlobFilter", f"{{{first}}}").parquet(work.files())


def assert_in_order(out: str, micro_batches: int) -> None:
    """Stop if the micro-batches were not the files, one by one; Spark's checkpoint says which it took when."""
    names = {}
    for entry in Path(checkpoint(out)).glob("**/sources/0/[0-9]*"):
        for line in entry.read_text().splitlines()[1:]:
            file = msgspec.json.decode(line)
            names[file["batchId"], file["path"]] = Path(file["path"]).name
    expected = [f"part-{number:04d}.parquet" for number in range(micro_batches)]
    assert [names[key] for key in sorted(names)] == expected, f"files were taken out of order: {names}"


@contextlib.contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set these for the session, and take them back."""
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            spark.conf.unset(key)


def release_states(spark: SparkSession) -> None:
    """Close the state stores of the query that ended, so that the next contender does not pay for their upkeep."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    getattr(jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$").__getattr__("MODULE$").stop()


# -- side by side ----------------------------------------------------------------------------------------------


def workload(groups: int, messages: int = 1_000_000) -> Workload:
    """The benchmarks' log, cut into micro-batches in the order of arrival."""
    return Workload(messages=messages, groups=groups, parts=MICRO_BATCHES)


def compare(options: argparse.Namespace, console: Console) -> Json:
    """CPU seconds of all contenders, side by side."""
    works = [workload(groups, options.messages or 1_000_000) for groups in options.groups or SIZES]
    keys = [key for key in options.only if can_run(CONTENDERS[key])]
    cells = [
        Cell(key, work, SHARE if CONTENDERS[key].slow and work.groups > MOST_FOR_SLOW and not options.full else 1)
        for work in works
        for key in keys
    ]
    Bench(options.buckets).measure(cells, options.rounds)
    names = {key: CONTENDERS[key].name for key in keys}
    for work in works:
        own = [cell for cell in cells if cell.workload == work]
        console.print(table_of(work, own, options.rounds, names, ("dedup", "inturn"), SHARE_TEXT))
    results = goals(cells)
    for goal in results:
        console.print(str(goal))
    return {"cells": [cell.shown() for cell in cells], "goals": [goal.shown() for goal in results]}


def can_run(contender: StreamContender) -> bool:
    """Whether all is installed that it needs; says what is not."""
    missing = [name for name in contender.needs if not _installed(name)]
    if missing:
        progress.print(f"left out: {contender.name} needs {', '.join(missing)}", style="bold")
    return not missing


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def goals(cells: Iterable[Cell]) -> list[Goal]:
    """The goals for which there are measurements; they are meant for the workload as it is by default."""
    cpu = medians(cells, [workload(groups) for groups in SIZES])
    results = []
    least, word = 4.0, ""
    for groups in SIZES:
        own, dedup, apply = (cpu.get((key, groups)) for key in ("inturn", "dedup", "apply"))
        if own and dedup:
            results.append(Goal(f"{groups:,} groups, inturn / dropDuplicates", own / dedup, 1.0, at_least=False))
        if own and apply:
            text = f"{groups:,} groups, applyInPandasWithState / inturn{word}"
            results.append(Goal(text, apply / own, round(least, 2), at_least=True))
            least, word = max(least, apply / own), f", more than at {groups:,}"
    return results


# -- groups in the store ---------------------------------------------------------------------------------------


def groups_in_store(options: argparse.Namespace, console: Console) -> Json:
    """CPU seconds of the same step on stores with few groups and with many."""
    sizes = options.groups or STORE_SIZES
    messages = options.messages or STORE_MESSAGES
    touched = min(STORE_TOUCHED, *sizes)
    spark = start_spark(options.buckets)
    measured: dict[int, list[Meter]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as folder:
        for size in sizes:
            progress.print(f"a store of {size:,} groups")
            prepare(spark, Path(folder) / str(size), messages, touched, size, options.buckets)
        for number, size in in_turns(sizes, options.rounds):
            progress.print(f"{number}/{options.rounds} {size:,} groups")
            meter = step_on_copy(spark, Path(folder) / str(size))
            if number:
                measured[size].append(meter)
    cpu = {size: statistics.median(meter.cpu_s for meter in meters) for size, meters in measured.items()}
    title = f"a step of {messages:,} messages to {touched:,} groups: medians of {options.rounds} rounds"
    table = Table(title=title, title_justify="left")
    for name in ("groups in the store", "CPU s", "least-most", "/ first", "wall s"):
        table.add_column(name, justify="right")
    for size, meters in measured.items():
        seconds = [meter.cpu_s for meter in meters]
        wall = statistics.median(meter.wall_s for meter in meters)
        spread, ratio = f"{min(seconds):.2f}-{max(seconds):.2f}", cpu[size] / cpu[sizes[0]]
        table.add_row(f"{size:,}", f"{cpu[size]:.2f}", spread, f"{ratio:.2f}", f"{wall:.2f}")
    console.print(table)
    text = f"a step on {sizes[-1]:,} groups / on {sizes[0]:,}"
    goal = Goal(text, cpu[sizes[-1]] / cpu[sizes[0]], 1.5, at_least=False)
    console.print(str(goal))
    rounds = {size: [round(meter.cpu_s, 3) for meter in meters] for size, meters in measured.items()}
    return {"messages": messages, "touched": touched, "cpu_s": rounds, "goals": [goal.shown()]}


def prepare(spark: SparkSession, place: Path, messages: int, touched: int, total: int, buckets: int) -> None:
    """A store in which every group has a message, and a few have some more, in steps of their own; and the next step.

    What the step touches lies all over the store, and nearly all of it where the first step left it.
    """
    store, apart, small = place / "store", total // touched, min(SMALL_STEP, touched)
    inturn.spark.batch(LEDGER, deposits(spark, total, total, 1, "1"), store=store, buckets=buckets)
    for number in range(SMALL_STEPS):
        inturn.spark.batch(LEDGER, deposits(spark, small, small, apart, str(number + 2)), store=store)
    due = f"id div {touched} + IF(id % {touched} < {small}, {SMALL_STEPS + 2}, 2)"
    deposits(spark, messages, touched, apart, due).write.parquet(str(place / "events"))


def deposits(spark: SparkSession, messages: int, groups: int, apart: int, revision: str) -> DataFrame:
    """Deposits to accounts in turn, which are every ``apart``-th."""
    return spark.range(messages).selectExpr(
        f"concat('acct-', id % {groups} * {apart}) AS account_id",
        f"CAST({revision} AS bigint) AS revision",
        "'deposit' AS type",
        "id % 1000 AS amount",
        f"concat('tx-', id % {groups} * {apart}, '-', {revision}) AS tx_id",
        "id AS offset",
    )


def step_on_copy(spark: SparkSession, place: Path) -> Meter:
    """Take the prepared step on a copy of the store, made of links: nothing in a store is written twice."""
    events = spark.read.parquet(str(place / "events"))
    with tempfile.TemporaryDirectory(dir=place) as folder:
        store = Path(folder) / "store"
        shutil.copytree(place / "store", store, copy_function=os.link)
        collect_garbage(spark)
        with Meter() as meter:
            report = inturn.spark.batch(LEDGER, events, store=store)
    assert report.counts.applied == report.counts.received, f"not all was applied: {report}"
    return meter


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU seconds of a stream: inturn and its alternatives.")
    parser.add_argument("--groups-in-store", action="store_true", help="one step on a small store and on a large one")
    add_options(parser, CONTENDERS)
    options = parser.parse_args()
    show(groups_in_store if options.groups_in_store else compare, options)


if __name__ == "__main__":
    main()
