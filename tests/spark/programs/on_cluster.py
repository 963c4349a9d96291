"""A driver whose pipeline is written in this very script, which no worker has: MASTER STORE MARKER.

It takes the messages as one step. One of its tasks dies once, at the point where a power failure would hurt most,
and Spark tries it again. A second step then meets a full disk.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from inturn import Gapless, Pipeline
from inturn.faults import kill_at


@dataclass
class Order:
    """One message."""

    customer: int
    number: int
    item: str


class Basket(msgspec.Struct):
    """What is kept of a customer."""

    items: list[str] = []
    text: str = ""

    def put(self, item: str) -> "Basket":
        """Another order would give another text."""
        self.items.append(item)
        self.text = f"{item}({self.text})"[:40]
        return self


class Shipped(msgspec.Struct):
    """One output."""

    items: int


def taker(marker: str | None) -> Any:
    """A handler that counts; with a marker, it breaks the worker that meets a certain customer first."""

    def take(basket: Basket, order: Order) -> tuple[Basket, list[Shipped]]:
        if order.item == "everything" and marker is not None:
            import resource

            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))  # as if the disk were full
        elif order.customer == 3 and marker is not None and not Path(marker).exists():
            Path(marker).touch()
            kill_at("between files")
        return basket.put(order.item), [Shipped(len(basket.items))]

    return take


def pipeline(marker: str | None = None) -> Pipeline:
    """The orders of each customer, in order."""
    return Pipeline(
        name="orders",
        group="customer",
        order=Gapless("number"),
        message=Order,
        state=Basket,
        handler=taker(marker),
    )


def orders() -> list[dict[str, Any]]:
    """The messages: out of order, one missing, some twice."""
    known = [
        {"customer": customer, "number": number, "item": f"item {customer * number}"}
        for number in (3, 1, 2, 4, 6)
        for customer in range(20)
    ]
    return known + known[::7]


def main(master: str, store: str, marker: str) -> None:
    """Take two steps; print the first's counts, how many attempts there were, and how the second failed."""
    from pyspark.sql import SparkSession

    import inturn.spark
    from inturn.core.errors import InturnError

    spark = (
        SparkSession.builder.master(master)
        .config("spark.cores.max", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.executor.memory", "512m")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    ddl = "customer int, number int, item string"
    rows = [tuple(order.values()) for order in orders()]
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    report = inturn.spark.batch(pipeline(marker), spark.createDataFrame(rows, ddl), store=store, buckets=4)
    failed = ""
    try:
        too_much = spark.createDataFrame([(1, 5, "everything")], ddl)
        inturn.spark.batch(pipeline(marker), too_much, store=store)
    except InturnError as error:
        failed = f"{type(error).__name__}: {error}"
    result = {"executors": executors, "counts": report.to_dict()["counts"], "failed": failed}
    sys.stdout.write(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
