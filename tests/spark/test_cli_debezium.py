"""``--preset debezium``: a log of change events gives the rows of the table, in each command."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.envelopes import PASSED_OVER, Event
from inturn import Monotone, Pipeline
from inturn.cli import app
from inturn.spark import read, stream
from inturn.spark.columns.names import CORRUPT
from inturn.spark.local.files import read_messages

MIRROR = """
from dataclasses import dataclass
from inturn import Monotone, Pipeline

def apply(state, event):
    row = None if event["op"] == "d" else event["row"]["v"]
    return {"v": row, "n": state.get("n", 0) + 1}, []

mirror = Pipeline(name="mirror", group="row.id", order=Monotone("position"), handler=apply)

@dataclass(frozen=True)
class Row:
    id: int
    v: float | None = None

@dataclass(frozen=True)
class Change:
    op: str
    row: Row
    position: int
    table: str = ""

def apply_typed(state, change):
    return {"v": None if change.op == "d" else change.row.v, "n": state.get("n", 0) + 1}, []

typed = Pipeline(name="typed", group="row.id", order=Monotone("position"), handler=apply_typed, message=Change)
"""


def apply(state: Event, event: Event) -> tuple[Event, list[Any]]:
    return {"v": None if event["op"] == "d" else event["row"]["v"]}, []


MIRRORED = Pipeline(name="mirrored", group="row.id", order=Monotone("position"), handler=apply)


@pytest.fixture(autouse=True)
def program(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The commands run in this process, where they do not stop the session of all tests."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mirror.py").write_text(MIRROR)
    yield
    assert spark.range(1).count() == 1


def changes(count: int = 120, seed: int = 1) -> tuple[list[Event], dict[str, Any]]:
    """Changes of a table in any order, some of them twice, and the table's rows after each change of a row."""
    chance = random.Random(seed)
    events, table = list[Event](), dict[int, Any]()
    rows = dict[int, Any]()
    for lsn in range(1, count + 1):
        key = chance.randrange(12)
        before = table.get(key)
        op = "c" if before is None else chance.choice("uud")
        after = None if op == "d" else {"id": key, "v": chance.randrange(100) + 0.5, "note": None}
        table[key] = after
        rows[key] = after and after["v"]
        # Without REPLICA IDENTITY FULL, the row before has only its key.
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "lsn": 1000 + 7 * lsn}
        events.append({"op": op, "before": before and {"id": key}, "after": after, "source": source, "ts_ms": lsn})
    events += chance.sample(events, 10)
    chance.shuffle(events)
    return events, {str(key): value for key, value in rows.items()}


def write(file: Path, events: list[Any], *, has_schema: bool = False) -> None:
    wrapped = [{"schema": {"type": "struct"}, "payload": event} for event in events] if has_schema else events
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{event if isinstance(event, str) else json.dumps(event)}\n" for event in wrapped))


def at(name: str) -> str:
    """Return a path for Spark, which does not follow this process to another folder."""
    return str(Path.cwd() / name)


def invoke(*words: Any) -> Any:
    ran = CliRunner().invoke(app, [*map(str, words), "--preset", "debezium", "--json"])
    assert ran.exit_code == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout.splitlines()[-1] if "--stream" in words else ran.stdout)


def states(spark: SparkSession, store: str) -> dict[str, Any]:
    return {row.group: json.loads(row.state)["v"] for row in read(spark, store, "states").collect()}


@pytest.mark.parametrize("pipeline", ["mirror", "typed"])
@pytest.mark.parametrize("has_schema", [False, True])
def test_run_gives_the_rows_of_the_table(spark: SparkSession, pipeline: str, has_schema: bool) -> None:
    events, table = changes()
    write(Path("log.jsonl"), events + PASSED_OVER, has_schema=has_schema)
    counts = invoke("run", f"mirror.py:{pipeline}", "--from", at("log.jsonl"), "--store", at("s"))["counts"]
    assert (counts["received"], counts["rejected"]) == (130, {})
    assert states(spark, at("s")) == table


def test_run_reads_change_events_from_parquet(spark: SparkSession) -> None:
    events, table = changes(60)
    write(Path("log.jsonl"), [*events, *PASSED_OVER])
    spark.read.json(at("log.jsonl")).write.parquet(at("log"))
    assert invoke("run", "mirror.py:mirror", "--from", at("log"), "--store", at("s"))["counts"]["rejected"] == {}
    assert states(spark, at("s")) == table


@pytest.mark.parametrize("pipeline", ["mirror", "typed"])
def test_a_stream_that_began_with_inserts_reads_later_deletes(spark: SparkSession, pipeline: str) -> None:
    events, table = changes()
    inserts = [event for event in events if event["op"] == "c"]
    others = [event for event in events if event["op"] != "c"]
    words = (
        "run",
        f"mirror.py:{pipeline}",
        "--from",
        at("log"),
        "--store",
        at("s"),
        "--stream",
        "--trigger",
        "available now",
    )
    write(Path("log/1.jsonl"), inserts)
    invoke(*words)
    write(Path("log/2.jsonl"), [*others, *PASSED_OVER, "null", "oops"])
    counts = invoke(*words)["counts"]
    assert (counts["received"], counts["rejected"]) == (len(others) + 1, {"invalid": 1})
    (rejected,) = read(spark, at("s"), "rejected").collect()
    assert json.loads(rejected.message)[CORRUPT] == "oops"
    late = {key for key, value in states(spark, at("s")).items() if value != table[key]}
    assert not late


@pytest.mark.parametrize("first", ["flat", "wrapped", "both"])
def test_a_stream_reads_both_forms_whichever_its_first_files_have(spark: SparkSession, first: str) -> None:
    events, table = changes()
    log: dict[str, list[Any]] = {
        "flat": events[::2],
        "wrapped": [{"schema": {"type": "struct"}, "payload": event} for event in events[1::2]],
    }
    begun = [log["flat"].pop(), log["wrapped"].pop()] if first == "both" else log.pop(first)
    later = [line for lines in log.values() for line in lines]
    unread = ['{"schema": null, "payload": "text"}', "oops"]
    write(Path("log/1.jsonl"), begun)
    df = read_messages(spark, MIRRORED, at("log"), streaming=True, change_events=True)
    write(Path("log/2.jsonl"), [*later, *PASSED_OVER, {"schema": None, "payload": None}, "null", *unread])
    query = stream(MIRRORED, df, store=at("s"), checkpoint=at("checkpoint"), trigger="available now")
    assert query.awaitTermination(300)
    rejected = read(spark, at("s"), "rejected").collect()
    assert sorted(json.loads(row.message)[CORRUPT] for row in rejected) == sorted(unread)
    assert states(spark, at("s")) == table


def test_check_agrees_on_change_events(spark: SparkSession) -> None:
    events, table = changes()
    write(Path("log.jsonl"), [*events, *PASSED_OVER, "null"])
    spark.read.json(at("log.jsonl")).write.parquet(at("log"))
    for source in (at("log.jsonl"), at("log")):
        result = invoke("check", "mirror.py:mirror", "--from", source, "--disorder")
        assert result["agree"]
        assert {engine["groups"] for engine in result["engines"].values()} == {len(table)}
        assert result["left_out"] == []


def test_audit_reads_the_group_and_the_order_of_change_events() -> None:
    events, table = changes()
    write(Path("log.jsonl"), [*events, *PASSED_OVER])
    report = invoke("audit", at("log.jsonl"), "--group", "row.id", "--order-by", "position")
    assert (report["messages"], report["groups"]) == (130, len(table))
    assert report["found"]["duplicate"]["messages"] == 10
    assert set(report["found"]) == {"duplicate", "late"}
    rated = invoke("audit", at("log.jsonl"), "--group", "row.id")
    assert rated["columns"][0]["name"] == "position"
    assert not [column["name"] for column in rated["columns"] if column["name"].startswith("row.")]


@pytest.mark.parametrize("command", ["run", "check", "audit"])
def test_files_without_change_events_are_refused(command: str) -> None:
    write(Path("log.jsonl"), [{"id": 1, "__op": "u", "__lsn": 5}])
    words = {
        "run": ["run", "mirror.py:mirror", "--from", at("log.jsonl"), "--store", at("s")],
        "check": ["check", "mirror.py:mirror", "--from", at("log.jsonl"), "--engines", "worker"],
        "audit": ["audit", at("log.jsonl"), "--group", "id"],
    }[command]
    ran = CliRunner().invoke(app, [*words, "--preset", "debezium"])
    assert ran.exit_code == 1
    assert "Debezium's change events" in " ".join(ran.stderr.split())
    unknown = CliRunner().invoke(app, [*words, "--preset", "maxwell"])
    assert unknown.exit_code == 1
    assert "--preset 'maxwell' is not known; expected debezium" in " ".join(unknown.stderr.split())


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_queue_has_no_preset(command: str) -> None:
    words = [command, "mirror.py:mirror", "--from", "shop.db#q", *(["--store", at("s")] if command == "run" else [])]
    ran = CliRunner().invoke(app, [*words, "--preset", "debezium"])
    assert ran.exit_code == 1
    assert "--preset" in ran.stderr
    assert "only for files" in " ".join(ran.stderr.split())
