"""A stream over Kafka itself, by Spark's own connector, that is killed; and the command that reads a topic."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from programs import kafka_stream
from programs.answers import assert_tables
from programs.connecting import LIMIT_S, cluster, environment
from programs.ledger import history, ledger
from pyspark.sql import SparkSession

from caches import CACHE
from environments import ROOT, keep
from inturn.spark.tables.manifest import SparkStore
from kafka_started import SPARK, Kafka, connector_jars, connector_missing, produce, topic, widen
from waiting import until

DRIVER = Path(kafka_stream.__file__)
PASSWORD = {"INTURN_TEST_PASSWORD": "right"}
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def connected() -> Path:
    """The Python of an environment with the wheel, and PySpark of the connector's version."""
    if reason := connector_missing():
        pytest.skip(reason)
    constraints = ROOT / "tests" / "spark_versions" / "constraints.txt"
    folder, pyspark = CACHE / "spark-versions" / f"kafka-{SPARK}", f"pyspark=={SPARK}"
    return keep(folder, "spark", pyspark, "psutil", constraints=constraints)


@pytest.fixture(scope="module")
def master(connected: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    (home,) = connected.parents[1].glob("lib/python*/site-packages/pyspark")
    with cluster(tmp_path_factory.mktemp("cluster"), home / "bin") as address:
        yield address


def put(kafka: Kafka, name: str, sent: Sequence[dict[str, Any]], partitions: int) -> None:
    """Send messages; those of an account are in one partition, in their order."""
    for message in sent:
        number = sum(str(message["account"]).encode()) % partitions
        produce(kafka.servers, name, [json.dumps(message).encode()], number, key=str(message["account"]).encode())


@pytest.mark.slow
@pytest.mark.installs
def test_a_kafka_stream_survives_killed_drivers_executors_and_new_partitions(
    spark: SparkSession, kafka: Kafka, connected: Path, master: str, tmp_path: Path, soak_seed: int
) -> None:
    chance = random.Random(soak_seed)
    sent = history(seed=soak_seed)
    name = topic(kafka.servers, f"bank{time.time_ns()}", partitions=3)
    put(kafka, name, sent[:-60], partitions=3)
    command = [str(connected), str(DRIVER), master, connector_jars(), kafka.servers, name, str(tmp_path)]
    settings = {"PYSPARK_PYTHON": str(connected), "PYTHONPATH": str(DRIVER.parents[1])}

    for point in ("before files", "before commit@2", "after commit", "before commit"):
        (tmp_path / f"kill-{chance.choice(sent)['account']}").touch()
        life = environment(INTURN_KILL_AT=point, **settings)
        died = subprocess.run([*command, "available now"], env=life, capture_output=True, timeout=LIMIT_S, check=False)
        assert died.returncode == -signal.SIGKILL, died.stderr
    unused = [path.unlink() for path in tmp_path.glob("kill-*")]
    assert len(unused) < 4, "no executor was killed"

    live = subprocess.Popen(
        [*command, "1 second"], env=environment(**settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        until(lambda: received(tmp_path / "store") == len(sent) - 60, deadline_s=LIMIT_S, process=live)
        widen(kafka.servers, name, 5)
        put(kafka, name, sent[-60:], partitions=5)
        until(lambda: received(tmp_path / "store") == len(sent), deadline_s=LIMIT_S, process=live)
        (tmp_path / "stop").touch()
        output, _ = live.communicate(timeout=LIMIT_S)
    finally:
        live.kill()
    assert live.returncode == 0, output
    assert_tables(spark, tmp_path / "store", ledger.replay(sent))


def received(store: Path) -> int:
    source = SparkStore(store)
    return sum(source.manifest(step).counts["received"] for step in source.steps())


@pytest.mark.slow
@pytest.mark.installs
def test_the_command_reads_a_topic_as_one_step_and_then_as_a_stream(
    spark: SparkSession, kafka: Kafka, connected: Path, tmp_path: Path
) -> None:
    sent = history(seed=3)
    name = topic(kafka.servers, f"bank{time.time_ns()}", partitions=3)
    put(kafka, name, sent[:-60], partitions=3)
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(f"""
        revision = "body.revision"

        [kafka]
        "security.protocol" = "SASL_PLAINTEXT"
        "sasl.mechanism" = "PLAIN"
        "sasl.jaas.config" = '{LOGIN} username="me" password="${{env:INTURN_TEST_PASSWORD}}";'
        "config.providers" = "env"
        "config.providers.env.class" = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    """)
    pipeline = f"{Path(__file__).with_name('programs') / 'ledger.py'}:ledger"

    def ran(store: str, *options: str) -> list[Any]:
        command = [str(connected), "-m", "inturn", "run", pipeline, "--from", f"kafka://{kafka.login}/{name}", "--json"]
        command += ["--store", str(tmp_path / store), "--mapping", str(mapping), "--jars", connector_jars(), *options]
        settings = environment(PYTHONPATH=str(DRIVER.parents[1]), **PASSWORD)
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    (report,) = ran("once")
    assert report["counts"]["received"] == len(sent) - 60
    steps = ran("store", "--stream", "--trigger", "available now", "--rows", "100")
    assert [step["counts"]["received"] <= 100 for step in steps] == [True] * len(steps)
    put(kafka, name, sent[-60:], partitions=3)
    later = ran("store", "--stream", "--trigger", "available now")
    assert sum(step["counts"]["received"] for step in later) == 60
    assert_tables(spark, tmp_path / "store", ledger.replay(sent))
