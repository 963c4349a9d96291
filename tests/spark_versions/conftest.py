"""What these tests share; they need pytest alone, they also run without the root's conftest."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from message_files import LIMIT_S, Source
from pyspark.sql import SparkSession

from inturn.spark.local.session import local_session

sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))  # its programs, which need no more than these tests
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")  # half the CPU seconds of the start


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("inturn-versions", cores=2, memory="1g")
    yield session
    session.stop()


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "messages")


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait for something that is to come to pass."""

    def wait(done: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < end, "it did not come to pass"
            time.sleep(0.2)

    return wait
