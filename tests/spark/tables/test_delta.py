"""The outputs as a Delta table: deltalake and DuckDB see what committed steps emitted, each once, whoever publishes.

Steps run in this process on real files (see ``kernel_harness``); deltalake and DuckDB are real.
"""

import json
import re
import shlex
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from msgspec.structs import replace
from typer.testing import CliRunner

import inturn.spark
from inturn import Gapless, Pipeline
from inturn.cli import app
from inturn.core.errors import SetupError, StoreError, StoreMismatch
from inturn.spark import sweep
from inturn.spark.tables import delta
from inturn.spark.tables.delta import LOG, ROOT
from inturn.spark.tables.delta import publish_steps as publish
from inturn.spark.tables.manifest import SparkStore
from inturn.spark.tables.steps import HEAD
from kernel_harness import Bench
from waiting import DEADLINE_S

SCHEMA = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": pa.int64()})
APPLICATION = "inturn:ledger"


def post(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    balance = state.get("balance", 0) + message["amount"]
    return {"balance": balance}, [{"balance": balance, "note": 'a "quoted" ü'}] * (message["amount"] % 3)


ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=post)


def rows(*revisions: int, accounts: str = "ab", amount: int = 2) -> list[dict[str, Any]]:
    return [
        {"account": account, "revision": revision, "amount": amount} for account in accounts for revision in revisions
    ]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    # Whatever a folder may be called, Delta's files must be found in it.
    return Bench(ledger, SCHEMA, root=tmp_path / "the store, 100% ü #")


def table(bench: Bench) -> DeltaTable:
    return DeltaTable(bench.root / ROOT)


def by_deltalake(bench: Bench) -> list[dict[str, Any]]:
    return _sorted(table(bench).to_pyarrow_table().to_pylist())


def by_duckdb(bench: Bench) -> list[dict[str, Any]]:
    outputs = table(bench).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("outputs", outputs)
        answer = connection.execute("select * from outputs")
        names = [column[0] for column in answer.description or ()]
        return _sorted([dict(zip(names, row, strict=True)) for row in answer.fetchall()])


def by_store(bench: Bench) -> list[dict[str, Any]]:
    """What the manifests name."""
    files = [file for step in bench.store.steps() for file in bench.store.manifest(step).outputs]
    return _sorted([row for file in files for row in pq.read_table(bench.root / file.path).to_pylist()])


def _sorted(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda row: (row["effect_id"], row["step"]))


def log(bench: Bench) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (bench.root / LOG).iterdir()}


def commits(bench: Bench) -> list[tuple[int | None, int]]:
    """For each Delta commit in order the step that it says it publishes, and how many files it adds."""
    published = []
    for path in sorted((bench.root / LOG).glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        steps = [action["txn"]["version"] for action in actions if action.get("txn", {}).get("appId") == APPLICATION]
        published.append((steps[0] if steps else None, sum("add" in action for action in actions)))
    return published


def files_of(bench: Bench, step: int) -> int:
    return len(bench.store.manifest(step).outputs)


# -- what readers see ------------------------------------------------------------------------------------------


def test_other_engines_read_the_outputs_of_the_store_after_each_step(bench: Bench) -> None:
    for number, messages in enumerate([rows(1, 2), rows(4), [*rows(2, 3), *rows(1, accounts="cde")]], start=1):
        bench.step(messages)
        assert publish(bench.store, "ledger").step == number
        assert by_deltalake(bench) == by_duckdb(bench) == by_store(bench)
    assert len(by_store(bench)) == 2 * (2 * 4 + 3)
    assert {row["group"] for row in by_store(bench)} == set("abcde")


def test_the_delta_table_refers_to_the_files_of_the_store(bench: Bench) -> None:
    bench.step(rows(1))
    bench.step(rows(2))
    before = {path: path.stat().st_mtime_ns for path in (bench.root / ROOT).glob("*.parquet")}
    publish(bench.store, "ledger")
    assert {path: path.stat().st_mtime_ns for path in (bench.root / ROOT).rglob("*.parquet")} == before
    adds = pa.table(table(bench).get_add_actions(flatten=True)).to_pylist()
    manifests = [bench.store.manifest(step) for step in (1, 2)]
    assert {(add["path"], add["num_records"], add["size_bytes"], add["min.step"], add["max.step"]) for add in adds} == {
        (Path(file.path).name, file.rows, (bench.root / file.path).stat().st_size, manifest.step, manifest.step)
        for manifest in manifests
        for file in manifest.outputs
    }


def test_files_of_an_uncommitted_step_are_not_in_the_delta_table(bench: Bench) -> None:
    bench.step(rows(1))
    manifest, _ = bench.prepare(rows(2))  # its files are written, and it dies
    assert publish(bench.store, "ledger").step == 1
    assert by_deltalake(bench) == by_duckdb(bench) == by_store(bench)
    assert all((bench.root / file.path).exists() for file in manifest.outputs)
    assert manifest.outputs


def test_sweeping_the_store_keeps_the_delta_table_intact(bench: Bench) -> None:
    bench.step(rows(1))
    bench.prepare(rows(2))
    publish(bench.store, "ledger")
    before = log(bench)
    assert sweep(bench.root, older_than_s=0)
    assert log(bench) == before
    assert by_deltalake(bench) == by_store(bench)


def test_other_engines_cannot_delete_rows_of_the_append_only_delta_table(bench: Bench) -> None:
    bench.step(rows(1))
    publish(bench.store, "ledger")
    with pytest.raises(DeltaError, match=r"(?i)append"):
        table(bench).delete("revision = 1")
    assert by_deltalake(bench) == by_store(bench)


# -- each step once --------------------------------------------------------------------------------------------


def test_publishing_a_published_step_again_adds_nothing(bench: Bench) -> None:
    bench.step(rows(1))
    publish(bench.store, "ledger")
    before = log(bench)
    assert publish(bench.store, "ledger").step == publish(SparkStore(bench.root), "ledger").step == 1
    assert log(bench) == before


def test_unpublished_committed_steps_are_published_later(bench: Bench) -> None:
    bench.step(rows(1))
    publish(bench.store, "ledger")
    bench.step(rows(2))
    bench.step(rows(3))
    assert len(by_deltalake(bench)) < len(by_store(bench))
    assert publish(bench.store, "ledger").step == 3
    assert by_deltalake(bench) == by_duckdb(bench) == by_store(bench)
    assert commits(bench) == [(None, 0), *((step, files_of(bench, step)) for step in (1, 2, 3))]


def test_an_interrupted_publication_is_continued(bench: Bench) -> None:
    for revision in (1, 2, 3):
        bench.step(rows(revision))
    path = bench.root / bench.store.manifest(2).outputs[0].path
    hidden = path.rename(path.with_suffix(".hidden"))
    with pytest.raises(StoreError, match=path.name):
        publish(bench.store, "ledger")
    assert {row["step"] for row in by_deltalake(bench)} == {1}
    hidden.rename(path)
    assert publish(bench.store, "ledger").step == 3
    assert commits(bench) == [(None, 0), *((step, files_of(bench, step)) for step in (1, 2, 3))]
    assert by_deltalake(bench) == by_store(bench)


def test_steps_without_outputs_are_skipped_and_the_last_step_is_recorded(bench: Bench) -> None:
    bench.step(rows(3))
    assert publish(bench.store, "ledger").step == 1
    bench.step(rows(1))
    bench.step(rows(1))
    bench.step([])
    assert [files_of(bench, step) > 0 for step in (1, 2, 3, 4)] == [False, True, False, False]
    assert publish(bench.store, "ledger").step == 4
    assert commits(bench) == [(None, 0), (1, 0), (2, files_of(bench, 2)), (4, 0)]
    assert table(bench).transaction_version(APPLICATION) == 4
    before = log(bench)
    assert publish(bench.store, "ledger").step == 4
    assert log(bench) == before
    assert by_deltalake(bench) == by_duckdb(bench) == by_store(bench)


def test_a_publisher_with_a_stale_table_version_adds_nothing_twice(bench: Bench) -> None:
    bench.step(rows(1))
    publish(bench.store, "ledger")
    bench.step(rows(2))
    slow = table(bench)
    assert publish(bench.store, "ledger").step == 2
    before = log(bench)
    assert slow.transaction_version(APPLICATION) == 1
    assert delta._commit(slow, APPLICATION, bench.store, bench.store.manifest(2)) == 2
    assert log(bench) == before


def test_concurrent_publishers_add_each_step_once(bench: Bench) -> None:
    for revision in range(1, 6):
        bench.step(rows(revision))
    start = threading.Barrier(4, timeout=DEADLINE_S)

    def race() -> int:
        start.wait()
        return publish(SparkStore(bench.root), "ledger").step

    with ThreadPoolExecutor(4) as pool:
        assert [future.result() for future in [pool.submit(race) for _ in range(4)]] == [5] * 4
    assert commits(bench) == [(None, 0), *((step, files_of(bench, step)) for step in range(1, 6))]
    assert by_deltalake(bench) == by_store(bench)


@pytest.mark.thorough
def test_a_delta_table_with_log_checkpoints_is_continued(bench: Bench) -> None:
    bench.step(rows(1))
    first = bench.store.manifest(1)
    for step in range(2, 103):
        bench.store.commit(replace(first, step=step, outputs=[]))
        publish(bench.store, "ledger")
    bench.step(rows(2))
    assert list((bench.root / LOG).glob("*.checkpoint*.parquet"))
    assert publish(SparkStore(bench.root), "ledger").step == 103
    assert by_deltalake(bench) == by_duckdb(bench) == by_store(bench)


# -- what is refused, and in which words -----------------------------------------------------------------------


def test_a_store_without_steps_gets_no_delta_table(bench: Bench) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        publish(bench.store, "ledger")
    bench.prepare(rows(1))
    assert publish(bench.store, "ledger").step == 0
    assert not (bench.root / LOG).exists()


def test_publishing_as_another_pipeline_is_refused(bench: Bench) -> None:
    bench.step(rows(1))
    with pytest.raises(StoreMismatch, match="pipeline 'ledger', not 'other'"):
        publish(bench.store, "other")
    assert not (bench.root / LOG).exists()


def test_a_delta_table_ahead_of_its_store_is_refused_until_recreated(bench: Bench) -> None:
    bench.step(rows(1))
    bench.step(rows(2))
    publish(bench.store, "ledger")
    (bench.root / "steps" / "000000000002.json").unlink()
    (bench.root / HEAD).unlink()  # an older copy
    before = log(bench)
    with pytest.raises(StoreMismatch, match=f"step 2.*ends with step 1.*[Dd]elete {LOG}"):
        publish(bench.store, "ledger")
    assert log(bench) == before
    for path in (bench.root / LOG).iterdir():
        path.unlink()
    assert publish(bench.store, "ledger").step == 1
    assert by_deltalake(bench) == by_store(bench)


def test_a_restored_store_used_beyond_its_delta_table_is_refused(bench: Bench, tmp_path: Path) -> None:
    """Its steps have the numbers of those that were published, and other outputs."""
    bench.step(rows(1))
    shutil.copytree(bench.root / "steps", tmp_path / "old")
    head = (bench.root / HEAD).read_bytes()
    bench.step(rows(2))
    publish(bench.store, "ledger")
    shutil.rmtree(bench.root / "steps")
    shutil.copytree(tmp_path / "old", bench.root / "steps")
    (bench.root / HEAD).write_bytes(head)
    for revision in (2, 3, 4):
        bench.step(rows(revision))
        with pytest.raises(StoreMismatch, match=f"outputs of a different step 2.*Delete {LOG}"):
            publish(bench.store, "ledger")
    shutil.rmtree(bench.root / LOG)
    assert publish(bench.store, "ledger").step == 4
    assert by_deltalake(bench) == by_store(bench)


class Restored:
    """A store that is put back as it was after its first step, and then takes other steps."""

    def __init__(self, bench: Bench, aside: Path) -> None:
        self.bench, self.aside = bench, aside
        bench.step(rows(1))
        shutil.copytree(bench.root, aside)

    def go_back(self, *revisions: int) -> None:
        for name in ("steps", "data/groups", HEAD):
            path, saved = self.bench.root / name, self.aside / name
            (shutil.rmtree if path.is_dir() else Path.unlink)(path)
            (shutil.copytree if saved.is_dir() else shutil.copy)(saved, path)
        for revision in revisions:
            self.bench.step(rows(revision))


def by_command(bench: Bench, *more: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["publish", str(bench.root), *more])
    return ran.exit_code, " ".join((ran.stdout + ran.stderr).split())


def test_a_restored_store_continued_without_delta_is_refused_until_the_table_is_recreated(
    bench: Bench, tmp_path: Path
) -> None:
    restored = Restored(bench, tmp_path / "old")
    bench.step(rows(2))
    assert inturn.spark.publish(bench.root) == (str(bench.root / ROOT), 0, 2)
    restored.go_back(2, 3, 4)
    before = log(bench)
    with pytest.raises(StoreMismatch, match=r"outputs of a different step 2.*restored from an older copy") as refused:
        inturn.spark.publish(bench.root)
    code, printed = by_command(bench, "--json")
    assert (code, log(bench)) == (1, before)
    assert printed == f"StoreMismatch: {' '.join(str(refused.value).split())}"

    way_out = re.search(r"Delete (\S+) in the store, and run: (inturn .*); this creates", str(refused.value))
    assert way_out
    shutil.rmtree(bench.root / way_out[1])
    ran = CliRunner().invoke(app, [*shlex.split(way_out[2])[1:], "--json"])
    assert json.loads(ran.stdout) == {"table": str(bench.root / ROOT), "before": 0, "step": 4}
    assert by_deltalake(bench) == by_duckdb(bench) == by_store(bench)


def test_a_later_foreign_commit_does_not_hide_a_different_step(bench: Bench, tmp_path: Path) -> None:
    restored = Restored(bench, tmp_path / "old")
    bench.step(rows(2))
    publish(bench.store, "ledger")
    table(bench).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    assert publish(bench.store, "ledger").step == 2
    bench.step(rows(3))
    assert publish(bench.store, "ledger") == (str(bench.root / ROOT), 2, 3)
    table(bench).alter.set_table_properties({"delta.logRetentionDuration": "interval 2 days"})
    restored.go_back(2, 3, 4)
    with pytest.raises(StoreMismatch, match="outputs of a different step 3"):
        publish(bench.store, "ledger")


def test_a_truncated_delta_log_does_not_hide_a_different_step(bench: Bench, tmp_path: Path) -> None:
    restored = Restored(bench, tmp_path / "old")
    bench.step(rows(2))
    publish(bench.store, "ledger")
    table(bench).create_checkpoint()
    for path in (bench.root / LOG).glob("*.json"):
        path.unlink()
    assert publish(bench.store, "ledger").step == 2
    restored.go_back(2, 3)
    with pytest.raises(StoreMismatch, match="outputs of a different step 2"):
        publish(bench.store, "ledger")


def test_the_publish_command_prints_the_published_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.prepare(rows(1))
    assert by_command(bench) == (0, f"{bench.root} has no steps yet; no table was written")
    bench.step(rows(1))
    assert by_command(bench) == (0, f"outputs of step 1 added to {bench.root / ROOT}")
    assert by_command(bench) == (0, f"{bench.root / ROOT} is up to date: step 1")
    bench.step(rows(2))
    bench.step(rows(3))
    assert by_command(bench) == (0, f"outputs of steps 2 to 3 added to {bench.root / ROOT}")
    assert by_deltalake(bench) == by_store(bench)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    code, printed = by_command(bench)
    assert (code, "pip install 'inturn[delta]'" in printed) == (1, True)


def test_a_damaged_delta_table_is_reported(bench: Bench) -> None:
    bench.step(rows(1))
    publish(bench.store, "ledger")
    (bench.root / LOG / f"{0:020d}.json").write_text("{")
    with pytest.raises(StoreError, match=f"cannot publish to the Delta table .*{ROOT}.*delete {LOG}"):
        publish(bench.store, "ledger")


def test_a_missing_deltalake_is_reported_with_the_extra_to_install(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.step(rows(1))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SetupError, match=r"pip install 'inturn\[delta\]'"):
        publish(bench.store, "ledger")


# -- on an object store ----------------------------------------------------------------------------------------


def test_a_delta_table_on_s3_is_published(bucket: str) -> None:
    bench = Bench(ledger, SCHEMA, root=f"{bucket}/ledger")
    assert bench.store.location.startswith("s3a://")
    bench.step(rows(1))
    assert publish(bench.store, "ledger").step == 1
    bench.step(rows(2))
    slow = DeltaTable(f"{bucket}/ledger/{ROOT}")
    assert publish(bench.store, "ledger").step == 2
    assert delta._commit(slow, APPLICATION, bench.store, bench.store.manifest(2)) == 2
    current = DeltaTable(f"{bucket}/ledger/{ROOT}")
    assert current.version() == 2
    outputs = current.to_pyarrow_table().to_pylist()
    assert sorted((row["group"], row["revision"], row["index"], row["step"]) for row in outputs) == [
        (group, revision, index, revision) for group in "ab" for revision in (1, 2) for index in (0, 1)
    ]
