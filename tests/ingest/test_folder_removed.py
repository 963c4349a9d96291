"""Files that are removed: a half-read one is told to a person, others are forgotten after a time."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clocks import RunningClock
from ingest.test_folder_changes import caught_up, drop, ingest, partition, put, sent, short_waits
from inturn.core.source_shares import FORGOTTEN
from inturn.database import Database
from inturn.ingest import SourceControl
from inturn.ingest import limits as source_limits
from inturn.store.commands import Read
from waiting import until

__all__ = ["drop", "short_waits"]


def half_read(db: Database, drop: Path) -> None:
    """A file of which three records of eight are read."""
    put(drop / "1.jsonl", range(1, 9))
    db.queue("payments").configure(max_depth=3)
    with ingest(db, drop):
        until(lambda: len(sent(db)) == 3)
    db.queue("payments").configure(max_depth=100)


def names(db: Database) -> list[str]:
    return [row.name for row in SourceControl(db, "files").partitions()]


def refused(db: Database) -> int:
    def read(store: Any, now_ms: int) -> int:
        return sum(figures.partitions["refused"] for figures in store.sources.figures(now_ms))

    return db.writer.run(Read("", read))


def test_a_file_removed_when_half_read_is_reported_as_missing(db: Database, drop: Path) -> None:
    half_read(db, drop)
    (drop / "1.jsonl").unlink()
    assert caught_up(db, drop) == 0
    note = partition(db, "1.jsonl").note or ""
    assert note.startswith("missing: it was removed before it was read to its end")
    put(drop / "2.jsonl", [10])
    assert caught_up(db, drop) == 1
    assert partition(db, "1.jsonl").note == note


@pytest.mark.parametrize("name", ["1.jsonl", "0.jsonl"])
@pytest.mark.parametrize("another_inode", [False, True])
def test_reading_a_returned_file_resumes_at_its_position(
    db: Database, drop: Path, name: str, another_inode: bool
) -> None:
    half_read(db, drop)
    (drop / "1.jsonl").rename(drop / "away")
    assert caught_up(db, drop) == 0
    assert "missing" in (partition(db, "1.jsonl").note or "")
    if another_inode:
        (drop / name).write_bytes((drop / "away").read_bytes())
    else:
        (drop / "away").rename(drop / name)
    if another_inode and name != "1.jsonl":  # a file of one's own, as long as the other may come back
        assert caught_up(db, drop) == 8
        return
    assert caught_up(db, drop) == 5
    assert partition(db, name).note is None
    assert sent(db) == list(range(1, 9))


def test_a_different_file_under_the_name_of_a_missing_file_is_refused(db: Database, drop: Path) -> None:
    half_read(db, drop)
    (drop / "1.jsonl").unlink()
    assert caught_up(db, drop) == 0
    (drop / "keeps the inode").write_bytes(b"")
    put(drop / "1.jsonl", [11, 12])
    assert caught_up(db, drop) == 0
    assert "is a different file" in (partition(db, "1.jsonl").note or "")


def test_a_seek_clears_the_note_of_a_missing_file(db: Database, drop: Path) -> None:
    half_read(db, drop)
    (drop / "1.jsonl").rename(drop / "away")
    assert caught_up(db, drop) == 0
    SourceControl(db, "files").seek(3, "1.jsonl")
    for _ in range(2):
        assert caught_up(db, drop) == 0
        assert (partition(db, "1.jsonl").note, partition(db, "1.jsonl").is_finished) == (None, True)
    (drop / "away").rename(drop / "1.jsonl")
    assert caught_up(db, drop) == 5


def test_a_temporarily_unreadable_file_is_not_reported_as_missing(
    db: Database, drop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_read(db, drop)
    put(drop / "2.jsonl", [10])
    (drop / "1.jsonl").rename(drop / "away")
    (drop / "1.jsonl").symlink_to(drop / "nowhere" / ".." / "away")
    assert caught_up(db, drop) == 1
    assert partition(db, "1.jsonl").note is None


def test_a_missing_file_is_counted_in_the_metrics(db: Database, drop: Path) -> None:
    half_read(db, drop)
    (drop / "1.jsonl").unlink()
    with ingest(db, drop, lease_s=0.3):
        until(lambda: partition(db, "1.jsonl").note)
        until(lambda: refused(db) == 1)


def test_removed_files_are_forgotten_and_their_counts_are_summed(
    db: Database, drop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "PARTITION_REMEMBERED_S", 0)
    put(drop / "1.jsonl", [1, 2])
    put(drop / "2.jsonl", [3])
    (drop / "3.jsonl").write_bytes(b"no JSON\n")
    assert caught_up(db, drop) == 3
    (drop / "1.jsonl").unlink()
    (drop / "3.jsonl").unlink()
    put(drop / "4.jsonl", [4])
    assert caught_up(db, drop) == 1
    assert names(db) == ["1.jsonl", "2.jsonl", "3.jsonl", "4.jsonl"], "only now it is known that they are gone"
    for number in (5, 6):
        (drop / f"{number - 1}.jsonl").unlink(missing_ok=True)
        put(drop / f"{number}.jsonl", [number])
        assert caught_up(db, drop) == 1
    assert names(db) == [FORGOTTEN, "2.jsonl", "5.jsonl", "6.jsonl"]
    forgotten = partition(db, FORGOTTEN)
    assert (forgotten.received, forgotten.rejected, forgotten.is_finished) == (3, 1, True)
    assert SourceControl(db, "files").seek(None) == 3, "it is no file"
    assert partition(db, FORGOTTEN) == forgotten
    (drop / "2.jsonl").unlink()


def test_earlier_files_of_the_same_name_are_forgotten(
    db: Database, drop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "PARTITION_REMEMBERED_S", 0)
    for number in range(1, 6):
        put(drop / "1.jsonl", [number])
        (drop / f"keeps the inode of {number}").hardlink_to(drop / "1.jsonl")
        assert caught_up(db, drop) == 1
    assert len(names(db)) <= 4
    assert sent(db) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("comes_back", [Path.rename, lambda path, to: to.write_bytes(path.read_bytes())])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_file_that_returns_within_the_retention_is_not_read_again(
    db: Database,
    db_clock: RunningClock,
    drop: Path,
    comes_back: Callable[[Path, Path], object],
    is_late: bool,
) -> None:
    put(drop / "1.jsonl", [1, 2])
    assert caught_up(db, drop) == 2
    db_clock.forward(2 * source_limits.PARTITION_REMEMBERED_S)  # it is there all the time
    (drop / "1.jsonl").rename(drop / "away")
    assert caught_up(db, drop) == 0
    db_clock.forward(source_limits.PARTITION_REMEMBERED_S * (1.01 if is_late else 0.99))
    put(drop / "3.jsonl", [3])
    assert caught_up(db, drop) == 1
    comes_back(drop / "away", drop / "1.jsonl")
    assert caught_up(db, drop) == (2 if is_late else 0)


def test_the_return_of_a_file_restarts_its_retention(db: Database, db_clock: RunningClock, drop: Path) -> None:
    put(drop / "1.jsonl", [1, 2])
    assert caught_up(db, drop) == 2
    for number in (3, 4, 5):
        (drop / "1.jsonl").rename(drop / "away")
        assert caught_up(db, drop) == 0
        db_clock.forward(0.6 * source_limits.PARTITION_REMEMBERED_S)
        put(drop / f"{number}.jsonl", [number])
        assert caught_up(db, drop) == 1
        (drop / "away").rename(drop / "1.jsonl")
        assert caught_up(db, drop) == 0


def test_each_scan_forgets_a_bounded_number_of_removed_files(
    db: Database, drop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "PARTITION_REMEMBERED_S", 0)
    monkeypatch.setattr(source_limits, "PARTITIONS_FORGOTTEN", 3)
    for number in range(10):
        put(drop / f"{number}.jsonl", [number])
    assert caught_up(db, drop) == 10
    for number in range(10):
        (drop / f"{number}.jsonl").unlink()
    counts = []
    for number in range(20, 30):
        put(drop / f"{number}.jsonl", [number])
        assert caught_up(db, drop) == 1
        counts.append(len(names(db)))
    assert counts[0] == 11
    assert max(before - after for before, after in pairwise(counts)) <= 2, "three are forgotten, one is new"
    assert counts[-1] == 11, "ten that are there, and the sum of the others"


def test_a_seek_of_a_removed_file_restarts_its_retention(db: Database, db_clock: RunningClock, drop: Path) -> None:
    put(drop / "1.jsonl", range(1, 6))
    assert caught_up(db, drop) == 5
    (drop / "1.jsonl").rename(drop / "away")
    assert caught_up(db, drop) == 0
    db_clock.forward(source_limits.PARTITION_REMEMBERED_S * 0.99)
    SourceControl(db, "files").seek(3, "1.jsonl")
    for _ in range(2):  # the first look ends the notice, the next one notes since when the file is gone
        assert caught_up(db, drop) == 0
    db_clock.forward(source_limits.PARTITION_REMEMBERED_S * 0.02)
    put(drop / "2.jsonl", [9])
    assert caught_up(db, drop) == 1
    (drop / "away").rename(drop / "1.jsonl")
    assert caught_up(db, drop) == 2
    assert sent(db) == [1, 2, 3, 4, 5, 9, 4, 5]


def test_a_copy_with_the_inode_of_a_removed_empty_file_is_not_read_again(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", [1, 2])
    put(drop / "2.jsonl", [])
    assert caught_up(db, drop) == 2
    copy = (drop / "1.jsonl").read_bytes()
    (drop / "1.jsonl").unlink()
    (drop / "2.jsonl").rename(drop / "gives the inode again")
    assert caught_up(db, drop) == 0
    (drop / "gives the inode again").write_bytes(copy)
    (drop / "gives the inode again").rename(drop / "1.jsonl")
    assert caught_up(db, drop) == 0
    put(drop / "3.jsonl", [3])
    assert caught_up(db, drop) == 1
    assert sent(db) == [1, 2, 3]
