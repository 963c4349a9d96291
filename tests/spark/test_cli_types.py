"""The commands over files with what Spark holds and Python does not: counted as rejected, or one plain paragraph."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from inturn.cli import app

PIPELINE = """
from inturn import Gapless, Pipeline

def count(state, message):
    if message.get("fails"):
        raise ValueError(message["g"])
    return {"count": state.get("count", 0) + 1}, []

counts = Pipeline(name="counts", group="g", order=Gapless("r"), handler=count)
"""
VALUES = [
    ("DATE'2024-01-01'", "'x'", "map('k', DATE'2024-01-01')"),
    ("make_date(20260, 1, 1)", "'x'", "NULL"),
    ("NULL", "CAST(X'E9' AS string)", "NULL"),
    ("NULL", "NULL", "map('k', CAST('-0001-01-01' AS date))"),
]
Command = Callable[..., Result]


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """A command in this process, which leaves everybody's session alone; it says one paragraph, whatever it does."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def run(*words: Any) -> Result:
        ran = CliRunner().invoke(app, list(map(str, words)))
        assert ran.exception is None or isinstance(ran.exception, SystemExit)
        assert "PythonException" not in ran.output
        assert "Py4J" not in ran.output
        return ran

    return run


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "counts.py").write_text(PIPELINE)
    return tmp_path


def write(spark: SparkSession, folder: Path, *rows: str, names: str = "g, r, fails, day, says, days") -> Path:
    df = spark.sql(f"SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS t({names})")  # noqa: S608 - ours
    df.coalesce(1).write.parquet(str(folder / "in"))
    return folder / "in"


def test_rows_with_values_beyond_python_types_are_counted_as_rejected(
    spark: SparkSession, command: Command, place: Path
) -> None:
    rows = [f"'g{index}', 1, false, {', '.join(values)}" for index, values in enumerate(VALUES)]
    rows.append(f"'fails', 1, true, {', '.join(VALUES[0])}")
    files, store = write(spark, place, *rows), place / "store"
    ran = command("run", f"{place}/counts.py:counts", "--from", files, "--store", store, "--json")
    counts = json.loads(ran.stdout)["counts"]
    assert (counts["applied"], counts["held"], counts["rejected"]) == (1, 1, {"invalid": 3})

    ran = command("check", f"{place}/counts.py:counts", "--from", files, "--engines", "worker,batch", "--json")
    result = json.loads(ran.stdout)
    assert result["agree"]
    assert result["left_out"] == [
        "day is +20260-01-01; Python has only the years 1 to 9999",
        "the text of says is not valid UTF-8",
        "days.k is -0001-01-01; Python has only the years 1 to 9999",
    ]

    ran = command("audit", files, "--group", "g", "--order", "r", "--json")
    assert json.loads(ran.stdout)["found"]["unreadable"]["messages"] == 2  # maps are not looked into
    listed = json.loads(command("parked", "list", store, "--json").stdout)
    assert "fails" in json.dumps(listed)
    assert command("parked", "show", store, "fails").exit_code == 0
    for group in ("g0", "fails"):
        assert command("explain", store, group).exit_code == 0
    ran = command("explain", store, "g1")
    assert "years 1 to 9999" in " ".join(ran.output.split())


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("parse_json('{}')", "variant"),
        ("INTERVAL '1' YEAR", "interval year"),
        ("map(array(1), 2)", "array<int>"),
    ],
)
def test_unsupported_column_types_are_refused_by_run_and_check_but_not_by_audit(
    spark: SparkSession, command: Command, place: Path, sql: str, kind: str
) -> None:
    files = write(spark, place, f"'a', 1, {sql}", names="g, r, v")
    for words in (["run", "--store", place / "store"], ["check", "--engines", "worker"]):
        ran = command(words[0], f"{place}/counts.py:counts", "--from", files, *words[1:])
        assert ran.exit_code == 1
        output = " ".join(ran.output.split())
        assert "InputError: the column" in output
        assert kind in output
    assert command("audit", files, "--group", "g", "--order", "r").exit_code == 0
