"""Files that are renamed, replaced, appended to and overwritten: each record once, or a refusal that says why."""

import errno
import json
import os
import random
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from inturn.core.errors import PositionGone
from inturn.core.source_shares import SourcePartition
from inturn.database import Database
from inturn.ingest import FolderSource, Ingest, MessageMapping, SourceControl
from inturn.ingest import limits as source_limits
from inturn.ingest.source import KnownPartition
from inturn.ingest.sources import folder as folder_source
from waiting import until

BY_ACCOUNT = MessageMapping(group="body.account", revision="body.n")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "INGEST_POLL_S", 0.01)


@pytest.fixture
def drop(tmp_path: Path) -> Path:
    path = tmp_path / "drop"
    path.mkdir()
    return path


def lines(numbers: Iterable[int], account: str = "a") -> bytes:
    return b"".join(json.dumps({"account": account, "n": number}).encode() + b"\n" for number in numbers)


def put(path: Path, numbers: Iterable[int], account: str = "a") -> None:
    """As the contract wants it: complete when it appears."""
    new = path.with_name(f".{path.name}")
    new.write_bytes(lines(numbers, account))
    new.rename(path)


def ingest(db: Database, folder: Path, **more: object) -> Ingest:
    return Ingest(FolderSource(folder), db.queue("payments"), BY_ACCOUNT, name="files", **more)  # type: ignore[arg-type]


def caught_up(db: Database, folder: Path, **more: object) -> int:
    return ingest(db, folder, **more).run(until="caught up").received


def sent(db: Database) -> list[int | None]:
    return [message.revision for message in db.queue("payments").peek(1000)]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def partition(db: Database, name: str) -> SourcePartition:
    return next(row for row in SourceControl(db, "files").partitions() if row.name == name)


def in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.truncate()
        file.write(data)


def renamed_over(path: Path, data: bytes) -> None:
    path.with_name(".new").write_bytes(data)
    path.with_name(".new").rename(path)


def same_inode(path: Path, data: bytes) -> None:
    """As a file system that gives the inode again."""
    path.write_bytes(data)


@pytest.mark.parametrize("replace", [in_place, renamed_over, same_inode])
@pytest.mark.parametrize("numbers", [[11, 12, 13], [11], range(11, 20)])
def test_a_replaced_file_is_read_from_its_start(
    db: Database, drop: Path, replace: Callable[[Path, bytes], None], numbers: Iterable[int]
) -> None:
    put(drop / "1.jsonl", [1, 2, 3])
    with ingest(db, drop, lease_s=0.3):
        until(lambda: SourceControl(db, "files").partitions() and partition(db, "1.jsonl").is_finished)
        replace(drop / "1.jsonl", lines(numbers))
        until(lambda: len(sent(db)) == 3 + len(list(numbers)))
    assert sent(db) == [1, 2, 3, *numbers]
    assert caught_up(db, drop) == 0


def test_a_file_with_a_new_inode_and_the_same_content_is_not_read_again(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", [1, 2, 3])
    assert caught_up(db, drop) == 3
    (drop / "keep").write_bytes(b"")
    put(drop / "1.jsonl", [1, 2, 3])
    os.utime(drop / "1.jsonl", (1, 1))
    assert caught_up(db, drop) == 0
    assert partition(db, "1.jsonl").note is None


def test_reading_a_renamed_file_resumes_at_its_position(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", [1, 2, 3])
    put(drop / "2.jsonl", range(4, 9))
    db.queue("payments").configure(max_depth=5)
    with ingest(db, drop):
        until(lambda: len(sent(db)) == 5)
    (drop / "1.jsonl").rename(drop / "moved 1.jsonl")
    (drop / "2.jsonl").rename(drop / "moved 2.jsonl")
    db.queue("payments").configure(max_depth=100)
    assert caught_up(db, drop) == 3
    assert sent(db) == list(range(1, 9))
    assert [row.name for row in SourceControl(db, "files").partitions()] == ["moved 1.jsonl", "moved 2.jsonl"]


def test_files_appended_to_and_rotated_during_a_run_are_read_once(db: Database, drop: Path) -> None:
    log, numbers = drop / "0.jsonl", count()
    put(log, [next(numbers)])
    with ingest(db, drop, lease_s=0.3):
        for _ in range(3):
            for _ in range(2):
                with log.open("ab") as file:
                    file.write(lines([next(numbers), next(numbers)]))
                until(lambda: partition(db, "0.jsonl").is_finished)
            with log.open("ab") as file:
                file.write(lines([next(numbers)]))
            for number in (2, 1, 0):
                if (drop / f"{number}.jsonl").exists():
                    (drop / f"{number}.jsonl").rename(drop / f"{number + 1}.jsonl")
            put(log, [next(numbers)])
        total = next(numbers)
        until(lambda: len(sent(db)) >= total)
    assert sorted(sent(db)) == list(range(total))
    assert caught_up(db, drop) == 0


def test_files_rotated_repeatedly_during_a_run_are_read_once(db: Database, drop: Path) -> None:
    with ingest(db, drop, lease_s=0.1):
        for number in range(12):
            for name in (2, 1, 0):
                if (drop / f"{name}.jsonl").exists():
                    (drop / f"{name}.jsonl").rename(drop / f"{name + 1}.jsonl")
            put(drop / "0.jsonl", [number])
            until(lambda number=number: len(sent(db)) == number + 1 and partition(db, "0.jsonl").is_finished)  # type: ignore[misc]
    assert sent(db) == list(range(12))


def test_a_truncated_line_is_refused_and_reading_continues_after_a_seek(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", [1, 2])
    with (drop / "1.jsonl").open("ab") as file:
        file.write(lines([3])[:-4])
    assert caught_up(db, drop) == 2
    with (drop / "1.jsonl").open("ab") as file:
        file.write(lines([3])[-4:] + lines([4]))
    assert caught_up(db, drop) == 0
    assert "must be complete when it appears; use `inturn ingest seek`" in (partition(db, "1.jsonl").note or "")
    SourceControl(db, "files").seek(2, "1.jsonl")
    assert caught_up(db, drop) == 2
    assert sent(db) == [1, 2, 3, 4]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n" + lines([3])])
@pytest.mark.parametrize("count", [1, 2])
def test_a_json_line_that_gets_its_line_ending_later_is_not_read_again(
    db: Database, drop: Path, end: bytes, count: int
) -> None:
    (drop / "1.jsonl").write_bytes(lines([1, 2]).rstrip())
    db.queue("payments").configure(max_depth=count)
    with ingest(db, drop):
        until(lambda: len(sent(db)) == count)
    db.queue("payments").configure(max_depth=100)
    with (drop / "1.jsonl").open("ab") as file:
        file.write(end)
    caught_up(db, drop)
    assert partition(db, "1.jsonl").note is None
    assert sent(db) == ([1, 2, 3] if len(end) > 2 else [1, 2])
    with (drop / "1.jsonl").open("ab") as file:
        file.write(lines([4]))
    assert caught_up(db, drop) == 1


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_csv_row_that_gets_its_line_ending_later_is_not_read_again(db: Database, drop: Path, end: bytes) -> None:
    (drop / "1.csv").write_bytes(b"account,n\na,1")
    assert caught_up(db, drop) == 1
    with (drop / "1.csv").open("ab") as file:
        file.write(end)
    assert caught_up(db, drop) == 0
    assert partition(db, "1.csv").note is None
    with (drop / "1.csv").open("ab") as file:
        file.write(b"a,2\n")
    assert caught_up(db, drop) == 0
    assert "was changed after its first" in (partition(db, "1.csv").note or "")


@pytest.mark.parametrize("name", ["1.csv", "1.jsonl.gz"])
def test_appending_to_a_csv_or_compressed_file_is_refused(db: Database, drop: Path, name: str) -> None:
    import gzip

    data = b"account,n\na,1\n" if name.endswith("csv") else gzip.compress(lines([1]))
    (drop / name).write_bytes(data)
    assert caught_up(db, drop) == 1
    with (drop / name).open("ab") as file:
        file.write(data)
    assert caught_up(db, drop) == 0
    assert "was changed after its first" in (partition(db, name).note or "")


@pytest.mark.parametrize("replace", [in_place, renamed_over])
def test_a_file_replaced_before_its_end_was_read_is_refused(
    db: Database, drop: Path, replace: Callable[[Path, bytes], None]
) -> None:
    put(drop / "1.jsonl", range(1, 9))
    db.queue("payments").configure(max_depth=3)
    with ingest(db, drop):
        until(lambda: len(sent(db)) == 3)
    db.queue("payments").configure(max_depth=100)
    replace(drop / "1.jsonl", lines([11, 12]))
    assert caught_up(db, drop) == 0
    note = partition(db, "1.jsonl").note or ""
    assert note.startswith("1.jsonl is a different file")
    assert "; use `inturn ingest seek`" in note
    SourceControl(db, "files").seek(None)
    assert caught_up(db, drop) == 2


def test_a_half_read_file_replaced_by_an_already_read_file_is_refused(db: Database, drop: Path) -> None:
    put(drop / "y.jsonl", [100])
    assert caught_up(db, drop) == 1
    put(drop / "x.jsonl", range(1, 9))
    db.queue("payments").configure(max_depth=4)
    with ingest(db, drop):
        until(lambda: len(sent(db)) == 4)
    db.queue("payments").configure(max_depth=100)
    (drop / "y.jsonl").rename(drop / "x.jsonl")
    assert caught_up(db, drop) == 0
    assert "is a different file" in (partition(db, "x.jsonl").note or "")


def test_a_file_replaced_after_it_was_claimed_is_refused(db: Database, drop: Path) -> None:
    put(drop / "x.jsonl", [1, 2])
    db.queue("payments").send({"n": 0})
    db.queue("payments").configure(max_depth=1)
    with ingest(db, drop):
        until(lambda: SourceControl(db, "files").partitions()[0].incarnation)
    db.queue("payments").configure(max_depth=100)
    put(drop / "x.jsonl", [3])
    assert caught_up(db, drop) == 0
    assert "is a different file" in (partition(db, "x.jsonl").note or "")


def test_a_link_to_a_file_is_not_read_as_a_second_file(
    db: Database, drop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(drop / "1.jsonl", [1, 2])
    with ingest(db, drop, lease_s=0.3):
        until(lambda: SourceControl(db, "files").partitions() and partition(db, "1.jsonl").is_finished)
        (drop / "0.jsonl").hardlink_to(drop / "1.jsonl")
        (drop / "2.jsonl").symlink_to(drop / "1.jsonl")
        with (drop / "1.jsonl").open("ab") as file:
            file.write(lines([3]))
        until(lambda: len(sent(db)) == 3)
        (drop / "0.jsonl").unlink()
        with (drop / "1.jsonl").open("ab") as file:
            file.write(lines([4]))
        until(lambda: len(sent(db)) == 4)
    assert caught_up(db, drop) == 0
    assert sent(db) == [1, 2, 3, 4]
    assert "is not read: it is a link to the same file as 0.jsonl" in caplog.text


def test_a_file_renamed_after_a_seek_is_read_from_the_seek_position(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", range(1, 9))
    assert caught_up(db, drop) == 8
    SourceControl(db, "files").seek(7, "1.jsonl")
    (drop / "1.jsonl").rename(drop / "2.jsonl")
    assert caught_up(db, drop) == 1


def test_a_read_file_is_remembered_when_another_file_takes_its_name(db: Database, drop: Path) -> None:
    put(drop / "0.jsonl", [1, 2])
    put(drop / "1.jsonl", [3])
    assert caught_up(db, drop) == 3
    (drop / "0.jsonl").rename(drop / "tmp")
    put(drop / "0.jsonl", [4])
    (drop / "1.jsonl").rename(drop / "tmp 1")
    (drop / "0.jsonl").rename(drop / "1.jsonl")
    put(drop / "0.jsonl", [5])
    assert caught_up(db, drop) == 2
    (drop / "tmp").rename(drop / "2.jsonl")
    (drop / "tmp 1").rename(drop / "3.jsonl")
    assert caught_up(db, drop) == 0
    assert sent(db) == [1, 2, 3, 4, 5] or sent(db) == [1, 2, 3, 5, 4]


def test_a_new_file_with_the_inode_and_content_of_a_removed_file_is_read(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", [1])
    assert caught_up(db, drop) == 1
    (drop / "1.jsonl").rename(drop / "2.jsonl")
    os.utime(drop / "2.jsonl", (1, 1))  # as it is of a file that was written at another time
    assert caught_up(db, drop) == 1


def test_an_empty_file_is_read_further_after_a_seek(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", [])
    put(drop / "2.jsonl", [1])
    assert caught_up(db, drop) == 1
    SourceControl(db, "files").seek(0, "1.jsonl")
    assert caught_up(db, drop) == 0
    with (drop / "1.jsonl").open("ab") as file:
        file.write(lines([2]))
    assert caught_up(db, drop) == 1


def test_a_library_error_in_a_file_blocks_no_other_file(db: Database, drop: Path) -> None:
    times = pa.table({"at": pa.array([2**60], pa.timestamp("ms"))})  # beyond the years of Python
    parquet.write_table(times, drop / "1.parquet")
    put(drop / "2.jsonl", [1])
    assert caught_up(db, drop) == 1
    assert "1.parquet cannot be read further" in (partition(db, "1.parquet").note or "")


def test_a_file_replaced_during_reading_is_read_to_its_end(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", range(5000))
    source = FolderSource(drop)
    source.partitions()
    source.open("1.jsonl", None)
    assert len(source.poll(10, 0)) == 10
    put(drop / "1.jsonl", [7])
    assert (source.partitions(), source.incarnation("1.jsonl").split(":")[1]) == (
        ["1.jsonl"],
        str(len(lines(range(5000)))),
    )
    assert len(source.poll(9_999, 0)) == 4_990
    source.confirm("1.jsonl", 5_000)
    assert source.is_finished("1.jsonl")


def test_a_file_overwritten_during_reading_is_refused(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", range(5000))
    put(drop / "2.jsonl", [1])
    source = FolderSource(drop)
    for name in source.partitions():
        source.open(name, None)
    assert len(source.poll(10, 0)) == 10
    in_place(drop / "1.jsonl", lines(range(7000, 12_000)))
    records = source.poll(100_000, 0)
    assert (records[-1].partition, source.is_finished("1.jsonl")) == ("2.jsonl", False)
    with pytest.raises(PositionGone, match=r"1.jsonl was changed while it was read") as caught:
        source.poll(10, 0)
    assert caught.value.partition == "1.jsonl"


def test_records_appended_during_reading_are_found_by_the_next_scan(db: Database, drop: Path) -> None:
    put(drop / "1.jsonl", [1, 2])
    source = FolderSource(drop)
    source.partitions()
    source.open("1.jsonl", None)
    earlier = source.incarnation("1.jsonl")
    assert len(source.poll(1, 0)) == 1
    with (drop / "1.jsonl").open("ab") as file:
        file.write(lines([3]))
    assert [record.position for record in source.poll(9, 0)] == [2]
    assert not source.is_finished("1.jsonl")
    source.confirm("1.jsonl", 2)
    assert source.is_finished("1.jsonl")
    source.close("1.jsonl")
    known = {"1.jsonl": KnownPartition(earlier, is_begun=True, is_finished=True)}
    assert source.compare(known, {})["1.jsonl"].change == "more"


def test_a_temporarily_unreadable_file_blocks_no_other_file(
    db: Database, drop: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(drop / "1.jsonl", [1])
    put(drop / "2.jsonl", [2])
    original = folder_source.file_state

    def failing(path: Path, *arguments: object) -> object:
        if path.name == "1.jsonl":
            raise OSError(errno.EIO, "Input/output error")
        return original(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(folder_source, "file_state", failing)
    assert caught_up(db, drop) == 1
    assert "1.jsonl cannot be read now: Input/output error" in caplog.text
    monkeypatch.undo()
    assert caught_up(db, drop) == 1


def test_a_disk_error_within_a_file_blocks_no_other_file(
    db: Database, drop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(drop / "1.jsonl", [1])
    put(drop / "2.jsonl", [2])
    rows, failures = folder_source.rows_of, [OSError(errno.EIO, "Input/output error")]

    def failing(name: str, *arguments: object) -> object:
        if name == "1.jsonl" and failures:
            raise failures.pop()
        return rows(name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(folder_source, "rows_of", failing)
    with ingest(db, drop, lease_s=0.3):
        until(lambda: sent(db) == [2, 1])


def test_many_files_are_read_with_few_open_handles_and_not_opened_again(
    db: Database, drop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    rows = folder_source.rows_of
    monkeypatch.setattr(folder_source, "rows_of", lambda *arguments: opened.append(arguments[0]) or rows(*arguments))  # type: ignore[func-returns-value]
    for number in range(300):
        (drop / f"{number:03}.jsonl").write_bytes(lines([number]))
    before = open_files()
    source = FolderSource(drop)
    for name in source.partitions():
        source.open(name, None)
    assert len(source.poll(200, 0)) == 200
    assert open_files() <= before + 2
    source.shutdown()
    assert caught_up(db, drop) == 300
    assert sent(db) == list(range(300))
    opened.clear()
    assert caught_up(db, drop) == 0
    assert opened == []
    assert all(row.is_finished and row.owner is None for row in SourceControl(db, "files").partitions())


@pytest.mark.parametrize("position", [-1, "abc", 1.5, True, 99])
def test_an_impossible_stored_position_is_refused(db: Database, drop: Path, position: object) -> None:
    put(drop / "1.jsonl", [1, 2])
    assert caught_up(db, drop) == 2
    control = SourceControl(db, "files")
    stored = partition(db, "1.jsonl")._replace(position=json.dumps(position), is_finished=False)
    control._transact(lambda store, _now_ms: store.sources.save("files", stored))
    assert caught_up(db, drop) == 0
    assert partition(db, "1.jsonl").note


class Writer:
    """Programs that write files of new numbers, in the ways that the contract allows."""

    def __init__(self, drop: Path, seed: int) -> None:
        self._drop, self._drawn, self._names, self.numbers = drop, random.Random(seed), count(), count()

    def _some(self) -> bytes:
        return lines(next(self.numbers) for _ in range(self._drawn.randint(0, 3)))

    def _fresh(self) -> Path:
        return self._drop / f"{next(self._names)}.jsonl"

    def change(self, finished: Callable[[], set[str]]) -> None:
        """Make one change; only a file that is read to its end is replaced or removed."""
        files = sorted(self._drop.glob("*.jsonl"))
        if not files:
            renamed_over(self._fresh(), self._some())
            return
        path = self._drawn.choice(files)
        act = self._drawn.choice([self.new, self.append, self.rename, self.swap, self.touch, self.replace, self.remove])
        if act not in (self.replace, self.remove, self.touch) or path.name in finished():
            act(path)
        if act == self.touch:  # else a rename would hide that it is the same file
            finished()

    def new(self, _path: Path) -> None:
        renamed_over(self._fresh(), self._some())

    def append(self, path: Path) -> None:
        with path.open("ab") as file:
            file.write(self._some())

    def rename(self, path: Path) -> None:
        path.rename(self._fresh())

    def swap(self, path: Path) -> None:
        other, hidden = self._drawn.choice(sorted(self._drop.glob("*.jsonl"))), self._drop / ".kept"
        path.rename(hidden)
        if other != path:
            other.rename(path)
        hidden.rename(other)

    def touch(self, path: Path) -> None:
        os.utime(path, (1, self._drawn.random() * 1e9))

    def replace(self, path: Path) -> None:
        self._drawn.choice([in_place, renamed_over])(path, self._some())

    def remove(self, path: Path) -> None:
        path.unlink()


@pytest.mark.parametrize("seed", range(6))
def test_random_permitted_file_changes_give_each_record_once(db: Database, drop: Path, seed: int) -> None:
    writer, chance = Writer(drop, seed), random.Random(seed)

    def finished() -> set[str]:
        caught_up(db, drop)
        return {row.name for row in SourceControl(db, "files").partitions() if row.is_finished}

    for _ in range(10):
        for _ in range(chance.randint(1, 4)):
            writer.change(finished)
        caught_up(db, drop, batch=chance.choice([1, 2, 1_000]))
    assert not [row for row in SourceControl(db, "files").partitions() if row.note]
    assert sorted(revision or 0 for revision in sent(db)) == list(range(next(writer.numbers)))
