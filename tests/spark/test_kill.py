"""Processes killed at named points: the same batch again gives what an undisturbed run would have given."""

import json
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from programs.answers import assert_tables
from programs.connecting import run, server
from programs.ledger import DDL, apply, history, ledger, pipeline
from pyspark.sql import DataFrame, SparkSession

from inturn.core.pipeline.journal import Counts
from inturn.faults import OF_A_STEP, kill_at
from inturn.spark import batch, sweep

pytestmark = pytest.mark.slow

LEDGER = Path(__file__).with_name("programs") / "ledger.py"
MESSAGES = history(seed=3)

# Where the driver is killed, and on what: a client of Connect leaves its Spark running, a local one takes it along.
DRIVERS = [
    ("before files", "connect"),
    ("before commit", "connect"),
    ("before commit", "local"),
    ("after commit", "connect"),
]


def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([tuple(message.values()) for message in MESSAGES], DDL)


def steps(store: Path) -> list[str]:
    return sorted(path.name for path in store.glob("steps/*"))


def left_behind(store: Path) -> list[Path]:
    """The data files that no manifest names."""
    named = "".join(path.read_text() for path in store.glob("steps/*.json"))
    return sorted(path for path in store.rglob("data/**/*.*") if path.relative_to(store).as_posix() not in named)


def assert_swept(store: Path, leftover: list[Path]) -> None:
    """What a dead step left behind goes when it is asked for, and nothing else does."""
    assert left_behind(store) == leftover, "the step that came after it took nothing away"
    assert sweep(store) == [], "what is young may belong to a step that is running"
    assert {Path(store, swept) for swept in sweep(store, older_than_s=0)} == {*leftover}
    assert left_behind(store) == []


def test_every_kill_point_of_a_step_is_tested() -> None:
    assert {*OF_A_STEP} == {"between files", *(point for point, _ in DRIVERS)}


@pytest.mark.parametrize(("point", "master"), DRIVERS)
def test_a_batch_repeated_after_a_killed_driver_gives_the_undisturbed_result(
    spark: SparkSession, tmp_path: Path, point: str, master: str
) -> None:
    if master == "connect":
        pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect], from the extra [connect]")
    store, source = tmp_path / "store", tmp_path / "messages.jsonl"
    source.write_text("".join(json.dumps(message) + "\n" for message in MESSAGES))
    command = ["run", f"{LEDGER}:ledger", "--from", source, "--store", store, "--buckets", 3]
    on = server() if master == "connect" else "local[2]"
    died = run("-m", "inturn.cli", *command, "--master", on, INTURN_KILL_AT=point)
    assert died.returncode == -signal.SIGKILL, died.stderr
    committed = point == "after commit"
    assert steps(store) == (["000000000001.json"] if committed else [])
    leftover = left_behind(store)
    assert bool(leftover) == (point == "before commit")

    once = ledger.replay(MESSAGES)
    repeated = batch(ledger, frame(spark), store=store)
    copies = Counts(received=len(MESSAGES), duplicate=len(MESSAGES))
    assert asdict(repeated.counts) == asdict(copies if committed else once.counts)
    assert repeated.step == (2 if committed else 1)
    assert_tables(spark, store, once)
    assert_swept(store, leftover)
    assert_tables(spark, store, once)


def dying(marker: Path) -> Callable[[Any, Any], Any]:
    """A handler that has its worker killed between two files, the first time it meets a certain account."""

    def handler(account: Any, transfer: Any) -> Any:
        if transfer.account == "acct-7" and not marker.exists():
            marker.touch()
            kill_at("between files")
        return apply(account, transfer)

    return handler


def test_a_batch_repeated_after_a_killed_spark_worker_gives_the_undisturbed_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    fragile = pipeline(dying(tmp_path / "died"))
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        batch(fragile, frame(spark), store=store, buckets=3)
    assert (tmp_path / "died").exists()
    assert steps(store) == []
    repeated = batch(fragile, frame(spark), store=store)
    once = ledger.replay(MESSAGES)
    assert (repeated.step, repeated.counts) == (1, once.counts)
    assert_tables(spark, store, once)
    assert_swept(store, left_behind(store))  # only now: tasks beside the one that died went on for a while
    assert_tables(spark, store, once)
