"""The rows of a file as JSON: lines of JSON, CSV and Parquet, compressed or not."""

import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import IO, Any, Final, NamedTuple, cast

import msgspec

from inturn.core.errors import InputError, SetupError
from inturn.core.override import override
from inturn.ingest import limits as source_limits

_ENDINGS: Final = {
    ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": ",", ".tsv": "\t", ".parquet": "parquet"
}  # fmt: skip
_COMPRESSIONS: Final = (".gz", ".zst")
_BOM: Final = b"\xef\xbb\xbf"
_NAMES_SHOWN: Final = 10  # column names that an error has
_ROWS: Final = 1_000  # of Parquet at a time, or fewer that are large
_BUFFER: Final = 1_048_576  # instead of a whole column of a row group


class FileFormat(NamedTuple):
    """The format of a file.

    Attributes:
        kind: ``json``, ``parquet``, or the separator of the values in a row.
        compression: the ending of its compression; empty: none.
    """

    kind: str
    compression: str

    @property
    def may_grow(self) -> bool:
        """True if text appended after a line is a further record."""
        return self.kind == "json" and not self.compression


def format_of(name: str) -> FileFormat | None:
    """Return the format of a file by the ending of its name; None: unsupported."""
    path = PurePath(name.lower())
    compression = path.suffix if path.suffix in _COMPRESSIONS else ""
    kind = _ENDINGS.get((path.with_suffix("") if compression else path).suffix)
    return None if kind is None or (compression and kind == "parquet") else FileFormat(kind, compression)


def rows_of(name: str, file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the records in the first bytes of a file as JSON; a row that cannot be converted is yielded unchanged.

    Raises:
        InputError: if the ending of this name is not supported.
        SetupError: if an extra is missing.
        Exception: any error of the libraries, if the rest of the file is damaged.
    """
    format_ = format_of(name)
    if format_ is None:
        raise InputError(
            f"{name} is not read; supported endings: {', '.join(_ENDINGS)}, all but Parquet also with .gz or .zst"
        )
    if format_.kind == "parquet":
        return _parquet_rows(file)
    decompressed = _decompressed(cast("IO[bytes]", io.BufferedReader(_FirstBytes(file, size))), format_.compression)
    # A plain file has at most its own size to pass over.
    skipped = _SkippedBytes(source_limits.FOLDER_SKIPPED_BYTES if format_.compression else size)
    return _lines(decompressed, skipped) if format_.kind == "json" else _csv_rows(decompressed, format_.kind, skipped)


def _decompressed(file: IO[bytes], compression: str) -> IO[bytes]:
    """Return the uncompressed content."""
    if compression == ".gz":
        return cast("IO[bytes]", io.BufferedReader(gzip.open(file)))  # its own readline() is Python code
    if compression == ".zst":
        pyarrow = _pyarrow("Zstandard")
        stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")
        return cast("IO[bytes]", io.BufferedReader(stream))
    return file


class _FirstBytes(io.RawIOBase):
    """The first bytes of a file; what is appended later is not read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._remaining = file, size

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._remaining))
        buffer[: len(data)] = data
        self._remaining -= len(data)
        return len(data)


class _SkippedBytes:
    """The count of bytes since the last record, such as blank lines, which are unlimited in a compressed file.

    Args:
        max_bytes: their maximum number.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._bytes = max_bytes, 0

    def add(self, count: int) -> None:
        """Count bytes.

        Raises:
            InputError: if there are too many of them.
        """
        self._bytes += count
        if self._bytes > self._max_bytes:
            raise InputError(
                f"more than {self._max_bytes:,} bytes contain no record: blank lines, or the rest of a record above "
                f"{source_limits.FOLDER_RECORD_BYTES:,} bytes"
            )

    def reset(self) -> None:
        """Begin anew, after a record."""
        self._bytes = 0


def _lines(file: IO[bytes], skipped: _SkippedBytes) -> Iterator[bytes]:
    max_bytes, is_first = source_limits.FOLDER_RECORD_BYTES, True
    while line := file.readline(max_bytes):
        record, rest = (line.removeprefix(_BOM) if is_first else line).strip(), line
        while len(rest) == max_bytes and not rest.endswith(b"\n"):  # its beginning is rejected, for its length
            rest = file.readline(max_bytes)
            skipped.add(len(rest))
            record = record or (line if rest.strip() else b"")
        if record:
            yield record
            skipped.reset()
        else:
            skipped.add(len(line))
        is_first = False


def _csv_rows(file: IO[bytes], separator: str, skipped: _SkippedBytes) -> Iterator[bytes]:
    """Yield the rows as JSON objects; a row that cannot be converted, as CSV, which is then rejected as invalid JSON.

    A column without a name, as in exports of spreadsheets, has the name that Spark gives it: ``_c3`` is the fourth.

    Raises:
        InputError: if two columns have the same name: an object can hold only one of them.
    """
    csv.field_size_limit(max(csv.field_size_limit(), source_limits.FOLDER_RECORD_BYTES))
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    rows = csv.DictReader(_csv_lines(text, skipped), delimiter=separator)
    rows.fieldnames = names = [name or f"_c{index}" for index, name in enumerate(rows.fieldnames or ())]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        shown_names = ", ".join(f"{name!a:.100}" for name in repeated[:_NAMES_SHOWN])
        raise InputError(
            f"several columns have the same name, and only one of their values would be kept: {shown_names}"
        )
    for row in rows:
        skipped.reset()
        try:
            yield msgspec.json.encode(row)
        except (TypeError, UnicodeEncodeError):  # more values than names, or not UTF-8
            values = [*(value for name, value in row.items() if name is not None), *row.get(None, ())]
            yield separator.join(value or "" for value in values).encode("utf-8", "surrogateescape")


def _csv_lines(text: io.TextIOWrapper, skipped: _SkippedBytes) -> Iterator[str]:
    """Yield the lines, none longer than a record: the CSV reader would hold a line of any length in memory."""
    max_length = source_limits.FOLDER_RECORD_BYTES
    while line := text.readline(max_length):
        if len(line) == max_length and not line.endswith("\n"):
            raise InputError(f"a line has more than {max_length:,} characters")
        skipped.add(len(line))
        yield line


def _parquet_rows(file: IO[bytes]) -> Iterator[bytes]:
    _pyarrow("Parquet")
    from pyarrow import parquet

    with parquet.ParquetFile(file, buffer_size=_BUFFER) as table:
        groups = [table.metadata.row_group(number) for number in range(table.num_row_groups)]
        largest = max((group.total_byte_size // (group.num_rows or 1) for group in groups), default=0)
        rows = min(_ROWS, source_limits.INGEST_BYTES // (largest or 1)) or 1
        for batch in table.iter_batches(rows):
            yield from (msgspec.json.encode(row, enc_hook=str) for row in batch.to_pylist())


def _pyarrow(feature: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise SetupError(f"{feature} needs pyarrow: pip install 'inturn[arrow]' ({error})") from error
    return pyarrow
