"""The states as a Delta table: after each publication the groups of the last step, and the changes of each as a feed.

Steps run in this process on real files (see ``kernel_harness``); deltalake and DuckDB are real.
"""

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import inturn.spark
from inturn import Gapless, Monotone, Pipeline
from inturn.core.errors import InputError, StoreError, StoreMismatch
from inturn.core.pipeline.timeline import Status
from inturn.spark import sweep, vacuum
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.tables import delta_states
from inturn.spark.tables.delta_states import ROOT, publish_states
from kernel_harness import Bench, Bounds

SCHEMA = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": pa.int64()})
SETTLED = (Status.OPEN, Status.WAITING)


class Account(msgspec.Struct):
    """A state with a field of a column type, and one that is JSON; ``group`` is a column of the table already."""

    balance: int = 0
    seen: list[int] = []
    group: str = "x"


class Wider(Account):
    """The same after a field was added."""

    note: str = "new"


def post(account: Any, message: dict[str, Any]) -> tuple[Any, list[Any]]:
    if message["amount"] < 0:
        raise ValueError("below zero")
    seen = [*account.seen, message["revision"]]
    return msgspec.structs.replace(account, balance=account.balance + message["amount"], seen=seen), []


def pipeline(state: type = Account, **more: Any) -> Pipeline:
    known = {"name": "ledger", "group": "account", "order": Gapless("revision"), "state": state, "handler": post}
    return Pipeline(**(known | more))


def rows(*revisions: int, accounts: str = "ab", amount: int = 2) -> list[dict[str, Any]]:
    return [
        {"account": account, "revision": revision, "amount": amount} for account in accounts for revision in revisions
    ]


def history(seed: int) -> list[list[dict[str, Any]]]:
    """Steps of messages: early, late, twice, one that fails; some steps have none."""
    chance = random.Random(seed)
    remaining = [rows(n, accounts=account, amount=chance.randint(0, 9)) for account in "abcdefgh" for n in range(1, 12)]
    chance.shuffle(remaining)
    remaining[7][0]["amount"] = -1
    steps: list[list[dict[str, Any]]] = []
    while remaining:
        size = chance.choice([0, 1, 3, 9])
        steps.append([message for part in remaining[:size] for message in part])
        remaining = remaining[size:]
    return steps


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(pipeline(), SCHEMA, root=tmp_path / "the store, 100% ü #", bounds=Bounds(levels=2))


def table(bench: Bench) -> DeltaTable:
    return DeltaTable(bench.root / ROOT)


def by_delta(bench: Bench) -> dict[str, tuple[Any, ...]]:
    return {row["group"]: told(row) for row in table(bench).to_pyarrow_table().to_pylist()}


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    seen = msgspec.json.decode(row["seen"])
    return row["status"], row["revision"], row["held"], row["step"], row["balance"], seen, row["state_group"]


def by_store(bench: Bench) -> dict[str, tuple[Any, ...]]:
    return {
        group.group: (
            group.status if group.status in SETTLED else "parked",
            group.reached,
            group.held,
            group.step,
            *group.state.values(),
        )
        for group in SparkInspector(bench.root).groups()
    }


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_the_published_states_equal_the_last_step_of_the_store(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    for number, messages in enumerate(history(seed), start=1):
        bench.step(messages)
        if chance.random() < 0.5:
            done = publish_states(bench.store, "ledger")
            if by_store(bench):
                assert done.step == number
                assert by_delta(bench) == by_store(bench)
    publish_states(bench.store, "ledger")
    assert by_delta(bench) == by_store(bench)
    assert {row[0] for row in by_delta(bench).values()} >= {"open", "parked"}


def test_publishing_unchanged_states_again_adds_nothing(bench: Bench) -> None:
    bench.step(rows(1, 2))
    first = publish_states(bench.store, "ledger")
    assert (first.before, first.step) == (0, 1)
    version = table(bench).version()
    assert publish_states(bench.store, "ledger")[1:] == (1, 1)
    assert table(bench).version() == version


def test_the_change_feed_contains_the_changes_of_each_step(bench: Bench) -> None:
    for messages in (rows(1), rows(2, accounts="a"), rows(1, accounts="c")):
        bench.step(messages)
        publish_states(bench.store, "ledger")
    feed = pa.table(table(bench).load_cdf(starting_version=0)).to_pylist()
    changes = sorted(
        (change["_commit_version"], change["_change_type"], change["group"], change["balance"]) for change in feed
    )
    assert changes == [
        (0, "insert", "a", 2),
        (0, "insert", "b", 2),
        (1, "update_postimage", "a", 4),
        (1, "update_preimage", "a", 2),
        (2, "insert", "c", 2),
    ]


def test_unpublished_steps_are_added_by_the_next_publication(bench: Bench) -> None:
    bench.step(rows(1))
    publish_states(bench.store, "ledger")
    bench.step(rows(2, accounts="a"))
    bench.step(rows(2, accounts="b"))
    assert publish_states(bench.store, "ledger")[1:] == (1, 3)
    assert table(bench).version() == 2, "one commit for each step"
    assert by_delta(bench) == by_store(bench)


def test_vacuumed_steps_are_published_as_one_commit(bench: Bench) -> None:
    bench.step(rows(1))
    publish_states(bench.store, "ledger")
    for revision in range(2, 9):
        bench.step(rows(revision, accounts="abc"[: revision % 3 + 1]))
    vacuum(bench.root, keep_steps=1, older_than_s=0)
    publish_states(bench.store, "ledger")
    assert by_delta(bench) == by_store(bench)
    assert table(bench).version() == 1


def test_sweep_and_vacuum_keep_the_states_table_intact(bench: Bench) -> None:
    bench.step(rows(1))
    publish_states(bench.store, "ledger")
    bench.step(rows(2))
    vacuum(bench.root, keep_steps=1, older_than_s=0)
    sweep(bench.root, older_than_s=0)
    publish_states(bench.store, "ledger")
    assert by_delta(bench) == by_store(bench)


def test_a_new_state_field_becomes_a_column(bench: Bench) -> None:
    bench.step(rows(1))
    publish_states(bench.store, "ledger")
    bench.pipeline = pipeline(Wider)
    bench.step(rows(2, accounts="a"))
    publish_states(bench.store, "ledger")
    notes = {row["group"]: row["note"] for row in table(bench).to_pyarrow_table().to_pylist()}
    assert notes == {"a": "new", "b": None}, "as read() has it: b was stored before the field existed"


def test_a_new_pipeline_version_publishes_all_states(bench: Bench) -> None:
    bench.step(rows(1))
    publish_states(bench.store, "ledger")
    bench.pipeline = pipeline(Wider, version=2, upgrade=lambda state, _version: Wider(**state, note="old"))
    bench.step(rows(2, accounts="a"))
    publish_states(bench.store, "ledger")
    notes = {row["group"]: row["note"] for row in table(bench).to_pyarrow_table().to_pylist()}
    assert notes == {"a": "old", "b": "old"}


def test_concurrent_publishers_publish_each_states_step_once(bench: Bench) -> None:
    bench.step(rows(1))
    publish_states(bench.store, "ledger")
    for revision in range(2, 7):
        bench.step(rows(revision))
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: publish_states(bench.store, "ledger"), range(4)))
    assert {progress.step for progress in done} == {6}
    assert table(bench).version() == 5
    assert by_delta(bench) == by_store(bench)


def test_a_states_table_of_another_history_is_refused_until_recreated(bench: Bench, tmp_path: Path) -> None:
    bench.step(rows(1))
    shutil.copytree(bench.root, tmp_path / "older")
    bench.step(rows(2))
    publish_states(bench.store, "ledger")
    shutil.copytree(bench.root / ROOT, tmp_path / "older" / ROOT)
    older = Bench(pipeline(), SCHEMA, root=tmp_path / "older")
    with pytest.raises(StoreMismatch, match=r"has the states of step 2, but .* ends with step 1"):
        publish_states(older.store, "ledger")
    older.step(rows(2, amount=7))
    with pytest.raises(StoreMismatch, match=r"of a different step 2 .* run: inturn publish .* --states"):
        publish_states(older.store, "ledger")
    shutil.rmtree(older.root / ROOT / "_delta_log")
    publish_states(older.store, "ledger")
    assert by_delta(older) == by_store(older)


def test_an_order_without_epochs_publishes_a_null_epoch(tmp_path: Path) -> None:
    bench = Bench(pipeline(order=Monotone("revision")), SCHEMA, root=tmp_path / "store")
    bench.step(rows(5))
    publish_states(bench.store, "ledger")
    rows_ = table(bench).to_pyarrow_table().to_pylist()
    assert [(row["epoch"], row["revision"]) for row in rows_] == [(None, 5), (None, 5)]


def test_duckdb_reads_the_states_table(bench: Bench) -> None:
    bench.step(rows(1, 2))
    publish_states(bench.store, "ledger")
    states = table(bench).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("states", states)
        assert connection.execute('select "group", balance from states order by 1').fetchall() == [("a", 4), ("b", 4)]


def test_a_failed_publication_of_states_says_how_to_repeat_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.step(rows(1))

    def fail(*_: object, **__: object) -> None:
        raise DeltaError("the disk is full")

    monkeypatch.setattr(delta_states, "_create", fail)
    with pytest.raises(StoreError, match=r"the disk is full; the store is complete\. .* --states"):
        inturn.spark.publish(bench.root, table="states")


def test_publishing_an_unknown_table_is_refused(bench: Bench) -> None:
    bench.step(rows(1))
    with pytest.raises(InputError, match="table is 'held'; expected 'outputs' or 'states'"):
        inturn.spark.publish(bench.root, table="held")  # type: ignore[arg-type]
