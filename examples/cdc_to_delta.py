"""Change data capture to a Delta table of current states, on Spark: each change once, whatever the order of arrival.

Debezium writes events to Kafka; here they are invented, in the connector's columns. A group is a row, its order the
log's positions. Run it with ``python examples/cdc_to_delta.py`` (it needs ``inturn[spark,java,delta]``). It prints:

    step 1: applied 3, known already 0
    step 2: applied 2, known already 2
    shop.customers/{"id":1} is anne.k@x.org since step 2
    shop.customers/{"id":2} is deleted since step 2
"""

import json
import tempfile
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import inturn.spark
from inturn import Monotone, Pipeline
from inturn.ingest import DebeziumMapping

EVENT = "op string, before struct<id: long>, after struct<id: long, email: string>"
KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def follow(_: dict[str, Any], event: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    return {"email": event["after"]["email"] if event["after"] else None}, []


customers = Pipeline(name="customers", group="group", order=Monotone("revision"), handler=follow)


def records(spark: SparkSession, *changes: tuple[int, int, str | None]) -> DataFrame:
    """Return Kafka's records of changes: key, position in the log, and the new address, or None for a delete."""
    rows: list[Any] = []
    for offset, (key, lsn, email) in enumerate(changes):
        after = None if email is None else {"id": key, "email": email}
        source = {"db": "shop", "table": "customers", "lsn": lsn}
        event = {"op": "u" if after else "d", "before": {"id": key}, "after": after, "source": source}
        rows.append((b'{"id": %d}' % key, json.dumps(event).encode(), "customers", 0, offset, None))
    return spark.createDataFrame(rows, KAFKA)


def main() -> None:
    inturn.spark.ensure_java()
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()
    early = records(spark, (1, 104, "ann@x.org"), (2, 107, "bob@x.org"), (1, 111, "anne@x.org"))
    late = records(spark, (1, 115, "anne.k@x.org"), (1, 104, "ann@x.org"), (1, 111, "anne@x.org"), (2, 112, None))
    with tempfile.TemporaryDirectory() as store:
        for step, df in enumerate((early, late), 1):
            changes = inturn.spark.messages(customers, inturn.spark.from_kafka(df, DebeziumMapping()), EVENT)
            counts = inturn.spark.batch(customers, changes, store=store, states_format="delta").counts
            print(f"step {step}: applied {counts.applied}, known already {counts.duplicate + counts.stale}")
        for row in sorted(DeltaTable(f"{store}/states").to_pyarrow_table().to_pylist(), key=lambda row: row["group"]):
            print(row["group"], "is", json.loads(row["state"])["email"] or "deleted", "since step", row["step"])


if __name__ == "__main__":
    main()
