"""`inturn check` over what Spark reads: any file, a queue, and all four engines."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from programs.ledger import DDL, history, ledger
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import inturn
from inturn.cli import app

LEDGER = Path(__file__).with_name("programs") / "ledger.py"
MESSAGES = history(seed=5, accounts=8)


@pytest.fixture(autouse=True)
def stopped(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command stops its session when it is done, which here is everybody's: only noted."""
    noted: list[SparkSession] = []

    def note(session: SparkSession) -> None:
        noted.append(session)

    monkeypatch.setattr(SparkSession, "stop", note)
    yield
    assert noted == [spark]


def check(source: Path | str, engines: str = "worker", *more: Any) -> dict[str, Any]:
    words = ["check", f"{LEDGER}:ledger", "--from", str(source), "--engines", engines, "--json", *map(str, more)]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.stdout + ran.stderr
    return dict(json.loads(ran.stdout))


def csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    lines = [",".join(map(str, row.values())) for row in rows]
    path.write_text("\n".join(["account,revision,amount", *lines]) + "\n")


def test_check_runs_all_four_engines_on_csv(tmp_path: Path) -> None:
    csv(tmp_path / "in.csv", [*MESSAGES, {"account": "acct-1", "revision": "first", "amount": 1}])
    result = check(tmp_path / "in.csv", "replay,worker,batch,stream")
    assert list(result["engines"]) == ["replay", "worker", "batch", "stream"]
    assert {engine["received"] for engine in result["engines"].values()} == {len(MESSAGES)}
    assert result["left_out"] == ['the line {"account":"acct-1","revision":"first","amount":"1"}']


def test_check_reads_a_folder_in_the_order_of_file_names(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, part in (("b", MESSAGES[50:]), ("a", MESSAGES[:50])):
        frame = spark.createDataFrame([tuple(message.values()) for message in part], DDL)
        frame.coalesce(1).write.parquet(str(tmp_path / name))
        (file,) = (tmp_path / name).glob("*.parquet")
        file.rename(tmp_path / "in" / f"{name}.parquet")
    first = check(tmp_path / "in", "worker", "--limit", 50)["engines"]["worker"]
    assert (first["received"], first["applied"]) == (50, ledger.replay(MESSAGES[:50]).counts.applied)


def test_check_reads_the_messages_of_a_queue(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("payments")
        for message in MESSAGES:
            queue.send({"amount": message["amount"]}, group=message["account"], revision=message["revision"])
    result = check(f"{tmp_path}/shop.db#payments")
    assert result["engines"]["worker"]["applied"] == ledger.replay(MESSAGES).counts.applied
