"""`inturn audit`: files of every form in, tables, JSON and an exit code out."""

import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from pyarrow import parquet
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from inturn.cli import app
from inturn.core.errors import SetupError
from inturn.spark.audit.run import audit

Command = Callable[..., Result]


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command in this process. It stops its session when it is done, which here is everybody's: only noted."""
    stopped: list[SparkSession] = []

    def note(session: SparkSession) -> None:
        stopped.append(session)

    monkeypatch.setattr(SparkSession, "stop", note)
    monkeypatch.setenv("COLUMNS", "200")
    yield lambda *arguments: CliRunner().invoke(app, ["audit", *map(str, arguments)])
    assert stopped in ([], [spark], [spark, spark])


def said(ran: Result) -> dict[str, Any]:
    assert ran.exit_code == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


def test_audit_reads_json_lines_of_mixed_types_and_counts_broken_ones(command: Command, tmp_path: Path) -> None:
    lines = [
        '{"order": 7, "revision": 1, "amount": 1.0, "placed": "2026-01-01T00:00:00Z"}',
        '{"order": "7", "revision": "2", "amount": 2, "placed": "2026-01-01T00:01:00Z"}',
        '{"order": "8", "revision": "two", "amount": 3, "placed": "2026-01-01T00:02:00Z"}',
        '{"order": null, "revision": 1, "amount": 3, "placed": "2026-01-01T00:02:00Z"}',
        '{"order": "8", "revi',
    ]
    (tmp_path / "orders.jsonl").write_text("\n".join(lines))
    source = tmp_path / "orders.jsonl"
    report = said(command(source, "--group", "order", "--order", "revision", "--json", "--out", tmp_path / "report"))
    assert {kind: count["messages"] for kind, count in report["found"].items()} == {
        "unreadable": 1,
        "no-group": 1,
        "no-order": 1,
    }
    assert report["samples"]["no-order"] == ["8: revision is 'two'"]
    assert (report["messages"], report["groups"], report["keys"]["time"]) == (5, 1, "placed")
    assert report["began"] == "2026-01-01T00:00:00+00:00"
    unreadable = parquet.read_table(tmp_path / "report" / "messages" / "kind=unreadable").to_pylist()
    assert unreadable[0]["message"]["__inturn_corrupt_record"] == lines[4]
    assert unreadable[0]["file"].endswith("orders.jsonl")
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == report | {"seconds": report["seconds"]}


def test_audit_keeps_csv_keys_unchanged(command: Command, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text('key,n,text\nNA,1,a\n" ",1,b\n7,1,c\n007,1,d\n,1,e\n7,2,"f, g"\n7,3\n')
    report = said(command(tmp_path / "log.csv", "--group", "key", "--order", "n", "--json"))
    assert report["groups"] == 4
    assert {kind: count["messages"] for kind, count in report["found"].items()} == {
        "unreadable": 1,
        "no-group": 1,
        "placeholder-group": 2,
    }
    assert report["samples"]["placeholder-group"] == ["' '", "'NA'"]


def test_audit_reads_folder_files_by_name_and_strict_sets_the_exit_code(
    spark: SparkSession, command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "a log" / "day=1"
    folder.mkdir(parents=True)
    for name, revisions in (("10.parquet", (4, 5)), ("09.parquet", (1, 3)), ("11.parquet", (2, 5))):
        rows = {"g": ["a"] * 2, "revision": revisions}
        parquet.write_table(pa.table(rows), folder / name)
    ran = command(tmp_path / "a log", "--group", "g", "--order", "revision", "--strict")
    assert ran.exit_code == 1
    output = " ".join(ran.stdout.split())
    assert "6 messages of 1 group" in output
    assert "in 3 files, which are read in the order of their names" in output
    assert "late 1 1 arrived after a message that follows them in the order a at 2, 3 messages late" in output
    assert "duplicate 1 1" in output
    assert 'Pipeline(name="a-log", group="g", order=Gapless("revision"), handler=apply)' in output
    allowed = ("--strict", "--allow", "late", "--allow", "duplicate")
    assert command(tmp_path / "a log", "--group", "g", "--order", "revision", *allowed).exit_code == 0


def test_audit_reads_a_delta_table_in_commit_order(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="a Delta table is read with deltalake, from the extra [delta]")
    for revisions in ((1, 2), (5, 6), (3, 4)):
        rows = {"g": ["a", "a"], "revision": revisions}
        deltalake.write_deltalake(tmp_path / "table", pa.table(rows), mode="append")
    deltalake.DeltaTable(tmp_path / "table").delete("revision = 6")
    report = said(command(tmp_path / "table", "--group", "g", "--order", "revision", "--json"))
    arrived = "by the order of the rows in 3 files, which are read as they arrived"
    assert (report["messages"], report["arrived"]) == (5, arrived)
    (tmp_path / "empty").mkdir()
    schema = pa.schema({"g": pa.string(), "revision": pa.int64()})
    deltalake.write_deltalake(tmp_path / "empty", schema.empty_table())
    ran = command(tmp_path / "empty", "--group", "g", "--order", "revision")
    assert (ran.exit_code, "has no messages" in ran.stderr.replace("\n", " ")) == (1, True)


def test_audit_without_an_order_shows_the_columns(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    lines = [f"acct-{n % 3},{n // 3 + 1},{n * n % 97},2026-01-01 00:00:{n:02}" for n in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(["account,version,amount,at", *lines]))
    ran = command(tmp_path / "log.csv", "--group", "account")
    assert ran.exit_code == 0, ran.stderr
    output = " ".join(ran.stdout.split())
    assert "version Gapless counts: every value is present" in output
    assert "at Timestamp never falls" in output
    assert "amount none no order" in output
    assert "No faults found." in output
    assert 'order=Gapless("version")' in output


NOT_DONE: dict[str, tuple[list[Any], int, str]] = {
    "no such file": (["{here}/none.json", "--group", "g"], 1, "InputError: no file or folder"),
    "empty": (["{here}/empty.jsonl", "--group", "g"], 1, "empty.jsonl has no messages: it is empty"),
    "no JSON": (["{here}/bad.jsonl", "--group", "g"], 1, "none of its lines can be read; JSON lines have one object"),
    "no Parquet": (["{here}/bad.parquet", "--group", "g"], 1, "cannot read {here}/bad.parquet as parquet"),
    "no format": (
        ["{here}/log.csv", "--group", "g", "--format", "xml"],
        1,
        "expected one of parquet, json, csv, delta",
    ),
    "no column": (["{here}/log.csv", "--group", "k"], 1, "no column 'k'; existing columns: g, n"),
    "no group": (["{here}/log.csv"], 2, "Missing option '--group'"),
    "no fault": (
        ["{here}/log.csv", "--group", "g", "--allow", "lateness"],
        1,
        "no kind of fault 'lateness'; existing kinds",
    ),
    "a stranger's folder": (
        ["{here}/log.csv", "--group", "g", "--order", "n", "--out", "{here}"],
        1,
        "which no audit wrote; use another folder",
    ),
}


@pytest.mark.parametrize("case", NOT_DONE)
def test_audit_reports_invalid_arguments_without_a_traceback(command: Command, tmp_path: Path, case: str) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "bad.jsonl").write_text("no JSON\nat all\n")
    (tmp_path / "bad.parquet").write_text("PAR1 this is no Parquet")
    (tmp_path / "log.csv").write_text("g,n\na,1\n")
    arguments, code, says = NOT_DONE[case]
    ran = command(*(argument.format(here=tmp_path) for argument in arguments))
    output = "".join(ran.stderr.replace("│", " ").split())
    assert "".join(says.format(here=tmp_path).split()) in output
    assert (ran.exit_code, ran.stdout) == (code, "")
    assert "Traceback" not in ran.stderr


def test_audit_names_a_broken_file_among_good_ones(command: Command, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"g": ["a"], "n": [1]}), tmp_path / "good.parquet")
    content = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "half.parquet").write_bytes(content[: len(content) // 2])
    ran = command(tmp_path, "--group", "g", "--order", "n")
    assert ran.exit_code == 1
    assert "half.parquet" in "".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_audit_lab_simulates_the_log_and_links_both_pages(command: Command, tmp_path: Path) -> None:
    lines = []
    for number in range(600):
        group, revision = number % 20, 1 + number // 20
        timestamp = f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z"
        row = {"device": f"<b>{group}</b>", "revision": revision, "at": timestamp, "took": 700 if group else 1_400}
        lines.append(json.dumps(row))
    lines[41], lines[61] = lines[61], lines[41]  # late by one message of its group
    lines += [lines[70], '{"device": null, "revision": 1}']
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    arguments = (tmp_path / "log.jsonl", "--group", "device", "--order", "revision", "--lab", "--duration", "took")
    report = said(command(*arguments, "--json", "--out", tmp_path / "report"))
    figures = report["lab"]["result"]["input"]
    assert (figures["groups"], figures["messages"] - figures["copies"], figures["judged_by"]) == (20, 600, "order")
    assert 250e6 < figures["span_us"] < 1_500e6  # as the log: a message a second for ten minutes
    assert 350e6 < figures["work_us"] < 550e6  # 441 seconds in the log
    assert report["lab"]["recommendation"]["design"]
    assert [sweep["over"] for sweep in report["lab"]["sweeps"]] == ["consumers"]
    assert report["files"]["lab"].endswith("lab.html")
    assert '<a href="lab.html">' in (tmp_path / "report" / "report.html").read_text()
    page = (tmp_path / "report" / "lab.html").read_text()
    assert '<a href="report.html">The audit of' in page
    shown = command(*arguments)
    assert shown.exit_code == 0, shown.stderr
    assert "Recommended: " in shown.stdout
    later = command(tmp_path / "log.jsonl", "--group", "device", "--order", "revision", "--duration", "took")
    assert "--duration needs --lab" in later.stderr


def test_audit_without_jinja2_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any session: what needs one would fail in other words."""

    def started(master: str) -> None:
        raise AssertionError(f"Spark was started at {master}")

    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("inturn.spark.local.session.running_session", started)
    arguments = ["audit", str(tmp_path / "log.jsonl"), "--group", "g", "--out", str(tmp_path / "report")]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 1
    assert "needs jinja2; install it with: pip install 'inturn[spark]'" in " ".join(ran.stderr.split())
    assert not (tmp_path / "report").exists()


def test_the_audit_function_without_jinja2_is_refused_before_it_reads(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(SetupError, match=r"needs jinja2; install it with: pip install 'inturn\[spark\]'"):
        audit(spark.range(1), group="there is no such column", out=str(tmp_path / "report"))


def test_the_spark_extra_contains_jinja2() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert any(requirement.startswith("jinja2") for requirement in extras["optional-dependencies"]["spark"])


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_columns_that_differ_only_in_case_are_refused_with_the_setting_to_use(
    command: Command, tmp_path: Path, form: str
) -> None:
    source = tmp_path / f"log.{form}"
    row = {"g": "a", "n": 1, "Bat": 1, "BAT": 2}
    if form == "jsonl":
        source.write_text(json.dumps(row))
    else:
        parquet.write_table(pa.table({name: [value] for name, value in row.items()}), source)
    ran = command(source, "--group", "g", "--order", "n")
    output = " ".join(ran.stderr.split())
    assert ran.exit_code == 1
    assert "two columns are called 'bat'; if they differ only in case" in output
    assert "spark.sql.caseSensitive=true" in output


def test_audit_names_a_numeric_column_with_one_text_value(command: Command, tmp_path: Path) -> None:
    rows = [{"g": "a", "n": n, "x": "abc" if n == 3 else n / 2, "p": {"y": n}, "t": f"t{n}"} for n in range(1, 6)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = (tmp_path / "log.jsonl", "--group", "g", "--order", "n")
    report = said(command(*arguments, "--json", "--out", tmp_path / "report"))
    assert report["texts"] == ["The column x is text: 1 of its 5 values is not a number, such as 'abc'."]
    assert report["grade"]["needs"] == []  # n is a number in the file
    assert "The column x is text" in (tmp_path / "report" / "report.html").read_text()
    assert "The column x is text: 1 of its 5 values is not a number" in " ".join(command(*arguments).stdout.split())


def test_audit_says_to_cast_a_revision_of_quoted_digits(command: Command, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"g": "a", "n": "1"}\n{"g": "a", "n": "2"}\n')
    report = said(command(tmp_path / "log.jsonl", "--group", "g", "--order", "n", "--json"))
    assert report["grade"]["needs"] == ["The column n is string, which a pipeline does not accept: cast it to bigint."]
    assert report["texts"] == []


def test_audit_lab_without_an_order_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"device": "a", "text": "x"}\n{"device": "a", "text": "y"}\n')
    ran = command(tmp_path / "log.jsonl", "--group", "device", "--lab")
    assert ran.exit_code == 1
    assert "no column gives the order of these messages; name one with --order or --order-by" in ran.stderr
