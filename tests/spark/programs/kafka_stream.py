"""A driver that streams a topic into the ledger's store: MASTER JARS SERVERS TOPIC FOLDER TRIGGER.

An executor dies where a file of FOLDER says so, once: the file names an account. With a trigger that is a time, the
query runs until FOLDER has a file ``stop``.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from programs.ledger import apply, pipeline


def fragile(folder: str) -> Any:
    """A handler that kills the executor which meets an account that is named in a file, once."""

    def handler(account: Any, transfer: Any) -> Any:
        marker = Path(folder) / f"kill-{transfer.account}"
        if marker.exists():
            import psutil

            marker.unlink()
            # This process was forked by PySpark's daemon, and that was started by the executor.
            executor = psutil.Process(os.getppid()).parent()
            assert executor is not None
            assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
            executor.send_signal(signal.SIGKILL)
            time.sleep(60)
        return apply(account, transfer)

    return handler


def main(master: str, jars: str, servers: str, topic: str, folder: str, trigger: str) -> None:
    """Stream until there is nothing more, or until told to stop."""
    from pyspark.sql import SparkSession

    import inturn.spark
    from inturn.ingest import MessageMapping

    spark = (
        SparkSession.builder.master(master)
        .config("spark.cores.max", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.executor.memory", "512m")
        .config("spark.jars", jars)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .load()
    )
    log = inturn.spark.from_kafka(records, MessageMapping(group="key", revision="body.revision"))
    ledger = pipeline(fragile(folder))
    store, checkpoint = Path(folder) / "store", Path(folder) / "checkpoint"
    messages = inturn.spark.messages(ledger, log)
    query = inturn.spark.stream(ledger, messages, store=store, checkpoint=checkpoint, trigger=trigger, buckets=3)
    if trigger == "available now":
        query.awaitTermination()
    else:
        while not query.awaitTermination(1):
            if Path(folder, "stop").exists():
                query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
