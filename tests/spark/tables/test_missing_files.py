"""Files of a store that are missing: every verb answers as if they were there, or names one of them.

Every single file of a store is taken away in turn, and every pair of the small ones. Two files together are the only
sign of the last step, its manifest and the head: without both, the store is as an older copy of it is.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from inturn import Gapless, Pipeline
from inturn.core.errors import StoreError, StoreMismatch
from inturn.spark.columns.hashing import group_hash
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.driver.step import Stepper, advance
from inturn.spark.tables.erasure import erase_group
from inturn.spark.tables.manifest import ABOUT, SparkStore
from inturn.spark.tables.steps import HEAD, manifest_name
from inturn.spark.tables.vacuum import vacuum
from kernel_harness import DAWN, Bench

SCHEMA = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": pa.int64()})
STEPS = 4


@dataclass
class Account:
    balance: int = 0


def post(state: Account, message: dict[str, Any]) -> tuple[Account, list[Any]]:
    state.balance += message["amount"]
    return state, [{"balance": state.balance}]


ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=post, state=Account)


def rows(account: str, *revisions: int, amount: int = 1) -> list[dict[str, Any]]:
    return [{"account": account, "revision": revision, "amount": amount} for revision in revisions]


def bench_at(root: Path) -> Bench:
    bench = Bench(ledger, SCHEMA, root=root)
    bench.hash_of = group_hash  # type: ignore[method-assign] # as Spark has it, so that groups can be looked at
    return bench


def taken(root: Path) -> Any:
    """Another step, and what is in the store after it."""
    bench = bench_at(root)
    bench.step([*rows("a", 50), *rows("c", 1)])
    try:
        return bench.seen()
    except FileNotFoundError as error:  # the test's own reader
        raise StoreError(str(error)) from error


def looked(root: Path) -> Any:
    inspector = SparkInspector(str(root))
    return inspector.last.step, inspector.group("a"), inspector.group("b"), inspector.held("b")


VERBS: dict[str, Callable[[Path], Any]] = {
    "a step": taken,
    "a step without messages": lambda root: advance(ledger, store=root, now=DAWN).step,
    "look at groups": looked,
    "the last step": lambda root: getattr(SparkStore(root).latest(), "step", None),
    "the steps": lambda root: [step.counts for step in map(SparkStore(root).manifest, SparkStore(root).steps())],
    "the steps after one": lambda root: [manifest.step for manifest in SparkStore(root).manifests_after(1)],
    "go on after a step": lambda root: getattr(SparkStore(root).latest(_known(root)), "step", None),
    "vacuum": lambda root: vacuum(root, keep_steps=2, older_than_s=0),
}
_MANIFESTS: dict[Path, Any] = {}


def _known(root: Path) -> Any:
    return _MANIFESTS[root.parent]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with outputs, rejected and held messages in several levels."""
    root = tmp_path_factory.mktemp("missing") / "whole"
    bench = bench_at(root)
    for step in range(STEPS):
        first = 3 * step + 1
        bench.step([*rows("a", first, first + 1, first + 2), *rows("b", first + 1), *rows("a", 1, amount=10 + step)])
    _MANIFESTS[root.parent] = bench.store.manifest(2)
    return root


def answer(verb: str, root: Path) -> Any:
    """What a verb answers, without the place of the store."""
    result = VERBS[verb](root)
    return result if verb not in {"vacuum"} else sorted(name.partition("-")[0] for name in result)


def check(verb: str, source: Path, names: tuple[str, ...]) -> None:
    place = source.parent / "some"
    expected = source.parent / "all"
    for target in (place, expected):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
    for name in names:
        (place / name).unlink()
    actual, message = None, ""
    try:
        actual = answer(verb, place)
    except StoreError as error:
        message = str(error)
    if message:
        assert any(name in message for name in names), (names, message)
    else:
        missing = {name.partition("-")[0] for name in names if name.startswith("data")}
        right = answer(verb, expected)
        if verb == "vacuum":  # a file that is gone need not be deleted
            assert sorted(missing | set(actual)) == sorted(missing | set(right))
        else:
            assert actual == right, names


def small(whole: Path) -> list[str]:
    return [ABOUT, HEAD, *(manifest_name(step) for step in range(1, STEPS + 1))]


@pytest.mark.thorough
@pytest.mark.parametrize("verb", VERBS)
def test_one_missing_store_file_is_named_or_not_needed(verb: str, whole: Path) -> None:
    for file in sorted(path for path in whole.rglob("*") if path.is_file()):
        check(verb, whole, (str(file.relative_to(whole)),))


@pytest.mark.thorough
@pytest.mark.parametrize("verb", VERBS)
def test_two_missing_store_files_are_named_or_not_needed(verb: str, whole: Path) -> None:
    for names in combinations(small(whole), 2):
        if names != (HEAD, manifest_name(STEPS)):
            check(verb, whole, names)


def test_a_step_continues_without_an_earlier_manifest_and_logs_it(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Path(shutil.copytree(whole, tmp_path / "lost"))
    (root / manifest_name(2)).unlink()
    assert advance(ledger, store=root, now=DAWN).step == STEPS + 1
    assert [record.message for record in caplog.records if manifest_name(2) in record.message] != []
    assert SparkInspector(str(root)).group("a") == SparkInspector(str(whole)).group("a")


def test_a_running_writer_logs_once_that_old_manifests_were_deleted(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Path(shutil.copytree(whole, tmp_path / "rule"))
    writer = Stepper(ledger, root, without_spark=True)
    writer.step(now=DAWN)
    assert "lacks" not in caplog.text
    for step in (1, 2):
        (root / manifest_name(step)).unlink()
    writer.step(now=DAWN)
    writer.step(now=DAWN)
    (warning,) = [record.message for record in caplog.records if "lacks" in record.message]
    assert f"{manifest_name(1)}, {manifest_name(2)}" in warning


def test_results_are_read_without_an_earlier_manifest(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Path(shutil.copytree(whole, tmp_path / "results"))
    (root / manifest_name(2)).unlink()
    every, reduced = SparkInspector(str(whole)), SparkInspector(str(root))
    assert [output.revision for output in reduced.outputs()] == [1, 2, 3, 7, 8, 9, 10, 11, 12]
    assert len(list(reduced.rejected())) == len(list(every.rejected())) - 1
    assert manifest_name(2) in caplog.text


@pytest.mark.parametrize("has_head", [True, False])
def test_a_vacuum_deletes_nothing_if_an_earlier_manifest_is_missing(
    whole: Path, tmp_path: Path, *, has_head: bool
) -> None:
    root = Path(shutil.copytree(whole, tmp_path / "vacuum"))
    (root / manifest_name(2)).unlink()
    if not has_head:
        (root / HEAD).unlink()
    before = sorted(root.rglob("*"))
    with pytest.raises(StoreError, match=manifest_name(2)):
        vacuum(root, keep_steps=1, older_than_s=0)
    assert sorted(root.rglob("*")) == before


def test_an_erasure_is_refused_if_an_earlier_manifest_is_missing(whole: Path, tmp_path: Path) -> None:
    """The lost manifest may have named files with the group's content."""
    root = Path(shutil.copytree(whole, tmp_path / "erasure"))
    (root / manifest_name(2)).unlink()
    with pytest.raises(StoreError, match=manifest_name(2)):
        erase_group(root, "a", by="ann")
    assert SparkInspector(str(root)).last.step == STEPS


def test_a_store_of_an_older_version_without_a_head_file_is_continued(whole: Path, tmp_path: Path) -> None:
    root = tmp_path / "old"
    shutil.copytree(whole, root)
    (root / HEAD).unlink()
    assert taken(root) == taken(whole.parent / shutil.copytree(whole, tmp_path / "new"))
    assert (root / HEAD).exists()


def test_an_outdated_head_file_does_not_hide_the_last_step(whole: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(whole, tmp_path / "behind"))
    (root / HEAD).write_text('{"step": 1}')
    last = SparkStore(root).latest()
    assert last is not None
    assert last.step == STEPS


def test_a_store_replaced_during_use_is_detected(whole: Path, tmp_path: Path) -> None:
    """As many steps are not the same steps."""
    roots = [Path(shutil.copytree(whole, tmp_path / name)) for name in ("one", "two")]
    benches = [bench_at(root) for root in roots]
    for bench, revision in zip(benches, (50, 60), strict=True):
        bench.step(rows("a", revision))
    known = benches[0].store.latest()
    shutil.rmtree(roots[0])
    shutil.move(roots[1], roots[0])
    with pytest.raises(StoreMismatch, match=r"step 5 of .* has changed since"):
        benches[0].store.latest(known)
