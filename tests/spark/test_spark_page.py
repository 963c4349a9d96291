"""docs/spark.md: its tables of columns are those of ``read``, and its declarative pipeline runs."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from inturn import Gapless, Pipeline
from inturn.spark import batch, read
from inturn.spark.columns.names import FIXED_COLUMNS
from inturn.spark.driver.read import TABLES
from waiting import PROGRAM_S

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text()
DDL = "account string, revision bigint, amount bigint"


@dataclass
class Account:
    balance: int = 0


def post(account: Account, message: dict[str, Any]) -> tuple[Account, list[Any]]:
    balance = account.balance + message["amount"]
    return Account(balance), [{"account": message["account"], "balance": balance}]


ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), state=Account, handler=post)


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("page") / "ledger"
    messages = [("ann", 1, 10), ("ann", 3, 5), ("bob", 1, 7), ("bob", None, 1)]
    batch(ledger, spark.createDataFrame(messages, DDL), store=store, buckets=2)
    return store


def documented(table: str) -> list[tuple[str, str]]:
    """The names and types of a table's columns, in the page's order."""
    section = re.search(rf"^### {table}\n(.*?)^##", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no section {table}"
    return re.findall(r"^\| `(\w+)` \| (\S+) \| .+ \|$", section[1], re.MULTILINE)


@pytest.mark.parametrize("table", TABLES)
def test_the_page_lists_the_columns_of_each_store_table(spark: SparkSession, store: Path, table: str) -> None:
    columns = [(field.name, field.dataType.simpleString()) for field in read(spark, store, table).schema.fields]
    if table == "states":
        assert columns[len(FIXED_COLUMNS) :] == [("balance", "bigint")]
        columns = columns[: len(FIXED_COLUMNS)]
    assert documented(table) == columns


@pytest.mark.slow
def test_the_declarative_pipeline_of_the_page_runs(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.pipelines", reason="needs Spark 4.1 or newer")
    code = re.search(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert code is not None
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "views.py").write_text(code[1].replace("STORE", str(store)))
    spec = f"name: page\nstorage: {(tmp_path / 'storage').as_uri()}\nlibraries: [{{glob: {{include: views/**}}}}]\n"
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    ran = subprocess.run(
        [Path(sys.executable).with_name("spark-pipelines"), "run", "--spec", "spark-pipeline.yml"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        check=False,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
    )
    assert ran.returncode == 0, ran.stderr
    views = tmp_path / "spark-warehouse"
    assert sorted(spark.read.parquet(f"{views}/account_status").collect()) == [("open", 1), ("waiting", 1)]
    log = spark.read.parquet(f"{views}/balance_log")
    assert sorted((row.group, row.body) for row in log.collect()) == [
        ("ann", '{"account":"ann","balance":10}'),
        ("bob", '{"account":"bob","balance":7}'),
    ]
