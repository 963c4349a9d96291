"""The results of a pipeline are the same rows in SQLite, in PostgreSQL and in a store on Spark."""

import copy
import datetime as dt
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.core import limits
from inturn.core.errors import InputError, NoSuchGroup, SetupError, StateError
from inturn.core.pipeline.journal import Counts
from inturn.database import Database
from inturn.results.pipeline import PipelineResults
from inturn.results.state_columns import state_columns
from inturn.spark.columns.hashing import group_hash
from inturn.spark.driver.inspection import SparkInspector
from inturn.worker import Worker
from kernel_harness import Bench

pytestmark = pytest.mark.thorough
UTC = dt.UTC


@dataclass
class Account:
    """A state with values that JSON lacks."""

    balance: int = 0
    key: bytes = b"\0\xff"
    at: dt.datetime = dt.datetime(2026, 1, 1, tzinfo=UTC)
    limit: Decimal | None = Decimal("0.50")
    by_day: dict[int, list[int]] = field(default_factory=dict)


class AccountModel(pydantic.BaseModel):
    """The same as a model."""

    balance: int = 0
    key: bytes = b""
    at: dt.datetime | None = None
    limit: Decimal | None = None
    by_day: dict[int, list[int]] = {}


def post(state: Account, message: dict[str, Any]) -> tuple[Account, list[Any]]:
    if message["amount"] < 0:
        raise ValueError(f"amount {message['amount']} is below zero")
    state.balance += message["amount"]
    state.by_day.setdefault(message["n"], []).append(message["amount"])
    return state, [{"balance": state.balance}]


LEDGER = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("n"), state=Account, handler=post)
SCHEMA = pa.schema({"account": pa.string(), "n": pa.int64(), "amount": pa.int64()})
FIRST = [("bad", 1, 1), ("early", 2, 1), ("well", 1, 5), ("well", 2, 6), ("well", 2, 7)]
THEN = [("bad", 2, -1), ("well", 3, 1)]
SHOWN = {"key": "AP8=", "at": "2026-01-01T00:00:00Z", "limit": "0.50"}
STATES = [
    ("bad", "failed", None, 1, 1, {"balance": 1, **SHOWN, "by_day": {"1": [1]}}),
    ("early", "waiting", None, None, 1, {"balance": 0, **SHOWN, "by_day": {}}),
    ("well", "open", None, 3, 0, {"balance": 12, **SHOWN, "by_day": {"1": [5], "2": [6], "3": [1]}}),
]
OUTPUTS = [("bad", 1, 1), ("well", 1, 5), ("well", 2, 11), ("well", 3, 12)]


@pytest.fixture(params=["sqlite", "postgres", "spark"])
def at(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store, as commands are given it, in which two steps or workers have left something of every kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    if request.param == "spark":
        bench = Bench(LEDGER, SCHEMA, root=tmp_path / "store")
        bench.hash_of = group_hash  # type: ignore[method-assign]
        for part in (FIRST, THEN):
            bench.step([dict(zip(SCHEMA.names, values, strict=True)) for values in part])
        return "store"
    path = "shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with inturn.open(path, durable=False) as db:
        for part in (FIRST, THEN):
            send(db, part)
            inturn.work(LEDGER, db.queue("q"), until="empty")
    return f"{path}#ledger"


@pytest.fixture
def results(at: str) -> Iterator[PipelineResults]:
    if at == "store":
        yield PipelineResults(SparkInspector(at))
        return
    with inturn.open(at.removesuffix("#ledger")) as db:
        yield db.pipeline("ledger")


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.chdir(tmp_path)
    with inturn.open("shop.db", durable=False) as db:
        send(db, [("a", 1, 5), ("b", 1, 6)])
        inturn.work(LEDGER, db.queue("q"), until="empty")
        yield db


def send(db: Database, messages: list[tuple[str, int, int]]) -> None:
    for account, n, amount in messages:
        db.queue("q").send({"amount": amount}, group=account, revision=n)


def command(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_states_and_parked_groups_are_listed(results: PipelineResults) -> None:
    names = ("group", "status", "epoch", "revision", "held", "state")
    states = sorted(tuple(row[name] for name in names) for row in results.states().records())
    assert states == STATES
    assert [row.state["balance"] for row in results.states("well")] == [12]
    assert sorted(parked.group for parked in results.parked()) == ["bad", "early"]
    [error] = [parked.error for parked in results.parked() if parked.group == "bad"]
    assert (error or "").endswith("ValueError: amount -1 is below zero\n")


def test_a_state_is_read_as_json_values_or_as_a_type(results: PipelineResults) -> None:
    assert results.state("bad") == STATES[0][-1]
    assert results.state("bad", Account) == Account(1, by_day={1: [1]})
    with pytest.raises(StateError, match=r"the state of group 'bad' is not a valid int: .*omit type="):
        results.state("bad", int)
    account = Account(1, by_day={1: [1]})
    assert results.state("bad", AccountModel) == AccountModel(**vars(account))
    with pytest.raises(InputError, match="'nobody'"):
        results.state("nobody")


def test_outputs_are_listed_with_effect_ids(results: PipelineResults) -> None:
    assert sorted((output.group, output.revision, output.output["balance"]) for output in results.outputs()) == OUTPUTS
    assert [(output.revision, output.index, output.id) for output in results.outputs("bad")] == [(1, 0, None)]
    replayed = {output.effect_id for output in LEDGER.replay(messages(FIRST)).outputs}
    assert {output.effect_id for output in results.outputs()} > replayed


def messages(rows: list[tuple[str, int, int]]) -> list[dict[str, Any]]:
    return [dict(zip(SCHEMA.names, values, strict=True)) for values in rows]


def test_rejected_messages_are_listed_with_reasons(results: PipelineResults) -> None:
    [rejected] = results.rejected()
    assert (rejected.group, rejected.reason, json.loads(rejected.message)["amount"]) == ("well", "conflict", 7)
    assert rejected.at.tzinfo is not None
    assert list(results.rejected("bad")) == []


def test_results_convert_to_arrow_and_pandas(results: PipelineResults) -> None:
    table = results.states().arrow()
    assert {row["group"]: json.loads(row["state"]) for row in table.to_pylist()} == {row[0]: row[-1] for row in STATES}
    assert str(table.schema.field("oldest").type) == "timestamp[us, tz=UTC]"
    assert set(results.outputs().pandas()["group"]) == {"bad", "well"}
    assert results.failing().arrow().num_rows == 0


def test_the_fields_of_a_record_state_are_typed_columns_in_arrow_and_parquet(results: PipelineResults, at: str) -> None:
    command("states", at, "--to", "states.parquet")
    for table in (results.states().arrow(), pq.read_table("states.parquet")):
        assert {name: str(table.schema.field(name).type) for name in ("balance", "key", "at", "limit", "by_day")} == {
            "balance": "int64",
            "key": "binary",
            "at": "timestamp[us, tz=UTC]",
            "limit": "string",
            "by_day": "string",
        }
        rows = {row["group"]: row for row in table.to_pylist()}
        assert {group: (row["balance"], row["key"], row["at"].isoformat()) for group, row in rows.items()} == {
            group: (balance, b"\0\xff", "2026-01-01T00:00:00+00:00")
            for group, balance in (("bad", 1), ("early", 0), ("well", 12))
        }
        assert {row["limit"] for row in rows.values()} == {"0.50"}
        assert json.loads(rows["well"]["by_day"]) == {"1": [5], "2": [6], "3": [1]}
    assert results.parked().pandas()["balance"].tolist() == [1, 0]
    assert "balance" not in results.outputs().arrow().schema.names


def test_state_columns_have_types_of_their_own_and_unique_names() -> None:
    shape = {
        "record": {
            "n": {"or": ["NoneType", "int"]},
            "kind": {"enum": ["a", "b"]},
            "mixed": {"enum": ["a", 1]},
            "either": {"or": ["int", "str"]},
            "Error": "datetime",
            "inner": {"record": {"x": "int"}, "owed": []},
            "price": {"or": ["Decimal", "NoneType"]},
            "uuid": "UUID",
        },
        "owed": [],
    }
    columns = state_columns(shape, ("group", "error"))
    assert [(column.name, column.type) for column in columns] == [
        ("n", "int"),
        ("kind", "str"),
        ("mixed", None),
        ("either", None),
        ("state_Error", "datetime"),
        ("inner", None),
        ("price", "Decimal"),
        ("uuid", "UUID"),
    ]
    assert {str(column.arrow_type) for column in columns[-2:]} == {"string"}
    naive, inner = "2026-01-01T00:00:00", {"x": 1}
    unfit = {"n": 2**63, "kind": 1, "mixed": 1, "either": "x", "Error": naive, "inner": inner, "price": 1, "uuid": 1}
    assert [column.value(unfit) for column in columns] == [None, None, "1", '"x"', None, '{"x":1}', None, None]
    assert [column.value([]) for column in columns] == [None] * 8
    assert state_columns("dict", ()) == state_columns(None, ()) == []


def test_results_are_read_in_pages(results: PipelineResults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESULT_ROWS", 2)
    assert sorted(row.group for row in results.states()) == ["bad", "early", "well"]
    assert len(list(results.outputs())) == len(OUTPUTS)
    assert [batch.num_rows for batch in results.outputs().batches()] == [2, 2]


def test_every_output_format_has_the_same_rows(at: str) -> None:
    printed = command("outputs", at, "--format", "json")
    records = [json.loads(line) for line in printed.stdout.splitlines()]
    assert sorted((record["group"], record["revision"], record["output"]["balance"]) for record in records) == OUTPUTS
    assert command("outputs", at, "--json").stdout == printed.stdout
    assert command("outputs", at, "--to", "rows.parquet").stderr == "4 rows written to rows.parquet.\n"
    assert [json.loads(text) for text in pq.read_table("rows.parquet")["output"].to_pylist()] == [
        record["output"] for record in records
    ]
    command("outputs", at, "--to", "rows", "--format", "csv", "--limit", 1)
    assert len(Path("rows").read_text().splitlines()) == 2
    shown = command("states", at, "--group", "well")
    assert [line.split() for line in shown.stdout.splitlines()][1][:3] == ["well", "open", "3"]
    assert (
        command("states", at, "--limit", 1).stderr == "Shown: the first 1; use --limit for more, or --json for all.\n"
    )
    assert command("outputs", at, "--group", "early").stdout == "No results.\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--format", "csv"), "csv needs a file; pass --to, such as --to states.csv"),
        (("--json", "--format", "csv"), "--json and --format csv exclude each other"),
        (("--to", "states.txt"), "--to states.txt: unknown format"),
        (("--to", "none/states.csv"), "No such file or directory"),
        (("--group", "nobody"), "has no group 'nobody'"),
    ],
)
def test_an_invalid_output_format_or_target_is_reported(db: Database, options: tuple[str, ...], why: str) -> None:
    result = command("states", "shop.db#ledger", *options)
    assert result.exit_code == 1
    assert why in result.stderr


def test_a_missing_pyarrow_is_named_in_the_error(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in {"pyarrow", "pandas"}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SetupError, match=r"pip install 'inturn\[arrow\]'"):
        db.pipeline("ledger").states().arrow()
    assert "pip install 'inturn[arrow]'" in command("states", "shop.db#ledger", "--to", "x.parquet").stderr
    assert command("states", "shop.db#ledger", "--to", "x.csv").exit_code == 0


def test_the_pipelines_of_a_database_are_listed(at: str) -> None:
    if at == "store":
        pytest.skip("a store on Spark is of one pipeline")
    path = at.removesuffix("#ledger")
    with inturn.open(path) as db:
        assert db.pipelines() == ["ledger"]
    numbers = {"groups": 3, "waiting": 1, "parked": 1, "held": 2, "outputs": 4, "versions": {"1": 3}}
    assert json.loads(command("pipelines", path, "--json").stdout) == [{"pipeline": "ledger", **numbers}]
    assert command("pipelines", path).stdout.splitlines()[1].split() == ["ledger", "3", "1", "1", "2", "4"]


def test_a_pipeline_that_has_not_run_has_no_results(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for target in (str(tmp_path / "new.db"), request.getfixturevalue("postgres_url")):
        with inturn.open(target, durable=False) as db:
            results = db.pipeline("ledger")
            for wrong in (5, None):
                with pytest.raises(InputError):
                    db.pipeline(wrong)  # type: ignore[arg-type]
            assert list(inturn.dry_run(LEDGER, results, "resume", all=True)) == []
            assert [effect.void for effect in inturn.dry_run(LEDGER, results, "drop", "a")] == [
                "pipeline 'ledger' has no group 'a'"
            ]
            tables = (results.states, results.parked, results.outputs, results.rejected, results.failing)
            assert [list(table()) for table in tables] == [[], [], [], [], []]
            assert results.states().arrow().num_rows == 0
            assert (results.counts(), results.redeliver()) == (Counts(), 0)
            assert results.resume(all=True, by="ann").pending == {}
            assert results.drop("a", by="ann").void == {"a": "pipeline 'ledger' has no group 'a'"}
            with pytest.raises(NoSuchGroup):
                results.state("a")
            db.queue("q").send({"account": "a", "n": 1, "amount": 3}, group="a")
            inturn.work(LEDGER, db.queue("q"), until="empty")
            assert results.state("a", Account).balance == 3
            assert [row["revision"] for row in results.states().arrow().to_pylist()] == [1]
        stderr = command("states", f"{target}#other").stderr
        assert "no pipeline 'other'; existing pipelines: ledger" in stderr, "a command was given a name that is wrong"


def test_a_missing_group_raises_no_such_group(results: PipelineResults) -> None:
    for ask in (results.group, results.state, lambda name: list(results.states(name)), results.inspector.explain):
        with pytest.raises(KeyError) as raised:
            ask("nobody")
        assert isinstance(raised.value, NoSuchGroup)
        assert str(raised.value).endswith("has no group 'nobody'"), "without the quotes of a KeyError"
    assert (str(NoSuchGroup()), str(copy.copy(NoSuchGroup("x")))) == ("", "x")
    assert list(results.outputs("nobody")) == list(results.rejected("nobody")) == []


def test_undelivered_outputs_and_failing_groups_are_listed(at: str) -> None:
    if at == "store":
        pytest.skip("nothing is delivered from a store on Spark")

    def refuse(output: Any, effect_id: str) -> None:
        if output["balance"] == 11:
            raise OSError("the bank is closed")

    path = at.removesuffix("#ledger")
    with inturn.open(path) as db, Worker(LEDGER, db.queue("q"), deliver=refuse):
        results = db.pipeline("ledger")
        until = dt.datetime.now(UTC) + dt.timedelta(seconds=60)
        while not list(results.failing()) or len(list(results.outputs())) > 2:
            assert dt.datetime.now(UTC) < until
    with inturn.open(path) as db:
        results = db.pipeline("ledger")
        assert [(output.group, output.output["balance"]) for output in results.outputs()] == [
            ("well", 11),
            ("well", 12),
        ]
        [failing] = results.failing()
        assert (failing.group, failing.outputs) == ("well", 2)
        assert failing.attempts > 0
        assert failing.error.endswith("OSError: the bank is closed\n")
        assert results.states().arrow().num_rows == 3
        assert results.counts().received == len(FIRST) + len(THEN)  # type: ignore[union-attr]
    listed = {row["group"]: row for row in json.loads(command("parked", "list", at, "--json").stdout)}
    assert {group: row["status"] for group, row in listed.items()} == {
        "bad": "failed", "early": "waiting", "well": "delivering"
    }  # fmt: skip
    assert listed["well"]["attempts"] == failing.attempts
    assert "OSError: the bank is closed; failed " in command("parked", "list", at).stdout
