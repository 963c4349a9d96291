"""A standalone cluster of real processes: the user's code travels, a task that died is tried again, a disk is full."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from programs import on_cluster
from programs.connecting import cluster, run
from pyspark.sql import SparkSession

from inturn.spark import read

pytestmark = pytest.mark.slow

DRIVER = Path(on_cluster.__file__)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def test_a_cluster_gets_the_user_code_and_retries_a_killed_task(
    spark: SparkSession, master: str, tmp_path: Path
) -> None:
    store, marker = tmp_path / "store", tmp_path / "died"
    driver = run(DRIVER, master, store, marker)
    assert driver.returncode == 0, driver.stderr
    result = json.loads(driver.stdout)
    once = on_cluster.pipeline().replay(on_cluster.orders())
    assert result["executors"] == 2
    assert marker.exists()
    assert "Python worker exited unexpectedly" in driver.stderr, "no task died"
    assert result["counts"] == asdict(once.counts)
    # The second step met a full disk: it is not there, and the first is as it was.
    assert result["failed"].startswith("StoreError: cannot write ")
    assert "File too large" in result["failed"]
    assert read(spark, store, "steps").count() == 1
    states: dict[str, Any] = {
        row.group: (row.status, row.revision, row.held, json.loads(row["items"]), row.text)
        for row in read(spark, store, "states").collect()
    }
    assert states == {
        group: (
            timeline.status.value,
            timeline.reached,
            len(timeline.held),
            once.states[group].items,
            once.states[group].text,
        )
        for group, timeline in once.timelines.items()
    }
    outputs = sorted((row.group, row.effect_id, row.output) for row in read(spark, store, "outputs").collect())
    assert outputs == sorted(
        (output.group, output.effect_id, f'{{"items":{output.output.items}}}') for output in once.outputs
    )
