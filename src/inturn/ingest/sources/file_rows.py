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
_PACKED: Final = (".gz", ".zst")
_BOM: Final = b"\xef\xbb\xbf"
_NAMED: Final = 10  # column names that an error has
_ROWS: Final = 1_000  # of Parquet at a time, or fewer that are large
_BUFFER: Final = 1_048_576  # instead of a whole column of a row group


class FileFormat(NamedTuple):
    """The format of a file.

    Attributes:
        kind: ``json``, ``parquet``, or the separator of the values in a row.
        packed: the ending of its compression; empty: none.
    """

    kind: str
    packed: str

    @property
    def may_grow(self) -> bool:
        """True if text appended after a line is a further record."""
        return self.kind == "json" and not self.packed


def format_of(name: str) -> FileFormat | None:
    """Return the format of a file by the ending of its name; None: unsupported."""
    path = PurePath(name.lower())
    packed = path.suffix if path.suffix in _PACKED else ""
    kind = _ENDINGS.get((path.with_suffix("") if packed else path).suffix)
    return None if kind is None or (packed and kind == "parquet") else FileFormat(kind, packed)


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
    unpacked = _unpacked(cast("IO[bytes]", io.BufferedReader(_FirstBytes(file, size))), format_.packed)
    # A plain file has at most its own size to pass over.
    passed = _PassedOver(source_limits.FOLDER_PASSED_BYTES if format_.packed else size)
    return _lines(unpacked, passed) if format_.kind == "json" else _csv_rows(unpacked, format_.kind, passed)


def _unpacked(file: IO[bytes], packed: str) -> IO[bytes]:
    """Return the uncompressed content."""
    if packed == ".gz":
        return cast("IO[bytes]", io.BufferedReader(gzip.open(file)))  # its own readline() is Python code
    if packed == ".zst":
        pyarrow = _pyarrow("Zstandard")
        stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")
        return cast("IO[bytes]", io.BufferedReader(stream))
    return file


class _FirstBytes(io.RawIOBase):
    """The first bytes of a file; what is appended later is not read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


class _PassedOver:
    """The count of bytes since the last record, such as blank lines, which are unlimited in a compressed file.

    Args:
        most: their maximum number.
    """

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0

    def add(self, count: int) -> None:
        """Count bytes.

        Raises:
            InputError: if there are too many of them.
        """
        self._bytes += count
        if self._bytes > self._most:
            raise InputError(
                f"more than {self._most:,} bytes contain no record: blank lines, or the rest of a record above "
                f"{source_limits.FOLDER_RECORD_BYTES:,} bytes"
            )

    def end(self) -> None:
        """Begin anew, after a record."""
        self._bytes = 0


def _lines(file: IO[bytes], passed: _PassedOver) -> Iterator[bytes]:
    most, is_first = source_limits.FOLDER_RECORD_BYTES, True
    while line := file.readline(most):
        record, rest = (line.removeprefix(_BOM) if is_first else line).strip(), line
        while len(rest) == most and not rest.endswith(b"\n"):  # its beginning is rejected, for its length
            rest = file.readline(most)
            passed.add(len(rest))
            record = record or (line if rest.strip() else b"")
        if record:
            yield record
            passed.end()
        else:
            passed.add(len(line))
        is_first = False


def _csv_rows(file: IO[bytes], separator: str, passed: _PassedOver) -> Iterator[bytes]:
    """Yield the rows as JSON objects; a row that cannot be converted, as CSV, which is then rejected as invalid JSON.

    A column without a name, as in exports of spreadsheets, has the name that Spark gives it: ``_c3`` is the fourth.

    Raises:
        InputError: if two columns have the same name: an object can hold only one of them.
    """
    csv.field_size_limit(max(csv.field_size_limit(), source_limits.FOLDER_RECORD_BYTES))
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    rows = csv.DictReader(_csv_lines(text, passed), delimiter=separator)
    rows.fieldnames = names = [name or f"_c{at}" for at, name in enumerate(rows.fieldnames or ())]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        named = ", ".join(f"{name!a:.100}" for name in repeated[:_NAMED])
        raise InputError(f"several columns have the same name, and only one of their values would be kept: {named}")
    for row in rows:
        passed.end()
        try:
            yield msgspec.json.encode(row)
        except (TypeError, UnicodeEncodeError):  # more values than names, or not UTF-8
            values = [*(value for name, value in row.items() if name is not None), *row.get(None, ())]
            yield separator.join(value or "" for value in values).encode("utf-8", "surrogateescape")


def _csv_lines(text: io.TextIOWrapper, passed: _PassedOver) -> Iterator[str]:
    """Yield the lines, none longer than a record: the CSV reader would hold a line of any length in memory."""
    most = source_limits.FOLDER_RECORD_BYTES
    while line := text.readline(most):
        if len(line) == most and not line.endswith("\n"):
            raise InputError(f"a line has more than {most:,} characters")
        passed.add(len(line))
        yield line


def _parquet_rows(file: IO[bytes]) -> Iterator[bytes]:
    _pyarrow("Parquet")
    from pyarrow import parquet

    with parquet.ParquetFile(file, buffer_size=_BUFFER) as table:
        groups = [table.metadata.row_group(number) for number in range(table.num_row_groups)]
        largest = max((each.total_byte_size // (each.num_rows or 1) for each in groups), default=0)
        rows = min(_ROWS, source_limits.INGEST_BYTES // (largest or 1)) or 1
        for batch in table.iter_batches(rows):
            yield from (msgspec.json.encode(each, enc_hook=str) for each in batch.to_pylist())


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise SetupError(f"{what} needs pyarrow: pip install 'inturn[arrow]' ({error})") from error
    return pyarrow
