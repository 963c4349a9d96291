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
    with SparkInspector(store) as inspector:
        unsettled = sorted(
            (group for group in inspector.groups() if group.status != "open"), key=lambda group: group.group
        )
        assert sorted(inspector.unsettled(), key=lambda group: group.group) == unsettled
        names = [group.group for group in unsettled[::2]]
        assert (
            sorted(inspector.unsettled([*names, "every step", "none"]), key=lambda group: group.group) == unsettled[::2]
        )
        assert sorted(inspector.briefs()) == [brief(group) for group in unsettled]
        assert len({group.group for group in inspector.groups()}) == len(list(inspector.groups()))
        return unsettled


def brief(group: GroupStatus) -> GroupBrief:
    oldest = None if group.oldest is None else round(group.oldest.timestamp() * 1_000_000)
    return GroupBrief(group.group, group.status, last_line(group.error), group.held, oldest)


def forget_files(store: Path) -> None:
    """Make the last manifest like that of an erasure, which has no such files."""
    opened = SparkStore(store)
    last = opened.latest()
    assert last is not None
    levels = [msgspec.structs.replace(level, unsettled=None) for level in last.levels]
    opened.files.replace(manifest_name(last.step), msgspec.json.encode(msgspec.structs.replace(last, levels=levels)))


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([1, 3, None]), st.integers(2, 8))
def test_the_unsettled_files_contain_the_groups_found_by_a_full_scan(
    seed: int, hashes: int | None, levels: int
) -> None:
    chance = random.Random(seed)
    bounds = Bounds(levels=levels, row_group_rows=2)
    with Bench(LEDGER, SCHEMA, hashes=hashes, seed=seed, bounds=bounds) as bench:
        for number in range(1, 8):
            messages = [
                *rows(number, account="every step", amount=2),
                *rows(chance.randint(1, 4), account=f"g{chance.randint(0, 5)}", amount=chance.randint(1, 4)),
                *rows(chance.randint(1, 4), account=f"g{chance.randint(0, 5)}", amount=2),
            ]
            bench.step(messages)
            parked = [group.group for group in told(bench.root) if group.status == "failed"]
            if parked and chance.random() < 0.5:
                with SparkInspector(bench.root) as inspector:
                    action = chance.choice([DecisionAction.DROP, DecisionAction.GIVE_UP])
                    inspector.record(inspector.prepare(action, chance.choice(parked), by="ann"))
            if chance.random() < 0.2:
                forget_files(bench.root)
                told(bench.root)


def test_listing_parked_groups_reads_only_the_unsettled_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bench(LEDGER, SCHEMA, root=tmp_path / "store") as bench:
        bench.step([message for n in range(50) for message in rows(1, account=f"g{n}", amount=n + 1 if n < 3 else 2)])
        bench.step(rows(1, account="one more", amount=2))
    read: list[str] = []
    upto = SortedBatches.upto

    def noted(self: SortedBatches, bound: int) -> Iterator[Any]:
        read.extend(file.path for file, _ in self._places)
        return upto(self, bound)

    monkeypatch.setattr(SortedBatches, "upto", noted)
    with SparkInspector(bench.root) as inspector:
        assert sorted(group.group for group in inspector.briefs()) == ["g0", "g2"]
        assert read
        assert all(path.startswith("data/unsettled/") for path in read)
        read.clear()
        assert len(list(inspector.groups())) == 51
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
    before = [(group.group, group.status) for group in told(store)]
    assert before == [("failed", "failed"), ("waits", "waiting")]
    first = SparkStore(store).latest()
    assert erase_group(store, "unknown", by="officer") == ErasedRows(is_known=False, outputs=0, rejected=0, held=0)
    assert SparkStore(store).latest() == first
    erase_group(store, "waits", by="officer")
    last = SparkStore(store).latest()
    assert last is not None
    assert [level.unsettled for level in last.levels] == [None]
    assert [(group.group, group.status) for group in told(store)] == [("failed", "failed"), ("waits", "given up")]
    erase_group(store, "waits", by="officer")
    latest = SparkStore(store).latest()
    assert latest is not None
    assert latest.step == last.step
