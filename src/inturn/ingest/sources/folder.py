"""Files in a folder: JSON lines, CSV and Parquet; each file is a partition.

A file must be complete when it appears: write it elsewhere, then rename it into the folder. A position is the number of
records read, with the file's inode.
"""

import csv
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from inturn.core.errors import InputError, PositionGone, SetupError
from inturn.core.override import override
from inturn.ingest.source import Source, SourceRecord

_ENDINGS: Final = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
_ROWS: Final = 1_000


class FolderSource(Source):
    """A folder into which files are dropped.

    A line of JSON is a record as it stands. A row of CSV, whose first row has the names, and a row of Parquet are JSON
    objects. Files are read in the order of their names; a file that is read to its end may be removed.

    Args:
        path: the folder.
        pattern: which files, such as ``*.jsonl``.

    Raises:
        InputError: if there is no such folder.
    """

    def __init__(self, path: str | Path, pattern: str = "*") -> None:
        self._folder = Path(path)
        if not self._folder.is_dir():
            raise InputError(f"{str(path)!r} is no folder; make it, or name another")
        self._pattern = pattern
        self._open: dict[str, Iterator[SourceRecord]] = {}

    @override
    def partitions(self) -> Sequence[str]:
        names = (each for each in self._folder.glob(self._pattern) if each.is_file() and each.suffix in _ENDINGS)
        return sorted(each.name for each in names if not each.name.startswith("."))

    @override
    def incarnation(self, partition: str) -> str:
        return str((self._folder / partition).stat().st_ino)

    @override
    def open(self, partition: str, position: Any) -> None:
        rows = _rows(self._folder / partition)
        done = position or 0
        if sum(1 for _ in islice(rows, done)) < done:
            raise PositionGone(f"{partition} has fewer than the {done:,} records that were read of it")
        self._open[partition] = (SourceRecord(partition, number, body) for number, body in enumerate(rows, done + 1))

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        found: list[SourceRecord] = []
        for partition in sorted(self._open):
            found += islice(self._open[partition], limit - len(found))
            if len(found) == limit:
                break
        if not found:
            time.sleep(timeout_s)
        return found

    @override
    def close(self, partition: str) -> None:
        self._open.pop(partition, None)


def _rows(path: Path) -> Iterator[bytes]:
    """Yield the records of a file as JSON."""
    kind = _ENDINGS[path.suffix]
    if kind == "parquet":
        yield from _parquet_rows(path)
    elif kind == "csv":
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield from map(msgspec.json.encode, csv.DictReader(text))
    else:
        with path.open("rb") as file:
            yield from _lines(file)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    for line in file:
        if record := line.strip():
            yield record


def _parquet_rows(path: Path) -> Iterator[bytes]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise SetupError(f"for Parquet pyarrow is needed: pip install 'inturn[spark]' ({error})") from error
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS):
            yield from map(msgspec.json.encode, batch.to_pylist())
