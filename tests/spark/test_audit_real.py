"""The audit on real logs: flights as a bad network delivers them, and the history of this repository."""

import json
import random
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from programs.brute import expected
from pyspark.sql import DataFrame, SparkSession

import inturn
from inturn import pipelines
from inturn.demo import delivery, flights
from inturn.spark import audit, batch, read
from inturn.spark.audit.report import AuditReport, FaultKind
from waiting import PROGRAM_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FLIGHT = ("tail", "revision", "type", "flight", "origin", "dest", "scheduled", "at", "minutes")
CHANGE = "path string, revision bigint, blob string, at timestamp"


FLIGHTS = (
    "tail string, revision bigint, type string, flight string, origin string, dest string, "
    "scheduled timestamp, at timestamp, minutes bigint, offset bigint"
)


@pytest.fixture(scope="module")
def sent() -> list[dict[str, Any]]:
    """What all producers send, in the order in which it is due."""
    legs = flights.read_legs()
    producers = delivery.deliver(flights.events(legs), flights.strays(legs)).producers
    posts = sorted((post for own in producers.values() for post in own), key=lambda post: post.due_s)
    return [post.body | {"offset": offset} for offset, post in enumerate(posts)]


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in (*FLIGHT, "offset")) for row in rows], FLIGHTS)


def counts(report: AuditReport) -> dict[str, int]:
    return {str(kind): count.messages for kind, count in report.found.items()}


def test_an_audit_of_half_the_flights_by_revision_finds_the_true_faults(
    spark: SparkSession, sent: list[dict[str, Any]], tmp_path: Path
) -> None:
    """While the second half is on its way."""
    first = sent[: len(sent) // 2]
    report = audit(
        frame(spark, first), group="tail", order="revision", arrival="offset", time="at", out=str(tmp_path / "report")
    )
    truth, missing = expected(first, "tail", "revision", *FLIGHT)
    began = {tail: min(row["revision"] for row in first if row["tail"] == tail) for tail in _tails(first)}
    missing |= {(tail, revision) for tail, least in began.items() for revision in range(1, least)}
    assert missing
    assert report.keys.start == 1
    assert report.gaps is not None
    assert report.gaps.lost_revisions + report.gaps.open_revisions == len(missing)
    holes = spark.read.parquet(str(tmp_path / "report" / "gaps")).collect()
    assert {(hole.group, revision) for hole in holes for revision in range(hole["first"], hole["last"] + 1)} == missing
    counted = counts(report)
    assert counted.pop("gap", 0) == report.gaps.lost_revisions
    assert counted == {kind: count for kind, count in truth.items() if count}
    assert (report.messages, report.groups) == (len(first), len(_tails(first)))
    assert report.grade is not None
    assert report.grade.name == "Gapless"


def test_an_audit_of_all_flights_finds_no_missing_revisions(spark: SparkSession, sent: list[dict[str, Any]]) -> None:
    truth, missing = expected(sent, "tail", "revision", *FLIGHT)
    assert not missing
    counted = counts(audit(frame(spark, sent), group="tail", order="revision", arrival="offset"))
    assert counted == {
        "no-group": truth["no-group"],
        "duplicate": truth["duplicate"],
        "late": truth["late"],
        "conflict": truth["rival"],
    }
    assert counted["conflict"] == 1


def test_an_audit_of_flights_by_time_proposes_timestamp(spark: SparkSession, sent: list[dict[str, Any]]) -> None:
    report = audit(frame(spark, sent), group="tail", order_by="at", arrival="offset")
    truth, _ = expected(sent, "tail", "at", *FLIGHT)
    assert counts(report) == {
        "no-group": truth["no-group"],
        "duplicate": truth["duplicate"],
        "tie": truth["rival"],
        "late": truth["late"],
    }
    newest: dict[str, datetime] = {}
    delays = []
    seen = set()
    for row in sent:
        if row["tail"] is not None:
            newest[row["tail"]] = max(row["at"], newest.get(row["tail"], row["at"]))
            if (row["tail"], row["at"]) not in seen:
                delays.append((newest[row["tail"]] - row["at"]).total_seconds())
            seen.add((row["tail"], row["at"]))
    assert report.late is not None
    assert report.late.behind.most == max(delays)
    assert report.grade is not None
    assert report.grade.name == "Timestamp"


def _tails(rows: list[dict[str, Any]]) -> set[str]:
    return {row["tail"] for row in rows if row["tail"] is not None}


@pytest.fixture(scope="module")
def changes() -> list[dict[str, Any]]:
    """Each change of a file on the main line, oldest first; that each begins where the last one ended is checked."""
    form = ("log", "--first-parent", "-m", "--reverse", "--raw", "--no-renames", "--no-abbrev", "--format=@%ct")
    moment, log = datetime.now(UTC), []
    chain: dict[str, str] = {}
    revisions: Counter[str] = Counter()
    for line in _git(*form).splitlines():
        if line.startswith("@"):
            moment = datetime.fromtimestamp(int(line[1:]), UTC)
        elif line.startswith(":"):
            about, path = line.split("\t")
            _, _, old, new, _ = about.split(" ")
            assert chain.get(path, "0" * 40) == old, "git's chain of blobs is unbroken"
            chain[path] = new
            revisions[path] += 1
            log.append({"path": path, "revision": revisions[path], "blob": new, "at": moment})
    return log


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), "-c", "core.quotePath=false", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PROGRAM_S).stdout


def _frame(spark: SparkSession, log: list[dict[str, Any]]) -> Any:
    return spark.createDataFrame([tuple(change.values()) for change in log], CHANGE).coalesce(1)


def test_an_audit_of_a_git_history_finds_its_revision_column(
    spark: SparkSession, changes: list[dict[str, Any]]
) -> None:
    report = audit(_frame(spark, changes), group="path", source="changes")
    assert [column.name for column in report.columns if column.grade == "Gapless"] == ["revision"]
    assert report.keys.order == "revision"
    assert (report.messages, report.groups) == (len(changes), len({change["path"] for change in changes}))
    assert report.found == {}
    assert report.grade is not None
    assert report.grade.line == 'Pipeline(name="changes", group="path", order=Gapless("revision"), handler=apply)'


def test_the_pipeline_proposed_for_a_disordered_git_history_gives_the_git_tree(
    spark: SparkSession, changes: list[dict[str, Any]], tmp_path: Path
) -> None:
    log = disordered(changes)
    truth, missing = expected(log, "path", "revision", "blob", "at")
    assert not missing
    assert min(truth["duplicate"], truth["late"]) > 10
    report = audit(_frame(spark, log), group="path", order="revision", source="changes")
    assert counts(report) == {"duplicate": truth["duplicate"], "late": truth["late"]}
    assert report.grade is not None
    pipeline = eval(report.grade.line, {"apply": lambda state, change: ({"blob": change["blob"]}, [])} | vars(inturn))  # noqa: S307 - our own text
    batch(pipeline, _frame(spark, log), store=tmp_path / "store")
    rows = read(spark, tmp_path / "store", "states").collect()
    states = {row.group: json.loads(row.state)["blob"] for row in rows}
    assert {path: blob for path, blob in states.items() if set(blob) != {"0"}} == git_tree()


@dataclass
class Blob:
    blob: str | None = None
    is_deleted: bool = False


def test_latest_of_a_disordered_git_history_is_the_git_tree_as_a_delta_table(
    spark: SparkSession, changes: list[dict[str, Any]], tmp_path: Path
) -> None:
    files = pipelines.latest(
        "files", group="path", order=inturn.Monotone("revision"), is_deleted=("blob", "0" * 40), state=Blob
    )
    log = disordered(changes)
    size = len(log) // 3 + 1
    for start in range(0, len(log), size):
        batch(files, _frame(spark, log[start : start + size]), store=tmp_path / "store", states_format="delta")
    table = DeltaTable(str(tmp_path / "store" / "states")).to_pyarrow_table().to_pylist()
    assert {row["group"]: row["blob"] for row in table if not row["is_deleted"]} == git_tree()
    assert {row["group"] for row in table} == {change["path"] for change in changes}


def disordered(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the log with a tenth of the changes twice, and a tenth at another place."""
    chance = random.Random(5)
    log = [dict(change) for change in changes]
    for _ in range(len(log) // 10):
        index = chance.randrange(len(log))
        log.insert(chance.randint(index + 1, len(log)), dict(log[index]))
    for _ in range(len(log) // 10):
        log.insert(chance.randrange(len(log)), log.pop(chance.randrange(len(log))))
    return log


def git_tree() -> dict[str, str]:
    """Return the blob of each file of the last commit."""
    lines = (line.split("\t") for line in _git("ls-tree", "-r", "HEAD").splitlines())
    return {path: about.split(" ")[2] for about, path in lines}


def test_an_audit_of_a_git_history_names_the_missing_changes(
    spark: SparkSession, changes: list[dict[str, Any]], tmp_path: Path
) -> None:
    last = {change["path"]: change["revision"] for change in changes}
    chance = random.Random(6)
    inner = [index for index, change in enumerate(changes) if change["revision"] < last[change["path"]]]
    lost = set(chance.sample(inner, 12))
    log = [change for index, change in enumerate(changes) if index not in lost]
    audit(_frame(spark, log), group="path", order="revision", start=1, out=str(tmp_path / "report"))
    named: defaultdict[str, set[int]] = defaultdict(set)
    for hole in spark.read.parquet(str(tmp_path / "report" / "gaps")).collect():
        named[hole.group].update(range(hole["first"], hole["last"] + 1))
    assert {(path, index) for path, own in named.items() for index in own} == {
        (changes[index]["path"], changes[index]["revision"]) for index in lost
    }


def test_every_fault_kind_has_a_description() -> None:
    assert all(kind.meaning for kind in FaultKind)
