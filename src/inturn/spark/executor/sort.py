"""A sort of the rows of one slice of the hash space, in a task's own process and in bounded memory.

Spark's ``sortWithinPartitions`` does the same and costs about one CPU second more per million rows, because it
turns Arrow columns into rows and back. Here the columns stay columns: numpy finds the order, and Arrow takes the
rows. Rows that do not fit in memory go to disk as sorted runs, which are then merged block by block.
"""

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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.core.errors import InturnError, SetupError

MERGE_RUNS: Final = 64
"""The most sorted runs that are merged at a time; more are first merged into fewer, which costs another pass."""

_ADDRESSABLE: Final = 1 << 30  # a string column holds at most 2 GiB; a collected table stays well below

RowKey = tuple[tuple[bool, Any], ...]
"""One row's (hash, group, *keys) for comparison in Python: a flag before each value puts nulls first."""


def sorted_chunks(  # noqa: PLR0913 - every bound can be set, and by its name only
    batches: Iterable[pa.RecordBatch],
    *,
    hash: str,  # noqa: A002 - the three columns are named by what they hold
    group: str,
    keys: Sequence[str],
    chunk_rows: int = limits.CHUNK_ROWS,
    sort_rows: int = limits.SORT_ROWS,
    sort_bytes: int = limits.SORT_BYTES,
    merge_rows: int = limits.MERGE_ROWS,
    spill_dir: Path | None = None,
) -> Iterator[pa.Table]:
    """Yield all rows ordered by (hash, group, *keys), a chunk at a time.

    Two groups with the same hash are ordered by their text and never mixed. Nulls come first, text is ordered by
    code point, and rows that are equal in all these columns keep their input order.

    Memory while rows are read: the larger of ``sort_bytes`` and one batch, twice (the rows and their sorted copy),
    and 8 bytes per row and sort column for at most ``sort_rows`` rows. Memory while runs are merged: at most
    ``MERGE_RUNS`` blocks of ``merge_rows`` rows and ``sort_bytes / MERGE_RUNS`` bytes, up to five times (the
    blocks, the next rows, their sorted copy, the chunk and its pieces), whatever the number of rows and runs. A row
    larger than a block is a block of its own.

    Args:
        batches: The rows, in any order; all batches have one schema.
        hash: The column of the group's hash, a signed 64-bit integer.
        group: The column of the group, a string.
        keys: The columns that order a group's rows, the most significant first: integers, times, strings, or
            any other type that ``pyarrow.compute.rank`` takes.
        chunk_rows: The most rows of a yielded table.
        sort_rows: The most rows sorted in memory; beyond that, runs go to disk.
        sort_bytes: The most bytes sorted in memory; beyond that, runs go to disk.
        merge_rows: The most rows of each run that are in memory while runs are merged.
        spill_dir: The directory for runs. If None, the executor's local directory (``SPARK_LOCAL_DIRS``,
            ``LOCAL_DIRS``) with the most free space, or else the system's temporary directory. The files are
            removed after the last chunk, when the caller closes the generator, or when an error is raised.

    Yields:
        Tables of 1 to ``chunk_rows`` rows, each column in one piece.

    Raises:
        SetupError: The spill directory is full or cannot be written.
    """
    key = _SortKey(hash, group, tuple(keys))
    sort_bytes = min(sort_bytes, _ADDRESSABLE)
    pools = _pools(batches, sort_rows, sort_bytes)
    pool, is_all = next(pools, ([], True))
    if is_all:
        if pool:
            yield from _cut(key.sort(_combine(pool)), chunk_rows)
        return
    with _temporary_directory(spill_dir or _local_directory()) as directory:
        runs = _Runs(directory, key, merge_rows, max(1, sort_bytes // MERGE_RUNS))
        runs.add([key.sort(_combine(pool))])
        for pool, _ in pools:
            runs.add([key.sort(_combine(pool))])
        yield from _regroup(runs.merge(), chunk_rows, sort_bytes)


def assert_sorted(
    table: pa.Table,
    previous_last: RowKey | None,
    *,
    hash: str,  # noqa: A002 - as in sorted_chunks
    group: str,
    keys: Sequence[str],
) -> RowKey | None:
    """Check that a chunk is in the order of ``sorted_chunks``, within itself and after the previous chunk.

    The kernel relies on the order and does not check it. An engine that drops a sort does so silently, so a step
    with a lost order has to fail here rather than apply messages out of order.

    Args:
        table: The chunk.
        previous_last: The return value of the call for the previous chunk; None for the first chunk.
        hash: The column of the group's hash.
        group: The column of the group.
        keys: The columns that order a group's rows.

    Returns:
        The key of the chunk's last row, for the next call; ``previous_last`` if the chunk is empty.

    Raises:
        InturnError: A row comes before the one it should follow; the text shows both.
    """
    if table.num_rows == 0:
        return previous_last
    key = _SortKey(hash, group, tuple(keys))
    columns = [_plain(table[name]) for name in key.names]
    first = _row(columns, 0)
    if previous_last is not None and first < previous_last:
        raise _out_of_order(key, previous_last, first)
    misplaced = np.zeros(table.num_rows - 1, dtype=np.bool_)
    for column in reversed(columns):
        greater, equal = _with_next(column)
        misplaced = greater | (equal & misplaced)
    if misplaced.any():
        at = int(misplaced.argmax())
        raise _out_of_order(key, _row(columns, at), _row(columns, at + 1))
    return _row(columns, table.num_rows - 1)


@dataclass(frozen=True, slots=True)
class _SortKey:
    """The sort columns, the most significant first."""

    hash: str
    group: str
    keys: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.hash, self.group, *self.keys)

    def sort(self, table: pa.Table) -> pa.Table:
        """Return the rows of ``table`` in order; each of its columns must be in one piece.

        A sort by text costs several times as much as one by numbers, and is needed only where groups share a hash.
        """
        result = table.take(_positions(table, (self.hash, *self.keys)))
        return table.take(_positions(table, self.names)) if self._mixes_groups(result) else result

    def _mixes_groups(self, table: pa.Table) -> bool:
        """Return whether adjacent rows with the same hash may belong to two groups."""
        hashes, groups = table[self.hash], table[self.group]
        if hashes.null_count or groups.null_count:
            return True  # not expected, so speed does not matter
        same_hash = pc.equal(hashes[1:], hashes[:-1])
        other_group = pc.not_equal(groups[1:], groups[:-1])
        return bool(pc.any(pc.and_(same_hash, other_group)).as_py())


def _positions(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return the row numbers of ``table`` in the stable order of the columns ``names``."""
    levels = [level for name in names for level in _levels(table[name])]
    return pa.array(np.lexsort(levels[::-1]))  # lexsort takes the most significant key last


def _levels(column: pa.ChunkedArray) -> list[npt.NDArray[Any]]:
    """Return arrays of numbers that sort as the column's values do, nulls first; the most significant array first."""
    column = _plain(column)
    if pa.types.is_integer(column.type):
        values = _narrow(column.fill_null(0).to_numpy())
    else:
        values = pc.rank(column, tiebreaker="dense").to_numpy()
    return [column.is_valid().to_numpy(), values] if column.null_count else [values]


def _narrow(values: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    """Shift values into 16 bits if their range allows it: numpy's radix sort for those is ten times as fast."""
    low, high = int(values.min()), int(values.max())
    return (values - values.dtype.type(low)).astype(np.uint16) if high - low < 1 << 16 else values


def _plain(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column with times as their stored integers (no copy), which numpy and Python compare exactly.

    Strings become bytes, which sort alike, since some of Spark's strings are not UTF-8.
    """
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if pa.types.is_temporal(column.type):
        return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column


def _row(columns: Sequence[pa.ChunkedArray | pa.Array], at: int) -> RowKey:
    values = (column[at].as_py() for column in columns)
    return tuple((value is not None, value) for value in values)


def _with_next(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return, for each row but the last, whether its value is greater than the next row's, and whether it is equal."""
    this, following = column[:-1], column[1:]
    greater, equal = pc.greater(this, following), pc.equal(this, following)
    if column.null_count:
        greater = pc.or_(greater.fill_null(False), pc.and_not(this.is_valid(), following.is_valid()))  # noqa: FBT003
        equal = pc.or_(equal.fill_null(False), pc.and_(this.is_null(), following.is_null()))  # noqa: FBT003
    return greater.to_numpy(), equal.to_numpy()


def _out_of_order(key: _SortKey, before: RowKey, after: RowKey) -> InturnError:
    def show(row: RowKey) -> str:
        texts = [each.decode(errors="replace") if isinstance(each, bytes) else each for _, each in row]
        return ", ".join(f"{name}={value!r}" for name, value in zip(key.names, texts, strict=True))

    return InturnError(
        f"Rows are out of order: ({show(after)}) came after ({show(before)}). They must come sorted by "
        f"{', '.join(key.names)}; something between the sort and here has changed their order. Nothing is applied."
    )


def _pools(batches: Iterable[pa.RecordBatch], rows: int, nbytes: int) -> Iterator[tuple[list[pa.RecordBatch], bool]]:
    """Collect batches up to both bounds (one batch may be larger); yield each pool and whether it is the only one.

    The caller empties the list, so that no batch is kept alive while its sorted copy is in use.
    """
    pool: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    only = True
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if pool and (held_rows + batch.num_rows > rows or held_bytes + batch.nbytes > nbytes):
            only = False
            yield pool, False
            pool, held_rows, held_bytes = [], 0, 0
        pool.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
    if pool:
        yield pool, only


def _combine(pieces: list[Any]) -> pa.Table:
    """Combine the list's record batches or tables into one table, each column in one piece; empty the list."""
    tables = [pa.Table.from_batches([piece]) if isinstance(piece, pa.RecordBatch) else piece for piece in pieces]
    pieces.clear()
    return pa.concat_tables(tables).combine_chunks()


def _cut(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _regroup(tables: Iterable[pa.Table], rows: int, nbytes: int) -> Iterator[pa.Table]:
    """Join small tables and cut large ones, so that the kernel's cost per chunk is spread over many rows."""
    held: list[pa.Table] = []
    held_rows = held_bytes = 0
    for table in tables:
        for piece in _cut(table, rows):
            if held and (held_rows + piece.num_rows > rows or held_bytes + piece.nbytes > nbytes):
                yield _combine(held)
                held_rows = held_bytes = 0
            held.append(piece)
            held_rows += piece.num_rows
            held_bytes += piece.nbytes
    if held:
        yield _combine(held)


class _Run:
    """A sorted run on disk, with one of its blocks in memory."""

    def __init__(self, path: Path, key: _SortKey) -> None:
        self._path, self._key, self._blocks_read = path, key, 0
        self._load()

    def _load(self) -> None:
        with _spilling(self._path.parent), pa.OSFile(str(self._path), "rb") as source:
            reader = pa.ipc.open_file(source)  # opened for each block, so that many runs need no open files
            block = reader.get_batch(self._blocks_read)
            self._blocks_read += 1
            self._has_more = self._blocks_read < reader.num_record_batches
        self._block, self._start = pa.Table.from_batches([block]), 0  # rows before _start are already taken
        self._columns = [_plain(block[name]) for name in self._key.names]
        self.last = _row(self._columns, block.num_rows - 1)

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
        self._start = bisect(rows, bound, lo=start, key=lambda at: _row(self._columns, at))
        return self._block.slice(start, self._start - start)


def _merge(paths: Sequence[Path], key: _SortKey) -> Iterator[pa.Table]:
    """Yield the rows of all runs in order, with one block of each in memory.

    The least of the blocks' last rows is the bound: no row still on disk can come before it. Each round yields all
    rows up to the bound, and so uses up at least one block. Of rows equal to the bound, those of an earlier run come
    first, so that the order is stable.
    """
    runs = [_Run(path, key) for path in paths]
    while runs := [run for run in runs if run.refill()]:
        bound, bounding = min((run.last, place) for place, run in enumerate(runs))
        parts = [run.take_until(bound, inclusive=place <= bounding) for place, run in enumerate(runs)]
        yield key.sort(_combine(parts))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Sorted runs in one directory, in the input order of their rows."""

    directory: Path
    key: _SortKey
    block_rows: int
    block_bytes: int
    paths: list[Path] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    def add(self, tables: Iterable[pa.Table]) -> None:
        """Write sorted tables (at least one) as one run."""
        path = self.directory / f"{next(self.numbers)}.arrow"
        blocks = (
            block
            for piece in _regroup(tables, self.block_rows, self.block_bytes)
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
            fewer = [self.paths[at : at + MERGE_RUNS] for at in range(0, len(self.paths), MERGE_RUNS)]
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
def _temporary_directory(parent: Path | None) -> Iterator[Path]:
    """Create a directory for runs; remove it with its contents at the end of the block."""
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
            f"The rows of this task do not fit in memory, and they cannot be sorted in {directory}: {error}. "
            "Free space there, or name another directory: spark.local.dir (on a cluster SPARK_LOCAL_DIRS, or YARN's "
            "own local directories) for the executors, TMPDIR outside Spark."
        ) from error
