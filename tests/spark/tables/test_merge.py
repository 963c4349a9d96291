"""Levels that merge: the tables stay the same, their number stays small, and each row is written again rarely."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_store import SCHEMA, files, ledger, rows
from typer.testing import CliRunner

from inturn.cli import app
from inturn.core import limits
from inturn.core.errors import InputError, StoreError
from inturn.spark.tables.manifest import DataFile, StoreLevel
from inturn.spark.tables.merge import levels_to_merge
from inturn.spark.tables.vacuum import sweep, vacuum, vacuum_files
from kernel_harness import Bench, Bounds


def level(size: int) -> StoreLevel:
    return StoreLevel(1, [DataFile("groups", size, 0, 0)], [])


def merged(sizes: list[int]) -> list[int]:
    count = levels_to_merge([level(size) for size in sizes])
    return sizes if not count else [*sizes[:-count], sum(sizes[-count:])]


def test_fewer_levels_than_the_limit_are_not_merged() -> None:
    assert levels_to_merge([level(1)] * (limits.LEVELS - 1)) == 0


@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=300))
def test_the_number_of_levels_is_bounded(sizes: list[int]) -> None:
    levels: list[int] = []
    for size in sizes:
        levels = [*merged(levels), size]
        assert len(levels) <= limits.LEVELS


@pytest.mark.parametrize("base", [0, 100_000])
def test_each_row_is_rewritten_at_most_logarithmically_often(base: int) -> None:
    """A thousand steps of a hundred rows: no row more often than about the doublings, ten, whatever lies below."""
    levels, written = [base] * bool(base), 0
    for _ in range(1_000):
        before = levels
        levels = [*merged(levels), 100]
        written += levels[-2] if levels[:-1] != before else 0
    assert written <= 10 * 1_000 * 100


@pytest.mark.thorough
def test_merging_levels_keeps_the_results_and_bounds_the_files(tmp_path: Path) -> None:
    with (
        Bench(ledger, SCHEMA, root=tmp_path / "plain") as plain,
        Bench(ledger, SCHEMA, root=tmp_path / "merged", bounds=Bounds(levels=2)) as merging,
    ):
        for number in range(1, 30):
            messages = [
                *rows(number, account=f"every {number % 3}"),
                *rows(2 * number % 7 + 1),
                *rows(1, account=f"{number}"),
            ]
            assert plain.step(messages) == merging.step(messages)
            seen, expected = merging.seen(), plain.seen()
            assert seen == expected
            last = merging.store.latest()
            assert last is not None
            assert len(last.levels) <= 2
        assert sum(file.rows for level in last.levels for file in level.held) <= 2 * last.held


def test_vacuum_deletes_the_files_of_old_steps(tmp_path: Path) -> None:
    with Bench(ledger, SCHEMA, root=tmp_path / "store", bounds=Bounds(levels=2)) as bench:
        for number in range(1, 12):
            bench.step(rows(number))
        before, seen = files(bench), bench.seen()
        assert vacuum(bench.root, keep_steps=2) == [], "young files may belong to a step that is running"
        deleted = vacuum(bench.root, keep_steps=2, older_than_s=0)
        assert deleted
        assert len(files(bench)) == len(before) - len(deleted)
        assert bench.seen() == seen
        assert [bench.store.manifest(step).vacuumed for step in bench.store.steps()] == [True] * 9 + [False] * 2
        assert vacuum(bench.root, keep_steps=2, older_than_s=0) == sweep(bench.root, older_than_s=0) == []
        bench.step(rows(12))
        assert bench.seen().states["a"].balance == 12


def test_the_vacuum_command_prints_what_it_keeps(tmp_path: Path) -> None:
    with Bench(ledger, SCHEMA, root=tmp_path / "store", bounds=Bounds(levels=2)) as bench:
        for number in range(1, 8):
            bench.step(rows(number))

    def run(*more: str) -> str:
        ran = CliRunner().invoke(app, ["vacuum", str(bench.root), "--keep-steps", "2", *more])
        assert ran.exit_code == 0, ran.stderr
        return ran.stdout

    young = vacuum_files(bench.root, keep_steps=2)
    assert young.deleted == []
    count = len(young.younger)
    assert count > 0
    notice = f"{count} unneeded files kept, younger than 1 day; change the age with --older-than"
    assert run() == f"0 files deleted\n{notice}\n"
    assert json.loads(run("--json")) == {"deleted": [], "younger": young.younger}
    assert run("--older-than", "0 seconds") == f"{count} files deleted\n"
    wrong = CliRunner().invoke(app, ["vacuum", str(bench.root), "--older-than", "soon"])
    assert (wrong.exit_code, wrong.stderr.startswith("InputError: --older-than is 'soon'; expected")) == (
        1,
        True,
    )


def test_vacuum_refuses_to_delete_the_last_step(tmp_path: Path) -> None:
    with Bench(ledger, SCHEMA, root=tmp_path / "store") as bench:
        bench.step(rows(1))
        with pytest.raises(InputError, match="at least 1"):
            vacuum(bench.root, keep_steps=0)
    with pytest.raises(StoreError, match="is not a store"):
        vacuum(tmp_path / "nowhere")


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_last_step_is_found_without_listing_the_store(before: int, more: int) -> None:
    with Bench(ledger, SCHEMA) as bench:
        known = None
        for number in range(1, before + more + 1):
            name = f"steps/{number:012d}.json"
            (bench.root / name).parent.mkdir(exist_ok=True)
            if number == 1:
                bench.step(rows(1))
                text = (bench.root / name).read_text()
            else:
                (bench.root / name).write_text(text.replace('"step": 1,', f'"step": {number},', 1))
            if number == before:
                known = bench.store.latest()
                assert known is not None
                assert known.step == before
        last = bench.store.latest(known)
        assert (last.step if last else 0) == before + more
