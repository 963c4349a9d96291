"""A driver that streams a topic into the ledger's store: MASTER JARS SERVERS TOPIC FOLDER ROWS TRIGGER.

A file ``kill-driver``, ``kill-executor`` or ``kill-worker`` of FOLDER kills that process while a task handles its next
message, once. With a trigger that is a time, the query runs until FOLDER has a file ``stop``.

With MASTER and JARS alone the program starts Spark, prints the variables by which later drivers use this JVM, and waits
for the end of its input. A killed driver then leaves the JVM with its query and tasks, and the next driver starts at
once.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from programs.ledger import apply, pipeline


def fragile(folder: str) -> Any:
    """A handler that kills a process for each file that says so; the file is removed first.

    Tasks of an earlier driver, which may still run, do not see the file for the driver: it is renamed here.
    """
    driver = os.getpid()
    if (armed := Path(folder, "kill-driver")).exists():
        armed.rename(armed.with_name(f"kill-{driver}"))

    def handler(account: Any, transfer: Any) -> Any:
        for name in (str(driver), "executor", "worker"):
            try:
                Path(folder, f"kill-{name}").unlink()
            except FileNotFoundError:  # as nearly always, or another task was first
                continue
            victim = {"executor": executor, "worker": os.getpid}.get(name, lambda: driver)()
            os.kill(victim, signal.SIGKILL)
            if victim != driver:  # the tasks of a killed driver continue
                time.sleep(60)
        return apply(account, transfer)

    return handler


def executor() -> int:
    """Return the process id of the executor that runs this task."""
    import psutil

    # This process was forked by PySpark's daemon, and that was started by the executor.
    parent = psutil.Process(os.getppid()).parent()
    assert parent is not None
    assert "CoarseGrainedExecutorBackend" in " ".join(parent.cmdline())
    return int(parent.pid)


def start(master: str, jars: str) -> Any:
    """Return a session, in the JVM that the environment names or in a new one."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        gateway = launch_gateway()
        context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(context)
        SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
    return (
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


def hold(master: str, jars: str) -> None:
    """Keep Spark for other drivers, until standard input ends."""
    spark = start(master, jars)
    known = spark.sparkContext._gateway.gateway_parameters
    variables = {"PYSPARK_GATEWAY_PORT": str(known.port), "PYSPARK_GATEWAY_SECRET": known.auth_token}
    print(json.dumps(variables), flush=True)
    sys.stdin.read()
    spark.stop()


def main(master: str, jars: str, servers: str, topic: str, folder: str, rows: str, trigger: str) -> None:
    """Stream until there is nothing more, or until told to stop."""
    import inturn.spark
    from inturn.ingest import MessageMapping

    spark = start(master, jars)
    for left in spark.streams.active:
        left.stop()  # the query of a killed driver
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows)
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
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        spark.stop()


if __name__ == "__main__":
    hold(*sys.argv[1:]) if len(sys.argv) == 3 else main(*sys.argv[1:])
