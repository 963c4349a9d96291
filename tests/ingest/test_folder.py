"""Files in a folder are read once, whatever their format, and go on where they were left."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from inturn.core.errors import InputError
from inturn.database import Database
from inturn.ingest import FolderSource, Ingest, MessageMapping, SourceControl

BY_ACCOUNT = MessageMapping(group="body.account", revision="body.n")
ROWS = [{"account": "a", "n": 1}, {"account": "b", "n": 1}, {"account": "a", "n": 2}]


def run(db: Database, folder: Path, **more: int) -> int:
    ingest = Ingest(FolderSource(folder), db.queue("payments"), BY_ACCOUNT, name="files", **more)
    return ingest.run(until="caught up").received


def sent(db: Database) -> list[tuple[str | None, int | None]]:
    return [(each.group, each.revision) for each in db.queue("payments").peek(1000)]


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """As the contract wants it: complete when it appears."""
    new = path.with_name(f".{path.name}")
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), new)
    elif path.suffix == ".csv":
        new.write_text("\r\n".join(["account,n", *(f"{each['account']},{each['n']}" for each in rows)]))
    else:
        new.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    new.rename(path)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_each_row_is_a_message_once(db: Database, tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    write(folder / f"1.{ending}", ROWS)
    assert run(db, folder, batch=2) == 3
    assert sent(db) == [("a", 1), ("b", 1), ("a", 2)]
    write(folder / f"0.{ending}", [{"account": "c", "n": 1}])  # a name before those that were read
    assert run(db, folder) == 1
    (folder / f"1.{ending}").unlink()
    assert run(db, folder) == 0


def test_a_file_that_was_replaced_is_refused(db: Database, tmp_path: Path) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    write(folder / "1.jsonl", ROWS)
    run(db, folder)
    write(folder / "1.jsonl", ROWS)
    assert run(db, folder) == 0
    assert "made again" in (SourceControl(db, "files").partitions()[0].note or "")


def test_a_file_that_lost_lines_is_refused(db: Database, tmp_path: Path) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    write(folder / "1.jsonl", ROWS)
    run(db, folder)
    (folder / "1.jsonl").write_text("")
    assert run(db, folder) == 0
    assert "fewer than the 3 records" in (SourceControl(db, "files").partitions()[0].note or "")


def test_other_files_are_left_alone(db: Database, tmp_path: Path) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    (folder / "README.txt").write_text("not for you")
    (folder / ".1.jsonl").write_text("half written")
    assert run(db, folder) == 0
    with pytest.raises(InputError, match="is no folder; make it, or name another"):
        FolderSource(tmp_path / "nowhere")
