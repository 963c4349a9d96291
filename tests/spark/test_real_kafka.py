"""A stream over Kafka itself, by Spark's own connector, that is killed; and the command that reads a topic."""

import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from inturn.faults import OF_A_STEP
from inturn.spark.tables.manifest import SparkStore
from kafka_started import SPARK, Kafka, connector_jars, connector_missing, produce, topic, widen
from lives import deaths
from waiting import until

DRIVER = Path(kafka_stream.__file__)
DRIVER_POINTS = [point for point in OF_A_STEP if point != "between files"]
"""The points of a step in the driver; the other point is in a task."""
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


@pytest.fixture(scope="module")
def held(connected: Path, master: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which a driver uses Spark's JVM, which outlives the driver."""
    command = [str(connected), str(DRIVER), master, connector_jars()]
    folder = tmp_path_factory.mktemp("held")
    with (folder / "said").open("w") as said, (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=variables(connected), stdin=subprocess.PIPE, stdout=said, stderr=log)
        try:
            until(lambda: (folder / "said").read_text().endswith("\n"), "Spark", LIMIT_S, process=process)
            yield json.loads((folder / "said").read_text())
            process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()


def variables(connected: Path, **more: str) -> dict[str, str]:
    """The environment of a driver."""
    return environment(PYSPARK_PYTHON=str(connected), PYTHONPATH=str(DRIVER.parents[1]), **more)


class Topic:
    """A topic of the ledger's messages, and the drivers that stream it, one after another.

    Args:
        kafka: the broker; the topic is new.
        folder: the folder of the store and the checkpoint.
        command: the program up to the topic; ``settings`` are its environment.
        rows: the size of a micro-batch.
    """

    def __init__(self, kafka: Kafka, folder: Path, command: Sequence[str], settings: dict[str, str], rows: int) -> None:
        self._name, self._servers = topic(kafka.servers, f"bank{time.time_ns()}", partitions=3), kafka.servers
        self._folder, self._settings, self._partitions = folder, settings, 3
        self._command = [*command, kafka.servers, self._name, str(folder), str(rows)]
        self.sent: list[dict[str, Any]] = []
        self._received: dict[int, int] = {}

    def widen(self) -> None:
        """Add two partitions; later messages of a group may be in another partition than the earlier ones."""
        self._partitions += 2
        widen(self._servers, self._name, self._partitions)

    def put(self, messages: Sequence[dict[str, Any]]) -> None:
        """Send messages; those of an account are in one partition, in their order."""
        put(self._servers, self._name, messages, self._partitions)
        self.sent += messages

    def arm(self, kind: str) -> None:
        """Have a process killed while a task handles a message."""
        (self._folder / f"kill-{kind}").touch()

    @property
    def armed(self) -> list[str]:
        """The processes that are still to be killed."""
        return [path.name.removeprefix("kill-") for path in self._folder.glob("kill-*")]

    def die(self, point: str) -> None:
        """Run a driver that is killed at a point, or by a task if the point is empty."""
        life = self._settings | {"INTURN_KILL_AT": point}
        command = [*self._command, "available now"]
        died = subprocess.run(command, env=life, capture_output=True, timeout=LIMIT_S, check=False)
        assert died.returncode == -signal.SIGKILL, died.stderr

    @contextmanager
    def live(self) -> Iterator[Callable[[], Any]]:
        """A driver that runs until the block ends; it gives a function that waits until all messages are received."""
        with (self._folder / "log").open("wb") as log:
            live = subprocess.Popen([*self._command, "1 second"], env=self._settings, stdout=log, stderr=log)
            try:
                yield lambda: until(self._is_received, "all messages", LIMIT_S, process=live)
                (self._folder / "stop").touch()
                assert live.wait(LIMIT_S) == 0, (self._folder / "log").read_text()
            finally:
                live.kill()

    def _is_received(self) -> bool:
        store = SparkStore(self._folder / "store")
        for step in {*store.steps()} - {*self._received}:
            self._received[step] = store.manifest(step).counts["received"]
        return sum(self._received.values()) == len(self.sent)


def put(servers: str, name: str, messages: Sequence[dict[str, Any]], partitions: int) -> None:
    """Send messages to a topic, each account to one partition."""
    for message in messages:
        account = str(message["account"]).encode()
        produce(servers, name, [json.dumps(message).encode()], sum(account) % partitions, key=account)


@pytest.mark.slow
@pytest.mark.installs
def test_a_kafka_stream_survives_killed_drivers_executors_and_new_partitions(
    spark: SparkSession, kafka: Kafka, connected: Path, master: str, tmp_path: Path
) -> None:
    """A driver is killed with its JVM."""
    history_ = history(seed=1)
    command = [str(connected), str(DRIVER), master, connector_jars()]
    bank = Topic(kafka, tmp_path, command, variables(connected), rows=60)
    bank.put(history_[:-60])
    for point in ("before files", "before commit@2", "after commit", "before commit"):
        bank.arm("executor")
        bank.die(point)
    assert not bank.armed, "no executor was killed"
    with bank.live() as all_received:
        all_received()
        bank.widen()
        bank.put(history_[-60:])
        all_received()
    assert_tables(spark, tmp_path / "store", ledger.replay(bank.sent))


@pytest.mark.slow
@pytest.mark.installs
@pytest.mark.soak
def test_a_kafka_stream_applies_each_record_once_in_order_through_twenty_kills(
    spark: SparkSession,
    kafka: Kafka,
    connected: Path,
    master: str,
    held: dict[str, str],
    tmp_path: Path,
    soak_seed: int,
    soak_times: int,
) -> None:
    """Each round has another topic, store and history; a driver is killed without its JVM, and its tasks continue."""
    command = [str(connected), str(DRIVER), master, connector_jars()]
    kills: Counter[str] = Counter()
    for number in range(soak_times):
        (folder := tmp_path / str(number)).mkdir()
        chance = random.Random(f"{soak_seed}/{number}")
        bank = Topic(kafka, folder, command, variables(connected, **held), rows=10)
        kills += killed_round(bank, chance)
        assert_tables(spark, folder / "store", ledger.replay(bank.sent))
        print(f"{dict(kills)} killed")
    assert {*kills} == {*DRIVER_POINTS, "driver", "executor", "worker"}
    assert kills.total() == 20 * soak_times


def killed_round(bank: Topic, chance: random.Random) -> Counter[str]:
    """Send a history in 20 parts, with a kill for each; return the number of kills at each point and of each kind."""
    points = [at for at, _ in deaths(DRIVER_POINTS, 9, chance, reached=(1, 2), after_s=None)]
    ends = chance.sample([*points, *[""] * 3], 12)
    victims = chance.sample(["executor", "worker"] * 4, 8)
    kills = Counter([*victims, *(end.partition("@")[0] or "driver" for end in ends)])
    messages = nearly_in_order(history(chance.randrange(2**31)), chance)
    parts = [messages[len(messages) * n // 20 : len(messages) * (n + 1) // 20] for n in range(20)]

    def arm_next() -> None:
        if victims and not bank.armed:
            bank.arm(victims.pop())

    for part, end in zip(parts[:12], ends, strict=True):
        bank.put(part)
        arm_next()
        if not end:
            bank.arm("driver")
        bank.die(end)
    with bank.live() as all_received:
        for number, part in enumerate(parts[12:]):
            if number == 4:
                bank.widen()
            bank.put(part)
            arm_next()
            all_received()
    assert not victims
    assert not bank.armed
    return kills


def nearly_in_order(messages: Sequence[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Reorder a history so that nearly each part of it has messages that can be applied at once."""
    last = Counter[str]()
    for message in messages:
        last[message["account"]] = max(last[message["account"]], message["revision"])
    return sorted(messages, key=lambda each: each["revision"] / last[each["account"]] + chance.uniform(0, 0.1))


@pytest.mark.slow
@pytest.mark.installs
def test_the_command_reads_a_topic_as_one_step_and_then_as_a_stream(
    spark: SparkSession, kafka: Kafka, connected: Path, tmp_path: Path
) -> None:
    sent = history(seed=3)
    name = topic(kafka.servers, f"bank{time.time_ns()}", partitions=3)
    put(kafka.servers, name, sent[:-60], partitions=3)
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
    put(kafka.servers, name, sent[-60:], partitions=3)
    later = ran("store", "--stream", "--trigger", "available now")
    assert sum(step["counts"]["received"] for step in later) == 60
    assert_tables(spark, tmp_path / "store", ledger.replay(sent))
