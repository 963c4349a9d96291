"""The groups that are not open are found in their own files, and after an erasure by a search of all."""

import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_store import SCHEMA, Account, post, rows

from inturn import Gapless, Pipeline
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.inspection import GroupBrief, GroupStatus
from inturn.core.texts import last_line
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.tables.erasure import ErasedRows, erase_group
from inturn.spark.tables.manifest import SparkStore
from inturn.spark.tables.sorted_files import SortedBatches
from inturn.spark.tables.steps import manifest_name
from inturn.spark.tables.vacuum import vacuum
from kernel_harness import Bench, Bounds

GOLDEN = Path(__file__).parents[2] / "golden" / "files" / "spark.zip"


def refuse_odd(state: Account, message: dict[str, Any]) -> tuple[Account, list[Any]]:
    if message["amount"] % 2:
        raise ValueError(f"amount {message['amount']} is odd\nin two lines")
    return post(state, message)


LEDGER = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=refuse_odd, state=Account)


def told(store: Path) -> list[GroupStatus]:
    """Compare the three ways to see the groups that are not open, and return the groups."""
    with SparkInspector(store) as look:
        found = sorted((each for each in look.groups() if each.status != "open"), key=lambda each: each.group)
        assert sorted(look.unsettled(), key=lambda each: each.group) == found
        some = [each.group for each in found[::2]]
        assert sorted(look.unsettled([*some, "every step", "none"]), key=lambda each: each.group) == found[::2]
        assert sorted(look.briefs()) == [brief(each) for each in found]
        assert len({each.group for each in look.groups()}) == len(list(look.groups()))
        return found


def brief(each: GroupStatus) -> GroupBrief:
    oldest = None if each.oldest is None else round(each.oldest.timestamp() * 1_000_000)
    return GroupBrief(each.group, each.status, last_line(each.error), each.held, oldest)


def forget_files(store: Path) -> None:
    """Make the last manifest like that of an erasure, which has no such files."""
    at = SparkStore(store)
    last = at.latest()
    assert last is not None
    levels = [msgspec.structs.replace(level, unsettled=None) for level in last.levels]
    at.files.replace(manifest_name(last.step), msgspec.json.encode(msgspec.structs.replace(last, levels=levels)))


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([1, 3, None]), st.integers(2, 8))
def test_the_unsettled_files_contain_the_groups_found_by_a_full_scan(
    seed: int, hashes: int | None, levels: int
) -> None:
    chance = random.Random(seed)
    bounds = Bounds(levels=levels, row_group_rows=2)
    with Bench(LEDGER, SCHEMA, hashes=hashes, seed=seed, bounds=bounds) as bench:
        for number in range(1, 8):
            some = [
                *rows(number, account="every step", amount=2),
                *rows(chance.randint(1, 4), account=f"g{chance.randint(0, 5)}", amount=chance.randint(1, 4)),
                *rows(chance.randint(1, 4), account=f"g{chance.randint(0, 5)}", amount=2),
            ]
            bench.step(some)
            parked = [each.group for each in told(bench.root) if each.status == "failed"]
            if parked and chance.random() < 0.5:
                with SparkInspector(bench.root) as look:
                    action = chance.choice([DecisionAction.DROP, DecisionAction.GIVE_UP])
                    look.record(look.prepare(action, chance.choice(parked), by="ann"))
            if chance.random() < 0.2:
                forget_files(bench.root)
                told(bench.root)


def test_listing_parked_groups_reads_only_the_unsettled_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bench(LEDGER, SCHEMA, root=tmp_path / "store") as bench:
        bench.step([each for n in range(50) for each in rows(1, account=f"g{n}", amount=n + 1 if n < 3 else 2)])
        bench.step(rows(1, account="one more", amount=2))
    read: list[str] = []
    upto = SortedBatches.upto

    def noted(self: SortedBatches, bound: int) -> Iterator[Any]:
        read.extend(file.path for file, _ in self._places)
        return upto(self, bound)

    monkeypatch.setattr(SortedBatches, "upto", noted)
    with SparkInspector(bench.root) as look:
        assert sorted(each.group for each in look.briefs()) == ["g0", "g2"]
        assert read
        assert all(path.startswith("data/unsettled/") for path in read)
        read.clear()
        assert len(list(look.groups())) == 51
        assert all(path.startswith("data/groups/") for path in read)


def test_vacuum_keeps_the_unsettled_files_of_the_last_step(tmp_path: Path) -> None:
    with Bench(LEDGER, SCHEMA, root=tmp_path / "store", bounds=Bounds(levels=2)) as bench:
        for number in range(1, 8):
            bench.step([*rows(1, account=f"g{number}", amount=1), *rows(number, account="a", amount=2)])
        before = told(bench.root)
        deleted = vacuum(bench.root, keep_steps=1, older_than_s=0)
        assert any(name.startswith("data/unsettled/") for name in deleted)
        assert told(bench.root) == before


def test_parked_groups_are_found_by_a_full_scan_after_an_erasure(tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN) as packed:
        packed.extractall(tmp_path)
    store = tmp_path / "store"
    before = [(each.group, each.status) for each in told(store)]
    assert before == [("failed", "failed"), ("waits", "waiting")]
    first = SparkStore(store).latest()
    assert erase_group(store, "unknown", by="officer") == ErasedRows(is_known=False, outputs=0, rejected=0, held=0)
    assert SparkStore(store).latest() == first
    erase_group(store, "waits", by="officer")
    last = SparkStore(store).latest()
    assert last is not None
    assert [level.unsettled for level in last.levels] == [None]
    assert [(each.group, each.status) for each in told(store)] == [("failed", "failed"), ("waits", "given up")]
    erase_group(store, "waits", by="officer")
    again = SparkStore(store).latest()
    assert again is not None
    assert again.step == last.step
