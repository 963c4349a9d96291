"""Two batches on the store that is named, in a Spark of its own: its workers have this process's environment."""

import json
import sys

import inturn.spark
from inturn import Gapless, Pipeline
from inturn.spark.local.session import local_session


def handler(state: dict[str, int], message: dict[str, int]) -> tuple[dict[str, int], list[int]]:
    return {"sum": state.get("sum", 0) + message["amount"]}, [message["amount"]]


pipeline = Pipeline(name="sums", group="account", order=Gapless("revision"), handler=handler)
columns = "account string, revision bigint, amount bigint"
spark = local_session(cores=1, memory="512m")
for rows in ([("a", 1, 5), ("a", 3, 7), ("b", 1, 1)], [("a", 2, 1), ("b", 1, 1)]):
    report = inturn.spark.batch(pipeline, spark.createDataFrame(rows, columns), store=sys.argv[1], buckets=2)
    print(json.dumps(report.to_dict()))
spark.stop()
