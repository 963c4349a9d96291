"""What an audit costs: ``inturn.spark.audit`` beside one sort of the same rows.

```
python benchmarks/spark_audit.py             # CPU seconds, ratios, goals
python benchmarks/spark_audit.py --scale     # CPU seconds against messages
```

All contenders run in one Spark, in turns, over the same files. In the warm-up, what the audit counts is compared with
what DuckDB counts in the files.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import contenders
import duckdb
from cpu import Meter
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table
from rounds import (
    CORES,
    SIZES,
    Cell,
    Goal,
    Json,
    add_options,
    collect_garbage,
    in_turns,
    medians,
    progress,
    show,
    start_spark,
    table_of,
)
from workload import Workload

from inturn.spark.audit.report import AuditReport, FaultKind
from inturn.spark.audit.run import audit

MESSAGES = 10_000_000
MOST = 2.5  # times the limit
SCALE_MESSAGES = (2_500_000, 5_000_000, 10_000_000, 20_000_000)
SCALE_PER_GROUP = 100

# A message whose revision came before is a copy: the workload has no conflicts. Late is what comes after a greater
# revision; missing is what is below an account's greatest revision and never came.
_COUNTED = """
WITH seen AS (
    SELECT account_id, revision, row_number() OVER copies AS copy, max(revision) OVER earlier AS top
    FROM read_parquet($files)
    WINDOW copies AS (PARTITION BY account_id, revision ORDER BY "offset"),
        earlier AS (PARTITION BY account_id ORDER BY "offset" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), per_account AS (
    SELECT count(*) AS messages, count(*) FILTER (copy > 1) AS duplicates,
        count(*) FILTER (copy = 1 AND revision < top) AS late, max(revision) - count(*) FILTER (copy = 1) AS missing
    FROM seen GROUP BY account_id
)
SELECT sum(messages), count(*), sum(duplicates), sum(late), sum(missing) FROM per_account
"""


@dataclass(frozen=True)
class Truth:
    """What there is to find in a log: messages, groups, copies, late messages, and revisions that never came."""

    messages: int
    groups: int
    duplicates: int
    late: int
    missing: int

    @classmethod
    def of_files(cls, folder: str) -> "Truth":
        """Counted without Spark and without inturn."""
        with duckdb.connect(config={"threads": CORES}) as connection:
            row = connection.execute(_COUNTED, {"files": f"{folder}/*.parquet"}).fetchone()
        assert row is not None
        return cls(*map(int, row))

    @classmethod
    def of_report(cls, report: AuditReport) -> "Truth":
        """As the audit says."""
        assert report.gaps is not None, "the order was not taken for a count"
        counts = {kind: fault.messages for kind, fault in report.found.items()}
        unexpected = set(counts) - {FaultKind.DUPLICATE, FaultKind.LATE, FaultKind.GAP}
        assert not unexpected, f"found {unexpected}, which the workload does not have"
        missing = report.gaps.lost_revisions + report.gaps.open_revisions
        return cls(
            report.messages, report.groups, counts.get(FaultKind.DUPLICATE, 0), counts.get(FaultKind.LATE, 0), missing
        )


# -- the contenders --------------------------------------------------------------------------------------------

Run = Callable[[DataFrame, str, int], AuditReport | None]


@dataclass(frozen=True)
class Contender:
    """One way to go through a log.

    Attributes:
        name: as the tables show it.
        run: takes the messages, a folder that is not there yet, and how many partitions to use; what it reports.
    """

    name: str
    run: Run


def _audited(*, order: str | None = "revision", tx_id: str | None = None, writes: bool = False) -> Run:
    def run(events: DataFrame, out: str, buckets: int) -> AuditReport:  # noqa: ARG001 - spark.sql.shuffle.partitions
        folder = out if writes else None
        return audit(events, group="account_id", order=order, id=tx_id, arrival="offset", out=folder)

    return run


CONTENDERS = {
    "limit": Contender("Spark's sort: the limit", contenders.limit),
    "audit": Contender("audit", _audited()),
    "id": Contender("audit with id", _audited(tx_id="tx_id")),
    "out": Contender("audit with out", _audited(writes=True)),
    "rated": Contender("audit without order", _audited(order=None)),
}


class Bench:
    """Runs contenders in one Spark, with the same number of partitions for all."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._spark = start_spark(buckets)
        self._truths: dict[Workload, Truth] = {}

    def measure(self, cells: Sequence[Cell], rounds: int) -> None:
        """Warm up and check, then measure each cell ``rounds`` times: in turns, each round in another order."""
        for number, cell in in_turns(cells, rounds):
            work = cell.workload
            progress.print(f"{number}/{rounds} {cell.contender}: {work.messages:,} messages, {work.groups:,} groups")
            meter = self._run(CONTENDERS[cell.contender], work, check=number == 0)
            if number:
                cell.add(meter)

    def _run(self, contender: Contender, work: Workload, *, check: bool) -> Meter:
        events = self._spark.read.parquet(work.files())
        with tempfile.TemporaryDirectory(prefix="inturn-benchmark-") as folder:
            collect_garbage(self._spark)
            with Meter() as meter:
                report = contender.run(events, str(Path(folder) / "out"), self._buckets)
        assert_nothing_kept(self._spark, contender.name)
        if check and report is not None:
            assert report.keys.order == "revision", f"{contender.name} goes by {report.keys.place}"
            actual, truth = Truth.of_report(report), self._truth(work)
            assert actual == truth, f"{contender.name} found {actual}, there is {truth}"
        return meter

    def _truth(self, work: Workload) -> Truth:
        if work not in self._truths:
            self._truths[work] = Truth.of_files(work.files())
        return self._truths[work]


def assert_nothing_kept(spark: SparkSession, name: str) -> None:
    """Stop if a contender leaves something persisted, which the next one could use or would have to make room for."""
    manager = spark._jsparkSession.sharedState().cacheManager()
    assert manager.isEmpty(), f"{name} left a table in the cache"


# -- the table -------------------------------------------------------------------------------------------------


def goals(cells: Iterable[Cell]) -> list[Goal]:
    """The goals for which there are measurements; they are meant for the workload as it is by default."""
    cpu = medians(cells, [Workload(messages=MESSAGES, groups=groups) for groups in SIZES])
    results = []
    for groups in SIZES:
        own, limit = (cpu.get((key, groups)) for key in ("audit", "limit"))
        if own and limit:
            results.append(Goal(f"{groups:,} groups, audit / limit", own / limit, MOST, at_least=False))
    return results


def compare(options: argparse.Namespace, console: Console) -> Json:
    """CPU seconds of all contenders, side by side."""
    works = [Workload(messages=options.messages, groups=groups) for groups in options.groups]
    cells = [Cell(key, work) for work in works for key in options.only]
    Bench(options.buckets).measure(cells, options.rounds)
    names = {key: CONTENDERS[key].name for key in options.only}
    for work in works:
        own = [cell for cell in cells if cell.workload == work]
        console.print(table_of(work, own, options.rounds, names, ("limit", "audit"), ""))
    results = goals(cells)
    for goal in results:
        console.print(str(goal))
    return {"cells": [cell.shown() for cell in cells], "goals": [goal.shown() for goal in results]}


# -- the curve -------------------------------------------------------------------------------------------------


def scale(options: argparse.Namespace, console: Console) -> Json:
    """CPU seconds against messages, with the same number of messages in each group."""
    works = [Workload(messages=messages, groups=messages // SCALE_PER_GROUP) for messages in SCALE_MESSAGES]
    cells = {(key, work): Cell(key, work) for work in works for key in ("limit", "audit")}
    Bench(options.buckets).measure(list(cells.values()), options.rounds)
    console.print(scale_table(works, cells))
    return {"cells": [cell.shown() for cell in cells.values()]}


def scale_table(works: Sequence[Workload], cells: Mapping[tuple[str, Workload], Cell]) -> Table:
    """A row for each size: seconds, the ratio, and seconds for each million messages."""
    table = Table(title=f"{SCALE_PER_GROUP} messages a group: CPU against messages", title_justify="left")
    for name in ("messages", "groups", "limit s", "audit s", "/ limit", "limit s / million", "audit s / million"):
        table.add_column(name, justify="right")
    for work in works:
        limit, own, millions = cells["limit", work].cpu, cells["audit", work].cpu, work.messages / 1e6
        numbers = (f"{limit:.1f}", f"{own:.1f}", f"{own / limit:.2f}", f"{limit / millions:.2f}")
        table.add_row(f"{work.messages:,}", f"{work.groups:,}", *numbers, f"{own / millions:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU seconds of an audit, beside one sort of the same rows.")
    parser.add_argument("--scale", action="store_true", help="CPU seconds against messages")
    add_options(parser, CONTENDERS, slow=False)
    parser.set_defaults(messages=MESSAGES, groups=SIZES)
    options = parser.parse_args()
    show(scale if options.scale else compare, options)


if __name__ == "__main__":
    main()
