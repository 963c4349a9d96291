"""`inturn run`: files in, a store and a report out, and an exit code that says how it went."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from programs.answers import assert_tables
from programs.connecting import run
from programs.ledger import DDL, history, ledger
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from inturn.cli import app
from inturn.spark import read

LEDGER = Path(__file__).with_name("programs") / "ledger.py"
MESSAGES = history(seed=4)
Command = Callable[..., Result]


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command in this process. It stops its session when it is done, which here is everybody's: only noted."""
    stopped: list[SparkSession] = []

    def note(session: SparkSession) -> None:
        stopped.append(session)

    monkeypatch.setattr(SparkSession, "stop", note)
    yield lambda *arguments: CliRunner().invoke(app, ["run", *map(str, arguments)])
    assert stopped in ([], [spark])


def as_json(path: Path) -> None:
    path.write_text("".join(json.dumps(message) + "\n" for message in MESSAGES))


def as_csv(path: Path, *columns: str) -> None:
    lines = [",".join(str(message[column]) for column in columns) for message in MESSAGES]
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")


def test_run_reads_json_lines(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    as_json(tmp_path / "messages.jsonl")
    ran = command(f"{LEDGER}:ledger", "--from", tmp_path / "messages.jsonl", "--store", tmp_path / "s", "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    report = json.loads(ran.stdout)
    once = ledger.replay(MESSAGES)
    assert report["counts"]["applied"] == once.counts.applied
    assert (report["pipeline"], report["step"]) == ("ledger", 1)
    assert_tables(spark, tmp_path / "s", once)


def test_run_rejects_an_unreadable_line_with_its_text(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    valid = '{"account": "a", "revision": 1, "amount": 1}'
    lines = [
        valid,
        "no JSON at all",
        '{"account": "a", "revision": "two", "amount": 1}',
        '{"account": "a", "rev',
        valid,
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    ran = command(f"{LEDGER}:ledger", "--from", tmp_path / "in.jsonl", "--store", tmp_path / "s", "--json")
    assert ran.exit_code == 0, ran.stderr
    counts = json.loads(ran.stdout)["counts"]
    assert (counts["received"], counts["applied"], counts["duplicate"]) == (5, 1, 1)
    assert counts["rejected"] == {"invalid": 3}
    rejected = read(spark, tmp_path / "s", "rejected").collect()
    assert {json.loads(row.message)["__inturn_corrupt_record"] for row in rejected} == {*lines[1:4]}
    assert {row.detail for row in rejected} == {"the line cannot be parsed as the message type"}


def test_run_reads_a_folder_of_parquet_files(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    frame = spark.createDataFrame([tuple(message.values()) for message in MESSAGES], DDL)
    frame.select("amount", "account", "revision").repartition(2).write.parquet(str(tmp_path / "messages"))
    ran = command(f"{LEDGER}:ledger", "--from", tmp_path / "messages", "--store", tmp_path / "s", "--buckets", 3)
    assert ran.exit_code == 0, ran.stderr
    assert_tables(spark, tmp_path / "s", ledger.replay(MESSAGES))
    counts = ledger.replay(MESSAGES).counts
    printed = [line.split() for line in ran.stdout.splitlines()]
    shown = {"│".join(words) for words in printed}
    assert any(f"received│││{counts.received}│││applied│││{counts.applied}" in line for line in shown), ran.stdout
    assert ran.stderr == "", "no progress where there is no terminal"


@pytest.mark.parametrize(
    "columns",
    [
        ("account", "revision", "amount"),
        ("account", "amount", "revision"),
    ],
)
def test_run_reads_csv(spark: SparkSession, command: Command, tmp_path: Path, columns: tuple[str, ...]) -> None:
    as_csv(tmp_path / "messages.csv", *columns)
    ran = command(f"{LEDGER}:ledger", "--from", tmp_path / "messages.csv", "--store", tmp_path / "s", "--json")
    assert ran.exit_code == 0, ran.stderr
    assert_tables(spark, tmp_path / "s", ledger.replay(MESSAGES))


WITH_DEFAULTS = """
from dataclasses import dataclass
from inturn import Gapless, Pipeline

@dataclass
class Order:
    customer: str
    number: int
    note: str = "none"

orders = Pipeline(name="o", group="customer", order=Gapless("number"), message=Order,
                  handler=lambda state, order: (state, [order.note]))
plain = Pipeline(name="o", group="customer", order=Gapless("number"), handler=lambda state, order: (state, [order]))
not_one = 7
"""


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv"])
def test_a_message_field_missing_in_the_files_takes_its_default(
    spark: SparkSession, command: Command, tmp_path: Path, name: str
) -> None:
    (tmp_path / "orders.py").write_text(WITH_DEFAULTS)
    (tmp_path / "in.jsonl").write_text('{"customer": "c", "number": 1}\n')
    (tmp_path / "in.csv").write_text("customer,number\nc,1\n")
    ran = command(f"{tmp_path}/orders.py:orders", "--from", tmp_path / name, "--store", tmp_path / "s")
    assert ran.exit_code == 0, ran.stderr
    assert [row.output for row in read(spark, tmp_path / "s", "outputs").collect()] == ['"none"']


def test_dict_messages_have_the_columns_of_the_file(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(WITH_DEFAULTS)
    (tmp_path / "in.csv").write_text('number,customer,note\n1,c,"a, b"\n2,c,\n')
    ran = command(f"{tmp_path}/orders.py:plain", "--from", tmp_path / "in.csv", "--store", tmp_path / "s")
    assert ran.exit_code == 0, ran.stderr
    outputs = read(spark, tmp_path / "s", "outputs").orderBy("revision").collect()
    assert [json.loads(row.output) for row in outputs] == [
        {"number": 1, "customer": "c", "note": "a, b"},
        {"number": 2, "customer": "c", "note": None},
    ]


NOT_DONE: dict[str, tuple[list[Any], int, str]] = {
    "no such file": (["{here}/none.py:orders"], 1, "PipelineError: file {here}/none.py does not exist"),
    "no name": (["{here}/orders.py"], 1, "expected ledger.py:ledger or package.module:name"),
    "no such module": (["no_such_module:orders"], 1, "no module 'no_such_module'"),
    "no pipeline": (["{here}/orders.py:not_one"], 1, "orders.py; existing pipelines: orders, plain"),
    "no messages": (["{here}/orders.py:orders", "--from", "{here}/none.json"], 1, "InputError: no file or folder"),
    "no known ending": (["{here}/orders.py:orders", "--from", "{here}/orders.py"], 1, "add --format parquet, json or"),
    "no known format": (["{here}/orders.py:orders", "--format", "xml"], 1, "--format 'xml' is not known"),
    "no Parquet": (["{here}/orders.py:orders", "--format", "parquet"], 1, "cannot read {here}/in.jsonl as parquet"),
    "no time": (["{here}/orders.py:orders", "--now", "soon"], 2, "Invalid value for '--now'"),
    "no such option": (["{here}/orders.py:orders", "--bucket", "3"], 2, "No such option"),
}


@pytest.mark.parametrize("case", NOT_DONE)
def test_run_reports_invalid_arguments_without_a_traceback(command: Command, tmp_path: Path, case: str) -> None:
    (tmp_path / "orders.py").write_text(WITH_DEFAULTS)
    (tmp_path / "in.jsonl").write_text('{"customer": "c", "number": 1}\n')
    words, code, says = NOT_DONE[case]
    arguments = [argument.format(here=tmp_path) for argument in words]
    if "--from" not in arguments:
        arguments += ["--from", str(tmp_path / "in.jsonl")]
    ran = command(*arguments, "--store", tmp_path / "store")
    printed = " ".join(ran.stderr.replace("│", " ").split())
    assert " ".join(says.format(here=tmp_path).split()) in printed.replace("- ", "-")
    assert (ran.exit_code, ran.stdout) == (code, "")
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "store").exists()


def test_run_reports_an_error_of_a_spark_worker_without_a_traceback(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from inturn import Gapless, Pipeline\n"
        "bad = Pipeline(name='bad', group='customer', order=Gapless('number'), handler=lambda state, order: None)\n"
    )
    (tmp_path / "in.jsonl").write_text('{"customer": "c", "number": 1}\n')
    ran = command(f"{tmp_path}/bad.py:bad", "--from", tmp_path / "in.jsonl", "--store", tmp_path / "s", "--json")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("HandlerError: the handler of pipeline 'bad' must take")


@pytest.mark.slow
def test_run_works_in_a_separate_process_with_master_and_now(spark: SparkSession, tmp_path: Path) -> None:
    as_json(tmp_path / "messages.jsonl")
    arguments = [f"{LEDGER}:ledger", "--from", tmp_path / "messages.jsonl", "--store", tmp_path / "s", "--json"]
    ran = run("-m", "inturn.cli", "run", *arguments, "--master", "local[2]", "--now", "2026-01-01T12:00:00")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["counts"]["received"] == len(MESSAGES)
    assert ran.stderr == ""
    assert_tables(spark, tmp_path / "s", ledger.replay(MESSAGES))
    (step,) = read(spark, tmp_path / "s", "steps").collect()
    assert f"{step.time:%F %T}" == "2026-01-01 12:00:00"


def test_a_topic_without_the_kafka_connector_is_reported_with_the_remedy(command: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        source = f"kafka://127.0.0.1:{broker.getsockname()[1]}/payments"
        ran = command(f"{LEDGER}:ledger", "--from", source, "--store", tmp_path / "s", "--jars", "")
    assert ran.exit_code == 1
    assert "no Kafka connector (org.apache.spark:spark-sql-kafka" in " ".join(ran.stderr.split())
    assert "--jars a.jar,b.jar" in " ".join(ran.stderr.split())


@pytest.mark.parametrize("option", ["--mapping", "--jars"])
def test_options_of_a_topic_are_refused_for_another_source(command: Command, tmp_path: Path, option: str) -> None:
    ran = command(f"{LEDGER}:ledger", "--from", tmp_path, "--store", tmp_path / "s", option, "m")
    assert ran.exit_code == 1
    assert "kafka://HOST:PORT/" in " ".join(ran.stderr.split())
