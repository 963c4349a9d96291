"""The local session that the command line, the demo and these tests use."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from inturn.core.errors import SetupError
from inturn.spark.local.session import local_session
from waiting import PROGRAM_S


def test_local_session_returns_a_running_session_unchanged(spark: SparkSession) -> None:
    assert local_session("another name", cores=1, memory="4g") is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"


def test_the_local_session_uses_utc_and_listens_only_on_localhost(spark: SparkSession) -> None:
    settings = {key: spark.conf.get(key) for key in ("spark.driver.host", "spark.sql.session.timeZone")}
    assert settings == {"spark.driver.host": "127.0.0.1", "spark.sql.session.timeZone": "UTC"}
    assert spark.sparkContext.uiWebUrl is None


def test_the_warehouse_of_the_local_session_is_in_the_temporary_directory(spark: SparkSession) -> None:
    warehouse = spark.conf.get("spark.sql.warehouse.dir")
    assert warehouse is not None
    assert Path(warehouse.removeprefix("file:")).is_relative_to(tempfile.gettempdir())


def test_spark_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    def executable(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa

        list(batches)
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    assert spark.range(1).mapInArrow(executable, "python string").collect()[0].python == sys.executable


def test_a_connector_that_cannot_be_fetched_is_reported_with_the_remedy() -> None:
    program = """
from inturn.core.errors import SetupError
from inturn.spark.local.session import running_session
try:
    with running_session("local[1]", {"spark.jars.packages": "no coordinates"}):
        pass
except SetupError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PROGRAM_S, check=True
    )
    assert "unable to fetch its Kafka connector, no coordinates" in done.stdout
    assert "--jars a.jar,b.jar" in done.stdout


def test_a_missing_pyspark_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SetupError, match=r"pip install 'inturn\[spark\]'"):
        local_session()
