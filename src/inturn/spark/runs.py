"""Finds with numpy, for all groups of a chunk at once, the rows that follow one another without a hole."""

from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa

from inturn.core import limits
from inturn.core.timeline import MARK_BYTES
from inturn.spark.chunk import Chunk, Flags, Ints


class Runs:
    """For each group of a chunk, the rows that follow one another from the revision whose turn it is.

    Args:
        chunk: the rows.
        due: for each group, the revision whose turn it is.
        plain: for each group, whether it holds nothing and is not parked; else it has no run.

    Attributes:
        group: of each row.
        rows: of all runs.
        beside: the rows that are in no run.
        sizes: for each group, how many rows its run has.
        run_starts: where in ``rows`` each group's run begins, and their number.
        whole: for each group, whether its run is all there is of it.
        old: for each group, how many rows come before the revision whose turn it is.
        winner: for each row, the first of its group and revision.
    """

    def __init__(self, chunk: Chunk, due: Ints, plain: Flags) -> None:
        turns, starts = chunk.turns, chunk.starts
        self._chunk = chunk
        count = len(turns)
        lengths = np.diff(starts)
        group = np.repeat(np.arange(len(lengths)), lengths)
        first = np.ones(count, dtype=np.bool_)
        first[1:] = turns[1:] != turns[:-1]
        first[starts[:-1]] = True
        winner: Ints = np.maximum.accumulate(np.where(first, np.arange(count), 0))
        behind = turns < due[group]
        candidate = first & ~behind & plain[group]
        rank: Ints = np.cumsum(candidate, dtype=np.int64)
        rank = rank - (rank[starts[:-1]] - candidate[starts[:-1]])[group]
        # Unique revisions from the due one on, each less its rank: equal to it as long as nothing is missing.
        follows = candidate & (turns - rank + 1 == due[group])
        sizes = np.add.reduceat(follows.astype(np.int64), starts[:-1])
        ends = np.cumsum(sizes)
        rows = np.flatnonzero(follows)
        from_end = np.repeat(ends, sizes) - np.arange(len(rows))
        self._kept: list[int] = rows[from_end <= limits.REMEMBERED_REVISIONS].tolist()
        self._kept_ends: Ints = np.cumsum(np.minimum(sizes, limits.REMEMBERED_REVISIONS))
        self.group: Ints = group
        self.beside: Ints = np.flatnonzero(~follows)
        self.sizes: Ints = sizes
        self.rows: list[int] = rows.tolist()
        self.whole: Flags = sizes == lengths
        self.run_starts: list[int] = [0, *ends.tolist()]
        self.old: list[int] = np.add.reduceat(behind.astype(np.int64), starts[:-1]).tolist()
        self.winner: list[int] = winner.tolist()

    def digests_needed(self) -> list[int]:
        """The rows whose digests decide something or are to be remembered."""
        beside = self.beside.tolist()
        return [*self._kept, *beside, *(self.winner[row] for row in beside)]

    @cached_property
    def marks(self) -> pa.Array:
        """For each group, the heads of the digests of the last rows of its run."""
        digest = cast("list[bytes]", self._chunk.digest)
        packed = b"".join([digest[row][:MARK_BYTES] for row in self._kept])
        ends = np.append(0, self._kept_ends * MARK_BYTES).astype(np.int32)
        return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(packed)])
