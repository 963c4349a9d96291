"""CSV files as Python's csv writes them: every reader gives the rows back as they were."""

import bz2
import csv
import gzip
import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from inturn import Gapless, Pipeline
from inturn.cli import app
from inturn.cli.sample import from_spark
from inturn.core.errors import InputError
from inturn.spark.audit.files import read_log
from inturn.spark.audit.run import audit
from inturn.spark.local.csv import Dialect, unique_names
from inturn.spark.local.files import read_messages

Rows = list[tuple[str, int, str | None, str | None]]
WITHIN_LINES = ["a", "b", '"', '""', ",", ";", "'", " ", "\\", "é", "#", "\t", "1", "NA", "\u2028", ""]
ACROSS_LINES = [*WITHIN_LINES, "\n", "\r\n", "\r", "\n\n"]


@dataclass
class Event:
    key: str
    n: int
    text: str | None
    more: str | None


def collect(state: dict[str, Any], event: Event) -> tuple[dict[str, Any], list[Any]]:
    return state, []


PIPELINE = Pipeline(name="events", group="key", order=Gapless("n"), message=Event, handler=collect)


@dataclass(frozen=True)
class Case:
    """How a file is written, and what its values are made of."""

    letters: list[str]
    ends: str = "\r\n"
    dialect: Dialect = Dialect()  # noqa: RUF009 - a frozen value
    packed: Callable[[bytes], bytes] | None = None
    ending: str = ""
    codec: str = "utf-8"
    header: str = ""
    last_end: bool = True
    quoting: Any = csv.QUOTE_MINIMAL


CASES = {
    "lines within values": Case(ACROSS_LINES),
    "a mark and no last end": Case(ACROSS_LINES, codec="utf-8-sig", last_end=False),
    "all quoted, packed": Case(ACROSS_LINES, "\n", packed=gzip.compress, ending=".gz", quoting=csv.QUOTE_ALL),
    "in parts": Case(WITHIN_LINES, "\r\n", packed=bz2.compress, ending=".bz2"),
    "another dialect": Case(
        [text for text in ACROSS_LINES if text != "\u2028"],
        "\r\n",
        Dialect(";", "'", "ISO-8859-1", "NA"),
        codec="latin-1",
    ),
}


def rows_of(case: Case, seed: int) -> Rows:
    chance = random.Random(seed)

    def cell() -> str | None:
        text = "".join(chance.choices(case.letters, k=chance.randint(0, 6)))
        return None if text in ("", case.dialect.null) else text

    return [(f"k{number % 3}", number // 3 + 1, cell(), cell()) for number in range(60)]


def write(case: Case, rows: Rows, path: Path) -> Path:
    text = io.StringIO()
    options: dict[str, Any] = {"lineterminator": case.ends, "quoting": case.quoting}
    writer = csv.writer(text, delimiter=case.dialect.delimiter, quotechar=case.dialect.quote, **options)
    writer.writerow(["key", "n", "text", "more"])
    null = case.dialect.null or ""
    writer.writerows([[null if value is None else value for value in row] for row in rows])
    content = text.getvalue() if case.last_end else text.getvalue().removesuffix(case.ends)
    data = content.encode(case.codec)
    file = path.with_name(f"{path.name}.csv{case.ending}")
    file.write_bytes(case.packed(data) if case.packed else data)
    return file


def streamed(df: DataFrame, folder: Path) -> Rows:
    collected: Rows = []

    def take(batch: DataFrame, _: int) -> None:
        collected.extend(tuple(row)[:4] for row in batch.collect())  # type: ignore[misc]

    query = df.writeStream.foreachBatch(take).option("checkpointLocation", str(folder)).trigger(availableNow=True)
    query.start().awaitTermination()
    return collected


@pytest.mark.parametrize("name", CASES)
def test_every_reader_restores_the_csv_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    rows = rows_of(case, seed=7)
    (tmp_path / "in").mkdir()
    file = write(case, rows, tmp_path / "in" / "events")
    source, dialect = str(file.parent), case.dialect
    log = read_log(spark, source, dialect=dialect).df.collect()
    assert [(row.key, int(row.n), row.text, row.more) for row in log] == rows
    assert {row["__inturn_corrupt_record"] for row in log} == {None}
    in_batch = read_messages(spark, PIPELINE, source, dialect=dialect).collect()
    assert [tuple(row)[:4] for row in in_batch] == rows
    sample = from_spark(spark, PIPELINE, source, None, None, dialect)
    assert sample.messages == [Event(*row) for row in rows]
    following = read_messages(spark, PIPELINE, source, streaming=True, dialect=dialect)
    assert streamed(following, tmp_path / "checkpoint") == rows


@pytest.fixture
def kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The command stops its session when it is done, which here is everybody's."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    return spark


def test_commands_accept_the_csv_dialect_options(kept: SparkSession, tmp_path: Path) -> None:
    case = CASES["another dialect"]
    file = write(case, rows_of(case, seed=8), tmp_path / "events")
    options = ["--delimiter", ";", "--quote", "'", "--encoding", "ISO-8859-1", "--null", "NA"]
    ran = CliRunner().invoke(app, ["audit", str(file), "--group", "key", "--order", "n", "--strict", *options])
    assert ran.exit_code == 0, ran.stdout + ran.stderr
    assert "60 messages of 3 groups" in ran.stdout
    program = tmp_path / "events_pipeline.py"
    program.write_text(
        "from inturn import Gapless, Pipeline\n"
        "def take(state, event):\n    return state, []\n"
        "events = Pipeline(name='events', group='key', order=Gapless('n'), handler=take)\n"
    )
    words = [f"{program}:events", "--from", str(file), *options, "--json"]
    ran = CliRunner().invoke(app, ["run", *words, "--store", str(tmp_path / "store")])
    assert '"applied": 60' in ran.stdout, ran.stdout + ran.stderr
    ran = CliRunner().invoke(app, ["check", *words, "--engines", "worker"])
    assert '"applied": 60' in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--delimiter", ""], "expected a separator of values"),
        (["--quote", "''"], "expected one character"),
        (["--encoding", "klingon"], "is not known"),
        (["--format", "json", "--null", "NA"], "--null is only for CSV files"),
    ],
)
def test_an_invalid_csv_dialect_is_refused(kept: SparkSession, tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "events.csv").write_text("key,n\na,1\n")
    ran = CliRunner().invoke(app, ["audit", str(tmp_path / "events.csv"), "--group", "key", *words])
    assert (ran.exit_code, says in " ".join(ran.stderr.split())) == (1, True), ran.stderr
    with pytest.raises(InputError):
        Dialect(delimiter="\n")


def test_a_csv_row_of_wrong_length_is_invalid_and_a_header_alone_gives_no_message(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("key,n,text,more\nk,1,a,b\nk,2,a\nk,3,a,b,c\n")
    assert len(from_spark(spark, PIPELINE, str(tmp_path / "a.csv"), None, None).left_out) == 2
    (tmp_path / "b.csv").write_text("key,n,text,more\n")
    assert read_messages(spark, PIPELINE, str(tmp_path / "b.csv")).count() == 0
    assert read_log(spark, str(tmp_path / "b.csv")).df.columns[:2] == ["key", "n"]


def test_repeated_csv_column_names_get_unique_suffixes(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("g,n,at,AT,n\na,1,x,y,9\na,2,x,y,9\n")
    log = read_log(spark, str(tmp_path / "log.csv"))
    assert log.df.columns[:5] == ["g", "n", "at", "AT_2", "n_2"]
    report = audit(log.df, group="g", order="n", files=log.files)
    assert (report.messages, report.found) == (2, {})
    assert unique_names(["a", "a", "a_2", "A"]) == ["a", "a_3", "a_2", "A_4"]
