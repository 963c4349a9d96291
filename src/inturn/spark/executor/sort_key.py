"""The order of rows by columns: its sort, the comparison of single rows, and its check."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.errors import InturnError

RowKey = tuple[tuple[bool, Any], ...]
"""One row's (hash, group, *keys) for comparison in Python: a flag before each value puts nulls first."""


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
    key = SortKey(hash, group, tuple(keys))
    columns = [plain(table[name]) for name in key.names]
    first = row_at(columns, 0)
    if previous_last is not None and first < previous_last:
        raise _out_of_order(key, previous_last, first)
    misplaced = np.zeros(table.num_rows - 1, dtype=np.bool_)
    for column in reversed(columns):
        greater, equal = _with_next(column)
        misplaced = greater | (equal & misplaced)
    if misplaced.any():
        index = int(misplaced.argmax())
        raise _out_of_order(key, row_at(columns, index), row_at(columns, index + 1))
    return row_at(columns, table.num_rows - 1)


@dataclass(frozen=True, slots=True)
class SortKey:
    """The sort columns, the most significant first."""

    hash: str
    group: str
    keys: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
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
    column = plain(column)
    if pa.types.is_integer(column.type):
        values = _narrow(column.fill_null(0).to_numpy())
    else:
        values = pc.rank(column, tiebreaker="dense").to_numpy()
    return [column.is_valid().to_numpy(), values] if column.null_count else [values]


def _narrow(values: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    """Shift values into 16 bits if their range allows it: numpy's radix sort for those is ten times as fast."""
    low, high = int(values.min()), int(values.max())
    return (values - values.dtype.type(low)).astype(np.uint16) if high - low < 1 << 16 else values


def plain(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column with times as their stored integers (no copy), which numpy and Python compare exactly.

    Strings become bytes, which sort alike, since some of Spark's strings are not UTF-8.
    """
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if pa.types.is_temporal(column.type):
        return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column


def row_at(columns: Sequence[pa.ChunkedArray | pa.Array], index: int) -> RowKey:
    """Return the key of a row of columns from :func:`plain`."""
    values = (column[index].as_py() for column in columns)
    return tuple((value is not None, value) for value in values)


def _with_next(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return, for each row but the last, whether its value is greater than the next row's, and whether it is equal."""
    this, following = column[:-1], column[1:]
    greater, equal = pc.greater(this, following), pc.equal(this, following)
    if column.null_count:
        greater = pc.or_(greater.fill_null(False), pc.and_not(this.is_valid(), following.is_valid()))  # noqa: FBT003
        equal = pc.or_(equal.fill_null(False), pc.and_(this.is_null(), following.is_null()))  # noqa: FBT003
    return greater.to_numpy(), equal.to_numpy()


def _out_of_order(key: SortKey, before: RowKey, after: RowKey) -> InturnError:
    def show(row: RowKey) -> str:
        texts = [value.decode(errors="replace") if isinstance(value, bytes) else value for _, value in row]
        return ", ".join(f"{name}={value!r}" for name, value in zip(key.names, texts, strict=True))

    return InturnError(
        f"rows are out of order: ({show(after)}) follows ({show(before)}). Rows must be sorted by "
        f"{', '.join(key.names)}; their order was changed after the sort. Nothing is applied."
    )
