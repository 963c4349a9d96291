"""The cost of a table of the newest rows: ``pipelines.latest`` beside a hand-written deduplication and Delta merge.

    python benchmarks/latest.py [--messages 200000] [--groups 20000] [--steps 4] [--rounds 3] [--json]

Both read the same change log, in steps; an older change may arrive in a later step. Both keep the place of a deleted
row, since otherwise an older change restores it. The result is a Delta table with one row for each group; the tables
are compared in each round. The hand-written code is the body of a ``foreachBatch``.
"""

import argparse
import inspect
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from cpu import Meter
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it
from rich.console import Console
from rich.table import Table
from rounds import Json, collect_garbage, in_turns, progress, show, start_spark

import inturn.spark
from inturn import Monotone, pipelines

BUCKETS = 4
COLUMNS = ("id", "n", "owner", "balance", "is_deleted")


@dataclass
class Row:
    """The state of a group."""

    owner: str | None = None
    balance: int | None = None
    is_deleted: bool = False


accounts = pipelines.latest("accounts", group="id", order=Monotone("n"), row="after", is_deleted=("op", "d"), state=Row)


def by_inturn(changes: DataFrame, out: str) -> None:
    inturn.spark.batch(accounts, changes, store=out, buckets=BUCKETS, states_format="delta")


def by_merge(changes: DataFrame, out: str) -> None:
    newest_first = Window.partitionBy("id").orderBy(F.col("n").desc())
    newest = changes.withColumn("place", F.row_number().over(newest_first)).where("place = 1")
    is_deleted = F.expr("op = 'd' or after is null")
    kept = [F.when(~is_deleted, F.col(f"after.{name}")).alias(name) for name in ("owner", "balance")]
    rows = pa.Table.from_pandas(
        newest.select("id", "n", *kept, is_deleted.alias("is_deleted")).toPandas(), schema=SCHEMA, preserve_index=False
    )
    if not DeltaTable.is_deltatable(out):
        write_deltalake(out, rows)
        return
    merge = DeltaTable(out).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all("s.n > t.n").when_not_matched_insert_all().execute()


SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("owner", pa.string()),
        ("balance", pa.int64()),
        ("is_deleted", pa.bool_()),
    ]
)
CONTENDERS: dict[str, Callable[[DataFrame, str], None]] = {"inturn": by_inturn, "merge": by_merge}
LINES = {
    "inturn": 4 + 1 + inspect.getsource(by_inturn).count("\n"),
    "merge": inspect.getsource(by_merge).count("\n") + 3,
}
"""Lines of user code: the function; four of the type and one of the pipeline, or three of the schema."""


def write_log(folder: Path, messages: int, groups: int, steps: int) -> list[str]:
    """Write a change log in steps: one change in 20 is late, one in 50 arrives twice, one in 20 is a delete."""
    chance = random.Random(1)  # noqa: S311 - a workload, not a secret
    log: list[tuple[float, Json]] = []
    for n in range(1, messages + 1):
        op, group = "d" if chance.random() < 0.05 else "u", f"acct-{chance.randrange(groups)}"
        change = {"id": group, "n": n, "op": op, "after": {"owner": f"owner-{n % 97}", "balance": n % 1009}}
        delay = chance.random() * messages / 2 if chance.random() < 0.05 else 0
        log += [(n + delay, change)] * (2 if chance.random() < 0.02 else 1)
    log.sort(key=lambda row: row[0])
    changes, size = [change for _, change in log], -(-len(log) // steps)
    files = [str(folder / f"{step}.parquet") for step in range(steps)]
    for step, file in enumerate(files):
        pq.write_table(pa.Table.from_pylist(changes[step * size : (step + 1) * size]), file)
    return files


def table_of(name: str, out: str) -> pa.Table:
    """Return the table of a contender, sorted, with the same columns."""
    table = DeltaTable(f"{out}/states" if name == "inturn" else out).to_pyarrow_table()
    if name == "inturn":
        table = table.rename_columns({"group": "id", "revision": "n"})
    return table.select(COLUMNS).sort_by("id").combine_chunks()


def run(options: argparse.Namespace, console: Console) -> Json:
    """Measure, and show a table."""
    spark = start_spark(BUCKETS)
    folder = Path(tempfile.mkdtemp(prefix="inturn-latest-"))
    cpu: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    wall: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    tables: dict[str, pa.Table] = {}
    try:
        files = write_log(folder, options.messages, options.groups, options.steps)
        names: Sequence[str] = list(CONTENDERS)
        for number, name in in_turns(names, options.rounds):
            collect_garbage(spark)
            out = str(folder / "out")
            with Meter() as meter:
                for file in files:
                    CONTENDERS[name](spark.read.parquet(file), out)
            tables[name] = table_of(name, out)
            shutil.rmtree(out)
            assert len(tables) < len(names) or tables["inturn"].equals(tables["merge"]), "the tables differ"
            if number:
                progress.print(f"{number}/{options.rounds} {name}: {meter.cpu_s:.1f} CPU s, {meter.wall_s:.1f} s")
                cpu[name].append(meter.cpu_s)
                wall[name].append(meter.wall_s)
    finally:
        shutil.rmtree(folder)
    title = f"{options.messages:,} changes of {options.groups:,} groups in {options.steps} steps"
    table = Table("", "CPU s", "wall s", "lines of user code", title=title, title_justify="left")
    result = {
        name: {"cpu_s": statistics.median(cpu[name]), "wall_s": statistics.median(wall[name]), "lines": LINES[name]}
        for name in CONTENDERS
    }
    for name, row in result.items():
        table.add_row(name, f"{row['cpu_s']:.1f}", f"{row['wall_s']:.1f}", str(row["lines"]))
    console.print(table)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--groups", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after one to warm up")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    show(run, parser.parse_args())
