"""Sorted runs on disk, and their merge block by block: rows that do not fit in memory are sorted this way."""

import os
import shutil
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from inturn.core.errors import SetupError
from inturn.spark.executor.sort_key import RowKey, SortKey, plain, row_at

MERGE_RUNS: Final = 64
"""The maximum number of runs merged at a time; more runs are first merged into fewer, which costs another pass."""


def pools(pieces: Iterable[Any], rows: int, nbytes: int) -> Iterator[list[Any]]:
    """Collect record batches or tables up to both bounds; one may be larger.

    The caller empties the list, so that no piece is kept alive while its sorted copy is in use.
    """
    pool: list[Any] = []
    pool_rows = pool_bytes = 0
    for piece in pieces:
        if piece.num_rows == 0:
            continue
        if pool and (pool_rows + piece.num_rows > rows or pool_bytes + piece.nbytes > nbytes):
            yield pool
            pool, pool_rows, pool_bytes = [], 0, 0
        pool.append(piece)
        pool_rows += piece.num_rows
        pool_bytes += piece.nbytes
    if pool:
        yield pool


def combine(pieces: list[Any]) -> pa.Table:
    """Combine the list's record batches or tables into one table, each column in one piece; empty the list."""
    tables = [pa.Table.from_batches([piece]) if isinstance(piece, pa.RecordBatch) else piece for piece in pieces]
    pieces.clear()
    return pa.concat_tables(tables).combine_chunks()


def cut(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    """Yield a table in pieces of the given number of rows."""
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def regroup(tables: Iterable[pa.Table], rows: int, nbytes: int) -> Iterator[pa.Table]:
    """Join small tables and cut large ones, so that the kernel's cost per chunk is spread over many rows."""
    pieces = (piece for table in tables for piece in cut(table, rows))
    return map(combine, pools(pieces, rows, nbytes))


class SpilledRun:
    """A sorted run on disk, with one of its blocks in memory."""

    def __init__(self, path: Path, key: SortKey) -> None:
        self._path, self._key, self._blocks_read = path, key, 0
        self._load()

    def _load(self) -> None:
        with _spilling(self._path.parent), pa.OSFile(str(self._path), "rb") as source:
            reader = pa.ipc.open_file(source)  # opened for each block, so that many runs need no open files
            block = reader.get_batch(self._blocks_read)
            self._blocks_read += 1
            self._has_more = self._blocks_read < reader.num_record_batches
        self._block, self._start = pa.Table.from_batches([block]), 0  # rows before _start are already taken
        self._columns = [plain(block[name]) for name in self._key.names]
        self.last = row_at(self._columns, block.num_rows - 1)

    def refill(self) -> bool:
        """Load the next block if this one is used up; return False if there is none."""
        if self._start == self._block.num_rows:
            if not self._has_more:
                return False
            self._load()
        return True

    def take_until(self, bound: RowKey, *, inclusive: bool) -> pa.Table:
        """Return the remaining rows of the block that are less than ``bound``, or equal to it if ``inclusive``."""
        bisect = bisect_right if inclusive else bisect_left
        rows = range(self._block.num_rows)
        start = self._start
        self._start = bisect(rows, bound, lo=start, key=lambda index: row_at(self._columns, index))
        return self._block.slice(start, self._start - start)


def _merge(paths: Sequence[Path], key: SortKey) -> Iterator[pa.Table]:
    """Yield the rows of all runs in order, with one block of each in memory.

    The least of the blocks' last rows is the bound: no row still on disk can come before it. Each round yields all
    rows up to the bound, and so uses up at least one block. Of rows equal to the bound, those of an earlier run come
    first, so that the order is stable.
    """
    sorted_runs = [SpilledRun(path, key) for path in paths]
    while sorted_runs := [run for run in sorted_runs if run.refill()]:
        bound, bounding = min((run.last, place) for place, run in enumerate(sorted_runs))
        parts = [run.take_until(bound, inclusive=place <= bounding) for place, run in enumerate(sorted_runs)]
        yield key.sort(combine(parts))


@dataclass(frozen=True, slots=True)
class SpilledRuns:
    """Sorted runs in one directory, in the input order of their rows."""

    directory: Path
    key: SortKey
    block_rows: int
    block_bytes: int
    paths: list[Path] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    def add(self, tables: Iterable[pa.Table]) -> None:
        """Write sorted tables (at least one) as one run."""
        path = self.directory / f"{next(self.numbers)}.arrow"
        blocks = (
            block
            for piece in regroup(tables, self.block_rows, self.block_bytes)
            for block in _halved(piece, self.block_bytes)
        )
        first = next(blocks)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            _spilling(self.directory),
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, first.schema, options=options) as writer,
        ):
            for block in chain([first], blocks):
                writer.write_table(block)
        self.paths.append(path)

    def merge(self) -> Iterator[pa.Table]:
        """Yield the rows of all runs in order."""
        while len(self.paths) > MERGE_RUNS:
            fewer = [self.paths[start : start + MERGE_RUNS] for start in range(0, len(self.paths), MERGE_RUNS)]
            self.paths.clear()
            for paths in fewer:
                self.add(_merge(paths, self.key))
                for path in paths:
                    path.unlink()
        yield from _merge(self.paths, self.key)


def _halved(table: pa.Table, nbytes: int) -> Iterator[pa.Table]:
    """Yield the table in pieces of at most ``nbytes`` bytes, or of one row."""
    if table.nbytes <= nbytes or table.num_rows == 1:
        yield table
    else:
        half = table.num_rows // 2
        yield from _halved(table.slice(0, half), nbytes)
        yield from _halved(table.slice(half), nbytes)


@contextmanager
def spill_directory(location: Path | None) -> Iterator[Path]:
    """Create a directory for runs; remove it with its contents at the end of the block."""
    parent = location or _local_directory()
    with _spilling(parent or "the system's temporary directory"):
        directory = tempfile.TemporaryDirectory(prefix="inturn-sort-", dir=parent)
    with directory as name:
        yield Path(name)


def _local_directory() -> Path | None:
    """Return the executor's local directory with the most free space; None if there is none.

    Spark passes its local directories to Python workers in SPARK_LOCAL_DIRS, and removes them with the executor,
    including the files of a killed worker. YARN passes its own in LOCAL_DIRS.
    """
    for variable in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        named = [Path(name) for name in os.environ.get(variable, "").split(",") if name]
        usable = [path for path in named if path.is_dir() and os.access(path, os.W_OK | os.X_OK)]
        if usable:
            return max(usable, key=lambda path: shutil.disk_usage(path).free)
    return None


@contextmanager
def _spilling(directory: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(
            f"the rows of this task do not fit in memory, and cannot be sorted in {directory}: {error}. Free space "
            "there, or set another directory: spark.local.dir (on a cluster SPARK_LOCAL_DIRS, or YARN's own local "
            "directories) for the executors, TMPDIR outside Spark."
        ) from error
