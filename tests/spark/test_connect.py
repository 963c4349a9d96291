"""A batch and the tables through Spark Connect, where there is no JVM to reach into."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect], from the extra [connect]")

from programs.answers import assert_tables
from programs.brute import expected
from programs.connecting import run, server
from programs.ledger import history, ledger
from pyspark.sql import SparkSession

from inturn.spark import read
from inturn.spark.driver.read import TABLES

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).with_name("programs") / "connected.py"


def test_a_batch_over_spark_connect_gives_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    messages, store = history(seed=2), tmp_path / "store"
    (tmp_path / "messages.json").write_text(json.dumps(messages))
    client = run(CLIENT, server(), tmp_path / "messages.json", store)
    assert client.returncode == 0, client.stderr
    result = json.loads(client.stdout)
    assert result["session"].startswith("pyspark.sql.connect.")
    once = ledger.replay(messages)
    assert result["report"]["counts"] == asdict(once.counts)
    assert_tables(spark, store, once)
    for table in TABLES:
        local = [json.dumps(row.asDict(), default=str) for row in read(spark, store, table).collect()]
        assert sorted(map(json.dumps, result["tables"][table])) == sorted(local), table
    assert result["changes"] == [[7, 5, None], [7, 5, None], [None, None, "oops"]]
    faults = {kind: count["messages"] for kind, count in result["audit"]["found"].items()}
    truth, _ = expected(messages, "account", "revision", *messages[0])
    assert faults == {"duplicate": truth["duplicate"], "late": truth["late"]} | (
        {"conflict": truth["rival"]} if truth["rival"] else {}
    )
