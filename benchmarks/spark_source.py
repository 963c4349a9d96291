"""What it costs to read the log of a queue with Spark, beside Spark reading the same rows from Parquet.

```
python benchmarks/spark_source.py                        # rows per second and CPU seconds, goals
python benchmarks/spark_source.py --messages 100000
python benchmarks/spark_source.py --postgres postgresql://user@host/bench      # a log there, too
```

All read all columns of all rows, in one Spark, in turns, after a warm-up; that they read the same rows is asserted.
`read` gives the rows to Spark's noop sink. `states` are those of a ledger over the rows, through `inturn.spark.batch`.
"""

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from cpu import Meter
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table
from rounds import Goal, Json, collect_garbage, in_turns, progress, show, start_spark
from workload import LEDGER

import inturn
import inturn.spark
from inturn.core.queue.messages import Draft
from inturn.queue import draft
from inturn.spark import batch, messages, stream

MESSAGES = 1_000_000
GROUPS = 1_000
AT_ONCE = 5_000
MICRO_BATCHES = 10
PIPELINE = replace(LEDGER, arrival=None)
WORDS = {
    "read parquet": "Parquet, read",
    "read range": "the log, read",
    "read group": "the log by group, read",
    "read server": "the log in PostgreSQL, read",
    "states parquet": "Parquet, to states",
    "states range": "the log, to states",
    "states stream": f"the log as a stream of {MICRO_BATCHES} micro-batches, to states",
}


def drafts(count: int) -> Iterator[Draft]:
    """Transactions of so many accounts, side by side."""
    for index in range(count):
        account, revision, amount = f"acct-{index % GROUPS}", index // GROUPS + 1, index * 7919 % 1000
        body = {
            "account_id": account,
            "revision": revision,
            "type": "deposit",
            "amount": amount,
            "tx_id": f"tx-{index}",
        }
        yield draft(body, group=account, revision=revision, dedup_id=f"tx-{index}")


class Bench:
    """The same rows in a queue and in Parquet."""

    def __init__(self, folder: Path, count: int, buckets: int, server: str | None) -> None:
        self._folder, self._count, self._buckets = folder, count, buckets
        self._spark = start_spark(buckets)
        self._queue = f"{folder}/shop.db#payments"
        every = [*drafts(count)]
        for target in (folder / "shop.db", *([server] if server else ())):
            with inturn.open(target, durable=False) as db:
                queue = db.queue("payments")
                queue.purge()
                for start in range(0, count, AT_ONCE):
                    queue.send_many(every[start : start + AT_ONCE])
        parquet = f"{folder}/log.parquet"
        self._log().write.parquet(parquet)
        self._frames: dict[str, Callable[[], DataFrame]] = {
            "parquet": lambda: self._spark.read.parquet(parquet),
            "range": self._log,
            "group": lambda: self._log(partitionBy="group"),
        }
        columns = [name for name in self._log().columns if name not in ("sequence_number", "sent_at")]
        if server:
            self._frames["server"] = lambda: self._spark.read.format("inturn").load(f"{server}#payments")
        sums = {name: self._sum(frame().select(columns)) for name, frame in self._frames.items()}
        assert len({*sums.values()}) == 1, sums

    def _log(self, **options: str) -> DataFrame:
        return self._spark.read.format("inturn").options(**options).load(self._queue)

    def _sum(self, df: DataFrame) -> tuple[int, int]:
        row = df.selectExpr("count(*)", "bit_xor(xxhash64(*))").first()
        assert row is not None
        return row[0], row[1]

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._spark

    def run(self, name: str) -> Meter:
        """One measurement."""
        action, how = name.split()
        store = self._folder / "store"
        collect_garbage(self._spark)
        with Meter() as meter:
            if action == "read":
                self._frames[how]().write.format("noop").mode("overwrite").save()
            elif how == "stream":
                self._stream(store)
            else:
                batch(PIPELINE, messages(PIPELINE, self._frames[how]()), store=store, buckets=self._buckets)
        if action == "states":
            states = inturn.spark.read(self._spark, store, "states").selectExpr("sum(revision)").first()
            assert states is not None
            assert states[0] == self._count
            shutil.rmtree(store)
        return meter

    def _stream(self, store: Path) -> None:
        rows = -(-self._count // MICRO_BATCHES)
        log = self._spark.readStream.format("inturn").options(reader="bench", maxRowsPerBatch=rows).load(self._queue)
        checkpoint = self._folder / "checkpoint"
        query = stream(
            PIPELINE,
            messages(PIPELINE, log),
            store=store,
            checkpoint=checkpoint,
            trigger="available now",
            buckets=self._buckets,
        )
        query.awaitTermination()
        shutil.rmtree(checkpoint)
        with inturn.open(self._folder / "shop.db") as db:
            db.queue("payments").reader("bench").delete()


def run(options: argparse.Namespace, console: Console) -> Json:
    """Measure, and show a table with the goals."""
    folder = Path(tempfile.mkdtemp(prefix="inturn-spark-source-"))
    try:
        bench = Bench(folder, options.messages, options.buckets, options.postgres)
        only = [name for name in options.only if options.postgres or name != "read server"]
        cells: dict[str, list[Meter]] = {name: [] for name in only}
        for number, name in in_turns(only, options.rounds):
            meter = bench.run(name)
            if number:
                progress.print(f"{number}/{options.rounds} {name}: {meter.cpu_s:.1f} CPU s, {meter.wall_s:.1f} s")
                cells[name].append(meter)
    finally:
        shutil.rmtree(folder)
    cpu = {name: statistics.median(meter.cpu_s for meter in runs) for name, runs in cells.items()}
    wall = {name: statistics.median(meter.wall_s for meter in runs) for name, runs in cells.items()}
    table = Table(title=f"{options.messages:,} messages: medians of {options.rounds} rounds", title_justify="left")
    table.add_column("")
    for column in ("CPU s", "wall s", "rows/s"):
        table.add_column(column, justify="right")
    for name in cells:
        rate = f"{options.messages / wall[name]:,.0f}"
        table.add_row(WORDS[name], f"{cpu[name]:.1f}", f"{wall[name]:.1f}", rate)
    console.print(table)
    goals = []
    if {"read parquet", "read range"} <= cpu.keys():
        for label, medians in (("by the clock", wall), ("in CPU seconds", cpu)):
            goals.append(
                Goal(
                    f"the log beside Parquet, {label}",
                    medians["read range"] / medians["read parquet"],
                    3,
                    at_least=False,
                )
            )
    for goal in goals:
        console.print(str(goal))
    return {"cpu_s": cpu, "wall_s": wall, "goals": [goal.shown() for goal in goals]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after one to warm up")
    parser.add_argument("--postgres", help="the address of a database; its queue payments is emptied and filled")
    parser.add_argument("--only", nargs="+", choices=WORDS, default=list(WORDS))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    show(run, parser.parse_args())
