"""A sort of the rows of one slice of the hash space, in a task's own process and in bounded memory.

Spark's ``sortWithinPartitions`` does the same and costs about one CPU second more per million rows, because it
turns Arrow columns into rows and back. Here the columns stay columns: numpy finds the order, and Arrow takes the
rows. Rows that do not fit in memory go to disk as sorted runs, which are then merged block by block.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from inturn.core import limits
from inturn.spark.executor.sort_key import SortKey
from inturn.spark.executor.spill import MERGE_RUNS, SpilledRuns, combine, cut, pools, regroup, spill_directory

_ADDRESSABLE: Final = 1 << 30  # a string column holds at most 2 GiB; a collected table stays well below


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
        chunk_rows: The maximum number of rows of a yielded table.
        sort_rows: The maximum number of rows sorted in memory; beyond that, runs go to disk.
        sort_bytes: The maximum number of bytes sorted in memory; beyond that, runs go to disk.
        merge_rows: The maximum number of rows of each run that are in memory while runs are merged.
        spill_dir: The directory for runs. If None, the executor's local directory (``SPARK_LOCAL_DIRS``,
            ``LOCAL_DIRS``) with the most free space, or else the system's temporary directory. The files are
            removed after the last chunk, when the caller closes the generator, or when an error is raised.

    Yields:
        Tables of 1 to ``chunk_rows`` rows, each column in one piece.

    Raises:
        SetupError: The spill directory is full or cannot be written.
    """
    key = SortKey(hash, group, tuple(keys))
    sort_bytes = min(sort_bytes, _ADDRESSABLE)
    row_pools = pools(batches, sort_rows, sort_bytes)
    first = next(row_pools, [])
    if not first:
        return
    run = key.sort(combine(first))
    if not (pool := next(row_pools, [])):
        yield from cut(run, chunk_rows)
        return
    with spill_directory(spill_dir) as directory:
        runs = SpilledRuns(directory, key, merge_rows, max(1, sort_bytes // MERGE_RUNS))
        runs.add([run])
        del run  # before the next pool is sorted
        while pool:
            runs.add([key.sort(combine(pool))])
            pool = next(row_pools, [])
        yield from regroup(runs.merge(), chunk_rows, sort_bytes)
