"""What it costs to publish the states of a step: as a Delta table, and in PostgreSQL, by the groups in the store.

    python benchmarks/states.py [--groups 10000 100000 1000000] [--changed 1000] [--rounds 5] [--json]

A store has so many groups. Each round is a step that changes 1,000 of them, drawn at random, and the time is that of
publishing it: a merge into the Delta table, or a COPY and an upsert. The steps are taken in this process; their own
time, without Spark's, stands beside it.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from inturn import Monotone, Pipeline
from inturn.spark.driver.postgres_states import StatesTable, publish_to_postgres
from inturn.spark.tables.delta_states import publish_states
from kernel_harness import Bench
from postgres_started import start, stop

SCHEMA = pa.schema({"account": pa.string(), "n": pa.int64(), "amount": pa.int64()})
Json = dict[str, Any]


def deposited(state: Json, message: Json) -> tuple[Json, list[object]]:
    return {"balance": state.get("balance", 0) + message["amount"], "last": message["n"]}, []


def rows(accounts: list[int], n: int) -> list[Json]:
    return [{"account": f"acct-{account}", "n": n, "amount": 5} for account in accounts]


def took(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def measured(groups: int, changed: int, rounds: int, address: str) -> Json:
    ledger = Pipeline(name=f"ledger{groups}", group="account", order=Monotone("n"), handler=deposited)
    chance = random.Random(groups)  # noqa: S311 - a workload, not a secret
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(ledger, SCHEMA, root=Path(folder) / "store", buckets=4)
        bench.step(rows(list(range(groups)), 1))
        target = StatesTable.of(f"{address}#states{groups}")
        ways = {
            "Delta": lambda: publish_states(bench.store, ledger.name),
            "PostgreSQL": lambda: publish_to_postgres(bench.store, ledger.name, target),
        }
        first = {name: took(run) for name, run in ways.items()}
        times: dict[str, list[float]] = {name: [] for name in ("step", *ways)}
        for n in range(2, rounds + 2):
            messages = rows(chance.sample(range(groups), changed), n)
            times["step"].append(took(lambda messages=messages: bench.step(messages)))
            for name, run in ways.items():
                times[name].append(took(run))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {"groups": groups, **medians, **{f"first {name}": value for name, value in first.items()}}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--groups", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    options.add_argument("--changed", type=int, default=1_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        postgres = start(Path(folder) / "postgres")
        try:
            results = [
                measured(group_count, args.changed, args.rounds, postgres.get_uri()) for group_count in args.groups
            ]
        finally:
            stop(postgres)
    if args.json:
        print(json.dumps(results))
        return
    table = Table(*results[0], title=f"ms for a step of {args.changed:,} changed groups")
    for row in results:
        table.add_row(f"{row['groups']:,}", *(f"{row[name]:,.0f}" for name in list(row)[1:]))
    Console().print(table)


if __name__ == "__main__":
    main()
