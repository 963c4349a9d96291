"""Streaks of consecutive revisions, found with numpy for all groups of a chunk at once."""

from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa

from inturn.core import limits
from inturn.core.pipeline.timeline import MARK_BYTES
from inturn.spark.executor.chunk import Chunk, Flags, Ints


class ConsecutiveRevisions:
    """The streak of each group of a chunk: the rows with consecutive revisions from the due one on.

    A group that is not ``plain``, since it holds something or is parked, has no streak.

    Attributes:
        group: for each row, the place of its group in the chunk.
        rows: the rows of all streaks; ``others`` are all others.
        sizes: for each group, the number of rows in its streak.
        streak_starts: for each group, the start of its streak in ``rows``; then the number of rows.
        is_complete: for each group, whether its streak has all its rows.
        old: for each group, the number of rows before the due revision.
        first_row: for each row, the first row of its group and revision.
    """

    def __init__(self, chunk: Chunk, due: Ints, plain: Flags) -> None:
        positions, starts = chunk.positions, chunk.starts
        self._chunk = chunk
        count = len(positions)
        lengths = np.diff(starts)
        group = np.repeat(np.arange(len(lengths)), lengths)
        first = np.ones(count, dtype=np.bool_)
        first[1:] = positions[1:] != positions[:-1]
        first[starts[:-1]] = True
        first_row: Ints = np.maximum.accumulate(np.where(first, np.arange(count), 0))
        is_old = positions < due[group]
        candidate = first & ~is_old & plain[group]
        rank: Ints = np.cumsum(candidate, dtype=np.int64)
        rank = rank - (rank[starts[:-1]] - candidate[starts[:-1]])[group]
        # For unique revisions from the due one on, revision - rank + 1 is the due one until the first gap.
        follows = candidate & (positions - rank + 1 == due[group])
        sizes = np.add.reduceat(follows.astype(np.int64), starts[:-1])
        ends = np.cumsum(sizes)
        rows = np.flatnonzero(follows)
        from_end = np.repeat(ends, sizes) - np.arange(len(rows))
        self._remembered: list[int] = rows[from_end <= limits.REMEMBERED_REVISIONS].tolist()
        self._remembered_ends: Ints = np.cumsum(np.minimum(sizes, limits.REMEMBERED_REVISIONS))
        self.group: Ints = group
        self.others: Ints = np.flatnonzero(~follows)
        self.sizes: Ints = sizes
        self.rows: list[int] = rows.tolist()
        self.is_complete: Flags = sizes == lengths
        self.streak_starts: list[int] = [0, *ends.tolist()]
        self.old: list[int] = np.add.reduceat(is_old.astype(np.int64), starts[:-1]).tolist()
        self.first_row: list[int] = first_row.tolist()

    def digests_needed(self) -> list[int]:
        """Return the rows whose digests are compared or remembered."""
        other_rows = self.others.tolist()
        return [*self._remembered, *other_rows, *(self.first_row[row] for row in other_rows)]

    @cached_property
    def marks(self) -> pa.Array:
        """The heads of the digests of the last rows of each group's streak, joined by group."""
        digest = cast("list[bytes]", self._chunk.digest)
        packed = b"".join([digest[row][:MARK_BYTES] for row in self._remembered])
        ends = np.append(0, self._remembered_ends * MARK_BYTES).astype(np.int32)
        return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(packed)])
