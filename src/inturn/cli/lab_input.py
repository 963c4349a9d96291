"""The messages for ``inturn lab``: rows of files or of a queue, read in this process, without Spark."""

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from inturn.cli.errors import needed
from inturn.cli.options import FileOptions
from inturn.cli.sample import numbered
from inturn.cli.targets import check_no_database, is_database, queue_at
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.core.identity import group_text
from inturn.core.texts import name_fault, quoted
from inturn.core.values.instant import Unit, read_us
from inturn.core.values.path import parts, value_at

if TYPE_CHECKING:
    from inturn.lab import LabMessage

_FORMS: Final = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv"}
_PACKED: Final = (".gz", ".bz2", ".zst", ".snappy")
_PAGE: Final = 1_000
"""The number of messages of a queue that are read at once."""
_OFFSETS: Final = 10**8
"""Smaller numbers in the column of arrivals are counts, such as offsets; as times they would be before 1973."""
_UNITS: Final[tuple[tuple[float, Unit], ...]] = ((1e11, "s"), (1e14, "ms"), (1e17, "us"), (float("inf"), "ns"))
_REASONS: Final = 5

Row = tuple[str, Mapping[str, Any]]
"""A row with its place for error texts, such as ``log.csv, row 7``."""


@dataclass(frozen=True, kw_only=True)
class LabColumns:
    """The columns of a log.

    Attributes:
        group: column of the group; ``payload.account`` is a nested field.
        order: column of the revision, a whole number or a time.
        arrival: column with the time of arrival, or an offset; None if the rows are in the order of arrival.
        duration: column of the handler times, in milliseconds; None to draw them.
        every_us: time between two arrivals if the log has no times, in microseconds.
    """

    group: str
    order: str
    arrival: str | None = None
    duration: str | None = None
    every_us: int = 1_000


@dataclass
class LabLog:
    """The messages of a log.

    Attributes:
        messages: the messages.
        left_out: number of invalid rows.
        reasons: the reasons of the first ones.
    """

    messages: "list[LabMessage]" = field(default_factory=list)
    left_out: int = 0
    reasons: list[str] = field(default_factory=list)

    def leave_out(self, reason: str) -> None:
        """Count an invalid row."""
        self.left_out += 1
        if len(self.reasons) < _REASONS:
            self.reasons.append(reason)


def is_queue(source: str) -> bool:
    """Return whether a source is a queue of a database; a database without one is refused later."""
    return "#" in source or "://" in source or is_database(source)


def queue_columns(columns: LabColumns | None) -> LabColumns:
    """Return the columns of the messages of a queue: those of the envelope."""
    every_us = 1_000 if columns is None else columns.every_us
    return LabColumns(group="group", order="revision", arrival="sent_at", every_us=every_us)


def queue_rows(source: str) -> Iterator[Row]:
    """Yield the envelopes of the unacknowledged messages of a queue, without leasing them.

    Raises:
        InputError: if no queue is named.
        StoreError: if it does not exist.
    """
    check_no_database(source)
    with queue_at(source) as queue:
        after = 0
        while page := queue.peek(_PAGE, after=after):
            after = page[-1].sequence_number
            for message in page:
                envelope = {
                    "group": message.group,
                    "revision": message.revision,
                    "sent_at": message.sent_at,
                    "body": message.body,
                }
                yield f"{shown(source)}, message {message.sequence_number}", envelope


def file_rows(source: str, columns: LabColumns, options: FileOptions) -> Iterator[Row]:
    """Return the rows of files: Parquet, JSON lines, or CSV with a header.

    Raises:
        InputError: if there are no files, their format is unknown, or they cannot be read or lack columns.
    """
    files = _files(source)
    form = options.format_ or _form_of(files[0])
    if form not in _FORMS.values():
        raise InputError(f"--format is {quoted(form)}; expected parquet, json or csv")
    if options.csv and form != "csv":
        option = next(iter(options.csv))
        raise InputError(f"--{option} is only for CSV files, and {source} is {form}; omit it, or add --format csv")
    return _lines(files) if form == "json" else _tables(files, form, columns, options)


def _files(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name[0] not in "_."]
        if not files:
            raise InputError(f"{source} contains no files; expected Parquet, JSON lines or CSV files")
        return files
    if not path.is_file():
        raise InputError(f"no file or folder {source}; expected a log, a queue such as shop.db#payments, or --scenario")
    return [path]


def _form_of(file: Path) -> str:
    ending = next((suffix for suffix in reversed(file.suffixes) if suffix not in _PACKED), "")
    form = _FORMS.get(ending.lower())
    if form is None:
        raise InputError(f"the name of {file} shows no known format; add --format parquet, json or csv")
    return form


def _lines(files: Sequence[Path]) -> Iterator[Row]:
    for where, line in numbered(list(files)):
        try:
            content = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON: {error}; expected one object on each line") from error
        if not isinstance(content, dict):
            raise InputError(f"{where} is {quoted(repr(content))}; expected a JSON object on each line")
        yield where, content


def _tables(files: Sequence[Path], form: str, columns: LabColumns, options: FileOptions) -> Iterator[Row]:
    with needed(f"{form} needs", "lab"):
        import pyarrow as pa
    for file in files:
        try:
            batches = _parquet(file) if form == "parquet" else _csv(file, columns, options)
            number = 0
            for names, batch in batches:
                if number == 0:
                    _check_columns(file, names, columns)
                for row in batch:
                    number += 1
                    yield f"{file.name}, row {number}", row
        except (pa.ArrowException, OSError, UnicodeError, LookupError) as error:
            raise InputError(f"cannot read {file} as {form}: {str(error).splitlines()[0]}") from error


def _parquet(file: Path) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches():
            yield batch.schema.names, batch.to_pylist()


def _csv(file: Path, columns: LabColumns, options: FileOptions) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    import pyarrow as pa
    from pyarrow import csv

    if options.quote is not None and len(options.quote) > 1:
        raise InputError(f"--quote {options.quote!r}; expected one character, or '' for files without quotes")
    if options.delimiter is not None and len(options.delimiter) != 1:
        raise InputError(f"--delimiter {options.delimiter!r}; expected one character, such as ';'")
    table = csv.read_csv(
        file,
        read_options=csv.ReadOptions(encoding=options.encoding or "utf8"),
        parse_options=csv.ParseOptions(
            delimiter=options.delimiter or ",",
            quote_char='"' if options.quote is None else options.quote or False,
            newlines_in_values=True,
        ),
        convert_options=csv.ConvertOptions(
            column_types={columns.group: pa.string()},  # 007 is not 7
            null_values=["", *([options.null] if options.null else [])],
            strings_can_be_null=True,
        ),
    )
    for batch in table.to_batches():
        yield table.column_names, batch.to_pylist()


def _check_columns(file: Path, names: Sequence[str], columns: LabColumns) -> None:
    for option in ("group", "order", "arrival", "duration"):
        path = getattr(columns, option)
        if path is not None and parts(path)[0] not in names:
            raise InputError(
                f"--{option} is {path!r}; the columns of {file.name} are {', '.join(map(repr, names)) or 'none'}"
            )


def lab_log(rows: Iterator[Row], columns: LabColumns, source: str, *, from_queue: bool = False) -> LabLog:
    """Return the messages of rows; an invalid row is left out and counted.

    Raises:
        InputError: if there are no rows, or no valid ones.
    """
    from inturn.lab import LabMessage

    log = LabLog()
    arrivals: list[LabArrival] = []
    for where, row in rows:
        try:
            message = LabMessage(
                at_us=0,
                group=_group(value_at(row, columns.group)),
                revision=_revision(value_at(row, columns.order)),
                duration_us=None if columns.duration is None else _duration_us(value_at(row, columns.duration)),
                body=row["body"] if from_queue else row,
            )
            if columns.arrival is not None:
                arrivals.append(_arrival(value_at(row, columns.arrival)))
        except InputError as error:
            log.leave_out(f"{where}: {error}")
            continue
        log.messages.append(message)
    if not log.messages:
        reason = f"; {log.reasons[0]}" if log.reasons else ": it is empty; expected a log with at least one message"
        raise InputError(f"{shown(source)} has no message for the lab{reason}")
    log.messages = _timed(log.messages, arrivals, columns)
    return log


def _group(value: Any) -> str:
    if value is None:
        raise InputError("the group is missing; expected a text or a whole number in the column of --group")
    group = group_text(value)
    if fault := name_fault("group", group):
        raise InputError(fault)
    return group


def _revision(value: Any) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)
    at_us = read_us(value) if isinstance(value, str | dt.datetime) else None
    if at_us is None:
        raise InputError(
            f"the revision is {quoted(repr(value))}; expected a whole number or a time in the column of --order"
        )
    return at_us


def _duration_us(value: Any) -> int:
    if isinstance(value, dt.timedelta):
        duration_us = value.total_seconds() * 1e6
    else:
        try:
            duration_us = float(value) * 1e3
        except (TypeError, ValueError):
            duration_us = -1.0
    if not 0 <= duration_us < 2**53:
        raise InputError(
            f"the duration is {quoted(repr(value))}; expected milliseconds, 0 or more, in the column of --duration"
        )
    return round(duration_us)


@dataclass(frozen=True)
class LabArrival:
    """The arrival of a row: a time in microseconds, or a number too small to be one, such as an offset."""

    value: float
    is_time: bool

    @property
    def at_us(self) -> int:
        """The time in microseconds; a small number counts as seconds since 1970."""
        return int(self.value) if self.is_time else round(self.value * 1e6)


def _arrival(value: Any) -> LabArrival:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = int(value) if value.strip().isdecimal() else float(value)
    if isinstance(value, str | dt.datetime):
        at_us = read_us(value)
        value = None if at_us is None else LabArrival(at_us, is_time=True)
    if isinstance(value, LabArrival):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - a NaN
        raise InputError("the arrival is not a time; expected a time, ISO 8601 or a number since 1970, or an offset")
    if abs(value) < _OFFSETS:
        return LabArrival(value, is_time=False)
    unit = next(unit for most, unit in _UNITS if abs(value) <= most)
    return LabArrival(read_us(value, unit) or 0, is_time=True)


def _timed(messages: "list[LabMessage]", arrivals: list[LabArrival], columns: LabColumns) -> "list[LabMessage]":
    """Return the messages with their times: those of the log, or evenly spaced ones if it has only an order."""
    numbers = range(len(messages))
    if arrivals and any(arrival.is_time for arrival in arrivals):
        return [
            msgspec.structs.replace(message, at_us=arrival.at_us)
            for message, arrival in zip(messages, arrivals, strict=True)
        ]
    order = sorted(numbers, key=lambda number: arrivals[number].value) if arrivals else numbers
    places = {number: place for place, number in enumerate(order)}
    return [
        msgspec.structs.replace(message, at_us=places[index] * columns.every_us)
        for index, message in enumerate(messages)
    ]
