"""The erasure of a group in a store on Spark: in no byte of its files, and the next step goes on."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import inturn.spark
from inturn import Gapless, Pipeline
from inturn.cli import app
from inturn.core.errors import InputError
from inturn.erasure import forget_in_store
from inturn.faults import OF_AN_ERASURE
from inturn.spark import batch, read

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECRET, OPEN = "s3cr3t-of-the-group", "0pen-to-everybody"
GROUP, OTHER, FAILED = "acct-77", "acct-78", "acct-79"
PROGRAM = Path(__file__).parent / "programs" / "forgetting_store.py"
DDL = "account string, revision bigint, text string"


@dataclass
class Note:
    """A typed state, of which one field has no null."""

    last: str = ""
    count: int = 0


def handle(state: Note, message: Any) -> tuple[Note, list[Any]]:
    if message["revision"] == 5:
        raise ValueError(message["text"])
    return Note(message["text"], state.count + 1), [{"said": message["text"]}]


LEDGER = Pipeline(name="ledger", group="account", order=Gapless("revision"), state=Note, handler=handle)


def step(spark: SparkSession, store: Path, rows: list[tuple[str, int, str]]) -> Any:
    return batch(LEDGER, spark.createDataFrame(rows, DDL), store=store).counts


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four steps: states, outputs, held and rejected messages, a decision with contents, of three groups."""
    store = tmp_path_factory.mktemp("made") / "store"
    for numbers in ([1, 2], [2, 3, 7], [1, 8]):
        rows = [(group, n, f"{SECRET if group == GROUP else OPEN}") for group in (GROUP, OTHER) for n in numbers]
        step(spark, store, rows)
    step(spark, store, [(group, 1, f"{text} otherwise") for group, text in ((GROUP, SECRET), (OTHER, OPEN))])
    step(spark, store, [(group, n, SECRET if group == GROUP else OPEN) for group in (GROUP, OTHER) for n in (4, 5)])
    inturn.spark.store(store).replace(GROUP, content={"text": f"{SECRET}, mended"}, by="ann")
    step(spark, store, [(FAILED, 1, OPEN)])
    return store


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def places(store: Path, text: str = SECRET) -> list[str]:
    return [str(path) for path in store.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def rows(spark: SparkSession, store: Path, table: str, group: str) -> list[Any]:
    frame = read(spark, str(store), table)
    return sorted(frame.filter(frame["group"] == group).collect())


def test_forget_in_store_leaves_no_byte_of_the_group_and_the_next_step_continues(
    spark: SparkSession, store: Path
) -> None:
    before = {table: rows(spark, store, table, OTHER) for table in ("states", "outputs", "rejected", "parked")}
    assert places(store)
    done = forget_in_store(store, GROUP, by="officer", why="asked for it")
    assert (done.is_known, done.outputs, done.rejected, done.held) == (True, 4, 1, 3)
    assert places(store) == []
    for table, stored in before.items():
        assert rows(spark, store, table, OTHER) == stored, table
    assert rows(spark, store, "outputs", GROUP) == rows(spark, store, "rejected", GROUP) == []
    status = inturn.spark.store(store).group(GROUP)
    assert (status.status, status.error, status.held) == ("given up", "forgotten by officer: asked for it", 0)
    decided = [path.read_text() for path in store.glob("decisions/taken/*.json")]
    assert len([text for text in decided if "forgotten: asked for it" in text and "officer" in text]) == 1
    counts = step(spark, store, [(GROUP, 2, SECRET), (GROUP, 9, "new"), (OTHER, 6, OPEN), (FAILED, 2, OPEN)])
    assert (counts.applied, counts.duplicate, counts.held, counts.rejected) == (1, 1, 1, {"given up": 1})
    assert inturn.spark.store(store).group(FAILED).state["count"] == 2
    assert forget_in_store(store, GROUP, by="officer").rejected == 1


def test_after_forget_in_store_a_copy_of_a_conflict_is_not_stored(spark: SparkSession, store: Path) -> None:
    forget_in_store(store, GROUP, by="officer")
    counts = step(spark, store, [(GROUP, 1, f"{SECRET} otherwise")])
    assert (counts.duplicate, counts.rejected) == (1, {})


def test_forget_in_store_repeated_changes_nothing(store: Path) -> None:
    forget_in_store(store, GROUP, by="officer")
    steps = len([*store.glob("steps/*.json")])
    second = forget_in_store(store, GROUP, by="officer")
    assert (second.is_known, second.outputs, second.rejected, second.held) == (True, 0, 0, 0)
    assert len([*store.glob("steps/*.json")]) == steps


@pytest.mark.parametrize("point", [*OF_AN_ERASURE, "between messages@3"])
def test_a_killed_forget_in_store_can_be_repeated(spark: SparkSession, store: Path, point: str) -> None:
    command = [sys.executable, str(PROGRAM), str(store), GROUP]
    killed = subprocess.run(command, env=os.environ | {"INTURN_KILL_AT": point}, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run(command, check=True, timeout=120)
    assert places(store) == []
    assert inturn.spark.store(store).group(GROUP).status == "given up"
    assert len(rows(spark, store, "outputs", OTHER)) == 4


def test_forget_command_removes_the_group_from_a_spark_store(store: Path) -> None:
    run = CliRunner()
    done = run.invoke(app, ["forget", str(store), GROUP, "--yes", "--why", "asked for it"])
    assert done.exit_code == 0, done.stderr
    assert "Removed: 4 outputs, 1 rejected message, 3 held messages." in done.stdout
    assert "The store gave the group up." in done.stdout
    assert places(store) == []
    assert "does not know" in run.invoke(app, ["forget", str(store), "nobody", "--yes"]).stdout


def test_forget_in_store_refuses_a_delta_table(store: Path) -> None:
    (store / "data" / "outputs" / "_delta_log").mkdir()
    (store / "data" / "outputs" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    with pytest.raises(InputError, match="Delta table"):
        forget_in_store(store, GROUP, by="officer")
    assert places(store)
