"""Files in a folder: JSON lines, CSV and Parquet; each file is a partition.

A file must be complete when it appears: write it elsewhere, then rename it into the folder. A position is the number of
records read, with the file's inode; in a compressed file too, so that it is read again up to there.
"""

import csv
import gzip
import io
import time
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec

from inturn.core.errors import InputError, PositionGone, SetupError, SourceError
from inturn.core.override import override
from inturn.ingest import limits as source_limits
from inturn.ingest.source import Source, SourceRecord

_ENDINGS: Final = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
_PACKED: Final = (".gz", ".zst")
_DAMAGE: Final = (EOFError, OSError, ValueError, csv.Error, zlib.error)  # pyarrow raises OSError and ValueError
_ROWS: Final = 1_000


class FolderSource(Source):
    """A folder into which files are dropped.

    A line of JSON is a record as it stands. A row of CSV, whose first row has the names, and a row of Parquet are JSON
    objects. JSON and CSV may be compressed, as ``.jsonl.gz`` or ``.csv.zst``. Files are read in the order of their
    names; a file that is read to its end may be removed. One that is damaged is read up to there, and then refused.

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
        self._damaged: dict[str, str] = {}  # files that cannot be read on, with the text that says so

    @override
    def partitions(self) -> Sequence[str]:
        names = (each for each in self._folder.glob(self._pattern) if each.is_file() and _kind(each.name)[0])
        return sorted(each.name for each in names if not each.name.startswith("."))

    @override
    def incarnation(self, partition: str) -> str:
        return str((self._folder / partition).stat().st_ino)

    @override
    def open(self, partition: str, position: Any) -> None:
        if partition in self._damaged:
            raise PositionGone(self._damaged.pop(partition))
        rows = _rows(self._folder / partition)
        done = position or 0
        try:
            found = sum(1 for _ in islice(rows, done))
        except _DAMAGE as error:
            raise PositionGone(_damaged(partition, error)) from error
        if found < done:
            raise PositionGone(f"{partition} has fewer than the {done:,} records that were read of it")
        self._open[partition] = (SourceRecord(partition, number, body) for number, body in enumerate(rows, done + 1))

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        found: list[SourceRecord] = []
        for partition in sorted(self._open):
            try:
                for record in islice(self._open[partition], limit - len(found)):
                    found.append(record)  # noqa: PERF402 - what comes before an error counts
            except _DAMAGE as error:
                self._damaged[partition] = _damaged(partition, error)
            if len(found) == limit:
                break
        if not found and self._damaged:
            raise SourceError(next(iter(self._damaged.values())))
        if not found:
            time.sleep(timeout_s)
        return found

    @override
    def close(self, partition: str) -> None:
        self._open.pop(partition, None)


def _damaged(partition: str, error: BaseException) -> str:
    """Return the text about a damaged file; raise an error of the disk, which may pass, or of a file that is gone."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    return f"{partition} cannot be read on: {error}; mend the file, then seek"


def _kind(name: str) -> tuple[str | None, str]:
    """Return the format of a file, None for one that is not read, and the ending of its compression."""
    path = Path(name)
    packed = path.suffix if path.suffix in _PACKED else ""
    kind = _ENDINGS.get((path.with_suffix("") if packed else path).suffix)
    return (None if packed and kind == "parquet" else kind), packed


def _rows(path: Path) -> Iterator[bytes]:
    """Yield the records of a file as JSON."""
    kind, packed = _kind(path.name)
    if kind == "parquet":
        yield from _parquet_rows(path)
        return
    with _opened(path, packed) as file:
        yield from _csv_rows(file) if kind == "csv" else _lines(file)


def _opened(path: Path, packed: str) -> IO[bytes]:
    """Open a file, to be read as it was before it was compressed."""
    if packed == ".gz":
        return cast("IO[bytes]", gzip.open(path))
    if packed == ".zst":
        pyarrow = _pyarrow("Zstandard")
        unpacked = pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd")
        return cast("IO[bytes]", io.BufferedReader(unpacked))
    return path.open("rb")


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    most = source_limits.FOLDER_RECORD_BYTES
    while line := file.readline(most):
        rest = line
        while len(rest) == most and not rest.endswith(b"\n"):  # its beginning is rejected, for its length
            rest = file.readline(most)
        if record := line.strip():
            yield record


def _csv_rows(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the rows as JSON objects; one that cannot be, as CSV again, to be rejected as no JSON."""
    csv.field_size_limit(max(csv.field_size_limit(), source_limits.FOLDER_RECORD_BYTES))
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    for row in csv.DictReader(text):
        try:
            yield msgspec.json.encode(row)
        except (TypeError, UnicodeEncodeError):  # more values than names, or not UTF-8
            values = [*(value for name, value in row.items() if name is not None), *row.get(None, ())]
            yield ",".join(value or "" for value in values).encode("utf-8", "surrogateescape")


def _parquet_rows(path: Path) -> Iterator[bytes]:
    _pyarrow("Parquet")
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS):
            yield from (msgspec.json.encode(each, enc_hook=str) for each in batch.to_pylist())


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise SetupError(f"for {what} pyarrow is needed: pip install 'inturn[arrow]' ({error})") from error
    return pyarrow
