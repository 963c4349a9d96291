"""A batch through Spark Connect, the tables read through it, and an audit, told as JSON: SERVER MESSAGES STORE."""

import json
import sys
from pathlib import Path

from ledger import DDL, ledger
from pyspark.sql import SparkSession

import inturn.spark

_EVENT = "op: string, after: struct<id: bigint>, source: struct<lsn: bigint>"
CHANGES = f"struct<{_EVENT}, payload: struct<{_EVENT}>, _corrupt_record: string>"


def main(server: str, messages: str, store: str) -> None:
    """Connect, take one step, audit the same messages, and print what is known then."""
    spark = SparkSession.builder.remote(server).getOrCreate()
    rows = [tuple(row.values()) for row in json.loads(Path(messages).read_text())]
    report = inturn.spark.batch(ledger, spark.createDataFrame(rows, DDL), store=store, buckets=3)
    tables = {
        table: [row.asDict() for row in inturn.spark.read(spark, store, table).collect()]
        for table in ("states", "outputs", "parked", "rejected", "steps")
    }
    audit = inturn.spark.audit(spark.createDataFrame(rows, DDL), group="account", order="revision")
    event = json.dumps({"op": "c", "after": {"id": 7}, "source": {"lsn": 5}})
    lines = spark.createDataFrame([(event,), (f'{{"schema":{{}},"payload":{event}}}',), ("oops",)], "value string")
    read = lines.selectExpr(f"from_json(value, '{CHANGES}') as it").select("it.*")
    changes = inturn.spark.debezium(read).select("row.id", "position", "__inturn_corrupt_record")
    summary = {
        "changes": [list(row) for row in changes.collect()],
        "session": type(spark).__module__,
        "report": report.to_dict(),
        "tables": tables,
        "audit": audit.to_dict(),
    }
    sys.stdout.write(json.dumps(summary, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
