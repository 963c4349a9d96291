"""Commands that show results of pipelines: states, outputs, rejected messages; and list the pipelines."""

import csv
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from rich.table import Table
from rich.text import Text

from inturn.cli.errors import needed
from inturn.cli.options import TABLE_ROWS, AsJson, AsLines, DatabaseAt, RowLimit, StoreAt
from inturn.cli.output import cell, json_line, one_line, plain_console, print_json, print_text, print_truncated
from inturn.cli.targets import open_inspector, opened_database, split_target
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.core.words import counted
from inturn.results.inspection import DatabaseInspector
from inturn.results.pipeline import PipelineResults
from inturn.results.tables import ResultTable

if TYPE_CHECKING:
    from inturn.core.pipeline.inspection import Inspector


class ResultFormat(StrEnum):
    """A format in which rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


_ENDINGS: Final = {
    ".json": ResultFormat.JSON,
    ".jsonl": ResultFormat.JSON,
    ".csv": ResultFormat.CSV,
    ".parquet": ResultFormat.PARQUET,
}

Group = Annotated[str | None, "Only this group."]


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Options for writing rows."""

    limit: RowLimit = None
    format_: Annotated[
        ResultFormat | None,
        "Output format: table, json (JSON lines), csv or parquet (default: by the name of --to).",
    ] = None
    to: Annotated[Path | None, "Write the result to this file, which is replaced."] = None
    as_json: AsLines = False


def states(
    store: StoreAt,
    *,
    group: Group = None,
    older: Annotated[bool, "Only states of an older version than that of the pipeline."] = False,
    options: WriteOptions,
) -> None:
    """Show the state and status of every group of a pipeline."""
    _write(store, lambda results: results.states(group, older=older), options, _older_states)


def outputs(store: StoreAt, *, group: Group = None, options: WriteOptions) -> None:
    """Show the outputs of a pipeline: undelivered ones of a database, all of a store on Spark."""
    _write(store, lambda results: results.outputs(group), options)


def rejected(store: StoreAt, *, group: Group = None, options: WriteOptions) -> None:
    """Show the rejected messages of a pipeline, with the reasons."""
    _write(store, lambda results: results.rejected(group), options)


def pipelines(database: DatabaseAt, as_json: AsJson = False) -> None:
    """List the pipelines of a database, with the numbers of groups, held messages and undelivered outputs."""
    path, name = split_target(database)
    if name:
        raise InputError(f"{shown(database)!r} names a pipeline; list all with 'inturn pipelines {shown(path)}'")
    with opened_database(path) as db:
        inspectors = {name: DatabaseInspector(db, name) for name in db.pipelines()}
        summaries = {name: inspector.summary()._asdict() for name, inspector in inspectors.items()}
        versions = {name: _versions(inspector) for name, inspector in inspectors.items()}
    if as_json:
        current = {name: {inspector.version: summaries[name]["groups"]} for name, inspector in inspectors.items()}
        print_json(
            [{"pipeline": name, **summaries[name], "versions": versions[name] or current[name]} for name in summaries]
        )
        return
    table = Table("pipeline", "groups", "waiting", "parked", "held", "outputs", box=None, pad_edge=False)
    for name, numbers in summaries.items():
        table.add_row(cell(name), *(f"{number:,}" for number in numbers.values()))
    for column in table.columns[1:]:
        column.justify = "right"
    plain_console().print(table if summaries else f"{shown(path)} has no pipelines.")
    for name, inspector in inspectors.items():
        if text := _versions_text(versions[name], inspector.version):
            print_text(f"{one_line(name)}: {text}")


def _versions(inspector: "Inspector") -> dict[int, int]:
    """Return the number of groups by state version; empty if the pipeline never had another version."""
    return inspector.versions() if inspector.version > 1 else {}


def _versions_text(by_version: dict[int, int], version: int) -> str:
    """Return a text with the number of states by version; empty if all have the version of the pipeline."""
    if not {*by_version} - {version}:
        return ""
    counts = ", ".join(
        f"{counted(count, 'group')} with version {state_version}" for state_version, count in by_version.items()
    )
    return f"some states have an older version: {counts}; the pipeline has version {version}."


def _older_states(inspector: "Inspector") -> str:
    """Return the text of :func:`_versions_text` as a sentence."""
    text = _versions_text(_versions(inspector), inspector.version)
    return text[:1].upper() + text[1:]


def _write(
    store: str,
    read: Callable[[PipelineResults], ResultTable[Any]],
    options: WriteOptions,
    end: Callable[["Inspector"], str] = lambda _: "",
) -> None:
    """Write the rows of a store; ``end`` returns a sentence to print below a table."""
    form = _format(options)
    with open_inspector(store) as inspector:
        table = read(PipelineResults(inspector))
        if options.to is not None:
            print_text(
                f"{counted(_save(table.first(options.limit), form, options.to), 'row')} written to {options.to}.",
                err=True,
            )
        elif form is ResultFormat.JSON:
            for record in table.first(options.limit).records():
                print_json(record, default=_time)
        else:
            _show(table, options.limit or TABLE_ROWS)
            if text := end(inspector):
                print_text(text)


def _format(options: WriteOptions) -> ResultFormat:
    """Return the format to write.

    Raises:
        InputError: if the options contradict each other, or the format needs a file and none is named.
    """
    if options.as_json and options.format_ not in {None, ResultFormat.JSON}:
        raise InputError(f"--json and --format {options.format_} exclude each other; pass one")
    ending = None if options.to is None else _ENDINGS.get(options.to.suffix.lower())
    form = ResultFormat.JSON if options.as_json else options.format_ or ending
    if options.to is None:
        if form in {ResultFormat.CSV, ResultFormat.PARQUET}:
            raise InputError(f"format {form} needs a file; pass --to, such as --to states.{form}")
        return form or ResultFormat.TABLE
    if form in {None, ResultFormat.TABLE}:
        raise InputError(f"--to {options.to}: unknown format of the file; pass --format json, csv or parquet")
    return form


def _save(table: ResultTable[Any], form: ResultFormat, to: Path) -> int:
    """Write rows to a file, page by page, and return their number."""
    if form is ResultFormat.PARQUET:
        return _save_parquet(table, to)
    count = 0
    with to.open("w", encoding="utf-8", newline="") as file:
        if form is ResultFormat.CSV:
            writer = csv.DictWriter(file, list(table.columns))
            writer.writeheader()
            for row in table.texts():
                count += 1
                writer.writerow({name: _time(value) for name, value in row.items()})
        else:
            for row in table.records():
                count += 1
                file.write(json_line(row, default=_time) + "\n")
    return count


def _save_parquet(table: ResultTable[Any], to: Path) -> int:
    with needed("Parquet needs", "arrow"):
        import pyarrow.parquet as pq
    count = 0
    with pq.ParquetWriter(to, table.schema) as writer:
        for batch in table.batches():
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _time(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _show(table: ResultTable[Any], limit: int) -> None:
    """Print the first rows as a table, without columns that are empty in all rows."""
    rows = list(islice(table.texts(), limit + 1))
    if not rows:
        print_text("No results.")
        return
    names = [name for name in table.columns if any(row[name] is not None for row in rows)]
    shown_as = Table(*names, box=None, pad_edge=False)
    for name, column in zip(names, shown_as.columns, strict=True):
        column.justify = "right" if table.columns[name].type is int else "left"
    for row in rows[:limit]:
        shown_as.add_row(*(_cell(row[name]) for name in names))
    plain_console().print(shown_as)
    if len(rows) > limit:
        print_truncated(f"the first {limit:,}")


def _cell(value: Any) -> Text:
    if isinstance(value, dt.datetime):
        return cell(f"{value:%Y-%m-%d %H:%M:%S}")
    text = "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return cell((text.strip().splitlines() or [""])[-1])  # the last line of a traceback is the error
