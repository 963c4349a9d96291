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


def took(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
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
        first = {name: took(way) for name, way in ways.items()}
        found: dict[str, list[float]] = {name: [] for name in ("step", *ways)}
        for n in range(2, rounds + 2):
            messages = rows(chance.sample(range(groups), changed), n)
            found["step"].append(took(lambda messages=messages: bench.step(messages)))
            for name, way in ways.items():
                found[name].append(took(way))
    medians = {name: statistics.median(each) for name, each in found.items()}
    return {"groups": groups, **medians, **{f"first {name}": each for name, each in first.items()}}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--groups", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    options.add_argument("--changed", type=int, default=1_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        postgres = start(Path(folder) / "postgres")
        try:
            found = [measured(each, given.changed, given.rounds, postgres.get_uri()) for each in given.groups]
        finally:
            stop(postgres)
    if given.json:
        print(json.dumps(found))
        return
    table = Table(*found[0], title=f"ms for a step of {given.changed:,} changed groups")
    for row in found:
        table.add_row(f"{row['groups']:,}", *(f"{row[name]:,.0f}" for name in list(row)[1:]))
    Console().print(table)


if __name__ == "__main__":
    main()
