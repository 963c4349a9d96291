"""One Spark session for all tests of this folder: to start one costs more than most tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from inturn.spark.session import local_session

# A test run is over before the optimising compiler of Java has earned what it costs: the quick one alone halves
# the CPU seconds of the start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@pytest.hookimpl(tryfirst=True)  # before the order is made and `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as ``spark``."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with 2 cores and, following from them, 4 shuffle partitions."""
    session = local_session("inturn-tests", cores=2, memory="1g")
    assert session.conf.get("spark.sql.shuffle.partitions") == "4"
    yield session
    session.stop()
