"""An index from group to row: by hash, and by name where several groups share a hash."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.spark.tables.sorted import Hashes


class Index:
    """Row numbers of groups, in the order in which the groups are added.

    Args:
        wanted: all possible hashes, sorted and unique.
    """

    def __init__(self, wanted: Hashes) -> None:
        self._wanted = wanted
        self._first = np.full(len(wanted) + 1, -1)  # first group's row by hash; the last entry: unknown hashes
        self._further: dict[str, int] = {}
        self._names = pa.array([], pa.string())

    def __len__(self) -> int:
        return len(self._names)

    def add(self, hashes: Hashes, names: pa.Array) -> Hashes:
        """Add groups, sorted by hash, and return the positions of those that are new."""
        new = np.flatnonzero(self.rows_of(hashes, names) < 0)
        place, rows = self._places(hashes[new]), len(self) + np.arange(len(new))
        first = (self._first[place] < 0) & np.append(True, place[1:] != place[:-1])[: len(new)]
        self._first[place[first]] = rows[first]
        for at in np.flatnonzero(~first).tolist():
            self._further[names[new.item(at)].as_py()] = rows.item(at)
        self._names = pa.concat_arrays([self._names, names.take(pa.array(new)).cast(pa.string())])
        return new

    def rows_of(self, hashes: Hashes, names: pa.Array) -> Hashes:
        """Return the row of each of these groups; -1 if it is absent."""
        rows = self._first[self._places(hashes)]
        known = np.flatnonzero(rows >= 0)
        theirs = names.take(pa.array(known)).cast(pa.string())
        same = pc.equal(self._names.take(pa.array(rows[known])), theirs).to_numpy(zero_copy_only=False)
        for at in known[~same].tolist():
            rows[at] = self._further.get(names[at].as_py(), -1)
        return rows

    def _places(self, hashes: Hashes) -> Hashes:
        """Return the position of each hash among the wanted ones; the position past the end if it is not wanted."""
        place = np.searchsorted(self._wanted, hashes)
        place[np.append(self._wanted, 0)[place] != hashes] = len(self._wanted)
        return place
