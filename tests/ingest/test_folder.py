"""Files in a folder are read once, whatever their format, and go on where they were left."""

import gzip
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from inturn.core.errors import InputError
from inturn.database import Database
from inturn.ingest import FolderSource, Ingest, MessageMapping, SourceControl
from inturn.ingest import limits as source_limits
from inturn.ingest.sources.file_rows import rows_of

BY_ACCOUNT = MessageMapping(group="body.account", revision="body.n")
ROWS = [{"account": "a", "n": 1}, {"account": "b", "n": 1}, {"account": "a", "n": 2}]


def run(db: Database, folder: Path, **more: int) -> int:
    ingest = Ingest(FolderSource(folder), db.queue("payments"), BY_ACCOUNT, name="files", **more)
    return ingest.run(until="caught up").received


def sent(db: Database) -> list[tuple[str | None, int | None]]:
    return [(message.group, message.revision) for message in db.queue("payments").peek(1000)]


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """As the contract wants it: complete when it appears."""
    new = path.with_name(f".{path.name}")
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), new)
    elif path.suffix == ".csv":
        new.write_text("\r\n".join(["account,n", *(f"{row['account']},{row['n']}" for row in rows)]))
    else:
        new.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    new.rename(path)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_each_row_of_a_file_is_sent_once(db: Database, tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    write(folder / f"1.{ending}", ROWS)
    assert run(db, folder, batch=2) == 3
    assert sent(db) == [("a", 1), ("b", 1), ("a", 2)]
    write(folder / f"0.{ending}", [{"account": "c", "n": 1}])  # a name before those that were read
    assert run(db, folder) == 1
    (folder / f"1.{ending}").unlink()
    assert run(db, folder) == 0


def test_files_that_do_not_match_the_pattern_are_logged_and_not_read(
    db: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    for name in ("README.txt", "other.txt", os.fsdecode(b"caf\xe9.jsonl")):
        (folder / name).write_text("not for you")
    (folder / ".1.jsonl").write_text("half written")
    assert run(db, folder) == 0
    texts = [
        record.getMessage().partition(": ")[2] for record in caplog.records if "is not read" in record.getMessage()
    ]
    assert len(texts) == 2
    assert any("files that end in '.txt'" in text for text in texts)
    assert "'caf\\udce9.jsonl' is not read: its name is not UTF-8" in texts
    with pytest.raises(InputError, match=r"pattern is .* no slash"):
        FolderSource(folder, "*/*.jsonl")
    with pytest.raises(InputError, match="is not a folder; create it"):
        FolderSource(tmp_path / "nowhere")


def packed(data: bytes, ending: str) -> bytes:
    if ending == "gz":
        return gzip.compress(data)
    return pa.Codec("zstd").compress(data, asbytes=True) if ending == "zst" else data


@pytest.mark.parametrize("ending", ["gz", "zst"])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_reading_a_compressed_file_resumes_after_the_last_record(
    db: Database, tmp_path: Path, kind: str, ending: str
) -> None:
    rows = [{"account": "a", "n": number} for number in range(20_000)]
    write(tmp_path / f"1.{kind}", rows)
    plain = (tmp_path / f"1.{kind}").read_bytes()
    folder = tmp_path / "drop"
    folder.mkdir()
    half = len(plain) // 2  # in two parts, as `cat a.gz b.gz` makes them
    parts = packed(plain[:half], ending) + packed(plain[half:], ending)
    (folder / f"1.{kind}.{ending}").write_bytes(parts)
    source = FolderSource(folder)
    source.open(f"1.{kind}.{ending}", 19_990)
    assert [record.position for record in source.poll(100, 0)] == list(range(19_991, 20_001))
    assert run(db, folder) == 20_000
    assert run(db, folder) == 0


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_damaged_file_is_read_up_to_the_damage_and_blocks_no_other_file(
    db: Database, tmp_path: Path, ending: str
) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    rows = b"".join(b'{"account": "a", "n": %d, "x": "%s"}\n' % (n, str(hash(str(n))).encode()) for n in range(30_000))
    (folder / f"1.jsonl.{ending}").write_bytes(packed(rows, ending)[:-50_000])
    (folder / f"2.jsonl.{ending}").write_bytes(b"this is not compressed at all")
    write(folder / "3.jsonl", ROWS)
    complete_file = tmp_path / "whole.parquet"
    write(complete_file, ROWS)
    (folder / "4.parquet").write_bytes(complete_file.read_bytes()[:-20])
    (folder / "5.parquet").write_bytes(b"")
    write(folder / "6.jsonl", ROWS)
    received = run(db, folder)
    assert 6 < received < 30_006
    first, second, third, fourth, fifth, sixth = SourceControl(db, "files").partitions()
    assert all("parquet cannot be read further" in (partition.note or "") for partition in (fourth, fifth))
    assert sixth.is_finished
    assert "cannot be read further" in (first.note or "")
    assert first.position == str(received - 6)
    assert "cannot be read further" in (second.note or "")
    assert third.note is None


def test_file_extensions_are_case_insensitive_and_tsv_is_supported(db: Database, tmp_path: Path) -> None:
    write(tmp_path / "1.JSONL", ROWS)
    (tmp_path / "2.tsv").write_text("account\tn\nc,d\t7\n")
    (tmp_path / "3.json").write_bytes(b"\xef\xbb\xbf" + json.dumps({"account": "e", "n": 8}).encode())
    assert run(db, tmp_path) == 5
    assert sent(db)[3:] == [("c,d", 7), ("e", 8)]


def test_csv_rows_with_wrong_columns_or_encoding_are_rejected(db: Database, tmp_path: Path) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    rows = ["account,n", "a,1", "a,2,too,many", "a", "\udcff,3", "a,4"]
    (folder / "1.csv").write_bytes("\r\n".join(rows).encode("utf-8", "surrogateescape"))
    assert run(db, folder) == 2
    rejected = [(record.body, record.reason) for record in SourceControl(db, "files").rejected()]
    assert [body for body, _ in rejected] == [b"a,2,too,many", b'{"account":"a","n":null}', b"\xff,3"]
    assert "the body is not JSON" in rejected[0][1]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "csv"])
def test_an_oversized_or_deeply_nested_record_is_rejected(
    db: Database, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "FOLDER_RECORD_BYTES", 12_000_000)
    folder = tmp_path / "drop"
    folder.mkdir()
    if ending == "csv":
        data = b"account,n\na,1\na," + b"2" * 10_000_000 + b"\na,3\n"
    else:
        deep = b'{"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
        data = b'{"account": "a", "n": 1}\n' + b"x" * 10_000_000 + b"\n" + b"x" * 30_000_000 + b"\n" + deep
        data += b'{"account": "a", "n": 3}\n'
    (folder / f"1.{ending}").write_bytes(packed(data, ending.partition(".")[2]))
    assert run(db, folder) == 2
    rejected = list(SourceControl(db, "files").rejected())
    sizes = [10_000_020] if ending == "csv" else [10_000_000, 12_000_000, 200_008]
    assert [len(record.body or b"") for record in rejected] == pytest.approx(sizes, abs=20)
    assert "at most 1,048,576" in rejected[0].reason


def test_a_removed_file_can_be_read_after_it_returns(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", ROWS)
    source = FolderSource(tmp_path)
    (tmp_path / "1.jsonl").rename(tmp_path / "later")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            source.open("1.jsonl", 2)
    (tmp_path / "later").rename(tmp_path / "1.jsonl")
    source.open("1.jsonl", 2)
    assert [record.position for record in source.poll(9, 0)] == [3]


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "tsv.zst"])
def test_a_csv_file_with_repeated_column_names_is_the_only_refused_file(
    db: Database, tmp_path: Path, ending: str
) -> None:
    data = b"account,n,n,note\na,1,2,x\n".replace(b",", b"\t" if ending.startswith("tsv") else b",")
    (tmp_path / f"1.{ending}").write_bytes(packed(data, ending.partition(".")[2]))
    write(tmp_path / "2.jsonl", ROWS)
    assert run(db, tmp_path) == 3
    note = SourceControl(db, "files").partitions()[0].note or ""
    assert note.startswith(f"1.{ending} cannot be read further: several columns")
    assert "kept: 'n'; repair it" in note


def test_unnamed_csv_columns_are_named_by_position() -> None:
    data = b"account,n,,\na,1,x,\n"
    [row] = rows_of("1.csv", io.BytesIO(data), len(data))
    assert json.loads(row) == {"account": "a", "n": "1", "_c2": "x", "_c3": ""}


def test_a_record_after_too_many_blanks_is_rejected_and_not_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_limits, "FOLDER_RECORD_BYTES", 100)
    data = b" " * 150 + b'{"n": 1}\n' + b" " * 150 + b'\n{"n": 2}\n'
    assert [*rows_of("1.jsonl", io.BytesIO(data), len(data))] == [b" " * 100, b'{"n": 2}']


@pytest.mark.parametrize("ending", ["jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst"])
@pytest.mark.parametrize("filler", [b"\n", b" ", b"x"])
def test_a_compressed_file_of_mostly_blank_bytes_is_the_only_refused_file(
    db: Database, tmp_path: Path, ending: str, filler: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "FOLDER_RECORD_BYTES", 10_000)
    monkeypatch.setattr(source_limits, "FOLDER_SKIPPED_BYTES", 100_000)
    first = b"account,n\na,1\n" if ending.startswith("csv") else b'{"account": "a", "n": 1}\n'
    (tmp_path / f"1.{ending}").write_bytes(packed(first + filler * 1_000_000 + b"\n", ending.partition(".")[2]))
    write(tmp_path / "2.jsonl", ROWS)
    assert run(db, tmp_path) == 4
    note = SourceControl(db, "files").partitions()[0].note or ""
    assert note.startswith(f"1.{ending} cannot be read further: ")


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_plain_file_may_contain_any_number_of_blank_lines(
    db: Database, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "FOLDER_SKIPPED_BYTES", 1_000)
    write(tmp_path / f"1.{ending}", ROWS)
    with (tmp_path / f"1.{ending}").open("ab") as file:
        file.write(b"\n" * 10_000)
    write(tmp_path / f"2.{ending}", ROWS)
    assert run(db, tmp_path) == 6


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_the_blank_line_limit_is_counted_anew_after_each_record(
    db: Database, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "FOLDER_SKIPPED_BYTES", 1_000)
    write(tmp_path / f"1.{kind}", ROWS * 100)
    data = (tmp_path / f"1.{kind}").read_bytes().replace(b"\n", b"\n" * 500)
    (tmp_path / f"2.{kind}.gz").write_bytes(gzip.compress(data))
    (tmp_path / f"1.{kind}").unlink()
    assert run(db, tmp_path) == 300
