"""The states in a table of PostgreSQL: after each publication the groups of the last step, each step once.

Steps run in this process on real files (see ``kernel_harness``); PostgreSQL is real.
"""

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import inturn.spark
from inturn import Pipeline
from inturn.core.errors import InputError, StoreError, StoreMismatch
from inturn.core.pipeline.timeline import Status
from inturn.spark import vacuum
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.driver.postgres_states import StatesTable, publish_to_postgres
from inturn.spark.tables.delta_table import PublishProgress
from kernel_harness import Bench, Bounds
from spark.tables.test_delta_states import SCHEMA, history, pipeline, rows


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(pipeline(), SCHEMA, root=tmp_path / "store", bounds=Bounds(levels=2))


@pytest.fixture
def target(empty_postgres_url: str) -> StatesTable:
    return StatesTable.of(f"{empty_postgres_url}#balances")


def publish(bench: Bench, target: StatesTable) -> PublishProgress:
    return publish_to_postgres(bench.store, "ledger", target)


def asked(target: StatesTable, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(target.address) as db:
        return db.execute(query.encode()).fetchall()


def by_postgres(target: StatesTable) -> set[tuple[Any, ...]]:
    selected = asked(target, 'select "group", status, revision, held, step, state::text from balances')
    return {(*row[:-1], row[-1].replace(" ", "")) for row in selected}


def by_store(bench: Bench) -> set[tuple[Any, ...]]:
    return {
        (
            group.group,
            group.status if group.status in (Status.OPEN, Status.WAITING) else "parked",
            group.reached,
            group.held,
            group.step,
            as_jsonb(group.state),
        )
        for group in SparkInspector(bench.root).groups()
    }


def as_jsonb(state: dict[str, Any]) -> str:
    """PostgreSQL orders keys by their length."""
    return json.dumps(dict(sorted(state.items(), key=lambda item: (len(item[0]), item[0]))), separators=(",", ":"))


@pytest.mark.parametrize("seed", range(3))
def test_the_states_in_postgres_equal_the_last_step_of_the_store(bench: Bench, target: StatesTable, seed: int) -> None:
    chance = random.Random(seed)
    for number, messages in enumerate(history(seed), start=1):
        bench.step(messages)
        if chance.random() < 0.5:
            assert publish(bench, target).step == number
            assert by_postgres(target) == by_store(bench)
    publish(bench, target)
    assert by_postgres(target) == by_store(bench)


def test_publishing_unchanged_states_to_postgres_again_writes_nothing(bench: Bench, target: StatesTable) -> None:
    bench.step(rows(1, 2))
    assert publish(bench, target)[1:] == (0, 1)
    before = asked(target, "select xmin::text, ctid::text from balances order by 1, 2")
    assert publish(bench, target)[1:] == (1, 1)
    assert asked(target, "select xmin::text, ctid::text from balances order by 1, 2") == before


def test_a_publication_writes_only_the_changed_groups(bench: Bench, target: StatesTable) -> None:
    bench.step(rows(1, accounts="abcdefgh"))
    publish(bench, target)
    bench.step(rows(2, accounts="c"))
    publish(bench, target)
    (writers,) = asked(
        target, "select count(*) filter (where xmin = (select max(xmin::text)::xid from balances)) from balances"
    )
    assert writers == (1,)


def test_vacuumed_unpublished_steps_are_added_by_the_next_publication(bench: Bench, target: StatesTable) -> None:
    bench.step(rows(1))
    publish(bench, target)
    for revision in range(2, 7):
        bench.step(rows(revision, accounts="abc"[: revision % 3 + 1]))
    vacuum(bench.root, keep_steps=1, older_than_s=0)
    assert publish(bench, target)[1:] == (1, 6)
    assert by_postgres(target) == by_store(bench)


def test_concurrent_publishers_write_the_states_of_the_last_step(bench: Bench, target: StatesTable) -> None:
    for revision in range(1, 6):
        bench.step(rows(revision))
    with ThreadPoolExecutor(4) as pool:
        assert {progress.step for progress in pool.map(lambda _: publish(bench, target), range(4))} == {5}
    assert by_postgres(target) == by_store(bench)


def test_publishing_a_store_of_another_history_is_refused(bench: Bench, target: StatesTable, tmp_path: Path) -> None:
    bench.step(rows(1))
    shutil.copytree(bench.root, tmp_path / "older")
    bench.step(rows(2))
    publish(bench, target)
    older = Bench(pipeline(), SCHEMA, root=tmp_path / "older")
    for _ in range(2):
        with pytest.raises(StoreMismatch, match="the store was restored from an older copy, or is a different one"):
            publish(older, target)
        older.step(rows(2, amount=7))


def test_nul_in_a_state_becomes_the_replacement_character_in_jsonb(empty_postgres_url: str, tmp_path: Path) -> None:
    def note(_state: dict[str, str], message: dict[str, Any]) -> tuple[dict[str, str], list[Any]]:
        return {"text": "a\0b", "escaped": "\\u0000"}, []

    noted = Pipeline(name="ledger", group="account", order=pipeline().order, handler=note)
    bench, target = Bench(noted, SCHEMA, root=tmp_path / "store"), StatesTable.of(f"{empty_postgres_url}#balances")
    bench.step(rows(1, accounts="a"))
    publish(bench, target)
    assert asked(target, "select state from balances") == [({"text": "a\ufffdb", "escaped": "\\u0000"},)]


def test_a_user_table_without_a_required_column_is_refused(bench: Bench, target: StatesTable) -> None:
    bench.step(rows(1))
    with psycopg.connect(target.address) as db:
        db.execute('create table balances ("group" text)')
    with pytest.raises(InputError, match="has no column 'status'; name a table that inturn created, or one"):
        publish(bench, target)


def test_an_unreachable_postgres_is_reported_without_the_password(bench: Bench) -> None:
    bench.step(rows(1))
    with pytest.raises(
        StoreError, match=r"cannot write the states to postgresql://me@127.0.0.1:1/shop#balances: "
    ) as caught:
        inturn.spark.publish(bench.root, to="postgresql://me:secret@127.0.0.1:1/shop#balances")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong", ["balances", "shop.db#balances", "postgresql://me@h/shop", "postgresql://h/d#a.b.c", "postgresql://h/d#a."]
)
def test_a_publication_target_without_a_table_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=r"expected postgresql://…#TABLE"):
        StatesTable.of(wrong)
