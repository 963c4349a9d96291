"""Merging of the newest levels of a store into one, so that their number stays small.

The sizes of the levels alone decide which are merged. A row is rewritten only after at least half as many rows
were added after it, so about as often as the store doubled in size. Log-structured merge trees work this way.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.tables.earlier_groups import with_conflicts
from inturn.spark.tables.manifest import LEVEL_TABLES, DataFile, StoreLevel
from inturn.spark.tables.sorted_files import PAST, SortedBatches, StoreSlice
from inturn.spark.tables.table_files import ArrowFiles, by_hash, concat_alike, unsettled


def levels_to_merge(levels: Sequence[StoreLevel]) -> int:
    """Return how many of the newest levels to merge now; 0 if there are few."""
    if len(levels) < limits.LEVELS:
        return 0
    sizes = [sum(file.rows for file in level.groups) for level in reversed(levels)]
    total, count = sizes[0] + sizes[1], 2
    while count < len(sizes) and sizes[count] <= 2 * total:
        total, count = total + sizes[count], count + 1
    return count


def merge(part: StoreSlice, levels: Sequence[StoreLevel], states: StateCodec, name: str) -> dict[str, list[DataFile]]:
    """Merge one slice of adjacent levels, oldest first, into new files, by table.

    States are written in their current form; some may have been stored before a field existed.
    """
    out = {table: ArrowFiles(part.store, f"data/{table}/{name}-merged") for table in LEVEL_TABLES}
    waiting = [_RangeReader(part, [file]) for level in levels for file in level.held]
    for bound, newest in newest_groups(part, levels, lambda batch: _with_current_states(batch, states)):
        out["groups"].write(newest)
        out["unsettled"].write(unsettled(newest))
        alive = _held_steps(newest)
        for rows in concat_alike(_still_held(batch, alive) for walk in waiting for batch in walk.upto(bound)):
            out["held"].write(by_hash(rows))
    return {table: writer.close() for table, writer in out.items()}


def newest_groups(
    part: StoreSlice, levels: Sequence[StoreLevel], read: Callable[[pa.RecordBatch], pa.Table]
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the newest row of each group in adjacent levels, in hash order, with the greatest hash so far.

    Args:
        part: the slice.
        levels: the levels, oldest first.
        read: function that converts rows stored in different forms to one form; it keeps ``hash`` and ``group``.
    """
    walks = [_RangeReader(part, level.groups) for level in levels]
    while walks:
        bound = min(walk.last for walk in walks)
        if bound == PAST:
            return
        batches = [batch for walk in reversed(walks) for batch in walk.upto(bound)]
        if batches:
            yield bound, _newest(pa.concat_tables([read(batch) for batch in batches]))


class _RangeReader:
    """Iteration over sorted files from the smallest hash to the greatest, one range of hashes at a time."""

    def __init__(self, part: StoreSlice, files: Sequence[DataFile]) -> None:
        self._batches, self._offset = SortedBatches(part, files), 0
        self._low, self._high, self._bound = part.low, part.high, part.low - 1

    @property
    def last(self) -> int:
        """The greatest hash of the current batch."""
        if self._bound >= self._high or self._batches.first == PAST:
            return PAST
        return min(self._batches.last, self._high)

    def upto(self, bound: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows up to a bound that were not taken yet."""
        batches, self._bound = self._batches, bound
        while batches.first <= bound:
            batch = batches.read()
            hashes = batch.column("hash").to_numpy()
            begin = max(self._offset, int(np.searchsorted(hashes, self._low)))
            end = int(np.searchsorted(hashes, bound, side="right"))
            if end > begin:
                yield batch.slice(begin, end - begin)
            self._offset = end
            if end < len(batch) or batches.last > bound:
                return
            batches.advance()
            self._offset = 0


def _with_current_states(rows: pa.RecordBatch, states: StateCodec) -> pa.Table:
    """Return the rows with their states in the current form, which has the fields that the type gained since."""
    table = pa.Table.from_batches([with_conflicts(rows)])
    state = rows.column("state")
    if state.type == states.type and states.older is None:
        return table
    return table.set_column(table.column_names.index("state"), "state", states.pack(states.unpack(state)))


def _newest(table: pa.Table) -> pa.Table:
    """Return the first row of each group, sorted by hash; the newest rows come first."""
    table = by_hash(table)
    hashes, groups = table["hash"].to_numpy(), table["group"].combine_chunks()
    first = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    begins: npt.NDArray[np.int64] = np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))
    keep = first.copy()
    other = pc.not_equal(groups, groups.take(pa.array(begins))).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(other).tolist():  # another group with this hash, which is rare
        keep[row] = groups[row] not in groups.slice(begins[row], row - begins[row])
    return table.filter(pa.array(keep))


def _held_steps(groups: pa.Table) -> dict[str, int]:
    """Return, for each group that holds messages, the first step whose rows are still held."""
    rows = groups.select(["group", "held_step"]).filter(pc.greater(groups["held"], 0))
    return dict(zip(rows["group"].to_pylist(), rows["held_step"].to_pylist(), strict=True))


def _still_held(rows: pa.RecordBatch, alive: dict[str, int]) -> pa.Table:
    """Return the held messages that their groups still hold."""
    named = zip(rows.column("group").to_pylist(), rows.column("step").to_pylist(), strict=True)
    dead = 2**63
    return pa.Table.from_batches([rows]).filter(pa.array([alive.get(group, dead) <= step for group, step in named]))
