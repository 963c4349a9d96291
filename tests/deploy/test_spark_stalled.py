"""The alert about a Spark stream that commits no steps, with a driver's own page of metrics."""

import shutil
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import prometheus_client
import pytest
from monitored_site import Monitored

import inturn.spark
import inturn.telemetry
from inturn.demo.free_ports import free_port
from threads import Running
from waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Prometheus is not there; `make services` installs it"
    ),
]


def apply(state: dict[str, int], message: dict[str, int]) -> tuple[dict[str, int], list[int]]:
    return state, []


def test_a_spark_driver_without_commits_fires_the_stalled_alert(spark: "SparkSession", tmp_path: Path) -> None:
    ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)
    revisions = iter(range(1, 1_000))

    def step() -> None:
        events = spark.createDataFrame([("a", next(revisions))], "account string, revision long")
        inturn.spark.batch(ledger, events, store=str(tmp_path / "store"))

    registry = prometheus_client.CollectorRegistry()
    inturn.telemetry.prometheus(registry=registry)
    port = free_port()
    server, _ = prometheus_client.start_http_server(port, "127.0.0.1", registry)
    site = Monitored(tmp_path, {"spark": port})
    with closing(site):
        step()
        site.begin()
        until(lambda: site.is_firing("InturnSparkStalled", pipeline="ledger"))
        (restart,) = site.run("InturnSparkStalled")
        assert restart == "systemctl restart ledger-stream"

        is_over = threading.Event()

        def go_on() -> None:
            while not is_over.is_set():
                step()

        going = Running(go_on)
        try:
            until(lambda: site.is_well("InturnSparkStalled"))
        finally:
            is_over.set()
            going.end()
    server.shutdown()
