"""An audit of Debezium's change events: deletes have a group, and the proposed pipeline applies every change."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the audit is part of the extra [spark]")

from pyspark.sql import SparkSession

import inturn
from inturn.ingest import DebeziumMapping, FolderSource, Ingest
from inturn.spark.audit.files import read_log
from inturn.spark.audit.report import AuditReport
from inturn.spark.audit.run import audit

Event = dict[str, Any]


def changes(count: int, seed: int = 3) -> list[Event]:
    """Inserts, updates and deletes of some dozen rows, as PostgreSQL's connector tells them."""
    chance, rows, events = random.Random(seed), dict[int, Event](), list[Event]()
    new = 0
    for number in range(count):
        row = chance.choice(list(rows)) if rows and chance.random() < 0.8 else None
        before = None if row is None else rows[row]
        if before is None:
            new += 1
            op, after = "c", {"id": new, "version": 1, "balance": chance.randrange(100)}
        elif chance.random() < 0.1:
            op, after = "d", None
        else:
            op, after = "u", before | {"version": before["version"] + 1, "balance": chance.randrange(100)}
        if after is None:
            assert before is not None
            del rows[before["id"]]
        else:
            rows[after["id"]] = after
        time_ms = 1_760_000_000_000 + 700 * number
        where = {"connector": "postgresql", "db": "bank", "schema": "public", "table": "account", "txId": 700 + number}
        source = where | {"lsn": 24_000_000 + 56 * number, "ts_ms": time_ms}
        events.append({"before": before, "after": after, "source": source, "op": op, "ts_ms": time_ms + 40})
    return events


def examined(spark: SparkSession, folder: Path, events: list[Event], group: str) -> AuditReport:
    folder.mkdir()
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, events)))
    log = read_log(spark, str(folder / "log.jsonl"))
    return audit(log.df, group=group, files=log.files, kinds=log.kinds, source="log.jsonl")


def last(state: Event, event: Event) -> tuple[Event, list[Any]]:
    return {"row": event["after"], "n": state.get("n", 0) + 1}, []


@pytest.mark.parametrize("has_schema", [False, True])
def test_the_proposed_mapping_and_pipeline_apply_every_change(
    spark: SparkSession, tmp_path: Path, has_schema: bool
) -> None:
    events = changes(300)
    assert len({event["op"] for event in events}) == 3
    log = [{"schema": {"type": "struct"}, "payload": event} for event in events] if has_schema else events
    root = "payload." if has_schema else ""
    report = examined(spark, tmp_path / "log", log, f"{root}after.id")
    assert report.found == {}
    assert (report.messages, report.groups) == (300, sum(event["op"] == "c" for event in events))
    assert report.keys.order_by == f"{root}source.lsn"
    assert not [column.name for column in report.columns if "before" in column.name or "after" in column.name]
    grade = report.grade
    assert grade is not None
    assert grade.line == 'Pipeline(name="log", group="row", order=Monotone("source.lsn"), handler=apply)'
    assert grade.mapping == 'DebeziumMapping(group="id")'
    assert not [need for need in grade.needs if "string" in need]

    mapping = eval(grade.mapping, {"DebeziumMapping": DebeziumMapping})  # noqa: S307 - that it runs is the point
    pipeline = eval(grade.line, {**vars(inturn), "apply": last})  # noqa: S307
    with inturn.open(tmp_path / "bank.db") as db:
        queue = db.queue("changes")
        Ingest(FolderSource(tmp_path / "log"), queue, mapping, name="log").run(until="caught up")
        assert inturn.work(pipeline, queue, until="empty").applied == 300


def test_no_field_of_the_changed_row_is_proposed_as_the_order(spark: SparkSession, tmp_path: Path) -> None:
    report = examined(spark, tmp_path / "log", changes(60), "source.table")
    assert not [column.name for column in report.columns if column.name.startswith(("before", "after"))]
    assert report.grade is not None
    assert report.grade.mapping is None
