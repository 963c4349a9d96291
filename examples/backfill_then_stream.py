"""Backfill, then stream: years of history as one batch, then new files as a stream, with one definition in one store.

Messages in both are applied once. A message that is early in the batch is applied when the stream has its predecessor.
Run it with ``python examples/backfill_then_stream.py`` (it needs ``inturn[spark,java]``). It prints:

    the batch: received 4, applied 3, held 1
    the stream: received 3, released 1, applied 2, duplicate 2
    ann 60, bob 10
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import inturn.spark
from inturn import Gapless, Pipeline

COLUMNS = "account string, revision bigint, amount bigint"
HISTORY = [("ann", 1, 10), ("ann", 2, 20), ("ann", 4, 5), ("bob", 1, 10)]
NEW = [("ann", 3, 25), ("ann", 2, 20), ("ann", 4, 5)]


def post(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    return {"balance": state.get("balance", 0) + message["amount"]}, []


ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=post)


def write(file: Path, rows: list[tuple[str, int, int]]) -> None:
    names = ("account", "revision", "amount")
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))


def main(folder: Path) -> None:
    inturn.spark.ensure_java()
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()
    store = str(folder / "ledger")
    write(folder / "history" / "1.jsonl", HISTORY)
    counts = inturn.spark.batch(ledger, spark.read.schema(COLUMNS).json(str(folder / "history")), store=store).counts
    print(f"the batch: received {counts.received}, applied {counts.applied}, held {counts.held}")

    write(folder / "incoming" / "1.jsonl", NEW)
    events = spark.readStream.schema(COLUMNS).json(str(folder / "incoming"))
    query = inturn.spark.stream(ledger, events, store=store, checkpoint=str(folder / "checkpoint"))
    query.processAllAvailable()
    query.stop()
    step = inturn.spark.read(spark, store, "steps").orderBy("step").collect()[-1]
    print("the stream:", ", ".join(f"{name} {step[name]}" for name in ("received", "released", "applied", "duplicate")))
    states = inturn.spark.store(store).states()
    print(", ".join(f"{row.group} {row.state['balance']}" for row in states))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
